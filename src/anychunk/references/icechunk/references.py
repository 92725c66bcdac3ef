"""Chunks of an array as virtual references, or as bytes that are copied in."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from anychunk.codecs.zarr_core import default_buffer_prototype
from anychunk.errors import SourceError
from anychunk.io import absolute
from anychunk.model.grid import Shape
from anychunk.model.index import Uint64
from anychunk.model.pin import Pin
from anychunk.read.zarr_core import sync
from anychunk.references.icechunk.repository import per_manifest
from anychunk.references.icechunk.transaction import Transaction
from anychunk.references.places import file_url
from anychunk.references.tables import Table


def set_chunks(
    work: Transaction, path: str, table: Table, pins: Mapping[str, Pin], shift: tuple[int, ...]
) -> None:
    """Refer to the chunks of an array, all of one source in one call."""
    present = table.present
    if len(present):
        ids = np.zeros(len(present), np.int64) if table.url_ids is None else table.url_ids[present]
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        for numbers in np.split(present[order], cuts):
            url = table.urls[table.url_id(int(numbers[0]))]
            _set_box(work, path, table, numbers, url, pins.get(url), shift)
    if table.copied:
        sync(_set_copied(work.store, path, table, shift))


def _set_box(  # noqa: PLR0917 - one caller, which has them all at hand
    work: Transaction,
    path: str,
    table: Table,
    numbers: Any,
    url: str,
    pin: Pin | None,
    shift: tuple[int, ...],
) -> None:
    """Refer to chunks of one source by the box of the grid that they lie in."""
    location = file_url(absolute(url))
    if not table.grid:
        work.store.set_virtual_ref(
            f"{path}/c" if path else "c",
            location,
            offset=int(table.offsets[0]),
            length=int(table.lengths[0]),
            checksum=_checksum(pin),
        )
        return
    starts, box, (locations, offsets, lengths) = _box(table, numbers, location)
    # some whole manifests at a time: one that two pieces share would be written twice
    place = tuple(a + b for a, b in zip(starts, shift, strict=True))
    rows = per_manifest([table.grid])
    for row in range(0, box[0], rows):
        some = slice(row * math.prod(box[1:]), min(row + rows, box[0]) * math.prod(box[1:]))
        failed = work.store.set_virtual_refs_arr(
            path or "/",
            (min(rows, box[0] - row), *box[1:]),
            locations[some],
            np.ascontiguousarray(offsets[some]),
            np.ascontiguousarray(lengths[some]),
            validate_containers=False,
            arr_offset=(place[0] + row, *place[1:]),
            checksum=_checksum(pin),
        )
        if failed:
            raise SourceError(f"{url}: Icechunk took no reference for chunk {failed[0]}")
        work.took(some.stop - some.start)


def _box(
    table: Table, numbers: Any, location: str
) -> tuple[Shape, Shape, tuple[list[str], Uint64, Uint64]]:
    """Give start and shape of the box that chunks lie in, and its columns: empty for the others."""
    grid = table.grid
    if len(numbers) == math.prod(grid):
        columns = [location] * len(numbers), table.offsets, table.lengths
        return (0,) * len(grid), grid, columns
    coords = np.stack(np.unravel_index(numbers, grid), axis=1)
    starts = tuple(int(n) for n in coords.min(axis=0))
    box = tuple(int(n) for n in coords.max(axis=0) + 1 - coords.min(axis=0))
    inside = np.ravel_multi_index(tuple((coords - coords.min(axis=0)).T), box)
    count = math.prod(box)
    offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    offsets[inside], lengths[inside] = table.offsets[numbers], table.lengths[numbers]
    locations = [""] * count
    for i in inside.tolist():
        locations[i] = location
    return starts, box, (locations, offsets, lengths)


def _checksum(pin: Pin | None) -> str | datetime | None:
    """Give what Icechunk holds a source against: its etag, or its time rounded up to seconds."""
    if pin is None:
        return None
    if pin.etag is not None and not pin.etag.startswith("W/"):
        return pin.etag
    if pin.mtime_ns is None:
        return None
    return datetime.fromtimestamp(-(-pin.mtime_ns // 1_000_000_000), UTC)


async def _set_copied(store: Any, path: str, table: Table, shift: tuple[int, ...]) -> None:
    make = default_buffer_prototype().buffer.from_bytes
    prefix = f"{path}/c" if path else "c"
    for number, data in table.copied.items():
        coords = np.unravel_index(number, table.grid) if table.grid else ()
        names = [str(int(c) + s) for c, s in zip(coords, shift, strict=True)]
        await store.set("/".join([prefix, *names]), make(data))
