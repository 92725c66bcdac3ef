/** A slider for each axis other than y and x. */

import { element, icon } from "./element";

export interface Slider {
  name: string;
  value: number;
  length: number;
  /** Such as "12.5 µm". */
  note: string | null;
}

/** Pictures per second. */
const RATES = [2, 5, 10, 20];

export class Sliders {
  readonly root = element("div", { className: "sliders", id: "sliders", hidden: true });
  onmove: (name: string, value: number) => void = () => {};
  /** Returns whether the current plane is drawn; playing waits for it. */
  isDrawn: () => boolean = () => true;
  #rows = new Map<string, { input: HTMLInputElement; text: HTMLElement; play: HTMLButtonElement }>();
  #shown: Slider[] = [];
  #playing: string | null = null;
  #timer = 0;
  /** When the next plane is due. */
  #due = 0;
  readonly #rate = element(
    "select",
    { className: "select rate", hidden: true, aria: { label: "pictures per second" } },
    ...RATES.map((rate) => element("option", { value: String(rate), selected: rate === 10 }, `${rate} / s`)),
  );

  get playing(): string | null {
    return this.#playing;
  }

  show(sliders: Slider[]): void {
    const names = sliders.map((s) => `${s.name}/${s.length}`).join();
    if (names !== this.#shown.map((s) => `${s.name}/${s.length}`).join()) this.#build(sliders);
    this.#shown = sliders;
    for (const { name, value, length, note } of sliders) {
      const row = this.#rows.get(name)!;
      row.input.value = String(value);
      row.input.setAttribute("aria-valuetext", note ?? String(value));
      row.text.replaceChildren(
        `${value} / ${length - 1}`,
        element("span", { className: "slider-note" }, note ? ` · ${note}` : ""),
      );
      row.input.style.setProperty("--part", `${length > 1 ? (100 * value) / (length - 1) : 0}%`);
    }
    this.root.hidden = sliders.length === 0;
  }

  /** Move a slider, by default the last one, by a number of steps. */
  step(by: number, name = this.#shown.at(-1)?.name): void {
    const slider = this.#shown.find((s) => s.name === name);
    if (!slider) return;
    const value = Math.min(slider.length - 1, Math.max(0, slider.value + by));
    if (value !== slider.value) this.onmove(slider.name, value);
  }

  play(name = this.#shown.at(-1)?.name): void {
    this.#playing = this.#playing || name === undefined ? null : name;
    for (const [axis, { play }] of this.#rows) {
      const isPlaying = axis === this.#playing;
      play.replaceChildren(icon(isPlaying ? "pause" : "play"));
      play.setAttribute("aria-label", `${isPlaying ? "pause" : "play"} ${axis}`);
    }
    clearTimeout(this.#timer);
    this.#rate.hidden = this.#playing === null;
    if (!this.#playing) return;
    this.#due = performance.now() + this.#interval;
    this.#timer = setTimeout(() => this.#tick(), this.#interval);
  }

  get #interval(): number {
    return 1000 / Number(this.#rate.value);
  }

  /** Show the next plane when it is due, or as soon as the last one is drawn. */
  #tick(): void {
    const slider = this.#shown.find((s) => s.name === this.#playing);
    if (!slider) {
      this.#playing = null;
      return;
    }
    const now = performance.now();
    if (this.isDrawn()) {
      this.onmove(slider.name, (slider.value + 1) % slider.length);
      // from when it was due, not from now: timers are late by a few milliseconds each
      this.#due = Math.max(this.#due + this.#interval, now);
    }
    this.#timer = setTimeout(() => this.#tick(), Math.max(8, this.#due - performance.now()));
  }

  #build(sliders: Slider[]): void {
    this.#playing = null;
    this.#rows.clear();
    this.#rate.hidden = true;
    this.root.replaceChildren(...sliders.map(({ name, length }) => this.#row(name, length)), this.#rate);
  }

  #row(name: string, length: number): HTMLElement {
    const input = element("input", {
      type: "range",
      min: "0",
      max: String(length - 1),
      step: "1",
      aria: { label: name },
    });
    input.addEventListener("input", () => this.onmove(name, Number(input.value)));
    const text = element("output", { className: "slider-text" });
    const play = element(
      "button",
      {
        type: "button",
        className: "icon-button small",
        title: `play ${name}`,
        aria: { label: `play ${name}` },
        onclick: () => this.play(name),
      },
      icon("play"),
    );
    this.#rows.set(name, { input, text, play });
    return element(
      "div",
      { className: "slider" },
      play,
      element("span", { className: "slider-name" }, name),
      input,
      text,
    );
  }
}
