"""Kerchunk reference JSON, version 1, with Zarr v3 metadata or, on request, v2.

Spec:    https://fsspec.github.io/kerchunk/spec.html; parts as `[url, [[offset, length], …]]`.
Opened:  versions 0 and 1, simple templates, v2 and v3 metadata, inline text and base64.
Refused: `gen` (jinja), references without a url, references outside what is allowed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from anychunk import limits
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.io import sink
from anychunk.io.source import Source, Storage
from anychunk.io.url import absolute
from anychunk.model.index import GroupIndex, Node
from anychunk.references.chunk_references import (
    Capabilities,
    Copy,
    References,
    chunk_references,
    used_urls,
    with_found_pins,
)
from anychunk.references.documents import (
    added_root,
    parse_nodes,
    root_attributes,
    root_documents,
    write_documents,
)
from anychunk.references.kerchunk.chunk_keys import rows_by_array
from anychunk.references.kerchunk.json_reader import METADATA, ReferenceColumns, read_json
from anychunk.references.kerchunk.json_writer import JsonWriter
from anychunk.references.loading import build_index, no_rows, url_resolver
from anychunk.references.osml_layout import Layout, arranged
from anychunk.references.osml_reading import corrected
from anychunk.references.urls import BASE, folder_of, is_below

CAPABILITIES = Capabilities(name="kerchunk JSON", has_parts=True, has_whole=True)


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
    node = arranged(node, layout, zarr_format=zarr_format, storage=storage)
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
    uses_base = any(text.startswith(BASE) for text in written.values())
    with sink.creating(target, storage=storage) as file:
        writer = JsonWriter(
            file,
            base=folder if uses_base else None,
            zarr_format=zarr_format,
            separator=separator,
        )
        writer.add_documents(documents)
        writer.add_references(found, written)
        writer.end()


@contextmanager
def adding(
    target: str,
    urls: Sequence[str],
    *,
    zarr_format: Literal[2, 3] = 3,
    relative: bool | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
) -> Iterator[Callable[[GroupIndex], None]]:
    """Save the group of very many files piece by piece, none of which is kept.

    Yield a function that adds the index of some files. The index is saved when the block succeeds.

    Parameters:
        target: The file to write.
        urls: All files, which decide whether urls are relative.
        zarr_format: As in `save`.
        relative: As in `save`.
        copy: As in `save`.
        storage: As in `save`.
    """
    folder = folder_of(target)
    base = folder if _is_relative(sorted(urls), folder, relative, target) else None
    separator = "." if zarr_format == 2 else "/"
    root: dict[str, Any] = {}
    with sink.creating(target, storage=storage) as file:
        writer = JsonWriter(file, base=base, zarr_format=zarr_format, separator=separator)

        def add(node: GroupIndex) -> None:
            nonlocal root
            node = arranged(node, zarr_format=zarr_format, storage=storage)
            found = chunk_references(node, CAPABILITIES, copy=copy, storage=storage)
            node = with_found_pins(node, found)
            written = {url: _written(url, base) for url in set(used_urls(found))}
            documents = write_documents(
                node, written, base, zarr_format, separator, is_consolidated=True, most_images=0
            )
            root = added_root(root, root_attributes(node, written, base))
            # the root is written last, and never with the metadata of so many files
            writer.add_documents({key: d for key, d in documents.items() if "/" in key})
            writer.add_references(found, written)
            _check_written(writer.size(), target)

        yield add
        writer.add_documents(root_documents(root, zarr_format))
        _check_written(writer.size(), target)
        writer.end()


def _check_written(size: int, target: str) -> None:
    most = limits.get().index_bytes
    if size > most:
        raise LimitError(
            f"{target}: more than {size} bytes of JSON are over the limit of {most} with which it "
            f"is opened again; save the index as parquet or Icechunk; "
            f"{limits.how_to_raise('index_bytes')}"
        )


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
    # the text is not kept while the index is built
    found = read_json(_text(source), source.url)
    return corrected(_build(found, source.url, allow), source.url)


def _text(source: Source) -> str:
    size = source.size()
    limits.check_index(size, where=source.url)
    try:
        return str(memoryview(source.read(0, size)), "utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{source.url}: expected UTF-8 ({e})") from e
    finally:
        release = getattr(source, "release", None)
        if release is not None:
            release()  # the mapped file would count as memory beside its text


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
