/** Mirrored and rotated images, as the TIFF tag Orientation describes them. Pure. */

import type { Inset, Point, Size } from "./view";

/** Where stored columns and rows go on the screen: x' = a x + b y, y' = c x + d y. */
interface Turn {
  a: number;
  b: number;
  c: number;
  d: number;
}

/** By Orientation, from 1 on; TIFF 6.0, page 36. */
const TURNS: readonly Turn[] = [
  { a: 1, b: 0, c: 0, d: 1 },
  { a: -1, b: 0, c: 0, d: 1 },
  { a: -1, b: 0, c: 0, d: -1 },
  { a: 1, b: 0, c: 0, d: -1 },
  { a: 0, b: 1, c: 1, d: 0 },
  { a: 0, b: -1, c: 1, d: 0 },
  { a: 0, b: -1, c: -1, d: 0 },
  { a: 0, b: 1, c: -1, d: 0 },
];

const turnOf = (orientation: number): Turn => TURNS[orientation - 1] ?? TURNS[0]!;

/** Return the canvas as the stored image sees it: width along its columns. */
export function turnedSize({ width, height }: Size, orientation: number): Size {
  return turnOf(orientation).a === 0 ? { width: height, height: width } : { width, height };
}

/** Return a direction on the screen as one in the stored image. */
export function turnedBack({ x, y }: Point, orientation: number): Point {
  const { a, b, c, d } = turnOf(orientation);
  // the inverse of a rotation or reflection is its transpose; + 0 makes no zero negative
  return { x: a * x + c * y + 0, y: b * x + d * y + 0 };
}

/** Return a position on the screen, of this size, as one on the canvas that the stored image sees. */
export function placeBack(at: Point, screen: Size, orientation: number): Point {
  const from = { x: at.x - screen.width / 2, y: at.y - screen.height / 2 };
  const { x, y } = turnedBack(from, orientation);
  const { width, height } = turnedSize(screen, orientation);
  return { x: x + width / 2, y: y + height / 2 };
}

/** Return what of the edges is covered, as the stored image sees them. */
export function insetBack({ left, top, right, bottom }: Inset, orientation: number): Inset {
  const { a, b, c, d } = turnOf(orientation);
  const [across, down] = [
    [left, right],
    [top, bottom],
  ] as const;
  const pick = (along: readonly [number, number], sign: number): readonly [number, number] =>
    sign > 0 ? along : [along[1], along[0]];
  const [first, last] = a === 0 ? pick(down, c) : pick(across, a);
  const [above, below] = a === 0 ? pick(across, b) : pick(down, d);
  return { left: first, top: above, right: last, bottom: below };
}

/** Let a context draw in the pixels of the canvas that the stored image sees. */
export function turn(context: CanvasRenderingContext2D, screen: Size, orientation: number): void {
  const { a, b, c, d } = turnOf(orientation);
  const { width, height } = turnedSize(screen, orientation);
  const x = (screen.width - a * width - b * height) / 2;
  const y = (screen.height - c * width - d * height) / 2;
  context.setTransform(a, c, b, d, x, y);
}
