/** The panel of tools: measuring, places on a map, comparing, and taking away. */

import { element } from "./element";
import { copyButton } from "./openin";
import { rounded } from "./contrast";
import type { Statistics } from "./measure";
import type { Comparison } from "./state";

export type Tool = "distance" | "area" | "profile" | "rectangle";

const TOOLS: [Tool, string, string][] = [
  ["distance", "Distance", "Click two or more points."],
  ["area", "Area", "Click three or more corners."],
  ["profile", "Profile", "Click the two ends of a line."],
  ["rectangle", "Rectangle", "Click two opposite corners."],
];
const COMPARISONS: [Comparison, string][] = [
  ["swipe", "Swipe"],
  ["over", "Overlay"],
  ["side", "Side by side"],
];

export interface Profile {
  /** Values along the line, by band. */
  bands: number[][];
  /** CSS colours. */
  inks: string[];
  length: string;
}

export interface Result {
  lines: [name: string, value: string][];
  profile?: Profile;
  statistics?: { names: string[]; values: Statistics[]; level: number };
  error?: string;
  isBusy?: boolean;
}

export interface ToolState {
  tool: Tool | null;
  result: Result | null;
  hasPlace: boolean;
  hasGraticule: boolean;
  /** Title of the other image, if there is one. */
  other: string | null;
  compare: Comparison;
  part: number;
  /** Python that reads what is selected. */
  code: string;
}

export class ToolsPanel {
  readonly root = element("div", { className: "tools-panel" });
  ontool: (tool: Tool | null) => void = () => {};
  onclear: () => void = () => {};
  onexact: () => void = () => {};
  /** Returns why a place cannot be shown, or null. */
  ongoto: (text: string) => string | null = () => null;
  ongraticule: (isOn: boolean) => void = () => {};
  oncompare: (change: { compare?: Comparison; part?: number } | null) => void = () => {};
  onpng: () => void = () => {};
  link: () => string = () => "";
  #built = "";

  show(state: ToolState): void {
    const key = JSON.stringify({
      ...state,
      part: 0,
      statistics: state.result?.statistics?.values.map((s) => s.mean),
    });
    if (key === this.#built) return;
    this.#built = key;
    this.root.replaceChildren(
      this.#measuring(state),
      ...(state.hasPlace ? [this.#place(state)] : []),
      this.#comparing(state),
      this.#taking(state),
    );
  }

  #measuring({ tool, result }: ToolState): HTMLElement {
    const hint =
      TOOLS.find(([name]) => name === tool)?.[2] ?? "Choose what to measure, then click in the image.";
    return group(
      "Measure",
      element(
        "div",
        { className: "segmented", aria: { role: "group", label: "measure" } },
        ...TOOLS.map(([name, text]) =>
          toggle(text, tool === name, () => this.ontool(tool === name ? null : name)),
        ),
      ),
      element(
        "p",
        { className: "quiet small-text" },
        hint,
        tool ? " Enter adds the middle of the view, Backspace removes a point." : "",
      ),
      result ? this.#result(result) : null,
    );
  }

  #result(result: Result): HTMLElement {
    const { profile, statistics } = result;
    return element(
      "div",
      { className: "result", id: "result", aria: { live: "polite" } },
      element(
        "dl",
        { className: "facts" },
        ...result.lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
      ),
      profile ? chart(profile) : null,
      statistics ? table(statistics.names, statistics.values) : null,
      statistics && statistics.level > 0
        ? element("p", { className: "quiet small-text" }, `of level ${statistics.level}, not of all pixels`)
        : null,
      result.isBusy ? element("p", { className: "quiet" }, "reading…") : null,
      result.error ? element("p", { className: "note is-bad" }, result.error) : null,
      element(
        "div",
        { className: "row wrap" },
        (statistics && statistics.level > 0) || (profile && result.lines.some(([name]) => name === "Level"))
          ? plain("Exact at full resolution", () => this.onexact())
          : null,
        plain("Clear", () => this.onclear()),
      ),
    );
  }

  #place({ hasGraticule }: ToolState): HTMLElement {
    const field = element("input", {
      type: "text",
      className: "number is-wide",
      placeholder: "446725, 3746815 or 33.86 N, 117.58 W",
      aria: { label: "coordinates to go to" },
    });
    const problem = element("p", { className: "note is-bad", hidden: true });
    const go = (): void => {
      const line = this.ongoto(field.value);
      problem.hidden = line === null;
      problem.textContent = line;
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") go();
      event.stopPropagation();
    });
    const box = element("input", { type: "checkbox", checked: hasGraticule });
    box.addEventListener("change", () => this.ongraticule(box.checked));
    return group(
      "Place",
      element("div", { className: "row" }, field, plain("Go", go)),
      problem,
      element("label", { className: "check" }, box, element("span", {}, "meridians and parallels")),
    );
  }

  #comparing({ other, compare, part }: ToolState): HTMLElement {
    if (other === null)
      return group(
        "Compare",
        element(
          "p",
          { className: "quiet small-text" },
          "Choose “compare” beside another image in the list of files.",
        ),
      );
    const slider = element("input", {
      type: "range",
      min: "0",
      max: "1",
      step: "0.01",
      value: String(part),
      aria: { label: compare === "over" ? "opacity" : "divider" },
    });
    const mark = (): void => slider.style.setProperty("--part", `${100 * Number(slider.value)}%`);
    mark();
    slider.addEventListener("input", () => {
      mark();
      this.oncompare({ part: Number(slider.value) });
    });
    return group(
      "Compare",
      element("p", {}, "with ", element("strong", {}, other)),
      element(
        "div",
        { className: "segmented", aria: { role: "group", label: "compare" } },
        ...COMPARISONS.map(([name, text]) =>
          toggle(text, compare === name, () => this.oncompare({ compare: name })),
        ),
      ),
      compare === "side" ? null : slider,
      element(
        "div",
        { className: "row wrap" },
        plain("Stop comparing", () => this.oncompare(null)),
      ),
    );
  }

  #taking({ code }: ToolState): HTMLElement {
    return group(
      "Take away",
      element(
        "div",
        { className: "row" },
        plain("Save as PNG", () => this.onpng()),
        element(
          "span",
          { className: "row" },
          "Copy link",
          copyButton(() => this.link(), "copy a link to this view"),
        ),
      ),
      element(
        "p",
        { className: "quiet small-text" },
        "Python that reads what is selected, or else what is visible:",
      ),
      element(
        "div",
        { className: "code" },
        element("pre", { tabIndex: 0, id: "code" }, element("code", {}, code)),
        copyButton(() => code, "copy the code"),
      ),
    );
  }
}

const group = (title: string, ...children: (HTMLElement | null)[]): HTMLElement =>
  element("section", { className: "group" }, element("h2", {}, title), ...children);

const plain = (text: string, onclick: () => void): HTMLButtonElement =>
  element("button", { type: "button", className: "button", onclick }, text);

const toggle = (text: string, isOn: boolean, onclick: () => void): HTMLButtonElement =>
  element(
    "button",
    { type: "button", className: `button${isOn ? " is-on" : ""}`, onclick, aria: { pressed: String(isOn) } },
    text,
  );

function table(names: string[], values: Statistics[]): HTMLElement {
  const rows: [string, (of: Statistics) => number][] = [
    ["mean", (of) => of.mean],
    ["deviation", (of) => of.deviation],
    ["least", (of) => of.least],
    ["most", (of) => of.most],
    ["values", (of) => of.count],
    ["nodata", (of) => of.absent],
  ];
  return element(
    "table",
    { className: "statistics" },
    element(
      "thead",
      {},
      element("tr", {}, element("td", {}), ...names.map((name) => element("th", { scope: "col" }, name))),
    ),
    element(
      "tbody",
      {},
      ...rows
        .filter(([name, of]) => name !== "nodata" || values.some((value) => of(value) > 0))
        .map(([name, of]) =>
          element(
            "tr",
            {},
            element("th", { scope: "row" }, name),
            ...values.map((value) =>
              element("td", {}, value.count ? rounded(of(value), value.most - value.least) : "–"),
            ),
          ),
        ),
    ),
  );
}

/** Return a line chart of values along a line. */
function chart({ bands, inks, length }: Profile): HTMLElement {
  const [WIDTH, HEIGHT] = [280, 110];
  const finite = bands.flat().filter(Number.isFinite);
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `profile of ${length}, from ${least} to ${most}`);
  bands.forEach((values, band) => {
    const line = document.createElementNS(space, "polyline");
    const points = values.flatMap((value, i) =>
      Number.isFinite(value)
        ? [
            `${((i / Math.max(1, values.length - 1)) * WIDTH).toFixed(1)},${(HEIGHT - 4 - ((value - least) / (most - least || 1)) * (HEIGHT - 8)).toFixed(1)}`,
          ]
        : [],
    );
    line.setAttribute("points", points.join(" "));
    line.setAttribute("style", `stroke: ${inks[band] ?? "var(--accent)"}`);
    svg.append(line);
  });
  return element(
    "figure",
    { className: "profile" },
    svg as unknown as HTMLElement,
    element(
      "figcaption",
      { className: "quiet" },
      finite.length ? `${rounded(least, most - least)} … ${rounded(most, most - least)}` : "no values",
      ` along ${length}`,
    ),
  );
}
