/** The list of files and their images, with thumbnails. */

import { element } from "./element";
import type { FileEntry, ImageEntry } from "./api";

/** With fewer images the list has no search field. */
const MANY = 8;

export function bytesText(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

export const shapeText = (shape: number[]): string => shape.join(" × ");

export class FileList {
  readonly root = element("nav", { className: "files", aria: { label: "files" } });
  onpick: (file: string, image: string) => void = () => {};
  readonly #search = element("input", {
    type: "search",
    className: "search",
    placeholder: "Search files",
    aria: { label: "search files" },
  });
  readonly #list = element("div", { className: "files-list" });
  #buttons: { button: HTMLButtonElement; file: string; image: string }[] = [];
  #files: FileEntry[] = [];
  #picked = "";
  /** Thumbnails whose requests wait for the picture; null: they wait no longer. */
  #waiting: HTMLImageElement[] | null = [];

  constructor() {
    this.#search.addEventListener("input", () => this.#render());
    this.#search.addEventListener("keydown", (event) => event.stopPropagation());
    this.root.append(this.#search, this.#list);
  }

  show(files: FileEntry[]): void {
    this.#files = files;
    this.#search.hidden = files.reduce((sum, file) => sum + Math.max(1, file.images.length), 0) < MANY;
    this.#render();
  }

  /** Request the thumbnails, which have waited for the picture. */
  showThumbnails(): void {
    for (const picture of this.#waiting ?? []) picture.src = picture.dataset["src"]!;
    this.#waiting = null;
  }

  message(text: string): void {
    this.#list.replaceChildren(element("p", { className: "quiet padded" }, text));
  }

  pick(file: string | null, image: string | null): void {
    this.#picked = `${file}\n${image}`;
    for (const { button, file: own, image: path } of this.#buttons) {
      const isPicked = `${own}\n${path}` === this.#picked;
      button.classList.toggle("is-picked", isPicked);
      button.setAttribute("aria-current", String(isPicked));
      if (isPicked) button.scrollIntoView({ block: "nearest" });
    }
  }

  /** Pick the image that is `by` places further in the list. */
  step(by: number): void {
    const at = this.#buttons.findIndex(({ file, image }) => `${file}\n${image}` === this.#picked);
    const next = this.#buttons[Math.min(this.#buttons.length - 1, Math.max(0, at + by))];
    if (next) this.onpick(next.file, next.image);
  }

  #render(): void {
    const words = this.#search.value.trim().toLowerCase();
    this.#buttons = [];
    const shown = this.#files.filter((file) =>
      `${file.title} ${file.format} ${file.images.map((i) => i.title).join(" ")}`
        .toLowerCase()
        .includes(words),
    );
    this.#list.replaceChildren(...shown.map((file) => this.#file(file)));
    if (!shown.length)
      this.message(this.#files.length ? `no file matches “${words}”` : "no files are served");
    const [file, image] = this.#picked.split("\n");
    this.pick(file ?? null, image ?? null);
  }

  #file(file: FileEntry): HTMLElement {
    const head = element(
      "header",
      { className: "file-head", title: file.title },
      element("span", { className: "file-title" }, file.title),
      element("span", { className: "badge" }, file.format ?? "…"),
      file.bytes !== null && element("span", { className: "file-bytes" }, bytesText(file.bytes)),
    );
    if (file.error)
      return element(
        "section",
        { className: "file is-broken" },
        head,
        element("p", { className: "file-error" }, file.error),
      );
    const others = (file.arrays ?? []).map((array) => this.#image(file, { ...array, thumbnail: null }));
    const note = file.pending ? element("p", { className: "quiet padded" }, "opening…") : null;
    return element(
      "section",
      { className: "file" },
      head,
      note,
      ...file.images.map((image) => this.#image(file, image)),
      ...others,
    );
  }

  #thumbnail({ thumbnail }: ImageEntry): HTMLElement {
    const absent = element("span", { className: "thumb is-absent" });
    if (!thumbnail) return absent;
    const picture = element("img", {
      alt: "",
      loading: "lazy",
      decoding: "async",
      className: "thumb",
      data: { src: thumbnail },
    });
    picture.addEventListener("error", () => picture.replaceWith(absent));
    if (this.#waiting) this.#waiting.push(picture);
    else picture.src = thumbnail;
    return picture;
  }

  #image(file: FileEntry, image: ImageEntry): HTMLButtonElement {
    const picture = this.#thumbnail(image);
    const isOne = file.images.length + (file.arrays?.length ?? 0) === 1;
    const title = !isOne ? image.title || image.path || "image" : shapeText(image.shape);
    const button = element(
      "button",
      { type: "button", className: "image-button", title: `${file.title} ${image.path}` },
      picture,
      element(
        "span",
        { className: "image-text" },
        element("span", { className: "image-title" }, title),
        element(
          "span",
          { className: "image-facts" },
          isOne ? image.axes.join(" ") : shapeText(image.shape),
          " · ",
          image.dtype,
        ),
      ),
    );
    button.addEventListener("click", () => this.onpick(file.name, image.path));
    this.#buttons.push({ button, file: file.name, image: image.path });
    return button;
  }
}
