/** The files of the server, read window by window, and what changes about them. */

import { changesSince, listFiles, oneFile, ServerError, type FileEntry, type Question } from "./api";

/** Files that are asked for at once. */
export const WINDOW = 100;
/** Time between questions for changes, while the page is visible. */
const POLL_MS = 2500;
/** Time after which files that the server has not opened yet are asked for again. */
const PENDING_MS = 700;
const NOT_FOUND = 404;

export const ALL: Question = { search: "", within: null, sort: "name" };

export class Catalog {
  /** Called when entries have arrived or are no longer valid. */
  onchange: () => void = () => {};
  /** Called with the server's line when a question fails, and with null when one succeeds. */
  onerror: (line: string | null) => void = () => {};
  /** Called with the names of files that changed or were deleted. */
  onfiles: (changed: string[], removed: string[]) => void = () => {};
  question: Question = ALL;
  /** Files that are served. */
  total = 0;
  /** Files that match the question. */
  matching = 0;
  /** Whether the server has found all files. */
  isListed = true;
  #entries: (FileEntry | undefined)[] = [];
  #byName = new Map<string, FileEntry>();
  #asking = new AbortController();
  readonly #asked = new Set<number>();
  #revision = 0;
  #timer = 0;
  #visible: [first: number, last: number] = [0, 0];

  /** Ask another question; throws if the server refuses it. */
  async ask(question: Question): Promise<void> {
    this.question = question;
    this.#asking.abort();
    this.#asking = new AbortController();
    this.#asked.clear();
    await this.#read(0, true);
  }

  entry(number: number): FileEntry | undefined {
    return this.#entries[number];
  }

  /** Read entries that are visible but not there, or that the server has not opened yet. */
  want(first: number, last: number): void {
    this.#visible = [first, last];
    for (let number = first; number <= last && number < this.matching; number++)
      if (!this.#entries[number]) void this.#read(Math.floor(number / WINDOW) * WINDOW).catch(() => {});
    clearTimeout(this.#timer);
    const isAwaited = this.#entries.slice(first, last + 1).some((entry) => entry?.pending);
    if (isAwaited || !this.isListed) this.#timer = setTimeout(() => this.refresh(), PENDING_MS);
  }

  /** Read the visible entries again, and all others when they are seen. */
  refresh(): void {
    const [first, last] = this.#visible;
    this.#asked.clear();
    const windows = new Set<number>();
    for (let number = first; number <= last; number++) windows.add(Math.floor(number / WINDOW) * WINDOW);
    for (const offset of windows) void this.#read(offset).catch(() => {});
  }

  /** Watch for changes, as long as the page is open. */
  watch(): void {
    const poll = async (): Promise<void> => {
      if (document.visibilityState === "visible") {
        try {
          const { revision, reset, changed, removed } = await changesSince(this.#revision);
          this.#revision = revision;
          if (reset || changed.length || removed.length) {
            for (const name of [...changed, ...removed]) this.#byName.delete(name);
            this.refresh();
            this.onfiles(changed, removed);
          }
        } catch (cause) {
          if (cause instanceof ServerError && cause.status === NOT_FOUND) return; // an older server
        }
      }
      setTimeout(() => void poll(), POLL_MS);
    };
    setTimeout(() => void poll(), POLL_MS);
  }

  async #read(offset: number, isFirst = false): Promise<void> {
    if (this.#asked.has(offset)) return;
    this.#asked.add(offset);
    const { signal } = this.#asking;
    try {
      const found = await listFiles(this.question, offset, WINDOW, signal);
      const isAll = found.total === undefined; // an older server answers with all files
      if (signal.aborted) return;
      this.total = isAll ? found.files.length : found.total;
      this.matching = isAll ? found.files.length : found.matching;
      this.isListed = found.listed ?? true;
      if (isFirst) this.#entries = [];
      this.#entries.length = this.matching;
      found.files.forEach((entry, i) => {
        this.#entries[offset + i] = entry;
        this.#byName.set(entry.name, entry);
      });
      this.#revision ||= found.revision ?? 0;
      this.onerror(null);
      this.onchange();
    } catch (cause) {
      if (signal.aborted) return;
      this.#asked.delete(offset);
      this.onerror(cause instanceof Error ? cause.message : String(cause));
      throw cause;
    }
  }

  /** Return what is known about a file. */
  known(file: string): FileEntry | undefined {
    return this.#byName.get(file);
  }

  /** Read all about a file. */
  async about(file: string): Promise<FileEntry> {
    const entry = await oneFile(file);
    this.#byName.set(file, entry);
    return entry;
  }

  /** Return the title of a file; its name until the list is read. */
  title(file: string): string {
    return this.known(file)?.title ?? file;
  }

  /** Return the title of an image, or null if it is the only one of its file. */
  imageTitle(file: string, image: string): string | null {
    const images = this.known(file)?.images ?? [];
    if (images.length <= 1) return null;
    return images.find(({ path }) => path === image)?.title || image || "/";
  }

  /** Return the first image of a file, or of any; throws an Error with the reason if it has no images. */
  async first(file: string | null): Promise<{ file: string; image: string }> {
    const loaded = this.#entries.filter((entry) => entry !== undefined);
    let among = file === null ? loaded : loaded.filter(({ name }) => name === file);
    let entry = among.find(({ images }) => images.length);
    // the server may not have opened any yet
    for (const pending of entry ? [] : among.filter((one) => one.pending).slice(0, WINDOW)) {
      const full = await this.about(pending.name).catch(() => pending);
      among = among.map((one) => (one.name === full.name ? full : one));
      entry = full.images.length ? full : undefined;
      if (entry) break;
    }
    if (!entry && file !== null && !among.length) among = [await this.about(file)];
    entry ??= among.find(({ images }) => images.length);
    if (entry) return { file: entry.name, image: entry.images[0]!.path };
    const broken = among.find(({ error }) => error);
    throw new Error(broken?.error ?? `${file ?? "none of the files"}: no images`);
  }
}
