/** The page: one object that holds what is shown, and keeps its parts in step with it. */

import { AddressBar } from "./address";
import { aboutServer, CHANGED, ServerError, type ServerAnswer } from "./api";
import { Bars, hideFiles, hidePanel, showPanel } from "./bars";
import { MAPS } from "./colormap";
import { element, found, iconButton } from "./element";
import { FileList } from "./files";
import { geoOf, graticule, mapOf, parsePlace, pixelOf, type Geo } from "./geo";
import { chunkBox } from "./grid";
import { placeAt, Unshowable, type Image } from "./image";
import { Gpu } from "./gpu";
import { Legend } from "./legend";
import { HelpPanel, listenKeys } from "./keys";
import { lineOf, Notices } from "./notices";
import { Comparing } from "./comparing";
import { closest, Measuring, rangesOf, type Ground } from "./measuring";
import { codeFor, type From } from "./openin";
import { crossHair, PlaneViews } from "./planes";
import { Readout } from "./readout";
import { openImage, prefixOf, Showing } from "./showing";
import { shortcuts, type Actions } from "./shortcuts";
import { SidePanel } from "./sidepanel";
import { Sliders } from "./sliders";
import { Stage, type Decoration, type Layer } from "./stage";
import { START, type State } from "./state";
import { toggleTheme } from "./theme";
import { token } from "./token";
import { transformOf } from "./coordinates";
import { extentOf, levelFor, origin, seen, type Box, type Point } from "./view";
import { crossOf, depthAxis } from "./volume";

/** Thumbnails are asked for once the picture is drawn, or after this time. */
const THUMBNAILS_MS = 2000;

export class App implements Actions {
  readonly #address = new AddressBar();
  readonly #notices = new Notices();
  readonly #files = new FileList();
  readonly #stage = new Stage(found("stage"));
  readonly #sliders = new Sliders();
  readonly #readout = new Readout();
  readonly #legend = new Legend();
  readonly #planes = new PlaneViews();
  readonly #comparing = new Comparing();
  readonly #measuring = new Measuring();
  readonly #panel = new SidePanel();
  readonly #level = element("span", { className: "readout-part", id: "level" });
  readonly #keys = shortcuts(this);
  readonly #help = new HelpPanel(this.#keys.filter(({ label }) => label));
  readonly #bars = new Bars(this);
  #state: State = this.#address.read();
  /** Where the image lies on the earth; null: nowhere, or not known yet. */
  #geo: Geo | null = null;
  /** What may read from the server; until it has answered, any page. */
  #server: ServerAnswer = { origins: ["*"], token: false };
  /** The image that is open; null: none, or it cannot be drawn. */
  #showing: Showing | null = null;
  /** Aborted when another image is opened. */
  #opening = new AbortController();
  /** Where the image that is open, or being opened, is read from. */
  #levelsFor = "";
  /** Whether the file has changed and is about to be opened again. */
  #isStale = false;
  /** undefined: not tried yet. */
  #painter: Gpu | null | undefined;
  /** The chunk that was clicked, in pixels of level 0. */
  #picked: Box | null = null;

  start(): void {
    this.#build();
    this.#connect();
    setTimeout(() => this.#files.showThumbnails(), THUMBNAILS_MS);
    // both at once: a link names its image, so that need not wait for the list
    void this.#open();
    void this.#list();
    aboutServer().then(
      (answer) => {
        this.#server = answer;
        this.#showPanel(this.#showing?.image ?? null);
      },
      () => {}, // an older server: nothing to say about it
    );
  }

  #build(): void {
    found("files").append(this.#files.root);
    const close = iconButton("close", "close", hidePanel);
    close.classList.add("only-narrow", "panel-close");
    found("panel").append(this.#panel.root, close);
    found("dock").append(this.#sliders.root);
    found("main").append(this.#legend.root);
    found("foot").append(this.#readout.root, element("div", { className: "readout is-right" }, this.#level));
    document.body.append(this.#help.root);
  }

  #connect(): void {
    this.#files.onpick = (file, image) => this.#pick(file, image);
    this.#sliders.onmove = (name, value) => {
      if (this.#showing) this.#change(this.#showing.moved(this.#state, name, value));
    };
    this.#sliders.isDrawn = () =>
      this.#stage.canvas.dataset["settled"] === "true" && (!this.#state.planes || this.#planes.isSettled);
    this.#files.oncompare = (file, image) => {
      hideFiles();
      showPanel();
      this.#panel.pick("tools");
      this.#change({ other: { file, image } });
    };
    this.#files.catalog.onfiles = (changed, removed) => this.#filesChanged(changed, removed);
    this.#planes.onmove = (at) => this.#change({ at: { ...this.#state.at, ...at } });
    this.#planes.onview = (view) => this.#change({ view });
    this.#planes.onpoint = (image, tiles, selection, at, level) => {
      if (!at || !this.#showing) return this.#readout.clear();
      const inks = this.#showing.inks(this.#state);
      this.#readout.show(image, tiles.chunks, { selection, inks, geo: null }, level, at.x, at.y);
    };
    this.#comparing.onchange = () => this.#render();
    this.#comparing.onview = (view) => this.#change({ view });
    this.#comparing.onerror = (line) => {
      this.#notices.toast(line);
      this.#change({ other: null });
    };
    this.#measuring.onchange = () => this.#render();
    this.#connectTools();
    this.#panel.display.onchange = (change) => this.#change(change);
    this.#panel.display.onchannels = (changes) => {
      if (this.#showing) this.#change(this.#showing.channelsChanged(this.#state, changes));
    };
    this.#panel.onpick = (name) => {
      if (name === "chunk" && !this.#state.grid && this.#showing) this.#change({ grid: true });
      if (name === "tools" && this.#showing) this.#showTools(this.#showing);
    };
    this.#stage.covered = () => this.#sliders.root.offsetHeight;
    this.#stage.onview = (view) => this.#change({ view });
    this.#stage.ontap = (at, level) => void this.#pickChunk(at, level);
    this.#stage.onpoint = (at, level) => this.#point(at, level);
    this.#stage.onframe = (level, zoom, isSettled) => this.#frameDrawn(level, zoom, isSettled);
    this.#address.listen((state) => this.#navigate(state));
    listenKeys(this.#keys);
  }

  #connectTools(): void {
    const { tools } = this.#panel;
    tools.ontool = (tool) => this.#measuring.pick(tool);
    tools.onclear = () => this.#measuring.clear();
    tools.onexact = () => this.#withGround((ground) => this.#measuring.exact(ground));
    tools.ongoto = (text) => this.#goTo(text);
    tools.ongraticule = (isOn) => this.#change({ graticule: isOn });
    tools.oncompare = (change) => this.#change(change ?? { other: null });
    tools.onpng = () => this.#save();
    tools.link = () => this.#link();
  }

  #withGround(act: (ground: Ground) => void): void {
    const showing = this.#showing;
    if (!showing) return;
    const level = levelFor(showing.image, this.#stage.view.zoom);
    act({ showing, state: this.#state, geo: this.#geo, level });
  }

  /** Move the view to a place on the map; return why that is not possible, or null. */
  #goTo(text: string): string | null {
    const image = this.#showing?.image;
    const transform = image ? transformOf(image) : null;
    const place = parsePlace(text);
    if (!image || !transform) return "the image has no place on a map";
    if (!place)
      return `${text || "nothing"}: expected two numbers, such as 446725, 3746815 or 33.86 N, 117.58 W`;
    const at = place.kind === "map" ? [place.x, place.y] : (this.#geo?.forward(place.x, place.y) ?? null);
    if (!at) return "longitude and latitude are not known for this image";
    const pixel = pixelOf(transform, at[0]!, at[1]!);
    const { left, top, right, bottom } = extentOf(image);
    if (!(pixel.x >= left && pixel.x <= right && pixel.y >= top && pixel.y <= bottom))
      return `${text} is outside the image`;
    this.#change({ view: { ...pixel, zoom: closest(this.#stage.view.zoom) } });
    return null;
  }

  #save(): void {
    this.#stage.picture().toBlob((blob) => {
      if (!blob) return;
      const url = URL.createObjectURL(blob);
      const name = (this.#state.file ?? "view").split("/").at(-1)!;
      element("a", { href: url, download: `${name}.png` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    });
  }

  /** Return a link to what is shown, without the token. */
  #link(): string {
    this.#address.write(this.#state);
    return location.href;
  }

  /** Show a file anew that changed, and say so if the one shown was deleted. */
  #filesChanged(changed: string[], removed: string[]): void {
    const { file } = this.#state;
    if (file === null) return;
    if (removed.includes(file)) this.#notices.toast(`${file} was deleted`);
    const known = this.#showing?.image.version ?? null;
    if (!changed.includes(file)) return;
    void this.#files.catalog.about(file).then(
      (entry) => {
        if (entry.version !== known && this.#state.file === file) void this.#reopen();
      },
      () => {},
    );
  }

  /** Open the image again, of the file as it is now. */
  async #reopen(): Promise<void> {
    await this.#open();
    this.#notices.toast("the file has changed; this is its new content");
  }

  /** Change what is shown, and everything that depends on it. */
  #change(by: Partial<State>): void {
    this.#state = { ...this.#state, ...by };
    this.#address.writeSoon(this.#state);
    if (!this.#hasOtherLevels()) this.#render();
  }

  #navigate(state: State): void {
    const before = this.#state;
    this.#state = state;
    if (state.file !== before.file || state.image !== before.image) return void this.#open();
    if (!this.#hasOtherLevels()) this.#render();
  }

  /** Whether the image is drawn from other levels now, those of labels; then it is opened again. */
  #hasOtherLevels(): boolean {
    const prefix = prefixOf(this.#state);
    if (!this.#showing || this.#showing.opened.prefix === prefix) return false;
    this.#stage.canvas.dataset["settled"] = "false";
    if (this.#levelsFor !== prefix) void this.#open();
    return true;
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
    const view = this.#stage.view;
    const hasPlanes = state.planes && depthAxis(showing.image) !== null;
    document.body.classList.toggle("has-planes", hasPlanes);
    const own: Layer = {
      tiles: showing.opened.tiles,
      selection: showing.selection(state),
      next: showing.nextSelections(state, this.#sliders.playing),
      painting: showing.painting(state),
      opacity: 1,
      from: 0,
    };
    const other = this.#comparing.layer(showing, state, view);
    this.#stage.show({
      image: showing.image,
      grids: showing.opened.grids,
      layers: other ? [own, other] : [own],
      view: state.view ?? (hasPlanes ? this.#planes.fitted(showing.image, this.#stage.size) : null),
      hasGrid: state.grid,
      picked: this.#picked,
      decorations: this.#decorations(showing),
      orientation: this.#orientation(showing),
      metres: this.#metres(showing.image),
    });
    if (state.planes && depthAxis(showing.image) !== null)
      this.#planes.show(showing, state, this.#stage.view);
    else this.#planes.hide();
    this.#bars.showPlanes(depthAxis(showing.image) !== null, state.planes);
    this.#showTools(showing);
  }

  /** Return how the picture is turned: not on a map, nor beside other planes and images, which are not. */
  #orientation({ image, described }: Showing): number {
    const { planes, other } = this.#state;
    return planes || other || transformOf(image) ? 1 : described.orientation;
  }

  #decorations(showing: Showing): Decoration[] {
    const { image } = showing;
    const found: Decoration[] = [];
    const transform = transformOf(image);
    const geo = this.#geo;
    if (this.#state.graticule && transform && geo)
      found.push((context, view, canvas) =>
        drawLines(
          context,
          graticule(geo, transform, seen(view, extentOf(image), canvas)),
          origin(view, canvas),
          view.zoom,
        ),
      );
    if (this.#state.planes && depthAxis(image) !== null) {
      const at = crossOf(image, this.#state, showing.selection(this.#state).at);
      found.push(crossHair({ x: at[image.x]!, y: at[image.y]! }, { x: 1, y: 1 }));
    }
    if (this.#measuring.tool) found.push(this.#measuring.decoration());
    return found;
  }

  /** Return the length of a unit of the map at the middle of a view. */
  #metres(image: Image): ((view: { x: number; y: number }) => number) | null {
    const [geo, transform] = [this.#geo, transformOf(image)];
    if (!geo || !transform) return null;
    if (!geo.isDegrees) return () => geo.metres;
    return (view) => geo.metres * Math.cos((mapOf(transform, view)[1] * Math.PI) / 180);
  }

  #showTools(showing: Showing): void {
    if (this.#panel.picked !== "tools") return;
    const state = this.#state;
    const { image } = showing;
    const visible = seen(this.#stage.view, extentOf(image), this.#stage.size);
    const box = this.#measuring.box(showing) ?? {
      left: Math.floor(visible.left),
      top: Math.floor(visible.top),
      right: Math.ceil(visible.right),
      bottom: Math.ceil(visible.bottom),
    };
    const { other } = state;
    this.#panel.tools.show({
      tool: this.#measuring.tool,
      result: this.#measuring.result,
      hasPlace: transformOf(image) !== null,
      hasGraticule: state.graticule,
      other: other && this.#files.catalog.title(other.file),
      compare: state.compare,
      part: state.part,
      code: codeFor(image, this.#files.catalog.title(image.file), rangesOf(showing, state, box)),
    });
  }

  /** Return what paints channels; a browser has few WebGL contexts, so one is kept for all images. */
  #gpu({ painter }: State): Gpu | null {
    if (painter === "canvas") return null;
    if (this.#painter === undefined) this.#painter = Gpu.open(painter === "gpu");
    return this.#painter;
  }

  /** Open the image that the state names; the old one stays until it is there. */
  async #open(isAgain = false): Promise<void> {
    this.#opening.abort();
    this.#opening = new AbortController();
    const { signal } = this.#opening;
    const { file, image } = this.#state;
    if (file === null || image === null) return;
    this.#showNames(file, image);
    this.#picked = null;
    let next: Showing;
    try {
      const known = this.#files.catalog.known(file)?.version ?? null;
      this.#levelsFor = prefixOf(this.#state);
      next = new Showing(await openImage(file, image, known, signal, this.#levelsFor));
    } catch (cause) {
      if (signal.aborted) return;
      if (cause instanceof ServerError && cause.status === CHANGED && !isAgain) {
        // the list was older than the file
        await this.#files.catalog.about(file).catch(() => {});
        if (!signal.aborted) void this.#open(true);
        return;
      }
      this.#fail(cause);
      return;
    }
    if (!signal.aborted) this.#show(next);
  }

  #show(next: Showing): void {
    this.#showing?.opened.tiles.close();
    this.#showing = next;
    const { tiles, grids } = next.opened;
    tiles.onchange = (error) => {
      if (error && !this.#isStale) this.#notices.toast(error);
      if (this.#showing === next) this.#render();
    };
    tiles.onstale = () => {
      if (this.#showing !== next || this.#isStale) return;
      this.#isStale = true;
      void this.#files.catalog
        .about(next.image.file)
        .catch(() => {})
        .then(() => this.#reopen());
    };
    this.#isStale = false;
    this.#geo = null;
    void geoOf(next.image).then((geo) => {
      if (this.#showing !== next || !geo) return;
      this.#geo = geo;
      this.#render();
    });
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
    this.#planes.hide();
    this.#render();
    this.#panel.display.clear();
    this.#showPanel(cause instanceof Unshowable ? cause.image : null);
    const isExpected = cause instanceof Unshowable || cause instanceof ServerError;
    this.#notices.message(isExpected ? "This cannot be shown" : "Something went wrong", lineOf(cause));
  }

  #showNames(file: string, image: string): void {
    this.#files.pick(file, image);
    this.#bars.showTitle(this.#files.catalog.title(file), this.#files.catalog.imageTitle(file, image));
  }

  #showPanel(image: Image | null): void {
    const from: From = {
      origin: location.origin,
      source: image ? this.#files.catalog.title(image.file) : "",
      token: token(),
      origins: this.#server.origins,
    };
    this.#panel.show(this.#state.file, image, from, () => this.#link());
  }

  async #list(): Promise<void> {
    try {
      await this.#files.load();
    } catch (cause) {
      if (this.#state.file === null) this.#fail(cause);
      return;
    }
    const { file, image } = this.#state;
    if (file === null || image === null) await this.#pickFirst(file);
    // again: titles are known only now
    else this.#showNames(file, image);
  }

  /** Show the first image, of the file that the link names if it names one. */
  async #pickFirst(file: string | null): Promise<void> {
    try {
      const first = await this.#files.catalog.first(file);
      if (this.#state.file !== file) return;
      this.#state = { ...this.#state, ...first };
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
    if (showing && this.#measuring.tool) return this.#withGround((ground) => this.#measuring.add(at, ground));
    if (showing && !this.#state.grid && this.#state.planes && depthAxis(showing.image) !== null) {
      const { axes, x, y } = showing.image;
      return this.#change({ at: { ...this.#state.at, [axes[x]!.name]: at.x, [axes[y]!.name]: at.y } });
    }
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
    this.#readout.show(
      showing.image,
      showing.opened.tiles.chunks,
      { selection, inks, geo: this.#geo },
      level,
      at.x,
      at.y,
    );
  }

  #frameDrawn(level: number, zoom: number, isSettled: boolean): void {
    const percent = zoom * 100;
    const shown = percent >= 10 ? Math.round(percent) : percent.toPrecision(2);
    this.#level.textContent = `level ${level} · ${shown} %`;
    if (isSettled) this.#files.showThumbnails();
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
    this.#files.step(by);
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

  togglePlanes(): void {
    if (this.#showing && depthAxis(this.#showing.image) !== null)
      this.#change({ planes: !this.#state.planes });
  }

  showTools(): void {
    showPanel();
    this.#panel.pick("tools");
  }

  /** Set a point of a measurement in the middle of the view. */
  addPoint(): void {
    const { x, y } = this.#stage.view;
    if (this.#measuring.tool) this.#withGround((ground) => this.#measuring.add({ x, y }, ground));
  }

  removePoint(): void {
    this.#withGround((ground) => this.#measuring.removeLast(ground));
  }

  stopMeasuring(): void {
    if (this.#measuring.tool) this.#measuring.pick(null);
  }

  searchFiles(): void {
    document.body.classList.add("has-files");
    this.#files.focusSearch();
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

/** Draw meridians and parallels with their degrees. */
function drawLines(
  context: CanvasRenderingContext2D,
  lines: ReturnType<typeof graticule>,
  corner: Point,
  zoom: number,
): void {
  const ratio = window.devicePixelRatio;
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  for (const { points, text, isMeridian } of lines) {
    const at = points.map(({ x, y }) => ({ x: corner.x + x * zoom, y: corner.y + y * zoom }));
    for (const [style, width] of [
      ["rgba(0, 0, 0, 0.45)", 3],
      ["rgba(255, 255, 255, 0.85)", 1],
    ] as const) {
      context.strokeStyle = style;
      context.lineWidth = width * ratio;
      context.beginPath();
      at.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
    }
    const { width, height } = context.canvas;
    const inside = at.filter(({ x, y }) => x >= 0 && y >= 0 && x <= width && y <= height);
    const label = inside.length
      ? inside.reduce((best, point) => ((isMeridian ? point.y < best.y : point.x < best.x) ? point : best))
      : null;
    if (!label) continue;
    const place: [number, number] = isMeridian
      ? [label.x + 4 * ratio, Math.max(14 * ratio, label.y + 12 * ratio)]
      : [label.x + 4 * ratio, label.y - 4 * ratio];
    context.lineWidth = 3 * ratio;
    context.strokeStyle = "rgba(0, 0, 0, 0.7)";
    context.strokeText(text, ...place);
    context.fillStyle = "#fff";
    context.fillText(text, ...place);
  }
}
