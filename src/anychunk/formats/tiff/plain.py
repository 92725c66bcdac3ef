"""The array of a file that has one ordinary page, without tifffile.

tifffile looks for the signs of thirty kinds of files and reads every tag, which takes longer than
decoding a small image. A directory that has nothing but common tags with ordinary values needs
neither. Whatever else a file has, or if any value is doubtful, `plain_array` returns None, and the
general parser decides, which also reports the errors. The arrays that both find are equal.

Spec: TIFF 6.0 section 2, BigTIFF.
"""

import base64
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.tiff.tile import CCITT_T6, DEFLATE, LERC, LZW, NONE, YCBCR
from anychunk.errors import AnychunkError
from anychunk.formats._two_steps import Plain
from anychunk.formats.tiff.axes import Arrangement, arrangement
from anychunk.formats.tiff.byte_ranges import MANY, chunk_lengths, piece_rows, whole_rows
from anychunk.formats.tiff.directory import LONG, LONG8, SHORT, TYPE_SIZES, Form
from anychunk.formats.tiff.layout import JPEG, ZSTD, Layout
from anychunk.formats.tiff.page_stack import array_codecs
from anychunk.io.file import FileSource
from anychunk.model.grid import Shape
from anychunk.model.index import ByteRanges, Json

MAGIC: dict[bytes, tuple[Literal["<", ">"], bool]] = {
    b"II*\0": ("<", False),
    b"MM\0*": (">", False),
    b"II+\0": ("<", True),
    b"MM\0+": (">", True),
}
"""First bytes of the file: byte order, and whether it is a BigTIFF."""
BIG_OFFSETS = (b"\x08\0\0\0", b"\0\x08\0\0")
"""Bytes per offset, and zero, in either byte order (BigTIFF)."""
ASCII, UNDEFINED, PACK_BITS, JPEG2000, LZMA, WEBP = 2, 7, 32773, 34712, 34925, 50001
RGB, PALETTE = 2, 3
BITS: dict[int, tuple[int, ...]] = {1: (8, 16, 32, 64), 2: (8, 16, 32, 64), 3: (32, 64)}
"""Bits per sample, by SampleFormat."""
COMPRESSIONS = frozenset((NONE, LZW, *DEFLATE, PACK_BITS, ZSTD, LZMA))
"""Those whose streams need nothing but the layout to be decoded."""
WHOLE: dict[int, dict[int, tuple[int, ...]]] = {
    JPEG: {1: (8,)},
    WEBP: {1: (8,)},
    LERC: BITS,
    JPEG2000: {1: (8, 16)},
}
"""Compressions of whole pictures, which have no predictor, and what samples they may have."""
MOST_ENTRIES, MOST_BYTES = 64, 1 << 16
"""Longer directories and values are not kept in memory."""
MOST_VALUES = 16

NUMBERS = frozenset((254, 256, 257, 259, 262, 277, 278, 284, 317, 322, 323))
"""Tags of one unsigned integer that the layout depends on."""
LISTS = frozenset((258, 338, 339, 530))
"""Tags of one value per band, or per extra band; YCbCrSubSampling."""
JPEG_TABLES = 347
OFFSETS, COUNTS = frozenset((273, 324)), frozenset((279, 325))
DESCRIPTION, SOFTWARE = 270, 305
OTHERS = frozenset((
    274, 282, 283, 296, 306, 315, 320, 33432, 33550, 33922, 34264, 34735, 34736, 34737, 42112,
    42113, 50674, 529, 531, 532,
))  # fmt: skip
"""Tags that say nothing about the structure: resolution, date, palette, place, GDAL's metadata,
the second compression of LERC, which is recognised without it, and how YCbCr is converted, which is
not needed for JPEG."""
SHAPED = re.compile(rb'\{"shape": \[(\d+(?:, \d+){0,7})\](?:, "[a-z]{1,20}": null)?\}\0?')
"""The description that tifffile writes."""
WRITERS = (b"tifffile.py", b"GDAL", b"ImageMagick", b"libtiff", b"Matplotlib", b"rasterio")
"""Software that marks no special kind of file."""
DICOM = slice(128, 132)
"""Where a file that is also a DICOM file says so."""


def plain_array(source: FileSource) -> Plain | None:
    """Return the array of a file with one ordinary page; None if the file is anything else."""
    file = _File(source)
    entries = file.entries()
    if entries is None:
        return None
    values = _Values(file)
    if not all(values.take(*entry) for entry in entries):
        return None
    pattern = values.pattern()
    tables = None if pattern is None else _tables(values, pattern, source.size())
    if pattern is None or tables is None:
        return None
    fields = {
        "shape": pattern.shape,
        "chunk_shape": pattern.chunk_shape,
        "data_type": pattern.data_type,
        "codecs": tuple({**c, "configuration": dict(c["configuration"])} for c in pattern.codecs),
        "chunks": ByteRanges(offsets=tables[0], lengths=tables[1], urls=(source.url,)),
        "dimension_names": pattern.names,
    }
    return Plain(fields, file.pieces)


class _File:
    """The start of a file, and other parts of it, which are kept."""

    def __init__(self, source: FileSource) -> None:
        self._source, self._size = source, source.size()
        self._head = source.read(0, min(self._size, 4096)).tobytes()
        order, is_big = MAGIC.get(self._head[:4], ("<", False))
        self.form = Form(order, is_big, self._size)
        self.pieces = {0: self._head[:16], DICOM.start: self._head[DICOM]}
        """What was read, by offset."""

    def read(self, offset: int, length: int) -> bytes | None:
        """Return a part of the file; None if it is too long, or not inside the file."""
        if offset < 8 or length > MOST_BYTES or offset + length > self._size:
            return None
        if offset + length <= len(self._head):
            found = self._head[offset : offset + length]
        else:
            found = self._source.read(offset, length).tobytes()
        self.pieces[offset] = found
        return found

    def entries(self) -> Iterator[tuple[int, int, int, bytes]] | None:
        """Return the entries of the only directory: tag, type, count, and value or offset."""
        head, form = self._head, self.form
        if head[:4] not in MAGIC or self._size < 32 or head[DICOM] == b"DICM":
            return None
        width = 8 if form.is_big else 2
        first = form.number(head[8:16] if form.is_big else head[4:8])
        if form.is_big and head[4:8] not in BIG_OFFSETS:
            return None
        start = self.read(first, width)
        count = 0 if start is None else form.number(start)
        length = form.entry.size * count
        directory = self.read(first, width + length + form.inline)
        if not 0 < count <= MOST_ENTRIES or directory is None or any(directory[width + length :]):
            return None  # or another directory follows
        return form.entry.iter_unpack(directory[width : width + length])


class _Values:
    """The values of a directory, as far as the array depends on them."""

    def __init__(self, file: _File) -> None:
        self.form, self._read = file.form, file.read
        self.numbers: dict[int, int] = {}
        self.lists: dict[int, tuple[int, ...]] = {}
        self.offsets: npt.NDArray[np.uint64] | None = None
        self.counts: npt.NDArray[np.uint64] | None = None
        self.tables: bytes | None = None
        """JPEG tables that all strips or tiles have in common."""
        self.shaped: int | None = None
        """The number of samples by tifffile's description."""
        self.seen: set[int] = set()

    def take(self, code: int, kind: int, amount: int, value: bytes) -> bool:
        """Note an entry of the directory; return False if it is not an ordinary one."""
        if code in self.seen:
            return False
        self.seen.add(code)
        if code in NUMBERS:
            self.numbers[code] = self.form.number(value[:2] if kind == SHORT else value[:4])
            return amount == 1 and kind in (SHORT, LONG)
        length = TYPE_SIZES.get(kind, 0) * amount
        is_inline = length <= self.form.inline
        data = value[:length] if is_inline else self._read(self.form.number(value), length)
        if not data:
            return False
        if code in LISTS:
            return self._take_list(code, kind, data)
        if code in OFFSETS or code in COUNTS:
            return self._take_table(code, kind, data)
        if code == JPEG_TABLES:
            self.tables = data
        is_tables = code == JPEG_TABLES and kind == UNDEFINED
        return is_tables or code in OTHERS or (kind == ASCII and self._take_text(code, data))

    def _take_list(self, code: int, kind: int, data: bytes) -> bool:
        if kind != SHORT or len(data) > 2 * MOST_VALUES:
            return False
        self.lists[code] = struct.unpack(f"{self.form.order}{len(data) // 2}H", data)
        return True

    def _take_text(self, code: int, data: bytes) -> bool:
        if code != DESCRIPTION:
            return code == SOFTWARE and data.startswith(WRITERS)
        found = SHAPED.fullmatch(data)
        if found is not None:
            self.shaped = math.prod(map(int, found[1].split(b",")))
        return found is not None

    def _take_table(self, code: int, kind: int, data: bytes) -> bool:
        width = {SHORT: "u2", LONG: "u4", LONG8: "u8"}.get(kind)
        if width is None or (kind == LONG8 and not self.form.is_big):
            return False
        table = np.frombuffer(data, f"{self.form.order}{width}").astype(np.uint64)
        if code in OFFSETS:
            self.offsets = table
        else:
            self.counts = table
        return True

    def pattern(self) -> "_Pattern | None":
        """Return the pattern of the array; None if it is not a plain one."""
        numbers, seen = self.numbers, self.seen
        is_tiled = 322 in seen
        wanted, unwanted = (TILED, STRIPPED) if is_tiled else (STRIPPED, TILED)
        if not wanted <= seen or seen & unwanted or not seen >= {256, 257, 259, 262}:
            return None
        bands = numbers.get(277, 1)
        bits, kinds = self.lists.get(258, (1,)), self.lists.get(339, (1,))
        if (
            numbers.get(254, 0) != 0
            or not 0 < bands <= MOST_VALUES
            or len(set(bits)) > 1
            or len(set(kinds)) > 1
            or len(bits) not in (1, bands)
            or len(kinds) not in (1, bands)
        ):
            return None
        width, height = numbers[256], numbers[257]
        stated = _Stated(
            is_big=self.form.order == ">",
            is_tiled=is_tiled,
            width=width,
            height=height,
            bands=bands,
            planar=numbers.get(284, 1),
            chunk_width=numbers[322] if is_tiled else width,
            chunk_height=numbers[323] if is_tiled else min(numbers.get(278, height), height),
            compression=numbers[259],
            bits=bits[0],
            sample_format=kinds[0],
            predictor=numbers.get(317, 1),
            photometric=numbers[262],
            tables=self.tables,
            is_subsampled=self.lists.get(530, (1, 1)) != (1, 1),
        )
        found = _pattern(stated)
        if found is None or self.shaped not in (None, math.prod(found.shape)):
            return None
        return found


TILED, STRIPPED = {322, 323, 324, 325}, {273, 279}


class _Pattern(NamedTuple):
    """What files have in common that differ only in where their strips or tiles are."""

    stored: Layout
    """Layout of the stored strips or tiles."""
    axes: Arrangement
    """Axes of the chunks, into which contiguous strips are divided."""
    shape: Shape
    chunk_shape: Shape
    names: tuple[str, ...]
    data_type: str
    codecs: tuple[Json, ...]
    lengths: npt.NDArray[np.uint64] | None
    """The lengths that stored strips or tiles must have, if they are uncompressed."""


class _Stated(NamedTuple):
    """What the tags of a page state about its layout."""

    is_big: bool
    is_tiled: bool
    width: int
    height: int
    bands: int
    planar: int
    chunk_width: int
    chunk_height: int
    compression: int
    bits: int
    sample_format: int
    predictor: int
    photometric: int
    tables: bytes | None
    is_subsampled: bool

    def is_plain(self) -> bool:
        """Return whether the general parser is not needed to make sense of these values."""
        if self.compression in WHOLE:
            return self.is_picture()
        predictors = (1,) if self.compression == NONE else (1, 2, 3)
        return (
            min(self.width, self.height, self.chunk_width, self.chunk_height) > 0
            and (self.compression in COMPRESSIONS or self.is_fax())
            and self.photometric <= PALETTE
            and not self.is_subsampled
            and (self.photometric != RGB or self.bands >= 3)
            and self.planar in (1, 2)
            and self.predictor in predictors
            and (self.bits in BITS.get(self.sample_format, ()) or self.is_fax())
            # tifffile takes a column of uncompressed tiles for contiguous rows
            and not (self.is_tiled and self.compression == NONE and self.chunk_width == self.width)
        )

    def is_picture(self) -> bool:
        """Return whether this is a page of pictures, in the usual colours."""
        is_ycbcr = self.photometric == YCBCR
        return (
            min(self.width, self.height, self.chunk_width, self.chunk_height) > 0
            and self.bits in WHOLE[self.compression].get(self.sample_format, ())
            and self.predictor == 1
            and (self.photometric <= RGB or (is_ycbcr and self.compression == JPEG))
            and (self.photometric < RGB or (self.bands, self.planar) == (3, 1))
            and self.planar in (1, 2)
            and (is_ycbcr or not self.is_subsampled)
        )

    def is_fax(self) -> bool:
        """Return whether this is a page of Group 4 facsimile."""
        return (
            self.compression == CCITT_T6
            and (self.bits, self.bands, self.sample_format, self.predictor) == (1, 1, 1, 1)
            and self.photometric < RGB
        )

    def layout(self) -> Layout:
        """Return the layout of the page."""
        return Layout(
            where="",
            width=self.width,
            height=self.height,
            depth=1,
            bands=self.bands,
            is_tiled=self.is_tiled,
            is_planar=self.planar == 2 and self.bands > 1,
            chunk_width=self.chunk_width,
            chunk_height=self.chunk_height,
            chunk_depth=1,
            compression=self.compression,
            bits=self.bits,
            sample_format=self.sample_format,
            predictor=self.predictor,
            photometric=self.photometric,
            fill_order=1,
            is_big=self.is_big,
            configuration=self._configuration(),
        )

    def _configuration(self) -> tuple[tuple[str, str], ...]:
        if self.compression != JPEG or not self.tables:
            return ()
        return (("jpeg_tables", base64.b64encode(self.tables).decode()),)


@lru_cache(maxsize=256)
def _pattern(stated: _Stated) -> _Pattern | None:
    """Return the pattern of files with these values; None if they are not plain."""
    if not stated.is_plain():
        return None
    try:
        stored = layout = stated.layout()
        if math.prod(layout.file_grid) > MANY or piece_rows(layout) is not None:
            return None
        lengths = None
        if layout.compression == NONE:
            lengths = chunk_lengths(layout).reshape(-1)
            if not layout.is_tiled:
                rows = whole_rows(layout.height, layout.row_bytes) or layout.height
                layout = replace(layout, chunk_height=rows)
        axes = arrangement((), (), layout)
        codecs = array_codecs(axes)
    except AnychunkError:
        return None
    return _Pattern(
        stored, axes, axes.shape, axes.chunk_shape, axes.names, layout.dtype.name, codecs, lengths
    )


def _tables(
    values: _Values, pattern: _Pattern, size: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]] | None:
    """Return offsets and lengths of the chunks; None unless all strips or tiles are sound."""
    offsets, counts, layout = values.offsets, values.counts, pattern.axes.layout
    stored = math.prod(pattern.stored.file_grid)
    bounds = limits.get()
    chunk = math.prod(pattern.chunk_shape) * layout.dtype.itemsize
    if (
        offsets is None
        or counts is None
        or not len(offsets) == len(counts) == stored
        or stored > bounds.chunks
        or chunk > min(bounds.free_bytes, bounds.chunk_bytes)
        or int(offsets.min()) < 8
        or not counts.min()
        or int(offsets.max()) > size
        or (counts > size - offsets).any()
    ):
        return None
    if pattern.lengths is not None:
        if (counts != pattern.lengths).any():
            return None
        if not layout.is_tiled:
            if (offsets[1:] != offsets[:-1] + counts[:-1]).any():
                return None
            length = layout.row_bytes * layout.chunk_height
            count = math.prod(layout.file_grid)
            offsets = np.arange(count, dtype=np.uint64) * np.uint64(length) + offsets[0]
            counts = np.full(count, length, np.uint64)
    grid, table = (1, *layout.file_grid), pattern.axes.table
    return table(offsets.reshape(grid), ()), table(counts.reshape(grid), ())
