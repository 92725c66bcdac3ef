"""`tiff-tile`, bytes to bytes: one strip or tile of a TIFF file.

Spec:     https://awslabs.github.io/osml-imagery-io/ (synthetic codestreams); TIFF 6.0 and its
          technical notes for what is inside. Decoded bytes are C-order `(bands, height, width)` of
          the whole nominal chunk, little-endian; with `tile_depth` above 1, `(depth, bands, height,
          width)`.
JSON:     {"name": "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile", "configuration":
          {"compression": 8, "predictor": 2, "bits_per_sample": 16, "tile_width": 512,
          "tile_height": 512}}
Lossless: as the compression is; encoding JPEG, WebP, LERC is lossy unless its level says otherwise.

Keys that other readers of this codec do not know are written only where the bytes need them:
`byte_order`, `fill_order`, `t4_options`, `subsampling`, `ycbcr_coefficients`,
`reference_black_white`, `tile_depth`, `eer`, a list as `bits_per_sample`; and `last_height`,
`last_width`, the extent of the chunks at the lower and right edge, which tell a short chunk from a
damaged one.
"""

import base64
import binascii
import math
import sys
import threading
from collections.abc import Buffer as BytesLike
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, Json, runtime_field, v2_filter
from anychunk.codecs.tiff import decoders, encoders, samples, synthetic
from anychunk.codecs.tiff.fields import are_counts, are_numbers, is_count, is_within
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError, UnsupportedError

type Array = npt.NDArray[Any]

NONE, FAX_T4, OLD_JPEG = 1, 3, 6
LIBTIFF = {
    2: "CCITT RLE",
    3: "CCITT T.4",
    4: "CCITT T.6",
    32766: "NeXT",
    32771: "CCITT RLE, words",
    32809: "ThunderScan",
}
"""Compressions that libtiff decodes here: strict about what is missing, or known to it alone."""
YCBCR = decoders.YCBCR
FLOAT = samples.FLOAT
KNOWN = {NONE, OLD_JPEG, *LIBTIFF, *decoders.STREAMS, *decoders.PICTURES}
PREDICTORS = {1, *samples.DISTANCES, *samples.FLOAT_DISTANCES}

_scratch = threading.local()


def scratch(nbytes: int) -> Bytes1D:
    """Give a buffer of this thread; it lives until the thread's next chunk."""
    buffer = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < nbytes or len(buffer) > max(4 * nbytes, 1 << 22):
        buffer = _scratch.buffer = np.empty(nbytes, np.uint8)
    return buffer[:nbytes]


@dataclass(frozen=True, kw_only=True)
class TiffTile(BytesToBytes):
    """Decodes what lies between two offsets of a TIFF file, given the tags that describe it."""

    name: ClassVar[str] = "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile"
    is_fixed_size = False

    compression: int = 1
    bits_per_sample: int | tuple[int, ...] = 8
    samples_per_pixel: int = 1
    """Bands in this chunk: 1 where the file keeps bands apart."""
    photometric: int = 1
    planar_config: int = 1
    predictor: int = 1
    tile_width: int = 256
    tile_height: int = 256
    """RowsPerStrip for strips."""
    sample_format: int = 1
    jpeg_tables: str | None = None
    """Base64 of the JPEGTables tag. Empty: they stand in front of each chunk."""
    byte_order: Literal["little", "big"] = "little"
    fill_order: int = 1
    t4_options: int = 0
    subsampling: tuple[int, int] = (1, 1)
    """Pixels that share one chroma sample, across and down; only where the samples are YCbCr."""
    ycbcr_coefficients: tuple[float, ...] = ()
    reference_black_white: tuple[float, ...] = ()
    tile_depth: int = 1
    last_height: int | None = None
    """Rows of the chunks at the lower edge. None: any chunk may have fewer than `tile_height`."""
    last_width: int | None = None
    """Columns of the chunks at the right edge, for compressions that keep their own size."""
    eer: tuple[int, ...] = ()
    """Bits for skipping, and for the position within a pixel across and down."""
    level: int | None = runtime_field()
    """How hard to compress, as imagecodecs counts for the compression."""
    backend: Literal["direct", "libtiff"] = runtime_field("direct")

    def __post_init__(self) -> None:
        for f in self.json_fields():
            value = getattr(self, f.name)
            if isinstance(value, list):
                object.__setattr__(self, f.name, tuple(value))
            elif isinstance(f.default, int) and not is_count(f.name, value):
                raise CodecConfigError(f"tiff-tile: {f.name} is {value!r}, expected a count")
        self._check()
        _ = self.dtype, self.tables

    def _check(self) -> None:
        expected: list[tuple[str, bool]] = [
            ("tile_width", 0 < self.tile_width < 1 << 32),
            ("tile_height", 0 < self.tile_height < 1 << 32),
            ("tile_depth", 0 < self.tile_depth < 1 << 31),
            ("samples_per_pixel", 0 < self.samples_per_pixel < 1 << 16),
            ("planar_config", self.planar_config in (1, 2)),
            ("fill_order", self.fill_order in (1, 2)),
            ("byte_order", self.byte_order in ("little", "big")),
            (
                "subsampling",
                are_counts(self.subsampling, (2,)) and set(self.subsampling) <= {1, 2, 4},
            ),
            ("eer", are_counts(self.eer, (0, 3))),
            ("ycbcr_coefficients", are_numbers(self.ycbcr_coefficients, (0, 3))),
            ("reference_black_white", are_numbers(self.reference_black_white, (0, 6))),
            (
                "bits_per_sample",
                isinstance(self.bits_per_sample, int)
                or are_counts(self.bits_per_sample, (self.samples_per_pixel,)),
            ),
            ("last_height", is_within(self.last_height, self.tile_height)),
            ("last_width", is_within(self.last_width, self.tile_width)),
            ("backend", self.backend in ("direct", "libtiff")),
        ]
        for key, is_good in expected:
            if not is_good:
                raise CodecConfigError(f"tiff-tile: {key} is {getattr(self, key)!r}")
        if self.compression not in KNOWN:
            raise UnsupportedError(
                f"tiff-tile: compression {self.compression} is not opened; opened: "
                f"{' '.join(str(n) for n in sorted(KNOWN))}"
            )
        if self.predictor not in PREDICTORS and self.compression not in decoders.PICTURES:
            raise UnsupportedError(
                f"tiff-tile: predictor {self.predictor} is not opened; opened: "
                f"{' '.join(str(n) for n in sorted(PREDICTORS))}"
            )

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        return {k: tuple(v) if isinstance(v, list) else v for k, v in configuration.items()}

    def configuration(self) -> dict[str, Json]:
        found = super().configuration()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}

    @cached_property
    def tables(self) -> bytes | None:
        if self.jpeg_tables is None:
            return None
        try:
            return base64.b64decode(self.jpeg_tables, validate=True)
        except (binascii.Error, ValueError, TypeError) as e:
            raise CodecConfigError("tiff-tile: jpeg_tables is not base64") from e

    @cached_property
    def bits(self) -> samples.Bits:
        return samples.as_bits(self.bits_per_sample)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return samples.sample_dtype(self.sample_format, self.bits)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.tile_depth, self.samples_per_pixel, self.tile_height, self.tile_width)

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def row_bytes(self) -> int:
        return samples.row_bytes(self.tile_width, self.samples_per_pixel, self.bits)

    @cached_property
    def is_subsampled(self) -> bool:
        """Whether several pixels share chroma samples, in bytes that are not a picture's stream."""
        return (
            self.photometric == YCBCR
            and self.subsampling != (1, 1)
            and self.compression not in decoders.PICTURES
        )

    def stored_bytes(self, rows: int) -> int:
        """How many bytes `rows` of this chunk take, decompressed but not unpacked."""
        if self.is_subsampled:
            across, down = self.subsampling
            units = -(-self.tile_width // across) * -(-rows // down)
            return units * (across * down + 2)
        return self.row_bytes * rows

    @cached_property
    def _is_direct(self) -> bool:
        """Whether decompressed bytes are, in native order, the decoded chunk."""
        return (
            self.samples_per_pixel == 1
            and samples.is_whole(self.sample_format, self.bits)
            and not self.is_subsampled
        )

    def rows_of(self, length: int) -> int:
        """How many rows `length` decompressed bytes hold; an error where too few."""
        if length >= self.stored_bytes(self.tile_height) * self.tile_depth:
            return self.tile_height
        if self.tile_depth == 1:
            last = self.last_height
            if last is None:
                rows, rest = divmod(length, self.row_bytes)
                if rows and not rest and not self.is_subsampled:
                    return rows
            else:
                step = self.subsampling[1] if self.is_subsampled else 1
                if self.stored_bytes(last) <= length < self.stored_bytes(last + step):
                    return last
        raise ChunkDecodeError(
            f"tiff-tile: decompresses to {length} bytes, expected "
            f"{self.stored_bytes(self.tile_height) * self.tile_depth}"
            + (f" or {self.stored_bytes(self.last_height)}" if self.last_height else "")
        )

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        out = self._target(data, spec, out)
        fill = 0 if spec is None else spec.fill_value
        return self._placed(self._fitted(self._decoded(data, out)), out, fill)

    def decode_view(
        self, data: Bytes1D, spec: ChunkSpec, out: Bytes1D | None = None
    ) -> npt.NDArray[Any]:
        """Decode to an array of the chunk's shape; bands may stay interleaved in memory."""
        out = self._target(data, spec, out)
        if self._is_simple and self._inflated(data, out):
            return out.view(self.dtype).reshape(spec.shape)
        if self._is_jpeg_of_bands:
            pixels = out.reshape(self.tile_height, self.tile_width, self.samples_per_pixel)
            array = self._fitted(decoders.unjpeg(self, data, pixels))
        else:
            array = self._fitted(self._decoded(data, out))
        is_whole = array.shape[:2] == (self.tile_height * self.tile_depth, self.tile_width)
        if self.samples_per_pixel > 1 and is_whole:
            deep = array.reshape(self.tile_depth, self.tile_height, self.tile_width, -1)
            bands_first = np.moveaxis(deep, -1, 1)
            if self.tile_depth > 1:
                return bands_first.reshape(spec.shape, copy=False)
            return bands_first[(None,) * (len(spec.shape) - 3) + (0,)]
        placed = self._placed(array, out, spec.fill_value)
        return placed.view(self.dtype.newbyteorder("<")).reshape(spec.shape)

    @cached_property
    def _is_jpeg_of_bands(self) -> bool:
        """Whether the picture that a JPEG stream holds takes just as much memory as the chunk."""
        return (
            decoders.PICTURES.get(self.compression) is decoders.unjpeg
            and self.dtype == np.uint8
            and self.samples_per_pixel > 1
            and self.tile_depth == 1
            and self.backend == "direct"
        )

    @cached_property
    def _is_simple(self) -> bool:
        """Whether a whole chunk is decompressed and perhaps summed, and nothing else."""
        return (
            self._is_direct
            and self.compression in decoders.STREAMS
            and self.predictor in (1, 2)
            and self.fill_order == 1
            and (self.byte_order == sys.byteorder or self.dtype.itemsize == 1)
            and sys.byteorder == "little"
            and (self.predictor == 1 or self.dtype.kind in "iuf")
            and self.backend == "direct"
        )

    def _inflated(self, data: Bytes1D, out: Bytes1D, target: Array | None = None) -> bool:
        """Decode a simple chunk in place, as fast as may be. False: it is a short one.

        Differences are summed into `target`, where there is one.
        """
        plain = decoders.STREAMS[self.compression](data, out)
        if len(plain) != len(out):
            return False
        if plain is not out and plain.ctypes.data != out.ctypes.data:
            out[:] = plain
        if self.predictor == 2:
            word = f"u{self.dtype.itemsize}"
            shape = (-1, self.tile_width) if target is None else target.shape
            words = out.view(word).reshape(shape)
            summed = words if target is None else target.view(word)
            imagecodecs.delta_decode(words, axis=-1, out=summed)
        return True

    def decode_into(
        self, data: Bytes1D, spec: ChunkSpec, target: Array, out: Bytes1D | None
    ) -> bool:
        """Decode a whole chunk to where the caller wants it. False: nothing was done.

        Saves the pass that would copy it there.
        """
        if not self._is_simple or self.predictor == 1:
            return False
        return self._inflated(data, self._target(data, spec, out), target)

    def _target(self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None) -> Bytes1D:
        """Check sizes before anything is allocated, and give the buffer to decode into."""
        if spec is not None and spec.nbytes != self.nbytes:
            raise ChunkDecodeError(
                f"tiff-tile: decodes to {self.nbytes} bytes, the chunk of shape {spec.shape} and "
                f"type {spec.dtype} has {spec.nbytes}"
            )
        limits.check_chunk(self.nbytes, where="tiff-tile", stored=len(data))
        return (
            out if out is not None and len(out) == self.nbytes else np.empty(self.nbytes, np.uint8)
        )

    def _decoded(self, data: Bytes1D, out: Bytes1D) -> Array:
        """Decode to (rows, columns, bands); in `out` where that is what `out` holds in the end."""
        if self.backend == "libtiff" or self.compression in LIBTIFF:
            return synthetic.decode_libtiff(self, data)
        if self.compression == OLD_JPEG:
            return self._decode_old_jpeg(data)
        picture = decoders.PICTURES.get(self.compression)
        return picture(self, data) if picture is not None else self._decode_stream(data, out)

    def _decode_old_jpeg(self, data: Bytes1D) -> Array:
        """Decode a stream that has a header of the index in front, as libtiff does: unsmoothed."""
        tail = np.frombuffer(b"\xff\xd9", np.uint8)
        array = imagecodecs.jpeg8_decode(
            np.concatenate([data, tail]),
            colorspace="YCBCR" if self.photometric == YCBCR else None,
            outcolorspace="YCBCR" if self.photometric == YCBCR else None,
            fancyupsampling=False,
        )
        if self.photometric != YCBCR:
            return array  # type: ignore[no-any-return]
        if array.shape[1:] != (self.tile_width, 3):
            raise ChunkDecodeError(
                f"tiff-tile: a JPEG stream of {array.shape} in an old-style strip"
            )
        plain = TiffTile(
            photometric=YCBCR,
            samples_per_pixel=3,
            tile_width=self.tile_width,
            tile_height=len(array),
            ycbcr_coefficients=self.ycbcr_coefficients,
            reference_black_white=self.reference_black_white,
        )
        return synthetic.ycbcr_to_rgb(plain, array.reshape(-1), len(array))

    def _decode_stream(self, data: Bytes1D, out: Bytes1D) -> Array:
        if self.fill_order == 2:
            data = imagecodecs.bitorder_decode(data, out=np.empty_like(data))
        wanted = self.stored_bytes(self.tile_height) * self.tile_depth
        is_float_predicted = self.predictor in samples.FLOAT_DISTANCES
        decompress = decoders.STREAMS.get(self.compression)
        if decompress is None:
            plain = data[:wanted]
        else:
            is_final = self._is_direct and not is_float_predicted
            plain = decompress(data, out if is_final else scratch(wanted))
        rows = self.rows_of(len(plain))
        plain = plain[: self.stored_bytes(rows) * self.tile_depth]
        if self.is_subsampled:
            return synthetic.ycbcr_to_rgb(self, plain, rows)
        return self._unpacked(plain, rows * self.tile_depth, out)

    def _unpacked(self, plain: Bytes1D, rows: int, out: Bytes1D) -> Array:
        """Turn decompressed bytes into samples (rows, columns, bands)."""
        if self.predictor in samples.FLOAT_DISTANCES:
            if self.sample_format != samples.FLOAT or isinstance(self.bits, tuple):
                raise UnsupportedError(
                    f"tiff-tile: predictor 3 with SampleFormat {self.sample_format} is not opened"
                )
            return samples.unpredict_float(
                plain,
                rows=rows,
                columns=self.tile_width,
                bands=self.samples_per_pixel,
                bits=self.bits,
                predictor=self.predictor,
                out=out if self._is_direct else None,
            )
        is_big = self.byte_order == "big"
        is_complex = self.sample_format in samples.COMPLEX
        if self.predictor > 1 and is_complex:
            plain = samples.unpredict_complex(
                plain,
                shape=(rows, self.tile_width, self.samples_per_pixel),
                bits=self.bits,
                predictor=self.predictor,
                is_big=is_big,
            )
            is_big = sys.byteorder == "big"
        array = samples.unpack(
            plain,
            rows=rows,
            columns=self.tile_width,
            bands=self.samples_per_pixel,
            sample_format=self.sample_format,
            bits=self.bits,
            is_big=is_big,
        )
        if self.predictor == 1 or is_complex:
            return array
        if isinstance(self.bits, tuple) or (self.bits, self.sample_format) == (24, FLOAT):
            raise UnsupportedError(
                f"tiff-tile: predictor {self.predictor} with samples of {self.bits} bits in "
                f"SampleFormat {self.sample_format} is not opened"
            )
        return samples.unpredict(
            array, predictor=self.predictor, bits=self.bits, sample_format=self.sample_format
        )

    def _placed(self, array: Array, out: Bytes1D, fill: Any) -> Bytes1D:
        """Put samples in their place in `out`; nothing to do where they are there already."""
        rows, columns, bands = array.shape
        if array.__array_interface__["data"][0] == out.__array_interface__["data"][0]:
            if not array.dtype.isnative:
                array.byteswap(inplace=True)
            out.view(self.dtype)[array.size :] = fill
            return out
        target = out.view(self.dtype.newbyteorder("<")).reshape(self.shape)
        if array.size < target.size:
            target[...] = fill
        deep = array.reshape(self.tile_depth, rows // self.tile_depth, columns, bands)
        samples.deinterleave(deep, target)
        return out

    def _fitted(self, array: Array) -> Array:
        """Hold a decoded picture against what the chunk should be."""
        if array.ndim == 2:
            array = array[..., None]
        rows, columns = self.tile_height * self.tile_depth, self.tile_width
        last_rows = rows if self.last_height is None else self.last_height
        last_columns = columns if self.last_width is None else self.last_width
        # a strip may be coded with more rows than it shows, up to a row of JPEG blocks
        if array.ndim == 3 and array.shape[1] == columns:
            if array.shape[0] > rows:
                array = array[:rows]
            elif last_rows < array.shape[0] < min(rows, last_rows + 16):
                array = array[:last_rows]
        is_short = self.last_height is None and array.shape[0] < rows
        is_narrow = self.last_width is None and array.shape[1] < columns
        if (
            array.ndim != 3
            or array.shape[2] != self.samples_per_pixel
            or (array.shape[0] not in (rows, last_rows) and not is_short)
            or (array.shape[1] not in (columns, last_columns) and not is_narrow)
        ):
            raise ChunkDecodeError(
                f"tiff-tile: decodes to (rows, columns, bands) {array.shape}, expected "
                f"{(rows, columns, self.samples_per_pixel)}"
            )
        if array.dtype.newbyteorder("=") != self.dtype:
            array = self._cast(array)
        return array

    def _cast(self, array: Array) -> Array:
        if array.dtype.itemsize == self.dtype.itemsize and array.dtype.kind in "biu":
            if self.dtype.kind == "b" and array.size and array.max() > 1:
                raise ChunkDecodeError(f"tiff-tile: decodes to {array.max()}, expected 0 and 1")
            return array.view(self.dtype)
        raise ChunkDecodeError(f"tiff-tile: decodes to {array.dtype}, expected {self.dtype}")

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if len(data) != self.nbytes:
            raise ChunkEncodeError(f"tiff-tile: {len(data)} bytes, expected {self.nbytes}")
        bands_first = data.view(self.dtype.newbyteorder("<")).reshape(self.shape)
        return encoders.encode(self, np.moveaxis(bands_first, 1, -1))


TiffTileV2 = v2_filter(TiffTile)
