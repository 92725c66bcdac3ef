"""`anychunk.bzip2`, bytes to bytes: the chunk as a compressed stream.

Spec:     bzip2 streams, one or several after the other. Level 1 to 9, 9 where it is not given.
JSON:     {"name": "anychunk.bzip2", "configuration": {"level": 6}}
Lossless: yes. It must be the first bytes -> bytes codec of its chain, which alone knows its size.
"""

from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs._stream import StreamCodec


@dataclass(frozen=True, kw_only=True)
class Bzip2(StreamCodec):
    """A chunk compressed by bzip2."""

    name: ClassVar[str] = "anychunk.bzip2"
    stream: ClassVar[str] = "bzip2"
