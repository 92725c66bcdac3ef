"""Halve a region as a level of a pyramid does, leaving out what stands for nothing. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import downsample as ds
from anychunk.index import Shape

type Array = npt.NDArray[Any]


def shrink(piece: Array, ratio: Shape, method: str, nodata: float | None) -> Array:
    """Reduce the whole windows of a piece; elements that equal `nodata` have no say."""
    count = tuple(n // r for n, r in zip(piece.shape, ratio, strict=True))
    whole = piece[tuple(slice(n * r) for n, r in zip(count, ratio, strict=True))]
    if 0 in count:
        return np.empty(count, piece.dtype)
    if nodata is None or method == "mode":
        return ds.by_window(whole, ratio, method)
    value = np.asarray(nodata).astype(piece.dtype)
    is_valid = ~np.isnan(whole) if np.isnan(nodata) else whole != value
    if is_valid.all():
        return ds.by_window(whole, ratio, method)
    return _without(whole, is_valid, value, ratio, method)


def _without(whole: Array, is_valid: Array, value: Array, ratio: Shape, method: str) -> Array:
    counts = ds.add_up(is_valid.astype(np.int64), ratio, np.dtype(np.int64))
    if method in ("max", "min"):
        info = np.iinfo(whole.dtype) if whole.dtype.kind in "iu" else np.finfo(whole.dtype)
        last = info.min if method == "max" else info.max
        reduced = ds.by_window(np.where(is_valid, whole, whole.dtype.type(last)), ratio, method)
    else:
        wide = np.dtype(np.complex128 if whole.dtype.kind == "c" else np.longdouble)
        sums = ds.add_up(np.where(is_valid, whole, 0).astype(wide), ratio, wide)
        means = sums / np.maximum(counts, 1)
        reduced = (np.rint(means) if whole.dtype.kind in "iu" else means).astype(whole.dtype)
    return np.where(counts > 0, reduced, value)
