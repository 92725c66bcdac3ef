"""`anychunk.nitf-vq`, bytes to bytes: one vector-quantised block of a NITF image (IC C4, M4).

Spec:     MIL-STD-188-199 and MIL-STD-2411 (CADRG, CIB): a 12-bit code represents 4 x 4 pixels.
JSON:     {"name": "anychunk.nitf-vq", "configuration": {"block_height": 256, "block_width": 256}}
Lossless: yes; decoding only.

The stored bytes of a chunk are the look-up tables of the image, one for each row of the 4 x 4
pixels, followed by the codes of the block. An index refers to the tables in every chunk.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

KERNEL = 4
CODE_BITS = 12
TABLE_BYTES = KERNEL * (1 << CODE_BITS)
"""Bytes of one table: one row of four pixels per code."""


def code_bytes(height: int, width: int) -> int:
    """Return the number of bytes of a block's codes."""
    return (height // KERNEL) * (width // KERNEL) * CODE_BITS // 8


@dataclass(frozen=True, kw_only=True)
class NitfVq(BytesToBytes):
    """Codes into a table of 4 x 4 pixels."""

    name: ClassVar[str] = "anychunk.nitf-vq"

    block_height: int
    block_width: int

    def __post_init__(self) -> None:
        for key in ("block_height", "block_width"):
            value = getattr(self, key)
            # two codes share three bytes, so rows of codes must be even
            if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value % 8:
                raise CodecConfigError(f"{self.name}: {key} is {value!r}, expected a multiple of 8")

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        import imagecodecs

        height, width = self.block_height, self.block_width
        expected = KERNEL * TABLE_BYTES + code_bytes(height, width)
        if len(data) != expected:
            raise ChunkDecodeError(f"{self.name}: {len(data)} bytes, expected {expected}")
        tables = data[: KERNEL * TABLE_BYTES].reshape(KERNEL, -1, KERNEL)
        codes = imagecodecs.packints_decode(data[KERNEL * TABLE_BYTES :], "u2", CODE_BITS)
        patches = np.ascontiguousarray(tables.transpose(1, 0, 2))[codes]
        grid = patches.reshape(height // KERNEL, width // KERNEL, KERNEL, KERNEL)
        return np.ascontiguousarray(grid.transpose(0, 2, 1, 3)).reshape(-1)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        raise ChunkEncodeError(f"{self.name}: encoding is not supported, only decoding")
