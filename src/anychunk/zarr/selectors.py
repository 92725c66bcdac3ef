"""What zarr gives a pipeline: selectors as boxes, the fill value, the number of threads."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import zarr

from anychunk.engine.request import Selector
from anychunk.io.threads import cores
from anychunk.zarr.core import ArraySpec

type Places = Sequence[tuple[Selector, Selector]]
"""What is taken of each chunk, and where it goes."""


def workers() -> int:
    """Return the number of threads: `codec_pipeline.max_workers` of zarr, or one per core."""
    return int(zarr.config.get("codec_pipeline.max_workers", None) or cores())


def fill_of(spec: ArraySpec) -> Any:
    """Return the value of absent chunks."""
    return spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value


def boxes_of(places: Places, out: npt.NDArray[Any]) -> tuple[Places, npt.NDArray[Any]] | None:
    """Return selectors of zarr as boxes; None if some are not.

    Also the result with an axis of length one for each that an integer removes.
    """
    first = places[0][0]
    if type(first) is not tuple or not {slice, int}.issuperset(map(type, first)):
        return None
    for side in itertools.chain.from_iterable(places):
        if type(side) is not tuple or any(
            type(p) is slice and p.step not in (None, 1) for p in side
        ):
            return None
    kept = [type(part) is slice for part in first]
    if all(kept):
        return places, out
    listed = []
    for source, target in places:
        remaining = iter(target)
        listed.append(
            (
                tuple(p if type(p) is slice else slice(p, p + 1) for p in source),
                tuple(next(remaining) if is_kept else slice(0, 1) for is_kept in kept),
            )
        )
    return listed, out[tuple(slice(None) if is_kept else None for is_kept in kept)]
