"""Zarr data types of `ml_dtypes`: bfloat16, the float8, float6 and float4 families, int2 ... uint4.

Spec: zarr-extensions, data-types/. The `bytes` codec stores bfloat16 in two bytes of either order,
and every other type in one byte per value. Unused high bits are written as zero and ignored when
read.

Fill values of floats are numbers, `"NaN"`, `"Infinity"`, `"-Infinity"` or the bits in hexadecimal;
a NaN other than the type's default NaN is written as its bits. `float8_e8m0fnu` has no zero: its
default fill value is 1.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from zarr.errors import DataTypeValidationError

from anychunk.codecs.cast import scalar_map
from anychunk.codecs.cast.number_types import BY_NAME, FloatType, NumberType
from anychunk.codecs.cast.scalar_map import as_number
from anychunk.model.grid import Array
from anychunk.model.index import Json
from anychunk.zarr.core import (
    HasEndianness,
    HasItemSize,
    ZDType,
)


@dataclass(frozen=True)
class SmallType(ZDType[np.dtype[Any], np.generic], HasItemSize):
    """Base of these data types; a subclass sets `_zarr_v3_name`."""

    kind: ClassVar[NumberType]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_zarr_v3_name" in cls.__dict__:
            cls.kind = BY_NAME[cls._zarr_v3_name]
            cls.dtype_cls = type(cls.kind.dtype)

    @classmethod
    def from_native_dtype(cls, dtype: np.dtype[Any]) -> Self:
        if not cls._check_native_dtype(dtype):
            raise DataTypeValidationError(f"{dtype} is not {cls._zarr_v3_name}")
        return cls()

    def to_native_dtype(self) -> np.dtype[Any]:
        return self.kind.dtype

    @classmethod
    def _from_json_v2(cls, data: Json) -> Self:
        # the numpy type strings are "|V1" and "<V2", which do not identify the type
        raise DataTypeValidationError(f"{data!r}: Zarr v2 has no name for {cls._zarr_v3_name}")

    @classmethod
    def _from_json_v3(cls, data: Json) -> Self:
        if data != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is not {cls._zarr_v3_name!r}")
        return cls()

    def to_json(self, zarr_format: int) -> Any:
        if zarr_format != 3:
            raise ValueError(f"Zarr v2 has no name for {self._zarr_v3_name}; use Zarr v3")
        return self._zarr_v3_name

    @property
    def item_size(self) -> int:
        return self.kind.stored.itemsize

    def default_scalar(self) -> np.generic:
        return self.cast_scalar(1 if self.kind.low > 0 else 0)

    def from_json_scalar(self, data: Json, *, zarr_format: int) -> np.generic:
        try:
            return self._scalar(scalar_map.parse(data, self.kind))
        except (ValueError, OverflowError) as e:
            raise ValueError(f"{self._zarr_v3_name}: cannot represent {data!r}: {e}") from e

    def to_json_scalar(self, data: object, *, zarr_format: int) -> Json:
        scalar = self.cast_scalar(data)
        stored = np.asarray(scalar, self.kind.dtype).view(self.kind.stored)
        if isinstance(self.kind, FloatType) and scalar != scalar:  # noqa: PLR0124 - NaN
            is_plain = int(stored) == self.kind.nan
            return "NaN" if is_plain else f"0x{int(stored):0{2 * self.item_size}x}"
        return scalar_map.normalized(as_number(stored, self.kind))

    def _check_scalar(self, data: object) -> bool:
        try:
            self.cast_scalar(data)
        except TypeError:
            return False
        return True

    def cast_scalar(self, data: object) -> np.generic:
        if isinstance(data, self.kind.dtype.type):
            return cast("np.generic", data)
        plain: Any = np.asarray(data).item() if isinstance(data, np.generic) else data
        if isinstance(plain, bytes):
            plain = plain.decode("ascii", "replace")
        elif not isinstance(plain, int | float | str) and hasattr(plain, "__float__"):
            plain = float(plain)
        try:
            return self._scalar(scalar_map.parse(scalar_map.normalized(plain), self.kind))
        except (ValueError, OverflowError) as e:
            raise TypeError(f"{self._zarr_v3_name}: cannot represent {data!r}: {e}") from e

    def _scalar(self, stored: Array) -> np.generic:
        return cast("np.generic", stored.view(self.kind.dtype)[()])


@dataclass(frozen=True, kw_only=True)
class BFloat16(SmallType, HasEndianness):
    """The upper half of float32."""

    _zarr_v3_name = "bfloat16"

    @classmethod
    def from_native_dtype(cls, dtype: np.dtype[Any]) -> Self:
        super().from_native_dtype(dtype)
        is_big = dtype.newbyteorder("=") != dtype
        return cls(endianness="big" if is_big else "little")

    def to_native_dtype(self) -> np.dtype[Any]:
        # for a foreign type numpy treats "<" as another dtype than its native "="
        is_big = self.endianness == "big"
        return self.kind.dtype.newbyteorder(">") if is_big else self.kind.dtype


class Float8E3M4(SmallType):
    _zarr_v3_name = "float8_e3m4"


class Float8E4M3(SmallType):
    _zarr_v3_name = "float8_e4m3"


class Float8E4M3b11fnuz(SmallType):
    _zarr_v3_name = "float8_e4m3b11fnuz"


class Float8E4M3fnuz(SmallType):
    _zarr_v3_name = "float8_e4m3fnuz"


class Float8E5M2(SmallType):
    _zarr_v3_name = "float8_e5m2"


class Float8E5M2fnuz(SmallType):
    _zarr_v3_name = "float8_e5m2fnuz"


class Float8E8M0fnu(SmallType):
    _zarr_v3_name = "float8_e8m0fnu"


class Float6E2M3fn(SmallType):
    _zarr_v3_name = "float6_e2m3fn"


class Float6E3M2fn(SmallType):
    _zarr_v3_name = "float6_e3m2fn"


class Float4E2M1fn(SmallType):
    _zarr_v3_name = "float4_e2m1fn"


class Int2(SmallType):
    _zarr_v3_name = "int2"


class Int4(SmallType):
    _zarr_v3_name = "int4"


class UInt2(SmallType):
    _zarr_v3_name = "uint2"


class UInt4(SmallType):
    _zarr_v3_name = "uint4"


TYPES: dict[str, type[ZDType[Any, Any]]] = {
    cls._zarr_v3_name: cls for cls in SmallType.__subclasses__()
}
"""All of them by name."""
