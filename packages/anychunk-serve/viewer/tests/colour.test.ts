import { expect, test } from "vitest";
import { colours, cssGradient, MAPS } from "../src/colormap";
import { automatic, histogram, percentile, rounded, sorted, type Plane } from "../src/contrast";
import { imageOf, type NodeJson } from "../src/image";
import { described, statedLimits } from "../src/described";
import { labelColour, level, levels, paint, PLAIN, type Painting } from "../src/paint";

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

const BYTES = (count: number): [number, number][] => Array.from({ length: count }, () => [0, 255]);

/** Paint one pixel of these samples. */
function pixel(samples: number[], by: Partial<Painting> & Pick<Painting, "kind">): number[] {
  const planes = samples.map((value) => Float64Array.of(value));
  const extra = Number(Boolean(by.alpha)) + Number(by.valid != null);
  const out = new Uint8ClampedArray(4);
  paint(planes, { ...PLAIN, limits: BYTES(planes.length - extra), map: colours("gray"), ...by }, out);
  return [...out];
}

test("inks take light away", () => {
  // round((255 - C)(255 - K) / 255), as Pillow and libtiff have it
  expect(pixel([255, 0, 0, 0], { kind: "cmyk" })).toEqual([0, 255, 255, 255]);
  expect(pixel([10, 100, 200, 50], { kind: "cmyk" })).toEqual([197, 125, 44, 255]);
});

test("YCbCr is that of JPEG", () => {
  expect(pixel([128, 128, 128], { kind: "ycbcr" })).toEqual([128, 128, 128, 255]);
  // Pillow: Image.new("YCbCr", (1, 1), (100, 60, 220)).convert("RGB") is (229, 58, 0)
  expect(pixel([100, 60, 220], { kind: "ycbcr" })).toEqual([229, 58, 0, 255]);
});

test("white may be the least value", () => {
  expect(pixel([0], { kind: "map", inverted: true })).toEqual([255, 255, 255, 255]);
  expect(pixel([255], { kind: "map", inverted: true })).toEqual([0, 0, 0, 255]);
});

test("alpha that colours are multiplied by is divided out", () => {
  const alpha = { band: 3, associated: true, range: [0, 255] as [number, number] };
  expect(pixel([50, 25, 0, 128], { kind: "rgb", alpha })).toEqual([100, 50, 0, 128]);
  expect(pixel([50, 25, 0, 0], { kind: "rgb", alpha })).toEqual([0, 0, 0, 0]);
  const apart = { ...alpha, associated: false };
  expect(pixel([50, 25, 0, 128], { kind: "rgb", alpha: apart })).toEqual([50, 25, 0, 128]);
  expect(pixel([50, 51], { kind: "map", alpha: { ...apart, range: [0, 51] } })).toEqual([50, 50, 50, 255]);
});

test("what a mask excludes is transparent", () => {
  expect(pixel([9, 255], { kind: "map", valid: 255 })).toEqual([9, 9, 9, 255]);
  expect(pixel([9, 0], { kind: "map", valid: 255 })).toEqual([0, 0, 0, 0]);
});

test("a palette is looked up, from its first value, with its alpha", () => {
  const palette = { first: 2, colours: Uint8Array.from([1, 2, 3, 255, 4, 5, 6, 7]) };
  const drawn = [0, 2, 3, 99].map((value) => pixel([value], { kind: "palette", palette }));
  expect(drawn).toEqual([
    [1, 2, 3, 255],
    [1, 2, 3, 255],
    [4, 5, 6, 7],
    [4, 5, 6, 7],
  ]);
});

test("channels add up", () => {
  const channels = [
    { color: [0, 0, 1] as const, gamma: 1, inverted: false },
    { color: [0, 1, 0.5] as const, gamma: 2, inverted: false },
    { color: [1, 0, 0] as const, gamma: 1, inverted: true },
  ];
  const limits: [number, number][] = [
    [0, 100],
    [0, 100],
    [0, 100],
  ];
  // blue 0.6 + 0.25 / 2, green 0.25, red 1 - 0.8
  expect(pixel([60, 50, 80], { kind: "channels", channels, limits })).toEqual([51, 64, 185, 255]);
  expect(pixel([100, 100, 0], { kind: "channels", channels, limits })).toEqual([255, 255, 255, 255]);
  expect(pixel([Number.NaN, 50, 80], { kind: "channels", channels, limits })).toEqual([51, 64, 32, 255]);
  const none = pixel([Number.NaN, Number.NaN, Number.NaN], { kind: "channels", channels, limits });
  expect(none).toEqual([0, 0, 0, 0]);
});

test("labels have colours of their own, bright and always the same", () => {
  const found = Array.from({ length: 500 }, (_, i) => labelColour(i + 1));
  expect(new Set(found.map(String)).size).toBeGreaterThan(495);
  expect(found.every((colour) => Math.max(...colour) >= 178)).toBe(true);
  expect(labelColour(1)).toEqual(labelColour(1));
  expect(pixel([0], { kind: "labels" })).toEqual([0, 0, 0, 0]);
  expect(pixel([7], { kind: "labels" })).toEqual([...labelColour(7), 255]);
});

/** Return how an image of `count` bands is drawn that has these attributes. */
function stated(
  display: unknown,
  { count = 4, dtype = "uint8", ...attributes } = {},
): ReturnType<typeof described> {
  const root: NodeJson = {
    node_type: "array",
    shape: [count, 2, 2],
    dimension_names: ["c", "y", "x"],
    data_type: dtype,
    attributes: { "anychunk.display": display, ...attributes },
  };
  return described(imageOf("f", "", root));
}

test("what a file states is checked", () => {
  expect(stated(null)).toMatchObject({ model: "grey", bands: [0], alpha: null, palette: null });
  expect(stated({ model: "rgb", bands: [2, 1, 0] })).toMatchObject({ model: "rgb", bands: [2, 1, 0] });
  expect(stated({ model: "rgb", bands: [0, 9] })).toMatchObject({ model: "grey", bands: [0] });
  expect(stated({ model: "cmyk", bands: [0, 1, 2] }).model).toBe("grey");
  expect(stated({ model: "palette", palette: { colors: "x" } }).model).toBe("grey");
  expect(stated({ model: "oil", alpha: { band: 4 }, range: [["a", 1]] })).toMatchObject({
    model: "grey",
    alpha: null,
    ranges: [],
  });
  const palette = stated({ model: "palette", palette: { first: 1, colors: [[1, 2, 3]] } }).palette;
  expect(palette).toEqual({ first: 1, colours: Uint8Array.of(1, 2, 3, 255) });
});

test("limits are those of the channel, of the image, of the type", () => {
  const window = { band: 1, window: [5, 50] };
  const some = stated({ model: "rgb", bands: [0, 1, 2], range: [[0, 1023]], channels: [window] });
  expect([0, 1, 3].map((band) => statedLimits(some, band, "uint16"))).toEqual([
    [0, 1023],
    [5, 50],
    [0, 1023],
  ]);
  const none = stated({ model: "grey" });
  expect(["uint8", "bool", "int16"].map((dtype) => statedLimits(none, 0, dtype))).toEqual([
    [0, 255],
    [0, 1],
    null,
  ]);
});

test("channels of other Zarr stores are those of omero", () => {
  const channel = (label: string, color: string): object => ({
    label,
    color,
    active: true,
    window: { start: 1, end: 2 },
  });
  const ome = { omero: { channels: [channel("a", "ff0000"), channel("b", "00ff00")] } };
  const found = stated(undefined, { count: 2, ome } as object);
  expect(found.model).toBe("channels");
  expect(found.channels.map(({ label, color, window }) => [label, color, window])).toEqual([
    ["a", "FF0000", [1, 2]],
    ["b", "00FF00", [1, 2]],
  ]);
});

test("NaN and fill are transparent, zero is not", () => {
  const out = new Uint8ClampedArray(16);
  paint(
    [Float32Array.from([Number.NaN, -1, 0, 10])],
    { ...PLAIN, kind: "map", limits: [[0, 10]], map: colours("gray"), fill: -1 },
    out,
  );
  expect([...out]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255]);
});

test("three bands are red, green, blue; only fill in all of them is fill", () => {
  const out = new Uint8ClampedArray(8);
  const planes = [Uint8Array.from([9, 9]), Uint8Array.from([20, 9]), Uint8Array.from([30, 9])];
  paint(planes, { ...PLAIN, kind: "rgb", limits: BYTES(3), map: colours("gray"), fill: 9 }, out);
  expect([...out]).toEqual([9, 20, 30, 255, 0, 0, 0, 0]);
});

test("numbers are as short as they can be told apart", () => {
  expect(rounded(1234.5678, 1000)).toBe("1235");
  expect(rounded(3, 0.1)).toBe("3");
  expect(rounded(0.123456, 1)).toBe("0.123");
});
