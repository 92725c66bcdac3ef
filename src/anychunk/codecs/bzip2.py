"""`anychunk.bzip2`, bytes to bytes: the chunk as bzip2 streams.

Spec:     bzip2 1.0; concatenated streams are read. Levels 1 to 9, 9 by default.
JSON:     {"name": "anychunk.bzip2", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec, because it needs the decoded size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs.streams import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Bzip2(StreamCodec):
    """Compresses a chunk with bzip2."""

    name: ClassVar[str] = "anychunk.bzip2"
    stream: ClassVar[str] = "bzip2"
