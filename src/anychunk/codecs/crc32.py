"""`anychunk.crc32`, bytes to bytes: a CRC-32 in front of the payload, verified when decoding.

Spec:     ours. One byte, 1 if the checksum is known and 0 if not; the CRC-32 of the payload (ISO
          3309, as in gzip) as a little-endian uint32; the payload.
JSON:     {"name": "anychunk.crc32"}
Lossless: yes; decoding is a slice and copies nothing.

For files that keep the checksums of their chunks in a table: the index puts each checksum in front
of its chunk. Zarr's own `crc32c` uses another polynomial and follows the payload.
"""

import struct
import zlib
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, v2_filter
from anychunk.errors import ChunkDecodeError

if TYPE_CHECKING:
    from anychunk.codecs.zarr_core import ArraySpec

FRONT = struct.Struct("<BI")


def front(checksum: int | None) -> bytes:
    """Return the bytes in front of a payload; None means an unknown checksum."""
    return FRONT.pack(0, 0) if checksum is None else FRONT.pack(1, checksum)


@dataclass(frozen=True, kw_only=True)
class Crc32(BytesToBytes):
    """Writes a CRC-32 in front of the payload, and checks the payload against it."""

    name: ClassVar[str] = "anychunk.crc32"
    is_fixed_size = True

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return np.concatenate([np.frombuffer(front(zlib.crc32(data)), np.uint8), data])

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if len(data) < FRONT.size:
            raise ChunkDecodeError(
                f"{self.name}: {len(data)} bytes, expected at least {FRONT.size}"
            )
        is_known, expected = FRONT.unpack(data[: FRONT.size])
        payload = data[FRONT.size :]
        found = zlib.crc32(payload) if is_known else expected
        if found != expected:
            raise ChunkDecodeError(
                f"{self.name}: the checksum of the {len(payload)} stored bytes is {found:08x}, "
                f"expected {expected:08x}"
            )
        return payload

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: "ArraySpec") -> int:
        return input_byte_length + FRONT.size


Crc32V2 = v2_filter(Crc32)
