/** Requests to the server, and its answers. */

import type { AsyncReadable, GetOptions } from "zarrita";

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
  error: string | null;
  images: ImageEntry[];
  /** Arrays that are not images. */
  arrays?: ImageEntry[];
  /** The server had no time to open it yet. */
  pending?: boolean;
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

export const zarrUrl = (file: string, path = "", prefix = "zarr"): string =>
  `/${prefix}/${escaped(file)}${path ? `/${escapedPath(path)}` : ""}`;

async function answer(url: string, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, signal ? { signal } : {});
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
  constructor(url: string) {
    this.url = url;
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    const response = await answer(this.url + key, options?.signal);
    if (response.status === 404) return undefined;
    if (!response.ok) throw await failure(response);
    return new Uint8Array(await response.arrayBuffer());
  }
}

export const listFiles = async (signal?: AbortSignal): Promise<FileEntry[]> =>
  (await json<{ files: FileEntry[] }>("/api/files", signal)).files;

export const oneFile = (name: string): Promise<FileEntry> => json<FileEntry>(`/api/files/${escaped(name)}`);
