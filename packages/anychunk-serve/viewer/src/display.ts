/** The panel for bands, channels, colour map and contrast. */

import { colours, cssGradient, MAPS } from "./colormap";
import { element } from "./element";
import { shapeText } from "./files";
import { HistogramPanel } from "./histogram";
import type { Image } from "./image";
import type { Model } from "./described";
import type { Kind } from "./paint";
import type { Mode, ShownChannel } from "./showing";
import { unitSign } from "./coordinates";
import type { ChannelChange, Drawing, Limits } from "./state";

export interface Display {
  image: Image;
  mode: Mode;
  kind: Kind;
  /** What the file states. */
  model: Model;
  /** Those shown. */
  bands: number[];
  bandNames: string[];
  channels: ShownChannel[];
  map: string;
  reversed: boolean;
  isAutomatic: boolean;
  /** Whether each band has its own limits. */
  isApart: boolean;
  /** One pair for each band shown; empty until they are known. */
  limits: Limits[];
  /** The 2nd to 98th percentile of each band shown. */
  automatic: Limits[] | null;
  /** Sorted values by band; null until they are read. */
  samples: Float64Array[] | null;
  fill: number | null;
  hasMask: boolean;
  isFillShown: boolean;
  /** The axis that a volume is deep along; null: it is flat. */
  depth: { name: string; length: number } | null;
  hasPlanes: boolean;
  slab: number;
  hasAlpha: boolean;
  isOpaque: boolean;
}

export interface DisplayChange {
  bands?: number[] | null;
  map?: string | null;
  reversed?: boolean;
  limits?: Limits[] | null;
  apart?: boolean;
  fill?: boolean;
  drawing?: Drawing | null;
  opaque?: boolean;
  planes?: boolean;
  slab?: number;
}

const NAMES = ["Red", "Green", "Blue"];
const INKS = ["--ink-red", "--ink-green", "--ink-blue"];
const MODEL_NAMES: Record<Model, string> = {
  grey: "Grey",
  rgb: "RGB",
  cmyk: "CMYK",
  ycbcr: "YCbCr",
  palette: "Palette",
  channels: "Composite",
};

export class DisplayPanel {
  readonly root = element("div", { className: "display" });
  onchange: (change: DisplayChange) => void = () => {};
  /** Called with changes by band; null: back to what the file states. */
  onchannels: (changes: Record<number, ChannelChange | null>) => void = () => {};
  readonly #histogram = new HistogramPanel();
  readonly #colour = element("div", { className: "group" });
  readonly #contrast = element("div", { className: "row wrap" });
  readonly #contrastGroup = element("div", { className: "group" });
  readonly #which = element("div", { className: "row" });
  readonly #volume = element("div", { className: "group" });
  readonly #rest = element("div", { className: "group" });
  #edited = 0;
  /** The band of the channel whose limits are edited. */
  #channel = 0;
  #shown: Display | null = null;
  #built = "";

  constructor() {
    this.#histogram.onlimits = (limits) => this.#limit(limits);
    this.#contrastGroup.append(
      element("h2", {}, "Contrast"),
      this.#which,
      this.#histogram.root,
      this.#contrast,
    );
    this.root.append(this.#colour, this.#contrastGroup, this.#volume, this.#rest);
  }

  clear(): void {
    this.root.classList.add("is-empty");
  }

  show(display: Display): void {
    this.root.classList.remove("is-empty");
    this.#shown = display;
    if (display.mode === "channels" && !display.bands.includes(this.#channel))
      this.#channel = display.bands[0] ?? 0;
    const { samples: _, limits: __, automatic: ___, channels, ...looks } = display;
    const key = JSON.stringify({
      ...looks,
      channels: channels.map(({ band, label, color, isOn }) => [band, label, color, isOn]),
      image: [display.image.file, display.image.path],
      edited: [this.#edited, this.#channel],
      hasSamples: display.samples !== null,
    });
    if (key !== this.#built) {
      this.#built = key;
      this.#build(display);
    }
    const hasContrast = display.kind !== "palette" && display.kind !== "labels" && display.bands.length > 0;
    this.#contrastGroup.hidden = !hasContrast;
    if (hasContrast && display.samples && display.limits.length) this.#showHistogram(display);
  }

  #showHistogram(display: Display): void {
    const { samples, limits } = display;
    if (display.mode === "channels") {
      const number = Math.max(0, display.bands.indexOf(this.#channel));
      const channel = display.channels[display.bands[number]!]!;
      this.#histogram.show({
        bands: [samples![number]!],
        inks: [`#${channel.color}`],
        limits: limits[number]!,
        gradient: `linear-gradient(90deg, #000, #${channel.color})`,
      });
      return;
    }
    const which = display.isApart ? this.#edited : 0;
    const isMap = display.kind === "map";
    this.#histogram.show({
      bands: samples!,
      inks: samples!.length === 3 ? INKS : samples!.map(() => "--ink-one"),
      limits: limits[which] ?? limits[0]!,
      gradient: isMap ? cssGradient(colours(display.map, display.reversed)) : null,
    });
  }

  #limit(limits: Limits): void {
    const shown = this.#shown!;
    if (shown.mode === "channels") this.onchannels({ [this.#channel]: { limits } });
    else if (!shown.isApart) this.onchange({ limits: [limits] });
    else
      this.onchange({
        limits: [0, 1, 2].map((i) => (i === this.#edited ? limits : (shown.limits[i] ?? shown.limits[0]!))),
      });
  }

  #build(display: Display): void {
    const isColour = display.mode === "colour";
    const body = {
      channels: () => [this.#channelList(display)],
      colour: () => [this.#bandPicks(display)],
      one: () => [this.#maps(display)],
      file: () => (display.model === "rgb" ? [this.#bandPicks(display)] : []),
      labels: () => [
        element("p", { className: "quiet" }, "Each value has a colour of its own; 0 is transparent."),
      ],
    }[display.mode];
    this.#colour.replaceChildren(element("h2", {}, "Colour"), this.#modes(display), ...body());
    const hasApart = isColour || (display.mode === "file" && display.bands.length === 3);
    this.#which.replaceChildren(
      ...(hasApart && display.isApart ? [this.#bandTabs()] : []),
      ...(display.mode === "channels" ? [this.#channelTitle(display)] : []),
    );
    this.#contrast.replaceChildren(
      button("Default", display.isAutomatic && display.mode !== "channels", () => this.#reset()),
      button("2 – 98 %", false, () => this.#stretch()),
      button("All values", false, () => this.#full()),
      ...(hasApart
        ? [
            check("separately for each band", display.isApart, (apart) =>
              this.onchange({ apart, limits: null }),
            ),
          ]
        : []),
    );
    this.#volume.hidden = display.depth === null;
    if (display.depth) this.#volume.replaceChildren(...this.#volumeRows(display, display.depth));
    const hasNodata = display.fill !== null && !Number.isNaN(display.fill);
    const what = [
      ...(hasNodata ? [`nodata ${display.fill}`] : []),
      ...(display.hasMask ? ["masked pixels"] : []),
    ];
    this.#rest.replaceChildren(
      element("h2", {}, "Image"),
      facts(display.image),
      ...(what.length
        ? [check(`draw ${what.join(" and ")}`, display.isFillShown, (fill) => this.onchange({ fill }))]
        : []),
      ...(display.hasAlpha
        ? [check("ignore the alpha band", display.isOpaque, (opaque) => this.onchange({ opaque }))]
        : []),
    );
  }

  #volumeRows(
    { hasPlanes, slab }: Display,
    { name, length }: { name: string; length: number },
  ): HTMLElement[] {
    const field = element("input", {
      type: "number",
      min: "1",
      max: String(length),
      value: String(slab),
      className: "number is-short",
      aria: { label: `planes along ${name} whose maximum is drawn` },
    });
    field.addEventListener("change", () => {
      const count = Math.round(Number(field.value));
      this.onchange({ slab: Math.min(length, Math.max(1, count || 1)) });
    });
    field.addEventListener("keydown", (event) => event.stopPropagation());
    return [
      element("h2", {}, "Volume"),
      check("planes along the other axes (v)", hasPlanes, (planes) => this.onchange({ planes })),
      element(
        "label",
        { className: "check" },
        element("span", {}, "maximum of"),
        field,
        element("span", {}, slab > 1 ? "planes" : "plane"),
      ),
    ];
  }

  /** Go back to the limits that the file states, or else to automatic ones. */
  #reset(): void {
    if (this.#shown!.mode === "channels") this.onchannels({ [this.#channel]: null });
    else this.onchange({ limits: null });
  }

  #stretch(): void {
    const { automatic, mode, bands } = this.#shown!;
    if (!automatic) return;
    if (mode === "channels")
      this.onchannels({ [this.#channel]: { limits: automatic[Math.max(0, bands.indexOf(this.#channel))]! } });
    else this.onchange({ limits: this.#shown!.isApart ? automatic : [automatic[0]!] });
  }

  #full(): void {
    const { samples, mode, bands } = this.#shown!;
    const range = (values: Float64Array): Limits => [values[0]!, values[values.length - 1]!];
    if (mode === "channels") {
      const values = samples?.[Math.max(0, bands.indexOf(this.#channel))];
      if (values?.length) this.onchannels({ [this.#channel]: { limits: range(values) } });
      return;
    }
    const pairs = (samples ?? []).filter((values) => values.length).map(range);
    if (!pairs.length) return;
    const all: Limits = [Math.min(...pairs.map((p) => p[0])), Math.max(...pairs.map((p) => p[1]))];
    this.onchange({ limits: this.#shown!.isApart ? pairs : [all] });
  }

  /** Return the ways to draw this image, that of the file first. */
  #modes({ mode, model, bandNames, bands, image }: Display): HTMLElement | string {
    const as = (change: DisplayChange) => (): void =>
      this.onchange({ drawing: null, bands: null, map: null, limits: null, ...change });
    const count = bandNames.length;
    const own = bands[0] ?? 0;
    const found: [string, boolean, () => void][] = [];
    const isOwn = mode === "file" || (model === "rgb" && mode === "colour");
    if (!["grey", "channels"].includes(model)) found.push([MODEL_NAMES[model], isOwn, as({})]);
    else if (count >= 3) found.push(["RGB", mode === "colour", as({ bands: [0, 1, 2] })]);
    if (count >= 2)
      found.push(["Composite", mode === "channels", as(model === "channels" ? {} : { drawing: "channels" })]);
    const grey: DisplayChange = { bands: [own], ...(model === "palette" ? { map: "gray" } : {}) };
    found.push([count > 1 ? "One band" : "Grey", mode === "one", as(grey)]);
    if (/int/.test(image.dtype))
      found.push(["Labels", mode === "labels", as({ drawing: "labels", bands: [own] })]);
    if (found.length < 2) return "";
    return element(
      "div",
      { className: "segmented", aria: { role: "group", label: "drawn as" } },
      ...found.map(([text, isOn, pick]) => button(text, isOn, pick)),
    );
  }

  #channelList({ channels }: Display): HTMLElement {
    const setAll = (isOn: (band: number) => boolean) => (): void =>
      this.onchannels(Object.fromEntries(channels.map(({ band }) => [band, { isOn: isOn(band) }])));
    const rows = channels.map((channel) => {
      const { band, label, color, isOn } = channel;
      const box = element("input", { type: "checkbox", checked: isOn, aria: { label: `show ${label}` } });
      box.addEventListener("change", () => {
        if (box.checked) this.#channel = band;
        this.onchannels({ [band]: { isOn: box.checked } });
      });
      const well = element("input", {
        type: "color",
        className: "well",
        value: `#${color.toLowerCase()}`,
        aria: { label: `colour of ${label}` },
      });
      well.addEventListener("input", () =>
        this.onchannels({ [band]: { color: well.value.slice(1).toUpperCase() } }),
      );
      const isEdited = band === this.#channel;
      return element(
        "li",
        { className: `channel${isEdited && isOn ? " is-picked" : ""}${isOn ? "" : " is-off"}` },
        box,
        well,
        element(
          "button",
          {
            type: "button",
            className: "channel-name",
            title: label,
            aria: { pressed: String(isEdited) },
            onclick: () => {
              this.#channel = band;
              if (isOn) this.show(this.#shown!);
              else this.onchannels({ [band]: { isOn: true } });
            },
          },
          label,
        ),
        element(
          "button",
          {
            type: "button",
            className: "link",
            title: `only ${label}`,
            aria: { label: `only ${label}` },
            onclick: () => {
              this.#channel = band;
              setAll((other) => other === band)();
            },
          },
          "only",
        ),
      );
    });
    return element(
      "div",
      {},
      element("ul", { className: "channels" }, ...rows),
      element(
        "div",
        { className: "row wrap" },
        button(
          "All on",
          false,
          setAll(() => true),
        ),
        button("Reset", false, () =>
          this.onchannels(Object.fromEntries(channels.map(({ band }) => [band, null]))),
        ),
      ),
    );
  }

  /** Return the name of the channel that the histogram is of, with its gamma. */
  #channelTitle({ channels }: Display): HTMLElement {
    const channel = channels[this.#channel]!;
    const field = element("input", {
      type: "range",
      min: "-1",
      max: "1",
      step: "0.02",
      value: String(Math.log(channel.gamma) / Math.log(5)),
      aria: { label: `gamma of ${channel.label}` },
    });
    const text = element("output", { className: "quiet" }, channel.gamma.toFixed(2));
    field.addEventListener("input", () => {
      const gamma = Number((5 ** Number(field.value)).toFixed(2));
      text.textContent = gamma.toFixed(2);
      this.onchannels({ [this.#channel]: { gamma } });
    });
    return element(
      "div",
      { className: "channel-title" },
      element("strong", {}, channel.label),
      element("label", { className: "gamma" }, element("span", {}, "gamma"), field, text),
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

  #maps({ map, reversed }: Display): HTMLElement {
    const swatches = MAPS.map((name) => {
      const background = cssGradient(colours(name, reversed));
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
