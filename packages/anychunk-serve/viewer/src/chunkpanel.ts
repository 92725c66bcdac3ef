/** One chunk: its codecs, its bytes, and where they are in the file. */

import { element } from "./element";
import { bytesText, shapeText } from "./files";
import type { ChunkAnswer, Codec } from "./api";

const ITEM_BYTES: Record<string, number> = { "8": 1, "16": 2, "32": 4, "64": 8 };
/** Most byte ranges of one chunk that are listed. */
const LISTED = 12;

const itemBytes = (dtype: string): number => ITEM_BYTES[/\d+/.exec(dtype)?.[0] ?? "8"] ?? 1;

/** Return the short name of a codec: the last part of a url. */
export const codecName = (name: string): string => name.split("/").at(-1) ?? name;

function codecRow(codec: Codec): HTMLElement {
  const options = Object.entries(codec.configuration ?? {});
  const text = (value: unknown): string => {
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    return shown.length > 60 ? `${shown.slice(0, 57)}…` : shown;
  };
  return element(
    "li",
    { className: "codec", title: codec.name },
    element("span", { className: "codec-name" }, codecName(codec.name)),
    ...options
      .slice(0, 8)
      .map(([name, value]) =>
        element(
          "span",
          { className: "codec-option" },
          element("span", { className: "quiet" }, `${name} `),
          text(value),
        ),
      ),
  );
}

const fact = (name: string, ...value: (Node | string)[]): HTMLElement[] => [
  element("dt", {}, name),
  element("dd", {}, ...value),
];

const grouped = (n: number): string => n.toLocaleString("en").replaceAll(",", " ");

export function chunkPanel(chunk: ChunkAnswer, dtype: string, level: number): HTMLElement {
  const raw = chunk.shape.reduce((a, b) => a * b, itemBytes(dtype));
  const bytes = chunk.bytes ?? chunk.parts.reduce((sum, [, length]) => sum + length, 0);
  const share = raw > 0 ? Math.min(1, bytes / raw) : 0;
  const ranges = chunk.parts
    .slice(0, LISTED)
    .map(([offset, length]) =>
      element(
        "li",
        {},
        `${grouped(offset)} … ${grouped(offset + length)}`,
        element("span", { className: "quiet" }, `  ${bytesText(length)}`),
      ),
    );
  if (chunk.parts.length > LISTED)
    ranges.push(element("li", { className: "quiet" }, `and ${chunk.parts.length - LISTED} more`));
  const state = chunk.computed
    ? "computed by this server from a finer level"
    : chunk.stored
      ? ""
      : "absent from the file; reads as fill";
  return element(
    "div",
    { className: "chunk" },
    element(
      "div",
      { className: "chunk-title" },
      element("span", { className: "chunk-place" }, `(${chunk.chunk.join(", ")})`),
      element("span", { className: "quiet" }, ` of level ${level}`),
    ),
    state ? element("p", { className: "note" }, state) : null,
    element(
      "dl",
      { className: "facts" },
      ...fact("Shape", shapeText(chunk.shape)),
      ...fact("Starts at", chunk.origin.join(", ")),
      ...(chunk.source ? fact("In", chunk.source) : []),
    ),
    chunk.stored && !chunk.computed
      ? element(
          "div",
          { className: "chunk-bytes" },
          element(
            "div",
            { className: "meter" },
            element("span", { style: { width: `${(100 * share).toFixed(1)}%` } }),
          ),
          element(
            "div",
            { className: "meter-text" },
            element("strong", {}, bytesText(bytes)),
            ` stored of ${bytesText(raw)} decoded`,
            raw > bytes && bytes > 0 ? ` · ${(raw / bytes).toFixed(1)} : 1` : "",
          ),
        )
      : null,
    ranges.length
      ? element(
          "section",
          {},
          element("h3", {}, ranges.length > 1 ? "Byte ranges" : "Byte range"),
          element("ul", { className: "ranges" }, ...ranges),
        )
      : null,
    chunk.codecs.length
      ? element(
          "section",
          {},
          element("h3", {}, "Codecs, in the order of encoding"),
          element("ol", { className: "codecs" }, ...chunk.codecs.map(codecRow)),
        )
      : null,
  );
}
