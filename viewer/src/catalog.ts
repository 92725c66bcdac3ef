/** The files of the server, and the list that shows them. */

import { listFiles, oneFile, type FileEntry } from "./api";
import { FileList } from "./files";
import { lineOf } from "./notices";

export class Catalog {
  readonly list = new FileList();
  #entries: FileEntry[] = [];

  /** Read the list of files; throws if the server fails. */
  async load(): Promise<void> {
    try {
      this.#entries = await listFiles();
    } catch (cause) {
      this.list.message(lineOf(cause));
      throw cause;
    }
    this.list.show(this.#entries);
  }

  /** Read the files that the server had no time to open for the list. */
  async loadPending(): Promise<void> {
    for (const entry of this.#entries.filter(({ pending }) => pending)) {
      const full = await oneFile(entry.name).catch((cause: unknown) => ({
        ...entry,
        pending: false,
        error: lineOf(cause),
      }));
      this.#entries = this.#entries.map((old) => (old.name === full.name ? full : old));
      this.list.show(this.#entries);
    }
  }

  /** Return the title of a file; its name until the list is read. */
  title(file: string): string {
    return this.#find(file)?.title ?? file;
  }

  /** Return the title of an image, or null if it is the only one of its file. */
  imageTitle(file: string, image: string): string | null {
    const images = this.#find(file)?.images ?? [];
    if (images.length <= 1) return null;
    return images.find(({ path }) => path === image)?.title || image || "/";
  }

  /** Return the first image of a file, or of any; throws an Error with the reason if it has no images. */
  first(file: string | null): { file: string; image: string } {
    const among = file === null ? this.#entries : this.#entries.filter(({ name }) => name === file);
    const entry = among.find(({ images }) => images.length);
    if (entry) return { file: entry.name, image: entry.images[0]!.path };
    const broken = among.find(({ error }) => error);
    throw new Error(broken?.error ?? `${file ?? "none of the files"}: no images`);
  }

  #find(file: string): FileEntry | undefined {
    return this.#entries.find(({ name }) => name === file);
  }
}
