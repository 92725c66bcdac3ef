/** Lengths, areas, profiles and statistics. Pure. */

import type { Plane } from "./contrast";
import { transformOf, unitSign } from "./coordinates";
import { mapOf, type Geo } from "./geo";
import type { Image } from "./image";
import type { Box, Point } from "./view";

const EARTH_M = 6_371_008.8;
const RADIANS = Math.PI / 180;

/** Lengths in the unit of the image: pixels, that of its axes, or metres on the ground. */
export interface Ruler {
  unit: string;
  length(from: Point, to: Point): number;
  area(points: Point[]): number;
}

const shoelace = (points: [number, number][]): number =>
  Math.abs(
    points.reduce((sum, [x, y], i) => {
      const [next, below] = points[(i + 1) % points.length]!;
      return sum + x * below - next * y;
    }, 0),
  ) / 2;

/** Return the distance on a sphere between two places in degrees, in metres. */
export function greatCircle([lon, lat]: [number, number], [lon2, lat2]: [number, number]): number {
  const [a, b] = [lat * RADIANS, lat2 * RADIANS];
  const half =
    Math.sin((b - a) / 2) ** 2 + Math.cos(a) * Math.cos(b) * Math.sin(((lon2 - lon) * RADIANS) / 2) ** 2;
  return 2 * EARTH_M * Math.asin(Math.min(1, Math.sqrt(half)));
}

export function rulerOf(image: Image, geo: Geo | null): Ruler {
  const transform = transformOf(image);
  if (transform && geo?.isDegrees) {
    // an equal-area projection of the sphere, for polygons that do not reach around it
    const flat = (at: Point): [number, number] => {
      const [lon, lat] = mapOf(transform, at);
      return [lon * RADIANS * EARTH_M, Math.sin(lat * RADIANS) * EARTH_M];
    };
    return {
      unit: "m",
      length: (from, to) => greatCircle(mapOf(transform, from), mapOf(transform, to)),
      area: (points) => shoelace(points.map(flat)),
    };
  }
  const [x, y] = [image.axes[image.x]!, image.axes[image.y]!];
  const isPhysical = x.unit !== null && x.unit === y.unit;
  const size: [number, number] = isPhysical ? [image.scale[image.x]!, image.scale[image.y]!] : [1, 1];
  const metres = geo?.metres ?? 1;
  const place = (at: Point): [number, number] => {
    if (!transform) return [at.x * size[0], at.y * size[1]];
    const [east, north] = mapOf(transform, at);
    return [east * metres, north * metres];
  };
  return {
    unit: transform ? (geo ? "m" : "map units") : isPhysical ? unitSign(x.unit!) : "px",
    length: (from, to) => {
      const [a, b] = [place(from), place(to)];
      return Math.hypot(b[0] - a[0], b[1] - a[1]);
    },
    area: (points) => shoelace(points.map(place)),
  };
}

/** Return a length, or with power 2 an area, with four digits and a unit that fits. */
export function measureText(value: number, unit: string, power: 1 | 2 = 1): string {
  const larger: Record<string, [by: number, unit: string]> = {
    m: [1000, "km"],
    µm: [1000, "mm"],
    nm: [1000, "µm"],
  };
  const [by, next] = larger[unit] ?? [1, unit];
  const isLarge = by > 1 && value >= by ** power * (power === 2 ? 0.1 : 1);
  const [shown, sign] = isLarge ? [value / by ** power, next] : [value, unit];
  const digits = shown === 0 ? "0" : String(Number(shown.toPrecision(4)));
  return `${digits} ${sign}${power === 2 ? "²" : ""}`;
}

/** Return the pixels along a line, one per pixel of its longer side. */
export function pixelsAlong(from: Point, to: Point, most: number): Point[] {
  const count = Math.max(1, Math.ceil(Math.max(Math.abs(to.x - from.x), Math.abs(to.y - from.y))));
  const steps = Math.min(count, most - 1);
  return Array.from({ length: steps + 1 }, (_, i) => ({
    x: Math.floor(from.x + ((to.x - from.x) * i) / steps),
    y: Math.floor(from.y + ((to.y - from.y) * i) / steps),
  }));
}

/** Return the whole pixels between two corners, both included, inside an image. */
export function boxOf(from: Point, to: Point, width: number, height: number): Box {
  const clamp = (value: number, most: number): number => Math.min(most, Math.max(0, value));
  return {
    left: clamp(Math.floor(Math.min(from.x, to.x)), width - 1),
    top: clamp(Math.floor(Math.min(from.y, to.y)), height - 1),
    right: clamp(Math.floor(Math.max(from.x, to.x)) + 1, width),
    bottom: clamp(Math.floor(Math.max(from.y, to.y)) + 1, height),
  };
}

/** Statistics of values that come in pieces. */
export class Statistics {
  count = 0;
  /** NaN and nodata. */
  absent = 0;
  least = Number.POSITIVE_INFINITY;
  most = Number.NEGATIVE_INFINITY;
  mean = 0;
  #squares = 0;

  add(values: Plane, fill: number | null): void {
    for (const value of values) {
      if (!Number.isFinite(value) || value === fill) {
        this.absent++;
        continue;
      }
      this.count++;
      // Welford: exact enough for large means with small differences
      const by = value - this.mean;
      this.mean += by / this.count;
      this.#squares += by * (value - this.mean);
      if (value < this.least) this.least = value;
      if (value > this.most) this.most = value;
    }
  }

  get deviation(): number {
    return this.count ? Math.sqrt(this.#squares / this.count) : Number.NaN;
  }
}
