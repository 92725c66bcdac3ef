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

/** Return the lines; `origin` is the server's address, `source` the name of the file. Pure. */
export function linesFor(image: Image, origin: string, source: string): Line[] {
  const url = origin + zarrUrl(image.file);
  const group = origin + zarrUrl(image.file, image.path);
  const first = image.levels[0]!.path;
  const opened = first
    ? `zarr.open_group(${quoted(url)}, mode="r")[${quoted(first)}]`
    : `zarr.open_array(${quoted(url)}, mode="r")`;
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
      note: "needs the plugin napari-ome-zarr",
    },
    { title: "neuroglancer", code: `zarr3://${group}/`, note: "as the source of a layer" },
    {
      title: "tensorstore",
      code: `import tensorstore\n\narray = tensorstore.open(\n    {"driver": "zarr3", "kvstore": ${quoted(`${origin}${zarrUrl(image.file, first)}/`)}}\n).result()`,
    },
    {
      title: "GDAL",
      code: `gdalinfo 'ZARR:"/vsicurl/${origin}${zarrUrl(image.file, first)}"'`,
      note: "GDAL 3.8 or newer",
    },
  ];
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

export function copyButton(text: () => string): HTMLButtonElement {
  const button = element(
    "button",
    { type: "button", className: "icon-button small copy", title: "copy", aria: { label: "copy" } },
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
        element("pre", {}, element("code", {}, code)),
        copyButton(() => code),
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
      copyButton(link),
    ),
  );
  return element("div", { className: "openin" }, share, ...cards);
}
