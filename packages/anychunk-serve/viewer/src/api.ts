/** Requests to the server, and its answers. */

import type { AsyncReadable, GetOptions } from "zarrita";
import { tokenHeaders } from "./token";

export interface ImageEntry {
  /** Below /zarr/<name>/; "" where the file itself is the image. */
  path: string;
  title: string;
  shape: number[];
  axes: string[];
  dtype: string;
  levels: number;
  thumbnail: string | null;
}

export interface FileEntry {
  name: string;
  title: string;
  format: string | null;
  bytes: number | null;
  /** As ISO 8601. */
  modified?: string | null;
  crs?: string | null;
  error: string | null;
  /** Changes whenever the file does; null: not known yet. */
  version?: string | null;
  /** The first few in a list; all of them in the answer about one file. */
  images: ImageEntry[];
  image_count?: number;
  /** Arrays that are not images. */
  arrays?: ImageEntry[];
  array_count?: number;
  /** The server has not opened it yet. */
  pending?: boolean;
}

/** A window of the list of files. */
export interface FileWindow {
  files: FileEntry[];
  offset: number;
  /** Files that are served. */
  total: number;
  /** Files that match the question. */
  matching: number;
  /** Files that the server has not opened yet. */
  pending: number;
  /** Whether the server has found all files; false while it searches for the first time. */
  listed?: boolean;
  revision: number;
}

export interface Folder {
  name: string;
  path: string;
  /** Files in it and below. */
  all: number;
  /** Folders in it. */
  folders: number;
}

export interface Changes {
  revision: number;
  reset: boolean;
  changed: string[];
  removed: string[];
}

export interface ServerAnswer {
  /** Web pages that may read what is served; "*": any. */
  origins: string[];
  token: boolean;
}

export interface GridAnswer {
  shape: number[];
  chunk_shape?: number[] | null;
  /** Chunk borders along each axis, where chunks differ in shape. */
  edges?: number[][] | null;
}

export interface Codec {
  name: string;
  configuration?: Record<string, unknown>;
}

export interface ChunkAnswer {
  chunk: number[];
  shape: number[];
  origin: number[];
  codecs: Codec[];
  source: string | null;
  parts: [offset: number, length: number][];
  bytes: number | null;
  stored: boolean;
  computed: boolean;
}

/** HTTP status of a request for a version that the file no longer has. */
export const CHANGED = 409;

/** A failure that the server reports; its message is the server's line. */
export class ServerError extends Error {
  readonly status: number;
  constructor(status: number, line: string) {
    super(line);
    this.status = status;
  }
}

/** Escape the name of a file as one segment of a url. */
export const escaped = (name: string): string => encodeURIComponent(name);

/** Escape a path inside a file, segment by segment. */
export const escapedPath = (path: string): string => path.split("/").map(encodeURIComponent).join("/");

/** Return the query that names a version, so that two versions of a file are never mixed. */
export const versionQuery = (version: string | null): string =>
  version === null ? "" : `?version=${encodeURIComponent(version)}`;

export const zarrUrl = (file: string, path = "", prefix = "zarr"): string =>
  `/${prefix}/${escaped(file)}${path ? `/${escapedPath(path)}` : ""}`;

async function answer(url: string, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { ...(signal ? { signal } : {}), headers: tokenHeaders() });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ServerError(0, "no answer from the server; is anychunk serve still running?");
  }
  return response;
}

async function failure(response: Response): Promise<ServerError> {
  const text = await response.text().catch(() => "");
  let line = text.slice(0, 300) || response.statusText;
  try {
    const body = JSON.parse(text) as { error?: unknown };
    if (typeof body.error === "string") line = body.error;
  } catch {
    // not JSON: use the text
  }
  return new ServerError(response.status, line);
}

export async function json<T>(url: string, signal?: AbortSignal): Promise<T> {
  const response = await answer(url, signal);
  if (!response.ok) throw await failure(response);
  return (await response.json()) as T;
}

/** The keys of one array: absent ones (404) are undefined, all other failures throw. */
export class ArrayStore implements AsyncReadable {
  readonly url: string;
  readonly #query: string;
  constructor(url: string, version: string | null) {
    this.url = url;
    this.#query = versionQuery(version);
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    const response = await answer(this.url + key + this.#query, options?.signal);
    if (response.status === 404) return undefined;
    if (!response.ok) throw await failure(response);
    return new Uint8Array(await response.arrayBuffer());
  }
}

export interface Question {
  search: string;
  /** Only files below this folder; null: all. */
  within: string | null;
  sort: string;
}

/** Return a window of the list of files. */
export async function listFiles(
  { search, within, sort }: Question,
  offset: number,
  limit: number,
  signal?: AbortSignal,
): Promise<FileWindow> {
  const query = new URLSearchParams({ offset: String(offset), limit: String(limit) });
  if (search) query.set("search", search);
  if (within !== null) query.set("within", within);
  if (sort !== "name") query.set("sort", sort);
  return json<FileWindow>(`/api/files?${query.toString()}`, signal);
}

export const oneFile = (name: string, signal?: AbortSignal): Promise<FileEntry> =>
  json<FileEntry>(`/api/files/${escaped(name)}`, signal);

export const foldersIn = async (path: string): Promise<Folder[]> =>
  (await json<{ folders: Folder[] }>(`/api/folders?path=${encodeURIComponent(path)}`)).folders;

export const changesSince = (revision: number): Promise<Changes> =>
  json<Changes>(`/api/changes?since=${revision}`);

export const aboutServer = (): Promise<ServerAnswer> => json<ServerAnswer>("/api/server");
