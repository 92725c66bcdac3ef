/** The canvas: draws the view and follows the pointer. */

import { element } from "./element";
import { drawGrid, drawPicked, type Grids } from "./grid";
import type { Image } from "./image";
import { insetBack, placeBack, turn, turnedBack, turnedSize } from "./orientation";
import type { Painting } from "./paint";
import { scaleBar } from "./coordinates";
import { listen } from "./pointer";
import type { View } from "./state";
import { onCanvas, type Selection, type Tiles } from "./tiles";
import {
  bounded,
  extentOf,
  fit,
  levelFor,
  sizeOf,
  toImage,
  zoomedAt,
  type Box,
  type Inset,
  type Point,
  type Size,
} from "./view";

/** An image that is drawn, over or under others in the same pixels. */
export interface Layer {
  tiles: Tiles;
  selection: Selection;
  /** Read ahead, once everything else is there. */
  next: Selection[];
  /** null until limits are known. */
  painting: Painting | null;
  /** From 0 to 1. */
  opacity: number;
  /** The part of the canvas' width that is left free, from the left. */
  from: number;
}

/** Draws over the picture, in device pixels. */
export type Decoration = (context: CanvasRenderingContext2D, view: View, canvas: Size) => void;

export interface Scene {
  /** The one that view, scale bar and pointer refer to. */
  image: Image;
  /** Its own layer first. */
  layers: Layer[];
  grids: Grids;
  /** null: the whole image. */
  view: View | null;
  hasGrid: boolean;
  picked: Box | null;
  decorations: Decoration[];
  /** How the picture is turned or mirrored, as TIFF's Orientation has it; absent: as it is stored. */
  orientation?: number;
  /** Length of a unit of the map at the middle of the view; null: unknown. */
  metres?: ((view: View) => number) | null;
}

const GLIDE_MS = 180;
/** CSS pixels as in theme.css: margin, width of the tools, height of the scale bar, narrow screen. */
const [EDGE, TOOLS, BAR, NARROW] = [14, 66, 44, 600];

export class Stage {
  readonly canvas: HTMLCanvasElement;
  onview: (view: View | null) => void = () => {};
  onpoint: (at: Point | null, level: number) => void = () => {};
  ontap: (at: Point, level: number) => void = () => {};
  /** Returns how many CSS pixels of the lower edge the sliders cover. */
  covered: () => number = () => 0;
  onframe: (level: number, zoom: number, isSettled: boolean) => void = () => {};
  readonly #root: HTMLElement;
  readonly #over: HTMLCanvasElement;
  readonly #bar = element("div", { className: "scale-bar" });
  #scene: Scene | null = null;
  #frame = 0;
  #glide = 0;
  #pointer: Point | null = null;

  /** Draw in an element; `suffix` tells the ids of several stages apart. */
  constructor(root: HTMLElement, suffix = "") {
    this.#root = root;
    this.canvas = element("canvas", {
      className: "picture",
      id: `picture${suffix}`,
      aria: { hidden: "true" },
    });
    this.#over = element("canvas", { className: "over", id: `over${suffix}`, aria: { hidden: "true" } });
    root.append(this.canvas, this.#over, this.#bar);
    root.tabIndex = 0;
    listen(root, {
      pan: (by) => this.pan(by),
      zoom: (at, factor) => this.#zoomAt(this.#device(at), factor),
      tap: (at) => this.#atImage(at, (point, level) => this.ontap(point, level)),
      hover: (at) => {
        this.#pointer = at;
        this.#hover();
      },
    });
    new ResizeObserver(() => this.redraw()).observe(root);
  }

  /** Return what the canvas shows, with what is drawn over it. */
  picture(): HTMLCanvasElement {
    const copy = Object.assign(document.createElement("canvas"), this.#screen());
    const context = copy.getContext("2d")!;
    for (const canvas of [this.canvas, this.#over]) context.drawImage(canvas, 0, 0);
    return copy;
  }

  /** The canvas as the stored image sees it: views, positions and sizes are those of stored pixels. */
  get size(): Size {
    return this.#size();
  }

  get view(): View {
    if (!this.#scene) return { x: 0, y: 0, zoom: 1 };
    return this.#scene.view ?? fit(sizeOf(this.#scene.image), this.#size(), this.#inset());
  }

  show(scene: Scene | null): void {
    this.#scene = scene;
    this.redraw();
  }

  redraw(): void {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  pan(by: Point): void {
    const ratio = window.devicePixelRatio;
    const { x, y, zoom } = this.view;
    const stored = turnedBack(by, this.#orientation);
    this.#move({ x: x - (stored.x * ratio) / zoom, y: y - (stored.y * ratio) / zoom, zoom });
  }

  /** Zoom at the middle, smoothly. */
  zoomBy(factor: number): void {
    const { width, height } = this.#size();
    this.#glideTo(zoomedAt(this.view, this.#size(), { x: width / 2, y: height / 2 }, factor));
  }

  zoomTo(zoom: number): void {
    this.#glideTo({ ...this.view, zoom });
  }

  whole(): void {
    cancelAnimationFrame(this.#glide);
    this.onview(null);
  }

  get #orientation(): number {
    return this.#scene?.orientation ?? 1;
  }

  #size(): Size {
    return turnedSize(this.#screen(), this.#orientation);
  }

  #screen(): Size {
    const ratio = window.devicePixelRatio;
    return {
      width: Math.max(1, Math.round(this.#root.clientWidth * ratio)),
      height: Math.max(1, Math.round(this.#root.clientHeight * ratio)),
    };
  }

  /** Return what the tools and sliders cover. */
  #inset(): Inset {
    const ratio = window.devicePixelRatio;
    const isNarrow = this.#root.clientWidth < NARROW;
    const [side, below] = [
      isNarrow ? EDGE : TOOLS,
      Math.max(this.covered() + 2 * EDGE, isNarrow ? EDGE : BAR),
    ];
    const inset = {
      left: EDGE * ratio,
      top: (isNarrow ? TOOLS : EDGE) * ratio,
      right: side * ratio,
      bottom: below * ratio,
    };
    return insetBack(inset, this.#orientation);
  }

  #device(at: Point): Point {
    const ratio = window.devicePixelRatio;
    return placeBack({ x: at.x * ratio, y: at.y * ratio }, this.#screen(), this.#orientation);
  }

  #move(view: View): void {
    if (!this.#scene) return;
    cancelAnimationFrame(this.#glide);
    this.onview(bounded(view, sizeOf(this.#scene.image), this.#size()));
  }

  #zoomAt(at: Point, factor: number): void {
    if (!this.#scene) return;
    const limited = bounded(
      { ...this.view, zoom: this.view.zoom * factor },
      sizeOf(this.#scene.image),
      this.#size(),
    );
    this.#move(zoomedAt(this.view, this.#size(), at, limited.zoom / this.view.zoom));
  }

  #glideTo(target: View): void {
    if (!this.#scene) return;
    const end = bounded(target, sizeOf(this.#scene.image), this.#size());
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.#move(end);
    cancelAnimationFrame(this.#glide);
    const start = this.view;
    const began = performance.now();
    const step = (now: number): void => {
      const part = Math.min(1, Math.max(0, (now - began) / GLIDE_MS));
      const eased = 1 - (1 - part) ** 3;
      const between = (a: number, b: number): number => a + (b - a) * eased;
      const zoom = start.zoom * (end.zoom / start.zoom) ** eased;
      this.onview(part === 1 ? end : { x: between(start.x, end.x), y: between(start.y, end.y), zoom });
      if (part < 1) this.#glide = requestAnimationFrame(step);
    };
    this.#glide = requestAnimationFrame(step);
  }

  #atImage(at: Point, call: (point: Point, level: number) => void): void {
    if (!this.#scene) return;
    const spot = toImage(this.view, this.#size(), this.#device(at));
    const [x, y] = [Math.floor(spot.x), Math.floor(spot.y)];
    const { right: width, bottom: height } = extentOf(this.#scene.image);
    if (x >= 0 && y >= 0 && x < width && y < height)
      call({ x, y }, levelFor(this.#scene.image, this.view.zoom));
    else this.onpoint(null, 0);
  }

  #hover(): void {
    if (this.#pointer) this.#atImage(this.#pointer, (point, level) => this.onpoint(point, level));
    else this.onpoint(null, 0);
  }

  #draw(): void {
    this.#frame = 0;
    const screen = this.#screen();
    for (const canvas of [this.canvas, this.#over]) {
      // only if it differs: setting the size clears a canvas
      if (canvas.width !== screen.width || canvas.height !== screen.height) Object.assign(canvas, screen);
    }
    const over = this.#over.getContext("2d")!;
    const scene = this.#scene;
    const context = this.canvas.getContext("2d")!;
    const size = this.#size();
    for (const one of [context, over]) {
      turn(one, screen, this.#orientation);
      one.clearRect(0, 0, size.width, size.height);
    }
    if (!scene) {
      this.#bar.hidden = true;
      this.canvas.dataset["settled"] = "false";
      return;
    }
    const { image, grids } = scene;
    const view = this.view;
    const number = levelFor(image, view.zoom);
    const drawn = scene.layers.map((layer) => this.#drawLayer(context, layer, view, size));
    if (drawn.some(({ isLate }) => isLate)) this.redraw();
    const level = image.levels[number]!;
    const grid = scene.hasGrid ? grids.of(level) : null;
    if (grid) drawGrid(over, image, level, grid, view, size);
    if (scene.hasGrid && scene.picked) drawPicked(over, scene.picked, view, size);
    for (const decorate of scene.decorations) decorate(over, view, size);
    this.#drawBar(scene, view);
    const isSettled = drawn.every((layer) => layer.isSettled);
    const painter = scene.layers[0]!.tiles.painter;
    Object.assign(this.canvas.dataset, { settled: String(isSettled), painter });
    this.onframe(number, view.zoom, isSettled);
  }

  #drawLayer(
    context: CanvasRenderingContext2D,
    { tiles, selection, next, painting, opacity, from }: Layer,
    view: View,
    size: Size,
  ): { isLate: boolean; isSettled: boolean } {
    tiles.want(view, size, selection, { next, isLowFirst: painting === null });
    if (!painting) return { isLate: false, isSettled: false };
    context.save();
    context.globalAlpha = opacity;
    if (from > 0) {
      const left = Math.round(from * size.width);
      context.beginPath();
      context.rect(left, 0, size.width - left, size.height);
      context.clip();
      // what lies below would show through where this one is transparent
      const box = onCanvas(extentOf(tiles.image), view, size);
      context.clearRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    }
    const isDrawn = tiles.draw(context, view, size, selection, painting);
    context.restore();
    return { isLate: !isDrawn, isSettled: isDrawn && tiles.isSettled(view, size, selection) };
  }

  #drawBar({ image, metres }: Scene, view: View): void {
    const bar = scaleBar(image, view.zoom / window.devicePixelRatio, 140, metres?.(view) ?? null);
    this.#bar.hidden = bar === null;
    if (!bar) return;
    this.#bar.style.width = `${bar.length.toFixed(1)}px`;
    this.#bar.textContent = bar.text;
  }
}
