import { afterEach, expect, test, vi } from "vitest";
import { ALL, Catalog } from "../src/catalog";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Answer each question for the list with the next of these numbers of files; the last one is complete. */
function serve(counts: number[]): { asked: number } {
  const seen = { asked: 0 };
  vi.stubGlobal("fetch", () => {
    const number = Math.min(seen.asked++, counts.length - 1);
    const total = counts[number]!;
    const files = Array.from({ length: total }, (_, i) => ({ name: `${i}.tif`, images: [] }));
    const listed = number === counts.length - 1;
    return Promise.resolve(
      new Response(
        JSON.stringify({ files, offset: 0, total, matching: total, pending: 0, listed, revision: 1 }),
      ),
    );
  });
  return seen;
}

test("the list is read again until the server has found all files", async () => {
  vi.useFakeTimers();
  const seen = serve([0, 2, 3]);
  const catalog = new Catalog();
  // as the list of files does when it draws its rows
  catalog.onchange = () => catalog.want(0, Math.max(0, catalog.matching - 1));
  await catalog.ask(ALL);
  expect([catalog.total, catalog.isListed]).toEqual([0, false]);
  await vi.advanceTimersByTimeAsync(1000);
  expect([catalog.total, catalog.isListed]).toEqual([2, false]);
  await vi.advanceTimersByTimeAsync(1000);
  expect([catalog.total, catalog.isListed]).toEqual([3, true]);
  expect(catalog.entry(2)?.name).toBe("2.tif");
  await vi.advanceTimersByTimeAsync(10_000);
  expect(seen.asked).toBe(3);
});
