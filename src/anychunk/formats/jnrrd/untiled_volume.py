"""Volumes without tiles: samples cut along the slowest axes, raw or gzip or bzip2 streams.

Other encodings, and short streams, are one chunk.

Spec: JNRRD 1.0.0 sections 3.5, 3.6 and 6; NRRD format, "Data file" and "line skip".
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.leading_streams import TAILED
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from anychunk.formats import _pieces, _raw
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.volume import Volume, bytes_codec, compressor, fill_json
from anychunk.io.opening import open_source
from anychunk.io.source import Source
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Json
from anychunk.model.pin import Pin

CHUNK_BYTES = 4 * limits.MIB
"""Desired length of a chunk of raw samples."""
MOST_FILES = 1 << 20
"""Maximum number of data files that a pattern may name."""
MOST_OPENED = 512
"""Maximum number of data files that are opened while the file is indexed."""
NUMBER = re.compile(r"%(0?)(\d{0,2})d")


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the samples are, and what precedes them."""

    urls: tuple[str, ...]
    """The data files; the file itself if the header is attached."""
    is_attached: bool
    """Whether the samples follow the header in the same file."""
    start: int
    """Where the header ends, if it is attached."""
    line_skip: int
    """How many lines precede the samples."""
    byte_skip: int
    """How many bytes precede the samples, after decompression; -1: they are at the end."""
    roots: tuple[str, ...] = ()
    """The local folders that data files may be in."""


def read_data(fields: Mapping[str, Json], url: str, end: int, references: References) -> Data:
    """Read the fields that locate the samples."""
    names = data_names(fields, url)
    return Data(
        urls=(url,) if names is None else tuple(references.url(name) for name in names),
        is_attached=names is None,
        start=end if names is None else 0,
        line_skip=_skip(fields, "line_skip", 0, url),
        byte_skip=_skip(fields, "byte_skip", -1, url),
        roots=() if names is None else references.roots,
    )


def _skip(fields: Mapping[str, Json], key: str, least: int, url: str) -> int:
    value = fields.get(key)
    if value is None:
        return 0
    if type(value) is not int or not least <= value < 1 << 62:
        raise FormatError(f"{url}: {key} is {str(value)[:40]}, expected an integer >= {least}")
    return value


def data_names(fields: Mapping[str, Json], url: str) -> list[str] | None:
    """Return the names of the data files; None if the samples follow the header."""
    given = [k for k in ("data_file", "data_files", "data_file_pattern") if fields.get(k)]
    if len(given) > 1:
        raise FormatError(f"{url}: {given[0]} and {given[1]} are both given, expected one")
    if not given:
        return None
    value = fields[given[0]]
    if given[0] == "data_file_pattern":
        return expand_pattern(value, url)
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{url}: {given[0]} is {str(value)[:60]}, expected file names")
    return names


def expand_pattern(value: Json, url: str) -> list[str]:
    """Return the names that {"format": "slice%03d.raw", "min": 1, "max": 100, "step": 1} lists."""
    if isinstance(value, str):
        value = _pattern_of_text(value)
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise FormatError(
            f"{url}: data_file_pattern is {str(value)[:60]}, expected an object with a format"
        )
    text = value["format"]
    low: Json = value.get("min")
    high: Json = value.get("max")
    step = value.get("step", 1)
    if not all(type(n) is int for n in (low, high, step)) or step == 0:
        raise FormatError(
            f"{url}: data_file_pattern has min {low}, max {high} and step {step}, "
            "expected integers, step not 0"
        )
    numbers = range(low, high + (1 if step > 0 else -1), step)
    found = NUMBER.findall(text)
    if len(found) != 1 or text.count("%") != 1:
        # other conversions of printf have no meaning for a number of a file
        raise FormatError(
            f"{url}: data_file_pattern {text!r}, expected exactly one %d, as in slice%03d.raw"
        )
    if not 0 < len(numbers) <= MOST_FILES:
        raise FormatError(
            f"{url}: data_file_pattern {text!r} lists {len(numbers)} files, "
            f"expected 1 to {MOST_FILES}"
        )
    zero, width = found[0]
    pad = "0" if zero else " "
    return [NUMBER.sub(str(n).rjust(int(width or 0), pad), text) for n in numbers]


def _pattern_of_text(text: str) -> Json:
    """Parse NRRD's notation, `format min max step [subdim]`; None if it is not one."""
    parts = text.split()
    if len(parts) not in (3, 4, 5) or not all(re.fullmatch(r"-?\d{1,9}", p) for p in parts[1:]):
        return None
    numbers = [int(p) for p in parts[1:]]
    return {
        "format": parts[0],
        "min": numbers[0],
        "max": numbers[1],
        "step": numbers[2] if len(numbers) > 2 else 1,
    }


def array_index(volume: Volume, data: Data, source: Source) -> tuple[ArrayIndex, dict[str, Pin]]:
    """Return the index of the samples, and the pins of data files that were opened for it."""
    shape = (*volume.sizes[::-1], *volume.trailing)
    pins: dict[str, Pin] = {}
    if len(data.urls) > 1:
        chunk, codecs, chunks = several_files(volume, data, shape, source, pins)
    elif volume.encoding == "raw":
        chunk, codecs, chunks = raw_file(volume, data, shape, _open(data, 0, source, pins))
    else:
        chunk, codecs, chunks = whole_stream(volume, data, shape, _open(data, 0, source, pins))
    array = ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=volume.data_type,
        codecs=codecs,
        chunks=chunks,
        fill_value=fill_json(0, volume.dtype),
        dimension_names=(None,) * len(shape),
    )
    return array, pins


def _open(data: Data, number: int, source: Source, pins: dict[str, Pin]) -> Source:
    if data.is_attached:
        return source
    opened = open_source(data.urls[number], storage=source.storage, roots=data.roots)
    pins[opened.url] = opened.pin()
    return opened


def data_start(data: Data, opened: Source, nbytes: int | None) -> int:
    """Return the offset of the samples, or of the stream that contains them, in a data file.

    Parameters:
        data: The location of the samples.
        opened: The data file.
        nbytes: The length of raw samples. None if they are encoded: `byte_skip` then counts decoded
            bytes, which the codec skips.
    """
    size = opened.size()
    if data.byte_skip < 0:
        if nbytes is not None and nbytes > size - data.start:
            raise TruncatedError(f"{opened.url}: {size} bytes, expected {nbytes} at its end")
        if nbytes is not None:
            return size - nbytes
    start = skip_lines(opened, data.start, data.line_skip)
    return start + (0 if nbytes is None else data.byte_skip)


def skip_lines(opened: Source, start: int, lines: int) -> int:
    """Return the offset of the line that follows `lines` lines from `start`."""
    size = opened.size()
    step = 64 * limits.KIB
    while lines:
        if start >= size:
            raise TruncatedError(f"{opened.url}: line_skip exceeds the number of lines by {lines}")
        block = opened.read(start, min(step, size - start))
        ends = np.flatnonzero(block == 10)[:lines]
        lines -= len(ends)
        start += int(ends[-1]) + 1 if len(ends) and not lines else len(block)
    return start


def raw_file(
    volume: Volume, data: Data, shape: Shape, opened: Source
) -> tuple[Shape, tuple[Json, ...], ByteRanges]:
    """Cut raw samples into chunks, without copying them."""
    start = data_start(data, opened, volume.nbytes)
    itemsize = volume.dtype.itemsize
    _raw.check_extent(shape, itemsize, offset=start, size=opened.size(), where=opened.url)
    raw = _raw.cut(
        shape,
        itemsize,
        endian=volume.endian,
        url=opened.url,
        offset=start,
        chunk_bytes=CHUNK_BYTES,
    )
    return raw.chunk_shape, raw.codecs, raw.chunks


def whole_stream(
    volume: Volume, data: Data, shape: Shape, opened: Source
) -> tuple[Shape, tuple[Json, ...], ByteRanges]:
    """Return an encoded volume: pieces of a long stream, or one chunk."""
    start = data_start(data, opened, None)
    length = opened.size() - start
    if length <= 0:
        raise TruncatedError(
            f"{opened.url}: {opened.size()} bytes, expected samples from byte {start} on"
        )
    if volume.encoding in TAILED:
        limits.check_stream(volume.nbytes, where=opened.url, stored=length)
    pieces = _cut(volume, shape, data.byte_skip)
    if pieces is not None:
        grid = pieces.front_ids.shape
        chunks = ByteRanges(
            offsets=np.full(grid, start, np.uint64),
            lengths=np.full(grid, length, np.uint64),
            urls=(opened.url,),
            fronts=pieces.fronts,
            front_ids=pieces.front_ids,
        )
        return pieces.chunk_shape, (bytes_codec(volume), _pieces.codec(volume.encoding)), chunks
    limits.check_chunk(volume.nbytes, where=opened.url, stored=length)
    one = (1,) * len(shape)
    chunks = ByteRanges(
        offsets=np.full(one, start, np.uint64),
        lengths=np.full(one, length, np.uint64),
        urls=(opened.url,),
    )
    return shape, stream_codecs(volume, data.byte_skip, opened.url), chunks


def _cut(
    volume: Volume, shape: Shape, skip: int, *, is_even: bool = False
) -> _pieces.StreamChunks | None:
    """Cut a stream into pieces; None if it must be read as a whole."""
    if volume.encoding not in TAILED or skip < 0:
        return None
    is_bzip2 = volume.encoding == "bzip2"
    return _pieces.cut(shape, volume.dtype.itemsize, skip=skip, is_even=is_even, is_bzip2=is_bzip2)


def stream_codecs(volume: Volume, skip: int, url: str) -> tuple[Json, ...]:
    """Return the codecs of a stream whose first `skip` decoded bytes are not samples."""
    if volume.encoding in ("ascii", "hex"):
        if skip:
            raise UnsupportedError(
                f"{url}: byte_skip {skip} with encoding {volume.encoding} is not supported; "
                "supported: byte_skip 0"
            )
        configuration = {"style": volume.encoding, "endian": volume.endian}
        return ({"name": "anychunk.text", "configuration": configuration},)
    if skip < 0 and volume.encoding not in TAILED:
        raise UnsupportedError(
            f"{url}: byte_skip -1 with encoding {volume.encoding} is not supported; supported: raw "
            f"{' '.join(TAILED)}"
        )
    return (
        bytes_codec(volume),
        *compressor(volume.encoding, is_exact=not skip, skip=skip),
    )


def several_files(
    volume: Volume, data: Data, shape: Shape, source: Source, pins: dict[str, Pin]
) -> tuple[Shape, tuple[Json, ...], ByteRanges]:
    """Return each data file as one chunk, or as several: files divide the slowest axes evenly.

    Files are opened only if that is necessary to find where their samples begin: there may be a
    million files.
    """
    chunk = slab(shape, len(data.urls), len(volume.trailing), source.url)
    nbytes = math.prod(chunk) * volume.dtype.itemsize
    pieces = _cut(volume, chunk, data.byte_skip, is_even=True)
    if pieces is None:
        limits.check_chunk(nbytes, where=source.url)
    grid = grid_shape(shape, chunk)
    ids = np.arange(len(data.urls), dtype=np.uint32).reshape(grid)
    if not data.line_skip and data.byte_skip >= 0:
        offsets, lengths = np.zeros(grid, np.uint64), np.full(grid, WHOLE, np.uint64)
        codecs: tuple[Json, ...] = (
            stream_codecs(volume, 0, source.url)
            if volume.encoding in ("ascii", "hex")
            else (
                bytes_codec(volume),
                *compressor(volume.encoding, is_exact=False, skip=data.byte_skip),
            )
        )
        table = ByteRanges(offsets=offsets, lengths=lengths, urls=data.urls, url_ids=ids)
        return _divided(volume, chunk, codecs, table, pieces)
    if len(data.urls) > MOST_OPENED:
        raise UnsupportedError(
            f"{source.url}: line_skip or byte_skip -1 is not supported for {len(data.urls)} data "
            f"files; supported: up to {MOST_OPENED}"
        )
    is_raw = volume.encoding == "raw"
    starts, ends = [], []
    for number in range(len(data.urls)):
        opened = _open(data, number, source, pins)
        starts.append(data_start(data, opened, nbytes if is_raw else None))
        ends.append(starts[-1] + nbytes if is_raw else opened.size())
        if ends[-1] > opened.size() or starts[-1] >= ends[-1]:
            raise TruncatedError(
                f"{opened.url}: {opened.size()} bytes, expected at least {ends[-1]}"
            )
    offsets = np.array(starts, np.uint64).reshape(grid)
    lengths = np.array(ends, np.uint64).reshape(grid) - offsets
    codecs = (bytes_codec(volume),) if is_raw else stream_codecs(volume, data.byte_skip, source.url)
    table = ByteRanges(offsets=offsets, lengths=lengths, urls=data.urls, url_ids=ids)
    return _divided(volume, chunk, codecs, table, pieces)


def _divided(
    volume: Volume,
    slab: Shape,
    codecs: tuple[Json, ...],
    table: ByteRanges,
    pieces: _pieces.StreamChunks | None,
) -> tuple[Shape, tuple[Json, ...], ByteRanges]:
    """Divide the chunks of a table, one per file, into pieces."""
    if pieces is None:
        return slab, codecs, table
    inner = pieces.front_ids.shape

    def spread[T: np.generic](column: npt.NDArray[T]) -> npt.NDArray[T]:
        for axis, count in enumerate(inner):
            column = np.repeat(column, count, axis)
        return column

    chunks = ByteRanges(
        offsets=spread(table.offsets),
        lengths=spread(table.lengths),
        urls=table.urls,
        url_ids=None if table.url_ids is None else spread(table.url_ids),
        fronts=pieces.fronts,
        front_ids=np.tile(pieces.front_ids, table.grid),
    )
    return pieces.chunk_shape, (bytes_codec(volume), _pieces.codec(volume.encoding)), chunks


def slab(shape: Shape, files: int, trailing: int, url: str) -> Shape:
    """Return the shape of the part of the volume that each of `files` data files holds."""
    chunk, left = list(shape), files
    for axis, size in enumerate(shape[: len(shape) - trailing]):
        if left == 1:
            break
        if size % left == 0:
            chunk[axis], left = size // left, 1
        elif left % size == 0:
            chunk[axis], left = 1, left // size
        else:
            break
    if left != 1:
        sizes = list(shape[: len(shape) - trailing][::-1])
        raise FormatError(f"{url}: {files} data files do not divide sizes {sizes} evenly")

    return tuple(chunk)
