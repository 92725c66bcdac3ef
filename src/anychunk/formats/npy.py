"""NPY: one array, as `numpy.save` writes it; also compressed as a whole by gzip.

Spec:    numpy.lib.format, versions 1.0, 2.0 and 3.0.
Axes:    arrays of two or three axes are (y, x) or (z, y, x), others dim_0 … ; Fortran order by a
         `transpose` codec.
Opened:  every numeric, boolean and complex type, in either byte order; `.npy.gz`.
Refused: object arrays (a pickle, which may run code), structured, string and date types.
"""

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats import _gzip, _pieces, _raw
from anychunk.formats._two_steps import Plain, in_two_steps, quick_source
from anychunk.io.source import Source
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Level, Meaning
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json

EXTENSIONS = (".npy", ".npy.gz")
MAGIC = b"\x93NUMPY"
LOCAL_CHUNK, REMOTE_CHUNK = 32 * limits.MIB, 4 * limits.MIB
"""Desired length of a chunk. A local chunk is a slice of mapped memory, and only the selected part
is touched; a remote one is fetched whole."""

LARGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""The numpy kinds that Zarr supports, with their largest item size: Zarr has no long double."""

SHORT = 1024
"""The length of headers that are cached, at most."""
LONG = re.compile(r"(?<=\d)L(?=\s*[,)])")


@dataclass(frozen=True)
class Header:
    """The contents of an NPY header."""

    shape: Shape
    is_fortran: bool
    """Whether the first axis is the fastest."""
    dtype: np.dtype[Any]
    offset: int
    """Where the samples begin."""


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an NPY file."""
    return head.startswith(MAGIC) or _gzip.head_of(head, len(MAGIC)) == MAGIC


def parse(source: Source) -> GroupIndex:
    """Index an NPY file."""
    if source.read(0, min(2, source.size())).tobytes() == _gzip.MAGIC:
        return _compressed(source)
    start = source.read(0, min(12, source.size())).tobytes()
    length = header_length(start, source.url)
    limits.check_header(length, where=source.url)
    header = read_header(source.read(0, length).tobytes(), source.url)
    _raw.check_extent(
        header.shape,
        header.dtype.itemsize,
        offset=header.offset,
        size=source.size(),
        where=source.url,
    )
    chunk_bytes = LOCAL_CHUNK if source.is_local else REMOTE_CHUNK
    raw = raw_chunks(header, url=source.url, chunk_bytes=chunk_bytes)
    file = quick_source(source)
    if file is None or not header.shape or raw.chunks.offsets.size != 1:
        return _group(header, array_index(header, raw))
    plain = Plain(_fields(header, raw), {})
    return in_two_steps(file, plain, lambda _: _group(header, array_index(header, raw)))


def _group(header: Header, array: ArrayIndex) -> GroupIndex:
    native = {"npy": {"descr": header.dtype.str, "fortran_order": header.is_fortran}}
    meaning = Meaning(axes=tuple(Axis(name=n or "") for n in array.dimension_names), native=native)
    return root_group({"0": image_group(meaning, [Level(name="0", image=array)])})


def _compressed(source: Source) -> GroupIndex:
    """Index an NPY file that is compressed by gzip."""
    length = header_length(_gzip.read_head(source, 12), source.url)
    limits.check_header(length, where=source.url)
    header = read_header(_gzip.read_head(source, length), source.url)
    # the extent cannot be checked without decoding; the shape must be plausible all the same
    _raw.check_extent(
        header.shape,
        header.dtype.itemsize,
        offset=0,
        size=_raw.MOST_BYTES,
        where=source.url,
    )
    raw = _pieces.compressed(
        header.shape,
        header.dtype.itemsize,
        endian="big" if header.dtype.byteorder == ">" else "little",
        url=source.url,
        length=source.size(),
        skip=header.offset,
        is_fortran=header.is_fortran,
    )
    return _group(header, array_index(header, raw))


def header_length(start: bytes, url: str) -> int:
    """Return where the samples begin, from the first twelve bytes."""
    if not start.startswith(MAGIC) or len(start) < 12:
        raise FormatError(f"{url}: the NPY header ends after {len(start)} bytes")
    major, minor = start[6], start[7]
    if (major, minor) not in ((1, 0), (2, 0), (3, 0)):
        raise UnsupportedError(
            f"{url}: NPY version {major}.{minor} is not supported; supported: 1.0 2.0 3.0"
        )
    # version 1.0 has a 16-bit length; 2.0 widened it for structured types with many fields
    if major == 1:
        return 10 + int.from_bytes(start[8:10], "little")
    return 12 + int.from_bytes(start[8:12], "little")


def read_header(data: bytes, url: str) -> Header:
    """Parse the Python dictionary that describes the array."""
    text = data[10:].decode("latin1") if data[6] == 1 else data[12:].decode("utf-8", "replace")
    # Python 2 wrote large sizes as `3L`
    text = LONG.sub("", text)
    try:
        # str.strip() alone would take control characters, which are samples, for blanks
        text = text.strip(" \t\r\n\f")
        fields = _evaluated(text) if len(text) <= SHORT else ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as e:
        raise FormatError(f"{url}: the NPY header is not a Python dictionary") from e
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise FormatError(f"{url}: the NPY header must have descr, fortran_order and shape only")
    shape, is_fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise FormatError(
            f"{url}: shape is {shape!r:.100}, expected a tuple of non-negative integers"
        )
    if not isinstance(is_fortran, bool):
        raise FormatError(f"{url}: fortran_order is {is_fortran!r:.100}, expected True or False")
    return Header(shape, is_fortran, _dtype(fields["descr"], url), len(data))


@lru_cache(maxsize=64)
def _evaluated(text: str) -> Any:
    """Evaluate a short header; cached, because files of a set often have the same."""
    return ast.literal_eval(text)


def _dtype(descr: Json, url: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) else None
    except (TypeError, ValueError, SyntaxError) as e:
        raise FormatError(f"{url}: descr {descr!r:.100} is not a numpy data type") from e
    if dtype is None or dtype.itemsize > LARGEST.get(dtype.kind, 0):
        raise UnsupportedError(
            f"{url}: descr {descr!r:.100} is not supported; "
            "supported: bool, int, uint, float, complex"
        )
    return dtype


def axis_names(ndim: int) -> tuple[str, ...]:
    """Return the names of the axes: by their position from the end, if they may be space."""
    if 2 <= ndim <= 3:
        return ("z", "y", "x")[-ndim:]
    return tuple(f"dim_{i}" for i in range(ndim))


def raw_chunks(header: Header, *, url: str, chunk_bytes: int) -> _raw.RawChunks:
    """Return the chunks that an array is cut into."""
    dtype = header.dtype
    return _raw.cut(
        header.shape,
        dtype.itemsize,
        endian="big" if dtype.byteorder == ">" else "little",
        url=url,
        offset=header.offset,
        chunk_bytes=chunk_bytes,
        is_fortran=header.is_fortran,
    )


def array_index(header: Header, raw: _raw.RawChunks) -> ArrayIndex:
    return ArrayIndex(**_fields(header, raw))


def _fields(header: Header, raw: _raw.RawChunks) -> dict[str, Any]:
    return {
        "shape": header.shape,
        "chunk_shape": raw.chunk_shape,
        "data_type": header.dtype.name,
        "codecs": raw.codecs,
        "chunks": raw.chunks,
        "dimension_names": axis_names(len(header.shape)),
    }
