/** The bar at the top and the tools beside the picture. */

import logo from "./icon.svg";
import { element, found, iconButton } from "./element";
import type { Actions } from "./shortcuts";

/** On narrow screens the side panels lie over the picture, one at a time. */
const toggleSide = (shown: string, hidden: string) => (): void => {
  document.body.classList.remove(hidden);
  document.body.classList.toggle(shown);
};

export const showPanel = (): void => document.body.classList.add("has-panel");
export const hidePanel = (): void => document.body.classList.remove("has-panel");
export const hideFiles = (): void => document.body.classList.remove("has-files");

export class Bars {
  readonly #grid: HTMLButtonElement;
  readonly #planes: HTMLButtonElement;

  constructor(actions: Actions) {
    this.#grid = iconButton("grid", "chunk grid (g)", () => actions.toggleGrid());
    this.#planes = iconButton("planes", "planes along the other axes (v)", () => actions.togglePlanes());
    this.#planes.hidden = true;
    const files = iconButton("files", "files", toggleSide("has-files", "has-panel"));
    const panel = iconButton("tune", "display, chunk, metadata", toggleSide("has-panel", "has-files"));
    files.classList.add("only-narrow");
    panel.classList.add("only-narrow");
    found("bar-left").append(
      files,
      element(
        "a",
        { className: "brand", href: "/" },
        element("img", { src: logo, alt: "", width: 22, height: 22 }),
        element("span", {}, "anychunk"),
      ),
    );
    found("bar-right").append(
      iconButton("help", "keyboard and mouse (?)", () => actions.toggleHelp()),
      iconButton("sun", "dark or light (t)", () => actions.toggleTheme()),
      panel,
    );
    found("tools").append(
      iconButton("plus", "zoom in (+)", () => actions.zoomBy(2)),
      iconButton("minus", "zoom out (-)", () => actions.zoomBy(0.5)),
      iconButton("fit", "whole image (0)", () => actions.showWhole()),
      element(
        "button",
        {
          type: "button",
          className: "icon-button",
          title: "one to one (1)",
          ariaLabel: "1:1, one image pixel per screen pixel (1)",
          onclick: () => actions.zoomTo(1),
        },
        "1:1",
      ),
      this.#grid,
      this.#planes,
      iconButton("ruler", "tools: measure, go to, compare, save (r)", () => actions.showTools()),
    );
  }

  showGrid(isOn: boolean): void {
    this.#grid.classList.toggle("is-on", isOn);
    this.#grid.setAttribute("aria-pressed", String(isOn));
  }

  /** Show whether there are planes along other axes, and whether they are shown. */
  showPlanes(isThere: boolean, isOn: boolean): void {
    this.#planes.hidden = !isThere;
    this.#planes.classList.toggle("is-on", isOn);
    this.#planes.setAttribute("aria-pressed", String(isOn));
  }

  /** Show the file, and the image where the file has several. */
  showTitle(file: string, image: string | null): void {
    found("bar-title").replaceChildren(
      element("span", { className: "bar-file" }, file),
      image === null ? "" : element("span", { className: "bar-image" }, image),
    );
    document.title = `${file} – anychunk`;
  }
}
