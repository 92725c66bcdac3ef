/** The histogram, with two handles for the contrast limits. */

import { automatic, histogram, rounded, type Histogram } from "./contrast";
import { element } from "./element";
import type { Limits } from "./state";

const HEIGHT = 92;

export interface Shown {
  /** Sorted values of each band. */
  bands: Float64Array[];
  /** Colour of each band: the name of a CSS variable, or #rrggbb. */
  inks: string[];
  /** The pair that the handles move. */
  limits: Limits;
  /** CSS of the strip below; null for colours. */
  gradient: string | null;
}

export class HistogramPanel {
  readonly root = element("div", { className: "histogram" });
  onlimits: (limits: Limits) => void = () => {};
  readonly #canvas = element("canvas", {
    className: "histogram-canvas",
    tabIndex: 0,
    aria: { role: "img", label: "histogram" },
  });
  readonly #strip = element("div", { className: "histogram-strip" });
  readonly #low = numberField("lowest value", (value) => this.#set(0, value));
  readonly #high = numberField("highest value", (value) => this.#set(1, value));
  #shown: Shown | null = null;
  #counts: Histogram[] = [];
  #for: Float64Array[] | null = null;
  #held: 0 | 1 | null = null;

  constructor() {
    this.root.append(
      this.#canvas,
      this.#strip,
      element("div", { className: "histogram-fields" }, this.#low, this.#high),
    );
    this.#canvas.addEventListener("pointerdown", (event) => {
      this.#canvas.setPointerCapture(event.pointerId);
      const value = this.#valueAt(event);
      const [low, high] = this.#shown?.limits ?? [0, 1];
      this.#held = Math.abs(value - low) < Math.abs(value - high) ? 0 : 1;
      this.#set(this.#held, value);
    });
    this.#canvas.addEventListener("pointermove", (event) => {
      if (this.#held !== null) this.#set(this.#held, this.#valueAt(event));
    });
    for (const name of ["pointerup", "pointercancel"] as const) {
      this.#canvas.addEventListener(name, () => (this.#held = null));
    }
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
  }

  show(shown: Shown): void {
    this.#shown = shown;
    if (this.#for?.length !== shown.bands.length || !shown.bands.every((band, i) => band === this.#for![i])) {
      this.#for = shown.bands;
      const [least, most] = rangeOf(shown.bands);
      this.#counts = shown.bands.map((values) => histogram(values, least, most));
    }
    const span = (this.#counts[0]?.most ?? 1) - (this.#counts[0]?.least ?? 0);
    for (const [field, value] of [
      [this.#low, shown.limits[0]],
      [this.#high, shown.limits[1]],
    ] as const) {
      if (document.activeElement !== field) field.value = rounded(value, span);
    }
    this.#strip.style.background = shown.gradient ?? "linear-gradient(90deg, #000, #fff)";
    this.#draw();
  }

  #set(which: 0 | 1, value: number): void {
    if (!this.#shown || !Number.isFinite(value)) return;
    const [low, high] = this.#shown.limits;
    this.onlimits(which === 0 ? [Math.min(value, high), high] : [low, Math.max(value, low)]);
  }

  #valueAt(event: PointerEvent): number {
    const box = this.#canvas.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const { least, most } = this.#counts[0] ?? { least: 0, most: 1 };
    const value = least + part * (most - least);
    return most - least > 400 && Number.isInteger(least) ? Math.round(value) : value;
  }

  #draw(): void {
    const ratio = window.devicePixelRatio;
    const width = Math.round(this.#canvas.clientWidth * ratio);
    const height = Math.round(HEIGHT * ratio);
    const shown = this.#shown;
    if (!width || !shown) return;
    Object.assign(this.#canvas, { width, height });
    const context = this.#canvas.getContext("2d")!;
    const style = getComputedStyle(this.root);
    const inks = shown.inks;
    // bands share one scale; square roots make rare values visible
    const most = Math.sqrt(Math.max(1, ...this.#counts.flatMap((h) => h.counts)));
    context.globalCompositeOperation = "source-over";
    this.#counts.forEach((h, band) => {
      const ink = inks[band] ?? "--ink-one";
      context.fillStyle = ink.startsWith("--") ? style.getPropertyValue(ink) : ink;
      context.beginPath();
      context.moveTo(0, height);
      h.counts.forEach((count, i) => {
        const y = height - (Math.sqrt(count) / most) * (height - 6 * ratio);
        context.lineTo((i / h.counts.length) * width, y);
        context.lineTo(((i + 1) / h.counts.length) * width, y);
      });
      context.lineTo(width, height);
      context.fill();
    });
    this.#drawHandles(context, width, height, ratio, style);
  }

  #drawHandles(
    context: CanvasRenderingContext2D,
    width: number,
    height: number,
    ratio: number,
    style: CSSStyleDeclaration,
  ): void {
    const { least, most } = this.#counts[0] ?? { least: 0, most: 1 };
    const place = (value: number): number =>
      Math.min(1, Math.max(0, (value - least) / (most - least || 1))) * width;
    const [low, high] = this.#shown!.limits.map(place) as [number, number];
    context.fillStyle = style.getPropertyValue("--veil");
    context.fillRect(0, 0, low, height);
    context.fillRect(high, 0, width - high, height);
    context.fillStyle = style.getPropertyValue("--accent");
    for (const at of [low, high]) {
      const x = Math.min(width - 2 * ratio, Math.max(0, at - ratio));
      context.fillRect(x, 0, 2 * ratio, height);
      context.beginPath();
      context.arc(Math.min(width - 5 * ratio, Math.max(5 * ratio, at)), 6 * ratio, 5 * ratio, 0, 7);
      context.fill();
    }
  }
}

/** Return the range of the histogram: all values but extreme outliers. */
function rangeOf(bands: Float64Array[]): [number, number] {
  const all = bands.filter((values) => values.length);
  if (!all.length) return [0, 1];
  const least = Math.min(...all.map((v) => v[0]!));
  const most = Math.max(...all.map((v) => v[v.length - 1]!));
  const pairs = all.map(automatic);
  const [low, high] = [Math.min(...pairs.map((p) => p[0])), Math.max(...pairs.map((p) => p[1]))];
  const span = high - low;
  const range: [number, number] = [Math.max(least, low - 2 * span), Math.min(most, high + 2 * span)];
  return range[1] > range[0] ? range : [least - 0.5, least + 0.5];
}

function numberField(label: string, set: (value: number) => void): HTMLInputElement {
  const field = element("input", {
    type: "text",
    inputMode: "decimal",
    className: "number",
    aria: { label },
  });
  field.addEventListener("change", () => set(Number(field.value)));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") field.blur();
    event.stopPropagation();
  });
  return field;
}
