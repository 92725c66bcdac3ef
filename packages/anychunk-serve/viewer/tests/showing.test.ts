import { expect, test } from "vitest";
import { imageOf, type NodeJson } from "../src/image";
import { Showing, type Opened } from "../src/showing";
import { byPath } from "../src/sidepanel";
import { START, type State } from "../src/state";

const array = {
  node_type: "array",
  shape: [5, 3, 40, 60],
  data_type: "uint8",
  chunk_grid: { name: "regular", configuration: { chunk_shape: [1, 1, 40, 60] } },
  dimension_names: ["z", "c", "y", "x"],
  fill_value: 0,
} as unknown as NodeJson;
const showing = new Showing({ image: imageOf("a.npy", "", array) } as Opened);
const state = (by: Partial<State>): State => ({ ...START, ...by });

test("a slider that plays reads its next planes ahead, around the end", () => {
  const along = (by: Partial<State>, name: string | null): number[] =>
    showing.nextSelections(state(by), name).map(({ at }) => at[0]!);
  expect(along({}, null)).toEqual([]);
  expect(along({}, "t")).toEqual([]);
  expect(along({ at: { z: 2 } }, "z")).toEqual([3, 4, 0]);
  expect(showing.nextSelections(state({ bands: [2] }), "c").map(({ bands }) => bands)).toEqual([[0], [1]]);
});

test("the position under a pixel", () => {
  expect(showing.position(state({ at: { z: 1 }, bands: [2] }), { x: 7, y: 9 })).toEqual([1, 2, 9, 7]);
  // three bands: the first of them
  expect(showing.position(state({ bands: [1, 0, 2] }), { x: 0, y: 1 })).toEqual([2, 1, 1, 0]);
});

const withDisplay = (display: object, dtype = "uint8"): Showing => {
  const root: NodeJson = { ...array, data_type: dtype, attributes: { "anychunk.display": display } };
  return new Showing({ image: imageOf("a.tif", "", root) } as Opened);
};

test("an image is drawn as its file says, until the user chooses", () => {
  const rgb = withDisplay({ model: "rgb", bands: [2, 1, 0], alpha: { band: 0, associated: true } });
  expect([rgb.mode(START), rgb.kind(START)]).toEqual(["file", "rgb"]);
  expect(rgb.selection(START).bands).toEqual([2, 1, 0, 0]);
  expect(rgb.selection(state({ opaque: true })).bands).toEqual([2, 1, 0]);
  expect(rgb.kind(state({ bands: [1] }))).toBe("map");
  expect(rgb.selection(state({ bands: [1] })).bands).toEqual([1]);
  const painting = rgb.painting(START)!;
  expect(painting.limits).toEqual([
    [0, 255],
    [0, 255],
    [0, 255],
  ]);
  expect(painting.alpha).toEqual({ band: 0, associated: true, range: [0, 255] });
  expect(rgb.painting(START)).toBe(painting);
  expect(withDisplay({ model: "grey", inverted: true, range: [[0, 1]] }).painting(START)).toMatchObject({
    kind: "map",
    inverted: true,
    limits: [[0, 1]],
  });
});

test("channels are as the file states them, but for what the user changed", () => {
  const stained = withDisplay({
    model: "channels",
    channels: [
      { band: 0, label: "DAPI", color: "0000ff", window: [10, 200] },
      { band: 2, label: "GFP", active: false },
    ],
  });
  expect(stained.mode(START)).toBe("channels");
  expect(stained.bands(START)).toEqual([0]);
  expect(stained.channels(START).map(({ label, isOn }) => [label, isOn])).toEqual([
    ["DAPI", true],
    ["band 1", false],
    ["GFP", false],
  ]);
  const changed = state(stained.channelsChanged(START, { 2: { isOn: true, limits: [0, 9], gamma: 2 } }));
  expect(stained.bands(changed)).toEqual([0, 2]);
  expect(stained.painting(changed)).toMatchObject({
    kind: "channels",
    limits: [
      [10, 200],
      [0, 9],
    ],
    channels: [
      { color: [0, 0, 1], gamma: 1 },
      { color: [1, 0, 0], gamma: 2 },
    ],
  });
  expect(stained.channelsChanged(changed, { 2: null })).toEqual({ channels: {} });
  expect(stained.kind(state({ drawing: "labels" }))).toBe("labels");
});

test("metadata in the order of paths", () => {
  const found = byPath({ "10": { a: 1 }, "2": { a: 1 }, "": { a: 1 }, empty: {} });
  expect(Object.keys(found)).toEqual(["/", "/2", "/10"]);
});
