"""NPY: one array, as `numpy.save` writes it.

Spec:    numpy.lib.format, versions 1.0, 2.0 and 3.0.
Axes:    as in the file, named dim_0 … ; Fortran order by a `transpose` codec.
Opened:  every numeric, boolean and complex type, in either byte order.
Refused: object arrays (a pickle, which may run code), structured, string and date types.
"""

import ast
import math
import re
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.codecs.window import Window
from anychunk.codecs.window import front as window_front
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from anychunk.io import Source
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json

MAGIC = b"\x93NUMPY"
LOCAL_CHUNK, REMOTE_CHUNK = 32 * limits.MIB, 4 * limits.MIB
"""About how long a chunk is made, for a file has none of its own. A local chunk is a slice of
memory, of which only the selection is touched; a remote one is fetched whole."""

LARGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""The kinds that Zarr has, with their largest size: long doubles have none there."""

LONG = re.compile(r"(?<=\d)L(?=\s*[,)])")

type Header = tuple[Shape, bool, np.dtype[Any], int]
"""Shape, whether in Fortran order, type, where the data begins."""


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def parse(source: Source) -> GroupIndex:
    start = source.read(0, min(12, source.size())).tobytes()
    length = header_length(start, source.url)
    limits.check_header(length, where=source.url)
    shape, is_fortran, dtype, offset = read_header(source.read(0, length).tobytes(), source.url)
    needed = offset + math.prod(shape) * dtype.itemsize
    if needed > source.size():
        raise TruncatedError(
            f"{source.url}: shape {shape} of {dtype} needs {needed} bytes, "
            f"the file has {source.size()}"
        )
    most = LOCAL_CHUNK if source.is_local else REMOTE_CHUNK
    array = array_index(shape, is_fortran, dtype, offset, url=source.url, chunk_bytes=most)
    return GroupIndex(members={"0": GroupIndex(members={"0": array})})


def header_length(start: bytes, url: str) -> int:
    """Give where the data begins from the first twelve bytes."""
    if not start.startswith(MAGIC) or len(start) < 12:
        raise FormatError(f"{url}: the NPY header ends after {len(start)} bytes")
    major, minor = start[6], start[7]
    if (major, minor) not in ((1, 0), (2, 0), (3, 0)):
        raise UnsupportedError(f"{url}: NPY version {major}.{minor}; opened: 1.0 2.0 3.0")
    if major == 1:
        return 10 + int.from_bytes(start[8:10], "little")
    return 12 + int.from_bytes(start[8:12], "little")


def read_header(data: bytes, url: str) -> Header:
    """Parse the dictionary that describes the array."""
    text = data[10:].decode("latin1") if data[6] == 1 else data[12:].decode("utf-8", "replace")
    # Python 2 wrote sizes as `3L` where its own integers were too short for them
    text = LONG.sub("", text)
    try:
        fields = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as e:
        raise FormatError(f"{url}: the NPY header is no Python dictionary ({e})") from e
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise FormatError(f"{url}: the NPY header lacks descr, fortran_order or shape")
    shape, is_fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise FormatError(f"{url}: the NPY shape {shape!r} is no tuple of sizes")
    if not isinstance(is_fortran, bool):
        raise FormatError(f"{url}: fortran_order is {is_fortran!r}, expected True or False")
    return shape, is_fortran, _dtype(fields["descr"], url), len(data)


def _dtype(descr: Json, url: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) else None
    except (TypeError, ValueError, SyntaxError) as e:
        raise FormatError(f"{url}: the NPY type {descr!r} is none that numpy knows") from e
    if dtype is None or dtype.itemsize > LARGEST.get(dtype.kind, 0):
        raise UnsupportedError(
            f"{url}: NPY type {descr!r}; opened: bool, int, uint, float, complex"
        )
    return dtype


def rows_per_chunk(rows: int, row_bytes: int, chunk_bytes: int) -> int:
    """Give about `chunk_bytes` of rows, preferably a divisor so that every chunk is full."""
    most = max(1, min(rows, chunk_bytes // max(row_bytes, 1)))
    even = next((n for n in range(most, most // 4, -1) if rows % n == 0), None)
    return even or most


def array_index(
    shape: Shape,
    is_fortran: bool,
    dtype: np.dtype[Any],
    offset: int,
    *,
    url: str,
    chunk_bytes: int,
) -> ArrayIndex:
    """Cut the array along its slowest axis into chunks."""
    stored = shape[::-1] if is_fortran else shape
    row_bytes = math.prod(stored[1:]) * dtype.itemsize
    rows = rows_per_chunk(stored[0], row_bytes, chunk_bytes) if stored else 1
    chunk = (rows, *(max(n, 1) for n in stored[1:]))[: len(stored)]
    grid = grid_shape(stored, chunk)
    count = math.prod(grid)
    offsets = offset + np.arange(count, dtype=np.uint64) * np.uint64(rows * row_bytes)
    lengths = np.full(count, (rows if stored else 1) * row_bytes, np.uint64)
    codecs: tuple[Json, ...] = ({"name": "bytes", "configuration": {"endian": _endian(dtype)}},)
    fronts: dict[str, Any] = {}
    if stored and stored[0] % rows:
        rest = (stored[0] % rows, *chunk[1:])
        lengths[-1] = rest[0] * row_bytes
        codecs = ({"name": Window.name, "configuration": {"codecs": codecs}},)
        front_ids = np.zeros(grid, np.uint8)
        front_ids.flat[-1] = 1
        fronts = {"fronts": (window_front(chunk), window_front(rest)), "front_ids": front_ids}
    if is_fortran:
        order = list(range(len(shape)))[::-1]
        codecs = ({"name": "transpose", "configuration": {"order": order}}, *codecs)
        chunk, grid = chunk[::-1], grid[::-1]
        fronts = {k: v.reshape(grid) if k == "front_ids" else v for k, v in fronts.items()}
    return ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=dtype.name,
        codecs=codecs,
        chunks=ByteRanges(
            offsets=offsets.reshape(grid), lengths=lengths.reshape(grid), urls=(url,), **fronts
        ),
        fill_value=False if dtype.kind == "b" else [0.0, 0.0] if dtype.kind == "c" else 0,
        dimension_names=tuple(f"dim_{i}" for i in range(len(shape))),
        attributes={"npy": {"descr": dtype.str, "fortran_order": is_fortran}},
    )


def _endian(dtype: np.dtype[Any]) -> str:
    return "big" if dtype.byteorder == ">" else "little"
