"""`anychunk.tiff-tile`, bytes to bytes: one strip or tile of a TIFF file.

Spec:     https://awslabs.github.io/osml-imagery-io/ (synthetic codestreams); TIFF 6.0 and its
          technical notes for the contents. Decoded bytes are C-order `(bands, height, width)` of
          the whole nominal chunk, little-endian; with `tile_depth` above 1, `(depth, bands, height,
          width)`.
JSON:     {"name": "anychunk.tiff-tile", "configuration":
          {"compression": 8, "predictor": 2, "bits_per_sample": 16, "tile_width": 512,
          "tile_height": 512}}
Lossless: depends on the compression; encoding JPEG, WebP and LERC is lossy unless `level` says
          otherwise.

Keys that other readers of this codec do not know are written only if the bytes need them:
`byte_order`, `fill_order`, `t4_options`, `subsampling`, `ycbcr_coefficients`,
`reference_black_white`, `tile_depth`, `eer`, a list as `bits_per_sample`; and `last_height` and
`last_width`, the size of the chunks at the bottom and right edge, which distinguish a short chunk
from a damaged one. Where the place of a chunk is known, only those at an edge may be short
(`at_edges`).

This module holds the codec and the checks of its configuration. The work is done in
`anychunk.codecs.tiff`.
"""

import math
import sys
from collections.abc import Buffer as BytesLike
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from anychunk import limits
from anychunk.codecs import libraries
from anychunk.codecs._fax_lines import compiled_tables
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.chunk_layout import ChunkLayout
from anychunk.codecs.tiff import decoders, encoders, samples
from anychunk.codecs.tiff.tile import (
    CCITT_T6,
    DEFLATE,
    JPEG,
    LERC,
    LZMA,
    LZW,
    PACKBITS,
    PICTURES,
    WEBP,
    ZSTD,
    Tile,
)
from anychunk.decoders import LIBJPEG
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError, UnsupportedError
from anychunk.model.grid import Array
from anychunk.model.index import Json
from anychunk.native import loops

KINDS = {
    PACKBITS: libraries.PACKBITS,
    CCITT_T6: libraries.FAX,
    LZW: libraries.LZW,
    LZMA: libraries.XZ,
    LERC: libraries.LERC,
    **dict.fromkeys(DEFLATE, libraries.DEFLATE),
    **dict.fromkeys(ZSTD, libraries.ZSTD),
    **dict.fromkeys(WEBP, libraries.WEBP),
    **dict.fromkeys(JPEG, libraries.JPEG),
}
"""Compressions that the compiled loop decodes."""

PREDICTORS = {1, *samples.DISTANCES, *samples.FLOAT_DISTANCES}


def _is_count(name: str, value: object) -> bool:
    if name == "bits_per_sample" and isinstance(value, tuple):
        return True
    return type(value) is int and value >= 0


def _are_counts(value: object, lengths: tuple[int, ...]) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) in lengths
        and all(type(v) is int and 0 < v <= 128 for v in value)
    )


def _are_numbers(value: object, lengths: tuple[int, ...]) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) in lengths
        and all(isinstance(v, int | float) and math.isfinite(v) and abs(v) < 2048 for v in value)
    )


def _is_within(value: object, most: int) -> bool:
    return value is None or (type(value) is int and 0 < value <= most)


def check_tile(tile: Tile) -> None:
    """Check values from untrusted JSON; raise `CodecConfigError` or `UnsupportedError`."""
    expected: list[tuple[str, bool, str]] = [
        ("tile_width", 0 < tile.tile_width < 1 << 32, "1 to 2**32 - 1"),
        ("tile_height", 0 < tile.tile_height < 1 << 32, "1 to 2**32 - 1"),
        ("tile_depth", 0 < tile.tile_depth < 1 << 31, "1 to 2**31 - 1"),
        ("samples_per_pixel", 0 < tile.samples_per_pixel < 1 << 16, "1 to 65535"),
        ("planar_config", tile.planar_config in (1, 2), "1 or 2"),
        ("fill_order", tile.fill_order in (1, 2), "1 or 2"),
        ("byte_order", tile.byte_order in ("little", "big"), "'little' or 'big'"),
        (
            "subsampling",
            _are_counts(tile.subsampling, (2,)) and set(tile.subsampling) <= {1, 2, 4},
            "two of 1, 2, 4",
        ),
        ("eer", _are_counts(tile.eer, (0, 3)), "three positive integers"),
        (
            "ycbcr_coefficients",
            _are_numbers(tile.ycbcr_coefficients, (0, 3)),
            "three numbers below 2048",
        ),
        (
            "reference_black_white",
            _are_numbers(tile.reference_black_white, (0, 6)),
            "six numbers below 2048",
        ),
        (
            "bits_per_sample",
            isinstance(tile.bits_per_sample, int)
            or _are_counts(tile.bits_per_sample, (tile.samples_per_pixel,)),
            "a count, or one per band",
        ),
        (
            "last_height",
            _is_within(tile.last_height, tile.tile_height),
            f"null or 1 to {tile.tile_height}",
        ),
        (
            "last_width",
            _is_within(tile.last_width, tile.tile_width),
            f"null or 1 to {tile.tile_width}",
        ),
        ("backend", tile.backend in ("direct", "libtiff"), "'direct' or 'libtiff'"),
    ]
    for key, is_good, what in expected:
        if not is_good:
            raise CodecConfigError(f"tiff-tile: {key} is {getattr(tile, key)!r}, expected {what}")
    if tile.compression not in decoders.KNOWN:
        raise UnsupportedError(
            f"tiff-tile: compression {tile.compression} is not supported; supported: "
            f"{' '.join(str(n) for n in sorted(decoders.KNOWN))}"
        )
    if tile.predictor not in PREDICTORS and tile.compression not in PICTURES:
        raise UnsupportedError(
            f"tiff-tile: predictor {tile.predictor} is not supported; supported: "
            f"{' '.join(str(n) for n in sorted(PREDICTORS))}"
        )


def _is_at(array: Array, out: Bytes1D) -> bool:
    """Return whether samples begin where the buffer does: they were decoded in place."""
    found: bool = array.__array_interface__["data"][0] == out.__array_interface__["data"][0]
    return found


@dataclass(frozen=True, kw_only=True)
class TiffTile(Tile, BytesToBytes):
    """Codec for one strip or tile, given the tags that describe it."""

    name: ClassVar[str] = "anychunk.tiff-tile"
    is_fixed_size = False

    def __post_init__(self) -> None:
        for f in self.json_fields():
            value = getattr(self, f.name)
            if isinstance(value, list):
                object.__setattr__(self, f.name, tuple(value))
            elif isinstance(f.default, int) and not _is_count(f.name, value):
                raise CodecConfigError(
                    f"tiff-tile: {f.name} is {value!r}, expected a non-negative integer"
                )
        check_tile(self)
        _ = self.dtype, self.tables  # they raise for what cannot be decoded

    @classmethod
    def parse_configuration(cls, configuration: Mapping[str, Json]) -> dict[str, Any]:
        return {k: tuple(v) if isinstance(v, list) else v for k, v in configuration.items()}

    def configuration(self) -> dict[str, Json]:
        found = super().configuration()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}

    @cached_property
    def depends_on_place(self) -> bool:
        """Whether chunks at the lower and right edge may have another size than the others."""
        return (
            self.last_height != self.tile_height
            or self.last_width != self.tile_width
            or self.compression in PICTURES
        )

    def at_edges(self, *, is_lowest: bool, is_rightmost: bool) -> Self:
        """Return the codec for the chunks of one place: only those at an edge may be partial."""
        return replace(
            self,
            last_height=self.last_height if is_lowest else self.tile_height,
            last_width=self.last_width if is_rightmost else self.tile_width,
            is_inside=not is_lowest,
        )

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        out = self._target(data, spec, out)
        fill = 0 if spec is None else spec.fill_value
        return self._placed(decoders.decode(self, data, out), out, fill)

    @cached_property
    def _is_picture(self) -> bool:
        """Whether a chunk is a picture whose samples only have to be copied."""
        return (
            loops is not None
            and self.compression in decoders.PICTURE_DECODERS
            and self.dtype.kind in "iuf"
            and self.dtype.itemsize in (1, 2, 4, 8)
            and self.tile_depth == 1
            and self.backend == "direct"
        )

    @cached_property
    def _is_rows(self) -> bool:
        """Whether the compiled loop makes pixels of decompressed rows."""
        kind = self.dtype.kind
        if self.predictor in samples.FLOAT_DISTANCES:
            is_predictable = self.predictor == 3 and kind == "f" and self.bits in (16, 32, 64)
        else:
            is_predictable = self.predictor == 1 or (self.predictor == 2 and kind in "iuf")
        return (
            self.compression in decoders.STREAM_DECODERS
            and is_predictable
            and self.dtype.itemsize in (1, 2, 4, 8)
            and not (self._is_swapped and kind == "c")
            and self.fill_order == 1
            and not self.is_subsampled
            and self.backend == "direct"
            and samples.is_whole(self.sample_format, self.bits)
        )

    def chunk_layout(self, spec: ChunkSpec) -> ChunkLayout | None:
        """Return what the compiled loop needs to decode many chunks at once; None if it cannot."""
        kind = KINDS.get(self.compression)
        is_picture = self.compression in PICTURES or kind == libraries.FAX
        if kind is None or not (self._is_plain_picture if is_picture else self._is_rows):
            return None
        functions = libraries.functions(kind)
        lead = [axis for axis, n in enumerate(spec.shape[:-2]) if n > 1]
        deep, bands = self.tile_depth, self.samples_per_pixel
        rows, columns = self.tile_height, self.tile_width
        if (
            functions is None
            or spec.shape[-2:] != (rows, columns)
            or [spec.shape[axis] for axis in lead] != [n for n in (deep, bands) if n > 1]
        ):
            return None
        axes = len(spec.shape)
        place = lead.pop() if bands > 1 else None
        last = (*(1,) * len(lead), self.last_height or rows, columns, bands)
        is_short = not is_picture and deep == 1 and last[-3] < rows
        return ChunkLayout(
            kind,
            functions,
            (*([deep] if deep > 1 else []), rows, columns, bands),
            (*lead, axes - 2, axes - 1, place),
            self.dtype.itemsize,
            predictor=1 if is_picture else self.predictor,
            is_swapped=not is_picture and self._is_swapped,
            options=self._picture_options,
            decoder=LIBJPEG if self.compression in JPEG else None,
            last=last if is_short else (),
        )

    @cached_property
    def _is_plain_picture(self) -> bool:
        """Whether a picture decodes to the samples of the chunk, whatever it is."""
        if self.compression == CCITT_T6:
            is_bilevel = self.bits == 1 and self.samples_per_pixel == self.tile_depth == 1
            return is_bilevel and self.dtype.itemsize == 1 and self.backend == "direct"
        if self.compression == LERC:
            # samples of big-endian files are swapped before they are compressed
            return self._is_picture and self.byte_order == "little"
        if not self._is_picture or self.dtype != np.uint8:
            return False
        if self.compression in WEBP:
            return self.samples_per_pixel in (3, 4)
        return self.tables != b""  # JPEG: the same tables for all chunks

    @cached_property
    def _picture_options(self) -> bytes:
        if self.compression == LERC:
            return libraries.lerc_options(self.dtype.str[1:])
        if self.compression == CCITT_T6:
            tables = compiled_tables().tobytes()
            return libraries.fax_options(tables, is_reversed=self.fill_order == 2)
        if self.compression not in JPEG:
            return b""
        plain, jfif = (decoders.jpeg_colors(self, is_jfif=is_jfif) for is_jfif in (False, True))
        return libraries.jpeg_options(plain, jfif, self.tables or b"")

    @cached_property
    def _is_swapped(self) -> bool:
        """Whether decompressed samples are not in the order of this machine."""
        return self.byte_order != sys.byteorder and self.dtype.itemsize > 1

    def decode_part(
        self, data: Bytes1D, spec: ChunkSpec, rows: range, columns: range
    ) -> Array | None:
        """Decode some rows and columns of a chunk; return None if that is not cheaper.

        The array has the axes of the chunk, with only these rows and columns.
        """
        decode = decoders.PART_DECODERS.get(self.compression)
        if decode is None or self.tile_depth > 1 or self.backend != "direct":
            return None
        self._check_sizes(data, spec)
        found = decode(self, data, rows, columns)
        if found is None:
            return None
        return np.moveaxis(found, -1, 0)[(None,) * (len(spec.shape) - 3)]

    def _target(self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None) -> Bytes1D:
        """Return the buffer to decode into; sizes are checked before it is allocated."""
        self._check_sizes(data, spec)
        return (
            out if out is not None and len(out) == self.nbytes else np.empty(self.nbytes, np.uint8)
        )

    def _check_sizes(self, data: Bytes1D, spec: ChunkSpec | None) -> None:
        if spec is not None:
            self._check_spec(spec)
        limits.check_chunk(self.nbytes, where="tiff-tile", stored=len(data))

    def _check_spec(self, spec: ChunkSpec) -> None:
        # the chunks of an array have one spec: it is looked at once
        if self.__dict__.get("_last_spec") is spec:
            return
        if spec.nbytes != self.nbytes:
            raise ChunkDecodeError(
                f"tiff-tile: decodes to {self.nbytes} bytes, expected {spec.nbytes} for a chunk of "
                f"shape {spec.shape} and type {spec.dtype}"
            )
        self.__dict__["_last_spec"] = spec

    def _placed(self, array: Array, out: Bytes1D, fill: Any) -> Bytes1D:
        """Copy samples to their place in `out`, unless they are there already; fill the rest."""
        rows, columns, bands = array.shape
        # decoded in place (`Tile.is_direct`)
        if _is_at(array, out):
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

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if len(data) != self.nbytes:
            raise ChunkEncodeError(f"tiff-tile: {len(data)} bytes, expected {self.nbytes}")
        bands_first = data.view(self.dtype.newbyteorder("<")).reshape(self.shape)
        return encoders.encode(self, np.moveaxis(bands_first, 1, -1))
