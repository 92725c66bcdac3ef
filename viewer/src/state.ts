/** What is shown, and its form in a link. Pure. */

export type Limits = [low: number, high: number];

export interface View {
  /** Pixel of level 0 at the centre of the canvas. */
  x: number;
  y: number;
  /** Device pixels per pixel of level 0. */
  zoom: number;
}

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
  /** One pair for all bands or one per band; null: the 2nd to the 98th percentile. */
  limits: Limits[] | null;
  /** Whether each of three bands has its own limits. */
  apart: boolean;
  /** null: the whole image. */
  view: View | null;
  grid: boolean;
  /** Whether fill values are drawn like others. */
  fill: boolean;
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
};

const numbers = (text: string): number[] | null => {
  const found = text.split(",").map(Number);
  return text !== "" && found.every(Number.isFinite) ? found : null;
};

const short = (value: number, digits: number): string => String(Number(value.toPrecision(digits)));

/** Parse the part of a url after #, ignoring what is malformed. */
export function parseHash(hash: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...START, at: {} };
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
  const readable = (text: string) => encodeURIComponent(text).replace(/%(2C|3A|2F)/g, decodeURIComponent);
  return out.length ? `#${out.map(([name, value]) => `${name}=${readable(value)}`).join("&")}` : "";
}
