"""Assign the chunk keys of reference JSON to arrays, and turn them into chunk numbers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._zarr_metadata import Fields
from anychunk.model.grid import Numbers, chunk_numbers, grid_shape
from anychunk.references.kerchunk.json_reader import METADATA, ReferenceColumns
from anychunk.references.loading import Rows, no_rows

BATCH = 1 << 16
"""How many keys are parsed at once."""
COORDS = re.compile(r"\d{1,10}(?:[./]\d{1,10})*")

type Arrays = Mapping[str, tuple[str, Fields]]
"""Key pattern and fields of every array, by path."""


def rows_by_array(found: ReferenceColumns, arrays: Arrays, where: str) -> dict[str, Rows]:
    """Return the rows of every array that has chunks, by path."""
    prefixes = {_prefix(path, *member): path for path, member in arrays.items()}
    taken: dict[str, list[tuple[Numbers, Numbers]]] = {}
    before = 0
    for keys in found.keys.taken_blocks():
        for begin, end, prefix in _runs(keys, prefixes, where):
            path = prefixes[prefix]
            numbers, kept = _numbers(keys[begin:end], prefix, arrays[path], where)
            taken.setdefault(path, []).append((numbers, kept + (before + begin)))
        before += len(keys)
    columns = [
        np.frombuffer(column, np.uint64) if column else np.empty(0, np.uint64)
        for column in (found.offsets, found.lengths, found.url_ids)
    ]
    rows = {}
    for path in list(taken):
        pieces = taken.pop(path)
        places = _as_slice(np.concatenate([p for _, p in pieces]))
        numbers = np.concatenate([n for n, _ in pieces])
        offsets, lengths, ids = (column[places] for column in columns)
        rows[path] = Rows(
            numbers=numbers, offsets=offsets, lengths=lengths, url_ids=ids.view(np.int64)
        )
    _add_inline_and_parts(found, arrays, prefixes, rows, where)
    return rows


def _as_slice(places: Numbers) -> Numbers | slice:
    """Return places that follow each other as a slice, which takes a view and not a copy."""
    if places.size and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _prefix(path: str, pattern: str, fields: Fields) -> str:
    """Return the prefix of an array's chunk keys."""
    prefix = f"{path}/" if path else ""
    if not pattern.startswith("c"):
        return prefix
    # an array without axes has one chunk, `c`
    return prefix + (pattern if fields["shape"] else "c")


def _add_inline_and_parts(
    found: ReferenceColumns,
    arrays: Arrays,
    prefixes: Mapping[str, str],
    rows: dict[str, Rows],
    where: str,
) -> None:
    """Add inline chunks and further parts to the rows of their arrays."""
    for name, values in (("inline", found.inline), ("parts", found.parts)):
        keys = list(values)
        for begin, end, prefix in _runs(keys, prefixes, where):
            path = prefixes[prefix]
            numbers, kept = _numbers(keys[begin:end], prefix, arrays[path], where)
            target = getattr(rows.setdefault(path, no_rows()), name)
            for number, place in zip(numbers.tolist(), kept.tolist(), strict=True):
                target[number] = values[keys[begin + place]]


def _runs(
    keys: list[str], prefixes: Mapping[str, str], where: str
) -> Iterator[tuple[int, int, str]]:
    """Yield (begin, end, prefix) of consecutive keys of the same array.

    Keys of one array usually follow each other: one comparison per key then suffices, or two for
    all of them, since what is sorted between two keys with a prefix has that prefix, too.
    """
    prefix = _prefix_of(min(keys), prefixes) if keys else None
    if prefix and _prefix_of(max(keys), prefixes) == prefix:
        yield 0, len(keys), prefix
        return
    begin, current = 0, None
    for i, key in enumerate(keys):
        if current is not None and key.startswith(current) and current != "":
            continue
        prefix = _prefix_of(key, prefixes)
        if prefix is None and key.rpartition("/")[2] in METADATA:
            raise UnsupportedError(f"{where}: {key!r} is a reference, expected inline metadata")
        if prefix != current:
            if current is not None:
                yield begin, i, current
            begin, current = i, prefix
    if current is not None:
        yield begin, len(keys), current


def _prefix_of(key: str, prefixes: Mapping[str, str]) -> str | None:
    """Return the longest known prefix of a chunk key; None if it belongs to no array."""
    end = len(key)
    while end > 0:
        if key[:end] in prefixes:
            return key[:end]
        cut = max(key.rfind("/", 0, end - 1), key.rfind(".", 0, end - 1))
        end = cut + 1 if cut >= 0 else 0
    return "" if "" in prefixes else None


def _numbers(
    keys: list[str], prefix: str, array: tuple[str, Fields], where: str
) -> tuple[Numbers, Numbers]:
    """Return the numbers of chunks, and which of the keys they are.

    Keys outside the grid are left out: zarr never asks for them.
    """
    pattern, fields = array
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    if not grid:
        return np.zeros(len(keys[-1:]), np.int64), np.arange(len(keys))[-1:]
    found = [
        _parse_keys(keys[i : i + BATCH], len(prefix), pattern[-1], len(grid), where)
        for i in range(0, len(keys), BATCH)
    ]
    coords = np.concatenate(found)
    kept = np.flatnonzero((coords < np.array(grid)).all(axis=1))
    return chunk_numbers(coords[kept], grid), kept


def _parse_keys(keys: list[str], start: int, separator: str, ndim: int, where: str) -> Any:
    """Return the coordinates in chunk keys, one row per key, all parsed at once."""
    joined = separator.join([key[start:] for key in keys])
    if COORDS.fullmatch(joined) is not None:
        coords = np.fromstring(joined.replace(".", "/"), np.int64, sep="/")
        if coords.size == len(keys) * ndim:
            return coords.reshape(-1, ndim)
    raise FormatError(
        f"{where}: malformed chunk key among the {len(keys)} keys from {keys[0]!r} on, "
        f"expected {ndim} numbers separated by {separator!r}"
    )
