"""`anychunk.lz4_frame`, bytes to bytes: one or several LZ4 frames.

Spec:     LZ4 frame format 1.6; concatenated and skippable frames are read.
JSON:     {"name": "anychunk.lz4_frame", "configuration": {"level": 1}}
Lossless: yes; a frame that is truncated or does not match its checksums is an error.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs import streams
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, v2_filter
from anychunk.errors import ChunkDecodeError, CodecConfigError


@dataclass(frozen=True, kw_only=True)
class Lz4Frame(BytesToBytes):
    """Compresses a chunk to one LZ4 frame with its content size and checksum."""

    name: ClassVar[str] = "anychunk.lz4_frame"
    is_fixed_size = False

    level: int = 0
    """0 is the fast encoder; 12 compresses best."""

    def __post_init__(self) -> None:
        level = self.level
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= 12:
            raise CodecConfigError(f"{self.name}: level {level!r} is outside 0 to 12")

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return streams.encode_lz4_frame(data, self.level)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        # Zarr v2 does not tell a filter the size of the chunk, but the frame may
        nbytes = streams.lz4_content_size(data) if spec is None else spec.nbytes
        if nbytes is None:
            raise ChunkDecodeError(
                f"{self.name}: the frame has no content size, which Zarr v2 needs"
            )
        return streams.decode_lz4_frame(data, nbytes, out)


Lz4FrameV2 = v2_filter(Lz4Frame)
