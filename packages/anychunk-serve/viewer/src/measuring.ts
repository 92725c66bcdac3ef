/** Measuring on the image that is shown: points that the user sets, and what follows from them. */

import { MOST_ZOOM, origin, sizeOf, type Box, type Point } from "./view";
import type { Geo } from "./geo";
import { boxOf, measureText, pixelsAlong, rulerOf, Statistics } from "./measure";
import { lineOf } from "./notices";
import type { Range } from "./openin";
import { valuesAt, type Ink } from "./readout";
import type { Showing } from "./showing";
import type { Decoration } from "./stage";
import type { State } from "./state";
import { assemble, type Selection } from "./tiles";
import type { Result, Tool } from "./toolspanel";
import { placeAt } from "./image";

/** Points of a profile. */
const MOST_POINTS = 2048;
/** Pixels of a rectangle that are read for its statistics, and side of the blocks they are read in. */
const MOST_PIXELS = 256 * 2 ** 20;
const BLOCK = 1024;

/** What the points are set on. */
export interface Ground {
  showing: Showing;
  state: State;
  geo: Geo | null;
  /** The level that is drawn. */
  level: number;
}

export class Measuring {
  onchange: () => void = () => {};
  #tool: Tool | null = null;
  #points: Point[] = [];
  #result: Result | null = null;
  #reading = new AbortController();

  get tool(): Tool | null {
    return this.#tool;
  }

  get result(): Result | null {
    return this.#result;
  }

  pick(tool: Tool | null): void {
    this.#tool = tool;
    this.clear();
  }

  clear(): void {
    this.#reading.abort();
    this.#points = [];
    this.#result = null;
    this.onchange();
  }

  /** Add a point, in pixels of the image; what has two points begins again with the third. */
  add(at: Point, ground: Ground): void {
    const isPair = this.#tool === "profile" || this.#tool === "rectangle";
    this.#points = isPair && this.#points.length === 2 ? [at] : [...this.#points, at];
    void this.#compute(ground, ground.level);
  }

  removeLast(ground: Ground): void {
    this.#points = this.#points.slice(0, -1);
    void this.#compute(ground, ground.level);
  }

  /** Read all pixels instead of those of the level that is drawn. */
  exact(ground: Ground): void {
    void this.#compute(ground, 0);
  }

  /** Return the rectangle that is selected. */
  box(showing: Showing): Box | null {
    const [from, to] = this.#points;
    if (this.#tool !== "rectangle" || !from || !to) return null;
    const { width, height } = sizeOf(showing.image);
    return boxOf(from, to, width, height);
  }

  async #compute(ground: Ground, level: number): Promise<void> {
    this.#reading.abort();
    const { signal } = (this.#reading = new AbortController());
    const lines = this.#lines(ground, level);
    const needsValues = (this.#tool === "profile" || this.#tool === "rectangle") && this.#points.length === 2;
    this.#result = this.#points.length ? { lines, isBusy: needsValues } : null;
    this.onchange();
    if (!needsValues) return;
    try {
      const values = await (this.#tool === "profile"
        ? this.#profile(ground, level, signal)
        : this.#statistics(ground, level, signal));
      if (signal.aborted) return;
      this.#result = { lines, ...values };
    } catch (cause) {
      if (signal.aborted) return;
      this.#result = { lines, error: lineOf(cause) };
    }
    this.onchange();
  }

  #lines({ showing, geo }: Ground, level: number): [string, string][] {
    const ruler = rulerOf(showing.image, geo);
    const points = this.#points;
    const total = (closed: boolean): number =>
      points.reduce((sum, at, i) => {
        const next = points[i + 1] ?? (closed ? points[0] : undefined);
        return next ? sum + ruler.length(at, next) : sum;
      }, 0);
    if (this.#tool === "rectangle" && points.length === 2) {
      const { left, top, right, bottom } = this.box(showing)!;
      const corners = [
        { x: left, y: top },
        { x: right, y: top },
        { x: right, y: bottom },
        { x: left, y: bottom },
      ];
      return [
        ["Pixels", `${right - left} × ${bottom - top} from ${left}, ${top}`],
        ["Area", measureText(ruler.area(corners), ruler.unit, 2)],
      ];
    }
    if (this.#tool === "area")
      return points.length < 3
        ? [["Corners", String(points.length)]]
        : [
            ["Area", measureText(ruler.area(points), ruler.unit, 2)],
            ["Perimeter", measureText(total(true), ruler.unit)],
          ];
    if (points.length < 2) return [["Points", String(points.length)]];
    const found: [string, string][] = [["Length", measureText(total(false), ruler.unit)]];
    if (points.length > 2) {
      const [from, to] = points.slice(-2) as [Point, Point];
      found.push(["Last part", measureText(ruler.length(from, to), ruler.unit)]);
    }
    if (this.#tool === "profile" && level > 0) found.push(["Level", String(level)]);
    return found;
  }

  async #profile(
    { showing, state, geo }: Ground,
    level: number,
    signal: AbortSignal,
  ): Promise<Partial<Result>> {
    const { image, opened } = showing;
    const [from, to] = this.#points as [Point, Point];
    const { width, height } = sizeOf(image);
    const inside = pixelsAlong(from, to, MOST_POINTS).filter(
      ({ x, y }) => x >= 0 && y >= 0 && x < width && y < height,
    );
    const selection = bandsOnly(showing, state);
    const values = await Promise.all(
      inside.map(({ x, y }) => valuesAt(image, opened.tiles.chunks, level, selection, x, y, signal)),
    );
    const ruler = rulerOf(image, geo);
    const bands = selection.bands.map((_, band) => values.map((at) => Number(at[band])));
    const length = measureText(ruler.length(from, to), ruler.unit);
    return { profile: { bands, inks: showing.inks(state).map(cssInk), length } };
  }

  async #statistics(
    { showing, state }: Ground,
    number: number,
    signal: AbortSignal,
  ): Promise<Partial<Result>> {
    const { image, opened } = showing;
    const selection = bandsOnly(showing, state);
    const full = this.box(showing)!;
    const level = image.levels[number]!;
    const box = {
      left: placeAt(level, image.x, full.left),
      top: placeAt(level, image.y, full.top),
      right: placeAt(level, image.x, full.right - 1) + 1,
      bottom: placeAt(level, image.y, full.bottom - 1) + 1,
    };
    const pixels = (box.right - box.left) * (box.bottom - box.top) * selection.bands.length;
    if (pixels > MOST_PIXELS)
      throw new Error(
        `${pixels} values, more than ${MOST_PIXELS}; choose a smaller rectangle, or read it in Python`,
      );
    const values: Statistics[] = [];
    for (const band of selection.bands) {
      const found = new Statistics();
      const place = selection.at.map((at, axis) => (axis === image.band ? band : placeAt(level, axis, at)));
      for (let top = box.top; top < box.bottom; top += BLOCK)
        for (let left = box.left; left < box.right; left += BLOCK) {
          const block = {
            left,
            top,
            right: Math.min(box.right, left + BLOCK),
            bottom: Math.min(box.bottom, top + BLOCK),
          };
          found.add(await assemble(image, opened.tiles.chunks, number, place, block, signal), image.fill);
        }
      values.push(found);
    }
    const names = selection.bands.map((band) => showing.bandNames()[band] ?? `band ${band}`);
    return { statistics: { names, values, level: number } };
  }

  /** Return what draws the points and lines. */
  decoration(): Decoration {
    return (context, view, canvas) => {
      const ratio = window.devicePixelRatio;
      const corner = origin(view, canvas);
      const at = ({ x, y }: Point): [number, number] => [corner.x + x * view.zoom, corner.y + y * view.zoom];
      const isRectangle = this.#tool === "rectangle" && this.#points.length === 2;
      for (const [style, width] of [
        ["rgba(0, 0, 0, 0.6)", 4],
        ["#ffd666", 2],
      ] as const) {
        context.strokeStyle = style;
        context.lineWidth = width * ratio;
        context.beginPath();
        if (isRectangle) {
          const [a, b] = this.#points.map(at) as [[number, number], [number, number]];
          context.rect(a[0], a[1], b[0] - a[0], b[1] - a[1]);
        } else {
          this.#points.forEach((point, i) =>
            i ? context.lineTo(...at(point)) : context.moveTo(...at(point)),
          );
          if (this.#tool === "area" && this.#points.length > 2) context.closePath();
        }
        context.stroke();
        for (const point of this.#points) {
          context.beginPath();
          context.arc(...at(point), (width + 1) * ratio, 0, 7);
          context.stroke();
        }
      }
    };
  }
}

/** Return the selection without alpha and mask. */
const bandsOnly = (showing: Showing, state: State): Selection => ({
  ...showing.selection(state),
  bands: showing.bands(state),
  hasMask: false,
  slab: null,
});

function cssInk(ink: Ink): string {
  if (ink === "" || ink === "label") return "var(--accent)";
  return ink.startsWith("#") ? ink : `var(--text-${ink.slice(3)})`;
}

/** Return the positions of what is selected, or else of what is visible, along each axis. Pure. */
export function rangesOf(showing: Showing, state: State, box: Box): Range[] {
  const { image } = showing;
  const { at } = showing.selection(state);
  const bands = [...showing.bands(state)].sort((a, b) => a - b);
  return at.map((value, axis) => {
    if (axis === image.y) return { from: box.top, to: box.bottom };
    if (axis === image.x) return { from: box.left, to: box.right };
    if (axis !== image.band) return value;
    const [first, last] = [bands[0] ?? 0, bands.at(-1) ?? 0];
    if (bands.length === 1) return first;
    return last - first === bands.length - 1 ? { from: first, to: last + 1 } : bands;
  });
}

export const closest = (zoom: number): number => Math.min(MOST_ZOOM, Math.max(1, zoom));
