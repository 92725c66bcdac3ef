"""Stack arrays of several files on a new first axis.

A chunk of the result is a chunk of one file with an axis of length 1 in front, so its bytes are
unchanged. The new axis is added to everything that describes the chunk's axes: the codecs, the
headers of cropped chunks, and OME metadata.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from zarr.abc.codec import BytesBytesCodec

from anychunk import codecs as registry
from anychunk.combine.chunk_tables import join_tables
from anychunk.combine.compatibility import check_compatible
from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata.ome import Axis
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json


def stack(path: str, arrays: Mapping[str, ArrayIndex], axis_name: str) -> ArrayIndex:
    """Return arrays, one per file, stacked on a new first axis of chunk length 1.

    Raises:
        FormatError: If the arrays do not fit, or already have an axis of this name.
        UnsupportedError: If a codec cannot decode chunks with one more axis.
    """
    codecs = check_compatible(path, arrays)
    first = next(iter(arrays.values()))
    if axis_name in first.dimension_names:
        raise FormatError(
            f"combine: {path} already has an axis {axis_name!r}; choose another name with along="
        )
    count = math.prod(first.grid)
    grid = (len(arrays), *first.grid)
    owners = np.repeat(np.arange(len(arrays)), count).reshape(grid)
    numbers = np.tile(np.arange(count), len(arrays)).reshape(grid)
    tables = [_with_axis_in_fronts(array, path) for array in arrays.values()]
    return replace(
        first,
        shape=(len(arrays), *first.shape),
        chunk_shape=(1, *first.chunk_shape),
        codecs=_with_axis_in_codecs(codecs, path),
        dimension_names=(axis_name, *first.dimension_names),
        chunks=join_tables(tables, owners, numbers),
    )


def _with_axis_in_codecs(chain: Sequence[Json], path: str) -> tuple[Json, ...]:
    """Return the codecs for chunks that have one more axis in front, of length 1."""
    return tuple(_with_axis_in_codec(codec, path) for codec in chain)


def _with_axis_in_codec(codec: Json, path: str) -> Json:
    name = codec if isinstance(codec, str) else codec["name"]
    if name in ("bytes", "scale_offset", "cast_value"):
        return codec  # they work element by element
    if name == "transpose":
        order = [0, *(axis + 1 for axis in codec["configuration"]["order"])]
        return {"name": name, "configuration": {"order": order}}
    if name == "anychunk.window":
        inner = _with_axis_in_codecs(codec["configuration"]["codecs"], path)
        return {"name": name, "configuration": {"codecs": list(inner)}}
    data = {"name": codec} if isinstance(codec, str) else codec
    if isinstance(registry.from_json(data), BytesBytesCodec):
        return codec  # it does not see axes at all
    raise UnsupportedError(
        f"combine: {path}: codec {name!r} cannot decode chunks with an additional axis; "
        "use combine='concat' or 'group'"
    )


def _with_axis_in_fronts(array: ArrayIndex, path: str) -> ByteRanges:
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
    if "bytes" in names:
        return chunks  # the fronts are read by bytes-to-bytes codecs, which do not see axes
    if "anychunk.window" not in names or any(len(f) != 12 * ndim for f in chunks.fronts):
        raise UnsupportedError(
            f"combine: {path}: its chunks have headers that do not allow an additional axis; "
            "use combine='concat' or 'group'"
        )
    fronts = []
    for front in chunks.fronts:
        numbers = struct.unpack(f"<{3 * ndim}I", front)
        stored, start, shape = (numbers[i * ndim : (i + 1) * ndim] for i in range(3))
        fronts.append(struct.pack(f"<{3 * ndim + 3}I", 1, *stored, 0, *start, 1, *shape))
    return replace(chunks, fronts=tuple(fronts))


def with_ome_axis(group: GroupIndex, axis_name: str) -> GroupIndex:
    """Return the group with the new axis in every `ome.multiscales` of it and its subgroups."""
    members = {
        key: with_ome_axis(member, axis_name) if isinstance(member, GroupIndex) else member
        for key, member in group.members.items()
    }
    attributes = dict(group.attributes)
    images = (attributes.get("ome") or {}).get("multiscales")
    if images:
        changed = [_with_axis_in_multiscale(image, axis_name) for image in images]
        attributes["ome"] = {**attributes["ome"], "multiscales": changed}
    return GroupIndex(members=members, attributes=attributes)


def _with_axis_in_multiscale(image: dict[str, Json], axis_name: str) -> dict[str, Json]:
    def changed(step: dict[str, Json]) -> dict[str, Json]:
        kind = step.get("type")
        if kind not in ("scale", "translation"):
            return step
        return {**step, kind: [1.0 if kind == "scale" else 0.0, *step[kind]]}

    found = {**image, "axes": [Axis(name=axis_name).json(), *image.get("axes", [])]}
    found["datasets"] = [
        {**d, "coordinateTransformations": [changed(s) for s in d["coordinateTransformations"]]}
        for d in image.get("datasets", [])
    ]
    if "coordinateTransformations" in image:
        steps = image["coordinateTransformations"]
        found["coordinateTransformations"] = [changed(step) for step in steps]
    return found
