import { expect, test } from "vitest";
import { formatHash, parseHash, START, type State } from "../src/state";

const FULL: State = {
  file: "sub/a b.tif",
  image: "0",
  at: { z: 40, t: 2 },
  bands: [2, 1, 0],
  map: "magma",
  reversed: true,
  limits: [
    [0, 1.5],
    [-3, 4],
    [5, 6],
  ],
  apart: true,
  view: { x: 12.25, y: 8, zoom: 4 },
  grid: true,
  fill: true,
  drawing: "channels",
  channels: { 0: { color: "FF8000", limits: [68, 2218.5], gamma: 0.8, isOn: true }, 3: { isOn: false } },
  opaque: true,
  planes: true,
  slab: 12,
  graticule: true,
  other: { file: "b.tif", image: "" },
  compare: "over",
  part: 0.25,
  painter: "gpu",
};

test("a link holds the whole state", () => {
  expect(parseHash(formatHash(FULL))).toEqual(FULL);
  expect(parseHash(formatHash(START))).toEqual(START);
});

test("an image at the root of its file is not no image", () => {
  expect(parseHash("#file=a.n5&image=").image).toBe("");
  expect(parseHash("#file=a.n5").image).toBeNull();
});

test.each([
  "#limits=1",
  "#limits=a,b",
  "#view=1,2,0",
  "#bands=1,2",
  "#bands=-1",
  "#at=z:x,:3,q:-1",
  "#%%%=&&",
  "#channels=x:FF0000",
  "#draw=oil&painter=brush",
  "#slab=0.5&compare=x&part=7",
])("%s is left out", (hash) => expect(parseHash(hash)).toEqual(START));

test("axes may have colons in their names", () => {
  expect(parseHash("#at=a:b:3").at).toEqual({ "a:b": 3 });
});
