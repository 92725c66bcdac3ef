"""`anychunk.xz`, bytes to bytes: the chunk as XZ streams.

Spec:     the .xz file format 1.2; concatenated streams are read. Levels 0 to 9, 6 by default.
JSON:     {"name": "anychunk.xz", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec, because it needs the decoded size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs.streams import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Xz(StreamCodec):
    """Compresses a chunk with xz."""

    name: ClassVar[str] = "anychunk.xz"
    stream: ClassVar[str] = "xz"
