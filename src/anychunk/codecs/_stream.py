"""Base of codecs that are one compressed stream of `anychunk.codecs.streams`."""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs import streams
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError


@dataclass(frozen=True, kw_only=True)
class StreamCodec(BytesToBytes):
    """One stream; `level` None is the usual one of its compression."""

    is_fixed_size = False
    stream: ClassVar[str]
    level: int | None = None

    def __post_init__(self) -> None:
        streams.check_level(self.stream, self.level)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return streams.ENCODE[self.stream](data, self.level)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if spec is None:
            raise ChunkDecodeError(f"{self.name}: the decoded size must be known")
        return streams.DECODE[self.stream](data, spec.nbytes, out)
