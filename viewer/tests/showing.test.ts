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

test("a slider that plays reads its next plane ahead, around the end", () => {
  expect(showing.nextSelection(state({}), null)).toBeNull();
  expect(showing.nextSelection(state({}), "t")).toBeNull();
  expect(showing.nextSelection(state({ at: { z: 2 } }), "z")!.at[0]).toBe(3);
  expect(showing.nextSelection(state({ at: { z: 4 } }), "z")!.at[0]).toBe(0);
  expect(showing.nextSelection(state({ bands: [2] }), "c")!.bands).toEqual([0]);
});

test("the position under a pixel", () => {
  expect(showing.position(state({ at: { z: 1 }, bands: [2] }), { x: 7, y: 9 })).toEqual([1, 2, 9, 7]);
  // three bands: the first of them
  expect(showing.position(state({}), { x: 0, y: 1 })).toEqual([2, 0, 1, 0]);
});

test("metadata in the order of paths", () => {
  const found = byPath({ "10": { a: 1 }, "2": { a: 1 }, "": { a: 1 }, empty: {} });
  expect(Object.keys(found)).toEqual(["/", "/2", "/10"]);
});
