"""References of an array in a repository, read column by column."""

from typing import Any

import numpy as np

from anychunk.io import is_remote, local_path
from anychunk.model.grid import grid_shape
from anychunk.references.rebuild import Fields, Rows

NATIVE, INLINE = 1, 3
"""Kinds of reference; those of kind 2 are virtual."""


async def read_rows(store: Any, path: str, fields: Fields, url: str) -> tuple[Rows, list[str]]:
    """Read the references of one array, column by column."""
    grid = grid_shape(fields["shape"], fields["chunk_shape"])
    strides = (
        np.cumprod([1, *grid[:0:-1]])[::-1].astype(np.int64) if grid else np.zeros(0, np.int64)
    )
    root = url if is_remote(url) else local_path(url)
    urls: dict[str, int] = {}
    numbers, offsets, lengths, ids = [], [], [], []
    inline: dict[int, bytes] = {}
    batches = store.array_chunk_iterator(path or "/", 1 << 16)
    async for coords, kinds, paths, starts, sizes, data in batches:
        here = coords.reshape(len(kinds), -1)[:, : len(grid)].astype(np.int64) @ strides
        inside = (coords.reshape(len(kinds), -1)[:, : len(grid)] < np.array(grid)).all(axis=1)
        rows = np.flatnonzero(inside & (kinds != INLINE))
        names = [paths[i] for i in rows.tolist()] if len(rows) != len(paths) else paths
        if (kinds == NATIVE).any():
            is_native = (kinds[rows] == NATIVE).tolist()
            names = [
                f"{root}/chunks/{name}" if native else name
                for name, native in zip(names, is_native, strict=True)
            ]
        ids.append(_ids(names, urls))
        numbers.append(here[rows])
        offsets.append(starts[rows])
        lengths.append(sizes[rows])
        inline.update({int(here[i]): bytes(value) for i, value in data.items() if inside[i]})
    return (
        Rows(
            numbers=np.concatenate([np.empty(0, np.int64), *numbers]),
            offsets=np.concatenate([np.empty(0, np.uint64), *offsets]),
            lengths=np.concatenate([np.empty(0, np.uint64), *lengths]),
            url_ids=np.concatenate([np.empty(0, np.int64), *ids]),
            inline=inline,
        ),
        list(urls),
    )


def _ids(names: list[str], urls: dict[str, int]) -> Any:
    for name in dict.fromkeys(names):
        urls.setdefault(name, len(urls))
    return np.fromiter(map(urls.__getitem__, names), np.int64, len(names))
