/** The grid of the file's own chunks, drawn over the image. */

import type { Image, Level } from "./image";
import { escaped, escapedPath, json, versionQuery, type ChunkAnswer, type GridAnswer } from "./api";
import type { View } from "./state";
import { onCanvas } from "./tiles";
import { extentOf, seen, sizeOf, toFull, type Box, type Size } from "./view";

export const arrayUrl = (kind: "grid" | "chunk", file: string, path: string): string =>
  `/api/${kind}/${escaped(file)}${path ? `/${escapedPath(path)}` : ""}`;

/** Return the chunk borders along an axis, including the first and the last. Pure. */
export function borders(grid: GridAnswer, axis: number): number[] {
  const length = grid.shape[axis] ?? 0;
  const given = grid.edges?.[axis];
  if (given) return [...new Set([0, ...given, length])].filter((v) => v <= length).sort((a, b) => a - b);
  const step = grid.chunk_shape?.[axis] ?? length;
  const out = [];
  for (let at = 0; at < length && step > 0; at += step) out.push(at);
  return [...out, length];
}

export class Grids {
  readonly #image: Image;
  readonly #known = new Map<string, GridAnswer | null>();
  onchange: () => void = () => {};

  constructor(image: Image) {
    this.#image = image;
  }

  /** Return the grid of a level, or null until the server has sent it. */
  of(level: Level): GridAnswer | null {
    const known = this.#known.get(level.path);
    if (known !== undefined) return known;
    this.#known.set(level.path, null);
    json<GridAnswer>(arrayUrl("grid", this.#image.file, level.path) + versionQuery(this.#image.version)).then(
      (grid) => {
        this.#known.set(level.path, grid);
        this.onchange();
      },
      () => {}, // draw no lines if the server has no grid of this level
    );
    return null;
  }

  /** Ask about the chunk that holds an element. */
  chunk(level: Level, at: number[]): Promise<ChunkAnswer> {
    return json<ChunkAnswer>(
      `${arrayUrl("chunk", this.#image.file, level.path)}?at=${at.join(",")}${versionQuery(this.#image.version).replace("?", "&")}`,
    );
  }
}

/** Draw lines between chunks, and a frame around the picked one. */
export function drawGrid(
  context: CanvasRenderingContext2D,
  image: Image,
  level: Level,
  grid: GridAnswer,
  view: View,
  canvas: Size,
): void {
  const box = seen(view, extentOf(image), canvas);
  const edges = onCanvas(box, view, canvas);
  const ratio = window.devicePixelRatio;
  context.lineWidth = Math.max(1, Math.round(ratio));
  // two strokes, light over dark: seen on any picture
  for (const [style, shift] of [
    ["rgba(0, 0, 0, 0.55)", 0.5 + context.lineWidth],
    ["rgba(255, 214, 102, 0.9)", 0.5],
  ] as const) {
    context.strokeStyle = style;
    context.beginPath();
    for (const axis of [image.y, image.x]) {
      const isAcross = axis === image.x;
      const all = borders(grid, axis);
      const scale = level.shape[axis]! / Math.max(1, grid.shape[axis]!);
      const gap = ((all[1] ?? 1) - (all[0] ?? 0)) * scale * level.factor[axis]! * view.zoom;
      if (gap < 5 * ratio) continue; // closer than the eye tells apart
      for (const border of all) {
        const at = border * scale;
        const full = toFull(image, level, { left: at, top: at, right: at, bottom: at });
        const place = isAcross ? full.left : full.top;
        if (place < (isAcross ? box.left : box.top) - 1 || place > (isAcross ? box.right : box.bottom) + 1)
          continue;
        const spot = onCanvas({ left: place, top: place, right: place, bottom: place }, view, canvas);
        const line = (isAcross ? spot.left : spot.top) + shift;
        context.moveTo(isAcross ? line : edges.left, isAcross ? edges.top : line);
        context.lineTo(isAcross ? line : edges.right, isAcross ? edges.bottom : line);
      }
    }
    context.stroke();
  }
}

/** Return the part of level 0 that a chunk covers. Pure. */
export function chunkBox(image: Image, level: Level, chunk: ChunkAnswer): Box | null {
  const [y, x] = [image.y, image.x];
  const { origin, shape } = chunk;
  if (origin.length !== image.axes.length || shape.length !== origin.length) return null;
  const box = {
    left: origin[x]!,
    top: origin[y]!,
    right: origin[x]! + shape[x]!,
    bottom: origin[y]! + shape[y]!,
  };
  const full = toFull(image, level, box);
  const { width, height } = sizeOf(image);
  return { ...full, right: Math.min(full.right, width), bottom: Math.min(full.bottom, height) };
}

export function drawPicked(context: CanvasRenderingContext2D, box: Box, view: View, canvas: Size): void {
  const { left, top, right, bottom } = onCanvas(box, view, canvas);
  context.fillStyle = "rgba(255, 214, 102, 0.16)";
  context.fillRect(left, top, right - left, bottom - top);
  context.lineWidth = 3 * window.devicePixelRatio;
  context.strokeStyle = "#ffd666";
  context.strokeRect(left, top, right - left, bottom - top);
}
