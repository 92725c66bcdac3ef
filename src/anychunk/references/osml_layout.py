"""Arrange an index for saving: as anychunk's, or as osml-imagery-io reads it.

osml-imagery-io has groups `0`, `1`, … with an array `data` each. The groups are the levels of one
image, listed in GeoZarr's `multiscales` of the root. It indexes one image per file; of a file with
several images, the groups are their full resolutions.

Codecs that it would misread are refused. Configuration keys that it does not know and that do not
change the pixels are left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from anychunk.codecs import URIS, from_json
from anychunk.codecs.dted import Dted
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.errors import UnsupportedError
from anychunk.io.source import Storage
from anychunk.model.images import Image, images
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find
from anychunk.references.osml_codecs import KNOWN, misread, nominal_tile, with_portable_codecs
from anychunk.references.tile_tables import saved_form

type Layout = Literal["anychunk", "osml"]

LEVELS = ("ome", "multiscales")
"""Attributes of image groups that describe levels by paths, which differ in this layout."""
MULTISCALES = "d35379db-88df-4056-af3a-620245f8e347"
"""UUID of GeoZarr's convention for levels."""


def arranged[N: Node](
    node: N, layout: Layout = "anychunk", *, zarr_format: int, storage: Storage | None
) -> N:
    """Return an index in a layout, with codecs that other software has wherever they mean the same.

    Parameters:
        node: The index.
        layout: Whose.
        zarr_format: The format of its metadata, 3 or 2.
        storage: Options for reading large JPEG 2000 tiles, whose packets are walked.
    """
    if layout not in ("anychunk", "osml"):
        raise ValueError(f"layout is {layout!r}, expected 'anychunk' or 'osml'")
    node = saved_form(node, storage, has_tables=layout != "osml")
    if layout == "osml":
        return cast("N", osml_layout(node, zarr_format))
    return with_portable_codecs(node, may_transpose=zarr_format == 3)


def osml_layout(node: Node, zarr_format: int) -> Node:
    """Return groups of the levels of an image, or of several images, each with an array `data`.

    Raises:
        UnsupportedError: If an image has no full resolution, or osml-imagery-io would misread it.
    """
    if not isinstance(node, GroupIndex):
        raise UnsupportedError("layout osml: the root is an array, expected a group of images")
    found: list[tuple[str, Node, Image, list[ArrayIndex]]] = []
    for name, image in node.members.items():
        levels = next(images(image), None)
        if levels is None:
            raise UnsupportedError(f"layout osml: image {name!r} has no array, its full resolution")
        planes = _planes(_array(image, levels.levels[0]), f"image {name!r}", zarr_format)
        found.append((name, image, levels, planes))
    members: dict[str, Node] = {}
    is_named = all(len(planes) == 1 for *_, planes in found)
    for name, image, levels, planes in found:
        if is_named and len(found) == 1:
            for number, path in enumerate(levels.levels):
                where = f"array {number}/data"
                members[str(number)] = _group(_array(image, path), where, zarr_format)
            attributes = _root_attributes(node, image, members)
            return GroupIndex(members=members, attributes=attributes, pins=node.pins)
        kept = _without_levels(image.attributes)
        for plane in planes:
            key = name if is_named else str(len(members))
            group = _group(plane, f"array {key}/data", zarr_format)
            members[key] = replace(group, attributes=kept)
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _planes(array: ArrayIndex, where: str, zarr_format: int) -> list[ArrayIndex]:
    """Return an array of more than (c, y, x) as its planes, where they could not decode chunks."""
    names = [_codec_name(codec) for codec in array.codecs]
    is_read = names[-1] not in KNOWN and (zarr_format == 3 or "transpose" not in names)
    kept = [i for i, name in enumerate(array.dimension_names) if name in ("c", "y", "x")]
    if len(array.shape) <= max(3, len(kept)) or is_read:
        return [array]
    further = [i for i in range(len(array.shape)) if i not in kept]
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or any(array.chunk_shape[i] != 1 for i in further):
        raise UnsupportedError(f"layout osml: {where} has chunks of several planes")
    numbers = np.moveaxis(
        np.arange(chunks.offsets.size).reshape(chunks.grid), further, range(len(further))
    )
    grid = numbers.shape[len(further) :]
    plane = replace(
        array,
        shape=tuple(array.shape[i] for i in kept),
        chunk_shape=tuple(array.chunk_shape[i] for i in kept),
        dimension_names=tuple(array.dimension_names[i] for i in kept),
        codecs=tuple(_with_axes(codec, kept) for codec in array.codecs),
        chunks=chunks.picked(numbers.reshape(-1, *grid)[0].ravel(), grid),
    )
    return [
        replace(plane, chunks=chunks.picked(these.ravel(), grid))
        for these in numbers.reshape(-1, *grid)
    ]


def _codec_name(codec: Json) -> Json:
    return codec.get("name") if isinstance(codec, dict) else codec


def _with_axes(codec: Json, kept: list[int]) -> Json:
    """Return a codec of an array of which only some axes are left."""
    if _codec_name(codec) != "transpose":
        return codec
    order = [kept.index(axis) for axis in codec["configuration"]["order"] if axis in kept]
    return {"name": "transpose", "configuration": {"order": order}}


def _without_levels(attributes: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in attributes.items() if key not in LEVELS}


def _array(image: Node, path: str) -> ArrayIndex:
    found = find(image, path)
    if not isinstance(found, ArrayIndex):
        raise UnsupportedError(f"layout osml: {path} is a group, expected an array")
    return found


def _group(array: ArrayIndex, where: str, zarr_format: int) -> GroupIndex:
    """Return the group of a level, with its array as `data`."""
    array = with_bands(_with_whole_cells(array, where))
    if zarr_format == 2:
        array = _with_nominal_chunks(array)
    codecs = tuple(_codec(codec, where) for codec in array.codecs)
    return GroupIndex(members={"data": replace(array, codecs=codecs)})


def _root_attributes(node: GroupIndex, image: Node, members: Mapping[str, Node]) -> dict[str, Json]:
    """Return the attributes of an image, with its levels as osml-imagery-io lists them."""
    attributes = _without_levels(node.attributes) | _without_levels(image.attributes)
    declared = attributes.get("zarr_conventions")
    conventions = list(declared) if isinstance(declared, list) else []
    if not any(isinstance(c, Mapping) and c.get("uuid") == MULTISCALES for c in conventions):
        conventions.append({"uuid": MULTISCALES, "name": "multiscales"})
    layout: list[Json] = []
    finer: tuple[int, ...] = ()
    for name, group in members.items():
        array = find(group, "data")
        assert isinstance(array, ArrayIndex)  # made by `_group`
        size = array.shape[-2:]
        # an axis without samples has no scale; 1 is what osml-imagery-io writes
        scale = [a / b if b else 1.0 for a, b in zip(finer or size, size, strict=True)]
        entry: dict[str, Json] = {"asset": name}
        if finer:
            entry["derived_from"] = str(int(name) - 1)
        layout.append({**entry, "transform": {"scale": scale, "translation": [0.0, 0.0]}})
        finer = size
    return {**attributes, "zarr_conventions": conventions, "multiscales": {"layout": layout}}


def _with_whole_cells(array: ArrayIndex, where: str) -> ArrayIndex:
    """Return the records of a DTED cell as one chunk: osml-imagery-io refuses shorter chunks."""
    chunks, codec = array.chunks, array.codecs[-1]
    is_dted = isinstance(codec, dict) and codec.get("name") == Dted.name
    if not is_dted or array.shape[-1] % array.chunk_shape[-1] == 0:
        return array
    if not isinstance(chunks, ByteRanges) or chunks.offsets.shape[:-1] != (1,):
        raise UnsupportedError(f"{where}: chunks of DTED with fewer records than others")
    offsets, lengths = chunks.offsets.ravel(), chunks.lengths.ravel()
    if (offsets[:-1] + lengths[:-1] != offsets[1:]).any():
        raise UnsupportedError(
            f"{where}: the records of the DTED cell do not follow each other; "
            'save with layout="anychunk"'
        )
    configuration = {**codec["configuration"], "num_lon_lines": array.shape[-1]}
    whole = replace(
        chunks, offsets=offsets[:1, None], lengths=lengths.sum(keepdims=True, dtype=np.uint64)[None]
    )
    return replace(
        array,
        chunk_shape=array.shape,
        codecs=(*array.codecs[:-1], {**codec, "configuration": configuration}),
        chunks=whole,
    )


def _with_nominal_chunks(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose chunk has the size of the JPEG 2000 tile, also of a larger one.

    osml-imagery-io pads what it decodes to the size of the tile: a filter of Zarr v2 is not told
    the shape of its chunk.
    """
    codec = array.codecs[-1]
    if not isinstance(codec, dict) or codec.get("name") != Jpeg2000.name:
        return array
    if (decoder := cast("Jpeg2000", from_json(codec))).main_header is None:
        return array  # refused below
    return replace(array, chunk_shape=nominal_tile(decoder))


def with_bands(array: ArrayIndex) -> ArrayIndex:
    """Return an array of (y, x) as (band, y, x), and c called band, as osml's arrays are."""
    names = tuple("band" if name == "c" else name for name in array.dimension_names)
    chunks = array.chunks
    if len(names) != 2 or not isinstance(chunks, ByteRanges) or any(chunks.fronts):
        return replace(array, dimension_names=names)
    tables = {
        key: table[None]
        for key in ("offsets", "lengths", "url_ids", "front_ids")
        if (table := getattr(chunks, key)) is not None
    }
    return replace(
        array,
        shape=(1, *array.shape),
        chunk_shape=(1, *array.chunk_shape),
        dimension_names=("band", *names),
        codecs=tuple(_with_band_axis(codec) for codec in array.codecs),
        chunks=replace(chunks, **tables),
    )


def _with_band_axis(codec: Json) -> Json:
    if not isinstance(codec, dict) or codec.get("name") != "transpose":
        return codec
    order = [0, *(axis + 1 for axis in codec["configuration"]["order"])]
    return {"name": "transpose", "configuration": {"order": order}}


def _codec(codec: Json, where: str) -> Json:
    """Return a codec without keys that osml-imagery-io does not know; refuse misread ones."""
    if problem := misread(codec):
        raise UnsupportedError(
            f"{where}: osml-imagery-io would decode wrong pixels: {problem}; "
            'save with layout="anychunk"'
        )
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    if known is None:
        return codec
    configuration = codec.get("configuration", {})
    kept = {k: v for k, v in configuration.items() if k in known}
    return {**codec, "name": URIS[codec["name"]], "configuration": kept}
