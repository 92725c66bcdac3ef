"""Where the tiles of a file with external storage are.

Spec: JNRRD Tiling Extension 1.0.0 section 6; docs/formats/jnrrd.md.
"""

import math
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats.jnrrd.layout import Layout, tile_numbers
from anychunk.formats.jnrrd.pattern import NUMBER, Pattern, all_indices
from anychunk.formats.jnrrd.tiling import Tiling
from anychunk.io import is_remote, local_path, resolve
from anychunk.model.grid import Shape
from anychunk.model.index import WHOLE, ByteRanges, Json, Objects


def folder_of(url: str) -> str:
    """Give the folder that references of the file are relative to."""
    return posixpath.dirname(url if is_remote(url) else local_path(url)) or "."


@dataclass
class References:
    """Resolves the names that a file gives, once a folder."""

    folder: str
    base_dir: str = ""
    allow: tuple[str, ...] = ()
    _folders: dict[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[str, ...]:
        """The local folders that tiles may be in, with all links resolved."""
        allowed = (local_path(place) for place in self.allow if not is_remote(place))
        return () if is_remote(self.folder) else (self.folder, *allowed)

    def url(self, name: str) -> str:
        if not name:
            raise FormatError(f"{self.folder}: a file without a name")
        joined = name if is_remote(name) else posixpath.join(self.base_dir, name)
        parent, _, last = joined.rpartition("/")
        if is_remote(joined) or not parent or last in ("", ".", ".."):
            return resolve(self.folder, joined, allow=self.allow)
        if parent not in self._folders:
            self._folders[parent] = resolve(self.folder, parent, allow=self.allow)
        found = f"{self._folders[parent]}/{last}"
        # a link may lead anywhere; all else is where its folder is
        if "\0" in last or "\\" in last or os.path.islink(found):  # noqa: PTH114 - a call a tile
            return resolve(self.folder, joined, allow=self.allow)
        return found


def dimension_counts(layout: Layout, dimensions: Shape) -> Shape:
    return tuple(layout.counts[axis] for axis in dimensions)


def pattern_objects(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References
) -> Objects | None:
    """Give the tiles of a level as a pattern of chunk coordinates, where that can say it."""
    if NUMBER in pattern.positions or (layout.axes is not None and layout.grid != layout.counts):
        return None
    ndim = len(layout.counts)
    parts = []
    for part in pattern.parts:
        if isinstance(part, str):
            parts.append(part)
        elif part.position < 0:
            parts.append(str(layout.level.number).zfill(part.width))
        else:
            axis = ndim - 1 - tiling.dimensions[part.position]
            parts.append(f"{{{axis}:0{part.width}}}" if part.width else f"{{{axis}}}")
    text = posixpath.normpath(posixpath.join(references.base_dir, "".join(parts)))
    if is_remote(text) or text.startswith(("/", "..")):
        return None
    # digits cannot lead out of a folder: if one tile is inside, all are
    references.url(pattern.name([0] * ndim, level=layout.level.number, number=0, before=0))
    return Objects(
        base=references.folder,
        pattern=text,
        grid=layout.grid[::-1],
        is_sparse=False,
        roots=references.roots,
    )


def pattern_urls(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References, before: int
) -> list[str]:
    """Name every tile of a level, in table order."""
    grid = dimension_counts(layout, tiling.dimensions)
    level = layout.level.number
    return [
        references.url(pattern.name(indices, level=level, number=number, before=before))
        for number, indices in enumerate(all_indices(grid))
    ]


def listed_urls(
    files: Sequence[Mapping[str, Json]],
    layouts: Sequence[Layout],
    dimensions: Shape,
    references: References,
) -> dict[int, list[str]]:
    """Give the files of every stored level in table order; each tile once, each file once."""
    names: dict[int, list[str | None]] = {
        layout.level.number: [None] * layout.tiles for layout in layouts
    }
    grids = {x.level.number: dimension_counts(x, dimensions) for x in layouts}
    for entry, given in enumerate(files):
        level, number = _place(given, entry, grids)
        if names[level][number] is not None:
            raise FormatError(
                f"tile:files: entry {entry} names tile {given['indices']} of level {level} again"
            )
        names[level][number] = given["file"]
    found: dict[int, list[str]] = {}
    for level, listed in names.items():
        if None in listed:
            missing = tile_indices(listed.index(None), grids[level])
            raise FormatError(f"tile:files: no file for tile {missing} of level {level}")
        found[level] = [references.url(str(name)) for name in listed]
    _check_once(found.values())
    return found


def _place(given: Mapping[str, Json], entry: int, grids: Mapping[int, Shape]) -> tuple[int, int]:
    level: Json = given.get("level", 0)
    indices: Json = given.get("indices")
    name = given.get("file")
    if type(level) is not int or level not in grids:
        raise FormatError(f"tile:files: entry {entry} is of level {level!r}, which is not stored")
    grid = grids[level]
    is_list = isinstance(indices, list) and len(indices) == len(grid)
    if not is_list or not all(
        type(i) is int and 0 <= i < n for i, n in zip(indices, grid, strict=True)
    ):
        raise FormatError(
            f"tile:files: entry {entry} has indices {str(indices)[:60]}, expected {len(grid)} "
            f"below {list(grid)}"
        )
    if not isinstance(name, str):
        raise FormatError(f"tile:files: entry {entry} names the file {str(name)[:60]}")
    number = sum(i * math.prod(grid[:k]) for k, i in enumerate(indices))
    return level, number


def tile_indices(number: int, grid: Shape) -> list[int]:
    found = []
    for size in grid:
        found.append(number % size)
        number //= size
    return found


def _check_once(levels: Iterable[list[str]]) -> None:
    seen: set[str] = set()
    for urls in levels:
        for url in urls:
            if url in seen:
                raise FormatError(f"tile:files: the file {url} is named for two tiles")
            seen.add(url)


def url_table(urls: list[str], layout: Layout, dimensions: Shape) -> ByteRanges:
    """Give the tiles of a level as one object each, from a list in table order."""
    numbers = tile_numbers(layout, dimensions)
    return ByteRanges(
        offsets=np.zeros(numbers.shape, np.uint64),
        lengths=np.full(numbers.shape, WHOLE, np.uint64),
        urls=tuple(urls),
        url_ids=numbers.astype(np.uint32),
    )
