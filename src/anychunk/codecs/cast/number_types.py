"""The real number types of arrays: what each can represent, and how it is stored.

Spec: zarr-extensions, data-types/ (bfloat16, float8_*, float6_*, float4_*, int2 ... uint4).

Types that numpy lacks come from `ml_dtypes` and are called foreign here. Their bits are processed
as unsigned integers (`stored`), because numpy's loops for its own types are many times faster.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anychunk.model.grid import Array


@dataclass(frozen=True)
class IntType:
    """An integer type, two's complement or unsigned, of `bits` bits."""

    name: str
    bits: int
    is_signed: bool

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - self.is_signed)) - 1

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.name) if self.bits < 8 else self.name)

    @property
    def is_foreign(self) -> bool:
        """Whether the type comes from `ml_dtypes`."""
        return self.bits < 8

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The numpy type as which the bits are read and written."""
        return np.dtype(np.uint8) if self.is_foreign else self.dtype


@dataclass(frozen=True)
class FloatType:
    """A binary floating-point type."""

    name: str
    itemsize: int
    precision: int
    """Bits of the significand, including the hidden one."""
    min_exponent: int
    """Exponent of the smallest normal number; the spacing is constant below it."""
    high: float
    """Largest finite number."""
    nan: int | None
    """Bits of `"NaN"`; None if the type has no NaN."""
    has_infinity: bool = True
    is_signed: bool = True

    @property
    def low(self) -> float:
        """Lowest finite number; e8m0, the only unsigned type, has no zero either."""
        return -self.high if self.is_signed else 1 / self.high

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.name) if self.is_foreign else self.name)

    @property
    def is_foreign(self) -> bool:
        """Whether the type comes from `ml_dtypes`."""
        return self.name not in {"float16", "float32", "float64"}

    @cached_property
    def bits(self) -> np.dtype[Any]:
        """Unsigned integers of the same size."""
        return np.dtype(f"u{self.itemsize}")

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The numpy type as which the bits are read and written."""
        return self.bits if self.is_foreign else self.dtype

    @property
    def spacing_exponent(self) -> int:
        """Exponent of the distance between neighbours around zero."""
        return self.min_exponent - self.precision + 1


type NumberType = IntType | FloatType

INTS = tuple(
    IntType(f"{'' if is_signed else 'u'}int{bits}", bits, is_signed)
    for bits in (2, 4, 8, 16, 32, 64)
    for is_signed in (True, False)
)
FLOATS = (
    FloatType("float64", 8, 53, -1022, float(np.finfo("f8").max), 0x7FF8000000000000),
    FloatType("float32", 4, 24, -126, float(np.finfo("f4").max), 0x7FC00000),
    FloatType("float16", 2, 11, -14, 65504.0, 0x7E00),
    FloatType("bfloat16", 2, 8, -126, float.fromhex("0x1.fep127"), 0x7FC0),
    FloatType("float8_e3m4", 1, 5, -2, 15.5, 0x78),
    FloatType("float8_e4m3", 1, 4, -6, 240.0, 0x7C),
    FloatType("float8_e4m3b11fnuz", 1, 4, -10, 30.0, 0x80, has_infinity=False),
    FloatType("float8_e4m3fnuz", 1, 4, -7, 240.0, 0x80, has_infinity=False),
    FloatType("float8_e5m2", 1, 3, -14, 57344.0, 0x7E),
    FloatType("float8_e5m2fnuz", 1, 3, -15, 57344.0, 0x80, has_infinity=False),
    # powers of two only, without zero, sign and subnormal numbers. With the minimum exponent of
    # float64, rounding goes on in powers of two below the smallest number and never reaches zero
    FloatType("float8_e8m0fnu", 1, 1, -1022, 2.0**127, 0xFF, has_infinity=False, is_signed=False),
    FloatType("float6_e2m3fn", 1, 4, 0, 7.5, None, has_infinity=False),
    FloatType("float6_e3m2fn", 1, 3, -2, 28.0, None, has_infinity=False),
    FloatType("float4_e2m1fn", 1, 2, 0, 6.0, None, has_infinity=False),
)
DOUBLE = FLOATS[0]
NUMBERS: tuple[NumberType, ...] = (*INTS, *FLOATS)
BY_NAME = {kind.name: kind for kind in NUMBERS}


@cache
def number_type(dtype: np.dtype[Any]) -> NumberType | None:
    """Return the number type of a dtype of either byte order; None if it has none."""
    found = BY_NAME.get(dtype.name)
    return found if found is not None and found.dtype == dtype.newbyteorder("=") else None


def stored_view(array: npt.NDArray[Any], kind: NumberType) -> npt.NDArray[Any]:
    """Return an array viewed as `kind.stored`, in its own byte order."""
    if not kind.is_foreign:
        return array
    return array.view(kind.stored.newbyteorder(array.dtype.byteorder))


@cache
def code_values(kind: NumberType) -> Array:
    """Return the values of all 256 bytes of a one-byte foreign type, ignoring unused high bits."""
    codes = np.arange(256, dtype=np.uint8) & used_bits(kind)
    wide = np.dtype(np.int64 if isinstance(kind, IntType) else np.float64)
    table = codes.view(kind.dtype).astype(wide)
    table.flags.writeable = False
    return table


def used_bits(kind: NumberType) -> np.uint8:
    """Return the mask of the bits of a byte that carry the value."""
    width = kind.bits if isinstance(kind, IntType) else int(kind.name[5])
    return np.uint8((1 << width) - 1)


def has_unused_bits(kind: NumberType) -> bool:
    """Return whether a stored byte has unused bits, which may have any value."""
    return kind.is_foreign and kind.stored.itemsize == 1 and used_bits(kind) != 255
