/** Another image in the same view: over the first, divided by a line, or beside it. */

import { placed } from "./compare";
import { element, found } from "./element";
import type { Image } from "./image";
import { lineOf } from "./notices";
import { openImage, PREFIX, Showing } from "./showing";
import { Stage, type Layer } from "./stage";
import { START, type State, type View } from "./state";
import { Tiles } from "./tiles";

export class Comparing {
  onchange: () => void = () => {};
  onerror: (line: string) => void = () => {};
  onview: (view: View | null) => void = () => {};
  readonly #root = element("div", {
    className: "stage is-side",
    hidden: true,
    aria: { role: "application", label: "the other image: drag to move, wheel to zoom" },
  });
  readonly #stage: Stage;
  readonly #line = element("div", { className: "divider", hidden: true });
  #other: Showing | null = null;
  /** What is open, or being opened. */
  #key = "";
  #opening = new AbortController();

  constructor() {
    found("stage").after(this.#root, this.#line);
    this.#stage = new Stage(this.#root, "-side");
    this.#stage.onview = (view) => this.onview(view);
  }

  get isSide(): boolean {
    return !this.#root.hidden;
  }

  /** Return the layer of the other image, opening it first; null: none, or not yet. */
  layer(base: Showing, state: State, view: View): Layer | null {
    const { other } = state;
    const key = other ? JSON.stringify([other, base.image.file, base.image.path]) : "";
    if (key !== this.#key) {
      this.#close();
      this.#key = key;
      if (other) void this.#open(other, base.image);
    }
    const isSide = this.#other !== null && state.compare === "side";
    this.#root.hidden = !isSide;
    document.body.classList.toggle("has-side", isSide);
    this.#line.hidden = this.#other === null || state.compare !== "swipe";
    this.#line.style.left = `${100 * state.part}%`;
    if (!this.#other) {
      this.#stage.show(null);
      return null;
    }
    // positions of sliders hold for both; everything else is as its own file says
    const own: State = { ...START, at: state.at, fill: state.fill };
    const { opened } = this.#other;
    const layer: Layer = {
      tiles: opened.tiles,
      selection: this.#other.selection(own),
      next: [],
      painting: this.#other.painting(own),
      opacity: state.compare === "over" ? state.part : 1,
      from: state.compare === "swipe" ? state.part : 0,
    };
    if (!isSide) return layer;
    const { grids } = opened;
    this.#stage.show({
      image: base.image,
      layers: [layer],
      grids,
      view,
      hasGrid: false,
      picked: null,
      decorations: [],
    });
    return null;
  }

  async #open(other: { file: string; image: string }, base: Image): Promise<void> {
    this.#opening = new AbortController();
    const { signal } = this.#opening;
    try {
      const opened = await openImage(other.file, other.image, null, signal);
      const image = placed(opened.image, base);
      const tiles = new Tiles(image, PREFIX);
      if (signal.aborted) return;
      this.#other = new Showing({ ...opened, image, tiles });
      tiles.onchange = () => {
        this.#stage.redraw();
        this.onchange();
      };
    } catch (cause) {
      if (signal.aborted) return;
      this.onerror(lineOf(cause));
      return;
    }
    this.onchange();
  }

  #close(): void {
    this.#opening.abort();
    this.#other?.opened.tiles.close();
    this.#other = null;
  }
}
