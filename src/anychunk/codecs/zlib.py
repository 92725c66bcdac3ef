"""`anychunk.zlib`, bytes to bytes: the chunk as a compressed stream.

Spec:     A zlib stream (RFC 1950). Level 0 to 9, 6 where it is not given.
JSON:     {"name": "anychunk.zlib", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec of its chain, which alone knows its size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs._stream import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Zlib(StreamCodec):
    """A chunk compressed by zlib."""

    name: ClassVar[str] = "anychunk.zlib"
    stream: ClassVar[str] = "zlib"
