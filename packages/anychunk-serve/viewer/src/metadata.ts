/** Metadata as a tree, with search. */

import { element } from "./element";

/** Most members of one node that are listed: a node with a million would freeze the page. */
const LISTED = 500;

type Json = unknown;

const isBranch = (value: Json): value is Record<string, Json> | Json[] =>
  typeof value === "object" && value !== null;

/** Whether a value is a short list, which is shown on one line. */
const isLine = (value: Json): boolean =>
  Array.isArray(value) &&
  value.length <= 16 &&
  value.every((v) => !isBranch(v)) &&
  JSON.stringify(value).length <= 80;

/** Return what matches a search, without branches that hold no match; undefined: nothing. Pure. */
export function filtered(value: Json, words: string): Json {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return value;
  const has = (text: string): boolean => text.toLowerCase().includes(wanted);
  if (!isBranch(value)) return has(String(value)) ? value : undefined;
  if (isLine(value)) return has(JSON.stringify(value)) ? value : undefined;
  const kept = Object.entries(value).flatMap(([name, member]) => {
    const found = !Array.isArray(value) && has(name) ? member : filtered(member, wanted);
    return found === undefined ? [] : [[name, found] as const];
  });
  return kept.length ? Object.fromEntries(kept) : undefined;
}

function marked(text: string, words: string): Node {
  const at = words ? text.toLowerCase().indexOf(words.toLowerCase()) : -1;
  if (at < 0) return document.createTextNode(text);
  const out = document.createDocumentFragment();
  out.append(
    text.slice(0, at),
    element("mark", {}, text.slice(at, at + words.length)),
    text.slice(at + words.length),
  );
  return out;
}

function leaf(name: string, value: Json, words: string): HTMLElement {
  const text = Array.isArray(value)
    ? JSON.stringify(value).replaceAll(",", ", ")
    : typeof value === "string"
      ? value
      : JSON.stringify(value);
  const kind = Array.isArray(value) ? "list" : value === null ? "null" : typeof value;
  return element(
    "div",
    { className: "leaf" },
    element("span", { className: "leaf-name" }, marked(name, words)),
    element(
      "span",
      {
        className: `leaf-value is-${kind}`,
        title: text.length > 60 ? text.slice(0, 2000) : "",
        // long ones scroll, by the keyboard too
        ...(text.length > 200 ? { tabIndex: 0 } : {}),
      },
      marked(text.slice(0, 4000), words),
    ),
  );
}

/** Return a row per member of a value; the rows of a branch are built when it is opened. */
function rows(value: Record<string, Json> | Json[], words: string, depth: number): Node[] {
  const members = Object.entries(value);
  const made: Node[] = members.slice(0, LISTED).map(([name, member]) => {
    if (!isBranch(member) || isLine(member)) return leaf(name, member, words);
    const count = Object.keys(member).length;
    if (count === 0) return leaf(name, Array.isArray(member) ? "[ ]" : "{ }", words);
    const body = element("div", { className: "branch" });
    const branch = element(
      "details",
      { className: "node" },
      element("summary", {}, marked(name, words), element("span", { className: "count" }, String(count))),
      body,
    );
    const fill = (): void => {
      if (!body.childNodes.length) body.append(...rows(member, words, depth + 1));
    };
    branch.addEventListener("toggle", fill);
    if (words || depth < 1 || (depth < 2 && count <= 12 && members.length <= 4)) {
      branch.open = true;
      fill();
    }
    return branch;
  });
  if (members.length > LISTED)
    made.push(
      element("div", { className: "leaf quiet" }, `… ${members.length - LISTED} more; search to find them`),
    );
  return made;
}

export class MetadataPanel {
  readonly root = element("div", { className: "metadata" });
  readonly #search = element("input", {
    type: "search",
    className: "search",
    placeholder: "Search metadata",
    aria: { label: "search metadata" },
  });
  readonly #tree = element("div", { className: "tree" });
  #value: Json = null;
  #timer = 0;

  constructor() {
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#render(), 120);
    });
    this.#search.addEventListener("keydown", (event) => event.stopPropagation());
    this.root.append(this.#search, this.#tree);
  }

  message(text: string): void {
    this.#value = null;
    this.#tree.replaceChildren(element("p", { className: "quiet" }, text));
  }

  show(value: Json): void {
    this.#value = value;
    this.#render();
  }

  focus(): void {
    this.#search.focus();
  }

  #render(): void {
    const words = this.#search.value.trim();
    const value = filtered(this.#value, words);
    if (!isBranch(value)) {
      if (words)
        this.#tree.replaceChildren(element("p", { className: "quiet" }, `nothing matches “${words}”`));
      return;
    }
    this.#tree.replaceChildren(...rows(value, words, 0));
  }
}
