"""Which axes of a TIFF stack become t, c, z, y and x, and which divide it into separate images.

Samples and channels are one axis c, channels first, as OME's SizeC counts them. Of axes with other
meanings (pages, tiles, angles …) one becomes z, or t if z is taken; further ones, outermost first,
divide the stack into separate images.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from anychunk.formats.tiff.layout import Layout
from anychunk.metadata.meaning import NAMES
from anychunk.model.grid import Shape

FREE = ("z", "t")
"""Axes that one with another meaning may become, the preferred one first."""


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The axes of the images that a stack consists of."""

    sizes: Shape
    """Sizes of the leading axes of the stack."""
    roles: tuple[str | None, ...]
    """What each leading axis becomes: t, c or z; None if it divides the stack."""
    layout: Layout

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the axes of each image, in their order."""
        found = {"y", "x", *(role for role in self.roles if role is not None)}
        found |= {"c"} if self.layout.bands > 1 else set()
        found |= {"z"} if self.layout.is_volume else set()
        return tuple(name for name in NAMES if name in found)

    @cached_property
    def shape(self) -> Shape:
        """Shape of each image."""
        layout = self.layout
        sizes = {"c": layout.bands, "z": layout.depth, "y": layout.height, "x": layout.width}
        for size, role in zip(self.sizes, self.roles, strict=True):
            if role is not None:
                sizes[role] = sizes.get(role, 1) * size
        return tuple(sizes[name] for name in self.names)

    @property
    def chunk_shape(self) -> Shape:
        """Shape of a strip or tile."""
        layout = self.layout
        sides = {
            "c": layout.chunk_bands,
            "z": layout.chunk_depth if layout.is_volume else 1,
            "y": layout.chunk_height,
            "x": layout.chunk_width,
        }
        return tuple(sides.get(name, 1) for name in self.names)

    @property
    def count(self) -> int:
        """The number of images that the stack is divided into."""
        return math.prod(n for n, r in zip(self.sizes, self.roles, strict=True) if r is None)

    def parts(self) -> Iterator[tuple[int | slice, ...]]:
        """Yield, for each image, which planes of the leading axes it has."""
        choices = [
            range(n) if role is None else (slice(None),)
            for n, role in zip(self.sizes, self.roles, strict=True)
        ]
        yield from product(*choices)

    def table(self, values: np.ndarray[Any, Any], part: tuple[int | slice, ...]) -> Any:
        """Return the part of a table that belongs to one image, shaped like its chunk grid.

        Parameters:
            values: one value per chunk, (planes, separate bands, z, y, x).
            part: the planes, as `parts` yields them.
        """
        grid = values.shape[1:]
        if not self.sizes and len(self.names) == 2 and len(values) == 1:
            return np.ascontiguousarray(values[0, 0, 0])
        chosen = values.reshape(*self.sizes, *grid)[part]
        labels = [role for role in self.roles if role is not None] + ["c", "z", "y", "x"]
        # sorted is stable: channels stay before the separate bands of each
        order = sorted(range(len(labels)), key=lambda i: NAMES.index(labels[i]))
        sides = dict.fromkeys(self.names, 1)
        for label, side in zip(labels, chosen.shape, strict=True):
            # z and c have one chunk where a page has neither
            sides |= {label: sides[label] * side} if label in sides else {}
        return np.ascontiguousarray(chosen.transpose(order)).reshape(tuple(sides.values()))

    def stored_order(self, *, is_interleaved: bool) -> list[int] | None:
        """Return the order of the axes in which a chunk's samples are stored.

        None if that is the order of the image. Axes along which a chunk has one element come first.

        Parameters:
            is_interleaved: whether the bands of a pixel follow each other; otherwise those of a
                depth slice do.
        """
        names, layout = self.names, self.layout
        if layout.chunk_bands == 1 or (not is_interleaved and layout.chunk_depth == 1):
            return None
        inner = ("z", "y", "x", "c") if is_interleaved else ("z", "c", "y", "x")
        stored = [n for n in names if n not in inner] + [n for n in inner if n in names]
        order = [names.index(name) for name in stored]
        return None if order == sorted(order) else order


def arrangement(names: Sequence[str], sizes: Shape, layout: Layout) -> Arrangement:
    """Return the axes of the images of a stack.

    Parameters:
        names: names of the leading axes: t, c, z, or others.
        sizes: their sizes.
        layout: layout of a page.
    """
    roles: dict[int, str] = {}
    for number, name in enumerate(names):
        is_taken = name == "z" and layout.is_volume
        if name in ("t", "c", "z") and name not in roles.values() and not is_taken:
            roles[number] = name
    taken = {*roles.values(), *(("z",) if layout.is_volume else ())}
    free = [name for name in FREE if name not in taken]
    others = [number for number in range(len(names)) if number not in roles]
    if others and free:
        roles[others[-1]] = free[0]
    return Arrangement(
        sizes=tuple(sizes),
        roles=tuple(roles.get(number) for number in range(len(names))),
        layout=layout,
    )


def stated(names: Sequence[str], found: Arrangement) -> Mapping[str, str]:
    """Return the axes of an image whose meaning the file states, by the names in the file."""
    kept = {
        name: role
        for name, role in zip(names, found.roles, strict=True)
        if role is not None and role == name
    }
    return {**kept, "y": "y", "x": "x", **({"z": "z"} if found.layout.is_volume else {})}
