"""Arrange an index as osml-imagery-io reads it: groups `0`, `1`, … with an array `data` each.

The groups are the levels of one image, listed in GeoZarr's `multiscales` of the root, as
osml-imagery-io writes them. It indexes one image per file; of a file with several images, the
groups are their full resolutions.

Its codecs ignore configuration keys that they do not know, and then decode wrong pixels. So
keys added by anychunk that change the pixels are refused; those that only enable checks are left
out. JPEG 2000 tiles that it misreads are refused as well: it moves each tile to the origin of the
reference grid.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anychunk.codecs.jpeg2000.codec import parse_header
from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.errors import UnsupportedError
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find

U = "https://awslabs.github.io/osml-imagery-io/codecs"
JPEG2000 = f"{U}/jpeg2000"
TIFF_TILE = f"{U}/tiff-tile"
DTED = f"{U}/dted"
JBP_BLOCK = f"{U}/jbp-block"
KNOWN = {
    TIFF_TILE: {
        "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config",
        "predictor", "tile_width", "tile_height", "sample_format", "jpeg_tables",
    },
    JBP_BLOCK: {"num_bands", "block_height", "block_width", "nbpp", "imode", "pvtype"},
    f"{U}/jpeg": {
        "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space",
    },
    JPEG2000: {"main_header", "resolution_level"},
    DTED: {
        "num_lat_points", "num_lon_lines", "record_size", "trim_top", "trim_bottom", "trim_left",
        "trim_right",
    },
}  # fmt: skip
"""The keys that osml-imagery-io 0.2.2 reads, by codec."""
LEVELS = ("ome", "multiscales")
"""Attributes of image groups that describe levels by paths, which differ in this layout."""
MULTISCALES = "d35379db-88df-4056-af3a-620245f8e347"
"""UUID of GeoZarr's convention for levels."""
CHECKS = {"last_height", "last_width", "verify_checksums"}
"""Keys added by anychunk that only make decoding stricter."""


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
    is_dted = isinstance(codec, dict) and codec.get("name") == DTED
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
    """Return a codec without keys that only enable checks; refuse other keys added by anychunk."""
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    if known is None:
        return codec
    configuration = codec.get("configuration", {})
    if codec["name"] == JPEG2000:
        _check_jpeg2000(configuration.get("main_header"), where)
    ours = sorted(set(configuration) - known - CHECKS)
    if ours:
        name = codec["name"].rpartition("/")[2]
        raise UnsupportedError(
            f"{where}: osml-imagery-io ignores {' '.join(ours)} of {name}, "
            'and would decode wrong pixels; save with layout="anychunk"'
        )
    return {**codec, "configuration": {k: v for k, v in configuration.items() if k in known}}


def _check_jpeg2000(main_header: Json, where: str) -> None:
    """Raise if osml-imagery-io 0.2.2 decodes wrong pixels from a codestream."""
    if main_header is None:
        problem = "codestreams that cannot be divided into tiles (PPM, or mixed subsampling)"
    else:
        problem = _misread(parse_header(str(main_header)))
    if problem:
        raise UnsupportedError(
            f"{where}: osml-imagery-io decodes wrong pixels from JPEG 2000 with {problem}; "
            'save with layout="anychunk"'
        )


def _misread(header: MainHeader) -> str:
    """Return what osml-imagery-io does not take into account; empty if it decodes all pixels.

    A tile that is moved to the origin keeps its sub-bands, precincts and code-blocks only if its
    position is a multiple of its size, and its size a power of two in samples of every component
    and every resolution (T.800 B.5 to B.7). A single tile at the origin is not moved.
    """
    siz = header.siz
    corner, origin = (siz.image.x0, siz.image.y0), (siz.tile_x0, siz.tile_y0)
    if any((*corner, *origin)):
        return f"an image offset {corner} or a tile offset {origin} other than (0, 0)"
    for count, size, steps, side in (
        (siz.columns, siz.tile_width, [c.dx for c in siz.components], "wide"),
        (siz.rows, siz.tile_height, [c.dy for c in siz.components], "high"),
    ):
        if any(step % min(steps) or not _is_power(step // min(steps)) for step in steps):
            return f"components subsampled by {sorted(set(steps))}, not by powers of two"
        for step, style in zip(steps, header.styles, strict=True):
            samples, rest = divmod(size, step)
            if count > 1 and (rest or not _is_power(samples) or samples < 1 << style.levels):
                return (
                    f"several tiles that are {size / step:g} samples {side}, not a power of two "
                    f"of at least {1 << style.levels}"
                )
    return ""


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
