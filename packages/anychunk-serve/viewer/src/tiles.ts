/** Tiles of an image: requested, read, painted, drawn. Old ones stay until new ones have arrived. */

import { CHANGED, ServerError } from "./api";
import { Chunks, copyPiece, emptyPlane, maximumPiece } from "./chunks";
import type { Plane } from "./contrast";
import { placeAt, type Image } from "./image";
import type { Gpu } from "./gpu";
import { paint, type Painting } from "./paint";
import type { View } from "./state";
import {
  cellsIn,
  extentOf,
  levelFor,
  lowLevel,
  origin,
  seen,
  tileBox,
  toFull,
  type Box,
  type Cell,
  type Size,
} from "./view";

/** Tiles that are read at the same time. */
const AT_ONCE = 8;
/** Most bytes of planes and painted pixels that are cached. */
const KEPT_BYTES = 192 * 2 ** 20;
/** Planes shown before whose tiles may fill gaps. */
const REMEMBERED = 6;
/** Time per frame for painting tiles that have just arrived. */
const PAINT_MS = 12;
/** Most tiles of the low level that are read for the contrast. */
const LOW_TILES = 4;

/** One plane of the image, and the bands that are drawn of it. */
export interface Selection {
  /** Element of level 0 along each axis; unused along y, x and band. */
  at: number[];
  /** Those of the colours, then that of alpha. */
  bands: number[];
  /** Whether the mask is read, too; its plane is the last one. */
  hasMask: boolean;
  /** Elements of level 0 along an axis whose maximum is drawn; null: the plane at `at`. */
  slab: Slab | null;
}

const bandsKey = ({ bands, hasMask }: Selection): string => `${bands.join(",")}${hasMask ? "m" : ""}`;
export const keyOf = (selection: Selection): string =>
  `${selection.at.join(",")};${bandsKey(selection)}${selection.slab ? `;${selection.slab.from}-${selection.slab.to}` : ""}`;

interface Tile {
  cell: Cell;
  width: number;
  height: number;
  planes: Plane[];
  canvas: HTMLCanvasElement | null;
  /** What its canvas was painted with. */
  painting: Painting | null;
  error: string | null;
  bytes: number;
}

interface Wanted {
  key: string;
  selection: Selection;
  cell: Cell;
}

export class Tiles {
  readonly image: Image;
  readonly chunks: Chunks;
  /** Called when a tile has arrived, with the error if it failed. */
  onchange: (error: string | null) => void = () => {};
  /** Called when the file has changed since it was opened. */
  onstale: () => void = () => {};
  readonly #ready = new Map<string, Tile>();
  readonly #running = new Map<string, AbortController>();
  #wanted: Wanted[] = [];
  #bytes = 0;
  /** Keys of selections shown before, the newest first. */
  #past: string[] = [];
  /** How each of them was painted last: the bands of another selection need another painting. */
  readonly #paintings = new Map<string, { bands: string; painting: Painting }>();
  readonly #maskChunks: Chunks | null;
  #gpu: Gpu | null = null;
  #painter: "gpu" | "canvas" = "canvas";

  constructor(image: Image, prefix: string, chunks = new Chunks(image, prefix)) {
    this.image = image;
    this.chunks = chunks;
    this.#maskChunks = image.mask && new Chunks(image.mask, prefix);
  }

  /** Paint by this from now on; null: without a GPU. */
  set gpu(gpu: Gpu | null) {
    this.#gpu = gpu;
  }

  /** What painted the last tile. */
  get painter(): "gpu" | "canvas" {
    return this.#painter;
  }

  /** Request the tiles of a view and abort all others; those of `next` are read last, for later. */
  want(
    view: View,
    canvas: Size,
    selection: Selection,
    { next, isLowFirst }: { next: Selection[]; isLowFirst: boolean },
  ): void {
    const key = keyOf(selection);
    if (this.#past[0] !== key)
      this.#past = [key, ...this.#past.filter((past) => past !== key)].slice(0, REMEMBERED);
    const box = seen(view, extentOf(this.image), canvas);
    const cells = cellsIn(this.image, levelFor(this.image, view.zoom), box);
    const low = this.#lowCells();
    const ordered = isLowFirst || this.#past.length === 1 ? [...low, ...cells] : [...cells, ...low];
    const list = ordered.map((cell) => ({ key: tileKey(key, cell), selection, cell }));
    for (const later of next)
      list.push(...cells.map((cell) => ({ key: tileKey(keyOf(later), cell), selection: later, cell })));
    this.#wanted = [...new Map(list.map((wanted) => [wanted.key, wanted])).values()];
    const keys = new Set(this.#wanted.map((wanted) => wanted.key));
    for (const [running, controller] of this.#running) {
      if (!keys.has(running)) {
        controller.abort();
        this.#running.delete(running);
      }
    }
    for (const [old, tile] of this.#ready) if (tile.error && !keys.has(old)) this.#ready.delete(old);
    this.#fetch();
  }

  close(): void {
    this.#wanted = [];
    for (const controller of this.#running.values()) controller.abort();
    this.#running.clear();
  }

  isSettled(view: View, canvas: Size, selection: Selection): boolean {
    const key = keyOf(selection);
    const box = seen(view, extentOf(this.image), canvas);
    return cellsIn(this.image, levelFor(this.image, view.zoom), box).every((cell) =>
      this.#ready.has(tileKey(key, cell)),
    );
  }

  /** Return the planes of the low level by band, or null until they have arrived. */
  low(selection: Selection): Plane[][] | null {
    const key = keyOf(selection);
    const tiles = this.#lowCells().map((cell) => this.#ready.get(tileKey(key, cell)));
    if (!tiles.every((tile): tile is Tile => tile !== undefined)) return null;
    return selection.bands.map((_, i) => tiles.flatMap((tile) => (tile.planes[i] ? [tile.planes[i]] : [])));
  }

  #lowCells(): Cell[] {
    return cellsIn(this.image, lowLevel(this.image), extentOf(this.image)).slice(0, LOW_TILES);
  }

  #fetch(): void {
    for (const wanted of this.#wanted) {
      if (this.#running.size >= AT_ONCE) return;
      if (!this.#ready.has(wanted.key) && !this.#running.has(wanted.key)) void this.#run(wanted);
    }
  }

  async #run({ key, selection, cell }: Wanted): Promise<void> {
    const controller = new AbortController();
    this.#running.set(key, controller);
    let tile: Tile;
    try {
      tile = await this.#read(selection, cell, controller.signal);
    } catch (cause) {
      if (controller.signal.aborted) return;
      if (cause instanceof ServerError && cause.status === CHANGED) this.onstale();
      tile = { ...this.#blank(cell), error: cause instanceof Error ? cause.message : String(cause) };
    }
    if (controller.signal.aborted) return;
    this.#running.delete(key);
    this.#keep(key, tile);
    this.#fetch();
    this.onchange(tile.error);
  }

  #blank(cell: Cell): Tile {
    const box = tileBox(this.image, cell);
    const [width, height] = [box.right - box.left, box.bottom - box.top];
    return { cell, width, height, planes: [], canvas: null, painting: null, error: null, bytes: 0 };
  }

  async #read(selection: Selection, cell: Cell, signal: AbortSignal): Promise<Tile> {
    const tile = this.#blank(cell);
    const read = selection.bands.map((band) => this.#plane(selection, band, cell, signal));
    if (selection.hasMask) read.push(this.#maskPlane(cell, signal));
    tile.planes = await Promise.all(read);
    tile.bytes = tile.planes.reduce((sum, plane) => sum + plane.byteLength, 0) + 4 * tile.width * tile.height;
    return tile;
  }

  /** Read one band of a tile. */
  #plane(selection: Selection, band: number, cell: Cell, signal: AbortSignal): Promise<Plane> {
    const { image } = this;
    const level = image.levels[cell.level]!;
    const place = selection.at.map((at, axis) => (axis === image.band ? band : placeAt(level, axis, at)));
    const slab = selection.slab && {
      axis: selection.slab.axis,
      from: placeAt(level, selection.slab.axis, selection.slab.from),
      to: placeAt(level, selection.slab.axis, selection.slab.to),
    };
    return assemble(image, this.chunks, cell.level, place, tileBox(image, cell), signal, slab);
  }

  /** Read the mask of a tile. */
  #maskPlane(cell: Cell, signal: AbortSignal): Promise<Plane> {
    const mask = this.image.mask!;
    return assemble(mask, this.#maskChunks!, cell.level, [0, 0], tileBox(this.image, cell), signal);
  }

  #keep(key: string, tile: Tile): void {
    this.#ready.set(key, tile);
    this.#bytes += tile.bytes;
    const needed = new Set(this.#wanted.map((wanted) => wanted.key));
    for (const [old, { bytes }] of this.#ready) {
      if (this.#bytes <= KEPT_BYTES) break;
      if (old === key || needed.has(old)) continue;
      this.#ready.delete(old);
      this.#bytes -= bytes;
    }
  }

  #get(key: string): Tile | undefined {
    const tile = this.#ready.get(key);
    if (tile) {
      this.#ready.delete(key); // a Map keeps insertion order: the last entry is the newest
      this.#ready.set(key, tile);
    }
    return tile;
  }

  /** Draw within the time of a frame; return false if more is left for the next frame. */
  draw(
    context: CanvasRenderingContext2D,
    view: View,
    canvas: Size,
    selection: Selection,
    painting: Painting,
  ): boolean {
    const { image } = this;
    const extent = extentOf(image);
    const key = keyOf(selection);
    this.#paintings.delete(key);
    this.#paintings.set(key, { bands: bandsKey(selection), painting });
    for (const old of this.#paintings.keys()) {
      if (this.#paintings.size <= REMEMBERED) break;
      this.#paintings.delete(old);
    }
    const target = levelFor(image, view.zoom);
    context.save();
    clip(context, onCanvas(extent, view, canvas));
    context.imageSmoothingEnabled = view.zoom < 1;
    context.imageSmoothingQuality = "high";
    const until = performance.now() + PAINT_MS;
    let isDone = true;
    for (const cell of cellsIn(image, target, seen(view, extent, canvas))) {
      const tile = this.#get(tileKey(key, cell));
      const isLate = tile !== undefined && !tile.error && tile.canvas === null && performance.now() > until;
      if (tile && !isLate) this.#drawTile(context, tile, view, canvas, painting);
      else this.#drawInstead(context, cell, view, canvas, { bands: bandsKey(selection), painting });
      isDone &&= !isLate;
    }
    context.restore();
    return isDone;
  }

  #drawTile(
    context: CanvasRenderingContext2D,
    tile: Tile,
    view: View,
    canvas: Size,
    painting: Painting,
  ): void {
    const box = toFull(this.image, this.image.levels[tile.cell.level]!, tileBox(this.image, tile.cell));
    const { left, top, right, bottom } = onCanvas(box, view, canvas);
    if (tile.error) {
      hatch(context, { left, top, right, bottom });
      return;
    }
    context.drawImage(this.#painted(tile, painting), left, top, right - left, bottom - top);
  }

  #painted(tile: Tile, painting: Painting): HTMLCanvasElement {
    if (tile.canvas && tile.painting === painting) return tile.canvas;
    const { width, height } = tile;
    tile.canvas ??= Object.assign(document.createElement("canvas"), { width, height });
    tile.painting = painting;
    const context = tile.canvas.getContext("2d")!;
    const made = this.#gpu?.paint(tile.planes, painting, width, height);
    this.#painter = made ? "gpu" : "canvas";
    if (made) {
      context.clearRect(0, 0, width, height);
      context.drawImage(made, 0, 0);
      return tile.canvas;
    }
    const pixels = context.createImageData(width, height);
    paint(tile.planes, painting, pixels.data);
    context.putImageData(pixels, 0, 0);
    return tile.canvas;
  }

  /** Draw a stand-in until a tile arrives: other levels, or else planes shown before. */
  #drawInstead(
    context: CanvasRenderingContext2D,
    cell: Cell,
    view: View,
    canvas: Size,
    now: { bands: string; painting: Painting },
  ): void {
    const { image } = this;
    const box = toFull(image, image.levels[cell.level]!, tileBox(image, cell));
    context.save();
    clip(context, onCanvas(box, view, canvas));
    const coarser = image.levels
      .map((_, i) => i)
      .filter((i) => i >= cell.level)
      .reverse();
    const finer = image.levels
      .map((_, i) => i)
      .filter((i) => i < cell.level)
      .reverse();
    for (const past of this.#past) {
      const then = this.#paintings.get(past);
      if (!then) continue;
      const painting = then.bands === now.bands ? now.painting : then.painting;
      if (this.#drawLevels(context, past, [...coarser, ...finer], cell.level, box, view, canvas, painting))
        break;
    }
    context.restore();
  }

  #drawLevels(
    context: CanvasRenderingContext2D,
    selection: string,
    levels: number[],
    finest: number,
    box: Box,
    view: View,
    canvas: Size,
    painting: Painting,
  ): boolean {
    let isCovered = false;
    for (const level of levels) {
      const cells = cellsIn(this.image, level, box);
      if (cells.length > 64) continue; // much finer levels are not worth it
      const there = cells.map((cell) => this.#get(tileKey(selection, cell)));
      // finer tiles only if they are painted already
      const isFew = level > finest || level === lowLevel(this.image);
      const tiles = there.filter((tile) => tile && !tile.error && (tile.canvas || isFew));
      for (const tile of tiles) this.#drawTile(context, tile!, view, canvas, painting);
      isCovered ||= tiles.length === cells.length;
    }
    return isCovered;
  }
}

/** Positions along an axis, first and last included, of which the largest value is taken. */
export interface Slab {
  axis: number;
  from: number;
  to: number;
}

/** Assemble a box of one plane of a level, or of the maximum of several, from the chunks that it touches. */
export async function assemble(
  image: Image,
  chunks: Chunks,
  number: number,
  place: number[],
  box: Box,
  signal: AbortSignal,
  slab: Slab | null = null,
): Promise<Plane> {
  const level = image.levels[number]!;
  const width = box.right - box.left;
  const plane = emptyPlane(image.dtype, width * (box.bottom - box.top));
  const [tall, wide] = [level.chunks[image.y]!, level.chunks[image.x]!];
  const jobs: Promise<void>[] = [];
  const axes = place.map((_, axis) => axis).filter((axis) => axis !== image.y && axis !== image.x);
  for (let row = Math.floor(box.top / tall); row * tall < box.bottom; row++) {
    for (let column = Math.floor(box.left / wide); column * wide < box.right; column++) {
      const [top, left] = [Math.max(box.top, row * tall), Math.max(box.left, column * wide)];
      const piece = {
        from: [top - row * tall, left - column * wide] as [number, number],
        to: [top - box.top, left - box.left] as [number, number],
        rows: Math.min(box.bottom, (row + 1) * tall) - top,
        columns: Math.min(box.right, (column + 1) * wide) - left,
      };
      let isFirst = true;
      for (const positions of byChunk(place, slab, level.chunks)) {
        const key = positions[0]!.map((at, axis) =>
          axis === image.y ? row : axis === image.x ? column : Math.floor(at / level.chunks[axis]!),
        );
        jobs.push(
          chunks.read(number, key, signal).then((values) => {
            for (const position of positions) {
              const base = axes.reduce(
                (sum, axis) => sum + (position[axis]! % level.chunks[axis]!) * values.stride[axis]!,
                0,
              );
              const copy = isFirst ? copyPiece : maximumPiece;
              copy(values, { y: image.y, x: image.x, base }, piece, plane, width);
              isFirst = false;
            }
          }),
        );
      }
    }
  }
  await Promise.all(jobs);
  return plane;
}

/** Return the positions of a slab, or the one position, together with others in the same chunk. */
function byChunk(place: number[], slab: Slab | null, chunk: number[]): number[][][] {
  if (!slab) return [[place]];
  const found = new Map<number, number[][]>();
  for (let at = slab.from; at <= slab.to; at++) {
    const number = Math.floor(at / chunk[slab.axis]!);
    const position = place.map((value, axis) => (axis === slab.axis ? at : value));
    found.set(number, [...(found.get(number) ?? []), position]);
  }
  return [...found.values()];
}

const tileKey = (selection: string, { level, row, column }: Cell): string =>
  `${selection}|${level}/${row}/${column}`;

/** Return a box of level 0 in device pixels, rounded so that neighbours meet. */
export function onCanvas(box: Box, view: View, canvas: Size): Box {
  const corner = origin(view, canvas);
  return {
    left: Math.round(corner.x + box.left * view.zoom),
    top: Math.round(corner.y + box.top * view.zoom),
    right: Math.round(corner.x + box.right * view.zoom),
    bottom: Math.round(corner.y + box.bottom * view.zoom),
  };
}

function clip(context: CanvasRenderingContext2D, { left, top, right, bottom }: Box): void {
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
}

/** Hatch a tile that could not be read: it must not look empty. */
function hatch(context: CanvasRenderingContext2D, { left, top, right, bottom }: Box): void {
  context.save();
  clip(context, { left, top, right, bottom });
  context.fillStyle = "rgba(208, 68, 55, 0.16)";
  context.fillRect(left, top, right - left, bottom - top);
  context.strokeStyle = "rgba(208, 68, 55, 0.55)";
  context.lineWidth = 2;
  context.beginPath();
  for (let x = left - (bottom - top); x < right; x += 14) {
    context.moveTo(x, bottom);
    context.lineTo(x + (bottom - top), top);
  }
  context.stroke();
  context.restore();
}
