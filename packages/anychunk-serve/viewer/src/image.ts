/** An image as its Zarr metadata describes it: axes, levels, transformations. Pure. */

import type { Box } from "./view";

export interface NodeJson {
  node_type: "array" | "group";
  attributes?: Record<string, unknown>;
  shape?: number[];
  data_type?: string | { name: string };
  chunk_grid?: { name: string; configuration: { chunk_shape: number[] } };
  dimension_names?: (string | null)[];
  fill_value?: unknown;
  consolidated_metadata?: { metadata: Record<string, NodeJson> };
}

export interface Axis {
  name: string;
  /** As in OME-Zarr: micrometer … */
  unit: string | null;
}

export interface Level {
  /** Path inside the file. */
  path: string;
  metadata: NodeJson;
  shape: number[];
  chunks: number[];
  /** Elements of level 0 that one element covers, along each axis. */
  factor: number[];
  /** Position of the outer corner of its first element, in elements of level 0. */
  corner: number[];
}

export interface Image {
  file: string;
  /** Of the file; null: the server tells none. */
  version: string | null;
  path: string;
  title: string;
  axes: Axis[];
  /** Index of the y and the x axis. */
  y: number;
  x: number;
  /** Index of the band axis, if there is one. */
  band: number | null;
  dtype: string;
  levels: Level[];
  attributes: Record<string, unknown>;
  /** Size of an element and centre of the first one, along each axis, in its unit. */
  scale: number[];
  translation: number[];
  /** The value of missing samples; null if the image states none. */
  fill: number | null;
  /** The mask beside it, of the same levels, as an image of axes y and x. */
  mask: Image | null;
  /** Where it lies among the pixels that views count in; null: those are its own, from 0. */
  extent: Box | null;
  /** WKT of its coordinate reference system. */
  crs: string | null;
}

/** An image that cannot be shown; the message says why. */
export class Unshowable extends Error {
  /** Its metadata, if that could be read. */
  readonly image: Image | null;
  constructor(line: string, image: Image | null = null) {
    super(line);
    this.image = image;
  }
}

const BANDS = ["band", "c", "channel"];
export const DRAWN = [
  "bool",
  "int8",
  "uint8",
  "int16",
  "uint16",
  "int32",
  "uint32",
  "int64",
  "uint64",
  "float16",
  "float32",
  "float64",
];

type Json = Record<string, unknown>;
const object = (value: unknown): Json => (typeof value === "object" && value !== null ? (value as Json) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

export function imageOf(file: string, path: string, root: NodeJson, version: string | null = null): Image {
  const members = root.consolidated_metadata?.metadata ?? {};
  const node = path === "" ? root : members[path];
  if (!node) throw new Unshowable(`${file}: no image at ${path || "/"}`);
  const multiscale = object(list(object(node.attributes?.["ome"])["multiscales"])[0]);
  const below = (name: string): string => (path ? `${path}/${name}` : name);
  const named = list(multiscale["datasets"]).map((d) => String(object(d)["path"]));
  const paths = node.node_type === "array" ? [path] : named.map(below);
  const arrays = paths.map((p) => ({ path: p, metadata: p === path ? node : members[p] }));
  const known = arrays.filter(
    (a): a is { path: string; metadata: NodeJson } => a.metadata?.node_type === "array",
  );
  const first = known[0]?.metadata;
  if (!first) throw new Unshowable(`${file}: ${path || "/"} has no arrays`);

  const shape = first.shape ?? [];
  const axes = axesOf(first, list(multiscale["axes"]));
  const names = axes.map((axis) => axis.name);
  const steps = known.map((_, i) => transform(multiscale, i, shape.length));
  const origin = steps[0]!;
  const levels = known.map(({ path: own, metadata }, i) => levelOf(own, metadata, shape, origin, steps[i]!));
  const { y, x } = planeAxes(names, shape.length, file);
  const band = names.findIndex((name, i) => BANDS.includes(name) && i !== y && i !== x);
  const image: Image = {
    file,
    version,
    path,
    title: typeof multiscale["name"] === "string" ? multiscale["name"] : path,
    axes,
    y,
    x,
    band: band < 0 ? null : band,
    dtype: dtypeOf(first),
    levels,
    attributes: { ...node.attributes },
    scale: origin.scale,
    translation: origin.translation,
    fill: nodataOf(first),
    mask: null,
    extent: null,
    crs: crsOf(members, known[0]!.path),
  };
  const maskPath = object(object(node.attributes?.["anychunk.display"])["mask"])["path"];
  if (typeof maskPath === "string") image.mask = maskOf(image, members, maskPath);
  return image;
}

/** Return the path of the folder of a level, with a slash at its end. */
const folderOf = (path: string): string => path.slice(0, path.lastIndexOf("/") + 1);

function crsOf(members: Record<string, NodeJson>, level: string): string | null {
  const wkt = members[`${folderOf(level)}spatial_ref`]?.attributes?.["crs_wkt"];
  return typeof wkt === "string" ? wkt : null;
}

/** Return the mask of an image, or null unless there is one of the same size at each level. */
function maskOf(image: Image, members: Record<string, NodeJson>, name: string): Image | null {
  const levels: Level[] = [];
  for (const level of image.levels) {
    const folder = folderOf(level.path);
    const metadata = members[folder + name];
    const shape = metadata?.shape ?? [];
    const own = [level.shape[image.y], level.shape[image.x]];
    if (metadata?.node_type !== "array" || shape.length !== 2 || shape.some((n, i) => n !== own[i]))
      return null;
    levels.push({
      path: folder + name,
      metadata,
      shape,
      chunks: metadata.chunk_grid?.configuration.chunk_shape ?? shape,
      factor: [level.factor[image.y]!, level.factor[image.x]!],
      corner: [level.corner[image.y]!, level.corner[image.x]!],
    });
  }
  const along = [image.y, image.x];
  const pick = <T>(values: T[]): T[] => along.map((axis) => values[axis]!);
  return {
    ...image,
    axes: pick(image.axes),
    scale: pick(image.scale),
    translation: pick(image.translation),
    y: 0,
    x: 1,
    band: null,
    dtype: dtypeOf(levels[0]!.metadata),
    levels,
    fill: null,
    mask: null,
  };
}

export const dtypeOf = (node: NodeJson): string =>
  typeof node.data_type === "object" ? node.data_type.name : (node.data_type ?? "");

/** Throw `Unshowable` if values of this data type cannot be drawn. */
export function assertDrawn(image: Image): void {
  if (DRAWN.includes(image.dtype)) return;
  const kind = image.dtype.startsWith("complex")
    ? "complex values have no single colour"
    : image.dtype.includes("string") || image.dtype.includes("utf") || image.dtype.includes("bytes")
      ? "text has no colours"
      : "browsers do not support this type";
  throw new Unshowable(`${image.dtype} is not drawn: ${kind}; read it in Python, see “Open in”`, image);
}

function axesOf(array: NodeJson, described: unknown[]): Axis[] {
  const shape = array.shape ?? [];
  return shape.map((_, i) => {
    const axis = described.length === shape.length ? object(described[i]) : {};
    const given = axis["name"];
    const name = typeof given === "string" ? given : (array.dimension_names?.[i] ?? `dim_${i}`);
    return { name, unit: typeof axis["unit"] === "string" ? axis["unit"] : null };
  });
}

function planeAxes(names: string[], ndim: number, file: string): { y: number; x: number } {
  if (names.includes("y") && names.includes("x")) return { y: names.indexOf("y"), x: names.indexOf("x") };
  const space = names.flatMap((name, i) => (BANDS.includes(name) ? [] : [i]));
  const [y, x] = space.slice(-2);
  if (y === undefined || x === undefined) {
    throw new Unshowable(
      `${file}: ${ndim === 0 ? "a single number" : `axes ${names.join(", ")}`} have no plane to show`,
    );
  }
  return { y, x };
}

interface Transform {
  scale: number[];
  translation: number[];
  isGiven: boolean;
}

function transform(multiscale: Json, dataset: number, ndim: number): Transform {
  const own = list(object(list(multiscale["datasets"])[dataset])["coordinateTransformations"]);
  let scale = new Array<number>(ndim).fill(1);
  let translation = new Array<number>(ndim).fill(0);
  let isGiven = false;
  for (const step of [...own, ...list(multiscale["coordinateTransformations"])].map(object)) {
    const values = list(step[String(step["type"])]);
    if (values.length !== ndim || !values.every((v) => typeof v === "number" && Number.isFinite(v))) continue;
    const by = values as number[];
    if (step["type"] === "scale") {
      scale = scale.map((v, i) => v * by[i]!);
      translation = translation.map((v, i) => v * by[i]!);
      isGiven = true;
    } else if (step["type"] === "translation") {
      translation = translation.map((v, i) => v + by[i]!);
    }
  }
  return { scale, translation, isGiven };
}

function levelOf(path: string, metadata: NodeJson, full: number[], first: Transform, own: Transform): Level {
  const shape = metadata.shape ?? [];
  const byShape = full.map((n, i) => n / Math.max(1, shape[i] ?? 1));
  const isUsable = first.isGiven && own.isGiven && [...first.scale, ...own.scale].every((v) => v > 0);
  const factor = isUsable ? own.scale.map((v, i) => v / first.scale[i]!) : byShape;
  const corner = factor.map((f, i) =>
    isUsable ? (own.translation[i]! - first.translation[i]!) / first.scale[i]! + 0.5 - f / 2 : 0,
  );
  // products of decimal fractions may miss whole numbers by a rounding error
  const tidy = (v: number): number => (Math.abs(v - Math.round(v)) < 1e-6 ? Math.round(v) : v);
  return {
    path,
    metadata,
    shape,
    chunks: metadata.chunk_grid?.configuration.chunk_shape ?? shape,
    factor: factor.map(tidy),
    corner: corner.map(tidy),
  };
}

/** Return nodata as CF states it; floats of xarray are in `missing_value`, `_FillValue` is base64. */
function nodataOf(array: NodeJson): number | null {
  for (const name of ["missing_value", "_FillValue"]) {
    const value = array.attributes?.[name];
    if (typeof value === "number") return value;
  }
  return array.fill_value === "NaN" ? Number.NaN : null;
}

/** Return the index along an axis of a level that holds an element of level 0. */
export function placeAt(level: Level, axis: number, position: number): number {
  const place = Math.floor((position + 0.5 - level.corner[axis]!) / level.factor[axis]!);
  return Math.min(Math.max(0, place), Math.max(0, (level.shape[axis] ?? 1) - 1));
}

/** Return the axes that have a slider. */
export const otherAxes = (image: Image): number[] =>
  image.axes.map((_, i) => i).filter((i) => i !== image.y && i !== image.x && i !== image.band);
