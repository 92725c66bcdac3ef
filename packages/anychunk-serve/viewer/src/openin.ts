/** Lines to copy that open the same image in other programs. */

import { element, icon } from "./element";
import type { Image } from "./image";
import { zarrUrl } from "./api";

export interface Line {
  title: string;
  code: string;
  note?: string;
}

const quoted = (text: string): string => JSON.stringify(text);
const shell = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** Host of a public neuroglancer. */
const NEUROGLANCER = "neuroglancer-demo.appspot.com";

export interface From {
  /** Address of this server. */
  origin: string;
  /** Name of the file. */
  source: string;
  /** What the server requires; null: nothing. */
  token: string | null;
  /** Web pages that may read what is served; "*": any. */
  origins: string[];
}

/** Return the lines that open an image in other programs. Pure. */
export function linesFor(image: Image, { origin, source, token, origins }: From): Line[] {
  const url = origin + zarrUrl(image.file);
  const group = origin + zarrUrl(image.file, image.path);
  const first = image.levels[0]!.path;
  const array = origin + zarrUrl(image.file, first);
  const secret = `Bearer ${token}`;
  const options = token === null ? "" : `, storage_options={"headers": {"Authorization": ${quoted(secret)}}}`;
  const opened = first
    ? `zarr.open_group(${quoted(url)}, mode="r"${options})[${quoted(first)}]`
    : `zarr.open_array(${quoted(url)}, mode="r"${options})`;
  const store =
    token === null
      ? quoted(`${array}/`)
      : `{"driver": "http", "base_url": ${quoted(`${array}/`)}, "headers": [${quoted(`Authorization: ${secret}`)}]}`;
  const noToken = "it cannot send a token: serve without --token for it";
  const page = `https://${NEUROGLANCER}`;
  const isAllowed = origins.includes("*") || origins.includes(page);
  return [
    {
      title: "Python, from this server",
      code: `import zarr\n\narray = ${opened}\narray[...]  # ${image.levels[0]!.shape.join(" × ")} ${image.dtype}`,
      note: 'needs: pip install "fsspec[http]" requests',
    },
    {
      title: "Python, from the file",
      code: `import anychunk\n\ngroup = anychunk.open(${quoted(source)})\narray = group[${quoted(first)}]`,
      note: "run it where the file is; nothing is copied",
    },
    {
      title: "xarray",
      code: `import xarray\n\nds = xarray.open_dataset(${quoted(source)}, engine="anychunk")`,
    },
    {
      title: "napari",
      code: `napari --plugin napari-ome-zarr ${shell(group)}`,
      note: token === null ? "needs the plugin napari-ome-zarr" : noToken,
    },
    {
      title: "neuroglancer",
      code: `zarr3://${group}/`,
      note:
        token !== null
          ? noToken
          : isAllowed
            ? `as the source of a layer, on ${page}`
            : `as the source of a layer; ${page} may not read from this server yet: restart it with --origin ${page}`,
    },
    {
      title: "tensorstore",
      code: `import tensorstore\n\narray = tensorstore.open(\n    {"driver": "zarr3", "kvstore": ${store}}\n).result()`,
    },
    {
      title: "GDAL",
      code: `${token === null ? "" : `GDAL_HTTP_HEADERS=${shell(`Authorization: ${secret}`)} `}gdalinfo 'ZARR:"/vsicurl/${array}"'`,
      note: "GDAL 3.8 or newer",
    },
  ];
}

/** Positions along an axis: one, those from one up to but not including another, or a list. */
export type Range = number | { from: number; to: number } | number[];

/** Return Python that reads part of an image. Pure. */
export function codeFor(image: Image, source: string, ranges: Range[]): string {
  const text = ranges.map((range) =>
    typeof range === "number"
      ? String(range)
      : Array.isArray(range)
        ? `[${range.join(", ")}]`
        : `${range.from}:${range.to}`,
  );
  // a name may hold a line break, which would end the comment
  const axes = image.axes.map(({ name }) => quoted(name)).join(", ");
  const path = image.levels[0]!.path;
  const array = path
    ? `anychunk.open(${quoted(source)})[${quoted(path)}]`
    : `anychunk.open_array(${quoted(source)})`;
  const index = ranges.some(Array.isArray) ? ".oindex" : "";
  return `import anychunk\n\narray = ${array}\npart = array${index}[${text.join(", ")}]  # ${axes}`;
}

export async function copy(text: string, button: HTMLButtonElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // pages without a secure context have no clipboard API
    const field = element("textarea", { value: text, style: { position: "fixed", opacity: "0" } });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.replaceChildren(icon("check"));
  setTimeout(() => button.replaceChildren(icon("copy")), 1200);
}

export function copyButton(text: () => string, label = "copy"): HTMLButtonElement {
  const button = element(
    "button",
    { type: "button", className: "icon-button small copy", title: label, aria: { label } },
    icon("copy"),
  );
  button.addEventListener("click", () => void copy(text(), button));
  return button;
}

export function openInPanel(lines: Line[], link: () => string): HTMLElement {
  const all: Line[] = lines;
  const cards = all.map(({ title, code, note }) =>
    element(
      "section",
      { className: "line" },
      element("h3", {}, title),
      element(
        "div",
        { className: "code" },
        element("pre", { tabIndex: 0 }, element("code", {}, code)),
        copyButton(() => code, `copy: ${title}`),
      ),
      note ? element("p", { className: "quiet" }, note) : null,
    ),
  );
  const share = element(
    "section",
    { className: "line" },
    element("h3", {}, "This view"),
    element(
      "div",
      { className: "code" },
      element("pre", {}, element("code", {}, "A link that shows the same picture")),
      copyButton(link, "copy a link to this view"),
    ),
  );
  return element("div", { className: "openin" }, share, ...cards);
}
