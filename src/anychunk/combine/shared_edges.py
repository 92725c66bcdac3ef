"""Cells of elevation that share the posts on their edges, as DTED has them: each post once.

A cell of 1201 x 1201 posts repeats the southernmost posts in the cell below it, and the easternmost
ones in the cell to its right. For a mosaic these are left out of every cell, so that cells lie 1200
posts apart and their chunks join; the mosaic itself ends one post before the last edges.
"""

from collections.abc import Mapping
from dataclasses import replace

from anychunk.codecs.dted import Dted
from anychunk.combine.images import SameImages
from anychunk.metadata.meaning import Transform
from anychunk.model.index import ArrayIndex, ByteRanges

TOLERANCE = 1e-3
"""How many posts a cell may be off the common grid."""


def without_shared_edges(images: SameImages) -> SameImages:
    """Return the images without the posts that their neighbours repeat.

    Images are returned as they are if there is only one, if they are not DTED cells, or if they do
    not lie on a grid of cells that share their edges.
    """
    found = {url: [level.image for level in levels] for url, levels in images.levels.items()}
    arrays = {url: listed[0] for url, listed in found.items() if len(listed) == 1}
    if len(arrays) < 2 or len(arrays) != len(images.levels):
        return images
    transforms = {url: meaning.place.transform for url, meaning in images.meanings.items()}
    trimmed = {url: _trimmed(array) for url, array in arrays.items()}
    if None in trimmed.values() or not _are_cells(arrays, transforms):
        return images
    levels = {
        url: [replace(levels[0], image=trimmed[url] or levels[0].image)]
        for url, levels in images.levels.items()
    }
    return replace(images, levels=levels)


def _are_cells(
    arrays: Mapping[str, ArrayIndex], transforms: Mapping[str, Transform | None]
) -> bool:
    """Return whether all images lie whole cells, less a shared post each, apart."""
    first = next(iter(transforms.values()))
    rows, columns = next(iter(arrays.values())).shape[-2:]
    for array, transform in zip(arrays.values(), transforms.values(), strict=True):
        if transform is None or first is None or array.shape[-2:] != (rows, columns):
            return False
        if not first[0] or not first[4] or min(rows, columns) < 2:
            return False
        across = (transform[2] - first[2]) / first[0] / (columns - 1)
        down = (transform[5] - first[5]) / first[4] / (rows - 1)
        if max(abs(n - round(n)) for n in (across, down)) > TOLERANCE:
            return False
    return True


def _trimmed(array: ArrayIndex) -> ArrayIndex | None:
    """Return a cell without its southernmost row and easternmost column; None if it is no cell."""
    last, chunks = array.codecs[-1] if array.codecs else None, array.chunks
    if not isinstance(last, dict) or last.get("name") != Dted.name or len(array.shape) != 2:
        return None
    rows, columns = array.shape[0] - 1, array.shape[1] - 1
    step = array.chunk_shape[1]
    if not isinstance(chunks, ByteRanges) or array.grid[0] != 1 or columns % step or rows < 1:
        return None
    codec = {**last, "configuration": {**last["configuration"], "trim_bottom": 1}}
    kept = slice(0, columns // step)
    return replace(
        array,
        shape=(rows, columns),
        chunk_shape=(rows, step),
        codecs=(*array.codecs[:-1], codec),
        chunks=replace(chunks, offsets=chunks.offsets[:, kept], lengths=chunks.lengths[:, kept]),
    )
