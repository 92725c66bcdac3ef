/** Decoded chunks of an image: shared requests, an LRU cache, cancelled when nobody waits. */

import * as zarr from "zarrita";
import type { Plane } from "./contrast";
import type { Image, Level } from "./image";
import { ArrayStore, zarrUrl } from "./api";

/** Most bytes of decoded chunks that are cached. */
const KEPT_BYTES = 128 * 2 ** 20;

export interface Values {
  /** As in the array; 64-bit integers are bigints. */
  data: ArrayLike<number | bigint>;
  shape: number[];
  stride: number[];
  bytes: number;
}

interface Pending {
  promise: Promise<Values>;
  controller: AbortController;
  waiting: number;
}

type AnyArray = zarr.Array<zarr.DataType, ArrayStore>;

export class Chunks {
  readonly #arrays: AnyArray[];
  readonly #kept = new Map<string, Values>();
  readonly #pending = new Map<string, Pending>();
  #bytes = 0;

  constructor(image: Image, prefix: string) {
    this.#arrays = image.levels.map((level) => open(image, level, prefix));
  }

  /** Read the chunk of a level at this position in its grid. */
  async read(level: number, place: number[], signal: AbortSignal): Promise<Values> {
    const key = `${level}:${place.join(",")}`;
    const kept = this.#kept.get(key);
    if (kept) {
      this.#kept.delete(key); // a Map keeps insertion order: the last entry is the newest
      this.#kept.set(key, kept);
      return kept;
    }
    signal.throwIfAborted();
    const pending = this.#pending.get(key) ?? this.#start(key, level, place);
    pending.waiting++;
    const leave = (): void => {
      if (--pending.waiting === 0) {
        this.#pending.delete(key);
        pending.controller.abort();
      }
    };
    signal.addEventListener("abort", leave, { once: true });
    try {
      const values = await pending.promise;
      signal.throwIfAborted();
      return values;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #start(key: string, level: number, place: number[]): Pending {
    const controller = new AbortController();
    const promise = this.#arrays[level]!.getChunk(place, { signal: controller.signal }).then((chunk) => {
      const values = valuesOf(chunk);
      this.#keep(key, values);
      return values;
    });
    const pending: Pending = { promise, controller, waiting: 0 };
    this.#pending.set(key, pending);
    const done = (): void => {
      if (this.#pending.get(key) === pending) this.#pending.delete(key);
    };
    promise.then(done, done);
    return pending;
  }

  #keep(key: string, values: Values): void {
    this.#kept.set(key, values);
    this.#bytes += values.bytes;
    for (const [old, { bytes }] of this.#kept) {
      if (this.#bytes <= KEPT_BYTES || old === key) break;
      this.#kept.delete(old);
      this.#bytes -= bytes;
    }
  }
}

function open(image: Image, level: Level, prefix: string): AnyArray {
  const store = new ArrayStore(zarrUrl(image.file, level.path, prefix), image.version);
  return new zarr.Array(store, "/", level.metadata as unknown as zarr.ArrayMetadata<zarr.DataType>);
}

function valuesOf(chunk: zarr.Chunk<zarr.DataType>): Values {
  const { shape, stride } = chunk;
  const given = chunk.data as unknown as ArrayLike<number | bigint> & {
    buffer: ArrayBuffer;
    byteOffset: number;
    byteLength: number;
  };
  const data =
    given instanceof zarr.BoolArray
      ? new Uint8Array(given.buffer as ArrayBuffer, given.byteOffset, given.byteLength)
      : given;
  return { data, shape, stride, bytes: given.byteLength };
}

type Maker = new (length: number) => Plane;
const MAKERS: Record<string, Maker> = {
  bool: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float16: Float32Array,
  float32: Float32Array,
};

/** Return an empty plane for values of a data type; 64-bit integers become doubles. */
export const emptyPlane = (dtype: string, length: number): Plane =>
  new (MAKERS[dtype] ?? Float64Array)(length);

export interface Piece {
  /** First row and column: `from` in the chunk, `to` in the plane. */
  from: [row: number, column: number];
  to: [row: number, column: number];
  rows: number;
  columns: number;
}

/** Copy a rectangle of a chunk, at `base` along its other axes, into a plane of `width`. Pure. */
export function copyPiece(
  values: Values,
  axes: { y: number; x: number; base: number },
  piece: Piece,
  plane: Plane,
  width: number,
): void {
  const { data, stride } = values;
  const [down, across] = [stride[axes.y]!, stride[axes.x]!];
  const isWide = data instanceof BigInt64Array || data instanceof BigUint64Array;
  for (let row = 0; row < piece.rows; row++) {
    const from = axes.base + (piece.from[0] + row) * down + piece.from[1] * across;
    const to = (piece.to[0] + row) * width + piece.to[1];
    if (across === 1 && !isWide && data.constructor === plane.constructor) {
      plane.set((data as Plane).subarray(from, from + piece.columns), to);
      continue;
    }
    for (let column = 0; column < piece.columns; column++)
      plane[to + column] = Number(data[from + column * across]);
  }
}

/** As `copyPiece`, where values are larger than those of the plane, or those are NaN. Pure. */
export function maximumPiece(
  values: Values,
  axes: { y: number; x: number; base: number },
  piece: Piece,
  plane: Plane,
  width: number,
): void {
  const { data, stride } = values;
  const [down, across] = [stride[axes.y]!, stride[axes.x]!];
  for (let row = 0; row < piece.rows; row++) {
    const from = axes.base + (piece.from[0] + row) * down + piece.from[1] * across;
    const to = (piece.to[0] + row) * width + piece.to[1];
    for (let column = 0; column < piece.columns; column++) {
      const value = Number(data[from + column * across]);
      const old = plane[to + column]!;
      if (value > old || Number.isNaN(old)) plane[to + column] = value;
    }
  }
}
