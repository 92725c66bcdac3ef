/** A slider for each axis other than y and x. */

import { element, icon } from "./element";

export interface Slider {
  name: string;
  value: number;
  length: number;
  /** Such as "12.5 µm". */
  note: string | null;
}

const FRAME_MS = 120;

export class Sliders {
  readonly root = element("div", { className: "sliders", id: "sliders" });
  onmove: (name: string, value: number) => void = () => {};
  /** Returns whether the current plane is drawn; playing waits for it. */
  isDrawn: () => boolean = () => true;
  #rows = new Map<string, { input: HTMLInputElement; text: HTMLElement; play: HTMLButtonElement }>();
  #shown: Slider[] = [];
  #playing: string | null = null;

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
      row.text.textContent = `${value} / ${length - 1}${note ? ` · ${note}` : ""}`;
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
    for (const [axis, { play }] of this.#rows)
      play.replaceChildren(icon(axis === this.#playing ? "pause" : "play"));
    if (this.#playing) setTimeout(() => this.#tick(), FRAME_MS);
  }

  #tick(): void {
    const slider = this.#shown.find((s) => s.name === this.#playing);
    if (!slider) {
      this.#playing = null;
      return;
    }
    if (this.isDrawn()) this.onmove(slider.name, (slider.value + 1) % slider.length);
    setTimeout(() => this.#tick(), FRAME_MS);
  }

  #build(sliders: Slider[]): void {
    this.#playing = null;
    this.#rows.clear();
    this.root.replaceChildren(...sliders.map(({ name, length }) => this.#row(name, length)));
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
