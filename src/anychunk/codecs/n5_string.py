"""`anychunk.n5_string`, bytes to bytes after `vlen-utf8`: one N5 varlength block of strings.

Spec:     N5 in Java (StringDataBlock): mode 1, with the number of bytes as its element count;
          strings in UTF-8, each terminated by a zero byte, in Fortran order. The inner codecs are
          `bytes` and optionally a compressor, applied to these bytes. It follows `vlen-utf8`
          because zarr accepts no other array -> bytes codec for strings.
JSON:     {"name": "anychunk.n5_string", "configuration": {"codecs": [{"name": "bytes"}]}}
Lossless: yes; strings with zero characters are refused.
"""

import math
import struct
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.n5 import N5
from anychunk.codecs.n5_block import VARLENGTH, check_shape, read_header, write_header
from anychunk.codecs.n5_default import fit
from anychunk.errors import ChunkDecodeError, ChunkEncodeError

type Words = npt.NDArray[np.object_]


def split(text: bytes, count: int) -> list[bytes]:
    """Return the `count` strings of a block, without their terminators."""
    words = text.split(b"\0")
    if words.pop() or len(words) != count:
        raise ChunkDecodeError(
            f"n5 strings: found {len(words)} zero-terminated strings, expected exactly {count}"
        )
    return words


def joined(words: list[bytes]) -> bytes:
    """Return the strings with their terminators."""
    if any(b"\0" in word for word in words):
        raise ChunkEncodeError(
            "n5 strings: a string contains a zero character, which N5 uses as terminator"
        )
    return b"".join(word + b"\0" for word in words)


def to_vlen(words: list[bytes]) -> bytes:
    """Return the encoding of `vlen-utf8`: a count, then the length and the bytes of each string."""
    pieces = [struct.pack("<I", len(words))]
    for word in words:
        pieces += [struct.pack("<I", len(word)), word]
    return b"".join(pieces)


def from_vlen(data: bytes) -> list[bytes]:
    """Return the strings of a `vlen-utf8` encoding."""
    words, place = [], 4
    for _ in range(int.from_bytes(data[:4], "little")):
        length = int.from_bytes(data[place : place + 4], "little")
        words.append(data[place + 4 : place + 4 + length])
        place += 4 + length
    return words


def as_array(words: list[bytes], shape: tuple[int, ...]) -> Words:
    # not np.array(words): it would make fixed-length bytes, which lose trailing zeros
    out = np.empty(len(words), object)
    out[:] = words
    return out.reshape(shape)


@dataclass(frozen=True, kw_only=True)
class N5String(BytesToBytes):
    """Stores a chunk of strings as an N5 varlength block."""

    name: ClassVar[str] = "anychunk.n5_string"
    is_fixed_size = False
    codecs: tuple[Any, ...]
    """JSON of the inner codecs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codecs", self.payload.codecs)

    @cached_property
    def payload(self) -> N5:
        """The codec that encodes the bytes of all strings."""
        return N5(codecs=self.codecs, content="bytes")

    def configuration(self) -> dict[str, Any]:
        return {"codecs": list(self.codecs)}

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        words = from_vlen(data.tobytes())
        shape = spec.shape if spec else (len(words),)
        text = joined(as_array(words, shape).ravel(order="F").tolist())
        header = write_header(shape, mode=VARLENGTH, elements=len(text))
        return np.concatenate([np.frombuffer(header, np.uint8), self.payload.pack(text)])

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        spec = self.require_spec(spec)
        if not len(data):
            return to_vlen([b""] * math.prod(spec.shape))
        header = read_header(data)
        if header.mode != VARLENGTH:
            raise ChunkDecodeError(
                f"n5 strings: the block has mode {header.mode}, expected {VARLENGTH}"
            )
        check_shape(header, spec.shape)
        # each string takes at least its terminator: checked before anything is allocated
        count = math.prod(header.shape)
        if count > header.elements:
            raise ChunkDecodeError(
                f"n5 strings: {header.elements} bytes cannot hold {count} strings"
            )
        words = split(self.payload.unpack(data, header), count)
        block = as_array(words, header.shape[::-1]).T
        whole = fit(block, spec.shape, b"").ravel().tolist()
        try:
            b"\0".join(whole).decode("utf-8")
        except UnicodeDecodeError as e:
            raise ChunkDecodeError(f"n5 strings: {e}") from e
        return to_vlen(whole)
