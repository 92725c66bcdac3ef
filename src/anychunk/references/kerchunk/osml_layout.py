"""Arrange an index as osml-imagery-io reads it: groups `0`, `1`, … with an array `data` each.

The groups are the levels of one image, listed in GeoZarr's `multiscales` of the root, as
osml-imagery-io writes them. It indexes one image per file; of a file with several images, the
groups are their full resolutions.

Codecs that it would misread are refused. Configuration keys that it does not know and that do not
change the pixels are left out.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anychunk.codecs import URIS
from anychunk.codecs.dted import Dted
from anychunk.errors import UnsupportedError
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find
from anychunk.references.osml_codecs import KNOWN, misread

LEVELS = ("ome", "multiscales")
"""Attributes of image groups that describe levels by paths, which differ in this layout."""
MULTISCALES = "d35379db-88df-4056-af3a-620245f8e347"
"""UUID of GeoZarr's convention for levels."""


def osml_layout(node: Node) -> Node:
    """Return groups of the levels of an image, or of several images, each with an array `data`.

    Raises:
        UnsupportedError: If an image has no full resolution, or osml-imagery-io would misread it.
    """
    if not isinstance(node, GroupIndex):
        raise UnsupportedError("layout osml: the root is an array, expected a group of images")
    found = [(name, image, next(images(image), None)) for name, image in node.members.items()]
    members: dict[str, Node] = {}
    for name, image, levels in found:
        if levels is None:
            raise UnsupportedError(f"layout osml: image {name!r} has no array, its full resolution")
        if len(found) == 1:
            for number, path in enumerate(levels.levels):
                members[str(number)] = _group(image, path, f"array {number}/data")
            attributes = _root_attributes(node, image, members)
            return GroupIndex(members=members, attributes=attributes, pins=node.pins)
        kept = _without_levels(image.attributes)
        group = _group(image, levels.levels[0], f"array {name}/data")
        members[name] = replace(group, attributes=kept)
    return GroupIndex(members=members, attributes=node.attributes, pins=node.pins)


def _without_levels(attributes: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in attributes.items() if key not in LEVELS}


def _group(image: Node, path: str, where: str) -> GroupIndex:
    """Return the group of a level, with its array as `data`."""
    found = find(image, path)
    if not isinstance(found, ArrayIndex):
        raise UnsupportedError(f"layout osml: {path} is a group, expected an array")
    array = with_bands(_with_whole_cells(found, where))
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
        scale = [a / b for a, b in zip(finer or size, size, strict=True)]
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
