"""`anychunk.zlib`, bytes to bytes: the chunk as one zlib stream.

Spec:     RFC 1950. Levels 0 to 9, 6 by default.
JSON:     {"name": "anychunk.zlib", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec, because it needs the decoded size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs.streams import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Zlib(StreamCodec):
    """Compresses a chunk with zlib."""

    name: ClassVar[str] = "anychunk.zlib"
    stream: ClassVar[str] = "zlib"
