/** The list of files and their images: folders, search, and only as many rows as are visible. */

import { foldersIn, type FileEntry, type Folder, type ImageEntry } from "./api";
import { ALL, Catalog } from "./catalog";
import { element, icon } from "./element";

/** CSS pixels, as in theme.css: head of a file, one image, an error, and the space around. */
const [HEAD, ROW, NOTE, GAP] = [30, 58, 62, 14];
/** Images of one file that are listed. */
const LISTED = 8;
/** Pixels above and below the visible part that are drawn, too. */
const BEYOND = 400;
/** Time after the last key before a search is sent. */
const TYPING_MS = 90;

export function bytesText(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

export const shapeText = (shape: number[]): string => shape.join(" × ");

const listed = (file: FileEntry): ImageEntry[] =>
  [...file.images, ...(file.arrays ?? []).map((array) => ({ ...array, thumbnail: null }))].slice(0, LISTED);

/** Return the height of a file in the list; that of one image until it is read. Pure. */
export function heightOf(file: FileEntry | undefined): number {
  if (!file) return HEAD + ROW + GAP;
  if (file.error) return HEAD + NOTE + GAP;
  const more = (file.image_count ?? file.images.length) > LISTED ? 24 : 0;
  return HEAD + Math.max(1, listed(file).length) * ROW + more + GAP;
}

/** Return where each of `count` entries begins, and where the last one ends. Pure. */
export function places(count: number, height: (number: number) => number): Float64Array {
  const out = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) out[i + 1] = out[i]! + height(i);
  return out;
}

/** Return the first and last entry between two places. Pure. */
export function between(begins: Float64Array, from: number, to: number): [first: number, last: number] {
  const find = (place: number): number => {
    let [low, high] = [0, begins.length - 2];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (begins[middle]! <= place) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  };
  return [find(from), Math.min(find(to), begins.length - 2)];
}

export class FileList {
  readonly root = element("nav", { className: "files", aria: { label: "files" } });
  readonly catalog = new Catalog();
  onpick: (file: string, image: string) => void = () => {};
  /** Called when the user asks for another image beside the one shown. */
  oncompare: (file: string, image: string) => void = () => {};
  readonly #search = element("input", {
    type: "search",
    className: "search",
    placeholder: "Search files",
    title: "words of the name, format:tiff, dtype:uint16, crs:32633, size:>10MB, date:>=2026-03-01, -word",
    aria: { label: "search files" },
  });
  readonly #sort = element(
    "select",
    { className: "select is-small", aria: { label: "order" } },
    ...[
      ["name", "by name"],
      ["-modified", "newest first"],
      ["-bytes", "largest first"],
      ["format", "by format"],
    ].map(([value, text]) => element("option", { value: value! }, text)),
  );
  readonly #count = element("span", { className: "files-count", aria: { live: "polite" } });
  readonly #error = element("p", { className: "file-error", hidden: true });
  readonly #tree = element("ul", { className: "folders", hidden: true, aria: { label: "folders" } });
  readonly #list = element("div", { className: "files-list", tabIndex: -1 });
  readonly #space = element("ul", { className: "files-space" });
  #begins: Float64Array = new Float64Array(1);
  readonly #rows = new Map<number, { entry: FileEntry | undefined; row: HTMLElement }>();
  #picked = "";
  #typing = 0;
  #isDrawn = false;
  /** Thumbnails whose requests wait for the picture; null: they wait no longer. */
  #waiting: HTMLImageElement[] | null = [];

  constructor() {
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#ask(), TYPING_MS);
    });
    this.#search.addEventListener("keydown", (event) => event.stopPropagation());
    this.#sort.addEventListener("change", () => this.#ask());
    this.#list.addEventListener("scroll", () => this.#soon());
    this.#list.append(this.#space);
    new ResizeObserver(() => this.#soon()).observe(this.#list);
    this.catalog.onchange = () => this.#changed();
    this.catalog.onerror = (line) => {
      this.#error.hidden = line === null;
      this.#error.textContent = line;
    };
    this.root.append(
      this.#search,
      element("div", { className: "files-head" }, this.#count, this.#sort),
      this.#error,
      this.#tree,
      this.#list,
    );
  }

  /** Read the list; throws if the server fails. */
  async load(): Promise<void> {
    await this.catalog.ask(ALL);
    void this.#loadFolders();
    this.catalog.watch();
  }

  focusSearch(): void {
    this.#search.focus();
  }

  #ask(within = this.catalog.question.within): void {
    const search = this.#search.value.trim();
    this.#list.scrollTop = 0;
    void this.catalog.ask({ search, within, sort: this.#sort.value }).catch(() => {});
  }

  async #loadFolders(): Promise<void> {
    const folders = await foldersIn("").catch(() => []);
    this.#tree.hidden = folders.length === 0;
    if (!folders.length) return;
    const all: Folder = { name: "All files", path: "", all: this.catalog.total, folders: 0 };
    this.#tree.replaceChildren(this.#folder(all), ...folders.map((folder) => this.#folder(folder)));
    this.#markFolder();
  }

  #folder(folder: Folder): HTMLElement {
    const below = element("ul", { className: "folders", hidden: true });
    const toggle = element("button", {
      type: "button",
      className: "folder-toggle",
      aria: { label: `show folders in ${folder.name}`, expanded: "false" },
    });
    toggle.addEventListener("click", () => {
      below.hidden = !below.hidden;
      toggle.setAttribute("aria-expanded", String(!below.hidden));
      if (below.childElementCount) return;
      void foldersIn(folder.path).then(
        (folders) => below.replaceChildren(...folders.map((inner) => this.#folder(inner))),
        () => {},
      );
    });
    const name = element(
      "button",
      {
        type: "button",
        className: "folder-name",
        data: { path: folder.path },
        onclick: () => {
          this.#ask(folder.path || null);
          this.#markFolder();
        },
      },
      element("span", {}, folder.name),
      element("span", { className: "count" }, String(folder.all)),
    );
    return element(
      "li",
      {},
      element(
        "div",
        { className: "folder" },
        folder.folders ? toggle : element("span", { className: "folder-toggle" }),
        name,
      ),
      below,
    );
  }

  #markFolder(): void {
    const within = this.catalog.question.within ?? "";
    for (const button of this.#tree.querySelectorAll<HTMLElement>(".folder-name"))
      button.setAttribute("aria-current", String(button.dataset["path"] === within));
  }

  /** Request the thumbnails, which have waited for the picture. */
  showThumbnails(): void {
    for (const picture of this.#waiting ?? []) picture.src = picture.dataset["src"]!;
    this.#waiting = null;
  }

  /** Mark an image as the one shown. */
  pick(file: string | null, image: string | null): void {
    const isNew = this.#picked !== `${file}\n${image}`;
    this.#picked = `${file}\n${image}`;
    this.#mark();
    if (isNew) this.#reveal();
  }

  #mark(): void {
    for (const button of this.#space.querySelectorAll<HTMLElement>(".image-button")) {
      const isPicked = `${button.dataset["file"]}\n${button.dataset["image"]}` === this.#picked;
      button.classList.toggle("is-picked", isPicked);
      button.setAttribute("aria-current", String(isPicked));
    }
  }

  /** Scroll to the image shown, if its file is in the list. */
  #reveal(): void {
    const file = this.#picked.split("\n")[0];
    for (let number = 0; number < this.catalog.matching; number++) {
      if (this.catalog.entry(number)?.name !== file) continue;
      const [top, bottom] = [this.#begins[number]!, this.#begins[number + 1]!];
      if (top < this.#list.scrollTop) this.#list.scrollTop = top;
      else if (bottom > this.#list.scrollTop + this.#list.clientHeight)
        this.#list.scrollTop = bottom - this.#list.clientHeight;
      return;
    }
  }

  /** Pick the image that is `by` places further in the list. */
  step(by: number): void {
    const all: [string, string][] = [];
    for (let number = 0; number < this.catalog.matching; number++) {
      const entry = this.catalog.entry(number);
      if (entry && !entry.error) for (const image of listed(entry)) all.push([entry.name, image.path]);
    }
    const at = all.findIndex(([file, image]) => `${file}\n${image}` === this.#picked);
    const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
    if (next) this.onpick(...next);
  }

  #changed(): void {
    const { catalog } = this;
    this.#begins = places(catalog.matching, (number) => heightOf(catalog.entry(number)));
    this.#space.style.height = `${this.#begins[catalog.matching]}px`;
    const isAll = catalog.matching === catalog.total;
    const number = (n: number): string => n.toLocaleString("en");
    const count = isAll
      ? `${number(catalog.total)} ${catalog.total === 1 ? "file" : "files"}`
      : `${number(catalog.matching)} of ${number(catalog.total)}`;
    this.#count.textContent = catalog.isListed ? count : `${count}, searching…`;
    this.#soon();
  }

  #soon(): void {
    if (this.#isDrawn) return;
    this.#isDrawn = true;
    requestAnimationFrame(() => {
      this.#isDrawn = false;
      this.#draw();
    });
  }

  /** Make the rows that are visible, and remove all others. */
  #draw(): void {
    const { catalog } = this;
    if (!catalog.matching) {
      this.#rows.clear();
      const text = !catalog.isListed
        ? "searching…"
        : catalog.total
          ? "no file matches"
          : "no files are served";
      catalog.want(0, 0);
      this.#space.replaceChildren(element("li", { className: "quiet padded" }, text));
      return;
    }
    const { scrollTop, clientHeight } = this.#list;
    const [first, last] = between(this.#begins, scrollTop - BEYOND, scrollTop + clientHeight + BEYOND);
    if (!this.#rows.size) this.#space.replaceChildren();
    for (const [number, { row }] of this.#rows) {
      if (number >= first && number <= last) continue;
      row.remove();
      this.#rows.delete(number);
    }
    for (let number = first; number <= last; number++) {
      const entry = catalog.entry(number);
      let made = this.#rows.get(number);
      if (!made || made.entry !== entry) {
        const row = this.#file(entry);
        if (made) made.row.replaceWith(row);
        else this.#insert(number, row);
        made = { entry, row };
        this.#rows.set(number, made);
      }
      made.row.style.top = `${this.#begins[number]}px`;
    }
    this.#mark();
    catalog.want(first, last);
  }

  /** Keep the rows in the order of the list, which the Tab key follows. */
  #insert(number: number, row: HTMLElement): void {
    const later = [...this.#rows.keys()].filter((other) => other > number).sort((a, b) => a - b)[0];
    this.#space.insertBefore(row, later === undefined ? null : this.#rows.get(later)!.row);
  }

  #file(file: FileEntry | undefined): HTMLElement {
    const height = { height: `${heightOf(file)}px` };
    if (!file)
      return element(
        "li",
        { className: "file is-waiting", style: height },
        element("p", { className: "quiet padded" }, "…"),
      );
    const head = element(
      "div",
      { className: "file-head", title: file.title },
      element("span", { className: "file-title" }, file.title),
      element("span", { className: "badge" }, file.format ?? "…"),
      file.bytes !== null && element("span", { className: "file-bytes" }, bytesText(file.bytes)),
    );
    if (file.error)
      return element(
        "li",
        { className: "file is-broken", style: height },
        head,
        element("p", { className: "file-error", title: file.error }, file.error),
      );
    const images = listed(file);
    const more = (file.image_count ?? file.images.length) - LISTED;
    return element(
      "li",
      { className: "file", style: height },
      head,
      file.pending ? element("p", { className: "quiet padded" }, "opening…") : null,
      ...images.map((image) => this.#image(file, image, images.length === 1)),
      more > 0 ? element("p", { className: "quiet more" }, `and ${more} more images`) : null,
    );
  }

  #thumbnail({ thumbnail }: ImageEntry): HTMLElement {
    const absent = element("span", { className: "thumb is-absent" });
    if (!thumbnail) return absent;
    const picture = element("img", {
      alt: "",
      decoding: "async",
      className: "thumb",
      data: { src: thumbnail },
    });
    picture.addEventListener("error", () => picture.replaceWith(absent));
    if (this.#waiting) this.#waiting.push(picture);
    else picture.src = thumbnail;
    return picture;
  }

  #image(file: FileEntry, image: ImageEntry, isOne: boolean): HTMLElement {
    const title = !isOne ? image.title || image.path || "image" : shapeText(image.shape);
    const facts = [isOne ? image.axes.join(" ") : shapeText(image.shape), image.dtype];
    const button = element(
      "button",
      {
        type: "button",
        className: "image-button",
        title: `${file.title} ${image.path}`,
        data: { file: file.name, image: image.path },
        onclick: () => this.onpick(file.name, image.path),
      },
      this.#thumbnail(image),
      element(
        "span",
        { className: "image-text" },
        element("span", { className: "image-title" }, title),
        element("span", { className: "image-facts" }, facts.join(" · ")),
      ),
    );
    const label = `compare with ${file.title} ${isOne ? "" : title}`.trim();
    const compare = element(
      "button",
      {
        type: "button",
        className: "icon-button small compare-button",
        title: "compare with the image shown",
        aria: { label },
        onclick: () => this.oncompare(file.name, image.path),
      },
      icon("compare"),
    );
    return element("div", { className: "image-row" }, button, compare);
  }
}
