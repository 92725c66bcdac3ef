/** What the state means for an open image: its selection, contrast, colours, sliders. */

import { colours } from "./colormap";
import { automatic, sorted } from "./contrast";
import type { Display } from "./display";
import { Grids } from "./grid";
import { assertDrawn, firstBands, imageOf, otherAxes, palette, type Image, type NodeJson } from "./image";
import type { Painting } from "./paint";
import { along } from "./coordinates";
import type { Slider } from "./sliders";
import { json, zarrUrl } from "./api";
import type { Limits, State } from "./state";
import { Tiles, type Selection } from "./tiles";
import type { Point } from "./view";

/** Uncompressed chunks: on one machine compression only costs time. */
export const PREFIX = "zarr-raw";

/** An image that is open. */
export interface Opened {
  image: Image;
  tiles: Tiles;
  grids: Grids;
}

interface Sample {
  values: Float64Array[];
  together: Limits;
  apart: Limits[];
}

export async function openImage(file: string, path: string, signal: AbortSignal): Promise<Opened> {
  const root = await json<NodeJson>(`${zarrUrl(file, "", PREFIX)}/zarr.json`, signal);
  const image = imageOf(file, path, root);
  assertDrawn(image);
  return { image, tiles: new Tiles(image, PREFIX), grids: new Grids(image) };
}

/** What the state means for an open image. */
export class Showing {
  readonly opened: Opened;
  readonly palette: Uint8Array | null;
  /** Values by bands, of the plane that was shown when they were first needed. */
  readonly #samples = new Map<string, Sample>();
  #painting: Painting | null = null;
  #paintingKey = "";

  constructor(opened: Opened) {
    this.opened = opened;
    this.palette = palette(opened.image);
  }

  get image(): Image {
    return this.opened.image;
  }

  bandCount(): number {
    return this.image.band === null ? 1 : this.image.levels[0]!.shape[this.image.band]!;
  }

  bands(state: State): number[] {
    const given = state.bands;
    const count = this.bandCount();
    return given && given.every((band) => band < count) ? given : firstBands(this.image);
  }

  selection(state: State): Selection {
    const shape = this.image.levels[0]!.shape;
    const others = otherAxes(this.image);
    const at = shape.map((length, axis) => {
      if (!others.includes(axis)) return 0;
      const given = state.at[this.image.axes[axis]!.name] ?? Math.floor(length / 2);
      return Math.min(length - 1, given);
    });
    return { at, bands: this.bands(state) };
  }

  /** Return what to read ahead while the slider of an axis plays: its next plane. */
  nextSelection(state: State, playing: string | null): Selection | null {
    const slider = this.sliders(state).find(({ name }) => name === playing);
    if (!slider) return null;
    const value = (slider.value + 1) % slider.length;
    return this.selection({ ...state, ...this.moved(state, slider.name, value) });
  }

  /** Return the element of level 0 under a pixel, along each axis. */
  position(state: State, at: Point): number[] {
    const { image } = this;
    const { at: others, bands } = this.selection(state);
    return others.map((value, axis) => {
      if (axis === image.y) return at.y;
      if (axis === image.x) return at.x;
      return axis === image.band ? bands[0]! : value;
    });
  }

  fill(state: State): number | null {
    return state.fill ? null : this.image.fill;
  }

  /** Return values of these bands from the low level, or null until it has arrived. */
  sample(state: State): Sample | null {
    const selection = this.selection(state);
    const key = `${selection.bands.join()};${this.fill(state)}`;
    const known = this.#samples.get(key);
    if (known) return known;
    const planes = this.opened.tiles.low(selection);
    if (!planes) return null;
    const values = planes.map((band) => sorted(band, this.fill(state)));
    const all = values.length === 1 ? values[0]! : sorted(values, null);
    const sample = { values, together: automatic(all), apart: values.map(automatic) };
    if (planes.some((band) => band.length)) this.#samples.set(key, sample);
    return sample;
  }

  /** Make the automatic contrast follow from the plane that is shown now. */
  resample(): void {
    this.#samples.clear();
  }

  isPalette(state: State): boolean {
    return this.palette !== null && this.bands(state).length === 1 && (state.map ?? "palette") === "palette";
  }

  limits(state: State): Limits[] | null {
    if (this.isPalette(state)) return [[0, 255]];
    const bands = this.bands(state);
    if (state.limits) return bands.map((_, i) => state.limits![i] ?? state.limits![0]!);
    const sample = this.sample(state);
    return sample && (state.apart ? sample.apart : bands.map(() => sample.together));
  }

  /** Return the same object until something in it changes: tiles compare it to know if they are current. */
  painting(state: State): Painting | null {
    const limits = this.limits(state);
    if (!limits) return this.#painting;
    const key = JSON.stringify([limits, state.map, state.reversed, this.fill(state)]);
    if (key !== this.#paintingKey || !this.#painting) {
      const map = this.isPalette(state)
        ? padded(this.palette!)
        : colours(state.map ?? "gray", state.reversed);
      this.#painting = { limits, map, fill: this.fill(state) };
      this.#paintingKey = key;
    }
    return this.#painting;
  }

  sliders(state: State): Slider[] {
    const { image } = this;
    const { at, bands } = this.selection(state);
    const shape = image.levels[0]!.shape;
    const moved = otherAxes(image).map((axis) => ({ axis, value: at[axis]! }));
    if (image.band !== null && bands.length === 1) moved.unshift({ axis: image.band, value: bands[0]! });
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
    const omero = (
      this.image.attributes["ome"] as { omero?: { channels?: { label?: string }[] } } | undefined
    )?.omero;
    return Array.from({ length: this.bandCount() }, (_, i) => omero?.channels?.[i]?.label ?? `band ${i}`);
  }

  display(state: State): Display {
    return {
      image: this.image,
      bands: this.bands(state),
      bandCount: this.bandCount(),
      bandNames: this.bandNames(),
      map: this.isPalette(state) ? "palette" : (state.map ?? "gray"),
      reversed: state.reversed,
      isAutomatic: state.limits === null,
      isApart: state.apart,
      limits: this.limits(state) ?? [],
      samples: this.sample(state)?.values ?? null,
      fill: this.image.fill,
      isFillShown: state.fill,
      hasPalette: this.palette !== null,
    };
  }
}

function padded(table: Uint8Array): Uint8Array {
  const out = new Uint8Array(256 * 3);
  out.set(table.subarray(0, out.length));
  return out;
}
