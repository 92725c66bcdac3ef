"""`packbits`, array to bytes: elements of any number of bits, one after the other.

Spec:     zarr-extensions, codecs/packbits. Element i takes the bits from i * k on, where k is the
          number of bits from `first_bit` to `last_bit`; the first bit is the lowest one of a byte.
JSON:     {"name": "packbits", "configuration": {"padding_encoding": "first_byte", "last_bit": 11}}
Lossless: if all other bits of an element are zero, or copies of the sign bit `last_bit`; the codec
          exists to drop bits.

`complex64` and `complex128` are packed as two components. The bit order is not that of numcodecs'
codec of the same name for Zarr v2, although the specification says that they are compatible.
"""

import math
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from anychunk.codecs.base import ArrayToBytes, Bytes1D, ChunkSpec, as_bytes
from anychunk.codecs.cast.number_types import FloatType, number_type, used_bits
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.model.grid import Array

PADDINGS = ("none", "first_byte", "last_byte")
BLOCK = 1 << 16
"""Elements packed at once: a multiple of 8, so that blocks end at whole bytes."""


@dataclass(frozen=True)
class Layout:
    """How an element of a data type is packed."""

    components: int
    """2 for complex numbers."""
    size: int
    """Bytes of a component in memory."""
    bits: int
    """Bits of a component, as the specification counts them."""
    is_signed: bool


def layout_of(dtype: np.dtype[Any]) -> Layout | None:
    """Return the layout of a data type; None if it cannot be packed."""
    if dtype == np.bool_:
        return Layout(1, 1, 1, is_signed=False)
    if dtype.name in ("complex64", "complex128"):
        return Layout(2, dtype.itemsize // 2, 4 * dtype.itemsize, is_signed=False)
    kind = number_type(dtype)
    if kind is None:
        return None
    size = kind.stored.itemsize
    is_float = isinstance(kind, FloatType)
    if kind.is_foreign and size == 1:
        return Layout(1, 1, int(used_bits(kind)).bit_length(), not is_float and kind.is_signed)
    return Layout(1, size, 8 * size, not is_float and kind.is_signed)


def pack(codes: Array, first: int, width: int) -> Bytes1D:
    """Return `width` bits of each element from bit `first` on, as bytes padded with zeros."""
    shifted = codes >> codes.dtype.type(first)
    if width == 8 * codes.itemsize:
        return as_bytes(shifted.astype(shifted.dtype.newbyteorder("<"), copy=False))
    parts = [_pack_block(shifted[i : i + BLOCK], width) for i in range(0, len(codes), BLOCK)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _pack_block(codes: Array, width: int) -> Bytes1D:
    little = codes.astype(codes.dtype.newbyteorder("<"), copy=False)
    bits = np.unpackbits(little.view(np.uint8).reshape(len(codes), -1), axis=1, bitorder="little")
    return np.packbits(bits[:, :width], bitorder="little")


def unpack(data: Bytes1D, count: int, width: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` elements of `width` bits as unsigned integers, in their lowest bits."""
    out = np.empty(count, dtype.newbyteorder("<"))
    if width == 8 * dtype.itemsize:
        out.view(np.uint8)[:] = data
        return out.astype(dtype, copy=False)
    for start in range(0, count, BLOCK):
        part = out[start : start + BLOCK]
        begin = start * width // 8
        bits = np.zeros((len(part), 8 * dtype.itemsize), np.uint8)
        bits[:, :width] = np.unpackbits(
            data[begin : begin + -(-len(part) * width // 8)],
            count=len(part) * width,
            bitorder="little",
        ).reshape(len(part), width)
        part.view(np.uint8)[:] = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
    return out.astype(dtype, copy=False)


def sign_extended(codes: Array, bits: int) -> Array:
    """Copy bit `bits - 1` to all bits above it; `codes` are unsigned."""
    unused = codes.dtype.type(8 * codes.itemsize - bits)
    extended: Array = (codes << unused).view(f"i{codes.itemsize}") >> unused.astype(
        f"i{codes.itemsize}"
    )
    return extended.view(codes.dtype)


@dataclass(frozen=True, kw_only=True)
class PackBits(ArrayToBytes):
    """Stores each element in as many bits as it needs."""

    name: ClassVar[str] = "packbits"
    is_fixed_size = True

    padding_encoding: Literal["none", "first_byte", "last_byte"] = "none"
    """Where the number of padding bits is stored."""
    first_bit: int | None = None
    """The lowest bit that is stored; by default 0."""
    last_bit: int | None = None
    """The highest bit that is stored; by default that of the data type."""

    def __post_init__(self) -> None:
        if self.padding_encoding not in PADDINGS:
            raise CodecConfigError(
                f"packbits: padding_encoding {self.padding_encoding!r}, expected one of "
                f"{' '.join(PADDINGS)}"
            )
        for key in ("first_bit", "last_bit"):
            value = getattr(self, key)
            if value is not None and (type(value) is not int or value < 0):
                raise CodecConfigError(
                    f"packbits: {key} is {value!r}, expected null or an integer of at least 0"
                )
        if self.last_bit is not None and self.last_bit < (self.first_bit or 0):
            raise CodecConfigError(
                f"packbits: last_bit {self.last_bit} is below first_bit {self.first_bit}"
            )

    def evolved(self, spec: ChunkSpec) -> Self:
        self._layout(spec.dtype)
        return self

    def _layout(self, dtype: np.dtype[Any]) -> tuple[Layout, int, int]:
        """Return the layout of a data type, the first bit, and the number of bits stored."""
        found = layout_of(dtype)
        if found is None:
            raise CodecConfigError(f"packbits: data type {dtype} cannot be packed")
        first = self.first_bit or 0
        last = found.bits - 1 if self.last_bit is None else self.last_bit
        if not first <= last < found.bits:
            raise CodecConfigError(
                f"packbits: bits {first} to {last} of {dtype}, which has {found.bits}"
            )
        return found, first, last - first + 1

    def _counts(self, shape: tuple[int, ...], layout: Layout, width: int) -> tuple[int, int]:
        """Return the number of components and of packed bytes, without the padding count."""
        count = math.prod(shape) * layout.components
        return count, -(-count * width // 8)

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        layout, first, width = self._layout(spec.dtype)
        little = np.ascontiguousarray(array.astype(spec.dtype.newbyteorder("="), copy=False))
        codes = little.reshape(-1).view(f"u{layout.size}")
        packed = pack(codes, first, width)
        unused = np.array([8 * len(packed) - len(codes) * width], np.uint8)
        match self.padding_encoding:
            case "first_byte":
                return np.concatenate([unused, packed])
            case "last_byte":
                return np.concatenate([packed, unused])
        return packed

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> Array:
        layout, first, width = self._layout(spec.dtype)
        count, nbytes = self._counts(spec.shape, layout, width)
        packed = self._without_padding_count(data, nbytes, 8 * nbytes - count * width)
        codes = unpack(packed, count, width, np.dtype(f"u{layout.size}"))
        if first:
            codes <<= codes.dtype.type(first)
        if layout.is_signed and layout.bits >= 8:
            codes = sign_extended(codes, first + width)
        elif layout.is_signed:
            # types of 2 and 4 bits: their unused high bits are zero
            codes = sign_extended(codes, first + width) & np.uint8((1 << layout.bits) - 1)
        return codes.view(spec.dtype.newbyteorder("=")).reshape(spec.shape)

    def _without_padding_count(self, data: Bytes1D, nbytes: int, unused: int) -> Bytes1D:
        """Return the packed bytes; raise if their number, or the padding count, is wrong."""
        has_count = self.padding_encoding != "none"
        if len(data) != nbytes + has_count:
            raise ChunkDecodeError(f"packbits: {len(data)} bytes, expected {nbytes + has_count}")
        if not has_count:
            return data
        is_first = self.padding_encoding == "first_byte"
        found = int(data[0 if is_first else -1])
        if found != unused:
            raise ChunkDecodeError(
                f"packbits: the chunk states {found} padding bits, expected {unused}"
            )
        return data[1:] if is_first else data[:-1]

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        layout, _, width = self._layout(spec.dtype)
        _, nbytes = self._counts(spec.shape, layout, width)
        return nbytes + (self.padding_encoding != "none")
