/** Keyboard shortcuts, and the panel that lists them. */

import { element, iconButton } from "./element";

export interface Key {
  keys: string[];
  /** As listed in the help; empty: not listed. */
  label: string;
  text: string;
  run(event: KeyboardEvent): void;
}

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLInputElement
    ? target.type !== "range" && target.type !== "checkbox"
    : target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;

export function listenKeys(keys: Key[]): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    // controls use some keys themselves: a slider the arrows, a button Enter and space, a tab the arrows
    const { target } = event;
    if (target instanceof HTMLInputElement && event.key.startsWith("Arrow")) return;
    const isButton =
      target instanceof HTMLButtonElement || (target instanceof HTMLElement && target.tagName === "SUMMARY");
    if ((isButton || target instanceof HTMLInputElement) && (event.key === "Enter" || event.key === " "))
      return;
    if (event.defaultPrevented) return;
    // a dialog closes itself by Escape, and nothing behind it moves
    if (target instanceof Element && target.closest("dialog") && event.key !== "?") return;
    const key = keys.find((k) => k.keys.includes(event.key));
    if (!key) return;
    event.preventDefault();
    key.run(event);
  });
}

export class HelpPanel {
  readonly root = element("dialog", { className: "help", aria: { label: "keyboard and mouse" } });

  constructor(keys: Key[]) {
    const rows = [
      ["drag", "move the image"],
      ["wheel, pinch", "zoom at the pointer"],
      ["double click", "zoom in; with shift, out"],
      ["click", "with the grid on: show the chunk"],
      ...keys.map(({ label, text }) => [label, text]),
    ] as [string, string][];
    this.root.append(
      element(
        "header",
        {},
        element("h2", {}, "Keyboard and mouse"),
        iconButton("close", "close", () => this.root.close()),
      ),
      element(
        "dl",
        {},
        ...rows.flatMap(([label, text]) => [
          element(
            "dt",
            {},
            ...label
              .split(" ")
              .map((part) =>
                part.length === 1 || /^(space|home|shift|enter|esc|←|→|↑|↓)/.test(part)
                  ? element("kbd", {}, part)
                  : `${part} `,
              ),
          ),
          element("dd", {}, text),
        ]),
      ),
    );
    this.root.addEventListener("click", (event) => {
      if (event.target === this.root) this.root.close();
    });
  }

  toggle(): void {
    if (this.root.open) this.root.close();
    else this.root.showModal();
  }
}
