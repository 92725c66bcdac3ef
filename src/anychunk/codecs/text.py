"""`anychunk.text`, array to bytes: numbers as text, in C order.

Spec:     NRRD format, `encoding: ascii` (numbers between spaces, commas or line ends) and
          `encoding: hex` (two digits per byte, white space ignored).
JSON:     {"name": "anychunk.text", "configuration": {"style": "hex", "endian": "little"}}
Lossless: yes; floats are written with as many digits as a round trip needs.
"""

import binascii
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import ArrayToBytes, Bytes1D, ChunkSpec
from anychunk.errors import ChunkDecodeError, CodecConfigError

SEPARATORS = bytes.maketrans(b",\t\r\n\v\f", b"      ")


def decode_ascii(data: Bytes1D, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the numbers in `data`; integers are never parsed as floats, which would round them."""
    count = int(np.prod(shape, dtype=np.int64))
    # before splitting: each number takes at least a digit and a separator
    if len(data) < 2 * count - 1:
        raise ChunkDecodeError(f"ascii: {len(data)} bytes cannot hold {count} numbers")
    words = data.tobytes().translate(SEPARATORS).split()
    parts = 2 * count if dtype.kind == "c" else count
    if len(words) != parts:
        raise ChunkDecodeError(f"ascii: {len(words)} numbers, expected {parts}")
    try:
        if dtype.kind in "iu":
            bounds = np.iinfo(dtype)
            numbers = [int(word) for word in words]
            if min(numbers, default=0) < bounds.min or max(numbers, default=0) > bounds.max:
                raise ChunkDecodeError(
                    f"ascii: numbers outside {dtype.name} [{bounds.min}, {bounds.max}]"
                )
            return np.array(numbers, dtype).reshape(shape)
        floats = np.array([float(word) for word in words], np.float64)
    except ValueError as e:
        raise ChunkDecodeError(f"ascii: {e}") from e
    if dtype.kind == "c":
        return floats.view(np.complex128).astype(dtype).reshape(shape)
    return floats.astype(dtype).reshape(shape)


def encode_ascii(array: npt.NDArray[Any]) -> bytes:
    """Return the numbers separated by spaces; `repr` of a float reads back as the same float."""
    values = array.reshape(-1)
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view(values.real.dtype)
    words = map(str if values.dtype.kind in "iu" else repr, values.tolist())
    return " ".join(words).encode("ascii") + b"\n"


@dataclass(frozen=True, kw_only=True)
class Text(ArrayToBytes):
    """Stores a chunk as text."""

    name: ClassVar[str] = "anychunk.text"
    is_fixed_size = False

    style: str = "ascii"
    """`ascii`, or `hex`."""
    endian: str = "little"
    """Byte order of hexadecimal numbers: `little` or `big`."""

    def __post_init__(self) -> None:
        if self.style not in ("ascii", "hex"):
            raise CodecConfigError(f"{self.name}: style {self.style!r}, expected ascii or hex")
        if self.endian not in ("little", "big"):
            raise CodecConfigError(f"{self.name}: endian {self.endian!r}, expected little or big")

    def encode_chunk(self, array: npt.NDArray[Any], spec: ChunkSpec) -> BytesLike:
        if self.style == "ascii":
            return encode_ascii(array)
        ordered = array.astype(array.dtype.newbyteorder(self.endian), copy=False)  # type: ignore[arg-type]
        return binascii.hexlify(np.ascontiguousarray(ordered).tobytes())

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec) -> npt.NDArray[Any]:
        if self.style == "ascii":
            return decode_ascii(data, spec.shape, spec.dtype)
        try:
            raw = binascii.unhexlify(b"".join(data.tobytes().split()))
        except binascii.Error as e:
            raise ChunkDecodeError(f"hex: {e}") from e
        if len(raw) != spec.nbytes:
            raise ChunkDecodeError(f"hex: {len(raw)} bytes, expected {spec.nbytes}")
        return np.frombuffer(raw, spec.dtype.newbyteorder(self.endian)).reshape(spec.shape)  # type: ignore[arg-type]
