"""The hierarchy that a file is served as: codecs and chunk shapes that every Zarr client supports.

Pure functions from an index to an index. Every image becomes a group of level groups, down to the
size of a screen. The `method` of `Computed` chunks says how `chunks.Chunks` makes them:

- `pass`: the stored bytes, unchanged
- `decode`: decoded, cut to the served grid and encoded again
- `shrink`: resampled from the next finer level
"""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from anychunk import resample as ds
from anychunk.codecs import data_types
from anychunk.errors import AnychunkError, FormatError, InternalError, UnsupportedError
from anychunk.metadata import drawing
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Level, Meaning, factors
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.images import VARIABLE, Image, images, join, level_paths
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, GroupIndex, Json, Node, Objects
from anychunk.thumbnail import BANDS, plane_axes

SIDE = 512
"""Approximate side of a chunk whose shape is chosen here."""
LEAST, MOST = 128, 1024
"""Chunks of the file with sides in this range keep their shape."""
CHUNK_BYTES = 4 << 20
"""Chunks of the file up to this size keep their shape."""
DEEP_BYTES = 1 << 20
"""Chunks of several planes are passed through up to this size only."""
PASSED_BYTES = 16 << 10
"""Smaller chunks are not passed through: clients would need too many requests."""
SCREEN = 512
"""Levels are added until the longer side of an image is at most this long."""
LIST_S = 5.0
"""Time after which a list of images ends early."""
STANDARD = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c"}
"""Codecs that every client supports."""
CORE_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(32|64)")
"""Data types that every client supports."""

LABELS = "labels"
"""Uncompressed chunks, and levels that never mix two values: for images whose values are names."""

type Compression = str
"""`zstd`, `none` or `LABELS`."""


def codecs(array: ArrayIndex, dtype: np.dtype[Any], compression: Compression) -> tuple[Json, ...]:
    """Return the codecs that served chunks are encoded with."""
    if dtype.kind in "OT":
        # Zarr's data types of variable length: text or bytes
        first: Json = {"name": "vlen-bytes" if "bytes" in str(array.data_type) else "vlen-utf8"}
    elif dtype.itemsize == 1:
        first = {"name": "bytes"}
    else:
        first = {"name": "bytes", "configuration": {"endian": "little"}}
    if compression != "zstd":
        return (first,)
    return (first, {"name": "zstd", "configuration": {"level": 1, "checksum": False}})


def native_dtype(array: ArrayIndex) -> np.dtype[Any]:
    return data_types.native(array.data_type)


@dataclass(frozen=True)
class Plane:
    """The axes of an image that are shown on a screen."""

    y: int
    x: int
    band: int | None

    @classmethod
    def of(cls, image: Image) -> "Plane | None":
        """Return the plane of an image, or None if it has fewer than two spatial axes."""
        try:
            y, x = plane_axes(image)
        except UnsupportedError:
            return None
        names = enumerate(image.names)
        return cls(y, x, next((i for i, n in names if n in BANDS and i not in (y, x)), None))

    def fits_screen(self, shape: Shape) -> bool:
        return max(shape[self.y], shape[self.x]) <= SCREEN


MASK_PLANE = Plane(0, 1, None)
"""Of a mask, whose axes are (y, x)."""


def chunk_shape(array: ArrayIndex, plane: Plane | None, itemsize: int) -> Shape:
    """Return the chunk shape of a decoded array: the file's own if it suits clients."""
    own = tuple(min(c, max(n, 1)) for c, n in zip(array.chunk_shape, array.shape, strict=True))
    if plane is None:
        return halved(own, CHUNK_BYTES // itemsize)
    if is_convenient(own, array.shape, plane) and math.prod(own) * itemsize <= CHUNK_BYTES:
        return own
    return tuple(
        side(c, n) if axis in (plane.y, plane.x) else 1
        for axis, (c, n) in enumerate(zip(own, array.shape, strict=True))
    )


def is_convenient(chunk: Shape, shape: Shape, plane: Plane) -> bool:
    """Whether a chunk is a piece of one plane, or of a few bands, with sides of moderate length."""
    for axis, (c, n) in enumerate(zip(chunk, shape, strict=True)):
        if axis in (plane.y, plane.x):
            if c > MOST or (c < LEAST and c < n):
                return False
        elif axis == plane.band:
            if c > 4:
                return False
        elif c > 1:
            return False
    return True


def side(own: int, length: int) -> int:
    """Return a side near `SIDE`: a multiple of the file's own side where that is smaller."""
    if own > MOST:
        own = SIDE
    elif own < SIDE // 2:
        own *= SIDE // own
    return max(1, min(own, length))


def halved(chunk: Shape, most: int) -> Shape:
    """Halve the longest side until a chunk has at most `most` elements."""
    sides = list(chunk)
    while math.prod(sides) > max(most, 1):
        longest = sides.index(max(sides))
        sides[longest] = -(-sides[longest] // 2)
    return tuple(sides)


def is_passed(
    array: ArrayIndex, plane: Plane | None, itemsize: int, compression: Compression
) -> bool:
    """Whether clients can take the stored bytes of chunks as they are."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges | Objects) or chunks.fronts:
        return False
    names = [codec["name"] if isinstance(codec, Mapping) else codec for codec in array.codecs]
    allowed = STANDARD if compression == "zstd" else {"bytes", "transpose"}
    nbytes = math.prod(array.chunk_shape) * itemsize
    is_flat = plane is not None and is_convenient(array.chunk_shape, array.shape, plane)
    is_whole = math.prod(array.grid) == 1
    return (
        set(names) <= allowed
        and isinstance(array.data_type, str)
        and nbytes <= (CHUNK_BYTES if is_flat else DEEP_BYTES)
        and (nbytes >= PASSED_BYTES or is_whole)
    )


def served_array(
    array: ArrayIndex, path: str, plane: Plane | None, compression: Compression
) -> ArrayIndex:
    """Return an array of the file as it is served."""
    dtype = native_dtype(array)
    itemsize = max(1, dtype.itemsize)
    if is_passed(array, plane, itemsize, compression):
        chunks = Computed(source=path, method="pass", configuration={}, grid=array.grid)
        return with_note(replace(array, chunks=chunks), "passed through")
    shape = chunk_shape(array, plane, itemsize)
    made = replace(
        array,
        chunk_shape=shape,
        codecs=codecs(array, dtype, compression),
        chunks=Computed(
            source=path,
            method="decode",
            configuration={},
            grid=grid_shape(array.shape, shape),
        ),
    )
    return with_note(made, "decoded")


def with_note(array: ArrayIndex, how: str) -> ArrayIndex:
    """Note in the attributes how chunks are made, and data types that few clients support."""
    note: dict[str, Json] = {"chunks": how}
    name = array.data_type if isinstance(array.data_type, str) else array.data_type["name"]
    if not CORE_TYPES.fullmatch(name):
        note["data_type"] = f"{name} is supported by few clients"
    return replace(array, attributes={**array.attributes, "anychunk_served": note})


def method_for(meaning: Meaning, dtype: np.dtype[Any], compression: Compression) -> str:
    """Return how levels are resampled: labels, palette indices and booleans are not averaged."""
    is_named = drawing.is_categorical(meaning.display) or are_labels(dtype, compression)
    return "mode" if is_named or dtype.kind == "b" else "average"


def are_labels(dtype: np.dtype[Any], compression: Compression) -> bool:
    """Whether values are served as names, of which there is no mean."""
    return compression == LABELS and dtype.kind in "iu"


def computed_levels(
    last: ArrayIndex,
    plane: Plane,
    *,
    method: str,
    nodata: float | None,
    compression: Compression,
) -> Iterator[tuple[ArrayIndex, Shape]]:
    """Yield levels, each half the size of the one before, until one fits on a screen.

    Each comes with its ratio to the one before, which is exactly 2 even for odd sizes: resampling
    drops the incomplete window at the end.
    """
    dtype = native_dtype(last)
    if (dtype.kind not in "biufc" and dtype.name != "bfloat16") or not math.prod(last.shape):
        return
    while not plane.fits_screen(last.shape):
        ratio = tuple(
            2 if axis in (plane.y, plane.x) and n > 1 else 1 for axis, n in enumerate(last.shape)
        )
        shape = ds.output_shape(last.shape, ratio)
        chunk = tuple(
            min(SIDE, n) if axis in (plane.y, plane.x) else 1 for axis, n in enumerate(shape)
        )
        if plane.band is not None and last.chunk_shape[plane.band] > 1:
            chunk = with_axis(chunk, plane.band, last.chunk_shape[plane.band])
        last = with_note(
            replace(
                last,
                shape=shape,
                chunk_shape=chunk,
                codecs=codecs(last, dtype, compression),
                chunks=Computed(
                    source="",
                    method="shrink",
                    configuration={"ratio": list(ratio), "method": method, "nodata": nodata},
                    grid=grid_shape(shape, chunk),
                ),
                attributes={},
            ),
            "computed",
        )
        yield last, ratio


def with_axis(shape: Shape, axis: int, value: int) -> Shape:
    return (*shape[:axis], value, *shape[axis + 1 :])


def next_name(taken: Sequence[str], number: int) -> str:
    """Return a name for a further level in the style of the others (`2` or `s2`)."""
    prefix = "s" if all(re.fullmatch(r"s\d+", name) for name in taken) and taken else ""
    name = f"{prefix}{number}"
    while name in taken:
        number += 1
        name = f"{prefix}{number}"
    return name


def served_image(
    image: Image, node: Node, *, path: str, compression: Compression
) -> GroupIndex | ArrayIndex:
    """Return an image as a group of level groups, or an array that has no plane to show as it is.

    Parameters:
        image: The image, with paths relative to `node`.
        node: Its node in the index of the file.
        path: The path of that node.
        compression: How chunks are compressed.
    """
    plane = Plane.of(image)
    if plane is None and isinstance(node, ArrayIndex):
        return served_array(node, path, None, compression)
    meaning = meaning_of(node, image)
    places = dict(zip(image.level_names, image.levels, strict=True))
    levels = []
    for level in levels_of(node, image):
        place = places[level.name]
        source = join(path, place) if place else path
        mask = None
        if level.mask is not None:
            mask = served_array(level.mask, beside(source, "mask"), MASK_PLANE, compression)
        array = served_array(level.image, source, plane, compression)
        levels.append(replace(level, image=array, mask=mask))
        if plane is not None and are_labels(native_dtype(array), compression):
            break  # the file's own levels may be means
    if plane is not None:
        levels += added_levels(meaning, plane, levels, path=path, compression=compression)
    return image_group(meaning, levels)


def beside(path: str, name: str) -> str:
    """Return the path of an array in the same group as the one at `path`."""
    return join(path.rpartition("/")[0], name)


def added_levels(
    meaning: Meaning,
    plane: Plane,
    levels: Sequence[Level],
    *,
    path: str,
    compression: Compression,
) -> list[Level]:
    """Return the levels that an image lacks; each is made from the one before it."""
    last = levels[-1]
    factor = factors(last, levels[0].image.shape)
    scale, origin = last.scale, last.origin
    computed = computed_levels(
        last.image,
        plane,
        method=method_for(meaning, native_dtype(last.image), compression),
        nodata=meaning.nodata,
        compression=compression,
    )
    masks: Iterator[tuple[ArrayIndex, Shape]] = iter(())
    if last.mask is not None:
        masks = computed_levels(
            last.mask, MASK_PLANE, method="mode", nodata=None, compression=compression
        )
    names, before = [level.name for level in levels], last.name
    added: list[Level] = []
    for array, ratio in computed:
        name = next_name(names, len(names))
        mask, _ = next(masks, (None, ()))
        factor = tuple(f * r for f, r in zip(factor, ratio, strict=True))
        if scale is not None and origin is not None:
            # OME translations refer to centres: that of r elements is (r - 1) / 2 further on
            steps = zip(origin, scale, ratio, strict=True)
            origin = tuple(o + s * (r - 1) / 2 for o, s, r in steps)
            scale = tuple(s * r for s, r in zip(scale, ratio, strict=True))
        folder = join(path, before)
        added.append(
            Level(
                name=name,
                image=_from(array, join(folder, VARIABLE)),
                mask=None if mask is None else _from(mask, join(folder, "mask")),
                factor=factor,
                scale=scale,
                origin=origin,
            )
        )
        names.append(name)
        before = name
    return added


def _from(array: ArrayIndex, source: str) -> ArrayIndex:
    """Return a computed array with the path of the one that it is computed from."""
    return replace(array, chunks=replace(cast("Computed", array.chunks), source=source))


class Members(Mapping[str, Node]):
    """The members of a group as they are served, each made on first access."""

    def __init__(self, group: GroupIndex, path: str, compression: Compression) -> None:
        self._group, self._path, self._compression = group, path, compression
        self._made: dict[str, Node] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.members)

    def __len__(self) -> int:
        return len(self._group.members)

    def __getitem__(self, name: str) -> Node:
        made = self._made.get(name)
        if made is None:
            member = self._group.members[name]
            made = served_tree(member, compression=self._compression, path=join(self._path, name))
            self._made[name] = made
        return made


def served_tree(
    node: Node,
    *,
    compression: Compression = "zstd",
    path: str = "",
) -> Node:
    """Return the served form of a node of an index and of everything below it.

    Parameters:
        node: A group or array of the index of a file.
        compression: How chunks are compressed.
        path: The path of the node.

    Raises:
        FormatError: The attributes of the file do not have the structure that their names imply.
    """
    try:
        return _served_tree(node, compression, path)
    except AnychunkError:
        raise
    except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        # `ome` and similar attributes are copied from the file: they may contain any JSON value
        raise FormatError(f"{path or '/'}: {type(e).__name__} in the attributes: {e}") from e


def _served_tree(node: Node, compression: Compression, path: str) -> Node:
    if isinstance(node, ArrayIndex) or level_paths(node):
        image = next(images(node))
        made = served_image(image, node, path=path, compression=compression)
        if isinstance(node, GroupIndex) and isinstance(made, GroupIndex):
            taken = {level.split("/")[0] for level in image.levels}
            below = {
                name: served_tree(member, compression=compression, path=join(path, name))
                for name, member in node.members.items()
                if isinstance(member, GroupIndex) and name not in taken
            }
            made = replace(made, members={**below, **made.members})
        return made
    return GroupIndex(members=Members(node, path, compression), attributes=node.attributes)


def readable_images(node: Node, most: int) -> tuple[list[Image], str | None]:
    """Return up to `most` images of an index, and why the list is incomplete, if it is."""
    found: list[Image] = []
    until = time.monotonic() + LIST_S
    try:
        for image in images(node):
            if len(found) >= most or time.monotonic() > until:
                return found, f"more than {len(found)} images; only the first are listed"
            found.append(image)
    except InternalError:
        raise
    except AnychunkError as e:
        return found, str(e)
    return found, None
