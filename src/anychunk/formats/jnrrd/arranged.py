"""An array with its axes in the order in which a file stores them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Arranged:
    """A view of an array: axes permuted, and axes of size one added; nothing is read until sliced.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape` and slicing.
        dtype: Of what is read.
        order: For each axis of the view the axis of the array; None for an axis of size one that
            the array does not have. None altogether: the axes of the array.
    """

    def __init__(
        self, array: Any, dtype: np.dtype[Any], order: Sequence[int | None] | None = None
    ) -> None:
        self.array, self.dtype = array, dtype
        self.order = tuple(range(len(array.shape))) if order is None else tuple(order)
        self.shape = tuple(1 if a is None else int(array.shape[a]) for a in self.order)
        self.ndim = len(self.shape)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The chunk shape of a zarr or dask array, in the order of the view; None if unknown."""
        found = getattr(self.array, "chunks", None)
        if not isinstance(found, tuple) or len(found) != len(self.array.shape):
            return None
        sizes = [max(c, default=1) if isinstance(c, tuple) else int(c) for c in found]
        return tuple(1 if a is None else max(1, sizes[a]) for a in self.order)

    def __getitem__(self, box: tuple[slice, ...]) -> npt.NDArray[Any]:
        known = [(a, b) for a, b in zip(self.order, box, strict=True) if a is not None]
        found = np.asarray(self.array[tuple(b for _, b in sorted(known, key=lambda pair: pair[0]))])
        moved = found.transpose([a for a, _ in known])
        sizes = iter(moved.shape)
        shape = [1 if a is None else next(sizes) for a in self.order]
        return moved.reshape(shape).astype(self.dtype, copy=False)
