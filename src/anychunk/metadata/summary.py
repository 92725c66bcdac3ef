"""What `repr` shows of indexes, groups and arrays. Text from files is shortened and printable."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anychunk.metadata.reading import meaning_of
from anychunk.model.images import Image, image_around, images
from anychunk.model.index import ArrayIndex, Json, Node, find

if TYPE_CHECKING:
    from anychunk.model.grid import Shape

MOST = 10
"""How many images are listed."""
WIDTH = 100
"""The longest text from a file that is shown whole."""
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def summary(node: Node, kind: str = "", place: str = "") -> str:
    """Return a description of an index, one line per image for at most `MOST` of them.

    Members that would have to be requested from a server are not listed.

    Parameters:
        node: The index.
        kind: The class that is shown; by default that of the index.
        place: Where the index is; by default as its root says.
    """
    head = f"{kind or type(node).__name__} {place or about(node)}".strip()
    if isinstance(node, ArrayIndex):
        return f"<{head}: {outline(node)}>"
    if getattr(node.members, "is_remote", False):
        return f"<{head}: members are read on demand>"
    found = list(itertools.islice(images(node), MOST + 1))
    lines = [image_line(node, image) for image in found[:MOST]]
    if len(found) > MOST:
        lines.append("…")
        count = len(node.members)
        head += f": {count} members, the first images are"
    else:
        head += f": {len(found)} image{'s' * (len(found) != 1)}"
    return "\n  ".join([f"<{head}", *lines]) + ">"


def about(node: Node) -> str:
    """Return the file, format and size of the root of an index; empty if they are unknown."""
    known = node.attributes.get("anychunk")
    if not isinstance(known, Mapping):
        return ""
    parts = [short(known[key]) for key in ("source", "format") if isinstance(known.get(key), str)]
    if isinstance(known.get("size"), int):
        parts.append(size(known["size"]))
    return ", ".join(parts)


def image_line(node: Node, image: Image) -> str:
    """Return the path of an image, its array, and how many levels it has."""
    array = find(node, image.levels[0])
    parts = [outline(array) if isinstance(array, ArrayIndex) else ""]
    parts += [f"{len(image.levels)} levels"] * (len(image.levels) > 1)
    return f"{short(image.path) or '/'}: {', '.join([*parts, *crs(node, image)])}"


def crs(node: Node, image: Image) -> list[str]:
    """Return the CRS of an image, shortened; nothing if it has none."""
    found = meaning_of(node, image).place.crs
    return [] if found is None else [short(found.code or "CRS as WKT")]


def group_summary(root: Node, path: str) -> str:
    """Return a description of the group at `path` of an index."""
    group = find(root, path)
    return "" if group is None else summary(group, "Group", placed(root, path))


def array_summary(root: Node, path: str, array: ArrayIndex) -> str:
    """Return a description of the array at `path` of an index."""
    parts, image = [outline(array)], image_around(root, path)
    if image is not None:
        if len(image.levels) > 1:
            parts.append(f"level {image.levels.index(path)} of {len(image.levels)}")
        parts += crs(root, image)
    return f"<Array {placed(root, path)}: {', '.join(parts)}>"


def placed(root: Node, path: str) -> str:
    """Return the file of an index with what is known about it, or with a path in it."""
    known = root.attributes.get("anychunk")
    if not path or not isinstance(known, Mapping) or not isinstance(known.get("source"), str):
        return short(path) or about(root)
    return f"{short(known['source'])} {short(path)}"


def outline(array: ArrayIndex) -> str:
    """Return the axes, shape, data type and chunks of an array."""
    axes = " ".join(short(name) if name else "-" for name in array.dimension_names)
    shapes = f"{times(array.shape)} {type_name(array.data_type)}"
    return f"({axes}) {shapes}, chunks {times(array.chunk_shape)}"


def times(shape: "Shape") -> str:
    """Format a shape, such as 3 x 4."""
    return " x ".join(map(str, shape)) or "scalar"


def type_name(data_type: Json) -> str:
    """Return the name of a data type or codec, which Zarr writes as text or as an object."""
    return short(data_type.get("name") if isinstance(data_type, Mapping) else data_type)


def size(nbytes: int) -> str:
    """Format a number of bytes with a binary unit."""
    amount, unit = float(nbytes), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} B" if unit == 0 else f"{amount:.1f} {UNITS[unit]}"


def short(text: Json, width: int = WIDTH) -> str:
    """Return text of a file in one printable line of at most `width` characters.

    Of a longer one, the end is kept too: it tells the files of a folder apart.
    """
    line = str(text)[: 100 * width]
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    if len(line) <= width:
        return line
    half = (width - 1) // 2
    return f"{line[:half]}…{line[-half:]}"
