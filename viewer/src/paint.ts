/** Values to colours. Pure.
 *
 * A value v of a band with limits (low, high) becomes the byte
 * floor(255 · clamp((v - low) / (high - low), 0, 1) + 0.5); three bands are red, green and blue,
 * one band goes through the colour map. NaN and fill are transparent.
 */

import type { Colours } from "./colormap";
import type { Plane } from "./contrast";
import type { Limits } from "./state";

export interface Painting {
  /** One pair per band. */
  limits: readonly Limits[];
  map: Colours;
  /** Drawn transparent; null: none. */
  fill: number | null;
}

export function level(value: number, [low, high]: Limits): number {
  const part = high > low ? (value - low) / (high - low) : value >= high ? 1 : 0;
  return Math.floor(255 * Math.min(1, Math.max(0, part)) + 0.5);
}

/** Return the least value of a small data type, which is the first of its table; else null. */
const smallest = (plane: Plane): number | null => {
  if (plane instanceof Uint8Array || plane instanceof Uint16Array) return 0;
  if (plane instanceof Int8Array) return -128;
  return plane instanceof Int16Array ? -32768 : null;
};

/** Return the byte of each value; small types use a lookup table. */
export function levels(plane: Plane, limits: Limits): Uint8Array {
  const out = new Uint8Array(plane.length);
  const first = smallest(plane);
  if (first === null || plane.length < 4096) {
    for (let i = 0; i < plane.length; i++) out[i] = level(plane[i]!, limits);
    return out;
  }
  const table = new Uint8Array(plane.BYTES_PER_ELEMENT === 1 ? 256 : 65536);
  for (let i = 0; i < table.length; i++) table[i] = level(i + first, limits);
  for (let i = 0; i < plane.length; i++) out[i] = table[plane[i]! - first]!;
  return out;
}

/** Write RGBA pixels: one plane through the colour map, or three as red, green and blue. */
export function paint(planes: readonly Plane[], painting: Painting, out: Uint8ClampedArray): void {
  const bytes = planes.map((plane, i) => levels(plane, painting.limits[i] ?? painting.limits[0]!));
  const [red, green, blue] = bytes;
  const pixels = new Uint32Array(out.buffer, out.byteOffset, out.byteLength / 4); // little-endian: ABGR
  if (green && blue && red) {
    for (let i = 0; i < pixels.length; i++) {
      pixels[i] = 0xff000000 | (blue[i]! << 16) | (green[i]! << 8) | red[i]!;
    }
  } else {
    const table = new Uint32Array(256);
    const map = painting.map;
    for (let i = 0; i < 256; i++)
      table[i] = 0xff000000 | (map[3 * i + 2]! << 16) | (map[3 * i + 1]! << 8) | map[3 * i]!;
    for (let i = 0; i < pixels.length; i++) pixels[i] = table[red![i]!]!;
  }
  clear(planes, painting.fill, pixels);
}

/** Make pixels transparent that are NaN in any band, or fill in all. */
function clear(planes: readonly Plane[], fill: number | null, pixels: Uint32Array): void {
  for (const plane of planes) {
    if (!(plane instanceof Float32Array || plane instanceof Float64Array)) continue;
    for (let i = 0; i < pixels.length; i++) if (Number.isNaN(plane[i])) pixels[i] = 0;
  }
  if (fill === null || Number.isNaN(fill)) return;
  const [first, ...others] = planes;
  for (let i = 0; i < pixels.length; i++) {
    if (first![i] === fill && others.every((plane) => plane[i] === fill)) pixels[i] = 0;
  }
}
