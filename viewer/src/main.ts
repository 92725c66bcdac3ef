/** The page: puts its parts together. */

import "./theme.css";
import logo from "./icon.svg";
import { openImage, Showing } from "./app";
import { chunkPanel } from "./chunkpanel";
import { MAPS } from "./colormap";
import { DisplayPanel } from "./display";
import { element, found, iconButton } from "./element";
import { FileList } from "./files";
import { chunkBox } from "./grid";
import { placeAt, Unshowable, type Image } from "./image";
import { HelpPanel, listenKeys, type Key } from "./keys";
import { MetadataPanel } from "./metadata";
import { linesFor, openInPanel } from "./openin";
import { Readout } from "./readout";
import { Sliders } from "./sliders";
import { escaped, json, listFiles, oneFile, ServerError, type FileEntry } from "./source";
import { Stage } from "./stage";
import { formatHash, parseHash, START, type State } from "./state";
import { Tabs } from "./tabs";
import { startTheme, toggleTheme } from "./theme";
import type { Box, Point } from "./view";

const HASH_MS = 200;
const TOAST_MS = 6000;
const BUSY_MS = 250;
/** How long thumbnails wait for the picture. */
const PATIENCE_MS = 2000;

startTheme();

let state: State = parseHash(location.hash);
let showing: Showing | null = null;
let opening = new AbortController();
let entries: FileEntry[] = [];
let picked: Box | null = null;
let hashTimer = 0;
let toastTimer = 0;
let busyTimer = 0;

const stage = new Stage(found("stage"));
const files = new FileList();
const sliders = new Sliders();
const readout = new Readout();
const display = new DisplayPanel();
const metadata = new MetadataPanel();
const chunkBody = element("div", {});
const openInBody = element("div", {});
const tabs = new Tabs([
  { name: "display", title: "Display", body: display.root },
  { name: "chunk", title: "Chunk", body: chunkBody },
  { name: "metadata", title: "Metadata", body: metadata.root },
  { name: "openin", title: "Open in", body: openInBody },
]);
const levelText = element("span", { className: "readout-part", id: "level" });

/** Change what is shown; everything that depends on it follows. */
function change(by: Partial<State>): void {
  state = { ...state, ...by };
  render();
  clearTimeout(hashTimer);
  hashTimer = setTimeout(writeHash, HASH_MS);
}

function writeHash(): void {
  const hash = formatHash(state);
  if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
}

function render(): void {
  if (!showing) return stage.show(null);
  const { image, tiles, grids } = showing.opened;
  const selection = showing.selection(state);
  const playing = sliders.playing;
  const shown = showing.sliders(state);
  const slider = shown.find(({ name }) => name === playing);
  const next = slider
    ? showing.selection({
        ...state,
        ...showing.moved(state, slider.name, (slider.value + 1) % slider.length),
      })
    : null;
  sliders.show(shown);
  display.show(showing.display(state));
  gridButton.classList.toggle("is-on", state.grid);
  stage.show({
    image,
    tiles,
    grids,
    selection,
    next,
    painting: showing.painting(state),
    view: state.view,
    hasGrid: state.grid,
    picked,
  });
}

/** Open the image that the state names; until it is there the old one stays. */
async function open(): Promise<void> {
  opening.abort();
  opening = new AbortController();
  const { signal } = opening;
  const { file, image } = state;
  if (file === null || image === null) return;
  files.pick(file, image);
  document.title = `${file} – anychunk`;
  title(file, image);
  picked = null;
  let next: Showing;
  try {
    next = new Showing(await openImage(file, image, signal));
  } catch (cause) {
    if (!signal.aborted) fail(cause);
    return;
  }
  if (signal.aborted) return;
  showing?.opened.tiles.close();
  showing = next;
  const { tiles, grids } = next.opened;
  tiles.onchange = (error) => {
    if (error) toast(error);
    if (showing === next) render();
  };
  grids.onchange = () => stage.redraw();
  message(null);
  readout.clear();
  render();
  sidePanels(next.image);
}

function title(file: string, image: string): void {
  const entry = entries.find(({ name }) => name === file);
  const many = (entry?.images.length ?? 0) > 1;
  const own = entry?.images.find(({ path }) => path === image);
  found("bar-title").replaceChildren(
    element("span", { className: "bar-file" }, entry?.title ?? file),
    many ? element("span", { className: "bar-image" }, own?.title || image || "/") : "",
  );
}

function pick(file: string, image: string): void {
  document.body.classList.remove("has-files");
  if (file === state.file && image === state.image) return;
  clearTimeout(hashTimer);
  state = { ...START, at: {}, file, image, grid: state.grid };
  history.pushState(null, "", formatHash(state));
  void open();
}

function sidePanels(image: Image | null): void {
  chunkBody.replaceChildren(
    element(
      "p",
      { className: "quiet" },
      "Turn the grid on and click a chunk: its codecs, its bytes, and where in the file they are.",
    ),
  );
  metadataOf = null;
  if (tabs.picked === "metadata") void readMetadata();
  const entry = entries.find(({ name }) => name === image?.file);
  const link = (): string => {
    writeHash();
    return location.href;
  };
  openInBody.replaceChildren(
    image ? openInPanel(linesFor(image, location.origin, entry?.title ?? image.file), link) : "",
  );
}

let metadataOf: string | null = null;

/** Only when it is looked at: the picture does not need it. */
async function readMetadata(): Promise<void> {
  const file = state.file;
  if (file === null || metadataOf === file) return;
  metadataOf = file;
  metadata.message("reading…");
  try {
    const info = await json<{ metadata: Record<string, object> }>(`/api/info/${escaped(file)}`);
    if (metadataOf !== file) return;
    const nodes = Object.entries(info.metadata)
      .filter(([, attributes]) => Object.keys(attributes).length)
      // a bare number as a name would be put first, whatever the order
      .map(([path, attributes]) => [`/${path}`, attributes] as const)
      .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    metadata.show(Object.fromEntries(nodes));
  } catch (cause) {
    metadataOf = null;
    metadata.message(lineOf(cause));
  }
}

async function pickChunk(at: Point, number: number): Promise<void> {
  if (!showing || !state.grid) return;
  const { image, grids } = showing.opened;
  const level = image.levels[number]!;
  const { at: selected, bands } = showing.selection(state);
  const place = selected.map((value, axis) =>
    placeAt(
      level,
      axis,
      axis === image.y ? at.y : axis === image.x ? at.x : axis === image.band ? bands[0]! : value,
    ),
  );
  tabs.pick("chunk");
  document.body.classList.add("has-panel");
  try {
    const chunk = await grids.chunk(level, place);
    picked = chunkBox(image, level, chunk);
    chunkBody.replaceChildren(chunkPanel(chunk, image.dtype, number));
  } catch (cause) {
    picked = null;
    chunkBody.replaceChildren(element("p", { className: "note is-bad" }, lineOf(cause)));
  }
  render();
}

const lineOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

/** Say what cannot be shown, and why, where the picture would be. */
function fail(cause: unknown): void {
  showing?.opened.tiles.close();
  showing = null;
  readout.clear();
  sliders.show([]);
  render();
  display.clear();
  sidePanels(cause instanceof Unshowable ? cause.image : null);
  const isOurs = cause instanceof Unshowable || cause instanceof ServerError;
  message(isOurs ? "This cannot be shown" : "Something went wrong", lineOf(cause));
}

function message(head: string | null, text = ""): void {
  const box = found("message");
  box.hidden = head === null;
  box.replaceChildren(...(head === null ? [] : [element("h2", {}, head), element("p", {}, text)]));
}

function toast(text: string): void {
  const box = found("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (box.hidden = true), TOAST_MS);
}

function nextMap(by: number): void {
  const at = MAPS.indexOf(state.map ?? "gray");
  change({ map: MAPS[(at + by + MAPS.length) % MAPS.length]! });
}

const PAN = 80;
const KEYS: Key[] = [
  { keys: ["+", "="], label: "+", text: "zoom in", run: () => stage.zoomBy(2) },
  { keys: ["-", "_"], label: "-", text: "zoom out", run: () => stage.zoomBy(0.5) },
  { keys: ["0", "Home"], label: "0", text: "the whole image", run: () => stage.whole() },
  {
    keys: ["1"],
    label: "1",
    text: "one pixel of the image is one of the screen",
    run: () => stage.zoomTo(1),
  },
  { keys: ["ArrowLeft"], label: "← → ↑ ↓", text: "move", run: () => stage.pan({ x: PAN, y: 0 }) },
  { keys: ["ArrowRight"], label: "", text: "", run: () => stage.pan({ x: -PAN, y: 0 }) },
  { keys: ["ArrowUp"], label: "", text: "", run: () => stage.pan({ x: 0, y: PAN }) },
  { keys: ["ArrowDown"], label: "", text: "", run: () => stage.pan({ x: 0, y: -PAN }) },
  { keys: [","], label: ", .", text: "last slider: back, forward", run: () => sliders.step(-1) },
  { keys: ["."], label: "", text: "", run: () => sliders.step(1) },
  { keys: [" "], label: "space", text: "play the last slider", run: () => sliders.play() },
  { keys: ["["], label: "[ ]", text: "image before, after", run: () => files.step(-1) },
  { keys: ["]"], label: "", text: "", run: () => files.step(1) },
  {
    keys: ["a"],
    label: "a",
    text: "contrast from the plane that is shown",
    run: () => {
      showing?.resample();
      change({ limits: null });
    },
  },
  { keys: ["c"], label: "c", text: "colours, or one band", run: () => swapBands() },
  {
    keys: ["m", "M"],
    label: "m",
    text: "next colour map; with shift, the one before",
    run: (event) => nextMap(event.shiftKey ? -1 : 1),
  },
  { keys: ["g"], label: "g", text: "chunk grid", run: () => change({ grid: !state.grid }) },
  { keys: ["i"], label: "i", text: "metadata", run: () => showTab("metadata") },
  {
    keys: ["/"],
    label: "/",
    text: "search metadata",
    run: () => {
      showTab("metadata");
      metadata.focus();
    },
  },
  {
    keys: ["t"],
    label: "t",
    text: "dark or light",
    run: () => {
      toggleTheme();
      render();
    },
  },
  { keys: ["?"], label: "?", text: "this panel", run: () => help.toggle() },
];
const help = new HelpPanel(KEYS.filter(({ label }) => label));

function swapBands(): void {
  if (!showing || showing.bandCount() < 3) return;
  change({ bands: showing.bands(state).length === 3 ? [showing.bands(state)[0]!] : [0, 1, 2], limits: null });
}

function showTab(name: string): void {
  document.body.classList.add("has-panel");
  tabs.pick(name);
}

const gridButton = iconButton("grid", "chunk grid (g)", () => change({ grid: !state.grid }));

function build(): void {
  const side = (name: string, other: string) => (): void => {
    document.body.classList.remove(other);
    document.body.classList.toggle(name);
  };
  const filesButton = iconButton("files", "files", side("has-files", "has-panel"));
  const panelButton = iconButton("tune", "display, chunk, metadata", side("has-panel", "has-files"));
  filesButton.classList.add("only-narrow");
  panelButton.classList.add("only-narrow");
  found("bar-left").append(
    filesButton,
    element(
      "a",
      { className: "brand", href: "/" },
      element("img", { src: logo, alt: "", width: 22, height: 22 }),
      element("span", {}, "anychunk"),
    ),
  );
  found("bar-right").append(
    iconButton("help", "keyboard and mouse (?)", () => help.toggle()),
    iconButton("sun", "dark or light (t)", () => {
      toggleTheme();
      render();
    }),
    panelButton,
  );
  found("tools").append(
    iconButton("plus", "zoom in (+)", () => stage.zoomBy(2)),
    iconButton("minus", "zoom out (-)", () => stage.zoomBy(0.5)),
    iconButton("fit", "the whole image (0)", () => stage.whole()),
    element(
      "button",
      { type: "button", className: "icon-button", title: "one to one (1)", onclick: () => stage.zoomTo(1) },
      "1:1",
    ),
    gridButton,
  );
  found("files").append(files.root);
  const close = iconButton("close", "close", () => document.body.classList.remove("has-panel"));
  close.classList.add("only-narrow", "panel-close");
  found("panel").append(tabs.root, close);
  found("dock").append(sliders.root);
  found("foot").append(readout.root, element("div", { className: "readout is-right" }, levelText));
  document.body.append(help.root);
}

function wire(): void {
  files.onpick = pick;
  sliders.onmove = (name, value) => showing && change(showing.moved(state, name, value));
  sliders.isDrawn = () => stage.canvas.dataset["settled"] === "true";
  display.onchange = (by) => change(by);
  tabs.onpick = (name) => {
    if (name === "metadata") void readMetadata();
    if (name === "chunk" && !state.grid && showing) change({ grid: true });
  };
  stage.covered = () => sliders.root.offsetHeight;
  stage.onview = (view) => change({ view });
  stage.ontap = (at, level) => void pickChunk(at, level);
  stage.onpoint = (at, level) => {
    if (at && showing)
      readout.show(showing.image, showing.opened.tiles.chunks, showing.selection(state), level, at.x, at.y);
    else readout.clear();
  };
  stage.onframe = (level, zoom, isSettled) => {
    const percent = zoom * 100;
    levelText.textContent = `level ${level} · ${percent >= 10 ? Math.round(percent) : percent.toPrecision(2)} %`;
    if (isSettled) {
      files.showThumbnails();
      clearTimeout(busyTimer);
      busyTimer = 0;
      found("progress").hidden = true;
    } else busyTimer ||= setTimeout(() => (found("progress").hidden = false), BUSY_MS);
  };
  listenKeys(KEYS);
  addEventListener("popstate", () => {
    const before = state;
    state = parseHash(location.hash);
    if (state.file !== before.file || state.image !== before.image) void open();
    else render();
  });
}

/** Open files that the server had no time for when it was first asked. */
async function fetchPending(): Promise<void> {
  for (const entry of entries.filter(({ pending }) => pending)) {
    const full = await oneFile(entry.name).catch((cause: unknown) => ({
      ...entry,
      pending: false,
      error: lineOf(cause),
    }));
    entries = entries.map((old) => (old.name === full.name ? full : old));
    files.show(entries);
  }
}

async function list(): Promise<void> {
  try {
    entries = await listFiles();
  } catch (cause) {
    files.message(lineOf(cause));
    if (state.file === null) fail(cause);
    return;
  }
  files.show(entries);
  if (state.file === null || state.image === null) choose();
  else {
    files.pick(state.file, state.image);
    title(state.file, state.image ?? "");
  }
  void fetchPending();
}

/** Show the first image there is, of the file that is named. */
function choose(): void {
  const among = state.file === null ? entries : entries.filter(({ name }) => name === state.file);
  const first = among.find(({ images }) => images.length);
  if (!first) {
    const broken = among.find(({ error }) => error);
    display.clear();
    message(
      "Nothing to show",
      broken?.error ?? `${state.file ?? "none of the files served"} holds no picture`,
    );
    return;
  }
  state = { ...state, file: first.name, image: first.images[0]!.path };
  history.replaceState(null, "", formatHash(state));
  void open();
}

build();
wire();
setTimeout(() => files.showThumbnails(), PATIENCE_MS);
void open();
void list();
