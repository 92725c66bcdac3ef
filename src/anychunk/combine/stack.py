"""Stack arrays of several files on a new axis.

A chunk of the result is a chunk of one file with a further axis of length 1, so its bytes are
unchanged. The new axis is added to everything that describes the chunk's axes: the codecs, and the
headers of cropped chunks.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from anychunk import codecs as registry
from anychunk.codecs.chain import BYTES_BYTES
from anychunk.codecs.choice import Choice
from anychunk.combine.chunk_tables import join_tables
from anychunk.combine.compatibility import check_compatible
from anychunk.errors import UnsupportedError
from anychunk.model.index import ArrayIndex, ByteRanges, Json


def stack(
    path: str, arrays: Mapping[str, ArrayIndex], axis_name: str, position: int = 0
) -> ArrayIndex:
    """Return arrays, one per file, stacked on a new axis of chunk length 1.

    Parameters:
        path: The path of the arrays inside their files, for messages.
        arrays: One array per file, by url.
        axis_name: The name of the new axis.
        position: Its number.

    Raises:
        FormatError: If the arrays do not fit.
        UnsupportedError: If a codec cannot decode chunks with one more axis.
    """
    codecs = check_compatible(path, arrays)
    first = next(iter(arrays.values()))
    count = math.prod(first.grid)
    grid = (len(arrays), *first.grid)
    owners = np.repeat(np.arange(len(arrays)), count).reshape(grid)
    numbers = np.tile(np.arange(count), len(arrays)).reshape(grid)
    tables = [_with_axis_in_fronts(array, position, path) for array in arrays.values()]
    owners, numbers = (np.moveaxis(table, 0, position) for table in (owners, numbers))
    return replace(
        first,
        shape=_inserted(first.shape, position, len(arrays)),
        chunk_shape=_inserted(first.chunk_shape, position, 1),
        codecs=_with_axis_in_codecs(codecs, position, path),
        dimension_names=_inserted(first.dimension_names, position, axis_name),
        chunks=join_tables(tables, owners, numbers),
    )


def _inserted[T](values: Sequence[T], position: int, value: T) -> tuple[T, ...]:
    return (*values[:position], value, *values[position:])


def _with_axis_in_codecs(chain: Sequence[Json], position: int, path: str) -> tuple[Json, ...]:
    """Return the codecs for chunks that have one more axis, of length 1."""
    return tuple(_with_axis_in_codec(codec, position, path) for codec in chain)


def _with_axis_in_codec(codec: Json, position: int, path: str) -> Json:
    name = codec if isinstance(codec, str) else codec["name"]
    if name in ("bytes", "scale_offset", "cast_value"):
        return codec  # they work element by element
    if name == "transpose":
        old = codec["configuration"]["order"]
        order = [position, *(axis + (axis >= position) for axis in old)]
        return {"name": name, "configuration": {"order": order}}
    if name == "anychunk.window":
        inner = _with_axis_in_codecs(codec["configuration"]["codecs"], position, path)
        return {"name": name, "configuration": {"codecs": list(inner)}}
    if name == Choice.name:
        choices = codec["configuration"]["choices"]
        longer = [list(_with_axis_in_codecs(chain, position, path)) for chain in choices]
        return {"name": name, "configuration": {"choices": longer}}
    data = {"name": codec} if isinstance(codec, str) else codec
    if isinstance(registry.from_json(data), BYTES_BYTES):
        return codec  # it does not see axes at all
    raise UnsupportedError(
        f"combine: {path}: codec {name!r} cannot decode chunks with an additional axis; "
        "use combine='concat' or 'group'"
    )


def _with_axis_in_fronts(array: ArrayIndex, position: int, path: str) -> ByteRanges:
    """Return the chunk table with one more axis in the headers of `anychunk.window`.

    Such a header is three rows of uint32, each as long as the chunk has axes: the stored shape,
    the start of the window in it, and the window's shape.
    """
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        raise TypeError(f"{path}: {type(chunks).__name__}")
    if not any(chunks.fronts):
        return chunks
    ndim = len(array.shape)
    names = [c if isinstance(c, str) else c["name"] for c in array.codecs]
    if "bytes" in names or Choice.name in names:
        return chunks  # the fronts are read by bytes-to-bytes codecs, which do not see axes
    if "anychunk.window" not in names or any(len(f) != 12 * ndim for f in chunks.fronts):
        raise UnsupportedError(
            f"combine: {path}: its chunks have headers that do not allow an additional axis; "
            "use combine='concat' or 'group'"
        )
    fronts = []
    for front in chunks.fronts:
        numbers = struct.unpack(f"<{3 * ndim}I", front)
        rows = [numbers[i * ndim : (i + 1) * ndim] for i in range(3)]
        longer = [_inserted(row, position, n) for row, n in zip(rows, (1, 0, 1), strict=True)]
        fronts.append(struct.pack(f"<{3 * ndim + 3}I", *(n for row in longer for n in row)))
    return replace(chunks, fronts=tuple(fronts))
