"""The `scalar_map` of `cast_value`: values that are replaced before any casting rule applies.

Spec: zarr-extensions, codecs/cast_value, `scalar_map`. Keys and values are in the fill value
encoding of their own types. The first of equal keys wins. `"NaN"` matches every NaN, and a NaN
written as bits matches only NaNs with these bits; any other key matches by value, so `0.0` matches
`-0.0`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from anychunk.codecs.cast import json_scalar
from anychunk.codecs.cast.number_types import IntType, NumberType, code_values
from anychunk.errors import CodecConfigError
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
        key, value = (json_scalar.normalized(side) for side in pair)
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
        return json_scalar.parse(scalar, kind)
    except (ValueError, OverflowError) as e:
        raise CodecConfigError(
            f"{where} {scalar!r} is not representable in dtype {kind.name}: {e}"
        ) from e


def _match(key: Json, stored: Array, kind: NumberType) -> str:
    """Return how a key is compared; see `Entry.match`."""
    if isinstance(kind, IntType) or not np.isnan(as_number(stored, kind)):
        return "value"
    return "nan" if json_scalar.bits_of(key) is None else "bits"


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
