"""Offers zarr the data types of `small_types` without showing them to code that lists zarr's types.

zarr loads entry points of the group `zarr.data_type` in the middle of resolving the first data type
of a process, whatever it is. Types that are added to its dictionary then break a loop over the
dictionary that resolves a type ("dictionary changed size during iteration"), and turn up in lists
of types that both Zarr formats can store: those of zarr's own tests and test strategies.

So the dictionary is replaced by one whose items are the same. When zarr itself resolves a type, it
is asked for last, after the types of everyone else. `ml_dtypes` is imported only if one is needed.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from zarr.errors import DataTypeValidationError

from anychunk.codecs.zarr_core import ZDType, data_type_registry

RESOLVER = type(data_type_registry).__module__
NAMES = frozenset(
    [
        *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"),
        *("float4_e2m1fn", "int2", "int4", "uint2", "uint4"),
    ]
)

type DataType = type[ZDType[Any, Any]]


def find(name: object) -> DataType:
    """Import and return the data type of a name that nobody else has registered.

    Raises:
        DataTypeValidationError: We have none; zarr then tries the next.
    """
    if not isinstance(name, str) or name not in NAMES or name in data_type_registry.contents:
        raise DataTypeValidationError(f"{name!r} is not one of {sorted(NAMES)}")
    from anychunk.codecs.cast.small_types import TYPES  # slow, and rarely needed

    return TYPES[name]


class Finder:
    """All of our data types, with the methods that zarr calls to try one."""

    def from_native_dtype(self, dtype: np.dtype[Any]) -> Any:
        is_foreign = dtype.type.__module__ == "ml_dtypes"
        return find(dtype.name if is_foreign else None).from_native_dtype(dtype)

    def from_json(self, data: Any, *, zarr_format: Any) -> Any:  # called until zarr 3.4.1
        return find(data).from_json(data, zarr_format=zarr_format)

    def _from_json_resolved(self, data: Any, *, resolver: Any) -> Any:
        return find(data)._from_json_resolved(data, resolver=resolver)  # noqa: SLF001


FINDER: Any = Finder()


class Contents(dict[str, DataType]):
    """The registered data types, among which zarr's registry finds ours, too."""

    def values(self) -> Any:
        # `match_dtype` and `match_json` try all values, and have no other hook
        caller = sys._getframe(1).f_globals  # noqa: SLF001 - documented
        return self._with_ours() if caller.get("__name__") == RESOLVER else super().values()

    def _with_ours(self) -> Iterator[DataType]:
        yield from super().values()
        yield FINDER

    def __missing__(self, name: str) -> DataType:
        try:
            return find(name)
        except DataTypeValidationError:
            raise KeyError(name) from None


def offer() -> None:
    """Let zarr find our data types, unless it does already."""
    contents = data_type_registry.contents
    if not isinstance(contents, Contents):
        # a new dictionary: someone may be in a loop over the present one
        object.__setattr__(data_type_registry, "contents", Contents(contents))


offer()

REGISTERED: DataType = next(iter(data_type_registry.contents.values()))
"""The object of the entry point: already registered, so that registering it changes nothing."""
