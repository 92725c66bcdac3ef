"""Pack floats into integers: `scale_offset` and `cast_value` chosen by the values of an image.

The values from the least to the greatest are spread over the codes of the integer type, or are
rounded to steps of twice the error that the caller allows. The lowest code stands for NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from anychunk.codecs import to_json
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.number_types import BY_NAME, FloatType
from anychunk.codecs.cast_value import CastValue, check_exact
from anychunk.codecs.scale_offset import ScaleOffset
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, OptionError
from anychunk.model.grid import Shape, touched_chunks
from anychunk.model.index import Json

if TYPE_CHECKING:
    from anychunk.conversion.executor import Workers
    from anychunk.conversion.levels import Level, ZarrOptions
    from anychunk.conversion.tasks import Conversion

TARGETS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOATS = ("float16", "float32", "float64")
OPERATIONS = 16
"""Roundings of the data type, at most, that encoding and decoding add to the step's own error."""
DOUBLINGS = 64


@dataclass(frozen=True, kw_only=True)
class Packing:
    """The codecs of a packed array."""

    codecs: tuple[Json, ...]
    error: float
    """The largest error that a value may have."""


def parse(text: str) -> tuple[str, float | None]:
    """Return the integer type and the allowed error of `int16` or `int16:0.01`."""
    name, _, error = text.partition(":")
    try:
        most = float(error) if error else None
    except ValueError:
        most = math.nan
    if name not in TARGETS or not (most is None or 0 < most < math.inf):
        raise OptionError(
            f"convert: pack {text!r}, expected {' '.join(TARGETS)}, with an optional :ERROR, the "
            "largest difference allowed"
        )
    return name, most


def choose(low: float, high: float, data_type: str, pack: str) -> Packing:
    """Return how to pack values from `low` to `high`.

    Raises `OptionError` if the integer type cannot hold them within the allowed error.
    """
    name, error = parse(pack)
    kind, real = BY_NAME[name], BY_NAME[data_type]
    assert isinstance(real, FloatType)
    try:
        check_exact(real, kind)
    except AnychunkError as e:
        raise OptionError(f"convert: pack {pack}: {real.name} has too few digits") from e
    first, last = int(kind.low) + 1, int(kind.high)  # the lowest is NaN
    margin = OPERATIONS * 2.0**-real.precision * max(abs(low), abs(high))
    finest = (high - low) / (last - first)
    if low == high:  # without an error: the offset is the value, or one exact step from it
        size, tiny = abs(np.dtype(data_type).type(low)), np.finfo(data_type).tiny
        ulp = size - np.nextafter(size, 0, dtype=data_type)
        first, finest, error = max(first, 0), float(max(ulp, 2 * tiny)), None
    step = finest
    if error is not None:
        step = 2 * (error - margin)
    for _ in range(DOUBLINGS):
        codecs = (
            _codecs(name, data_type, offset=low - first * step, scale=1 / step)
            if step > 0
            else None
        )
        if codecs is not None and _holds(codecs, np.array([low, high], data_type)):
            # no value needs it, but zarr checks codecs inside shards with a fill value of 0
            stored = (codecs[0], replace(codecs[1], out_of_range="clamp"))
            return Packing(codecs=tuple(map(to_json, stored)), error=error or step / 2 + margin)
        if error is not None:
            raise OptionError(
                f"convert: pack {pack}: values from {low:g} to {high:g} have errors of up to "
                f"{finest / 2 + margin:.3g} in {name}; allow that, or choose a longer type"
            )
        step *= 2  # offset and scale are rounded, which may move the ends beyond the codes
    raise OptionError(f"convert: pack {pack}: values from {low:g} to {high:g} do not fit")


def _codecs(
    name: str, data_type: str, *, offset: float, scale: float
) -> tuple[ScaleOffset, CastValue] | None:
    dtype = np.dtype(data_type).type
    a, b = float(dtype(offset)), float(dtype(scale))
    if not (math.isfinite(a) and math.isfinite(b) and b):
        return None
    nan = int(BY_NAME[name].low)
    pairs = {"encode": [["NaN", nan]], "decode": [[nan, "NaN"]]}
    cast = CastValue(data_type=name, scalar_map=pairs)  # type: ignore[arg-type]
    return ScaleOffset(offset=a, scale=b), cast


def _holds(
    codecs: tuple[ScaleOffset, CastValue], ends: "np.ndarray[tuple[int], np.dtype[np.floating]]"
) -> bool:
    spec, stored = ChunkSpec(ends.shape, ends.dtype, 0), ends
    try:
        for codec in codecs:
            stored = codec.encode_array(stored, spec)
        decoded = stored
        for codec in reversed(codecs):
            decoded = codec.decode_array(decoded, spec)
    except (ChunkEncodeError, ChunkDecodeError):
        return False
    return bool(stored.min() > BY_NAME[codecs[1].data_type].low)


def packings(conversion: "Conversion", workers: "Workers", pack: str) -> dict[str, Packing]:
    """Read the images of a plan and return how to pack each one, by its path."""
    parse(pack)
    found: dict[str, Packing] = {}
    for picture in conversion.plan.pictures:
        copied = [level for level in picture.chain.levels if level.source is not None]
        data_type = copied[0].metadata["data_type"]
        if data_type not in FLOATS:
            raise OptionError(
                f"convert: {picture.path or 'the image'} has samples of {data_type}; pack needs "
                f"{' '.join(FLOATS)}"
            )
        low, high = math.inf, -math.inf
        items = (
            (level, at)
            for level in copied
            for at in touched_chunks((0,) * len(level.shape), level.shape, level.region)
        )
        for _, (least, greatest) in workers.run(extent, items):
            low, high = min(low, least), max(high, greatest)
        found[picture.path] = choose(*((low, high) if low <= high else (0.0, 0.0)), data_type, pack)
    return found


def extent(conversion: "Conversion", item: "tuple[Level, Shape]") -> tuple[float, float]:
    """Return the least and the greatest valid value of a region; (inf, -inf) if there is none."""
    level, coords = item
    data = conversion.read_source(level, level.box(coords))
    valid = data[~(np.isnan(data) | (data == level.nodata))]
    if np.isinf(valid).any():
        raise OptionError(f"convert: {level.path} has infinite samples, which pack cannot hold")
    return float(valid.min(initial=np.inf)), float(valid.max(initial=-np.inf))


def notes(options: "ZarrOptions", errors: Mapping[str, float]) -> list[str]:
    """Return one line per packed image about the error that was measured."""
    kind = str(options.pack).partition(":")[0]
    found = []
    for path in options.packed:
        own = [e for name, e in errors.items() if not path or name.startswith(f"{path}/")]
        found.append(
            f"{path or '/'}: packed as {kind}, the largest error measured is {max(own):.6g}; zarr "
            "opens it with anychunk.enable(), or with cast-value-rs installed"
        )
    return found
