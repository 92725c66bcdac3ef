/** What a position means: in units, or on a map. Pure. */

import type { Image } from "./image";

const UNITS: Record<string, string> = {
  angstrom: "Å",
  nanometer: "nm",
  micrometer: "µm",
  millimeter: "mm",
  centimeter: "cm",
  meter: "m",
  kilometer: "km",
  millisecond: "ms",
  second: "s",
  minute: "min",
  hour: "h",
  degree: "°",
  inch: "in",
};

export const unitSign = (unit: string): string => UNITS[unit] ?? unit;

/** Return a number with the digits that steps of this size can distinguish. */
export function inSteps(value: number, step: number): string {
  const digits = step > 0 ? Math.min(8, Math.max(0, Math.ceil(-Math.log10(Math.abs(step)) + 0.3))) : 3;
  return value.toFixed(digits);
}

/** Return the centre of an element along an axis in its unit; null without a unit. */
export function along(image: Image, axis: number, index: number): string | null {
  const unit = image.axes[axis]?.unit;
  if (!unit) return null;
  const step = image.scale[axis]!;
  return `${inSteps(index * step + image.translation[axis]!, step)} ${unitSign(unit)}`;
}

/** Six numbers of x = a·column + b·row + c, y = d·column + e·row + f, from outer corners of pixels. */
export function transformOf(image: Image): number[] | null {
  const given = image.attributes["spatial:transform"];
  const isGood =
    Array.isArray(given) &&
    given.length >= 6 &&
    given.every((v) => typeof v === "number" && Number.isFinite(v));
  return isGood ? (given as number[]).slice(0, 6) : null;
}

export const codeOf = (image: Image): string | null =>
  typeof image.attributes["proj:code"] === "string" ? image.attributes["proj:code"] : null;

/** Return the map coordinates of the centre of a pixel. */
export function onMap(transform: number[], column: number, row: number): [x: number, y: number] {
  const [a, b, c, d, e, f] = transform as [number, number, number, number, number, number];
  const [u, v] = [column + 0.5, row + 0.5];
  return [a * u + b * v + c, d * u + e * v + f];
}

/** Return the position of a pixel as text: map coordinates, or else units. */
export function positionText(image: Image, column: number, row: number): string | null {
  const transform = transformOf(image);
  if (transform) {
    const [x, y] = onMap(transform, column, row);
    const code = codeOf(image);
    const step = Math.max(Math.abs(transform[0]!) + Math.abs(transform[1]!), 1e-9);
    return `${inSteps(x, step / 10)}, ${inSteps(y, step / 10)}${code ? ` ${code}` : ""}`;
  }
  const [x, y] = [along(image, image.x, column), along(image, image.y, row)];
  return x !== null && y !== null ? `${x}, ${y}` : null;
}

/** A round length for a bar of at most `most` screen pixels; `metres` is the length of a unit of the map, if known. */
export function scaleBar(
  image: Image,
  zoom: number,
  most: number,
  metres: number | null = null,
): { length: number; text: string } | null {
  const transform = transformOf(image);
  const isMap = transform !== null && metres !== null;
  const own = image.axes[image.x]?.unit ?? null;
  // no one measures a scan in inches
  const isInch = !transform && own === "inch";
  const unit = isMap ? "m" : transform || own === null ? "px" : isInch ? "mm" : unitSign(own);
  const size = isMap
    ? Math.hypot(transform[0]!, transform[3]!) * metres
    : unit === "px"
      ? 1
      : image.scale[image.x]! * (isInch ? 25.4 : 1);
  const room = (most / zoom) * size;
  if (!(room > 0) || !Number.isFinite(room)) return null;
  const power = 10 ** Math.floor(Math.log10(room));
  const round = [5, 2, 1].map((n) => n * power).find((n) => n <= room)!;
  const [shown, sign] =
    unit === "m" && round >= 1000
      ? [round / 1000, "km"]
      : unit === "µm" && round >= 1000
        ? [round / 1000, "mm"]
        : [round, unit];
  return { length: (round / size) * zoom, text: `${Number(shown.toPrecision(3))} ${sign}` };
}
