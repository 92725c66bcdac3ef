"""Presets for chunks, shards, compression and levels of a Zarr target. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, Codec

from anychunk.codecs.base import OwnCodec
from anychunk.codecs.streams import check_option
from anychunk.errors import AnychunkError, OptionError
from anychunk.limits import KIB, MIB
from anychunk.model.grid import Shape
from anychunk.model.index import Json
from anychunk.zarr.codecs import adapted, from_json

SPACE = ("z", "y", "x")
FEW_BANDS = 4
"""Up to this many bands share a chunk: the bands of a colour image are read together."""
PLANE = 512
"""Chunks grow to this side length within stored planes before they grow across them."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named set of defaults."""

    about: str
    """One line for the docs and the command line."""
    chunk_bytes: int
    shard_bytes: int
    """0: no shards."""
    compression: str
    compression_level: int
    levels: int | None
    """0: halve until the coarsest level fits `SMALL`; None: keep the source's levels."""
    zarr_format: Literal[2, 3] = 3


PRESETS = {
    "ome-zarr": Preset(
        about="for every reader: levels down to 512 pixels, chunks of 512 KiB, no shards",
        chunk_bytes=512 * KIB,
        shard_bytes=0,
        compression="zstd",
        compression_level=3,
        levels=0,
    ),
    "cloud": Preset(
        about="for object stores: levels down to 512 pixels, chunks of 1 MiB, shards of 32 MiB",
        chunk_bytes=MIB,
        shard_bytes=32 * MIB,
        compression="zstd",
        compression_level=5,
        levels=0,
    ),
    "archive": Preset(
        about="smallest: the source's levels, chunks of 2 MiB with checksums, shards of 32 MiB",
        chunk_bytes=2 * MIB,
        shard_bytes=32 * MIB,
        compression="zstd+crc32c",
        compression_level=15,
        levels=None,
    ),
    "ome-zarr-0.4": Preset(
        about="for older viewers: Zarr v2 with OME-Zarr 0.4 metadata, otherwise as ome-zarr",
        chunk_bytes=512 * KIB,
        shard_bytes=0,
        compression="blosc",
        compression_level=5,
        levels=0,
        zarr_format=2,
    ),
}
SHARD_BYTES = 16 * MIB
"""Of the shards that are asked for where the preset has none."""
SMALL = 512
"""Levels are added until no axis of space is longer than this."""


def preset(name: str) -> Preset:
    """Return the preset called `name`, or raise `OptionError`."""
    if name not in PRESETS:
        raise OptionError(f"convert: like={name!r}, expected one of: {' '.join(PRESETS)}")
    return PRESETS[name]


def growing_axes(names: Sequence[str | None]) -> list[int]:
    """Return the axes along which chunks extend: those of space, or else the last two."""
    space = [i for i, name in enumerate(names) if name in SPACE]
    return space or list(range(len(names)))[-2:]


def chunk_shape(
    shape: Shape, names: Sequence[str | None], most: int, stored: Shape | None = None
) -> Shape:
    """Return a chunk shape of up to `most` elements, about as long along every axis of space.

    Where the source's `stored` chunks are planes, the chunk grows to `PLANE` within the plane
    before it grows across planes: a cube would be assembled from many planes, each of which
    would be read again for every cube that it intersects.
    """
    axes = growing_axes(names)
    chunk = [
        n if 0 < n <= FEW_BANDS and i not in axes and names[i] not in ("t", "time") else 1
        for i, n in enumerate(shape)
    ]
    flat = [i for i in axes if stored is not None and stored[i] == 1]
    other = [i for i in axes if i not in flat]
    plane = grow(chunk, tuple(min(n, PLANE) for n in shape), other, most)
    return grow(list(plane), shape, axes, most)


def shard_shape(
    chunk: Shape,
    shape: Shape,
    names: Sequence[str | None],
    most: int,
    stored: Shape | None = None,
) -> Shape:
    """Return a shard shape of whole chunks, up to `most` elements.

    If possible, it holds whole `stored` chunks of the source too.
    """
    axes = growing_axes(names)
    start = list(chunk)
    if stored is not None:
        covered = tuple(min(n, s) for n, s in zip(shape, stored, strict=True))
        start = list(grow(start, covered, axes, most))
    return grow(start, shape, axes, most)


def grow(start: list[int], shape: Shape, axes: list[int], most: int) -> Shape:
    """Double the shortest axis (on a tie, the last) while the product stays within `most`."""
    found = list(start)
    while math.prod(found) * 2 <= most:
        open_axes = [i for i in axes if found[i] < shape[i]]
        if not open_axes:
            break
        axis = min(open_axes, key=lambda i: (found[i], -i))
        found[axis] *= 2
    return tuple(found)


def clipped(chunk: Shape, shape: Shape) -> Shape:
    """Shorten a chunk to its array."""
    return tuple(min(c, max(n, 1)) for c, n in zip(chunk, shape, strict=True))


def trailing(given: Sequence[int], ndim: int, what: str) -> Shape:
    """Return sizes for all axes, given those of the last ones; axes before them get 1."""
    sizes = tuple(int(n) for n in given)
    if len(sizes) > ndim or min(sizes, default=1) < 1:
        raise OptionError(
            f"convert: {what} {sizes} for an array of {ndim} axes; expected up to {ndim} positive "
            "integers"
        )
    return (1,) * (ndim - len(sizes)) + sizes


def compressors(text: str | Sequence[Any], level: Any, itemsize: int) -> list[Json]:
    """Parse `zstd`, `blosc+crc32c` or JSON into codecs as JSON.

    Parameters:
        text: Names, joined by `+`; a JSON list of codecs; or the list itself, whose codecs may also
            be objects of zarr or names.
        level: Of the compression; None: its default.
        itemsize: Bytes per element, which blosc's shuffle needs.
    """
    is_named = isinstance(text, str) and not text.startswith(("[", "{"))
    parts = [p for p in str(text).split("+") if p not in ("none", "raw", "")] if is_named else []
    if unknown := [part for part in parts if part not in CODECS]:
        raise OptionError(
            f"convert: compression {unknown[0]!r}, expected {' '.join(CODECS)} or none, joined by "
            "+, or a JSON list of codecs; its level is the option compression_level"
        )
    if level is not None and (type(level) is not int or not {*parts} & {*LEVELLED}):
        raise OptionError(
            f"convert: compression_level={level!r} of the compression {text!r}, expected an "
            f"integer, and one of {' '.join(LEVELLED)}"
        )
    for part in parts:
        check_option(part, level, "convert")
    if not isinstance(text, str):
        return [_codec_json(codec) for codec in text]
    if not is_named:
        return _json_codecs(text)
    return [CODECS[part](level, itemsize) for part in parts]


def _codec_json(codec: Any) -> Json:
    if isinstance(codec, str):
        return {"name": codec}
    if isinstance(codec, Codec | OwnCodec):
        return adapted(codec).to_dict()
    if isinstance(codec, Mapping):
        return codec
    raise OptionError(
        f"convert: compression has {codec!r:.80}, expected codecs of Zarr v3, or their JSON"
    )


def _json_codecs(text: str) -> list[Json]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise OptionError(f"convert: compression {text!r} is not valid JSON: {e}") from e
    return [_codec_json(codec) for codec in (found if isinstance(found, list) else [found])]


def _zstd(level: int | None, itemsize: int) -> Json:
    value = 3 if level is None else level
    return {"name": "zstd", "configuration": {"level": value, "checksum": False}}


def _gzip(level: int | None, itemsize: int) -> Json:
    return {"name": "gzip", "configuration": {"level": 5 if level is None else level}}


def _blosc(level: int | None, itemsize: int) -> Json:
    return {
        "name": "blosc",
        "configuration": {
            "cname": "zstd",
            "clevel": 5 if level is None else level,
            "shuffle": "shuffle" if itemsize > 1 else "noshuffle",
            "typesize": itemsize,
            "blocksize": 0,
        },
    }


CODECS: dict[str, Any] = {
    "zstd": _zstd,
    "gzip": _gzip,
    "blosc": _blosc,
    "crc32c": lambda level, itemsize: {"name": "crc32c"},
}
"""Builders of codec JSON from (level, itemsize), by name."""
LEVELLED = ("zstd", "gzip", "blosc")


def codec_chain(
    data_type: Json, inner: Shape, outer: Shape, compressed: Sequence[Json]
) -> tuple[Json, ...]:
    """Return the codecs of an array as JSON; sharded if `outer` holds several chunks."""
    serializer: Json = {"name": "bytes", "configuration": {"endian": "little"}}
    if data_type == "string":
        serializer = {"name": "vlen-utf8"}
    elif data_type in ("bytes", "variable_length_bytes"):
        serializer = {"name": "vlen-bytes"}
    try:
        made = [from_json(codec) for codec in compressed]
    except (AnychunkError, ValueError, TypeError, LookupError) as e:
        raise OptionError(f"convert: compression: {e}") from e
    kinds = [
        0 if isinstance(codec, ArrayArrayCodec) else 1 if isinstance(codec, ArrayBytesCodec) else 2
        for codec in made
    ]
    if kinds != sorted(kinds) or kinds.count(1) > 1:
        raise OptionError(
            "convert: compression: expected filters, then at most one serializer, then compressors"
        )
    filters = kinds.count(0)
    own = () if 1 in kinds else (serializer,)
    codecs = (*compressed[:filters], *own, *compressed[filters:])
    if inner == outer:
        return codecs
    configuration = {
        "chunk_shape": list(inner),
        "codecs": list(codecs),
        "index_codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
        "index_location": "end",
    }
    return ({"name": "sharding_indexed", "configuration": configuration},)
