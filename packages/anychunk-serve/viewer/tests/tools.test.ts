import { expect, test } from "vitest";
import { maximumPiece } from "../src/chunks";
import { placed } from "../src/compare";
import { between, heightOf, places } from "../src/files";
import { DEGREES, geoOf, graticule, lonLatText, parsePlace, pixelOf, roundStep } from "../src/geo";
import { imageOf, type Image } from "../src/image";
import { boxOf, greatCircle, measureText, pixelsAlong, rulerOf, Statistics } from "../src/measure";
import { rangesOf } from "../src/measuring";
import { insetBack, placeBack, turnedBack, turnedSize } from "../src/orientation";
import { Showing, type Opened } from "../src/showing";
import { START } from "../src/state";
import { cellsIn, extentOf, toFull } from "../src/view";
import { crossOf, depthAxis, slabAround, stretchOf, turned } from "../src/volume";

function flat(attributes: object, shape = [60, 80]): Image {
  const names = ["c", "z", "y", "x"].slice(-shape.length);
  return imageOf("f.tif", "", {
    node_type: "array",
    shape,
    data_type: "uint8",
    dimension_names: names,
    chunk_grid: { name: "regular", configuration: { chunk_shape: shape } },
    attributes: attributes as Record<string, unknown>,
  });
}
const at = (x: number, y: number, size = 10): Image =>
  flat({ "spatial:transform": [size, 0, x, 0, -size, y], "proj:code": "EPSG:32611" });

test("a volume is turned, with elements as long as they are", () => {
  const image = flat({}, [10, 60, 80]);
  expect(depthAxis(image)).toBe(0);
  expect(depthAxis(flat({}))).toBeNull();
  expect(stretchOf(image, 0)).toBe(1);
  const deep: Image = {
    ...image,
    scale: [2, 0.5, 0.5],
    axes: image.axes.map((a) => ({ ...a, unit: "micrometer" })),
  };
  expect(stretchOf(deep, 0)).toBe(4);
  const xz = turned(deep, 0, 2, 0, 4);
  expect(extentOf(xz)).toEqual({ left: 0, top: 0, right: 80, bottom: 40 });
  expect(cellsIn(xz, 0, extentOf(xz))).toHaveLength(1);
  expect(toFull(xz, xz.levels[0]!, { left: 0, top: 0, right: 80, bottom: 10 }).bottom).toBe(40);
  expect(crossOf(image, { ...START, at: { x: 99, y: 7 } }, [3, 0, 0])).toEqual([3, 7, 79]);
});

test("a slab stays inside", () => {
  expect(slabAround(0, 5, 1, 10)).toBeNull();
  expect(slabAround(0, 5, 3, 10)).toEqual({ axis: 0, from: 4, to: 6 });
  expect(slabAround(0, 0, 4, 10)).toEqual({ axis: 0, from: 0, to: 3 });
  expect(slabAround(0, 9, 4, 10)).toEqual({ axis: 0, from: 6, to: 9 });
  const plane = Float32Array.of(5, Number.NaN);
  const values = { data: Float32Array.of(3, 4), shape: [1, 2], stride: [2, 1], bytes: 8 };
  maximumPiece(values, { y: 0, x: 1, base: 0 }, { from: [0, 0], to: [0, 0], rows: 1, columns: 2 }, plane, 2);
  expect([...plane]).toEqual([5, 4]);
});

test("an image lies in the pixels of another", () => {
  const other = placed(at(1200, 4900, 20), at(1000, 5000));
  expect(other.extent).toEqual({ left: 20, top: 10, right: 180, bottom: 130 });
  expect(other.levels[0]).toMatchObject({ factor: [2, 2], corner: [10, 20] });
  expect(() => placed(flat({}), at(0, 0))).toThrow(/no place/);
  const elsewhere = { ...at(0, 0), attributes: { ...at(0, 0).attributes, "proj:code": "EPSG:4326" } };
  expect(() => placed(elsewhere, at(0, 0))).toThrow(/EPSG:4326/);
  expect(placed(flat({}), flat({})).extent).toEqual({ left: 0, top: 0, right: 80, bottom: 60 });
});

test("places are understood", () => {
  expect(parsePlace("446725, 3746815.5")).toEqual({ kind: "map", x: 446725, y: 3746815.5 });
  expect(parsePlace("33.86 N, 117.58 W")).toEqual({ kind: "degrees", x: -117.58, y: 33.86 });
  expect(parsePlace("117.58° W 33.86° S")).toEqual({ kind: "degrees", x: -117.58, y: -33.86 });
  expect(parsePlace("here")).toBeNull();
  expect(parsePlace("1 N, 2 N")).toBeNull();
  expect(lonLatText([-117.5, -33.25], 2)).toBe("33.25° S, 117.50° W");
  expect(pixelOf([10, 0, 1000, 0, -10, 5000], 1055, 4985)).toEqual({ x: 5.5, y: 1.5 });
});

test("UTM is converted as PROJ converts it", async () => {
  const geo = (await geoOf({ ...at(0, 0), crs: "+proj=utm +zone=11 +datum=WGS84 +units=m" }))!;
  const [lon, lat] = geo.inverse(441525, 3750515)!;
  // pyproj 3.8: Transformer.from_crs(32611, 4326, always_xy=True)
  expect(lon).toBeCloseTo(-117.63240994, 7);
  expect(lat).toBeCloseTo(33.89338694, 7);
  const [x, y] = geo.forward(lon, lat)!;
  expect([x, y].map((v) => Math.round(v * 100))).toEqual([44152500, 375051500]);
  expect(await geoOf(flat({}))).toBeNull();
  expect(await geoOf({ ...at(0, 0), crs: "nonsense" })).toBeNull();
});

test("meridians are at round degrees", () => {
  expect([1, 0.3, 90].map(roundStep)).toEqual([0.2, 0.05, 20]);
  const lines = graticule(DEGREES, [0.01, 0, 10, 0, -0.01, 50], { left: 0, top: 0, right: 100, bottom: 100 });
  expect(lines.map(({ text }) => text)).toContain("10.2° E");
  expect(lines.find(({ text }) => text === "10.2° E")!.points[0]!.x).toBeCloseTo(20, 9);
  expect(lines.filter(({ isMeridian }) => !isMeridian).map(({ text }) => text)).toContain("49.4° N");
});

test("lengths and areas are those on the ground", () => {
  const ruler = rulerOf(at(0, 0), { ...DEGREES, isDegrees: false, metres: 1 });
  expect(ruler.length({ x: 0, y: 0 }, { x: 3, y: 4 })).toBe(50);
  const square = [0, 1, 2, 3].map((i) => ({ x: i === 1 || i === 2 ? 2 : 0, y: i > 1 ? 2 : 0 }));
  expect(ruler.area(square)).toBe(400);
  expect(rulerOf(flat({}), null)).toMatchObject({ unit: "px" });
  // a degree of the equator on the mean sphere
  expect(greatCircle([0, 0], [1, 0])).toBeCloseTo(111195.08, 1);
  const degrees = rulerOf(flat({ "spatial:transform": [1, 0, 0, 0, -1, 1] }), DEGREES);
  // the spherical cell between 0 and 1 degrees: R² · (sin 1° - sin 0°) · 1°
  const cell = [0, 1, 2, 3].map((i) => ({ x: i === 1 || i === 2 ? 1 : 0, y: i > 1 ? 1 : 0 }));
  expect(degrees.area(cell) / 1e6).toBeCloseTo(12363.7, 0);
  expect(measureText(1234.5, "m")).toBe("1.234 km");
  expect(measureText(50, "µm")).toBe("50 µm");
  expect(measureText(2e6, "m", 2)).toBe("2 km²");
});

test("statistics are numpy's, without nodata", () => {
  const found = new Statistics();
  found.add(Float64Array.of(1e9 + 4, 1e9 + 7, Number.NaN), -1);
  found.add(Float64Array.of(1e9 + 13, 1e9 + 16, -1), -1);
  expect([found.count, found.absent, found.least - 1e9, found.most - 1e9]).toEqual([4, 2, 4, 16]);
  expect(found.mean).toBe(1e9 + 10);
  expect(found.deviation).toBeCloseTo(4.743416490252569, 9);
  expect(new Statistics().deviation).toBeNaN();
});

test("pixels along a line, and of a rectangle", () => {
  expect(pixelsAlong({ x: 0.5, y: 0.5 }, { x: 3.5, y: 0.5 }, 100).map(({ x }) => x)).toEqual([0, 1, 2, 3]);
  expect(pixelsAlong({ x: 0, y: 0 }, { x: 1000, y: 0 }, 11)).toHaveLength(11);
  expect(boxOf({ x: 9, y: 2 }, { x: -4, y: 5.5 }, 8, 8)).toEqual({ left: 0, top: 2, right: 8, bottom: 6 });
});

test("the ranges of a selection", () => {
  const showing = new Showing({ image: flat({}, [4, 7, 60, 80]) } as Opened);
  const box = { left: 1, top: 2, right: 3, bottom: 4 };
  const part = [
    { from: 2, to: 4 },
    { from: 1, to: 3 },
  ];
  expect(rangesOf(showing, { ...START, bands: [2] }, box)).toEqual([2, 3, ...part]);
  expect(rangesOf(showing, { ...START, bands: [2, 1, 0] }, box)).toEqual([{ from: 0, to: 3 }, 3, ...part]);
  expect(rangesOf(showing, { ...START, bands: [3, 1, 0] }, box)).toEqual([[0, 1, 3], 3, ...part]);
});

test("the list knows which entries are visible", () => {
  const begins = places(1000, (number) => (number % 2 ? 100 : 50));
  expect(begins[1000]).toBe(75000);
  expect(between(begins, -400, 10)).toEqual([0, 0]);
  expect(between(begins, 150, 299)).toEqual([2, 3]);
  expect(between(begins, 74000, 99999)[1]).toBe(999);
  expect(heightOf(undefined)).toBeGreaterThan(0);
});

test("positions on the screen are found in a turned image", () => {
  const screen = { width: 100, height: 60 };
  // a quarter turn clockwise: the first row is on the right, the first column above
  expect(turnedSize(screen, 6)).toEqual({ width: 60, height: 100 });
  expect(placeBack({ x: 100, y: 0 }, screen, 6)).toEqual({ x: 0, y: 0 });
  expect(placeBack({ x: 99, y: 2 }, screen, 6)).toEqual({ x: 2, y: 1 });
  expect(placeBack({ x: 3, y: 2 }, screen, 2)).toEqual({ x: 97, y: 2 });
  expect(placeBack({ x: 3, y: 2 }, screen, 3)).toEqual({ x: 97, y: 58 });
  expect(placeBack({ x: 3, y: 2 }, screen, 5)).toEqual({ x: 2, y: 3 });
  expect(placeBack({ x: 3, y: 2 }, screen, 4)).toEqual({ x: 3, y: 58 });
  expect(placeBack({ x: 3, y: 2 }, screen, 7)).toEqual({ x: 58, y: 97 });
  expect(placeBack({ x: 3, y: 2 }, screen, 8)).toEqual({ x: 58, y: 3 });
  expect(turnedBack({ x: 5, y: 0 }, 8)).toEqual({ x: 0, y: 5 });
  // a number that the tag does not have
  expect(placeBack({ x: 3, y: 2 }, screen, 9)).toEqual({ x: 3, y: 2 });
});

test("covered edges are those of the turned image", () => {
  const inset = { left: 1, top: 2, right: 3, bottom: 4 };
  expect(insetBack(inset, 1)).toEqual(inset);
  expect(insetBack(inset, 3)).toEqual({ left: 3, top: 4, right: 1, bottom: 2 });
  // clockwise: columns go down, rows to the left
  expect(insetBack(inset, 6)).toEqual({ left: 2, top: 3, right: 4, bottom: 1 });
  expect(insetBack(inset, 8)).toEqual({ left: 4, top: 1, right: 2, bottom: 3 });
});
