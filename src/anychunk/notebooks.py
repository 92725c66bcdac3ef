"""What Jupyter shows of groups, arrays, indexes and reports: `_repr_html_`.

Text of files is escaped and shortened. The picture is one plane of the coarsest level that is not
smaller than it, and left out if that would take many bytes or long: showing an object must not cost
more than looking at it is worth.
"""

import base64
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import zarr

from anychunk.errors import UnsupportedError
from anychunk.io.source import is_remote
from anychunk.metadata import geo
from anychunk.metadata.ome import pixel_size, scale_and_translation
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.metadata.summary import about, short, size, times, type_name
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import (
    WHOLE,
    ArrayIndex,
    ByteRanges,
    Computed,
    GroupIndex,
    Node,
    Objects,
    find,
)
from anychunk.zarr import array as zarr_array
from anychunk.zarr.store import IndexStore

# What it takes to read a box of an array, estimated from its index, before reading anything.


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much may be read unasked."""

    decoded: int = 32 << 20
    """Bytes that are decoded."""
    stored: int = 8 << 20
    """Bytes that are read from local files."""
    stored_remote: int = 1 << 20
    """Bytes that are fetched from servers."""
    chunks: int = 4096
    """Chunks that are parts of files."""
    objects: int = 64
    """Chunks that are objects of their own."""


def is_within(budget: Budget, array: ArrayIndex, box: Sequence[slice]) -> bool:
    """Return whether reading a box of an array stays within a budget.

    Parameters:
        budget: how much may be read.
        array: the array.
        box: one slice per axis, with a start and a stop inside the array.
    """
    chunks = array.chunks
    if isinstance(chunks, Computed):
        return False
    ranges = [
        range(part.start // step, max(part.start, part.stop - 1) // step + 1)
        for part, step in zip(box, array.chunk_shape, strict=True)
    ]
    count = math.prod(map(len, ranges))
    most = budget.objects if isinstance(chunks, Objects) else budget.chunks
    decoded = count * math.prod(array.chunk_shape) * item_size(array.data_type)
    if count > most or decoded > budget.decoded:
        return False
    if not isinstance(chunks, ByteRanges) or array.is_inline:
        return True
    numbers = np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), array.grid).reshape(-1)
    is_far = any(map(is_remote, chunks.urls[:1]))
    stored = stored_bytes(chunks.picked(numbers, (len(numbers),)))
    return stored <= (budget.stored_remote if is_far else budget.stored)


def stored_bytes(chunks: ByteRanges) -> int:
    """Return how many bytes of files chunks take; whole objects, whose size is unknown, not."""
    # chunks that are pieces of one stream share its bytes
    _, first = np.unique(chunks.offsets, return_index=True)
    lengths = chunks.lengths.reshape(-1)[first]
    found = int(lengths[lengths != WHOLE].sum(dtype=np.uint64))
    if chunks.parts is not None:
        found += int(chunks.parts.lengths.sum(dtype=np.uint64))
    return found


def item_size(data_type: Any) -> int:
    """Return the bytes of a sample; of types that numpy does not know, those of the largest."""
    try:
        return int(np.dtype(data_type).itemsize)
    except TypeError:
        return 16


PICTURE = 192
"""The longer side of the picture, in pixels."""
MOST_ROWS = 30
"""Levels, and findings of a report, that are listed."""
SECONDS = 3.0
"""How long to wait for the picture."""
BUDGET = Budget()
"""What may be read for the picture."""
UNITS = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm", "meter": "m"}
"""Short forms of OME-Zarr's units."""
NO_PICTURE = "no picture: no level is small enough to be read unasked; `anychunk thumb` draws one"
CELL = "padding:2px 8px;text-align:left;white-space:nowrap"


def html(shown: Any) -> str | None:
    """Return HTML for one of our objects; None if that fails, so that Jupyter shows the text."""
    try:
        return _written(shown)
    except Exception:  # noqa: BLE001 - showing an object must never raise
        return None


def _written(shown: Any) -> str | None:
    if isinstance(shown, GroupIndex | ArrayIndex):
        return index_html(
            shown, opener=lambda path: zarr_array.open_path(shown, path), name="index"
        )
    store = getattr(shown, "store", None)
    if isinstance(shown, zarr.Group) and isinstance(store, IndexStore):
        return group_html(shown, store)
    if isinstance(shown, zarr.Array) and isinstance(store, IndexStore):
        return array_html(shown, store)
    return report_html(shown)


# groups, arrays and indexes


def index_html(node: Node, *, opener: Callable[[str], Any], name: str) -> str:
    """Return HTML for an index or a group.

    Parameters:
        node: the index, from the root or from a group below it.
        opener: opens the array at a path below `node`.
        name: what the lines of code call it.
    """
    found = list(itertools.islice(im.images(node), MOST_ROWS + 1))
    kind = "array" if isinstance(node, ArrayIndex) else "group"
    parts = [heading(about(node) or kind, "")]
    rows = list(itertools.islice(level_rows(node, found), MOST_ROWS + 1))
    drawn = next((image for image in found if picture_level(node, image) is not None), None)
    if drawn is not None:
        parts.append(picture(node, drawn, opener) or "")
    elif any(len(image.axes) > 1 for image in found):
        parts.append(line(NO_PICTURE))
    if rows:
        parts.append(table(LEVELS, rows, most=MOST_ROWS))
    for image in found[:MOST_ROWS]:
        parts += [line(f"{short(image.path) or '/'}: {text}") for text in place_of(node, image)]
    first = find(node, found[0].levels[0]) if found else None
    if isinstance(first, ArrayIndex):
        is_group = name == "group"
        read = "group.image(0, level=0)" if is_group else "anychunk.open_array(index)"
        parts.append(
            code(
                f"{read}[{window_of(first.shape)}]",
                f'xarray.open_dataset({name}, engine="anychunk")',
            )
        )
    return f"<div>{''.join(parts)}</div>"


def group_html(group: Any, store: IndexStore) -> str | None:
    """Return HTML for a group that was opened by this package."""
    node = find(store.index, group.path)
    if node is None:
        return None

    return index_html(
        node,
        opener=lambda path: zarr_array.from_store(store, joined(group.path, path)),
        name="group",
    )


def array_html(array: Any, store: IndexStore) -> str | None:
    """Return HTML for an array that was opened by this package: itself, and the image it is of."""
    own = find(store.index, array.path)
    if not isinstance(own, ArrayIndex):
        return None
    image = im.image_around(store.index, array.path)
    parts = [heading(about(store.index) or "array", array.path)]
    if image is not None and picture_level(store.index, image) is not None:
        parts.append(
            picture(store.index, image, lambda path: zarr_array.from_store(store, path)) or ""
        )
    facts: dict[str, str] = {
        "axes": " ".join(short(name) if name else "-" for name in own.dimension_names),
        "shape": times(own.shape),
        "type": type_name(own.data_type),
        "chunks": f"{times(own.chunk_shape)} ({math.prod(own.grid)} in all)",
        "codecs": " ".join(type_name(codec).rsplit("/", 1)[-1] for codec in own.codecs),
        "decoded": size(array.nbytes),
        "stored": stored_size(own),
    }
    if image is not None:
        number = image.levels.index(array.path) if array.path in image.levels else 0
        facts["level"] = f"{number}, the coarsest is {len(image.levels) - 1}"
        facts["image"] = "; ".join(place_of(store.index, image))
    parts.append(pairs({key: value for key, value in facts.items() if value}))
    parts.append(code(f"array[{window_of(own.shape)}]"))
    return f"<div>{''.join(parts)}</div>"


LEVELS = ("image", "level", "axes", "shape", "type", "chunks", "element size", "stored")
"""The columns of the table of levels."""


def level_rows(node: Node, found: Iterable[Image]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of levels."""
    for image in found:
        meaning = meaning_of(node, image)
        levels = levels_of(node, image)
        known = pixel_size(meaning)
        name = " ".join(filter(None, [image.path or "/", meaning.name]))
        for number, level in enumerate(levels):
            array = level.image
            scale, _ = scale_and_translation(meaning, level, levels[0].image.shape)
            steps = [
                f"{step:.4g} {unit(axis.unit)}".strip()
                for axis, step in zip(meaning.axes, scale, strict=True)
                if axis.name in known
            ]
            yield (
                name if number == 0 else "",
                level.name,
                " ".join(meaning.names),
                times(array.shape),
                type_name(array.data_type),
                times(array.chunk_shape),
                " × ".join(steps),  # noqa: RUF001 - the sign of multiplication is meant
                stored_size(array),
            )


def stored_size(array: ArrayIndex) -> str:
    """Return how many bytes of a file an array takes; empty if that is not known."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or (chunks.lengths == WHOLE).any():
        return ""
    stored = int(chunks.lengths.sum(dtype=np.uint64))
    if chunks.parts is not None:
        stored += int(chunks.parts.lengths.sum(dtype=np.uint64))
    return size(stored)


def place_of(node: Node, image: Image) -> list[str]:
    """Return where on the earth an image lies, and its physical size, as far as they are known."""
    meaning, array = meaning_of(node, image), find(node, image.levels[0])
    if not isinstance(array, ArrayIndex):
        return []
    place, names = meaning.place, meaning.names
    found = []
    box = place.bbox
    if place.transform is not None and {"x", "y"} <= set(names):
        sides = array.shape[names.index("y")], array.shape[names.index("x")]
        box = geo.bounds(place.transform, sides)
    if place.crs is not None or box is not None:
        crs = "" if place.crs is None else short(place.crs.code or "CRS as WKT")
        extent = "" if box is None else "x {0:.8g} to {2:.8g}, y {1:.8g} to {3:.8g}".format(*box)
        found.append(", ".join(filter(None, [crs, extent])))
    sizes = [
        f"{axis.name} {axis.scale * count:.4g} {unit(axis.unit)}".strip()
        for axis, count in zip(meaning.axes, array.shape, strict=True)
        if axis.scale is not None
    ]
    return [*found, ", ".join(sizes)] if sizes else found


def unit(name: str | None) -> str:
    """Return the short form of a unit."""
    return UNITS.get(name or "", short(name or "", 20))


def window_of(shape: Sequence[int]) -> str:
    """Return a selection of an array as code: a window of the first plane."""
    if len(shape) < 2:
        return "..."
    first = ", ".join("0" for _ in shape[:-2])
    rows, columns = (f":{min(n, 512)}" for n in shape[-2:])
    return f"{first}, {rows}, {columns}" if first else f"{rows}, {columns}"


# the picture


def picture_level(node: Node, image: Image) -> str | None:
    """Return the path of the level that the picture of an image is made of; None for no picture."""
    from anychunk.metadata.drawing import drawn
    from anychunk.metadata.painting import bands_needed
    from anychunk.thumbnail import fitting_level, plane_axes

    meaning = meaning_of(node, image)
    try:
        axes = plane_axes(image)
    except UnsupportedError:
        return None
    path = fitting_level(node, image, axes, PICTURE)
    array = find(node, path)
    if not isinstance(array, ArrayIndex) or not math.prod(array.shape):
        return None
    bands = image.names.index("c") if "c" in image.names else None
    box = [slice(n // 2, n // 2 + 1) for n in array.shape]
    for axis in axes:
        box[axis] = slice(0, array.shape[axis])
    if bands is not None:
        count = array.shape[bands]
        picked = bands_needed(drawn(meaning, count), count)
        box[bands] = slice(picked[0], picked[-1] + 1)
    parts = [(array, box)]
    mask = find(node, im.join(path.rpartition("/")[0], "mask"))
    if isinstance(mask, ArrayIndex):
        parts.append((mask, [slice(0, n) for n in mask.shape]))
    return path if all(is_within(BUDGET, part, place) for part, place in parts) else None


def picture(node: Node, image: Image, opener: Callable[[str], Any]) -> str | None:
    """Return an image as an element with its pixels; None if it cannot be drawn in time.

    Parameters:
        node: the index.
        image: one of its images, with a `picture_level`.
        opener: opens the array at a path of the index.
    """
    from anychunk.thumbnail import png, thumbnail

    own = find(node, image.path)
    if own is None:
        return None

    def draw() -> bytes:
        pixels = thumbnail(
            own, size=PICTURE, open_path=lambda path: opener(joined(image.path, path))
        )
        return png(pixels)

    data = within(SECONDS, draw)
    if data is None:
        return None
    text = base64.b64encode(data).decode("ascii")
    return f'<img alt="" style="margin:4px 0" src="data:image/png;base64,{text}">'


def joined(folder: str, path: str) -> str:
    """Return the path of something below a folder, either of which may be empty."""
    return "/".join(filter(None, [folder, path]))


def within[T](seconds: float, work: Callable[[], T]) -> T | None:
    """Return the result of `work`; None if it fails or takes longer.

    A read cannot be interrupted: it ends on its own, after the few bytes that it may read.
    """
    found: list[T] = []

    def run() -> None:
        with suppress(Exception):  # then there is no picture
            found.append(work())

    thread = threading.Thread(target=run, name="anychunk-picture", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


# reports


def report_html(report: Any) -> str | None:
    """Return HTML for the report of `verify` or `convert`; None for anything else."""
    from anychunk.conversion import Report as Conversion
    from anychunk.verification.checks import Report as Verification

    if isinstance(report, Verification):
        return verification_html(report)
    return conversion_html(report) if isinstance(report, Conversion) else None


def verification_html(report: Any) -> str:
    """Return HTML for the report of `verify`."""
    facts = {
        "arrays": str(report.arrays),
        "chunks": f"{report.chunks}, {report.absent} of them absent",
        "decoded": size(report.decoded_bytes),
    }
    if report.compared:
        facts["compared with"] = report.compared
    parts = [heading(report.source, "good" if report.is_good else "not good"), pairs(facts)]
    if report.findings:
        ranks = ("error", "warning", "info")
        ordered = sorted(report.findings, key=lambda finding: ranks.index(finding.severity))
        rows = ((f.severity, f.where, f.what) for f in ordered)
        parts.append(table(("severity", "where", "what"), rows, most=MOST_ROWS))
    return f"<div>{''.join(parts)}</div>"


def conversion_html(report: Any) -> str:
    """Return HTML for the report of `convert`."""
    facts = {"arrays": str(report.arrays), "decoded": size(report.nbytes)}
    if report.skipped_bytes:
        facts["written before"] = size(report.skipped_bytes)
    facts["verified"] = "yes" if report.is_verified else "no"
    parts = [heading(report.target, "converted"), pairs(facts)]
    lines = [("note", text) for text in report.notes] + [("lost", text) for text in report.losses]
    if lines:
        parts.append(table(("", "what"), lines, most=MOST_ROWS))
    return f"<div>{''.join(parts)}</div>"


# elements


def text_of(value: Any) -> str:
    """Return text as HTML: in one line, shortened, escaped."""
    return escape(short(value, 300))


def heading(name: str, what: str) -> str:
    """Return the first line: a name, and something about it."""
    return f"<div><b>{text_of(name)}</b> {text_of(what)}</div>"


def line(text: str) -> str:
    """Return a line of text."""
    return f"<div>{text_of(text)}</div>"


def code(*lines: str) -> str:
    """Return lines of code."""
    return f'<pre style="margin:4px 0">{"<br>".join(text_of(text) for text in lines)}</pre>'


def pairs(facts: Mapping[str, str]) -> str:
    """Return names and values as a table without a head."""
    rows = (
        f'<tr><th style="{CELL}">{text_of(name)}</th><td style="{CELL}">{text_of(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table style="margin:4px 0">{"".join(rows)}</table>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, most: int) -> str:
    """Return a table; rows beyond `most` are replaced by a line that says so."""
    listed = list(itertools.islice(rows, most + 1))
    head = "".join(f'<th style="{CELL}">{text_of(name)}</th>' for name in headers)
    body = "".join(
        f"<tr>{''.join(f'<td style="{CELL}">{text_of(cell)}</td>' for cell in row)}</tr>"
        for row in listed[:most]
    )
    more = line("… and more") if len(listed) > most else ""
    return f'<table style="margin:4px 0"><tr>{head}</tr>{body}</table>{more}'
