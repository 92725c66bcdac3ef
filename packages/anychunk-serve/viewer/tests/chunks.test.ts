import { afterEach, expect, test, vi } from "vitest";
import { Chunks } from "../src/chunks";
import { imageOf, type NodeJson } from "../src/image";

const ROOT = {
  zarr_format: 3,
  node_type: "array",
  shape: [4, 4],
  data_type: "uint8",
  fill_value: 9,
  attributes: {},
  codecs: [{ name: "bytes" }],
  chunk_grid: { name: "regular", configuration: { chunk_shape: [2, 2] } },
  chunk_key_encoding: { name: "default", configuration: { separator: "/" } },
  dimension_names: ["y", "x"],
} as unknown as NodeJson;
const image = imageOf("a.npy", "", ROOT);

afterEach(() => vi.unstubAllGlobals());

function serve(answer: (url: string) => Response): { urls: string[]; signals: AbortSignal[] } {
  const seen = { urls: [] as string[], signals: [] as AbortSignal[] };
  vi.stubGlobal("fetch", (url: string, { signal }: { signal: AbortSignal }) => {
    seen.urls.push(url);
    seen.signals.push(signal);
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error));
      setTimeout(() => resolve(answer(url)), 5);
    });
  });
  return seen;
}

test("a chunk is asked for once, and kept", async () => {
  const seen = serve(() => new Response(Uint8Array.of(1, 2, 3, 4)));
  const chunks = new Chunks(image, "zarr-raw");
  const signal = new AbortController().signal;
  const [a, b] = await Promise.all([chunks.read(0, [0, 1], signal), chunks.read(0, [0, 1], signal)]);
  expect(a).toBe(b);
  expect(await chunks.read(0, [0, 1], signal)).toBe(a);
  expect(Array.from(a.data)).toEqual([1, 2, 3, 4]);
  expect(seen.urls).toEqual(["/zarr-raw/a.npy/c/0/1"]);
});

test("a request ends when the last who waits gives up", async () => {
  const seen = serve(() => new Response(Uint8Array.of(1, 2, 3, 4)));
  const chunks = new Chunks(image, "zarr-raw");
  const [first, second] = [new AbortController(), new AbortController()];
  const reads = [chunks.read(0, [0, 0], first.signal), chunks.read(0, [0, 0], second.signal)];
  first.abort();
  expect(seen.signals[0]!.aborted).toBe(false);
  second.abort();
  expect(seen.signals[0]!.aborted).toBe(true);
  for (const result of await Promise.allSettled(reads)) expect(result.status).toBe("rejected");
  const again = await chunks.read(0, [0, 0], new AbortController().signal);
  expect(again.data).toHaveLength(4);
});

test("absent is fill; any other failure is the server's line", async () => {
  const signal = new AbortController().signal;
  serve((url) =>
    url.endsWith("0/0")
      ? new Response("", { status: 404 })
      : new Response('{"error": "a.npy chunk 1: cut short"}', { status: 502 }),
  );
  const chunks = new Chunks(image, "zarr-raw");
  expect(Array.from((await chunks.read(0, [0, 0], signal)).data)).toEqual([9, 9, 9, 9]);
  await expect(chunks.read(0, [1, 1], signal)).rejects.toThrow("a.npy chunk 1: cut short");
});
