/** The panel on the right: how values are displayed, one chunk, metadata, and other programs. */

import { escaped, json, type ChunkAnswer } from "./api";
import { chunkPanel } from "./chunkpanel";
import { DisplayPanel } from "./display";
import { element } from "./element";
import type { Image } from "./image";
import { MetadataPanel } from "./metadata";
import { lineOf } from "./notices";
import { linesFor, openInPanel, type From } from "./openin";
import { Tabs } from "./tabs";
import { ToolsPanel } from "./toolspanel";

export type TabName = "display" | "tools" | "chunk" | "metadata" | "openin";

export class SidePanel {
  readonly display = new DisplayPanel();
  readonly tools = new ToolsPanel();
  readonly #metadata = new MetadataPanel();
  readonly #chunk = element("div", {});
  readonly #openIn = element("div", {});
  readonly #tabs = new Tabs([
    { name: "display", title: "Display", body: this.display.root },
    { name: "tools", title: "Tools", body: this.tools.root },
    { name: "chunk", title: "Chunk", body: this.#chunk },
    { name: "metadata", title: "Metadata", body: this.#metadata.root },
    { name: "openin", title: "Open in", body: this.#openIn },
  ]);
  /** Called when the user picks a tab. */
  onpick: (name: TabName) => void = () => {};
  #file: string | null = null;
  /** The file whose metadata is shown or being read. */
  #metadataOf: string | null = null;

  constructor() {
    this.#tabs.onpick = (name) => {
      if (name === "metadata") void this.#readMetadata();
      this.onpick(name as TabName);
    };
  }

  get root(): HTMLElement {
    return this.#tabs.root;
  }

  pick(name: TabName): void {
    this.#tabs.pick(name);
  }

  get picked(): TabName {
    return this.#tabs.picked as TabName;
  }

  focusSearch(): void {
    this.#metadata.focus();
  }

  /** Show a file and its image; null: the image cannot be drawn. `link` returns a link to the view. */
  show(file: string | null, image: Image | null, from: From, link: () => string): void {
    this.#file = file;
    this.#chunk.replaceChildren(
      element(
        "p",
        { className: "quiet" },
        "Turn on the grid and click a chunk to see its codecs, its bytes and where they are in the file.",
      ),
    );
    this.#metadataOf = null;
    if (this.#tabs.picked === "metadata") void this.#readMetadata();
    this.#openIn.replaceChildren(image ? openInPanel(linesFor(image, from), link) : "");
  }

  showChunk(chunk: ChunkAnswer, dtype: string, level: number): void {
    this.#chunk.replaceChildren(chunkPanel(chunk, dtype, level));
  }

  showChunkError(line: string): void {
    this.#chunk.replaceChildren(element("p", { className: "note is-bad" }, line));
  }

  /** Read the metadata when its tab is opened, not before: the picture does not need it. */
  async #readMetadata(): Promise<void> {
    const file = this.#file;
    if (file === null || this.#metadataOf === file) return;
    this.#metadataOf = file;
    this.#metadata.message("reading…");
    try {
      const info = await json<{ metadata: Record<string, object> }>(`/api/info/${escaped(file)}`);
      // another file was opened meanwhile
      if (this.#metadataOf !== file) return;
      this.#metadata.show(byPath(info.metadata));
    } catch (cause) {
      this.#metadataOf = null;
      this.#metadata.message(lineOf(cause));
    }
  }
}

/** Return the attributes of all nodes that have some, ordered by path. Pure. */
export function byPath(metadata: Record<string, object>): Record<string, object> {
  const nodes = Object.entries(metadata)
    .filter(([, attributes]) => Object.keys(attributes).length)
    // objects list keys that are integers first; a leading slash keeps them in order
    .map(([path, attributes]) => [`/${path}`, attributes] as const)
    .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  return Object.fromEntries(nodes);
}
