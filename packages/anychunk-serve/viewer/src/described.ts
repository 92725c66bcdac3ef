/** How the file says that an image is drawn: the attribute `anychunk.display`. Pure. */

import type { Image } from "./image";
import type { Limits } from "./state";

export type Model = "grey" | "rgb" | "cmyk" | "ycbcr" | "palette" | "channels";

export interface Alpha {
  band: number;
  /** Whether colours are already multiplied by it. */
  associated: boolean;
  /** The samples that are transparent and opaque. */
  range: Limits;
}

export interface Palette {
  /** The sample of the first colour. */
  first: number;
  /** Consecutive (red, green, blue, alpha). */
  colours: Uint8Array;
}

export interface Channel {
  band: number;
  label: string;
  /** RRGGBB. */
  color: string;
  /** null: the file states none. */
  window: Limits | null;
  active: boolean;
  inverted: boolean;
}

export interface Described {
  model: Model;
  /** The bands that it is drawn from; of a composite, the first active one. */
  bands: number[];
  /** Black and white, for all bands or for each; may be empty. */
  ranges: Limits[];
  inverted: boolean;
  palette: Palette | null;
  alpha: Alpha | null;
  /** The value of valid pixels in the mask; null: there is no mask. */
  valid: number | null;
  /** As the TIFF tag Orientation has it; 1: as it is stored. */
  orientation: number;
  /** One for each band. */
  channels: Channel[];
}

const MODELS: readonly Model[] = ["grey", "rgb", "cmyk", "ycbcr", "palette", "channels"];
/** Bands that each model needs. */
const NEEDED: Record<Model, number> = { grey: 1, rgb: 3, cmyk: 4, ycbcr: 3, palette: 1, channels: 1 };
/** Colours of channels that have none, as in the server's thumbnails. */
const COLORS = ["0000FF", "00FF00", "FF0000", "00FFFF", "FF00FF", "FFFF00"];
/** A palette of more colours than a 16-bit sample can name is not one. */
const MOST_COLOURS = 65536;

type Json = Record<string, unknown>;
const object = (value: unknown): Json => (typeof value === "object" && value !== null ? (value as Json) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function pair(value: unknown): Limits | null {
  const [low, high] = list(value);
  const isPair = list(value).length === 2 && Number.isFinite(low) && Number.isFinite(high);
  return isPair ? [low as number, high as number] : null;
}

export const bandCount = (image: Image): number =>
  image.band === null ? 1 : image.levels[0]!.shape[image.band]!;

/** Return how an image is drawn; what is missing or malformed is as for a grey image. */
export function described(image: Image): Described {
  const given = object(image.attributes["anychunk.display"]);
  const count = bandCount(image);
  const isBand = (value: unknown): value is number =>
    Number.isInteger(value) && (value as number) >= 0 && (value as number) < count;
  const channels = channelsOf(image, given, count);
  const bands = list(given["bands"]).filter(isBand);
  const palette = paletteOf(given);
  let model = MODELS.find((name) => name === given["model"]) ?? (hasOmero(image) ? "channels" : "grey");
  if (model === "rgb" && !bands.length && count >= 3) bands.push(0, 1, 2);
  if (model === "channels") bands.splice(0, bands.length, channels.find(({ active }) => active)?.band ?? 0);
  else if (!bands.length) bands.push(0);
  if (bands.length < NEEDED[model] || (model === "palette" && !palette)) model = "grey";
  const alpha = object(given["alpha"]);
  return {
    model,
    bands: bands.slice(0, NEEDED[model]),
    ranges: list(given["range"])
      .map(pair)
      .filter((range) => range !== null),
    inverted: given["inverted"] === true,
    palette: model === "palette" ? palette : null,
    alpha: isBand(alpha["band"])
      ? {
          band: alpha["band"],
          associated: alpha["associated"] === true,
          range: pair(alpha["range"]) ?? [0, 255],
        }
      : null,
    valid: image.mask ? Number(object(given["mask"])["valid"] ?? 255) : null,
    orientation: Number(given["orientation"] ?? 1),
    channels,
  };
}

function omeroOf(image: Image): Json[] {
  return list(object(object(image.attributes["ome"])["omero"])["channels"]).map(object);
}

/** Whether a Zarr store that is not one of ours states channels. */
const hasOmero = (image: Image): boolean => image.band !== null && omeroOf(image).length > 1;

function channelsOf(image: Image, given: Json, count: number): Channel[] {
  const omero = omeroOf(image);
  const listed = list(given["channels"]).map(object);
  const isStated = listed.length > 0;
  const ofBand = (band: number): Json => {
    if (isStated) return listed.find((channel) => channel["band"] === band) ?? { active: false };
    const { window, ...rest } = omero[band] ?? {};
    const { start, end } = object(window);
    return { ...rest, window: [start, end] };
  };
  const all = Array.from({ length: count }, (_, band) => ofBand(band));
  const isAlone = all.filter((channel) => channel["active"] !== false).length === 1;
  const names = list(image.attributes["anychunk.bands"]).map((band) => object(band)["name"]);
  return all.map((channel, band) => {
    const { color, label, window } = channel;
    const isColor = typeof color === "string" && /^[0-9A-Fa-f]{6}$/.test(color);
    const name = [label, names[band]].find((text) => typeof text === "string" && text !== "");
    const active = channel["active"] !== false;
    return {
      band,
      label: typeof name === "string" ? name : `band ${band}`,
      color: isColor ? color.toUpperCase() : isAlone && active ? "FFFFFF" : COLORS[band % COLORS.length]!,
      window: pair(window),
      active,
      inverted: channel["inverted"] === true,
    };
  });
}

function paletteOf(given: Json): Palette | null {
  const { first, colors } = object(given["palette"]);
  const rows = list(colors).map((row) => list(row).map(Number));
  const isTable = rows.length > 0 && rows.length <= MOST_COLOURS;
  if (!isTable || !rows.every((row) => (row.length === 3 || row.length === 4) && row.every(Number.isFinite)))
    return null;
  const colours = new Uint8Array(4 * rows.length);
  const byte = (value: number): number => Math.min(255, Math.max(0, Math.floor(value + 0.5)));
  rows.forEach(([red, green, blue, alpha], i) =>
    colours.set([byte(red!), byte(green!), byte(blue!), byte(alpha ?? 255)], 4 * i),
  );
  return { first: Number.isInteger(first) ? (first as number) : 0, colours };
}

/** Return the limits of a band that the file states or that follow from its type; null: to be found from samples. */
export function statedLimits(from: Described, band: number, dtype: string): Limits | null {
  const window = from.channels[band]?.window;
  if (window) return window;
  const number = Math.max(0, from.bands.indexOf(band));
  const range = from.ranges[Math.min(number, from.ranges.length - 1)];
  if (range) return range;
  return dtype === "uint8" ? [0, 255] : dtype === "bool" ? [0, 1] : null;
}
