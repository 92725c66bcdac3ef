"""Compressions and padding values as Zarr metadata: standard codecs wherever those are exact."""

import math
from typing import Any

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats import _raw
from anychunk.formats.jnrrd.volume import Volume
from anychunk.model.index import Json

# levels are irrelevant for reading, but the codecs' configurations require them
EXACT: dict[str, Json] = {
    "gzip": {"name": "gzip", "configuration": {"level": 6}},
    "zstd": {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 9}},
    "lz4": {"name": "anychunk.stream", "configuration": {"compression": "lz4"}},
}


def bytes_codec(volume: Volume) -> Json:
    """Return the codec of uncompressed samples, as JSON."""
    return _raw.bytes_codec(volume.dtype.itemsize, volume.endian)


def compressor(name: str, *, is_exact: bool, skip: int = 0) -> tuple[Json, ...]:
    """Return the codecs of a compression, as JSON.

    Parameters:
        name: The compression as the header names it; `raw` means none.
        is_exact: Whether the byte range ends with the stream. Otherwise other bytes follow,
            and the decoder must stop at the end of the stream.
        skip: How many decoded bytes precede the samples.
    """
    if name == "raw" and is_exact and not skip:
        return ()
    if is_exact and not skip:
        return (EXACT[name],)
    configuration: dict[str, Json] = {"compression": name, "leading": True}
    if skip:
        configuration["skip"] = skip
    return ({"name": "anychunk.stream", "configuration": configuration},)


def fill_json(value: float | None, dtype: np.dtype[Any]) -> Json:
    """Return a padding value as the `fill_value` of Zarr metadata; None (null) is NaN.

    Raises:
        FormatError: An integer type cannot hold the value.
    """
    if value is None:
        value = math.nan
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value):
            raise FormatError(f"tile:padding_value: {value} cannot be stored as {dtype}")
        if not bounds.min <= value <= bounds.max:
            raise FormatError(f"tile:padding_value: {value}, expected {bounds.min} to {bounds.max}")
        return int(value)
    shown: Json = float(value)
    if math.isnan(shown):
        shown = "NaN"
    elif math.isinf(shown):
        shown = "Infinity" if shown > 0 else "-Infinity"
    return [shown, 0.0] if dtype.kind == "c" else shown
