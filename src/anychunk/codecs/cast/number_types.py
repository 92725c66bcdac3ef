"""The real number types that a chunk may hold: what each can represent, and how it is stored.

Spec: zarr-extensions, data-types/ (bfloat16, float8_*, float6_*, float4_*, int2 ... uint4).

Types that numpy does not have come from `ml_dtypes`. Their bits are worked on as unsigned integers
(`stored`), because numpy's own loops are many times faster than those of a foreign type.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

type Block = npt.NDArray[Any]


@dataclass(frozen=True)
class IntType:
    """Two's complement or unsigned integers of `bits` bits."""

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
        """Whether the type is one of `ml_dtypes`, not of numpy."""
        return self.bits < 8

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The numpy type through which the bits are read and written."""
        return np.dtype(np.uint8) if self.is_foreign else self.dtype


@dataclass(frozen=True)
class FloatType:
    """Binary floating point numbers."""

    name: str
    itemsize: int
    precision: int
    """Bits of the significand, the hidden one included."""
    min_exponent: int
    """Exponent of the smallest normal number; below it the spacing stays the same."""
    high: float
    """The largest finite number."""
    nan: int | None
    """The bits of `"NaN"`, or None where the type has no NaN."""
    has_infinity: bool = True
    is_signed: bool = True

    @property
    def low(self) -> float:
        """The smallest finite number; the one type without a sign has no zero either."""
        return -self.high if self.is_signed else 1 / self.high

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.name) if self.is_foreign else self.name)

    @property
    def is_foreign(self) -> bool:
        """Whether the type is one of `ml_dtypes`, not of numpy."""
        return self.name not in {"float16", "float32", "float64"}

    @cached_property
    def bits(self) -> np.dtype[Any]:
        """Unsigned integers of the same size."""
        return np.dtype(f"u{self.itemsize}")

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The numpy type through which the bits are read and written."""
        return self.bits if self.is_foreign else self.dtype

    @property
    def spacing_exponent(self) -> int:
        """Exponent of the distance between numbers around zero."""
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
    # powers of two only: no zero, no sign, no subnormal numbers
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
    """Describe a dtype of either byte order; None where it does not hold real numbers."""
    found = BY_NAME.get(dtype.name)
    return found if found is not None and found.dtype == dtype.newbyteorder("=") else None


def stored_view(array: npt.NDArray[Any], kind: NumberType) -> npt.NDArray[Any]:
    """View an array through the numpy type that stores it; numpy's own types stay as they are."""
    if not kind.is_foreign:
        return array
    return array.view(kind.stored.newbyteorder(array.dtype.byteorder))


@cache
def code_values(kind: NumberType) -> Block:
    """Tabulate the value of each byte of a one-byte foreign type; unused high bits are ignored."""
    codes = np.arange(256, dtype=np.uint8) & used_bits(kind)
    wide = np.dtype(np.int64 if isinstance(kind, IntType) else np.float64)
    table = codes.view(kind.dtype).astype(wide)
    table.flags.writeable = False
    return table


def used_bits(kind: NumberType) -> np.uint8:
    """Mask of the bits of a byte that carry the value."""
    width = kind.bits if isinstance(kind, IntType) else int(kind.name[5])
    return np.uint8((1 << width) - 1)


def has_unused_bits(kind: NumberType) -> bool:
    """Whether a stored byte has bits that say nothing, and may hold anything."""
    return kind.is_foreign and kind.stored.itemsize == 1 and used_bits(kind) != 255
