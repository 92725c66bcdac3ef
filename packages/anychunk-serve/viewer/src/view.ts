/** The image on the canvas: device pixels and pixels of level 0. Pure. */

import type { Image, Level } from "./image";
import type { View } from "./state";

export interface Size {
  width: number;
  height: number;
}

export interface Point {
  x: number;
  y: number;
}

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export const MOST_ZOOM = 64;

export const sizeOf = (image: Image): Size => ({
  width: image.levels[0]!.shape[image.x]!,
  height: image.levels[0]!.shape[image.y]!,
});

/** Return where an image lies among the pixels that views count in. */
export function extentOf(image: Image): Box {
  const { width, height } = sizeOf(image);
  return image.extent ?? { left: 0, top: 0, right: width, bottom: height };
}

/** Return the canvas position of the image's corner, rounded so that pixels have sharp edges. */
export function origin(view: View, canvas: Size): Point {
  return {
    x: Math.round(canvas.width / 2 - view.x * view.zoom),
    y: Math.round(canvas.height / 2 - view.y * view.zoom),
  };
}

export function toImage(view: View, canvas: Size, at: Point): Point {
  const corner = origin(view, canvas);
  return { x: (at.x - corner.x) / view.zoom, y: (at.y - corner.y) / view.zoom };
}

/** Widths along the edges of the canvas that are covered. */
export type Inset = Box;

/** Return the view of the whole image in the free part of the canvas. */
export function fit(
  image: Size,
  canvas: Size,
  inset: Inset = { left: 0, top: 0, right: 0, bottom: 0 },
): View {
  const free = {
    width: Math.max(canvas.width / 2, canvas.width - inset.left - inset.right),
    height: Math.max(canvas.height / 2, canvas.height - inset.top - inset.bottom),
  };
  const most = Math.min(MOST_ZOOM, free.width / image.width, free.height / image.height);
  const zoom = most > 4 ? Math.floor(most) : most;
  return {
    x: image.width / 2 + (inset.right - inset.left) / 2 / zoom,
    y: image.height / 2 + (inset.bottom - inset.top) / 2 / zoom,
    zoom,
  };
}

export function zoomedAt(view: View, canvas: Size, at: Point, factor: number): View {
  const held = toImage(view, canvas, at);
  const zoom = view.zoom * factor;
  return {
    x: held.x - (at.x - canvas.width / 2) / zoom,
    y: held.y - (at.y - canvas.height / 2) / zoom,
    zoom,
  };
}

/** Return a view that keeps part of the image on the canvas, with a bounded zoom. */
export function bounded(view: View, image: Size, canvas: Size): View {
  const least = Math.min(1, fit(image, canvas).zoom / 4);
  const zoom = Math.min(MOST_ZOOM, Math.max(least, view.zoom));
  return {
    x: Math.min(image.width, Math.max(0, view.x)),
    y: Math.min(image.height, Math.max(0, view.y)),
    zoom,
  };
}

/** Return the coarsest level whose pixels are at most as large as screen pixels, or else level 0. */
export function levelFor(image: Image, zoom: number): number {
  let best = 0;
  image.levels.forEach((level, i) => {
    const coarsest = Math.max(level.factor[image.y]!, level.factor[image.x]!);
    if (
      coarsest * zoom <= 1.001 &&
      coarsest > Math.max(image.levels[best]!.factor[image.y]!, image.levels[best]!.factor[image.x]!)
    ) {
      best = i;
    }
  });
  return best;
}

/** Smaller levels are poor samples of the values. */
const LOW_SIDE = 256;

/** Return the coarsest level of a useful size: it is drawn first and sampled for the contrast. */
export function lowLevel(image: Image): number {
  const side = (i: number): number =>
    Math.max(image.levels[i]!.shape[image.y]!, image.levels[i]!.shape[image.x]!);
  const large = image.levels.map((_, i) => i).filter((i) => side(i) >= LOW_SIDE);
  return large.length ? large.reduce((best, i) => (side(i) < side(best) ? i : best)) : 0;
}

/** Return the side of a tile: one or more small chunks, or part of a large one. */
export const tileSide = (chunk: number): number =>
  chunk >= 256 && chunk <= 1024 ? chunk : chunk < 256 ? chunk * Math.ceil(256 / Math.max(1, chunk)) : 512;

export interface Cell {
  level: number;
  row: number;
  column: number;
}

export function tileBox(image: Image, cell: Cell): Box {
  const level = image.levels[cell.level]!;
  const [height, width] = [tileSide(level.chunks[image.y]!), tileSide(level.chunks[image.x]!)];
  return {
    left: cell.column * width,
    top: cell.row * height,
    right: Math.min((cell.column + 1) * width, level.shape[image.x]!),
    bottom: Math.min((cell.row + 1) * height, level.shape[image.y]!),
  };
}

/** Convert pixels of a level to pixels of level 0; at odd sizes the last one reaches beyond the edge. */
export function toFull(image: Image, level: Level, box: Box): Box {
  const across = (v: number): number => level.corner[image.x]! + v * level.factor[image.x]!;
  const down = (v: number): number => level.corner[image.y]! + v * level.factor[image.y]!;
  return { left: across(box.left), top: down(box.top), right: across(box.right), bottom: down(box.bottom) };
}

/** Return the tiles of a level that cover a box of level 0, nearest to its centre first. */
export function cellsIn(image: Image, number: number, box: Box): Cell[] {
  const level = image.levels[number]!;
  const range = (axis: number, from: number, to: number): [number, number] => {
    const side = tileSide(level.chunks[axis]!);
    const last = Math.ceil(level.shape[axis]! / side) - 1;
    const place = (v: number): number => (v - level.corner[axis]!) / level.factor[axis]! / side;
    return [Math.max(0, Math.floor(place(from) + 1e-9)), Math.min(last, Math.ceil(place(to) - 1e-9) - 1)];
  };
  const [top, bottom] = range(image.y, box.top, box.bottom);
  const [left, right] = range(image.x, box.left, box.right);
  const cells: Cell[] = [];
  for (let row = top; row <= bottom; row++) {
    for (let column = left; column <= right; column++) cells.push({ level: number, row, column });
  }
  const [midRow, midColumn] = [(top + bottom) / 2, (left + right) / 2];
  const far = (c: Cell): number => (c.row - midRow) ** 2 + (c.column - midColumn) ** 2;
  return cells.sort((a, b) => far(a) - far(b));
}

/** Return the part of an extent that the canvas shows. */
export function seen(view: View, extent: Box, canvas: Size): Box {
  const [from, to] = [
    toImage(view, canvas, { x: 0, y: 0 }),
    toImage(view, canvas, { x: canvas.width, y: canvas.height }),
  ];
  return {
    left: Math.max(extent.left, from.x),
    top: Math.max(extent.top, from.y),
    right: Math.min(extent.right, to.x),
    bottom: Math.min(extent.bottom, to.y),
  };
}
