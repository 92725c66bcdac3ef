"""`anychunk.xz`, bytes to bytes: the chunk as a compressed stream.

Spec:     XZ streams, one or several after the other. Level 0 to 9, 6 where it is not given.
JSON:     {"name": "anychunk.xz", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec of its chain, which alone knows its size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs._stream import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Xz(StreamCodec):
    """A chunk compressed by xz."""

    name: ClassVar[str] = "anychunk.xz"
    stream: ClassVar[str] = "xz"
