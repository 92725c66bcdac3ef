"""External tiles as chunk tables: one file per tile, named by a pattern or by a list.

Spec: JNRRD Tiling Extension 1.0.0 section 6; docs/formats/jnrrd.md.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from anychunk.errors import FormatError
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.tile_layout import (
    Layout,
    dimension_counts,
    tile_indices,
    tile_number,
    tile_numbers,
)
from anychunk.formats.jnrrd.tile_pattern import NUMBER, Pattern, pattern_names
from anychunk.formats.jnrrd.tiling_fields import Tiling
from anychunk.io.url import is_remote
from anychunk.model.grid import Shape
from anychunk.model.index import WHOLE, ByteRanges, Json, Objects


def pattern_objects(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References
) -> Objects | None:
    """Return the tiles of a level as a pattern of chunk coordinates, or None if that is impossible.

    A pattern takes no memory per tile. It is impossible where a name depends on the number of a
    tile, where names leave the folder, where a brace of a name would be taken for a coordinate, or
    where a digit may complete a `%2e`.
    """
    texts = [references.base_dir, *(part for part in pattern.parts if isinstance(part, str))]
    letters = "{}%" if is_remote(references.folder) else "{}"
    is_ambiguous = any(letter in text for text in texts for letter in letters)
    if is_ambiguous or NUMBER in pattern.positions:
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
    # digits cannot leave a folder: if one tile is inside, all are
    references.url(pattern.name([0] * ndim, level=layout.level.number, number=0, before=0))
    return Objects(
        base=references.folder,
        pattern=text,
        grid=layout.counts[::-1],
        is_sparse=tiling.sparse,
        roots=references.roots,
    )


def pattern_urls(
    pattern: Pattern, layout: Layout, tiling: Tiling, references: References, before: int
) -> list[str]:
    """Return the url of every tile of a level, in table order."""
    grid = dimension_counts(layout, tiling.dimensions)
    names = pattern_names(pattern, layout.level.number, grid, before=before)
    return [references.url(name) for name in names]


def listed_urls(
    files: Sequence[Mapping[str, Json]],
    layouts: Sequence[Layout],
    dimensions: Shape,
    references: References,
    *,
    others: Mapping[int, list[str]] | None = None,
    is_sparse: bool = False,
) -> dict[int, list[str]]:
    """Return the urls of every stored level in table order, from `tile:files`; "" if absent.

    Parameters:
        files: The entries of the list.
        layouts: The layouts of the stored levels.
        dimensions: `tile:dimensions`.
        references: Resolves names.
        others: The urls of the tiles that are not listed, where there is a pattern, too.
        is_sparse: Whether tiles that are not listed are absent.

    Raises:
        FormatError: A tile or a file is listed twice, or a tile is missing.
    """
    names: dict[int, list[str | None]] = {
        layout.level.number: [None] * layout.tiles for layout in layouts
    }
    grids = {x.level.number: dimension_counts(x, dimensions) for x in layouts}
    for entry, given in enumerate(files):
        level, number = _place(given, entry, grids)
        if names[level][number] is not None:
            raise FormatError(
                f"tile:files: entry {entry} repeats tile {given['indices']} of level {level}"
            )
        names[level][number] = given["file"]
    found: dict[int, list[str]] = {}
    for level, listed in names.items():
        if others is not None:
            found[level] = [
                other if name is None else references.url(name)
                for name, other in zip(listed, others[level], strict=True)
            ]
            continue
        if None in listed and not is_sparse:
            missing = tile_indices(listed.index(None), grids[level])
            raise FormatError(f"tile:files: no file for tile {missing} of level {level}")
        found[level] = ["" if name is None else references.url(name) for name in listed]
    _check_once(found.values())
    return found


def _place(given: Mapping[str, Json], entry: int, grids: Mapping[int, Shape]) -> tuple[int, int]:
    """Return the level of an entry of `tile:files`, and its tile number in the level's table."""
    level: Json = given.get("level", 0)
    indices: Json = given.get("indices")
    name = given.get("file")
    if type(level) is not int or level not in grids:
        raise FormatError(f"tile:files: entry {entry} has level {level!r:.40}, which is not stored")
    grid = grids[level]
    is_list = isinstance(indices, list) and len(indices) == len(grid)
    if not is_list or not all(
        type(i) is int and 0 <= i < n for i, n in zip(indices, grid, strict=True)
    ):
        raise FormatError(
            f"tile:files: entry {entry} has indices {str(indices)[:60]}, expected {len(grid)} "
            f"integers below {list(grid)}"
        )
    if not isinstance(name, str):
        raise FormatError(f"tile:files: entry {entry} has file {str(name)[:60]}, expected a string")
    return level, tile_number(indices, grid)


def _check_once(levels: Iterable[list[str]]) -> None:
    seen: set[str] = set()
    for urls in levels:
        for url in urls:
            if url and url in seen:
                raise FormatError(f"tile:files: the file {url} is listed for two tiles")
            seen.add(url)


def url_table(urls: list[str], layout: Layout, dimensions: Shape) -> ByteRanges:
    """Return the chunk table of a level whose tiles are whole files, listed in table order."""
    numbers = tile_numbers(layout, dimensions)
    is_there = np.array([bool(url) for url in urls])
    return ByteRanges(
        offsets=np.zeros(numbers.shape, np.uint64),
        lengths=np.where(is_there[numbers], np.uint64(WHOLE), np.uint64(0)),
        urls=tuple(urls),
        url_ids=numbers.astype(np.uint32),
    )
