/** Contrast limits and histograms of values. Pure. */

import type { Limits } from "./state";

/** Values of one band; 64-bit integers as doubles. */
export type Plane =
  Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | Float32Array | Float64Array;

const MOST = 1 << 18;

/** Return a sorted sample of at most 2^18 values, without NaN, infinities and fill. */
export function sorted(planes: readonly Plane[], fill: number | null): Float64Array {
  const total = planes.reduce((sum, plane) => sum + plane.length, 0);
  const step = Math.max(1, Math.ceil(total / MOST));
  const out = new Float64Array(Math.ceil(total / step) + planes.length);
  let count = 0;
  for (const plane of planes) {
    for (let i = 0; i < plane.length; i += step) {
      const value = plane[i]!;
      if (Number.isFinite(value) && value !== fill) out[count++] = value;
    }
  }
  return out.subarray(0, count).sort();
}

/** Return a percentile of sorted values, interpolated linearly as in numpy.percentile. */
export function percentile(values: Float64Array, percent: number): number {
  const place = (percent / 100) * (values.length - 1);
  const low = values[Math.floor(place)]!;
  return low + (values[Math.ceil(place)]! - low) * (place - Math.floor(place));
}

/** Return the 2nd and 98th percentile, or the range of values if those are equal. */
export function automatic(values: Float64Array): Limits {
  if (values.length === 0) return [0, 1];
  const [low, high] = [percentile(values, 2), percentile(values, 98)];
  if (high > low) return [low, high];
  const [least, most] = [values[0]!, values[values.length - 1]!];
  return most > least ? [least, most] : [least - 0.5, least + 0.5];
}

export interface Histogram {
  least: number;
  most: number;
  counts: number[];
}

const MOST_BINS = 96;

/** Return a histogram; each bin of integers covers the same number of them, so that none stands out. */
export function histogram(values: Float64Array, least: number, most: number): Histogram {
  const isWhole = Number.isInteger(least) && values.every(Number.isInteger);
  const step = isWhole ? Math.max(1, Math.ceil((most - least + 1) / MOST_BINS)) : (most - least) / MOST_BINS;
  const bins = isWhole ? Math.ceil((most - least + 1) / step) : MOST_BINS;
  const counts = new Array<number>(bins).fill(0);
  for (const value of values) {
    const bin = step > 0 ? Math.floor((value - least) / step) : 0;
    counts[Math.min(bins - 1, Math.max(0, bin))]!++;
  }
  return { least, most: isWhole ? least + bins * step : most, counts };
}

/** Return a number with the digits that matter within a range of `span`. */
export function rounded(value: number, span: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const digits = span > 0 ? Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(span)))) : 3;
  const text = value.toFixed(digits);
  return Math.abs(value) >= 1e9 || (span > 0 && span < 1e-6) ? value.toPrecision(6) : String(Number(text));
}
