"""Kerchunk reference JSON, version 1, with Zarr v3 metadata or, on request, v2.

Spec:    https://fsspec.github.io/kerchunk/spec.html; parts as `[url, [[offset, length], …]]`.
Opened:  versions 0 and 1, simple templates, v2 and v3 metadata, inline text and base64.
Refused: `gen` (jinja), references without a url, references outside what is allowed.
"""

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, Literal

from anychunk import limits
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.io import Source, Storage, absolute, is_remote, sink
from anychunk.model.index import Node
from anychunk.references.chunk_references import (
    Capabilities,
    Copy,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import parse_nodes, write_documents
from anychunk.references.kerchunk.chunk_keys import rows_by_array
from anychunk.references.kerchunk.json_reader import METADATA, ReferenceColumns, read_json
from anychunk.references.kerchunk.json_writer import write_json
from anychunk.references.kerchunk.osml_layout import osml_layout
from anychunk.references.loading import build_index, no_rows, url_resolver
from anychunk.references.osml_reading import corrected
from anychunk.references.portable_codecs import with_portable_codecs
from anychunk.references.tile_tables import saved_form
from anychunk.references.urls import BASE, folder_of, is_below

CAPABILITIES = Capabilities(name="kerchunk JSON", has_parts=True, has_whole=True)
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
    """Save an index as reference JSON.

    Parameters:
        node: The index.
        target: The file to write.
        zarr_format: Whether metadata is Zarr v3 or v2.
        layout: "osml" arranges groups and codecs as osml-imagery-io reads them.
        relative: Whether urls are written relative to the index's folder; by default if all
            sources are below it.
        copy: "needed" copies chunks that JSON cannot refer to; "never" refuses them.
        storage: obstore's options, for the target and the sources.

    Raises:
        UnsupportedError: If the format or the layout cannot express the index, or a source is
            outside the folder of a relative index.
        LimitError: If the JSON would be over the limit of what is opened again.
    """
    node = saved_form(node, storage, has_tables=layout != "osml")
    if layout == "osml":
        node = osml_layout(node)
    else:
        node = with_portable_codecs(node, may_transpose=zarr_format == 3)
    found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
    node = with_found_pins(node, found)
    folder = folder_of(target)
    urls = sorted(set(used_urls(found)))
    base = folder if _is_relative(urls, folder, relative, target) else None
    written = {url: _written(url, base) for url in urls}
    _check_size(found, written, target)
    separator = "." if zarr_format == 2 or layout == "osml" else "/"
    documents = write_documents(
        node, written, base, zarr_format, separator, is_consolidated=layout != "osml"
    )
    settings: dict[str, Any] = {"zarr_format": zarr_format, "separator": separator}
    if is_remote(target):
        buffer = BytesIO()
        write_json(buffer, documents, found, written=written, folder=folder, **settings)
        sink.put(target, buffer.getvalue(), storage=storage)
    else:
        with sink.create(target) as file:
            write_json(file, documents, found, written=written, folder=folder, **settings)


def _is_relative(urls: list[str], folder: str, relative: bool | None, target: str) -> bool:
    outside = [url for url in urls if not is_below(absolute(url), folder)]
    if relative and outside:
        raise UnsupportedError(
            f"{target}: {outside[0]} is outside {folder}; save with relative=False"
        )
    return not outside if relative is None else relative


def _check_size(found: References, written: Mapping[str, str], target: str) -> None:
    """Refuse to write more than is opened again, by the least that each reference takes."""
    count = least = 0
    shortest = min(map(len, written.values()), default=0)
    for path, (_, references) in found.items():
        here = len(references.present)
        count += here
        # key, url, offset and length, with quotes, brackets and separators
        least += here * (len(path) + 2 * len(references.grid) + shortest + 14)
    most = limits.get().index_bytes
    if least > most:
        raise LimitError(
            f"{target}: {count} references are more than {least} bytes of JSON, over the limit of "
            f"{most} with which it is opened again; save the index as parquet or Icechunk; "
            f"{limits.how_to_raise('index_bytes')}"
        )


def _written(url: str, base: str | None) -> str:
    """Return how a url is written: below `{{base}}` if it lies below the folder `base`."""
    place = absolute(url)
    if "{{" in place:
        raise UnsupportedError(
            f"{place}: kerchunk JSON would read the braces as a template; save the index as "
            "parquet or Icechunk, or rename the file"
        )
    if base is None or not is_below(place, base):
        return place
    return f"{BASE}/{place[len(base.rstrip('/')) + 1 :]}"


def sniff(head: bytes) -> bool:
    """Return whether a file with this head is reference JSON."""
    start = head.lstrip()
    return start.startswith(b"{") and (
        re.search(rb'^\{\s*"(version|refs|templates|gen)"\s*:', start) is not None
        or any(f'"{name}"'.encode() in start or f'/{name}"'.encode() in start for name in METADATA)
    )


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Load reference JSON as an index.

    Parameters:
        source: The file.
        allow: Prefixes of urls that references may point to, besides the file's own folder.
    """
    size = source.size()
    limits.check_index(size, where=source.url)
    try:
        text = str(memoryview(source.read(0, size)), "utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{source.url}: expected UTF-8 ({e})") from e
    return corrected(_build(read_json(text, source.url), source.url, allow), source.url)


def _build(found: ReferenceColumns, url: str, allow: Iterable[str]) -> Node:
    nodes = parse_nodes(found.documents, url)
    resolver = url_resolver(nodes, url, allow, found.templates)
    urls = [resolver.resolve(reference) for reference in found.urls]
    arrays = {path: n for path, n in nodes.items() if isinstance(n, tuple)}
    rows = rows_by_array(found, arrays, url)
    if not nodes:
        raise FormatError(
            f"{url}: reference JSON has no Zarr metadata, expected zarr.json or .zgroup"
        )
    return build_index(nodes, resolver, lambda path, _: (rows.get(path, no_rows()), urls))
