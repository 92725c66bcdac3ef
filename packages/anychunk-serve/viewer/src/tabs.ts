/** Tabs: panels of which one is visible. */

import { element } from "./element";

export interface Tab {
  name: string;
  title: string;
  body: HTMLElement;
}

export class Tabs {
  readonly root = element("div", { className: "tabs" });
  onpick: (name: string) => void = () => {};
  readonly #tabs: (Tab & { button: HTMLButtonElement })[];
  #picked: string;

  constructor(tabs: Tab[]) {
    this.#tabs = tabs.map((tab) => ({
      ...tab,
      button: element(
        "button",
        {
          type: "button",
          className: "tab",
          id: `tab-${tab.name}`,
          onclick: () => this.pick(tab.name),
          aria: { role: "tab", controls: `body-${tab.name}` },
        },
        tab.title,
      ),
    }));
    this.#picked = tabs[0]!.name;
    for (const { body, name } of this.#tabs) {
      Object.assign(body, { id: `body-${name}`, role: "tabpanel", tabIndex: 0 });
      body.setAttribute("aria-labelledby", `tab-${name}`);
      body.classList.add("tab-body");
    }
    const heads = element(
      "div",
      { className: "tab-heads", aria: { role: "tablist" } },
      ...this.#tabs.map((tab) => tab.button),
    );
    heads.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      const at = this.#tabs.findIndex(({ name }) => name === this.#picked);
      const next = this.#tabs[(at + by + this.#tabs.length) % this.#tabs.length]!;
      this.pick(next.name);
      next.button.focus();
    });
    this.root.append(heads, ...this.#tabs.map((tab) => tab.body));
    this.pick(this.#picked);
  }

  get picked(): string {
    return this.#picked;
  }

  pick(name: string): void {
    this.#picked = name;
    for (const tab of this.#tabs) {
      const isPicked = tab.name === name;
      tab.body.hidden = !isPicked;
      tab.button.classList.toggle("is-picked", isPicked);
      tab.button.setAttribute("aria-selected", String(isPicked));
      tab.button.tabIndex = isPicked ? 0 : -1;
    }
    this.onpick(name);
  }
}
