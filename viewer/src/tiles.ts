/** Tiles of an image: requested, read, painted, drawn. Old ones stay until new ones have arrived. */

import { Chunks, copyPiece, emptyPlane } from "./chunks";
import type { Plane } from "./contrast";
import { placeAt, type Image } from "./image";
import { paint, type Painting } from "./paint";
import type { View } from "./state";
import {
  cellsIn,
  levelFor,
  lowLevel,
  origin,
  seen,
  sizeOf,
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
  bands: number[];
}

export const keyOf = ({ at, bands }: Selection): string => `${at.join(",")};${bands.join(",")}`;

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
  readonly #ready = new Map<string, Tile>();
  readonly #running = new Map<string, AbortController>();
  #wanted: Wanted[] = [];
  #bytes = 0;
  /** Keys of selections shown before, the newest first. */
  #past: string[] = [];

  constructor(image: Image, prefix: string) {
    this.image = image;
    this.chunks = new Chunks(image, prefix);
  }

  /** Request the tiles of a view and abort all others; those of `next` are read last, for later. */
  want(
    view: View,
    canvas: Size,
    selection: Selection,
    { next, isLowFirst }: { next: Selection | null; isLowFirst: boolean },
  ): void {
    const key = keyOf(selection);
    if (this.#past[0] !== key)
      this.#past = [key, ...this.#past.filter((past) => past !== key)].slice(0, REMEMBERED);
    const box = seen(view, sizeOf(this.image), canvas);
    const cells = cellsIn(this.image, levelFor(this.image, view.zoom), box);
    const low = this.#lowCells();
    const ordered = isLowFirst || this.#past.length === 1 ? [...low, ...cells] : [...cells, ...low];
    const list = ordered.map((cell) => ({ key: tileKey(key, cell), selection, cell }));
    if (next) list.push(...cells.map((cell) => ({ key: tileKey(keyOf(next), cell), selection: next, cell })));
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
    const box = seen(view, sizeOf(this.image), canvas);
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
    const { width, height } = sizeOf(this.image);
    const box = { left: 0, top: 0, right: width, bottom: height };
    return cellsIn(this.image, lowLevel(this.image), box).slice(0, LOW_TILES);
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
    tile.planes = await Promise.all(read);
    tile.bytes = tile.planes.reduce((sum, plane) => sum + plane.byteLength, 0) + 4 * tile.width * tile.height;
    return tile;
  }

  /** Assemble one band of a tile from the chunks that it touches. */
  async #plane(selection: Selection, band: number, cell: Cell, signal: AbortSignal): Promise<Plane> {
    const { image } = this;
    const level = image.levels[cell.level]!;
    const box = tileBox(image, cell);
    const width = box.right - box.left;
    const plane = emptyPlane(image.dtype, width * (box.bottom - box.top));
    const place = selection.at.map((at, axis) => (axis === image.band ? band : placeAt(level, axis, at)));
    const [tall, wide] = [level.chunks[image.y]!, level.chunks[image.x]!];
    const jobs: Promise<void>[] = [];
    for (let row = Math.floor(box.top / tall); row * tall < box.bottom; row++) {
      for (let column = Math.floor(box.left / wide); column * wide < box.right; column++) {
        const [top, left] = [Math.max(box.top, row * tall), Math.max(box.left, column * wide)];
        const piece = {
          from: [top - row * tall, left - column * wide] as [number, number],
          to: [top - box.top, left - box.left] as [number, number],
          rows: Math.min(box.bottom, (row + 1) * tall) - top,
          columns: Math.min(box.right, (column + 1) * wide) - left,
        };
        const key = place.map((at, axis) =>
          axis === image.y ? row : axis === image.x ? column : Math.floor(at / level.chunks[axis]!),
        );
        jobs.push(
          this.chunks.read(cell.level, key, signal).then((values) => {
            const base = place.reduce(
              (sum, at, axis) =>
                axis === image.y || axis === image.x
                  ? sum
                  : sum + (at % level.chunks[axis]!) * values.stride[axis]!,
              0,
            );
            copyPiece(values, { y: image.y, x: image.x, base }, piece, plane, width);
          }),
        );
      }
    }
    await Promise.all(jobs);
    return plane;
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
    const full = sizeOf(image);
    const key = keyOf(selection);
    const target = levelFor(image, view.zoom);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.save();
    clip(context, onCanvas({ left: 0, top: 0, right: full.width, bottom: full.height }, view, canvas));
    context.imageSmoothingEnabled = view.zoom < 1;
    context.imageSmoothingQuality = "high";
    const until = performance.now() + PAINT_MS;
    let isDone = true;
    for (const cell of cellsIn(image, target, seen(view, full, canvas))) {
      const tile = this.#get(tileKey(key, cell));
      const isLate = tile !== undefined && !tile.error && tile.canvas === null && performance.now() > until;
      if (tile && !isLate) this.#drawTile(context, tile, view, canvas, painting);
      else this.#drawInstead(context, cell, view, canvas, painting);
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
    context.drawImage(painted(tile, painting), left, top, right - left, bottom - top);
  }

  /** Draw a stand-in until a tile arrives: other levels, or else planes shown before. */
  #drawInstead(
    context: CanvasRenderingContext2D,
    cell: Cell,
    view: View,
    canvas: Size,
    painting: Painting,
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

function painted(tile: Tile, painting: Painting): HTMLCanvasElement {
  if (tile.canvas && tile.painting === painting) return tile.canvas;
  tile.canvas ??= Object.assign(document.createElement("canvas"), { width: tile.width, height: tile.height });
  const context = tile.canvas.getContext("2d")!;
  const pixels = context.createImageData(tile.width, tile.height);
  // a tile of a plane shown before may have a different number of bands
  paint(tile.planes, painting, pixels.data);
  context.putImageData(pixels, 0, 0);
  tile.painting = painting;
  return tile.canvas;
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
