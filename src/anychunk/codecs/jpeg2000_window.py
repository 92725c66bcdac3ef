"""`anychunk.jpeg2000_window`, bytes to bytes: a window of one tile of a JPEG 2000 codestream.

Spec:     ITU-T T.800 and T.814 (HTJ2K).
JSON:     {"name": "anychunk.jpeg2000_window",
          "configuration": {"main_header": "/0//UQ…", "resolution_level": 0}}
Lossless: decoding depends on the stream; decoding only.

Chunks of a large tile. A chunk's bytes are 12 bytes that say where it is in the image, then either
all tile-parts of the tile, or a codestream that has only the code-blocks of the window, which the
store writes when the chunk is read. Configuration and decoded bytes are those of `jpeg2000`.
"""

import struct
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anychunk import limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.jpeg2000.codec import (
    Jpeg2000,
    bands_first,
    check_type,
    level_image,
    parse_header,
)
from anychunk.codecs.jpeg2000.windows import decode_window
from anychunk.codestream.jpeg2000 import MainHeader, Rect
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

NAME = "anychunk.jpeg2000_window"
MAGIC = b"A2W\x01"
FRONT = struct.Struct(">4sII")
"""`MAGIC`, and the row and column of the chunk's first sample, from the corner of the image."""


class Front(NamedTuple):
    """The position of a chunk in its image, in samples of the level."""

    row: int
    column: int

    def pack(self) -> bytes:
        return FRONT.pack(MAGIC, *self)


def read_front(data: bytes | memoryview) -> Front:
    """Return the position that the bytes of a chunk begin with."""
    magic, row, column = FRONT.unpack_from(data) if len(data) >= FRONT.size else (b"", 0, 0)
    if magic != MAGIC:
        raise ChunkDecodeError(
            f"{NAME}: the chunk begins with {bytes(data[:4]).hex()}, expected {MAGIC.hex()}"
        )
    return Front(row, column)


@dataclass(frozen=True, kw_only=True)
class Jpeg2000Window(BytesToBytes):
    """A window of one tile of a JPEG 2000 codestream."""

    name: ClassVar[str] = NAME

    main_header: str
    """Base64 of SOC up to the first SOT, without TLM."""
    resolution_level: int = 0
    """0 for full resolution, n for 1 / 2**n of it."""

    def __post_init__(self) -> None:
        if not isinstance(self.main_header, str):
            raise CodecConfigError(
                f"{NAME}: main_header is {self.main_header!r}, expected base64 text"
            )
        # the same checks
        Jpeg2000(main_header=self.main_header, resolution_level=self.resolution_level)

    @property
    def header(self) -> MainHeader:
        """The main header."""
        return parse_header(self.main_header)

    def configuration(self) -> dict[str, Any]:
        return {"main_header": self.main_header, "resolution_level": self.resolution_level}

    def window(self, front: Front, height: int, width: int) -> Rect:
        """Return a part of the image, in samples of the level on the reference grid, cropped."""
        image = level_image(self.header.siz, self.resolution_level)
        if front.row >= image.height or front.column >= image.width:
            raise ChunkDecodeError(
                f"{NAME}: the chunk begins at {tuple(front)}, the image has "
                f"{(image.height, image.width)}"
            )
        x, y = image.x0 + front.column, image.y0 + front.row
        return Rect(x, y, min(x + width, image.x1), min(y + height, image.y1))

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        spec = self.require_spec(spec)
        bands, height, width = bands_first(spec.shape)
        dtype = spec.dtype.newbyteorder("<")
        limits.check_chunk(spec.nbytes, where=NAME, stored=len(data))
        header = self.header
        if len(header.siz.components) != bands:
            raise ChunkDecodeError(
                f"{NAME}: {len(header.siz.components)} components, expected {bands}"
            )
        check_type(header.siz, dtype)
        view = memoryview(data)
        window = self.window(read_front(view), height, width)
        target = np.empty(spec.nbytes, np.uint8) if out is None else out
        array = target.view(dtype).reshape(bands, height, width)
        array[:, window.height :] = spec.fill_value
        array[:, :, window.width :] = spec.fill_value
        place = array[:, : window.height, : window.width]
        decode_window(header, self.resolution_level, view[FRONT.size :], window, place)
        return target

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        raise ChunkEncodeError(f"{NAME}: encoding is not supported, only decoding")
