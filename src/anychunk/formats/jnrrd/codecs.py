"""The Zarr codecs that describe stored samples: standard ones wherever they say it exactly."""

import math
from typing import Any

import numpy as np

from anychunk.errors import FormatError
from anychunk.model.index import Json

EXACT: dict[str, Json] = {
    "gzip": {"name": "gzip", "configuration": {"level": 6}},
    "zstd": {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 9}},
    "lz4": {"name": "anychunk.lz4_frame"},
}


def compressor(name: str, *, is_exact: bool, skip: int = 0) -> tuple[Json, ...]:
    """Give the codec of a compression; `is_exact`: the range ends where the stream does."""
    if name == "raw" and is_exact and not skip:
        return ()
    if is_exact and not skip:
        return (EXACT[name],)
    configuration = {"compression": name, "skip": skip} if skip else {"compression": name}
    return ({"name": "anychunk.leading_stream", "configuration": configuration},)


def fill_json(value: float | None, dtype: np.dtype[Any]) -> Json:
    """Give a padding value as Zarr metadata spells it; null is NaN."""
    if value is None:
        value = math.nan
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value):
            raise FormatError(f"tile:padding_value: {value} is no {dtype}")
        if not bounds.min <= value <= bounds.max:
            raise FormatError(
                f"tile:padding_value: {value} is outside {bounds.min} to {bounds.max}"
            )
        return int(value)
    shown: Json = float(value)
    if math.isnan(shown):
        shown = "NaN"
    elif math.isinf(shown):
        shown = "Infinity" if shown > 0 else "-Infinity"
    return [shown, 0.0] if dtype.kind == "c" else shown
