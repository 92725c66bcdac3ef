/** The page: one object that holds what is shown, and keeps its parts in step with it. */

import { AddressBar } from "./address";
import { ServerError } from "./api";
import { Bars, hideFiles, hidePanel, showPanel } from "./bars";
import { Catalog } from "./catalog";
import { MAPS } from "./colormap";
import { element, found, iconButton } from "./element";
import { chunkBox } from "./grid";
import { placeAt, Unshowable, type Image } from "./image";
import { Gpu } from "./gpu";
import { Legend } from "./legend";
import { HelpPanel, listenKeys } from "./keys";
import { lineOf, Notices } from "./notices";
import { Readout } from "./readout";
import { openImage, Showing } from "./showing";
import { shortcuts, type Actions } from "./shortcuts";
import { SidePanel } from "./sidepanel";
import { Sliders } from "./sliders";
import { Stage } from "./stage";
import { START, type State } from "./state";
import { toggleTheme } from "./theme";
import type { Box, Point } from "./view";

/** Thumbnails are asked for once the picture is drawn, or after this time. */
const THUMBNAILS_MS = 2000;

export class App implements Actions {
  readonly #address = new AddressBar();
  readonly #notices = new Notices();
  readonly #catalog = new Catalog();
  readonly #stage = new Stage(found("stage"));
  readonly #sliders = new Sliders();
  readonly #readout = new Readout();
  readonly #legend = new Legend();
  readonly #panel = new SidePanel();
  readonly #level = element("span", { className: "readout-part", id: "level" });
  readonly #keys = shortcuts(this);
  readonly #help = new HelpPanel(this.#keys.filter(({ label }) => label));
  readonly #bars = new Bars(this);
  #state: State = this.#address.read();
  /** The image that is open; null: none, or it cannot be drawn. */
  #showing: Showing | null = null;
  /** Aborted when another image is opened. */
  #opening = new AbortController();
  /** undefined: not tried yet. */
  #painter: Gpu | null | undefined;
  /** The chunk that was clicked, in pixels of level 0. */
  #picked: Box | null = null;

  start(): void {
    this.#build();
    this.#connect();
    setTimeout(() => this.#catalog.list.showThumbnails(), THUMBNAILS_MS);
    // both at once: a link names its image, so that need not wait for the list
    void this.#open();
    void this.#list();
  }

  #build(): void {
    found("files").append(this.#catalog.list.root);
    const close = iconButton("close", "close", hidePanel);
    close.classList.add("only-narrow", "panel-close");
    found("panel").append(this.#panel.root, close);
    found("dock").append(this.#sliders.root);
    found("main").append(this.#legend.root);
    found("foot").append(this.#readout.root, element("div", { className: "readout is-right" }, this.#level));
    document.body.append(this.#help.root);
  }

  #connect(): void {
    this.#catalog.list.onpick = (file, image) => this.#pick(file, image);
    this.#sliders.onmove = (name, value) => {
      if (this.#showing) this.#change(this.#showing.moved(this.#state, name, value));
    };
    this.#sliders.isDrawn = () => this.#stage.canvas.dataset["settled"] === "true";
    this.#panel.display.onchange = (change) => this.#change(change);
    this.#panel.display.onchannels = (changes) => {
      if (this.#showing) this.#change(this.#showing.channelsChanged(this.#state, changes));
    };
    this.#panel.onpick = (name) => {
      if (name === "chunk" && !this.#state.grid && this.#showing) this.#change({ grid: true });
    };
    this.#stage.covered = () => this.#sliders.root.offsetHeight;
    this.#stage.onview = (view) => this.#change({ view });
    this.#stage.ontap = (at, level) => void this.#pickChunk(at, level);
    this.#stage.onpoint = (at, level) => this.#point(at, level);
    this.#stage.onframe = (level, zoom, isSettled) => this.#frameDrawn(level, zoom, isSettled);
    this.#address.listen((state) => this.#navigate(state));
    listenKeys(this.#keys);
  }

  /** Change what is shown, and everything that depends on it. */
  #change(by: Partial<State>): void {
    this.#state = { ...this.#state, ...by };
    this.#render();
    this.#address.writeSoon(this.#state);
  }

  #navigate(state: State): void {
    const before = this.#state;
    this.#state = state;
    if (state.file !== before.file || state.image !== before.image) void this.#open();
    else this.#render();
  }

  #render(): void {
    const showing = this.#showing;
    if (!showing) {
      this.#legend.show([]);
      return this.#stage.show(null);
    }
    const state = this.#state;
    showing.opened.tiles.gpu = this.#gpu(state);
    this.#legend.show(showing.mode(state) === "channels" ? showing.channels(state) : []);
    this.#sliders.show(showing.sliders(state));
    this.#panel.display.show(showing.display(state));
    this.#bars.showGrid(state.grid);
    this.#stage.show({
      ...showing.opened,
      selection: showing.selection(state),
      next: showing.nextSelections(state, this.#sliders.playing),
      painting: showing.painting(state),
      view: state.view,
      hasGrid: state.grid,
      picked: this.#picked,
    });
  }

  /** Return what paints channels; a browser has few WebGL contexts, so one is kept for all images. */
  #gpu({ painter }: State): Gpu | null {
    if (painter === "canvas") return null;
    if (this.#painter === undefined) this.#painter = Gpu.open(painter === "gpu");
    return this.#painter;
  }

  /** Open the image that the state names; the old one stays until it is there. */
  async #open(): Promise<void> {
    this.#opening.abort();
    this.#opening = new AbortController();
    const { signal } = this.#opening;
    const { file, image } = this.#state;
    if (file === null || image === null) return;
    this.#showNames(file, image);
    this.#picked = null;
    let next: Showing;
    try {
      next = new Showing(await openImage(file, image, signal));
    } catch (cause) {
      if (!signal.aborted) this.#fail(cause);
      return;
    }
    if (!signal.aborted) this.#show(next);
  }

  #show(next: Showing): void {
    this.#showing?.opened.tiles.close();
    this.#showing = next;
    const { tiles, grids } = next.opened;
    tiles.onchange = (error) => {
      if (error) this.#notices.toast(error);
      if (this.#showing === next) this.#render();
    };
    grids.onchange = () => this.#stage.redraw();
    this.#notices.message(null);
    this.#readout.clear();
    this.#render();
    this.#showPanel(next.image);
  }

  /** Show the reason in place of the picture. */
  #fail(cause: unknown): void {
    this.#showing?.opened.tiles.close();
    this.#showing = null;
    this.#readout.clear();
    this.#sliders.show([]);
    this.#render();
    this.#panel.display.clear();
    this.#showPanel(cause instanceof Unshowable ? cause.image : null);
    const isExpected = cause instanceof Unshowable || cause instanceof ServerError;
    this.#notices.message(isExpected ? "This cannot be shown" : "Something went wrong", lineOf(cause));
  }

  #showNames(file: string, image: string): void {
    this.#catalog.list.pick(file, image);
    this.#bars.showTitle(this.#catalog.title(file), this.#catalog.imageTitle(file, image));
  }

  #showPanel(image: Image | null): void {
    const link = (): string => {
      this.#address.write(this.#state);
      return location.href;
    };
    const title = image ? this.#catalog.title(image.file) : "";
    this.#panel.show(this.#state.file, image, title, link);
  }

  async #list(): Promise<void> {
    try {
      await this.#catalog.load();
    } catch (cause) {
      if (this.#state.file === null) this.#fail(cause);
      return;
    }
    const { file, image } = this.#state;
    if (file === null || image === null) this.#pickFirst(file);
    // again: titles are known only now
    else this.#showNames(file, image);
    void this.#catalog.loadPending();
  }

  /** Show the first image, of the file that the link names if it names one. */
  #pickFirst(file: string | null): void {
    try {
      this.#state = { ...this.#state, ...this.#catalog.first(file) };
    } catch (cause) {
      this.#panel.display.clear();
      this.#notices.message("Nothing to show", lineOf(cause));
      return;
    }
    this.#address.write(this.#state);
    void this.#open();
  }

  #pick(file: string, image: string): void {
    hideFiles();
    if (file === this.#state.file && image === this.#state.image) return;
    this.#state = { ...START, at: {}, channels: {}, file, image, grid: this.#state.grid };
    this.#address.push(this.#state);
    void this.#open();
  }

  /** Show the file's own chunk at a pixel of level 0. */
  async #pickChunk(at: Point, number: number): Promise<void> {
    const showing = this.#showing;
    if (!showing || !this.#state.grid) return;
    const { image, grids } = showing.opened;
    const level = image.levels[number]!;
    const place = showing.position(this.#state, at).map((value, axis) => placeAt(level, axis, value));
    this.#panel.pick("chunk");
    showPanel();
    try {
      const chunk = await grids.chunk(level, place);
      this.#picked = chunkBox(image, level, chunk);
      this.#panel.showChunk(chunk, image.dtype, number);
    } catch (cause) {
      this.#picked = null;
      this.#panel.showChunkError(lineOf(cause));
    }
    this.#render();
  }

  #point(at: Point | null, level: number): void {
    const showing = this.#showing;
    if (!at || !showing) return this.#readout.clear();
    const selection = showing.selection(this.#state);
    const inks = showing.inks(this.#state);
    this.#readout.show(showing.image, showing.opened.tiles.chunks, { selection, inks }, level, at.x, at.y);
  }

  #frameDrawn(level: number, zoom: number, isSettled: boolean): void {
    const percent = zoom * 100;
    const shown = percent >= 10 ? Math.round(percent) : percent.toPrecision(2);
    this.#level.textContent = `level ${level} · ${shown} %`;
    if (isSettled) this.#catalog.list.showThumbnails();
    this.#notices.busy(!isSettled);
  }

  zoomBy(factor: number): void {
    this.#stage.zoomBy(factor);
  }

  zoomTo(zoom: number): void {
    this.#stage.zoomTo(zoom);
  }

  showWhole(): void {
    this.#stage.whole();
  }

  pan(by: Point): void {
    this.#stage.pan(by);
  }

  stepSlider(by: number): void {
    this.#sliders.step(by);
  }

  playSlider(): void {
    this.#sliders.play();
  }

  stepImage(by: number): void {
    this.#catalog.list.step(by);
  }

  resetContrast(): void {
    const showing = this.#showing;
    showing?.resample();
    const limits = showing?.automatic(this.#state);
    if (!showing || !limits) return;
    if (showing.mode(this.#state) !== "channels") {
      this.#change({ limits: this.#state.apart ? limits : [limits[0]!] });
      return;
    }
    const bands = showing.bands(this.#state);
    const changes = Object.fromEntries(bands.map((band, i) => [band, { limits: limits[i]! }]));
    this.#change(showing.channelsChanged(this.#state, changes));
  }

  swapBands(): void {
    const showing = this.#showing;
    if (!showing || showing.bandCount() < 2) return;
    const { described } = showing;
    const isOne = showing.mode(this.#state) === "one";
    const first = showing.bands(this.#state)[0] ?? 0;
    const isOwnColour = described.model !== "grey";
    const all = isOwnColour ? null : showing.bandCount() >= 3 ? [0, 1, 2] : null;
    const drawing = isOne && !isOwnColour && all === null ? "channels" : null;
    this.#change({ bands: isOne ? all : [first], drawing, limits: null });
  }

  stepMap(by: number): void {
    const at = MAPS.indexOf(this.#state.map ?? "gray");
    this.#change({ map: MAPS[(at + by + MAPS.length) % MAPS.length]! });
  }

  toggleGrid(): void {
    this.#change({ grid: !this.#state.grid });
  }

  showMetadata(): void {
    showPanel();
    this.#panel.pick("metadata");
  }

  searchMetadata(): void {
    this.showMetadata();
    this.#panel.focusSearch();
  }

  toggleTheme(): void {
    toggleTheme();
    this.#render();
  }

  toggleHelp(): void {
    this.#help.toggle();
  }
}
