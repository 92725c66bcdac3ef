/** Longitude and latitude of positions on a map. */

import { codeOf, transformOf } from "./coordinates";
import type { Image } from "./image";
import type { Point } from "./view";

export interface Geo {
  /** From map coordinates to longitude and latitude in degrees; null where that is not defined. */
  inverse(x: number, y: number): [lon: number, lat: number] | null;
  forward(lon: number, lat: number): [x: number, y: number] | null;
  /** Whether map coordinates are degrees. */
  isDegrees: boolean;
  /** Length of a unit of the map; of degrees, along a meridian. */
  metres: number;
}

const DEGREE_M = 111_195;
const isPair = (found: number[]): found is [number, number] =>
  found.every(Number.isFinite) && found.length >= 2;

/** Return how positions of an image convert; null if it has no place or its system is not understood. */
export async function geoOf(image: Image): Promise<Geo | null> {
  const code = codeOf(image);
  if (!transformOf(image) || (code === null && image.crs === null)) return null;
  if (code === "EPSG:4326" || code === "OGC:CRS84") return DEGREES;
  try {
    // loaded only for images with a place: it is half as large as the rest of the page
    const { default: proj4 } = await import("proj4");
    const system = proj4(image.crs ?? code!);
    const definition = (system as unknown as { oProj: { projName?: string; to_meter?: number } }).oProj;
    const isDegrees = definition.projName === "longlat";
    const tried = (convert: (at: [number, number]) => number[]) => (a: number, b: number) => {
      try {
        const found = convert([a, b]).slice(0, 2);
        return isPair(found) ? found : null;
      } catch {
        return null;
      }
    };
    return {
      inverse: tried((at) => system.inverse(at)),
      forward: tried((at) => system.forward(at)),
      isDegrees,
      metres: isDegrees ? DEGREE_M : (definition.to_meter ?? 1),
    };
  } catch {
    return null;
  }
}

export const DEGREES: Geo = {
  inverse: (x, y) => [x, y],
  forward: (lon, lat) => [lon, lat],
  isDegrees: true,
  metres: DEGREE_M,
};

/** Return a position as text, such as "34.0531° N, 117.2000° W". */
export function lonLatText([lon, lat]: [number, number], digits: number): string {
  const east = ((((lon + 180) % 360) + 360) % 360) - 180;
  return `${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? "S" : "N"}, ${Math.abs(east).toFixed(digits)}° ${east < 0 ? "W" : "E"}`;
}

/** Return the pixel at map coordinates. */
export function pixelOf(transform: number[], x: number, y: number): Point {
  const [a, b, c, d, e, f] = transform as [number, number, number, number, number, number];
  const determinant = a * e - b * d;
  return {
    x: (e * (x - c) - b * (y - f)) / determinant,
    y: (a * (y - f) - d * (x - c)) / determinant,
  };
}

/** Return map coordinates of a place in pixels, counted from the outer corner. */
export function mapOf(transform: number[], { x, y }: Point): [x: number, y: number] {
  const [a, b, c, d, e, f] = transform as [number, number, number, number, number, number];
  return [a * x + b * y + c, d * x + e * y + f];
}

/** Parse "x, y", or latitude and longitude with letters, such as "34.05 N, 117.2 W". */
export function parsePlace(text: string): { kind: "map" | "degrees"; x: number; y: number } | null {
  const found = [...text.matchAll(/([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*°?\s*([NSEW])?/gi)];
  if (found.length !== 2) return null;
  const [first, second] = found.map(([, number, letter]) => ({
    value: Number(number) * (/[SW]/i.test(letter ?? "") ? -1 : 1),
    letter: (letter ?? "").toUpperCase(),
  })) as [{ value: number; letter: string }, { value: number; letter: string }];
  if (!first.letter && !second.letter) return { kind: "map", x: first.value, y: second.value };
  const isLatitudeFirst = "NS".includes(first.letter) && first.letter !== "";
  const [lat, lon] = isLatitudeFirst ? [first, second] : [second, first];
  if (!"NS".includes(lat.letter) || !"EW".includes(lon.letter)) return null;
  return { kind: "degrees", x: lon.value, y: lat.value };
}

/** Return a round step of which about five fit into a span. */
export function roundStep(span: number): number {
  const power = 10 ** Math.floor(Math.log10(span / 5));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => span / step <= 6) ?? power;
}

export interface Line {
  /** In pixels of the image. */
  points: Point[];
  text: string;
  isMeridian: boolean;
}

/** Return meridians and parallels across a box of the image, at round degrees. */
export function graticule(
  geo: Geo,
  transform: number[],
  box: { left: number; top: number; right: number; bottom: number },
): Line[] {
  const STEPS = 24;
  const rim: [number, number][] = [];
  for (let i = 0; i <= STEPS; i++) {
    const [x, y] = [
      box.left + ((box.right - box.left) * i) / STEPS,
      box.top + ((box.bottom - box.top) * i) / STEPS,
    ];
    for (const at of [
      { x, y: box.top },
      { x, y: box.bottom },
      { x: box.left, y },
      { x: box.right, y },
    ]) {
      const place = geo.inverse(...mapOf(transform, at));
      if (place) rim.push(place);
    }
  }
  if (rim.length < 2) return [];
  const range = (i: 0 | 1): [number, number] => {
    const values = rim.map((place) => place[i]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [lons, lats] = [range(0), range(1)];
  const lines: Line[] = [];
  for (const isMeridian of [true, false]) {
    const [own, other] = isMeridian ? [lons, lats] : [lats, lons];
    const step = roundStep(own[1] - own[0]);
    if (!Number.isFinite(step) || step <= 0) continue;
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    for (let value = Math.ceil(own[0] / step) * step; value <= own[1]; value += step) {
      const points: Point[] = [];
      for (let i = 0; i <= STEPS; i++) {
        const along = other[0] + ((other[1] - other[0]) * i) / STEPS;
        const at = isMeridian ? geo.forward(value, along) : geo.forward(along, value);
        if (at) points.push(pixelOf(transform, ...at));
      }
      const letter = isMeridian ? (value < 0 ? "W" : "E") : value < 0 ? "S" : "N";
      lines.push({ points, text: `${Math.abs(value).toFixed(digits)}° ${letter}`, isMeridian });
    }
  }
  return lines;
}
