/** The names of the channels over the picture, in their colours. */

import { element } from "./element";
import type { ShownChannel } from "./showing";

/** More are not listed: they would cover the picture. */
const MOST = 12;

export class Legend {
  readonly root = element("ul", {
    className: "legend",
    id: "legend",
    hidden: true,
    aria: { label: "channels" },
  });

  show(channels: ShownChannel[]): void {
    const shown = channels.filter(({ isOn }) => isOn);
    this.root.hidden = shown.length === 0;
    const key = shown.map(({ label, color }) => `${label}/${color}`).join();
    if (key === this.root.dataset["shown"]) return;
    this.root.dataset["shown"] = key;
    const more = shown.length - MOST;
    this.root.replaceChildren(
      ...shown
        .slice(0, MOST)
        .map(({ label, color }) =>
          element(
            "li",
            {},
            element("span", { className: "ink", style: { background: `#${color}` } }),
            element("span", { className: "legend-name" }, label),
          ),
        ),
      ...(more > 0 ? [element("li", { className: "quiet" }, `and ${more} more`)] : []),
    );
  }
}
