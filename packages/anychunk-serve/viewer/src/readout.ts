/** The value and the position under the pointer. */

import type { Chunks } from "./chunks";
import { element } from "./element";
import { placeAt, type Image } from "./image";
import { onMap, positionText, transformOf } from "./coordinates";
import { lonLatText, type Geo } from "./geo";
import { labelColour } from "./paint";
import type { Selection } from "./tiles";

/** Time that the pointer must rest before the value at full resolution is read. */
const REST_MS = 120;

/** Return a value as text, with the digits that its data type holds. Pure. */
export function valueText(value: number | bigint, dtype: string): string {
  if (typeof value === "bigint" || Number.isInteger(value) || !Number.isFinite(value)) {
    return dtype === "bool" ? String(Boolean(value)) : String(value);
  }
  const digits = dtype === "float32" ? 7 : dtype === "float16" ? 4 : 15;
  return String(Number(value.toPrecision(digits)));
}

/** Read the bands of one element of a level. */
export async function valuesAt(
  image: Image,
  chunks: Chunks,
  level: number,
  selection: Selection,
  x: number,
  y: number,
  signal: AbortSignal,
): Promise<(number | bigint)[]> {
  const own = image.levels[level]!;
  const full = selection.at.map((at, axis) => (axis === image.y ? y : axis === image.x ? x : at));
  return Promise.all(
    selection.bands.map(async (band) => {
      const place = full.map((at, axis) => (axis === image.band ? band : placeAt(own, axis, at)));
      const chunk = await chunks.read(
        level,
        place.map((at, axis) => Math.floor(at / own.chunks[axis]!)),
        signal,
      );
      return chunk.data[
        place.reduce((sum, at, axis) => sum + (at % own.chunks[axis]!) * chunk.stride[axis]!, 0)
      ]!;
    }),
  );
}

/** Return longitude and latitude of the centre of a pixel, with the digits that pixels can distinguish. */
function lonLat(image: Image, geo: Geo | null, column: number, row: number): string | null {
  const transform = transformOf(image);
  if (!geo || !transform) return null;
  const place = geo.inverse(...onMap(transform, column, row));
  const step =
    (Math.abs(transform[0]!) + Math.abs(transform[1]!)) * (geo.isDegrees ? 1 : geo.metres / 111_195);
  return place && lonLatText(place, Math.min(8, Math.max(2, Math.ceil(-Math.log10(step)))));
}

/** Return a value with a mark of its colour. */
function coloured(value: number | bigint, ink: Ink, dtype: string): HTMLElement {
  const text = valueText(value, dtype);
  const [red, green, blue] = labelColour(Number(value));
  const color = ink === "label" ? `rgb(${red}, ${green}, ${blue})` : ink.startsWith("#") ? ink : null;
  if (color === null) return element("span", { className: ink }, text);
  return element("span", {}, element("span", { className: "ink", style: { background: color } }), text);
}

/** The colour of a value: a class, a colour, or that of a label; none if empty. */
export type Ink = "" | "is-red" | "is-green" | "is-blue" | "label" | `#${string}`;

export interface Read {
  selection: Selection;
  /** By band. */
  inks: Ink[];
  geo: Geo | null;
}

export class Readout {
  readonly root = element("div", { className: "readout", id: "readout" });
  readonly #position = element("span", { className: "readout-part" });
  readonly #map = element("span", { className: "readout-part is-map" });
  readonly #value = element("span", { className: "readout-part is-value", id: "value" });
  #controller = new AbortController();
  #timer = 0;

  constructor() {
    this.root.append(this.#position, this.#map, this.#value);
  }

  clear(): void {
    this.#controller.abort();
    clearTimeout(this.#timer);
    for (const part of [this.#position, this.#map, this.#value]) part.textContent = "";
    delete this.#value.dataset["level"];
  }

  show(image: Image, chunks: Chunks, read: Read, level: number, x: number, y: number): void {
    this.#controller.abort();
    clearTimeout(this.#timer);
    const controller = (this.#controller = new AbortController());
    const [column, row] = [placeAt(image.levels[0]!, image.x, x), placeAt(image.levels[0]!, image.y, y)];
    const name = (axis: number, or: string): string =>
      image.axes[axis]!.name.length === 1 ? image.axes[axis]!.name : or;
    this.#position.textContent = `${name(image.x, "x")} ${column}  ${name(image.y, "y")} ${row}`;
    this.#map.textContent = [positionText(image, column, row), lonLat(image, read.geo, column, row)]
      .filter((text) => text !== null)
      .join("  ");
    const put = async (from: number): Promise<void> => {
      try {
        const values = await valuesAt(image, chunks, from, read.selection, x, y, controller.signal);
        if (!controller.signal.aborted) this.#put(values, read.inks, image.dtype, from, x, y);
      } catch {
        if (!controller.signal.aborted) this.#value.textContent = "not readable";
      }
    };
    if (level > 0) {
      delete this.#value.dataset["level"];
      this.#timer = setTimeout(() => void put(0), REST_MS);
    }
    void put(level);
  }

  #put(values: (number | bigint)[], inks: Ink[], dtype: string, level: number, x: number, y: number): void {
    if (level > 0 && this.#value.dataset["level"] === "0") return; // the exact value arrived first
    const isLabel = inks[0] === "label";
    this.#value.replaceChildren(
      isLabel ? element("span", { className: "quiet" }, "label ") : "",
      ...values.flatMap((value, i) => [i ? " " : "", coloured(value, inks[i] ?? "", dtype)]),
      level > 0 && !isLabel ? element("span", { className: "quiet" }, ` mean at level ${level}`) : "",
    );
    Object.assign(this.#value.dataset, { level: String(level), x: String(x), y: String(y) });
  }
}
