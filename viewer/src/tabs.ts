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
      Object.assign(body, { id: `body-${name}`, role: "tabpanel" });
      body.classList.add("tab-body");
    }
    const heads = element(
      "div",
      { className: "tab-heads", aria: { role: "tablist" } },
      ...this.#tabs.map((tab) => tab.button),
    );
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
    }
    this.onpick(name);
  }
}
