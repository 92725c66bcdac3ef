/** The panel for bands, colour map and contrast. */

import { colours, cssGradient, MAPS } from "./colormap";
import { element } from "./element";
import { shapeText } from "./files";
import { HistogramPanel } from "./histogram";
import type { Image } from "./image";
import { unitSign } from "./coordinates";
import type { Limits } from "./state";

export interface Display {
  image: Image;
  bands: number[];
  bandCount: number;
  bandNames: string[];
  map: string;
  reversed: boolean;
  isAutomatic: boolean;
  /** Whether each band has its own limits. */
  isApart: boolean;
  limits: Limits[];
  /** Sorted values by band; null until they are read. */
  samples: Float64Array[] | null;
  fill: number | null;
  isFillShown: boolean;
  hasPalette: boolean;
}

export interface DisplayChange {
  bands?: number[];
  map?: string;
  reversed?: boolean;
  limits?: Limits[] | null;
  apart?: boolean;
  fill?: boolean;
}

const NAMES = ["Red", "Green", "Blue"];

export class DisplayPanel {
  readonly root = element("div", { className: "display" });
  onchange: (change: DisplayChange) => void = () => {};
  readonly #histogram = new HistogramPanel();
  readonly #colour = element("div", { className: "group" });
  readonly #contrast = element("div", { className: "row wrap" });
  readonly #which = element("div", { className: "row" });
  readonly #rest = element("div", { className: "group" });
  #edited = 0;
  #shown: Display | null = null;
  #built = "";

  constructor() {
    this.#histogram.onlimits = (limits) => this.#limit(limits);
    this.root.append(
      this.#colour,
      element(
        "div",
        { className: "group" },
        element("h2", {}, "Contrast"),
        this.#which,
        this.#histogram.root,
        this.#contrast,
      ),
      this.#rest,
    );
  }

  clear(): void {
    this.root.classList.add("is-empty");
  }

  show(display: Display): void {
    this.root.classList.remove("is-empty");
    this.#shown = display;
    const { samples: _, limits: __, ...looks } = display;
    const key = JSON.stringify({
      ...looks,
      image: [display.image.file, display.image.path],
      edited: this.#edited,
    });
    if (key !== this.#built) {
      this.#built = key;
      this.#build(display);
    }
    const isColour = display.bands.length === 3;
    if (display.samples && display.limits.length) {
      const which = display.isApart ? this.#edited : 0;
      this.#histogram.show({
        bands: display.samples,
        limits: display.limits[which] ?? display.limits[0]!,
        gradient:
          isColour || display.map === "palette" ? null : cssGradient(colours(display.map, display.reversed)),
      });
    }
  }

  #limit(limits: Limits): void {
    const shown = this.#shown!;
    if (!shown.isApart) this.onchange({ limits: [limits] });
    else
      this.onchange({
        limits: [0, 1, 2].map((i) => (i === this.#edited ? limits : (shown.limits[i] ?? shown.limits[0]!))),
      });
  }

  #build(display: Display): void {
    const isColour = display.bands.length === 3;
    this.#colour.replaceChildren(
      element("h2", {}, "Colour"),
      ...(display.bandCount >= 3 ? [this.#modes(isColour)] : []),
      ...(isColour ? [this.#bandPicks(display)] : [this.#maps(display)]),
    );
    this.#which.replaceChildren(...(isColour && display.isApart ? [this.#bandTabs()] : []));
    this.#contrast.replaceChildren(
      button("2 – 98 %", display.isAutomatic, () => this.onchange({ limits: null })),
      button("All values", false, () => this.#full()),
      ...(isColour
        ? [
            check("separately for each band", display.isApart, (apart) =>
              this.onchange({ apart, limits: null }),
            ),
          ]
        : []),
    );
    this.#rest.replaceChildren(
      element("h2", {}, "Image"),
      facts(display.image),
      ...(display.fill !== null && !Number.isNaN(display.fill)
        ? [check(`draw nodata ${display.fill}`, display.isFillShown, (fill) => this.onchange({ fill }))]
        : []),
    );
  }

  #full(): void {
    const samples = this.#shown?.samples?.filter((values) => values.length) ?? [];
    if (!samples.length) return;
    const pairs = samples.map((values): Limits => [values[0]!, values[values.length - 1]!]);
    const all: Limits = [Math.min(...pairs.map((p) => p[0])), Math.max(...pairs.map((p) => p[1]))];
    this.onchange({ limits: this.#shown!.isApart ? pairs : [all] });
  }

  #modes(isColour: boolean): HTMLElement {
    return element(
      "div",
      { className: "segmented", aria: { role: "group", label: "bands" } },
      button("Colour", isColour, () => this.onchange({ bands: [0, 1, 2], limits: null })),
      button("One band", !isColour, () =>
        this.onchange({ bands: [this.#shown?.bands[0] ?? 0], limits: null }),
      ),
    );
  }

  #bandPicks({ bands, bandNames }: Display): HTMLElement {
    return element(
      "div",
      { className: "picks" },
      ...bands.map((band, i) => {
        const select = element(
          "select",
          { className: "select", aria: { label: NAMES[i] ?? "" } },
          ...bandNames.map((name, n) => element("option", { value: String(n), selected: n === band }, name)),
        );
        select.addEventListener("change", () =>
          this.onchange({
            bands: bands.map((old, n) => (n === i ? Number(select.value) : old)),
            limits: null,
          }),
        );
        return element(
          "label",
          { className: `pick is-${NAMES[i]!.toLowerCase()}` },
          element("span", {}, NAMES[i]),
          select,
        );
      }),
    );
  }

  #bandTabs(): HTMLElement {
    return element(
      "div",
      { className: "segmented", aria: { role: "group", label: "limits of" } },
      ...NAMES.map((name, i) =>
        button(name, this.#edited === i, () => {
          this.#edited = i;
          this.show(this.#shown!);
        }),
      ),
    );
  }

  #maps({ map, reversed, hasPalette }: Display): HTMLElement {
    const names = hasPalette ? ["palette", ...MAPS] : MAPS;
    const swatches = names.map((name) => {
      const background =
        name === "palette"
          ? "linear-gradient(90deg, #d33, #3b3 33%, #36c 66%, #dc3)"
          : cssGradient(colours(name, reversed));
      return element(
        "button",
        {
          type: "button",
          className: `swatch${name === map ? " is-picked" : ""}`,
          title: name,
          aria: { label: name, pressed: String(name === map) },
          onclick: () => this.onchange({ map: name }),
        },
        element("span", { className: "swatch-strip", style: { background } }),
        element("span", { className: "swatch-name" }, name.replace("_", " – ")),
      );
    });
    return element(
      "div",
      {},
      element("div", { className: "swatches" }, ...swatches),
      check("reversed", reversed, (value) => this.onchange({ reversed: value })),
    );
  }
}

function facts(image: Image): HTMLElement {
  const first = image.levels[0]!;
  const units = image.axes.flatMap(({ unit }, i) =>
    unit ? [`${Number(image.scale[i]!.toPrecision(6))} ${unitSign(unit)}`] : [],
  );
  const rows: [string, string][] = [
    ["Shape", shapeText(first.shape)],
    ["Axes", image.axes.map((axis) => axis.name).join(", ")],
    ["Type", image.dtype],
    ["Levels", image.levels.map((level) => `${level.shape[image.x]} × ${level.shape[image.y]}`).join("\n")],
  ];
  if (units.length) rows.push(["Pixel", units.join(" × ")]);
  return element(
    "dl",
    { className: "facts" },
    ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
}

function button(text: string, isOn: boolean, onclick: () => void): HTMLButtonElement {
  return element(
    "button",
    { type: "button", className: `button${isOn ? " is-on" : ""}`, onclick, aria: { pressed: String(isOn) } },
    text,
  );
}

function check(text: string, isOn: boolean, set: (value: boolean) => void): HTMLElement {
  const box = element("input", { type: "checkbox", checked: isOn });
  box.addEventListener("change", () => set(box.checked));
  return element("label", { className: "check" }, box, element("span", {}, text));
}
