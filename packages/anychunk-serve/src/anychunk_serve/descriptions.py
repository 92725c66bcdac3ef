"""JSON descriptions: files and images, metadata, and where a chunk is stored in its file."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

from anychunk.errors import AnychunkError, InternalError, SourceChangedError
from anychunk.io.source import is_remote
from anychunk.metadata.meaning import Crs
from anychunk.metadata.reading import meaning_of
from anychunk.model.grid import Shape
from anychunk.model.images import Image, join
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Json, Node, Objects, find, walk
from anychunk_serve import cancellation
from anychunk_serve.catalog import Catalog, Entry, Opened
from anychunk_serve.chunks import Chunks
from anychunk_serve.hierarchy import Plane, native_dtype, readable_images
from anychunk_serve.records import empty_record
from anychunk_serve.responses import as_json, error_line
from anychunk_serve.windows import drawn_attributes

WALK_S = 3.0
"""Time for collecting all metadata of a file; every group of a remote one costs a request."""
MOST_IMAGES = 500
"""Images of one file that are listed."""
MOST_SHOWN = 8
"""Images of one file in the list of all files."""
MOST_LINE = 300
"""Characters of titles and errors in records."""
MOST_NODES = 2000
"""Groups and arrays whose metadata is collected."""
MOST_BYTES = 8 << 20
"""Bytes of metadata that are collected."""
MOST_SAMPLED = 16
"""Images whose channels are sampled for one document; others get the range of their type."""


def escape(name: str) -> str:
    """Return a name as one segment of a url."""
    return quote(name, safe="")


def file_record(opened: Opened, entry: Entry, most: int = MOST_IMAGES) -> dict[str, Json]:
    """Describe an open file and up to `most` of its images."""
    tree = opened.zstd.tree
    about = opened.index.attributes.get("anychunk", {})
    found, problem = readable_images(tree, MOST_IMAGES)
    record = empty_record(entry)
    for image in found:
        kind = "image" if Plane.of(image) is not None else "array"
        record[f"{kind}_count"] += 1
        if len(record[f"{kind}s"]) < most:
            record[f"{kind}s"].append(image_record(tree, image, entry, opened.version))
    places = [image["crs"] for image in record["images"] if image["crs"] is not None]
    return record | {
        "format": about.get("format", "index"),
        "bytes": about.get("size") if entry.size is None else entry.size,
        "crs": places[0] if places else None,
        "error": None if problem is None else entry.without_folder(problem)[:MOST_LINE],
        "version": opened.version,
    }


def shortened(record: dict[str, Json]) -> dict[str, Json]:
    """Return a record with the first images only, as in the list of all files."""
    few = {kind: record[kind][:MOST_SHOWN] for kind in ("images", "arrays")}
    return record | few


def failed_record(entry: Entry, error: BaseException) -> dict[str, Json]:
    """Describe a file that cannot be opened."""
    return empty_record(entry) | {"error": entry.without_folder(error_line(error))[:MOST_LINE]}


def described(catalog: Catalog, entry: Entry) -> dict[str, Json]:
    """Describe a file and its first images, without keeping it open; never raise."""
    try:
        return file_record(catalog.described(entry), entry, MOST_SHOWN)
    except Exception as e:  # noqa: BLE001 - the border of a thread; defects are logged
        return failed_record(entry, e)


def image_record(tree: Node, image: Image, entry: Entry, version: str) -> dict[str, Json]:
    first = cast("ArrayIndex", find(tree, image.levels[0]))
    place = f"{escape(entry.name)}/{quote(image.path)}" if image.path else escape(entry.name)
    return {
        "path": image.path,
        "title": str(title_of(image) or image.path or entry.title)[:MOST_LINE],
        "shape": list(first.shape),
        "axes": list(image.names),
        "dtype": dtype_name(first),
        "levels": len(image.levels),
        "crs": crs_name(meaning_of(tree, image).place.crs),
        "thumbnail": f"/thumb/{place}.png?version={version}",
    }


def crs_name(crs: Crs | None) -> str | None:
    """Return the code of a CRS, or else its name."""
    if crs is None:
        return None
    named = re.match(r'\s*\w+\s*\[\s*"([^"]{1,200})"', crs.wkt or "")
    return crs.code or (named[1] if named is not None else None)


def title_of(image: Image) -> Json:
    ome = image.attributes.get("ome")
    shown = (ome.get("multiscales") or [{}])[0] if isinstance(ome, Mapping) else {}
    return shown.get("name") if isinstance(shown, Mapping) else None


def dtype_name(array: ArrayIndex) -> str:
    return array.data_type if isinstance(array.data_type, str) else str(array.data_type["name"])


def info(opened: Opened, entry: Entry) -> dict[str, Json]:
    """Return the attributes of all groups and arrays; `complete` says whether some are left out."""
    about = opened.index.attributes.get("anychunk", {})
    metadata: dict[str, Json] = {}
    total, is_whole, until = 0, True, time.monotonic() + WALK_S
    for path, node in walk(opened.index):
        cancellation.check()
        total += len(as_json(node.attributes))
        if len(metadata) >= MOST_NODES or total > MOST_BYTES or time.monotonic() > until:
            is_whole = False
            break
        metadata[path] = node.attributes
    return {
        "name": entry.name,
        "format": about.get("format", "index"),
        "source": about.get("source", entry.name),
        "complete": is_whole,
        "metadata": metadata,
    }


def metadata(chunks: Chunks, path: str) -> bytes | None:
    """Return the `zarr.json` of a node as it is served, or None if there is none.

    That of a group is consolidated, unless there is too much below it, because clients over HTTP
    cannot list.
    """
    node = find(chunks.tree, path)
    if node is None:
        return None
    if isinstance(node, ArrayIndex):
        return as_json(node.metadata())
    drawn = Attributes(chunks)
    own = {**node.metadata(), "attributes": drawn.of(path, node)}
    others = consolidated(node, path, drawn.of)
    return as_json(own if others is None else own | _inline(others))


def index_metadata(index: Node, path: str) -> bytes | None:
    """Return the `zarr.json` of a node of a file's own index, or None if there is none."""
    node = find(index, path)
    if node is None:
        return None
    others = None
    if isinstance(node, GroupIndex):
        others = consolidated(node, path, lambda _, group: group.attributes)
    return as_json(node.metadata() if others is None else node.metadata() | _inline(others))


def _inline(metadata: dict[str, Json]) -> dict[str, Json]:
    found = {"kind": "inline", "must_understand": False, "metadata": metadata}
    return {"consolidated_metadata": found}


class Attributes:
    """The attributes of served groups, with the limits of the channels of the first images."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._left = MOST_SAMPLED

    def of(self, path: str, group: GroupIndex) -> dict[str, Json]:
        """Return the attributes of a group."""
        known = self._chunks.drawn.get(path)
        if known is None:
            if self._left <= 0:
                return group.attributes
            try:
                known = drawn_attributes(self._chunks, path, group)
            except (InternalError, SourceChangedError):
                raise
            except AnychunkError:
                # a damaged chunk must not make the metadata of the others unreadable
                known = group.attributes
            self._chunks.drawn[path] = known
            # groups that are no images, and images that state their limits, cost nothing
            self._left -= known is not group.attributes
        return known


def consolidated(
    root: GroupIndex, base: str, attributes: Callable[[str, GroupIndex], dict[str, Json]]
) -> dict[str, Json] | None:
    """Return the metadata of all nodes below a group, or None if there are too many.

    Parameters:
        root: The group.
        base: Its path.
        attributes: Returns the attributes of a group, given its path.
    """
    found: dict[str, Json] = {}
    total, until = 0, time.monotonic() + WALK_S
    try:
        for path, node in walk(root):
            cancellation.check()
            if path:
                found[path] = node.metadata()
                if isinstance(node, GroupIndex):
                    found[path]["attributes"] = attributes(join(base, path), node)
                total += len(as_json(found[path]))
            if len(found) > MOST_NODES or total > MOST_BYTES or time.monotonic() > until:
                return None
    except AnychunkError:
        # one member is broken; clients can still ask for the others one by one
        return None
    return found


def own_array(chunks: Chunks, path: str) -> tuple[ArrayIndex, ArrayIndex | None] | None:
    """Return an array as it is served, and the file's own array behind it, if there is one."""
    array = chunks.array(path)
    if array is None:
        return None
    made = array.chunks
    if not isinstance(made, Computed) or made.method == "shrink":
        return array, None
    own = find(chunks.store.index, made.source)
    return array, cast("ArrayIndex", own)


def grid(chunks: Chunks, path: str) -> dict[str, Json] | None:
    """Describe the grid of the file's own chunks."""
    found = own_array(chunks, path)
    if found is None:
        return None
    array, own = found
    shown = own or array
    return {
        "shape": list(shown.shape),
        "chunk_shape": list(shown.chunk_shape),
        "grid": list(shown.grid),
        "computed": own is None or isinstance(own.chunks, Computed),
        "dtype": dtype_name(array),
        "itemsize": native_dtype(array).itemsize,
    }


def chunk(chunks: Chunks, path: str, at: Shape) -> dict[str, Json] | None:
    """Describe the file's own chunk that holds the element `at`; None: no such element."""
    found = own_array(chunks, path)
    if found is None:
        return None
    array, own = found
    shown = own or array
    if len(at) != len(shown.shape) or any(
        not 0 <= a < n for a, n in zip(at, shown.shape, strict=True)
    ):
        return None
    coords = tuple(a // n for a, n in zip(at, shown.chunk_shape, strict=True))
    record: dict[str, Json] = {
        "chunk": list(coords),
        "shape": list(shown.chunk_shape),
        "origin": [c * n for c, n in zip(coords, shown.chunk_shape, strict=True)],
        "codecs": list(shown.codecs) if own is not None else [],
        "source": None,
        "parts": [],
        "bytes": 0,
        "stored": False,
        "computed": own is None or isinstance(own.chunks, Computed),
    }
    if own is None or isinstance(own.chunks, Computed):
        return record
    return record | stored(chunks.reader(array).reader, coords)


def stored(reader: Any, coords: Shape) -> dict[str, Json]:
    """Describe where the bytes of a stored chunk are."""
    number = reader.number(coords)
    size = reader.size(number)
    ranges = reader.ranges(number)
    return {
        "source": base_name(reader, ranges[0][0], coords),
        "parts": [[o, n if n >= 0 else size] for _, o, n in ranges] if size is not None else [],
        "bytes": size or 0,
        "stored": size is not None,
    }


def base_name(reader: Any, url: str, coords: Shape) -> str:
    """Return the name of the file or object that holds a chunk."""
    if isinstance(reader.chunks, Objects):
        return str(reader.chunks.name(coords))
    return url.rpartition("/")[2] if url or is_remote(url) else "the index"


def position(text: str) -> Shape | None:
    """Parse a position such as `3,0,7`; None if it is malformed."""
    parts = text.split(",") if text else []
    if len(parts) > 64 or not all(p.isascii() and p.isdigit() and len(p) < 20 for p in parts):
        return None
    return tuple(int(p) for p in parts)
