"""`anychunk.jpeg2000`, bytes to bytes: tiles of a JPEG 2000 codestream, or a window of one tile.

Spec:     the synthetic codestream of osml-imagery-io; ITU-T T.800 and T.814 (HTJ2K).
JSON:     {"name": "anychunk.jpeg2000",
          "configuration": {"main_header": "/0//UQ…", "resolution_level": 0}}; ours, and left out if
          false: "window"
Lossless: decoding depends on the stream; encoding is lossless (5/3), one codestream per chunk.

A chunk's bytes are all tile-parts of one or several tiles, with their original tile numbers. If
`main_header` is null, they are a whole codestream. Decoded bytes are little-endian, (bands, y, x)
in C order, the whole nominal chunk, padded with the fill value beyond the image.

If `window` is true, a chunk is a part of a large tile. Its bytes are 12 bytes that say where it is
in the image, then either all tile-parts of the tile, or a codestream that has only the code-blocks
of the window, which the store writes when the chunk is read.
"""

import math
from collections.abc import Buffer as BytesLike
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from anychunk import decoders, limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.jpeg2000 import tiny_tiles
from anychunk.codecs.jpeg2000.tiles import (
    bands_first,
    check_type,
    decode_tiles,
    decode_whole,
    level_image,
    parse_header,
    scale,
)
from anychunk.codecs.jpeg2000.windows import FRONT, chunk_window, decode_window, read_front
from anychunk.codestream.jpeg2000 import MainHeader, read_main_header
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.model.grid import Array


@dataclass(frozen=True, kw_only=True)
class Jpeg2000(BytesToBytes):
    """Tiles of one JPEG 2000 codestream, or one whole codestream per chunk."""

    name: ClassVar[str] = "anychunk.jpeg2000"

    main_header: str | None = None
    """Base64 of SOC up to the first SOT, without TLM. None: each chunk is a whole codestream."""
    resolution_level: int = 0
    """0 for full resolution, n for 1 / 2**n of it."""
    window: bool = False
    """Whether a chunk is a window of one tile, and begins with its position."""

    def __post_init__(self) -> None:
        level = self.resolution_level
        if type(level) is not int or not 0 <= level <= 32:
            raise CodecConfigError(f"jpeg2000: resolution_level is {level!r}, expected 0 to 32")
        if not isinstance(self.window, bool) or (self.window and self.main_header is None):
            raise CodecConfigError(
                f"jpeg2000: window is {self.window!r}, expected true or false, and false without "
                "main_header"
            )
        if self.main_header is not None:
            if not isinstance(self.main_header, str):
                raise CodecConfigError(
                    f"jpeg2000: main_header is {self.main_header!r}, expected base64 text or null"
                )
            if level > self.header.levels:
                raise CodecConfigError(
                    f"jpeg2000: resolution_level is {level}, expected 0 to {self.header.levels}"
                )

    @property
    def header(self) -> MainHeader:
        """The main header, which must be there."""
        assert self.main_header is not None
        return parse_header(self.main_header)

    @property
    def needs_spec(self) -> bool:
        return self.window

    def configuration(self) -> dict[str, Any]:
        # both are written in any case, as osml-imagery-io does
        found = {"main_header": self.main_header, "resolution_level": self.resolution_level}
        return {**found, "window": True} if self.window else found

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if spec is None and not self.window:
            spec = self._unspecified(data)
        spec = self.require_spec(spec)
        shape = bands_first(spec.shape)
        dtype = spec.dtype.newbyteorder("<")
        limits.check_chunk(spec.nbytes, where="jpeg2000", stored=len(data))
        target = np.empty(spec.nbytes, np.uint8) if out is None else out
        array = target.view(dtype).reshape(shape)
        if self.main_header is None:
            decode_whole(self.resolution_level, data, array, spec.fill_value)
            return target
        header = self.header
        if len(header.siz.components) != shape[0]:
            raise ChunkDecodeError(
                f"jpeg2000: {len(header.siz.components)} components, expected {shape[0]}"
            )
        check_type(header.siz, dtype)
        if self.window:
            self._decode_window(memoryview(data), array, spec.fill_value)
        else:
            decode_tiles(header, self.resolution_level, data, array, spec.fill_value)
        return target

    def _decode_window(self, data: memoryview, out: Array, fill: Any) -> None:
        """Decode a window into `out`, shaped (bands, y, x)."""
        header, level = self.header, self.resolution_level
        window = chunk_window(header.siz, level, read_front(data), *out.shape[1:])
        out[:, window.height :] = fill
        out[:, :, window.width :] = fill
        place = out[:, : window.height, : window.width]
        decode_window(header, level, data[FRONT.size :], window, place)

    @property
    def decode_many(
        self,
    ) -> "Callable[[Sequence[Bytes1D], ChunkSpec], Iterator[tiny_tiles.Joint]] | None":
        """Decodes several chunks together; None if tiles are not tiny.

        Chunks that are in none of the arrays have to be decoded one by one.
        """
        is_plain = self.main_header is not None and not self.window
        return self._decode_many if is_plain and tiny_tiles.is_tiny(self.header) else None

    def _decode_many(
        self, chunks: Sequence[Bytes1D], spec: ChunkSpec
    ) -> Iterator[tiny_tiles.Joint]:
        header, level = self.header, self.resolution_level
        siz, steps = header.siz, scale(header.siz, level)
        shape, corner = spec.shape, siz.tile(0).scaled(*steps)
        nominal = (siz.tile_height / steps[1], siz.tile_width / steps[0])
        begins = (-(-siz.tile_x0 // steps[0]), -(-siz.tile_y0 // steps[1]))
        if (
            not decoders.is_used(decoders.OPENJPEG)
            or shape[-2:] != nominal  # a chunk is one tile, and not several or a part of one
            or (corner.x0, corner.y0) != begins
            or math.prod(shape[:-2]) != len(siz.components)
            or not np.can_cast(siz.dtype, spec.dtype)
            or spec.dtype.kind not in "iu"
        ):
            return
        for area, places, planes in tiny_tiles.decode_rectangles(header, level, steps, chunks):
            here = area.scaled(*steps)
            joint = np.empty((*shape[:-2], here.height, here.width), spec.dtype)
            for band, plane in zip(joint.reshape(-1, *joint.shape[-2:]), planes, strict=True):
                band[...] = plane
            across = -(-here.width // shape[-1])
            yield tiny_tiles.Joint(places.tolist(), across, shape, joint)

    def _unspecified(self, data: Bytes1D) -> ChunkSpec:
        """Return the chunk in Zarr v2, which does not describe it: nominal tile or whole image."""
        level = self.resolution_level
        if self.main_header is None:
            siz = read_main_header(data.tobytes()).siz
            rect = level_image(siz, level)
            height, width = rect.height, rect.width
        else:
            siz = self.header.siz
            x, y = scale(siz, level)
            height, width = -(-siz.tile_height // y), -(-siz.tile_width // x)
        return ChunkSpec((len(siz.components), height, width), siz.dtype, 0)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.main_header is not None or self.resolution_level:
            raise ChunkEncodeError(
                "jpeg2000: single tiles cannot be encoded; leave out main_header and "
                "resolution_level to encode one codestream per chunk"
            )
        if spec is None:
            raise ChunkEncodeError(
                "jpeg2000: encoding needs the shape of the chunk, which Zarr v2 does not pass to "
                "filters; use Zarr v3"
            )
        return encode_lossless(
            data.view(spec.dtype.newbyteorder("<")).reshape(bands_first(spec.shape))
        )


def encode_lossless(array: Array) -> bytes:
    """Encode (bands, y, x) as one codestream, without loss."""
    import imagecodecs

    if array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
        raise ChunkEncodeError(
            f"jpeg2000: {array.dtype} cannot be encoded; supported: int8 uint8 int16 uint16"
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    image = native[0] if len(native) == 1 else native
    encoded: bytes = imagecodecs.jpeg2k_encode(
        image, level=0, codecformat="J2K", planar=image.ndim == 3, reversible=True, mct=False
    )
    return encoded
