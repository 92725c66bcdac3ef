/** The value and the position under the pointer. */

import type { Chunks } from "./chunks";
import { element } from "./element";
import { placeAt, type Image } from "./image";
import { positionText } from "./place";
import type { Selection } from "./tiles";

/** How long the pointer rests before the full resolution is read for it. */
const REST_MS = 120;

/** Give a value as the array has it, no digit that its type does not hold. Pure. */
export function valueText(value: number | bigint, dtype: string): string {
  if (typeof value === "bigint" || Number.isInteger(value) || !Number.isFinite(value)) {
    return dtype === "bool" ? String(Boolean(value)) : String(value);
  }
  const digits = dtype === "float32" ? 7 : dtype === "float16" ? 4 : 15;
  return String(Number(value.toPrecision(digits)));
}

/** Read the bands of one element of a level. */
async function read(
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

export class Readout {
  readonly root = element("div", { className: "readout", id: "readout" });
  readonly #position = element("span", { className: "readout-part" });
  readonly #map = element("span", { className: "readout-part is-map" });
  readonly #value = element("span", { className: "readout-part is-value", id: "value" });
  #giveUp = new AbortController();
  #timer = 0;

  constructor() {
    this.root.append(this.#position, this.#map, this.#value);
  }

  clear(): void {
    this.#giveUp.abort();
    clearTimeout(this.#timer);
    for (const part of [this.#position, this.#map, this.#value]) part.textContent = "";
    delete this.#value.dataset["level"];
  }

  show(image: Image, chunks: Chunks, selection: Selection, level: number, x: number, y: number): void {
    this.#giveUp.abort();
    clearTimeout(this.#timer);
    const giveUp = (this.#giveUp = new AbortController());
    this.#position.textContent = `x ${x}  y ${y}`;
    this.#map.textContent = positionText(image, x, y) ?? "";
    const put = async (from: number): Promise<void> => {
      try {
        const values = await read(image, chunks, from, selection, x, y, giveUp.signal);
        if (!giveUp.signal.aborted) this.#put(values, image.dtype, from, x, y);
      } catch {
        if (!giveUp.signal.aborted) this.#value.textContent = "cannot be read";
      }
    };
    if (level > 0) {
      delete this.#value.dataset["level"];
      this.#timer = setTimeout(() => void put(0), REST_MS);
    }
    void put(level);
  }

  #put(values: (number | bigint)[], dtype: string, level: number, x: number, y: number): void {
    if (level > 0 && this.#value.dataset["level"] === "0") return; // the exact one was faster
    const inks = values.length === 3 ? ["is-red", "is-green", "is-blue"] : [""];
    this.#value.replaceChildren(
      ...values.flatMap((value, i) => [
        i ? " " : "",
        element("span", { className: inks[i]! }, valueText(value, dtype)),
      ]),
      level > 0 ? element("span", { className: "quiet" }, ` mean at level ${level}`) : "",
    );
    Object.assign(this.#value.dataset, { level: String(level), x: String(x), y: String(y) });
  }
}
