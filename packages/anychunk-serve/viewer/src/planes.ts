/** A volume seen along its other axes: xz and yz beside xy, with one cross-hair. */

import { element, found } from "./element";
import type { Image } from "./image";
import type { Painting } from "./paint";
import { PREFIX, type Showing } from "./showing";
import { Stage, type Decoration } from "./stage";
import type { State, View } from "./state";
import { Tiles, type Selection } from "./tiles";
import { MOST_ZOOM, origin, sizeOf, type Point, type Size } from "./view";
import { crossOf, depthAxis, slabAround, stretchOf, turned } from "./volume";

/** Return what draws lines through the middle of a pixel; `size` is that of an element. */
export function crossHair(at: Point, size: Point): Decoration {
  return (context, view, canvas) => {
    const corner = origin(view, canvas);
    const x = Math.round(corner.x + (at.x + 0.5) * size.x * view.zoom) + 0.5;
    const y = Math.round(corner.y + (at.y + 0.5) * size.y * view.zoom) + 0.5;
    context.lineWidth = Math.max(1, Math.round(window.devicePixelRatio));
    for (const [style, shift] of [
      ["rgba(0, 0, 0, 0.5)", context.lineWidth],
      ["rgba(79, 179, 255, 0.95)", 0],
    ] as const) {
      context.strokeStyle = style;
      context.beginPath();
      context.moveTo(x + shift, 0);
      context.lineTo(x + shift, canvas.height);
      context.moveTo(0, y + shift);
      context.lineTo(canvas.width, y + shift);
      context.stroke();
    }
  };
}

interface Pane {
  name: string;
  stage: Stage;
  image: Image;
  tiles: Tiles;
}

export class PlaneViews {
  /** Called with new positions along axes, by name. */
  onmove: (at: Record<string, number>) => void = () => {};
  /** Called when a pane is zoomed or moved along an axis that it shares with xy. */
  onview: (view: View) => void = () => {};
  onpoint: (image: Image, tiles: Tiles, selection: Selection, at: Point | null, level: number) => void =
    () => {};
  onframe: () => void = () => {};
  readonly #roots: HTMLElement[];
  readonly #stages: Stage[];
  #panes: Pane[] = [];
  #for: Showing | null = null;
  /** Centre along the depth, in the pixels of the panes; null: its middle. */
  #deep: number | null = null;
  readonly #unmasked = new WeakMap<Painting, Painting>();

  constructor() {
    this.#roots = ["xz", "yz"].map((name) =>
      element("div", {
        className: `stage is-${name}`,
        hidden: true,
        aria: { role: "application", label: `${name} plane: click to move the cross-hair, drag to move` },
      }),
    );
    found("stage").after(...this.#roots);
    this.#stages = this.#roots.map((root, i) => new Stage(root, i ? "-yz" : "-xz"));
  }

  get isSettled(): boolean {
    return this.#stages.every(({ canvas }) => canvas.dataset["settled"] === "true");
  }

  hide(): void {
    document.body.classList.remove("has-planes");
    for (const root of this.#roots) root.hidden = true;
    for (const stage of this.#stages) stage.show(null);
    for (const { tiles } of this.#panes) tiles.close();
    this.#panes = [];
    this.#for = null;
  }

  /** Return a view of xy in which all three planes fit into their panes. */
  fitted(image: Image, canvas: Size): View {
    const depth = depthAxis(image)!;
    const deep = image.levels[0]!.shape[depth]! * stretchOf(image, depth);
    const { width, height } = sizeOf(image);
    // as in theme.css: the panes beside take 34 % of the width and 36 % of the height
    const [beside, below] = [(canvas.width * 0.34) / 0.66, (canvas.height * 0.36) / 0.64];
    const zooms = [canvas.width / width, canvas.height / height, beside / deep, below / deep];
    return { x: width / 2, y: height / 2, zoom: Math.min(MOST_ZOOM, 0.94 * Math.min(...zooms)) };
  }

  /** Show the planes through the cross-hair; `main` is the view of xy. */
  show(showing: Showing, state: State, main: View): void {
    const { image } = showing;
    const depth = depthAxis(image);
    const painting = showing.painting(state);
    if (depth === null) return this.hide();
    if (this.#for !== showing) this.#open(showing, depth);
    document.body.classList.add("has-planes");
    const base = showing.selection(state);
    const at = crossOf(image, state, base.at);
    const stretch = stretchOf(image, depth);
    const length = image.levels[0]!.shape[depth]! * stretch;
    const deep = this.#deep ?? length / 2;
    for (const { name, stage, image: own, tiles } of this.#panes) {
      const isAcross = name === "xz";
      const normal = isAcross ? image.y : image.x;
      const slab = slabAround(normal, at[normal]!, state.slab, image.levels[0]!.shape[normal]!);
      const selection: Selection = { at, bands: base.bands, hasMask: false, slab };
      const view = isAcross
        ? { x: main.x, y: deep, zoom: main.zoom }
        : { x: deep, y: main.y, zoom: main.zoom };
      const cross = isAcross ? { x: at[image.x]!, y: at[depth]! } : { x: at[depth]!, y: at[image.y]! };
      const size = isAcross ? { x: 1, y: stretch } : { x: stretch, y: 1 };
      stage.onpoint = (point, level) => this.onpoint(own, tiles, selection, point, level);
      stage.show({
        image: own,
        layers: [
          { tiles, selection, next: [], painting: painting && this.#without(painting), opacity: 1, from: 0 },
        ],
        grids: showing.opened.grids,
        view,
        hasGrid: false,
        picked: null,
        decorations: [crossHair(cross, size)],
      });
      stage.onview = (next) => {
        if (!next) return;
        this.#deep = Math.min(length, Math.max(0, isAcross ? next.y : next.x));
        this.onview(
          isAcross ? { ...main, x: next.x, zoom: next.zoom } : { ...main, y: next.y, zoom: next.zoom },
        );
      };
      stage.ontap = (point) => {
        const along = isAcross ? image.x : image.y;
        const [shared, deeper] = isAcross ? [point.x, point.y] : [point.y, point.x];
        const far = Math.min(image.levels[0]!.shape[depth]! - 1, Math.floor((deeper + 0.5) / stretch));
        this.onmove({ [image.axes[along]!.name]: shared, [image.axes[depth]!.name]: far });
      };
    }
  }

  #open(showing: Showing, depth: number): void {
    for (const { tiles } of this.#panes) tiles.close();
    const { image } = showing;
    const stretch = stretchOf(image, depth);
    this.#for = showing;
    this.#deep = null;
    this.#panes = this.#stages.map((stage, i) => {
      const own =
        i === 0
          ? turned(image, depth, image.x, depth, stretch)
          : turned(image, image.y, depth, depth, stretch);
      // chunks are shared: most of them are read already
      const tiles = new Tiles(own, PREFIX, showing.opened.tiles.chunks);
      tiles.onchange = () => stage.redraw();
      this.#roots[i]!.hidden = false;
      stage.onframe = () => this.onframe();
      return { name: i === 0 ? "xz" : "yz", stage, image: own, tiles };
    });
  }

  /** Return a painting without the mask, which belongs to xy; the same object for the same painting. */
  #without(painting: Painting): Painting {
    if (painting.valid === null) return painting;
    const known = this.#unmasked.get(painting) ?? { ...painting, valid: null };
    this.#unmasked.set(painting, known);
    return known;
  }
}
