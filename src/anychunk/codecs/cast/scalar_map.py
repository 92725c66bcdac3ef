"""The `scalar_map` of `cast_value`: values that are replaced before any casting rule applies.

Spec: zarr-extensions, codecs/cast_value, `scalar_map`. Keys and values are in the fill value
encoding of their own types. The first of equal keys wins. `"NaN"` matches every NaN, and a NaN
written as bits matches only NaNs with these bits; any other key matches by value, so `0.0` matches
`-0.0`.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.blockwise import GOOD, Scratch
from anychunk.codecs.cast.from_float import float_to_float
from anychunk.codecs.cast.number_types import (
    DOUBLE,
    FloatType,
    IntType,
    NumberType,
    code_values,
    has_unused_bits,
    number_type,
    used_bits,
)
from anychunk.codecs.data_types import default
from anychunk.errors import AnychunkError, CodecConfigError
from anychunk.model.grid import Array
from anychunk.model.index import Json

type Pairs = tuple[tuple[Json, Json], ...]

DIRECTIONS = ("encode", "decode")


@dataclass(frozen=True)
class ScalarMap:
    """The map as JSON scalars, not yet bound to number types."""

    encode: Pairs | None = None
    decode: Pairs | None = None

    def to_json(self) -> dict[str, list[tuple[Json, Json]]]:
        """Return the JSON of the directions that are present."""
        both = {"encode": self.encode, "decode": self.decode}
        return {name: list(pairs) for name, pairs in both.items() if pairs is not None}


def parse_scalar_map(data: object, *, codec: str) -> ScalarMap:
    """Parse `{"encode": [[key, value], ...], "decode": ...}`; mappings are accepted as pairs."""
    if isinstance(data, ScalarMap):
        return data
    if not isinstance(data, Mapping):
        raise CodecConfigError(f"{codec}: scalar_map is {data!r}, expected an object")
    if unknown := sorted(set(map(str, data)) - set(DIRECTIONS)):
        raise CodecConfigError(
            f"{codec}: unknown key {unknown[0]!r} in scalar_map; known keys: encode, decode"
        )
    return ScalarMap(**{name: _pairs(data[name], name, codec) for name in data})


def _pairs(data: object, name: str, codec: str) -> Pairs | None:
    if data is None:
        return None
    where = f"{codec}: scalar_map {name}"
    items = data.items() if isinstance(data, Mapping) else data
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise CodecConfigError(f"{where} is {data!r}, expected a list of pairs")
    pairs = []
    for item in items:
        if isinstance(item, str) or not isinstance(item, Iterable) or len(pair := tuple(item)) != 2:
            raise CodecConfigError(f"{where} has {item!r}, expected a pair")
        key, value = (normalized(side) for side in pair)
        for side in (key, value):
            if isinstance(side, bool) or not isinstance(side, int | float | str):
                raise CodecConfigError(f"{where} has {side!r}, expected a number or a string")
        pairs.append((key, value))
    return tuple(pairs)


@dataclass(frozen=True, eq=False)
class Entry:
    """One key and its value, as 0-d arrays of the types that store them."""

    key: Array
    value: Array
    match: str
    """How the key is compared: `value`, `bits`, or `nan` for every NaN."""

    def mask(self, values: Array, out: Array) -> Array:
        """Write to `out` which elements of a block match the key; return `out`."""
        if self.match == "nan":
            np.not_equal(values, values, out=out)
        elif self.match == "bits":
            bits = values.view(f"u{values.dtype.itemsize}")
            np.equal(bits, self.key.view(bits.dtype), out=out)
        else:
            np.equal(values, self.key, out=out)
        return out


def bind(
    pairs: Pairs | None, source: NumberType, target: NumberType, *, where: str
) -> tuple[Entry, ...]:
    """Return the entries for a pair of types, without keys that an earlier entry always matches.

    Parameters:
        pairs: keys and values as JSON.
        source: the type of the keys.
        target: the type of the values.
        where: prefix of error messages.

    Raises:
        CodecConfigError: a type cannot represent its scalar.
    """
    entries: dict[object, Entry] = {}
    for key, value in pairs or ():
        stored_key = _parse(key, source, f"{where} key")
        stored_value = _parse(value, target, f"{where} value")
        match = _match(key, stored_key, source)
        name = match, None if match == "nan" else scalar_value(stored_key, source, match)
        # after "NaN" no NaN is left for a key written as bits
        if match != "bits" or ("nan", None) not in entries:
            entries.setdefault(name, Entry(stored_key, stored_value, match))
    return tuple(entries.values())


def _parse(scalar: Json, kind: NumberType, where: str) -> Array:
    try:
        return parse(scalar, kind)
    except (ValueError, OverflowError) as e:
        raise CodecConfigError(
            f"{where} {scalar!r} is not representable in dtype {kind.name}: {e}"
        ) from e


def _match(key: Json, stored: Array, kind: NumberType) -> str:
    """Return how a key is compared; see `Entry.match`."""
    if isinstance(kind, IntType) or not np.isnan(as_number(stored, kind)):
        return "value"
    return "nan" if bits_of(key) is None else "bits"


def scalar_value(stored: Array, kind: NumberType, match: str) -> float | bytes:
    """Return what identifies a key: its bits or its value."""
    return stored.tobytes() if match == "bits" else as_number(stored, kind)


def as_number(stored: Array, kind: NumberType) -> float:
    """Return a stored scalar as a Python number of the same value."""
    if not kind.is_foreign:
        return stored.item()  # type: ignore[no-any-return]
    if kind.stored.itemsize == 1:
        return code_values(kind)[stored].item()  # type: ignore[no-any-return]
    return float(stored.view(kind.dtype).astype(np.float64))


# Scalars in JSON, in the fill value encoding of their number type.
#
# Spec: Zarr v3 core, "Fill value". Integers are JSON numbers; floats are numbers, `"NaN"`,
# `"Infinity"`, `"-Infinity"`, or their bits in hexadecimal. As in zarr-python, numbers in strings
# are
# accepted too, and so is `"+Infinity"`, which the specification of `cast_value` uses.

SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
HEX = re.compile(r"0[xX]([0-9a-fA-F]+)")


def normalized(value: object) -> Json:
    """Return the JSON of a Python or numpy scalar."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def parse(value: Json, kind: NumberType) -> Array:
    """Return a JSON scalar as a 0-d array of `kind.stored`.

    Raises:
        ValueError: the type cannot represent the scalar.
        OverflowError: an infinity for an integer type.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - callers catch ValueError
    if isinstance(kind, IntType):
        return _parse_int(value, kind)
    return _parse_float(value, kind)


def bits_of(value: Json) -> str | None:
    """Return the hexadecimal digits of a scalar written as bits, or None."""
    match = HEX.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def _parse_int(value: float | str, kind: IntType) -> Array:
    number = int(value)  # ValueError for other strings, OverflowError for infinities
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value!r} is not an integer")
    if not kind.low <= number <= kind.high:
        raise ValueError(f"{value!r} is outside [{kind.low}, {kind.high}]")
    if kind.is_foreign:
        number &= (1 << kind.bits) - 1
    return np.array(number, kind.stored)


def _parse_float(value: float | str, kind: FloatType) -> Array:
    digits = bits_of(value)
    if digits is not None:
        if len(digits) != 2 * kind.itemsize:
            raise ValueError(f"{value!r} has {len(digits)} digits, expected {2 * kind.itemsize}")
        bits = int(digits, 16) & (int(used_bits(kind)) if has_unused_bits(kind) else -1)
        return np.array(bits, kind.bits).view(kind.stored)
    number = SPECIAL[value] if isinstance(value, str) and value in SPECIAL else float(value)
    if math.isnan(number) and kind.nan is not None:
        return np.array(kind.nan, kind.bits).view(kind.stored)
    return round_to(number, kind)


def round_to(number: float, kind: FloatType) -> Array:
    """Return the number of `kind` that is nearest to `number`; ValueError if out of range."""
    source, out = np.array([number], np.float64), np.empty(1, kind.stored)
    with np.errstate(all="ignore"):
        bad = float_to_float(DOUBLE, kind, "nearest-even", None)(source, out, Scratch())
    if bad != GOOD:
        raise ValueError(f"outside [{kind.low:g}, {kind.high:g}]")
    return out[0:1].reshape(())


# The fill value behind a codec that changes values.
#
# zarr writes the fill value for elements that were never assigned and shows it for absent chunks,
# so
# it passes through the codecs like any other value: `encoded_spec` must return the encoded
# one.


def number_type_of(dtype: np.dtype[Any], codec: str) -> NumberType:
    """Return the number type of a data type; `CodecConfigError` if it has none."""
    kind = number_type(dtype)
    if kind is None:
        raise CodecConfigError(
            f"{codec}: the codec only supports integer and floating-point data types, got {dtype}"
        )
    return kind


class EncodesFill(Hashable, Protocol):
    """A codec that changes values, including the fill value."""

    @property
    def strict(self) -> bool: ...

    def encode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def decode_array(self, array: npt.NDArray[Any], spec: ChunkSpec) -> npt.NDArray[Any]: ...
    def encode_fill(self, fill: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


def there_and_back(
    codec: EncodesFill, fill: npt.NDArray[Any], *, what_to_do: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the encoded fill value, and what it decodes to.

    Parameters:
        codec: the codec.
        fill: the fill value as a 0-d array.
        what_to_do: advice for the message of the error.

    Raises:
        CodecConfigError: the fill value cannot be encoded, or cannot be decoded again.
    """
    spec = ChunkSpec((), fill.dtype)
    try:
        encoded = codec.encode_array(fill, spec)
        return encoded, codec.decode_array(encoded, spec)
    except AnychunkError as e:
        raise CodecConfigError(f"{e}; this is the fill value of the array: {what_to_do}") from e


def with_encoded_fill(codec: EncodesFill, spec: ChunkSpec, dtype: np.dtype[Any]) -> ChunkSpec:
    """Return the spec of the encoded chunk, with data type `dtype` and the encoded fill value."""
    fill = default(spec.dtype) if spec.fill_value is None else spec.fill_value
    stored = np.asarray(fill, spec.dtype)
    encoded = _encoded_fill(codec, repr(codec), codec.strict, spec.dtype, stored.tobytes())
    return replace(spec, dtype=dtype, fill_value=encoded[()], data_type=None)


@lru_cache(maxsize=256)
def _encoded_fill(
    codec: EncodesFill, text: str, strict: bool, dtype: np.dtype[Any], fill: bytes
) -> npt.NDArray[Any]:
    # cached, because zarr resolves the spec for every chunk. `text` and `strict` are keys of the
    # cache because codecs that compare equal may differ in the sign of a zero, and in `strict`
    return codec.encode_fill(np.frombuffer(fill, dtype).reshape(()))
