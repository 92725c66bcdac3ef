/** Samples to colours, by the same formula as the server's thumbnails. Pure.
 *
 * A sample v of a band with limits (low, high) becomes u = clamp((v - low) / (high - low), 0, 1), or
 * 1 - u if it is inverted. Colours are computed from these in doubles and rounded once, to
 * floor(255 · colour + 0.5):
 *
 *   map       the colour map at floor(255 · u + 0.5)
 *   rgb       (u₀, u₁, u₂)
 *   cmyk      (1 - u₀)(1 - u₃), (1 - u₁)(1 - u₃), (1 - u₂)(1 - u₃)
 *   ycbcr     ITU-R BT.601, full range
 *   palette   the colour of the sample itself
 *   channels  the sum of colour · u^gamma
 *   labels    a colour that depends on the sample alone; 0 is transparent
 *
 * Alpha is straight. NaN, nodata and what the mask excludes are transparent.
 */

import type { Colours } from "./colormap";
import type { Plane } from "./contrast";
import type { Alpha, Palette } from "./described";
import type { Limits } from "./state";

export type Kind = "map" | "rgb" | "cmyk" | "ycbcr" | "palette" | "channels" | "labels";

export interface ChannelPaint {
  /** From 0 to 1. */
  color: readonly [red: number, green: number, blue: number];
  gamma: number;
  inverted: boolean;
}

/** How planes are painted: first those of the colours, then that of alpha, then that of the mask. */
export interface Painting {
  kind: Kind;
  /** One pair for each plane of the colours. */
  limits: readonly Limits[];
  inverted: boolean;
  map: Colours;
  palette: Palette | null;
  /** One for each plane, of the kind channels. */
  channels: readonly ChannelPaint[];
  alpha: Alpha | null;
  /** The value of valid pixels in the mask; null: no mask. */
  valid: number | null;
  /** Drawn transparent; null: none. */
  fill: number | null;
}

export const PLAIN: Omit<Painting, "kind" | "limits" | "map"> = {
  inverted: false,
  palette: null,
  channels: [],
  alpha: null,
  valid: null,
  fill: null,
};

/** Return how many planes are painted. */
export const planeCount = ({ limits, alpha, valid }: Painting): number =>
  limits.length + Number(alpha !== null) + Number(valid !== null);

const byteOf = (part: number): number => Math.floor(255 * part + 0.5);

export function unit(value: number, [low, high]: Limits): number {
  const part = high > low ? (value - low) / (high - low) : value >= high ? 1 : 0;
  return Math.min(1, Math.max(0, part));
}

export function level(value: number, limits: Limits, inverted = false): number {
  const part = unit(value, limits);
  return byteOf(inverted ? 1 - part : part);
}

/** Return the least value of a small data type, which is the first of its table; else null. */
const smallest = (plane: Plane): number | null => {
  if (plane instanceof Uint8Array || plane instanceof Uint16Array) return 0;
  if (plane instanceof Int8Array) return -128;
  return plane instanceof Int16Array ? -32768 : null;
};

/** Apply a function to each value; small types use a lookup table. */
function mapped<T extends Uint8Array | Float64Array>(
  plane: Plane,
  make: new (length: number) => T,
  of: (value: number) => number,
): T {
  const out = new make(plane.length);
  const first = smallest(plane);
  if (first === null || plane.length < 4096) {
    for (let i = 0; i < plane.length; i++) out[i] = of(plane[i]!);
    return out;
  }
  const table = new make(plane.BYTES_PER_ELEMENT === 1 ? 256 : 65536);
  for (let i = 0; i < table.length; i++) table[i] = of(i + first);
  for (let i = 0; i < plane.length; i++) out[i] = table[plane[i]! - first]!;
  return out;
}

/** Return the byte of each value. */
export const levels = (plane: Plane, limits: Limits, inverted = false): Uint8Array =>
  mapped(plane, Uint8Array, (value) => level(value, limits, inverted));

function units(plane: Plane, limits: Limits, { inverted = false, gamma = 1 } = {}): Float64Array {
  return mapped(plane, Float64Array, (value) => {
    const part = Number.isNaN(value) ? 0 : unit(value, limits) ** gamma;
    return inverted ? 1 - part : part;
  });
}

const pixelOf = (red: number, green: number, blue: number, alpha: number): number =>
  ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0; // little-endian: ABGR

/** Write RGBA pixels. */
export function paint(planes: readonly Plane[], painting: Painting, out: Uint8ClampedArray): void {
  const pixels = new Uint32Array(out.buffer, out.byteOffset, out.byteLength / 4);
  const colours = planes.slice(0, painting.limits.length);
  const opacity = painting.alpha ? units(planes[painting.limits.length]!, painting.alpha.range) : null;
  if (painting.kind === "palette") paintPalette(colours[0]!, painting.palette!, pixels);
  else if (painting.kind === "labels") paintLabels(colours[0]!, pixels);
  else if (opacity && painting.alpha!.associated) paintDivided(colours, painting, opacity, pixels);
  else if (painting.kind === "map") paintMap(colours[0]!, painting, pixels);
  else if (painting.kind === "rgb") paintBytes(colours, painting, pixels);
  else paintMixed(mixed(colours, painting), pixels);
  if (opacity && !painting.alpha!.associated)
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = ((pixels[i]! & 0xffffff) | (byteOf(opacity[i]!) << 24)) >>> 0;
  clear(colours, painting, pixels);
  if (painting.valid === null) return;
  const mask = planes[planes.length - 1]!;
  for (let i = 0; i < pixels.length; i++) if (mask[i] !== painting.valid) pixels[i] = 0;
}

function paintMap(plane: Plane, { limits, inverted, map }: Painting, pixels: Uint32Array): void {
  const bytes = levels(plane, limits[0]!, inverted);
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) table[i] = pixelOf(map[3 * i]!, map[3 * i + 1]!, map[3 * i + 2]!, 255);
  for (let i = 0; i < pixels.length; i++) pixels[i] = table[bytes[i]!]!;
}

function paintBytes(planes: readonly Plane[], painting: Painting, pixels: Uint32Array): void {
  const [red, green, blue] = planes.map((plane, i) =>
    levels(plane, painting.limits[i]!, painting.inverted),
  ) as [Uint8Array, Uint8Array, Uint8Array];
  for (let i = 0; i < pixels.length; i++)
    pixels[i] = (0xff000000 | (blue[i]! << 16) | (green[i]! << 8) | red[i]!) >>> 0;
}

function paintPalette(plane: Plane, { first, colours }: Palette, pixels: Uint32Array): void {
  const last = colours.length / 4 - 1;
  const table = new Uint32Array(last + 1);
  for (let i = 0; i <= last; i++)
    table[i] = pixelOf(colours[4 * i]!, colours[4 * i + 1]!, colours[4 * i + 2]!, colours[4 * i + 3]!);
  for (let i = 0; i < pixels.length; i++)
    pixels[i] = table[Math.min(last, Math.max(0, Math.trunc((plane[i]! || 0) - first)))]!;
}

/** Return the colour of a label as (red, green, blue): a bright one, chosen by a hash of its number. */
export function labelColour(label: number): [red: number, green: number, blue: number] {
  let hash = Math.trunc(label) | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  hash = (hash ^ (hash >>> 16)) >>> 0;
  const [hue, saturation, value] = [
    ((hash & 0xffff) / 65536) * 6,
    0.5 + ((hash >>> 16) & 0xff) / 512,
    0.7 + ((hash >>> 24) & 0xff) / 850,
  ];
  const part = (shift: number): number => {
    const place = (shift + hue) % 6;
    return byteOf(value - value * saturation * Math.max(0, Math.min(place, 4 - place, 1)));
  };
  return [part(5), part(3), part(1)];
}

function paintLabels(plane: Plane, pixels: Uint32Array): void {
  const known = new Map<number, number>([[0, 0]]);
  let [label, pixel] = [0, 0];
  for (let i = 0; i < pixels.length; i++) {
    const value = plane[i]!;
    if (value !== label) {
      label = value;
      const found = known.get(value);
      pixel = found ?? pixelOf(...labelColour(value), 255);
      if (found === undefined) known.set(value, pixel);
    }
    pixels[i] = pixel;
  }
}

type Mixed = [red: Float64Array, green: Float64Array, blue: Float64Array];

/** Return red, green and blue of each pixel from 0 to 1. */
function mixed(planes: readonly Plane[], painting: Painting): Mixed {
  const { kind, inverted } = painting;
  if (kind === "channels") return added(planes, painting);
  const found = planes.map((plane, i) => units(plane, painting.limits[i]!, { inverted }));
  const length = planes[0]!.length;
  if (kind === "map") {
    const bytes = levels(planes[0]!, painting.limits[0]!, inverted);
    return [0, 1, 2].map((c) =>
      Float64Array.from(bytes, (byte) => painting.map[3 * byte + c]! / 255),
    ) as Mixed;
  }
  const out: Mixed = [new Float64Array(length), new Float64Array(length), new Float64Array(length)];
  if (kind === "cmyk") {
    const black = found[3]!;
    for (let c = 0; c < 3; c++)
      for (let i = 0; i < length; i++) out[c]![i] = (1 - found[c]![i]!) * (1 - black[i]!);
    return out;
  }
  if (kind !== "ycbcr") return found as Mixed;
  const clamp = (value: number): number => Math.min(1, Math.max(0, value));
  for (let i = 0; i < length; i++) {
    const luma = found[0]![i]!;
    const [blue, red] = [found[1]![i]! - 128 / 255, found[2]![i]! - 128 / 255];
    out[0][i] = clamp(luma + 1.402 * red);
    out[1][i] = clamp(luma - 0.344136 * blue - 0.714136 * red);
    out[2][i] = clamp(luma + 1.772 * blue);
  }
  return out;
}

/** Return the sum of the channels, each in its colour. */
function added(planes: readonly Plane[], painting: Painting): Mixed {
  const length = planes[0]?.length ?? 0;
  const out: Mixed = [new Float64Array(length), new Float64Array(length), new Float64Array(length)];
  planes.forEach((plane, k) => {
    const channel = painting.channels[k]!;
    const values = units(plane, painting.limits[k]!, channel);
    channel.color.forEach((weight, c) => {
      if (weight === 0) return;
      const sum = out[c]!;
      for (let i = 0; i < length; i++) sum[i]! += values[i]! * weight;
    });
  });
  for (const sum of out) for (let i = 0; i < length; i++) sum[i] = Math.min(1, sum[i]!);
  return out;
}

function paintMixed([red, green, blue]: Mixed, pixels: Uint32Array): void {
  for (let i = 0; i < pixels.length; i++)
    pixels[i] = pixelOf(byteOf(red[i]!), byteOf(green[i]!), byteOf(blue[i]!), 255);
}

/** Paint colours that are multiplied by their opacity. */
function paintDivided(
  planes: readonly Plane[],
  painting: Painting,
  opacity: Float64Array,
  pixels: Uint32Array,
): void {
  const found = mixed(planes, painting);
  for (let i = 0; i < pixels.length; i++) {
    const part = opacity[i]!;
    if (part <= 0) {
      pixels[i] = 0;
      continue;
    }
    const [red, green, blue] = found.map((colour) =>
      byteOf(Math.min(1, colour[i]! / Math.max(part, 1e-9))),
    ) as [number, number, number];
    pixels[i] = pixelOf(red, green, blue, byteOf(part));
  }
}

/** Make pixels transparent that are NaN in any band (of channels: in all), or fill in all. */
function clear(planes: readonly Plane[], { kind, fill }: Painting, pixels: Uint32Array): void {
  const floats = planes.filter((plane) => plane instanceof Float32Array || plane instanceof Float64Array);
  if (kind === "channels" && floats.length === planes.length && floats.length) {
    for (let i = 0; i < pixels.length; i++)
      if (floats.every((plane) => Number.isNaN(plane[i]))) pixels[i] = 0;
  } else if (kind !== "channels") {
    for (const plane of floats)
      for (let i = 0; i < pixels.length; i++) if (Number.isNaN(plane[i])) pixels[i] = 0;
  }
  if (fill === null || Number.isNaN(fill)) return;
  const [first, ...others] = planes;
  if (!first) return;
  for (let i = 0; i < pixels.length; i++) {
    if (first[i] === fill && others.every((plane) => plane[i] === fill)) pixels[i] = 0;
  }
}
