import { expect, test } from "vitest";
import { copyPiece, emptyPlane } from "../src/chunks";
import { borders, chunkBox } from "../src/grid";
import { assertDrawn, imageOf, otherAxes, placeAt, Unshowable, type NodeJson } from "../src/image";
import { filtered } from "../src/metadata";
import { codeFor, linesFor } from "../src/openin";
import { along, onMap, positionText, scaleBar, transformOf } from "../src/coordinates";
import { valueText } from "../src/readout";
import {
  bounded,
  cellsIn,
  extentOf,
  fit,
  levelFor,
  lowLevel,
  origin,
  seen,
  sizeOf,
  tileBox,
  tileSide,
  toFull,
  toImage,
  zoomedAt,
} from "../src/view";

const array = (shape: number[], chunk: number[], data_type = "uint16"): NodeJson => ({
  node_type: "array",
  shape,
  data_type,
  fill_value: 0,
  chunk_grid: { name: "regular", configuration: { chunk_shape: chunk } },
});

/** A volume whose second level is coarser along z too, and odd across. */
function volume(attributes: Record<string, unknown> = {}, dtype = "uint16"): NodeJson {
  const multiscales = [
    {
      axes: [
        { name: "z", type: "space", unit: "micrometer" },
        { name: "y", unit: "micrometer" },
        { name: "x", unit: "micrometer" },
      ],
      datasets: [
        { path: "0", coordinateTransformations: [{ type: "scale", scale: [2, 0.5, 0.5] }] },
        {
          path: "1",
          coordinateTransformations: [
            { type: "scale", scale: [4, 1, 1] },
            { type: "translation", translation: [1, 0.25, 0.25] },
          ],
        },
      ],
    },
  ];
  return {
    node_type: "group",
    consolidated_metadata: {
      metadata: {
        a: { node_type: "group", attributes: { ome: { version: "0.5", multiscales }, ...attributes } },
        "a/0": array([10, 600, 1001], [1, 512, 512], dtype),
        "a/1": array([5, 300, 501], [1, 512, 512], dtype),
      },
    },
  };
}

const object = (value: unknown): { multiscales: { datasets: { path: string }[] }[] } => value as never;
const image = imageOf("f.n5", "a", volume());

test("an image is what its metadata says", () => {
  expect([image.y, image.x, image.band]).toEqual([1, 2, null]);
  expect(image.levels[1]).toMatchObject({ path: "a/1", factor: [2, 2, 2], corner: [0, 0, 0] });
  expect(otherAxes(image)).toEqual([0]);
  expect(sizeOf(image)).toEqual({ width: 1001, height: 600 });
});

test("positions go along with levels", () => {
  expect([0, 1, 2, 9].map((z) => placeAt(image.levels[1]!, 0, z))).toEqual([0, 0, 1, 4]);
  expect(placeAt(image.levels[1]!, 2, 1000)).toBe(500);
});

test("levels without transformations cover the same extent", () => {
  const root = volume();
  delete root.consolidated_metadata!.metadata["a"]!.attributes!["ome"];
  expect(() => imageOf("f", "a", root)).toThrow(Unshowable);
  const plain: NodeJson = { ...array([3, 30, 40], [3, 30, 40]), dimension_names: ["band", "y", "x"] };
  const alone = imageOf("f.npy", "", plain);
  expect([alone.band, alone.y, alone.x]).toEqual([0, 1, 2]);
});

test("what cannot be drawn says why", () => {
  expect(() => assertDrawn(imageOf("f", "a", volume({}, "complex64")))).toThrow(/complex values/);
  expect(() => assertDrawn(imageOf("f", "a", volume({}, "bfloat16")))).toThrow(/bfloat16/);
  expect(() => imageOf("f", "", array([5], [5]))).toThrow(/no plane/);
  expect(() => imageOf("f", "nope", volume())).toThrow(/nope/);
});

test("a mask is read beside each level, if it fits", () => {
  const root = volume({ "anychunk.display": { model: "grey", mask: { path: "mask", valid: 255 } } });
  const members = root.consolidated_metadata!.metadata;
  const levels = object(members["a"]!.attributes!["ome"]).multiscales[0]!.datasets;
  levels.forEach((level) => (level.path = `${level.path}/image`));
  members["a/0/image"] = array([10, 600, 1001], [1, 512, 512]);
  members["a/1/image"] = array([5, 300, 501], [1, 512, 512]);
  members["a/0/mask"] = array([600, 1001], [512, 512], "uint8");
  expect(imageOf("f", "a", root).mask).toBeNull();
  members["a/1/mask"] = array([300, 501], [512, 512], "uint8");
  const mask = imageOf("f", "a", root).mask!;
  expect([mask.dtype, mask.y, mask.x, mask.band]).toEqual(["uint8", 0, 1, null]);
  expect(mask.levels[1]).toMatchObject({ path: "a/1/mask", factor: [2, 2], corner: [0, 0] });
});

test("nodata is what CF attributes state, zero included", () => {
  const fill = (by: Partial<NodeJson>): number | null =>
    imageOf("f", "", { ...array([2, 2], [2, 2]), ...by }).fill;
  expect(fill({ fill_value: 5 })).toBeNull();
  expect(fill({ fill_value: 0, attributes: { missing_value: 0, _FillValue: 0 } })).toBe(0);
  expect(fill({ attributes: { _FillValue: "AAAAAAAA8L8=", missing_value: -1 } })).toBe(-1);
  expect(fill({ fill_value: "NaN" })).toBeNaN();
});

test("the level fits the zoom", () => {
  expect([4, 1, 0.6, 0.5, 0.1].map((zoom) => levelFor(image, zoom))).toEqual([0, 0, 0, 1, 1]);
  expect(lowLevel(image)).toBe(1);
});

test("tiles are whole chunks, of a middle size", () => {
  expect([64, 100, 256, 512, 1024, 5000, 1].map(tileSide)).toEqual([256, 300, 256, 512, 1024, 512, 256]);
  expect(tileBox(image, { level: 0, row: 1, column: 1 })).toEqual({
    left: 512,
    top: 512,
    right: 1001,
    bottom: 600,
  });
  expect(cellsIn(image, 0, { left: 0, top: 0, right: 1001, bottom: 600 })).toHaveLength(4);
  expect(cellsIn(image, 0, { left: 0, top: 0, right: 512, bottom: 512 })).toEqual([
    { level: 0, row: 0, column: 0 },
  ]);
  expect(toFull(image, image.levels[1]!, { left: 0, top: 0, right: 501, bottom: 300 }).right).toBe(1002);
});

test("the view turns positions around and back", () => {
  const canvas = { width: 800, height: 600 };
  const view = { x: 500, y: 300, zoom: 3 };
  const corner = origin(view, canvas);
  expect(toImage(view, canvas, { x: corner.x + 30, y: corner.y + 6 })).toEqual({ x: 10, y: 2 });
  const at = { x: 100, y: 50 };
  const held = toImage(view, canvas, at);
  const after = toImage(zoomedAt(view, canvas, at, 2), canvas, at);
  expect(Math.abs(after.x - held.x)).toBeLessThan(0.2);
  expect(fit({ width: 100, height: 100 }, canvas)).toEqual({ x: 50, y: 50, zoom: 6 });
  const inset = { left: 0, top: 0, right: 100, bottom: 0 };
  const beside = fit({ width: 7000, height: 70 }, canvas, inset);
  expect([origin(beside, canvas).x, beside.zoom]).toEqual([0, 0.1]);
  expect(bounded({ x: -50, y: 9999, zoom: 1e9 }, sizeOf(image), canvas)).toEqual({ x: 0, y: 600, zoom: 64 });
  expect(seen({ x: 0, y: 0, zoom: 1 }, extentOf(image), canvas)).toEqual({
    left: 0,
    top: 0,
    right: 400,
    bottom: 300,
  });
});

test("pieces of chunks land where they belong, whatever the order of axes", () => {
  const data = Uint16Array.from({ length: 24 }, (_, i) => i); // (2, 3, 4)
  const values = { data, shape: [2, 3, 4], stride: [12, 4, 1], bytes: 48 };
  const plane = emptyPlane("uint16", 4);
  copyPiece(values, { y: 1, x: 2, base: 12 }, { from: [1, 2], to: [0, 0], rows: 2, columns: 2 }, plane, 2);
  expect([...plane]).toEqual([18, 19, 22, 23]);
  const turned = emptyPlane("uint16", 4);
  copyPiece(values, { y: 2, x: 1, base: 0 }, { from: [0, 0], to: [0, 0], rows: 2, columns: 2 }, turned, 2);
  expect([...turned]).toEqual([0, 4, 1, 5]);
  const wide = emptyPlane("int64", 1);
  copyPiece(
    { data: BigInt64Array.from([7n]), shape: [1, 1], stride: [1, 1], bytes: 8 },
    { y: 0, x: 1, base: 0 },
    { from: [0, 0], to: [0, 0], rows: 1, columns: 1 },
    wide,
    1,
  );
  expect([...wide]).toEqual([7]);
});

test("chunk borders, of one shape and of many", () => {
  expect(borders({ shape: [700], chunk_shape: [256] }, 0)).toEqual([0, 256, 512, 700]);
  expect(borders({ shape: [10], edges: [[0, 3, 10]] }, 0)).toEqual([0, 3, 10]);
  const chunk = {
    chunk: [0, 0, 1],
    shape: [1, 512, 512],
    origin: [0, 0, 512],
    codecs: [],
    source: null,
    parts: [],
    bytes: 0,
    stored: true,
    computed: false,
  };
  expect(chunkBox(image, image.levels[0]!, chunk as never)).toEqual({
    left: 512,
    top: 0,
    right: 1001,
    bottom: 512,
  });
});

test("positions in units and on the map", () => {
  expect(along(image, 0, 3)).toBe("6 µm");
  expect(positionText(image, 10, 4)).toBe("5.0 µm, 2.0 µm");
  const map = imageOf(
    "f",
    "a",
    volume({ "spatial:transform": [10, 0, 440720, 0, -10, 3751320], "proj:code": "EPSG:32611" }),
  );
  expect(onMap(transformOf(map)!, 0, 0)).toEqual([440725, 3751315]);
  expect(positionText(map, 0, 0)).toMatch(/^440725(\.0)?, 3751315(\.0)? EPSG:32611$/);
  expect(scaleBar(map, 1, 140, 1)).toEqual({ length: 100, text: "1 km" });
  expect(scaleBar(map, 1, 140)).toEqual({ length: 100, text: "100 px" });
  expect(scaleBar(image, 2, 140)).toEqual({ length: 80, text: "20 µm" });
});

test.each([
  [3, "uint8", "3"],
  [1, "bool", "true"],
  [2n ** 60n, "int64", "1152921504606846976"],
  [Math.fround(0.1), "float32", "0.1"],
  [0.1, "float64", "0.1"],
  [Number.NaN, "float32", "NaN"],
])("%s of %s reads %s", (value, dtype, text) => expect(valueText(value, dtype)).toBe(text));

test("a search keeps what holds it, by name or by value", () => {
  const tree = { a: { Width: 12, deep: [{ k: "needle" }, { k: "hay" }] }, b: [1, 2, 3] };
  expect(filtered(tree, "")).toBe(tree);
  expect(filtered(tree, "NEEDLE")).toEqual({ a: { deep: { 0: { k: "needle" } } } });
  expect(filtered(tree, "width")).toEqual({ a: { Width: 12 } });
  expect(filtered(tree, "absent")).toBeUndefined();
});

const FROM = { origin: "http://127.0.0.1:8000", source: 'a "b".tif', token: null, origins: [] };

test("lines to copy hold urls that are escaped", () => {
  const odd = imageOf("a b#.tif", "a", volume());
  const lines = linesFor(odd, FROM)
    .map(({ code }) => code)
    .join("\n");
  expect(lines).toContain("http://127.0.0.1:8000/zarr/a%20b%23.tif/a");
  expect(lines).toContain('"a \\"b\\".tif"');
  expect(lines).not.toContain("Authorization");
});

test("lines to copy carry the token where the program can send it, and say where not", () => {
  const lines = linesFor(image, { ...FROM, token: "s3cret" });
  const withToken = lines.filter(({ code }) => code.includes("Bearer s3cret")).map(({ title }) => title);
  expect(withToken).toEqual(["Python, from this server", "tensorstore", "GDAL"]);
  expect(lines.find(({ title }) => title === "napari")!.note).toContain("cannot send a token");
});

test("web pages name the origin that they need", () => {
  const note = (origins: string[]): string =>
    linesFor(image, { ...FROM, origins }).find(({ title }) => title === "neuroglancer")!.note!;
  expect(note([])).toContain("restart it with --origin https://");
  expect(note(["*"])).not.toContain("--origin");
});

test("code reads what is selected", () => {
  expect(codeFor(image, "a.n5", [3, { from: 10, to: 20 }, { from: 0, to: 1001 }])).toContain(
    'anychunk.open("a.n5")["a/0"]\npart = array[3, 10:20, 0:1001]  # "z", "y", "x"',
  );
  expect(codeFor(image, "a.n5", [[0, 2], 1, 2])).toContain("array.oindex[[0, 2], 1, 2]");
});

test("a name of an axis is no line of code", () => {
  const axes = image.axes.map((axis) => ({ ...axis, name: `${axis.name}\nimport os\r` }));
  const lines = codeFor({ ...image, axes }, "a.n5", [1, 2, 3]).split(/[\r\n]+/);
  expect(lines).toHaveLength(3);
  expect(lines.slice(1).join("\n")).not.toMatch(/^import/m);
});
