"""Chunk tables of several files put into one: which arrays may be, and how the tables join."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, GroupIndex, Json, Parts

type Files = Mapping[str, GroupIndex]
type Numbers = npt.NDArray[np.int64]


def refuse(wrong: Sequence[str]) -> None:
    if wrong:
        more = f"; and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise FormatError(f"combine: {'; '.join(wrong[:20])}{more}")


def _misread(
    url: str, path: str, here: Mapping[str, Json], first_url: str, there: Mapping[str, Json]
) -> list[str]:
    return [
        f"{url} {path}: {name} is not that of {first_url}, and there would be one for all"
        for name in comparison.sample_differences(here, there)
    ]


def check_meaning(path: str, images: Mapping[str, GroupIndex | ArrayIndex]) -> None:
    """Name every file whose samples stand for other values than those of the first."""
    first_url, first = next(iter(images.items()))
    refuse(
        [
            line
            for url, image in images.items()
            for line in _misread(url, path, image.attributes, first_url, first.attributes)
        ]
    )


def check_alike(
    path: str, arrays: Mapping[str, ArrayIndex], *, but: int | None = None
) -> tuple[Json, ...]:
    """Name every file whose array is of another kind than the first; shapes too, but axis `but`.

    Gives the codecs that serve all.
    """
    first_url, first = next(iter(arrays.items()))
    wrong = []
    codecs = comparison.common_codecs([array.codecs for array in arrays.values()])
    names = ["data_type", "fill_value", "chunk_shape", "dimension_names"]
    for url, array in arrays.items():
        for name in names if codecs is not None else [*names, "codecs"]:
            here, there = getattr(array, name), getattr(first, name)
            if here != there and not (here != here and there != there):  # noqa: PLR0124 - NaN
                wrong.append(f"{url} {path}: {name} {here}, that of {first_url} is {there}")
        shapes = [[n for i, n in enumerate(a.shape) if i != but] for a in (array, first)]
        if but != -1 and shapes[0] != shapes[1]:
            wrong.append(f"{url} {path}: shape {array.shape}, that of {first_url} is {first.shape}")
        wrong += _misread(url, path, array.attributes, first_url, first.attributes)
        if not isinstance(array.chunks, ByteRanges):
            raise UnsupportedError(
                f"combine: {url} {path}: its chunks are {type(array.chunks).__name__.lower()}, "
                "not byte ranges; combine it with combine='group'"
            )
    refuse(wrong)
    return codecs or first.codecs


def gather(tables: Sequence[ByteRanges], owners: Numbers, numbers: Numbers) -> ByteRanges:
    """Make one table: chunk `numbers` of table `owners` at each place of the grid; -1: absent."""
    grid = owners.shape
    starts = np.cumsum([0, *(t.offsets.size for t in tables)])
    is_there = owners.reshape(-1) >= 0
    picked = np.where(is_there, starts[owners.reshape(-1)] + numbers.reshape(-1), 0)
    blobs = np.cumsum([0, *(len(t.inline) for t in tables)]).astype(np.uint64)
    offsets = [
        np.where(_is_inline(t), t.offsets.reshape(-1) + blobs[i], t.offsets.reshape(-1))
        for i, t in enumerate(tables)
    ]
    lengths = np.concatenate([t.lengths.reshape(-1) for t in tables])[picked]
    lengths[~is_there] = 0
    urls, url_ids = _merged([(t.urls, t.url_ids) for t in tables], tables)
    has_fronts = any(t.fronts for t in tables)
    fronts, front_ids = _merged([(t.fronts or (b"",), t.front_ids) for t in tables], tables)
    return ByteRanges(
        offsets=np.concatenate(offsets)[picked].reshape(grid),
        lengths=lengths.reshape(grid),
        urls=urls,
        url_ids=_shrunk(url_ids[picked].reshape(grid), len(urls)),
        parts=_gather_parts(tables, picked, is_there),
        fronts=fronts if has_fronts else (),
        front_ids=_shrunk(front_ids[picked].reshape(grid), len(fronts)) if has_fronts else None,
        inline=b"".join(t.inline for t in tables),
    )


def _is_inline(table: ByteRanges) -> npt.NDArray[np.bool_]:
    flags = np.array([url == INLINE for url in table.urls] or [False])
    if table.url_ids is None:
        return np.full(table.offsets.size, flags[0])
    return flags[table.url_ids.reshape(-1)]


def _merged(
    entries: Sequence[tuple[Sequence[Any], Any]], tables: Sequence[ByteRanges]
) -> tuple[tuple[Any, ...], Numbers]:
    """Join small tables of values, each once, and the ids into them."""
    known: dict[Any, int] = {}
    ids = []
    for (values, local), table in zip(entries, tables, strict=True):
        here = np.array([known.setdefault(v, len(known)) for v in values] or [0], np.int64)
        size = table.offsets.size
        ids.append(np.full(size, here[0]) if local is None else here[local.reshape(-1)])
    return tuple(known), np.concatenate(ids)


def _shrunk(ids: Numbers, count: int) -> Any:
    """Give ids in the smallest type; None where there is nothing to tell apart."""
    if count <= 1:
        return None
    return ids.astype(np.min_scalar_type(count - 1))


def _gather_parts(
    tables: Sequence[ByteRanges], picked: Numbers, is_there: npt.NDArray[np.bool_]
) -> Parts | None:
    if all(t.parts is None for t in tables):
        return None
    begins, counts, offsets, lengths, base = [], [], [], [], 0
    for table in tables:
        parts = table.parts
        if parts is None:
            begins.append(np.zeros(table.offsets.size, np.int64))
            counts.append(np.zeros(table.offsets.size, np.int64))
            continue
        starts = parts.starts.astype(np.int64)
        begins.append(starts[:-1] + base)
        counts.append(np.diff(starts))
        offsets.append(parts.offsets)
        lengths.append(parts.lengths)
        base += len(parts.offsets)
    count = np.where(is_there, np.concatenate(counts)[picked], 0)
    ends = np.cumsum(count)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
    rows = np.repeat(np.concatenate(begins)[picked], count) + within
    return Parts(
        starts=np.concatenate([[0], ends]).astype(np.uint64),
        offsets=np.concatenate(offsets)[rows],
        lengths=np.concatenate(lengths)[rows],
    )
