"""`anychunk.lz4_frame`, bytes to bytes: one or several LZ4 frames.

Spec:     LZ4 frame format 1.6; concatenated and skippable frames are read.
JSON:     {"name": "anychunk.lz4_frame", "configuration": {"level": 1}}
Lossless: yes; a frame that is cut short or does not match its checksums is an error.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs import streams
from anychunk.codecs._base import Bytes1D, BytesToBytes, ChunkSpec, v2_filter
from anychunk.errors import ChunkDecodeError, CodecConfigError


@dataclass(frozen=True, kw_only=True)
class Lz4Frame(BytesToBytes):
    """Compresses a chunk to one LZ4 frame that tells its size and checksum."""

    name: ClassVar[str] = "anychunk.lz4_frame"
    is_fixed_size: ClassVar[bool] = False

    level: int = 0
    """0 is the fast encoder, up to 12 the strong ones."""

    def __post_init__(self) -> None:
        level = self.level
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 12:
            raise CodecConfigError(f"{self.name}: level {level!r} is outside 0 to 12")

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return streams.encode_lz4_frame(data, self.level)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        nbytes = _announced(data) if spec is None else spec.nbytes
        return streams.decode_lz4_frame(data, nbytes, out)


def _announced(data: Bytes1D) -> int:
    """Give the content size that the frame tells: Zarr v2 does not tell a filter the chunk's."""
    head = data[:14].tobytes()
    if head[:4] != streams.LZ4_FRAME or len(head) < 14 or not head[4] & 0x08:
        raise ChunkDecodeError("anychunk.lz4_frame: the frame does not tell its decoded size")
    return int.from_bytes(head[6:14], "little")


Lz4FrameV2 = v2_filter(Lz4Frame)
