"""Chunk keys of reference JSON, sorted by array and turned into chunk numbers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.grid import grid_shape
from anychunk.references.kerchunk.references import METADATA, References
from anychunk.references.rebuild import Rows, no_rows

BATCH = 1 << 16
"""Keys that are read in one go."""


COORDS = re.compile(r"\d{1,10}(?:[./]\d{1,10})*")
type Arrays = Mapping[str, tuple[str, dict[str, Any]]]


def rows_by_array(found: References, arrays: Arrays, where: str) -> dict[str, Rows]:
    """Sort references by array, and number them."""
    starts = {_start(path, *member): path for path, member in arrays.items()}
    taken: dict[str, list[tuple[Any, Any]]] = {}
    for begin, end, start in _runs(found.keys, starts, where):
        path = starts[start]
        numbers, kept = _numbers(found.keys[begin:end], start, arrays[path], where)
        taken.setdefault(path, []).append((numbers, kept + begin))
    offsets = np.frombuffer(found.offsets, np.uint64) if found.keys else np.empty(0, np.uint64)
    lengths = np.frombuffer(found.lengths, np.uint64) if found.keys else offsets
    ids = np.array(found.url_ids, np.int64)
    rows = {}
    for path, pieces in taken.items():
        numbers = np.concatenate([n for n, _ in pieces])
        places = np.concatenate([p for _, p in pieces])
        rows[path] = Rows(
            numbers=numbers,
            offsets=offsets[places],
            lengths=lengths[places],
            url_ids=ids[places],
        )
    _add_special(found, arrays, starts, rows, where)
    return rows


def _start(path: str, pattern: str, fields: Mapping[str, Any]) -> str:
    """Give what the chunk keys of an array begin with."""
    prefix = f"{path}/" if path else ""
    if not pattern.startswith("c"):
        return prefix
    return prefix + (pattern if fields["shape"] else "c")


def _add_special(
    found: References,
    arrays: Arrays,
    starts: Mapping[str, str],
    rows: dict[str, Rows],
    where: str,
) -> None:
    """Add inline chunks and further parts to the rows of their arrays."""
    for name, values in (("inline", found.inline), ("parts", found.parts)):
        keys = list(values)
        for begin, end, start in _runs(keys, starts, where):
            path = starts[start]
            numbers, kept = _numbers(keys[begin:end], start, arrays[path], where)
            target = getattr(rows.setdefault(path, no_rows()), name)
            for number, place in zip(numbers.tolist(), kept.tolist(), strict=True):
                target[number] = values[keys[begin + place]]


def _runs(keys: list[str], starts: Mapping[str, str], where: str) -> Iterator[tuple[int, int, str]]:
    """Yield (begin, end, start) of neighbouring keys that begin with the same array's `start`."""
    begin, current = 0, None
    for i, key in enumerate(keys):
        if current is not None and key.startswith(current) and current != "":
            continue
        start = _start_of(key, starts)
        if start is None and key.rpartition("/")[2] in METADATA:
            raise UnsupportedError(f"{where}: {key!r} is a reference; metadata is read inline only")
        if start != current:
            if current is not None:
                yield begin, i, current
            begin, current = i, start
    if current is not None:
        yield begin, len(keys), current


def _start_of(key: str, starts: Mapping[str, str]) -> str | None:
    """Find the array that a chunk key belongs to: the longest start; None where there is none."""
    end = len(key)
    while end > 0:
        if key[:end] in starts:
            return key[:end]
        cut = max(key.rfind("/", 0, end - 1), key.rfind(".", 0, end - 1))
        end = cut + 1 if cut >= 0 else 0
    return "" if "" in starts else None


def _numbers(
    keys: list[str], start: str, array: tuple[str, dict[str, Any]], where: str
) -> tuple[Any, Any]:
    """Turn chunk keys into chunk numbers; those outside the grid, which zarr never asks for, go."""
    pattern, fields = array
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    if not grid:
        return np.zeros(len(keys[-1:]), np.int64), np.arange(len(keys))[-1:]
    found = [
        _parse_keys(keys[i : i + BATCH], len(start), pattern[-1], len(grid), where)
        for i in range(0, len(keys), BATCH)
    ]
    coords = np.concatenate(found)
    kept = np.flatnonzero((coords < np.array(grid)).all(axis=1))
    strides = np.cumprod([1, *grid[:0:-1]])[::-1]
    return coords[kept] @ strides, kept


def _parse_keys(keys: list[str], start: int, separator: str, ndim: int, where: str) -> Any:
    """Read the coordinates in chunk keys, all in one go."""
    joined = separator.join([key[start:] for key in keys])
    if COORDS.fullmatch(joined) is not None:
        coords = np.fromstring(joined.replace(".", "/"), np.int64, sep="/")
        if coords.size == len(keys) * ndim:
            return coords.reshape(-1, ndim)
    raise FormatError(f"{where}: among keys as {keys[0]!r} is one that is no chunk of {ndim} axes")
