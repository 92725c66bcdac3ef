"""Thumbnails of images, drawn from the levels that are served."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk.decode.boxes import array_spec
from anychunk.model.images import images, join
from anychunk.model.index import ArrayIndex, GroupIndex, find
from anychunk.thumbnail import png, thumbnail
from anychunk_serve.chunks import Chunks
from anychunk_serve.descriptions import Attributes
from anychunk_serve.hierarchy import native_dtype

if TYPE_CHECKING:
    from anychunk.model.grid import Shape

SIZE = 256
"""The longer side, in pixels."""


class ServedArray:
    """An array of the served hierarchy that can be sliced."""

    def __init__(self, chunks: Chunks, path: str, array: ArrayIndex) -> None:
        self._chunks, self._path = chunks, path
        self.shape: Shape = array.shape
        self.chunks: Shape = array.chunk_shape
        self.ndim = len(array.shape)
        self.dtype = native_dtype(array)
        self.fill_value = array_spec(array).fill_value

    def __getitem__(self, box: tuple[slice, ...]) -> Any:
        spans = [part.indices(n)[:2] for part, n in zip(box, self.shape, strict=True)]
        start, stop = tuple(a for a, _ in spans), tuple(b for _, b in spans)
        found = self._chunks.read(self._path, start, stop)
        if found is not None:
            return found
        return np.full([b - a for a, b in spans], self.fill_value, self.dtype)


def thumbnail_png(chunks: Chunks, path: str) -> bytes | None:
    """Return a PNG of the image at `path`, or None if there is no image at that path."""
    if not any(image.path == path for image in images(chunks.tree)):
        return None
    node = find(chunks.tree, path)
    assert node is not None
    if isinstance(node, GroupIndex):
        # with the limits of channels that clients are told
        node = replace(node, attributes=Attributes(chunks).of(path, node))

    def open_level(level: str) -> Any:
        place = join(path, level) if level else path
        array = find(chunks.tree, place)
        assert isinstance(array, ArrayIndex)
        return ServedArray(chunks, place, array)

    return png(thumbnail(node, image="", size=SIZE, open_path=open_level))
