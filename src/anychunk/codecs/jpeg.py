"""`anychunk.jpeg`, bytes to bytes: one JPEG-compressed block of a NITF image.

Spec:     ITU-T T.81, baseline, extended (8 and 12 bits), progressive and lossless;
          MIL-STD-188-198A for streams without tables, which rely on the defaults of NITF. Name and
          keys are those of osml-imagery-io.
JSON:     {"name": "anychunk.jpeg", "configuration":
          {"bits_per_pixel": 8, "num_bands": 3, "block_width": 256, "block_height": 256,
          "imode": "P", "color_space": "RGB"}}
Lossless: only SOF3 streams; encoding is lossy for 8 bits, lossless for 9 to 16 bits.

A block is one stream with all bands, or one stream per band. Decoded bytes are `(bands, height,
width)` in C order, little-endian. The colour transform is the one that the stream announces;
`color_space` is ignored, because osml-imagery-io writes it swapped.

libjpeg replaces missing data by grey and only warns. So every stream is first walked to its end
marker (`codestream.jpeg_scan`), and a picture whose last pixel is that grey is decoded again by a
second, strict decoder.
"""

import math
from collections.abc import Buffer as BytesLike
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from anychunk import decoders, limits
from anychunk.codecs._nitf_block import block_buffer, check_positive
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codestream.jpeg import with_colors
from anychunk.codestream.jpeg_scan import Stream, walk, with_tables
from anychunk.errors import (
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    FormatError,
    UnsupportedError,
)
from anychunk.io import copying
from anychunk.model.grid import Array

QUALITY = 95
"""JPEG quality of the 8-bit streams that are written."""


def whole_stream(data: Bytes1D, start: int) -> Stream:
    """Return the stream at `start`, checked to its end; raise `ChunkDecodeError` if damaged."""
    try:
        return walk(data, start)
    except (FormatError, UnsupportedError) as e:
        raise ChunkDecodeError(str(e)) from e


def decode(data: Bytes1D, stream: Stream, *, is_rgb: bool = False) -> Array:
    """Decode one stream of `data` to (height, width, bands).

    Parameters:
        data: Bytes that contain the stream.
        stream: Where it is, checked to its end.
        is_rgb: Whether three components are not YCbCr, whatever the stream declares.
    """
    frame = stream.frame
    nbytes = frame.height * frame.width * stream.bands * (1 if frame.depth <= 8 else 2)
    limits.check_chunk(nbytes, where="jpeg", stored=len(data))
    payload = data[stream.start : stream.end]
    by = decoders.other("jpeg")
    if stream.lacks_tables:
        try:
            payload = np.frombuffer(with_tables(payload.tobytes(), stream), np.uint8)
        except FormatError as e:
            raise ChunkDecodeError(f"jpeg: {e}") from e
    if by is None:
        return _by_libjpeg(payload, stream)
    plane = decoders.Plane((frame.height, frame.width), frame.depth, is_signed=False)
    marked = with_colors(payload.tobytes(), frame, is_rgb=is_rgb)
    array = np.stack(decoders.decode(by, marked, [plane] * stream.bands), axis=-1)
    # unknown is what it puts where data is missing
    _check_whole(payload, stream, array)
    return array.astype(np.uint8 if frame.depth <= 8 else np.uint16, copy=False)


def _by_libjpeg(payload: Bytes1D, stream: Stream) -> Array:
    """Decode a stream by libjpeg-turbo."""
    import imagecodecs

    try:
        array: Array = imagecodecs.jpeg8_decode(payload)
    except Exception as e:
        raise ChunkDecodeError(f"jpeg: {e}") from e
    if ends_in_grey(array, stream.frame.depth):
        _check_whole(payload, stream, array)
    return array if array.ndim == 3 else array[..., None]


def libjpeg_turbo(
    stream: bytes, window: tuple[int, int, int, int] | None, level: int, threads: int
) -> Sequence[Array]:
    """Decode a stream, or a window of it: see `docs/reference/write-a-decoder.md`."""
    if level:
        raise UnsupportedError(f"JPEG has no resolution level {level}, expected 0")
    data = np.frombuffer(stream, np.uint8)
    array = _by_libjpeg(data, whole_stream(data, 0))
    x0, y0, x1, y1 = window or (0, 0, array.shape[1], array.shape[0])
    return list(np.moveaxis(array[y0:y1, x0:x1], -1, 0))


def _check_whole(payload: Bytes1D, stream: Stream, array: Array) -> None:
    if not is_whole(payload, stream, array):
        raise ChunkDecodeError(
            f"jpeg: the stream of {len(payload)} bytes is truncated: a strict decoder rejects it"
        )


def ends_in_grey(array: Array, depth: int) -> bool:
    """Return whether the last pixel is the grey that libjpeg puts where data is missing."""
    grey = 1 << (depth - 1)
    return bool((array[-1, -1] == grey).all())


def is_whole(payload: Bytes1D, stream: Stream, array: Array) -> bool:
    """Return whether a second decoder confirms that the picture is complete."""
    import imagecodecs

    frame = stream.frame
    try:
        if frame.is_lossless:
            # the two decoders fill in different values for missing samples
            again: Array = imagecodecs.ljpeg_decode(payload)
            return bool(np.array_equal(again.reshape(array.shape), array))
        if frame.depth == 8 and stream.bands in (1, 3):
            # lossless recompression reads every coefficient, and refuses a stream with too few
            imagecodecs.jpegxl_encode_jpeg(payload)
    except Exception:  # noqa: BLE001 - any failure means that the stream is not confirmed
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Jpeg(BytesToBytes):
    """One JPEG stream per block, or one per band."""

    name: ClassVar[str] = "anychunk.jpeg"

    bits_per_pixel: int
    num_bands: int
    block_width: int
    block_height: int
    imode: str
    color_space: str

    def __post_init__(self) -> None:
        check_positive(self, "bits_per_pixel", "num_bands", "block_width", "block_height")
        if self.bits_per_pixel > 16:
            raise CodecConfigError(
                f"{self.name}: bits_per_pixel is {self.bits_per_pixel}, expected 1 to 16"
            )
        if self.imode not in ("B", "P", "R", "S") or not isinstance(self.color_space, str):
            raise CodecConfigError(
                f"{self.name}: imode is {self.imode!r} and color_space {self.color_space!r}, "
                "expected imode B, P, R or S, and color_space as a string"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("u1" if self.bits_per_pixel <= 8 else "<u2")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.num_bands, self.block_height, self.block_width

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        out = block_buffer(
            self.shape, self.dtype, where="jpeg", stored=len(data), spec=spec, out=out
        )
        target = out.view(self.dtype).reshape(self.shape)
        band, at = 0, 0
        while band < self.num_bands:
            stream = whole_stream(data, at)
            self._check_frame(stream, band)
            count = stream.bands
            copying.assign(target[band : band + count], decode(data, stream).transpose(2, 0, 1))
            band, at = band + count, stream.end
        return out

    def _check_frame(self, stream: Stream, band: int) -> None:
        """Raise if a stream does not have the size, bands and depth of the configuration."""
        frame = stream.frame
        if (frame.height, frame.width) != self.shape[1:]:
            raise ChunkDecodeError(
                f"jpeg: the stream has {frame.height} x {frame.width} pixels, expected "
                f"{self.block_height} x {self.block_width}"
            )
        if stream.bands > self.num_bands - band:
            raise ChunkDecodeError(
                f"jpeg: the stream has {stream.bands} bands, expected at most "
                f"{self.num_bands - band}"
            )
        if (frame.depth <= 8) != (self.bits_per_pixel <= 8):
            raise ChunkDecodeError(
                f"jpeg: the stream has {frame.depth} bits, expected {self.bits_per_pixel}"
            )

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        import imagecodecs

        expected = math.prod(self.shape) * self.dtype.itemsize
        if len(data) != expected:
            raise ChunkEncodeError(f"jpeg: a chunk of {len(data)} bytes, expected {expected}")
        array = data.view(self.dtype).reshape(self.shape)
        if self.bits_per_pixel > 8:
            if array.max(initial=0) >> self.bits_per_pixel:
                raise ChunkEncodeError(
                    f"jpeg: the largest sample is {array.max()}, which does not fit "
                    f"{self.bits_per_pixel} bits"
                )
            options = {"lossless": True, "bitspersample": self.bits_per_pixel}
        else:
            options = {"level": QUALITY}
        if self.imode == "P" and self.num_bands == 3:
            pixels = np.ascontiguousarray(array.transpose(1, 2, 0))
            return imagecodecs.jpeg8_encode(pixels, **options)  # type: ignore[no-any-return]
        streams = [
            imagecodecs.jpeg8_encode(np.ascontiguousarray(band), **options) for band in array
        ]
        return b"".join(streams)
