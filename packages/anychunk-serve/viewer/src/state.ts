/** What is shown, and its form in a link. Pure. */

export type Limits = [low: number, high: number];

export interface View {
  /** Pixel of level 0 at the centre of the canvas. */
  x: number;
  y: number;
  /** Device pixels per pixel of level 0. */
  zoom: number;
}

/** What was changed of a channel; what is absent is as the file states it. */
export interface ChannelChange {
  /** RRGGBB. */
  color?: string;
  limits?: Limits;
  gamma?: number;
  isOn?: boolean;
}

/** How samples become colours: all channels added up, or labels; null: as `bands` and the file say. */
export type Drawing = "channels" | "labels";

/** How two images are shown: one over the other, divided by a line, or beside each other. */
export type Comparison = "over" | "swipe" | "side";
const COMPARISONS: readonly Comparison[] = ["over", "swipe", "side"];

export interface State {
  file: string | null;
  image: string | null;
  /** Positions along the axes other than y and x, by name; by default the middle. */
  at: Record<string, number>;
  /** Three bands for red, green and blue, or one for the colour map; null: chosen by the image. */
  bands: number[] | null;
  /** Colour map of one band; null: the image's own palette, or gray. */
  map: string | null;
  reversed: boolean;
  /** One pair for all bands or one per band; null: what the file states, or else the 2nd to the 98th percentile. */
  limits: Limits[] | null;
  /** Whether each of three bands has its own limits. */
  apart: boolean;
  /** null: the whole image. */
  view: View | null;
  grid: boolean;
  /** Whether nodata and masked pixels are drawn like others. */
  fill: boolean;
  drawing: Drawing | null;
  /** By number of the band. */
  channels: Record<number, ChannelChange>;
  /** Whether the file's alpha band is ignored. */
  opaque: boolean;
  /** Whether xz and yz are shown beside xy. */
  planes: boolean;
  /** Planes whose maximum is drawn; 1: only the one at the slider. */
  slab: number;
  graticule: boolean;
  /** Another image, drawn with this one. */
  other: { file: string; image: string } | null;
  compare: Comparison;
  /** Opacity of the other image, or where it begins, from 0 to 1. */
  part: number;
  /** What paints channels; null: the GPU if there is one. */
  painter: "gpu" | "canvas" | null;
}

export const START: State = {
  file: null,
  image: null,
  at: {},
  bands: null,
  map: null,
  reversed: false,
  limits: null,
  apart: false,
  view: null,
  grid: false,
  fill: false,
  drawing: null,
  channels: {},
  opaque: false,
  planes: false,
  slab: 1,
  graticule: false,
  other: null,
  compare: "swipe",
  part: 0.5,
  painter: null,
};

const numbers = (text: string): number[] | null => {
  const found = text.split(",").map(Number);
  return text !== "" && found.every(Number.isFinite) ? found : null;
};

/** Return one of the allowed words, or null. */
const oneOf = <T extends string>(text: string | null, words: readonly T[]): T | null =>
  words.find((word) => word === text) ?? null;

const optional = (text: string | undefined): number | null =>
  text === undefined || text === "" || !Number.isFinite(Number(text)) ? null : Number(text);

/** Parse `band:color:low:high:gamma:on;…`, each part but the first possibly empty. */
function parseChannels(text: string): Record<number, ChannelChange> {
  const out: Record<number, ChannelChange> = {};
  for (const part of text.split(";")) {
    const [number, color, low, high, gamma, on] = part.split(":");
    const band = optional(number);
    if (band === null || !Number.isInteger(band) || band < 0) continue;
    const change: ChannelChange = {};
    if (color && /^[0-9A-Fa-f]{6}$/.test(color)) change.color = color.toUpperCase();
    const [least, most, power] = [optional(low), optional(high), optional(gamma)];
    if (least !== null && most !== null) change.limits = [least, most];
    if (power !== null && power > 0) change.gamma = power;
    if (on === "0" || on === "1") change.isOn = on === "1";
    out[band] = change;
  }
  return out;
}

function formatChannels(channels: Record<number, ChannelChange>): string {
  return Object.entries(channels)
    .map(([band, { color, limits, gamma, isOn }]) =>
      [
        band,
        color ?? "",
        limits ? short(limits[0], 9) : "",
        limits ? short(limits[1], 9) : "",
        gamma === undefined ? "" : short(gamma, 4),
        isOn === undefined ? "" : Number(isOn),
      ].join(":"),
    )
    .join(";");
}

const short = (value: number, digits: number): string => String(Number(value.toPrecision(digits)));

/** Parse the part of a url after #, ignoring what is malformed. */
export function parseHash(hash: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...START, at: {}, channels: {} };
  state.file = given.get("file");
  state.image = given.get("image");
  for (const pair of (given.get("at") ?? "").split(",")) {
    const cut = pair.lastIndexOf(":");
    const value = Number(pair.slice(cut + 1));
    if (cut > 0 && Number.isInteger(value) && value >= 0) state.at[pair.slice(0, cut)] = value;
  }
  const bands = numbers(given.get("bands") ?? "");
  if (
    bands &&
    (bands.length === 1 || bands.length === 3) &&
    bands.every((b) => Number.isInteger(b) && b >= 0)
  ) {
    state.bands = bands;
  }
  state.map = given.get("map");
  state.reversed = given.get("reversed") === "1";
  const limits = numbers(given.get("limits") ?? "");
  if (limits && (limits.length === 2 || limits.length === 6)) {
    state.limits = Array.from({ length: limits.length / 2 }, (_, i) => [limits[2 * i]!, limits[2 * i + 1]!]);
  }
  state.apart = given.get("apart") === "1" || state.limits?.length === 3;
  const view = numbers(given.get("view") ?? "");
  if (view?.length === 3 && view[2]! > 0) state.view = { x: view[0]!, y: view[1]!, zoom: view[2]! };
  state.grid = given.get("grid") === "1";
  state.fill = given.get("fill") === "1";
  state.drawing = oneOf(given.get("draw"), ["channels", "labels"]);
  state.channels = parseChannels(given.get("channels") ?? "");
  state.opaque = given.get("opaque") === "1";
  state.planes = given.get("planes") === "1";
  const slab = optional(given.get("slab") ?? "");
  if (slab !== null && Number.isInteger(slab) && slab > 1) state.slab = slab;
  state.graticule = given.get("graticule") === "1";
  const other = given.get("with");
  if (other !== null) state.other = { file: other, image: given.get("withImage") ?? "" };
  state.compare = oneOf(given.get("compare"), COMPARISONS) ?? "swipe";
  const part = optional(given.get("part") ?? "");
  if (part !== null && part >= 0 && part <= 1) state.part = part;
  state.painter = oneOf(given.get("painter"), ["gpu", "canvas"]);
  return state;
}

/** Return the part of a url after #, without defaults. */
export function formatHash(state: State): string {
  const out: [string, string][] = [];
  if (state.file !== null) out.push(["file", state.file]);
  if (state.image !== null) out.push(["image", state.image]);
  const at = Object.entries(state.at).map(([name, value]) => `${name}:${value}`);
  if (at.length) out.push(["at", at.join(",")]);
  if (state.bands) out.push(["bands", state.bands.join(",")]);
  if (state.map !== null) out.push(["map", state.map]);
  if (state.reversed) out.push(["reversed", "1"]);
  if (state.limits)
    out.push([
      "limits",
      state.limits
        .flat()
        .map((v) => short(v, 9))
        .join(","),
    ]);
  if (state.apart) out.push(["apart", "1"]);
  if (state.view)
    out.push(["view", [short(state.view.x, 8), short(state.view.y, 8), short(state.view.zoom, 6)].join(",")]);
  if (state.grid) out.push(["grid", "1"]);
  if (state.fill) out.push(["fill", "1"]);
  if (state.drawing) out.push(["draw", state.drawing]);
  if (Object.keys(state.channels).length) out.push(["channels", formatChannels(state.channels)]);
  if (state.opaque) out.push(["opaque", "1"]);
  if (state.planes) out.push(["planes", "1"]);
  if (state.slab > 1) out.push(["slab", String(state.slab)]);
  if (state.graticule) out.push(["graticule", "1"]);
  if (state.other) {
    out.push(["with", state.other.file], ["withImage", state.other.image], ["compare", state.compare]);
    if (state.part !== START.part) out.push(["part", short(state.part, 3)]);
  }
  if (state.painter) out.push(["painter", state.painter]);
  const readable = (text: string) => encodeURIComponent(text).replace(/%(2C|3A|2F|3B)/g, decodeURIComponent);
  return out.length ? `#${out.map(([name, value]) => `${name}=${readable(value)}`).join("&")}` : "";
}
