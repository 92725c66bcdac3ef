/** What the state means for an open image: its selection, contrast, colours, sliders. */

import { colours } from "./colormap";
import { automatic, sorted } from "./contrast";
import type { Display } from "./display";
import { Grids } from "./grid";
import { bandCount, described, statedLimits, type Described } from "./described";
import { assertDrawn, imageOf, otherAxes, type Image, type NodeJson } from "./image";
import { PLAIN, type ChannelPaint, type Kind, type Painting } from "./paint";
import { along } from "./coordinates";
import type { Ink } from "./readout";
import { crossOf, depthAxis, slabAround } from "./volume";
import type { Slider } from "./sliders";
import { json, oneFile, versionQuery, zarrUrl } from "./api";
import type { ChannelChange, Limits, State } from "./state";
import { Tiles, type Selection } from "./tiles";
import type { Point } from "./view";

/** Uncompressed chunks: on one machine compression only costs time. */
export const PREFIX = "zarr-raw";
/** The same, with levels that have only values of the image itself: labels must not be averaged. */
const LABELS = "zarr-labels";

export const prefixOf = ({ drawing }: State): string => (drawing === "labels" ? LABELS : PREFIX);

/** An image that is open. */
export interface Opened {
  /** Where it is read from. */
  prefix: string;
  image: Image;
  tiles: Tiles;
  grids: Grids;
}

/** How an image is drawn now: as its file says, or as the user chose. */
export type Mode = "file" | "colour" | "one" | "channels" | "labels";

/** Planes that are read ahead while a slider plays. */
const AHEAD = 3;

/** A channel as it is drawn now. */
export interface ShownChannel {
  band: number;
  label: string;
  /** RRGGBB. */
  color: string;
  isOn: boolean;
  gamma: number;
  inverted: boolean;
  /** null until they are known. */
  limits: Limits | null;
}

/** Open an image; a version that the caller knows saves a request. */
export async function openImage(
  file: string,
  path: string,
  known: string | null,
  signal: AbortSignal,
  prefix = PREFIX,
): Promise<Opened> {
  // metadata and chunks of the same version: those of another one would not fit
  const version = known ?? (await oneFile(file, signal)).version ?? null;
  const root = await json<NodeJson>(`${zarrUrl(file, "", prefix)}/zarr.json${versionQuery(version)}`, signal);
  const image = imageOf(file, path, root, version);
  assertDrawn(image);
  return { prefix, image, tiles: new Tiles(image, prefix), grids: new Grids(image) };
}

/** What the state means for an open image. */
export class Showing {
  readonly opened: Opened;
  readonly described: Described;
  /** Sorted values by band, of the plane that was shown when they were first needed. */
  readonly #samples = new Map<string, Float64Array>();
  #painting: Painting | null = null;
  #paintingKey = "";

  constructor(opened: Opened) {
    this.opened = opened;
    this.described = described(opened.image);
  }

  get image(): Image {
    return this.opened.image;
  }

  bandCount(): number {
    return bandCount(this.image);
  }

  mode(state: State): Mode {
    if (state.drawing === "channels" && this.image.band !== null) return "channels";
    if (state.drawing === "labels") return "labels";
    const count = this.bandCount();
    if (state.bands && state.bands.every((band) => band < count))
      return state.bands.length === 3 ? "colour" : "one";
    const { model } = this.described;
    if (model === "channels") return "channels";
    return model === "grey" || (model === "palette" && state.map !== null && state.map !== "palette")
      ? "one"
      : "file";
  }

  /** Return what samples are painted by. */
  kind(state: State): Kind {
    const mode = this.mode(state);
    if (mode === "channels" || mode === "labels") return mode;
    if (mode === "colour") return "rgb";
    const { model } = this.described;
    return mode === "one" || model === "grey" || model === "channels" ? "map" : model;
  }

  /** Return the bands that the colours are made from. */
  bands(state: State): number[] {
    const mode = this.mode(state);
    if (mode === "channels") return this.channels(state).flatMap(({ band, isOn }) => (isOn ? [band] : []));
    const given = state.bands?.every((band) => band < this.bandCount()) ? state.bands : null;
    if (mode === "labels") return [(given ?? this.described.bands)[0]!];
    return given ?? (mode === "one" ? [this.described.bands[0]!] : this.described.bands);
  }

  /** Whether the alpha band is drawn: not where the user looks at one band. */
  #alpha(state: State): Described["alpha"] {
    const mode = this.mode(state);
    const isOwn = mode === "file" || mode === "colour" || (mode === "one" && state.bands === null);
    return isOwn && !state.opaque ? this.described.alpha : null;
  }

  #hasMask(state: State): boolean {
    return !state.fill && this.described.valid !== null;
  }

  selection(state: State): Selection {
    const shape = this.image.levels[0]!.shape;
    const others = otherAxes(this.image);
    const at = shape.map((length, axis) => {
      if (!others.includes(axis)) return 0;
      const given = state.at[this.image.axes[axis]!.name] ?? Math.floor(length / 2);
      return Math.min(length - 1, given);
    });
    const alpha = this.#alpha(state);
    const bands = [...this.bands(state), ...(alpha ? [alpha.band] : [])];
    const depth = state.slab > 1 ? depthAxis(this.image) : null;
    const slab = depth === null ? null : slabAround(depth, at[depth]!, state.slab, shape[depth]!);
    return { at, bands, hasMask: this.#hasMask(state), slab };
  }

  /** Return what to read ahead while the slider of an axis plays: its next planes. */
  nextSelections(state: State, playing: string | null): Selection[] {
    const slider = this.sliders(state).find(({ name }) => name === playing);
    if (!slider) return [];
    return Array.from({ length: Math.min(AHEAD, slider.length - 1) }, (_, i) => {
      const value = (slider.value + 1 + i) % slider.length;
      return this.selection({ ...state, ...this.moved(state, slider.name, value) });
    });
  }

  /** Return the element of level 0 under a pixel, along each axis. */
  position(state: State, at: Point): number[] {
    const { image } = this;
    const { at: others, bands } = this.selection(state);
    return others.map((value, axis) => {
      if (axis === image.y) return at.y;
      if (axis === image.x) return at.x;
      return axis === image.band ? (bands[0] ?? 0) : value;
    });
  }

  fill(state: State): number | null {
    return state.fill ? null : this.image.fill;
  }

  /** Return sorted values of the bands shown, from the low level, or null until it has arrived. */
  sample(state: State): Float64Array[] | null {
    const bands = this.bands(state);
    const key = (band: number): string => `${band};${this.fill(state)}`;
    if (!bands.every((band) => this.#samples.has(key(band)))) {
      const planes = this.opened.tiles.low(this.selection(state));
      if (!planes) return null;
      bands.forEach((band, i) => {
        if (this.#samples.has(key(band))) return;
        const found = sorted(planes[i]!, this.fill(state));
        if (planes[i]!.length) this.#samples.set(key(band), found);
      });
    }
    return bands.map((band) => this.#samples.get(key(band)) ?? new Float64Array());
  }

  /** Make the automatic contrast follow from the plane that is shown now. */
  resample(): void {
    this.#samples.clear();
  }

  /** Return the limits that samples suggest, of each band or of all together. */
  automatic(state: State): Limits[] | null {
    const values = this.sample(state);
    if (!values) return null;
    if (this.mode(state) === "channels" || state.apart) return values.map(automatic);
    const together = automatic(values.length === 1 ? values[0]! : sorted(values, null));
    return values.map(() => together);
  }

  /** Return the limits that hold unless the user sets others; null until they are known. */
  ownLimits(state: State): Limits[] | null {
    const bands = this.bands(state);
    const stated = bands.map((band) => statedLimits(this.described, band, this.image.dtype));
    if (!state.apart && stated.every((limits) => limits !== null)) return stated;
    const found = this.automatic(state);
    return found && (state.apart ? found : stated.map((limits, i) => limits ?? found[i]!));
  }

  limits(state: State): Limits[] | null {
    const kind = this.kind(state);
    if (kind === "palette" || kind === "labels") return [[0, 255]];
    const own = (): Limits[] | null => this.ownLimits(state);
    const bands = this.bands(state);
    if (this.mode(state) === "channels") {
      const given = bands.map((band) => state.channels[band]?.limits);
      if (given.every((limits) => limits !== undefined)) return given;
      const found = own();
      return found && given.map((limits, i) => limits ?? found[i]!);
    }
    if (state.limits) return bands.map((_, i) => state.limits![i] ?? state.limits![0]!);
    return own();
  }

  /** Return all channels, as the file states and the user changed them. */
  channels(state: State): ShownChannel[] {
    return this.described.channels.map((channel) => {
      const change = state.channels[channel.band] ?? {};
      return {
        band: channel.band,
        label: channel.label,
        color: change.color ?? channel.color,
        isOn: change.isOn ?? channel.active,
        gamma: change.gamma ?? 1,
        inverted: channel.inverted,
        limits: change.limits ?? statedLimits(this.described, channel.band, this.image.dtype),
      };
    });
  }

  /** Return the change of state that changes channels; null: back to what the file states. */
  channelsChanged(state: State, changes: Record<number, ChannelChange | null>): Partial<State> {
    const channels = { ...state.channels };
    for (const [band, change] of Object.entries(changes)) {
      const old = channels[Number(band)];
      if (change) channels[Number(band)] = { ...old, ...change };
      else delete channels[Number(band)];
    }
    return { channels };
  }

  /** Return the same object until something in it changes: tiles compare it to know if they are current. */
  painting(state: State): Painting | null {
    const limits = this.limits(state);
    if (!limits) return this.#painting;
    const kind = this.kind(state);
    const shown = this.channels(state).filter(({ isOn }) => isOn);
    const channels: ChannelPaint[] =
      kind === "channels"
        ? shown.map(({ color, gamma, inverted }) => ({ color: parts(color), gamma, inverted }))
        : [];
    const painting = {
      ...PLAIN,
      kind,
      limits,
      inverted: kind !== "channels" && this.mode(state) !== "colour" && this.described.inverted,
      palette: kind === "palette" ? this.described.palette : null,
      channels,
      alpha: this.#alpha(state),
      valid: this.#hasMask(state) ? this.described.valid : null,
      fill: this.fill(state),
    };
    const key = JSON.stringify([painting, state.map, state.reversed, state.painter]);
    if (key !== this.#paintingKey || !this.#painting) {
      this.#painting = { ...painting, map: colours(state.map ?? "gray", state.reversed) };
      this.#paintingKey = key;
    }
    return this.#painting;
  }

  sliders(state: State): Slider[] {
    const { image } = this;
    const { at } = this.selection(state);
    const shape = image.levels[0]!.shape;
    const cross = crossOf(image, state, at);
    const beside = state.planes && depthAxis(image) !== null ? [image.x, image.y] : [];
    const moved = [...beside, ...otherAxes(image)].map((axis) => ({ axis, value: cross[axis]! }));
    const mode = this.mode(state);
    if (image.band !== null && (mode === "one" || mode === "labels"))
      moved.unshift({ axis: image.band, value: this.bands(state)[0]! });
    return moved
      .filter(({ axis }) => shape[axis]! > 1)
      .map(({ axis, value }) => ({
        name: image.axes[axis]!.name,
        value,
        length: shape[axis]!,
        note: axis === image.band ? (this.bandNames()[value] ?? null) : along(image, axis, value),
      }));
  }

  /** Return the change of state that moves a slider. */
  moved(state: State, name: string, value: number): Partial<State> {
    const isBand = this.image.band !== null && this.image.axes[this.image.band]!.name === name;
    return isBand ? { bands: [value] } : { at: { ...state.at, [name]: value } };
  }

  bandNames(): string[] {
    return this.described.channels.map(({ label }) => label);
  }

  /** Return the name and length of the axis that a volume is deep along. */
  #depth(): Display["depth"] {
    const axis = depthAxis(this.image);
    return axis === null
      ? null
      : { name: this.image.axes[axis]!.name, length: this.image.levels[0]!.shape[axis]! };
  }

  /** Return how the values of the bands read out are coloured. */
  inks(state: State): Ink[] {
    const kind = this.kind(state);
    if (kind === "labels") return ["label"];
    if (kind === "rgb") return ["is-red", "is-green", "is-blue", ""];
    if (kind !== "channels") return [];
    return this.channels(state).flatMap(({ isOn, color }) => (isOn ? [`#${color}` as const] : []));
  }

  display(state: State): Display {
    const kind = this.kind(state);
    return {
      image: this.image,
      mode: this.mode(state),
      kind,
      model: this.described.model,
      bands: this.bands(state),
      bandNames: this.bandNames(),
      channels: this.channels(state),
      map: state.map ?? "gray",
      reversed: state.reversed,
      isAutomatic: state.limits === null,
      isApart: state.apart,
      limits: this.limits(state) ?? [],
      automatic: this.automatic(state),
      samples: this.sample(state),
      fill: this.image.fill,
      hasMask: this.image.mask !== null,
      isFillShown: state.fill,
      depth: this.#depth(),
      hasPlanes: state.planes,
      slab: state.slab,
      hasAlpha: this.described.alpha !== null,
      isOpaque: state.opaque,
    };
  }
}

const parts = (color: string): [number, number, number] =>
  [0, 2, 4].map((i) => Number.parseInt(color.slice(i, i + 2), 16) / 255) as [number, number, number];
