"""Halve a region as a level of a pyramid does, leaving out what stands for nothing. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import resample as ds
from anychunk.model.grid import Shape

type Array = npt.NDArray[Any]


def shrink(piece: Array, ratio: Shape, method: str, nodata: float | None) -> Array:
    """Reduce the whole windows of a piece; elements that equal `nodata` have no say."""
    count = tuple(n // r for n, r in zip(piece.shape, ratio, strict=True))
    whole = piece[tuple(slice(n * r) for n, r in zip(count, ratio, strict=True))]
    if 0 in count:
        return np.empty(count, piece.dtype)
    return ds.by_window(whole, ratio, method, nodata)
