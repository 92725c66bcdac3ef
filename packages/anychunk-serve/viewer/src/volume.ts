/** Volumes: which axis is deep, and the image seen along another one. Pure. */

import { otherAxes, type Image, type Level } from "./image";
import type { State } from "./state";
import type { Slab } from "./tiles";

/** An element is drawn at most this many times as long as wide: units may be wrong. */
const MOST_STRETCH = 50;

/** Return the axis that a volume is deep along, or null. */
export function depthAxis(image: Image): number | null {
  const shape = image.levels[0]!.shape;
  const deep = otherAxes(image).filter(
    (axis) => shape[axis]! > 1 && !["t", "time"].includes(image.axes[axis]!.name),
  );
  return deep.find((axis) => image.axes[axis]!.name === "z") ?? deep.at(-1) ?? null;
}

/** Return how many times as long as along x an element is along an axis; 1 if units differ. */
export function stretchOf(image: Image, axis: number): number {
  const [own, across] = [image.scale[axis]!, image.scale[image.x]!];
  const isKnown = image.axes[axis]!.unit === image.axes[image.x]!.unit && own > 0 && across > 0;
  return isKnown ? Math.min(MOST_STRETCH, Math.max(1 / MOST_STRETCH, own / across)) : 1;
}

/** Return the image with other axes in place of y and x; elements along `depth` are stretched. */
export function turned(image: Image, y: number, x: number, depth: number, stretch: number): Image {
  const longer = (values: number[]): number[] =>
    values.map((value, axis) => (axis === depth ? value * stretch : value));
  const levels = image.levels.map((level): Level => ({
    ...level,
    factor: longer(level.factor),
    corner: longer(level.corner),
  }));
  const size = longer(image.levels[0]!.shape);
  const { "spatial:transform": _, ...attributes } = image.attributes;
  const extent = { left: 0, top: 0, right: size[x]!, bottom: size[y]! };
  return { ...image, y, x, levels, attributes, mask: null, extent };
}

/** Return the slab of `count` elements around a position along an axis; null: only the position. */
export function slabAround(axis: number, at: number, count: number, length: number): Slab | null {
  if (count <= 1) return null;
  const from = Math.min(Math.max(0, at - Math.floor((count - 1) / 2)), Math.max(0, length - count));
  return { axis, from, to: Math.min(length - 1, from + count - 1) };
}

/** Return the element that the cross-hair is on, along each axis. */
export function crossOf(image: Image, state: State, at: number[]): number[] {
  return at.map((value, axis) => {
    if (axis !== image.y && axis !== image.x) return value;
    const length = image.levels[0]!.shape[axis]!;
    return Math.min(length - 1, state.at[image.axes[axis]!.name] ?? Math.floor(length / 2));
  });
}
