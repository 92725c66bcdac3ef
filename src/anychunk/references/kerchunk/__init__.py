"""Kerchunk reference JSON, version 1, with Zarr v3 metadata or, on request, v2.

Spec:    https://fsspec.github.io/kerchunk/spec.html; parts as `[url, [[offset, length], …]]`.
Opened:  versions 0 and 1, simple templates, v2 and v3 metadata, inline text and base64.
Refused: `gen` (jinja), references without a url, references that leave what is allowed.
"""

import re
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Literal

from anychunk import limits
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.io import Source, Storage, absolute, is_remote, sink
from anychunk.model.index import Node
from anychunk.references.documents import metadata
from anychunk.references.kerchunk.keys import rows_by_array
from anychunk.references.kerchunk.lines import write_json
from anychunk.references.kerchunk.references import METADATA, References, read_json
from anychunk.references.osml import osml_layout
from anychunk.references.places import BASE, folder_of, is_below
from anychunk.references.rebuild import assembled, no_rows, node_fields, saved_places
from anychunk.references.tables import Copy, Form, tables, used_urls, with_found_pins

FORM = Form(name="kerchunk JSON", has_parts=True, has_whole=True)
type Layout = Literal["anychunk", "osml"]


def save(
    node: Node,
    target: str,
    *,
    zarr_format: Literal[2, 3] = 3,
    layout: Layout = "anychunk",
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> None:
    """Write an index as reference JSON. `relative` None: where all data lies below its folder."""
    if layout == "osml":
        node = osml_layout(node)
    found = tables(node, FORM, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    folder = folder_of(target)
    urls = sorted(set(used_urls(found)))
    below = [is_below(absolute(url), folder) for url in urls]
    is_relative = all(below) if relative is None else relative
    if is_relative and not all(below):
        outside = urls[below.index(False)]
        raise UnsupportedError(f"{target}: {outside} lies outside {folder}; save relative=False")
    write = {url: written(url, folder if is_relative else None) for url in urls}
    separator = "." if zarr_format == 2 or layout == "osml" else "/"
    documents = metadata(node, write, folder if is_relative else None, zarr_format, separator)
    settings: dict[str, Any] = {"zarr_format": zarr_format, "separator": separator}
    if is_remote(target):
        buffer = BytesIO()
        write_json(buffer, documents, found, write=write, folder=folder, **settings)
        sink.put(target, buffer.getvalue(), storage=storage)
    else:
        with sink.create(target) as file:
            write_json(file, documents, found, write=write, folder=folder, **settings)


def written(url: str, folder: str | None) -> str:
    """Give the reference that stands for `url`: below `{{base}}` where a folder is given."""
    place = absolute(url)
    if "{{" in place:
        raise UnsupportedError(
            f"{place}: kerchunk JSON takes braces in a name for a template; save it as parquet or "
            "Icechunk, or rename it"
        )
    if folder is None or not is_below(place, folder):
        return place
    return f"{BASE}/{place[len(folder.rstrip('/')) + 1 :]}"


def sniff(head: bytes) -> bool:
    """Whether a file begins as reference JSON does."""
    start = head.lstrip()
    return start.startswith(b"{") and (
        re.search(rb'^\{\s*"(version|refs|templates|gen)"\s*:', start) is not None
        or any(f'"{name}"'.encode() in start or f'/{name}"'.encode() in start for name in METADATA)
    )


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Read reference JSON as an index."""
    size = source.size()
    if size > limits.get().index_bytes:
        raise LimitError(
            f"{source.url}: an index of {size} bytes is over the limit of "
            f"{limits.get().index_bytes}; raise anychunk.limits index_bytes to allow it"
        )
    try:
        text = str(memoryview(source.read(0, size)), "utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{source.url}: no UTF-8 ({e})") from e
    found = read_json(text, source.url)
    return _build(found, source.url, allow)


def _build(found: References, url: str, allow: Iterable[str]) -> Node:
    fields = node_fields(found.documents, url)
    places = saved_places(fields, url, allow, found.templates)
    urls = [places.resolve(reference) for reference in found.urls]
    arrays = {path: n for path, n in fields.items() if isinstance(n, tuple)}
    rows = rows_by_array(found, arrays, url)
    if not fields:
        raise FormatError(f"{url}: reference JSON without any metadata of Zarr")
    return assembled(fields, places, lambda path, _: (rows.get(path, no_rows()), urls))
