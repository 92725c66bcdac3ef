import { expect, test } from "vitest";
import { colours, cssGradient, MAPS } from "../src/colormap";
import { automatic, histogram, percentile, rounded, sorted, type Plane } from "../src/contrast";
import { level, levels, paint } from "../src/paint";

test("gray is the byte itself", () => {
  const gray = colours("gray");
  for (let i = 0; i < 256; i++) expect([...gray.subarray(3 * i, 3 * i + 3)]).toEqual([i, i, i]);
  expect([...colours("gray", true).subarray(0, 3)]).toEqual([255, 255, 255]);
});

// matplotlib 3.10: plt.colormaps[name](i, bytes=True); straight lines between stops are within 6
test.each([
  ["viridis", 64, [58, 82, 139]],
  ["viridis", 128, [32, 144, 140]],
  ["viridis", 192, [94, 201, 97]],
  ["magma", 128, [183, 55, 121]],
  ["inferno", 128, [188, 55, 84]],
  ["plasma", 128, [204, 71, 120]],
  ["cividis", 128, [125, 124, 120]],
])("%s %i is as matplotlib has it", (name, i, expected) => {
  const found = colours(name).subarray(3 * i, 3 * i + 3);
  expected.forEach((value, c) => expect(Math.abs(found[c]! - value)).toBeLessThanOrEqual(6));
});

test("every map has 256 colours", () => {
  for (const name of MAPS) expect(colours(name)).toHaveLength(768);
  expect(cssGradient(colours("gray"))).toContain("rgb(255, 255, 255)");
});

test("percentiles are numpy's", () => {
  const values = Float64Array.from([1, 2, 3, 4, 10]);
  expect(percentile(values, 50)).toBe(3);
  expect(percentile(values, 2)).toBeCloseTo(1.08, 12);
  expect(percentile(values, 98)).toBeCloseTo(9.52, 12);
});

test("what is not there does not count", () => {
  const plane = Float32Array.from([Number.NaN, 5, -1, Number.POSITIVE_INFINITY, -9999]);
  expect([...sorted([plane], -9999)]).toEqual([-1, 5]);
  expect(automatic(new Float64Array())).toEqual([0, 1]);
  expect(automatic(Float64Array.from([7, 7]))).toEqual([6.5, 7.5]);
});

test("contrast of bits is all of them", () => {
  expect(automatic(Float64Array.from([0, 0, 0, 1]))[1]).toBeGreaterThan(0);
});

test("a long plane is sampled, in order", () => {
  const plane = Uint16Array.from({ length: 1 << 20 }, (_, i) => i & 0xffff);
  const values = sorted([plane], null);
  expect(values.length).toBeLessThanOrEqual((1 << 18) + 1);
  expect(percentile(values, 50)).toBeGreaterThan(30000);
});

test("a histogram counts every value once", () => {
  const halves = histogram(Float64Array.from([0, 0.5, 1, 2]), 0, 1);
  expect([halves.counts.length, halves.counts[0], halves.counts[48], halves.counts[95]]).toEqual([
    96, 1, 1, 2,
  ]);
});

test("bins of whole numbers are equal", () => {
  const values = Float64Array.from({ length: 250 }, (_, i) => i);
  const { counts, most } = histogram(values, 0, 249);
  expect(new Set(counts.slice(0, -1))).toEqual(new Set([3]));
  expect([counts.length, most]).toEqual([84, 252]);
});

test.each([
  [0, 0],
  [100, 255],
  [50, 128],
  [-5, 0],
  [500, 255],
  [0.19, 0],
  [0.2, 1],
])("%d of 0…100 is byte %i", (value, byte) => {
  expect(level(value, [0, 100])).toBe(byte);
});

test("equal limits part the values", () => {
  expect([level(4, [5, 5]), level(5, [5, 5]), level(6, [5, 5])]).toEqual([0, 255, 255]);
});

test.each([
  Int8Array.from({ length: 5000 }, (_, i) => i),
  Uint8Array.from({ length: 5000 }, (_, i) => i),
  Int16Array.from({ length: 5000 }, (_, i) => 13 * i),
  Uint16Array.from({ length: 5000 }, (_, i) => 13 * i),
] as Plane[])("tables give what the formula gives", (plane) => {
  expect([...levels(plane, [-100, 3000.5])]).toEqual([...plane].map((v) => level(v, [-100, 3000.5])));
});

test("NaN and fill are transparent, zero is not", () => {
  const out = new Uint8ClampedArray(16);
  paint(
    [Float32Array.from([Number.NaN, -1, 0, 10])],
    { limits: [[0, 10]], map: colours("gray"), fill: -1 },
    out,
  );
  expect([...out]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255]);
});

test("three bands are red, green, blue; only fill in all of them is fill", () => {
  const out = new Uint8ClampedArray(8);
  const planes = [Uint8Array.from([9, 9]), Uint8Array.from([20, 9]), Uint8Array.from([30, 9])];
  paint(planes, { limits: [[0, 255]], map: colours("gray"), fill: 9 }, out);
  expect([...out]).toEqual([9, 20, 30, 255, 0, 0, 0, 0]);
});

test("numbers are as short as they can be told apart", () => {
  expect(rounded(1234.5678, 1000)).toBe("1235");
  expect(rounded(3, 0.1)).toBe("3");
  expect(rounded(0.123456, 1)).toBe("0.123");
});
