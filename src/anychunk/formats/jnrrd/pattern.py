"""Names of external tiles from a pattern.

Spec: JNRRD Tiling Extension 1.0.0 sections 6.1 and 7.4.6; docs/formats/jnrrd.md.

`{x}` `{y}` `{z}` are tile indices by position in `tile:dimensions`, `{d0}` `{d1}` … for any number;
`{c}` `{t}` the axes labelled so, else the fourth and fifth; `{l}` the level; `{i}` the place in the
table, of the level where the pattern has `{l}`, else of all. `{z:03d}` has at least three digits.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anychunk.errors import FormatError
from anychunk.model.grid import Shape

FIELD = re.compile(r"\{([a-z]\d{0,2})(?::0?(\d{1,2})d?)?\}")
BY_POSITION = {"x": 0, "y": 1, "z": 2, "c": 3, "t": 4}
KNOWN = "known: {x} {y} {z} {c} {t} {d0} {d1} … {l} {i}, each with :03d or without"
MOST_COMPARED = 1 << 18
"""How many names are compared one by one."""


@dataclass(frozen=True)
class Place:
    """A placeholder: a position in `tile:dimensions`, or `LEVEL`, or `NUMBER`."""

    position: int
    width: int


LEVEL, NUMBER = -1, -2


@dataclass(frozen=True)
class Pattern:
    """Text between placeholders, in turn: text, place, text, place, … text."""

    text: str
    parts: tuple[str | Place, ...]

    @property
    def positions(self) -> set[int]:
        return {part.position for part in self.parts if isinstance(part, Place)}

    def name(self, indices: Sequence[int], *, level: int, number: int, before: int) -> str:
        """Name a tile; `before` counts the tiles of the levels in front of its own."""
        place = number if LEVEL in self.positions else number + before
        values = {LEVEL: level, NUMBER: place, **dict(enumerate(indices))}
        return "".join(
            part if isinstance(part, str) else str(values[part.position]).zfill(part.width)
            for part in self.parts
        )


def parse_pattern(text: str, dimensions: Shape, labels: Sequence[str | None] = ()) -> Pattern:
    """Read a pattern with our own rules: str.format would let it reach into objects."""
    parts: list[str | Place] = []
    position = 0
    for match in FIELD.finditer(text):
        parts += [text[position : match.start()], _place(match, text, dimensions, labels)]
        position = match.end()
    parts.append(text[position:])
    rest = "".join(part for part in parts if isinstance(part, str))
    if "{" in rest or "}" in rest:
        raise FormatError(f"tile:pattern: {text!r} has a brace that is no placeholder; {KNOWN}")
    return Pattern(text, tuple(parts))


def _place(
    match: re.Match[str], text: str, dimensions: Shape, labels: Sequence[str | None]
) -> Place:
    name, width = match[1], int(match[2] or 0)
    if name in ("l", "i"):
        return Place(LEVEL if name == "l" else NUMBER, width)
    position = BY_POSITION.get(name, -1)
    if name in ("c", "t") and name in labels and labels.index(name) in dimensions:
        position = dimensions.index(labels.index(name))
    elif re.fullmatch(r"d\d+", name):
        position = int(name[1:])
    elif name not in BY_POSITION:
        raise FormatError(f"tile:pattern: {text!r} has {match[0]}, no placeholder; {KNOWN}")
    if not 0 <= position < len(dimensions):
        raise FormatError(
            f"tile:pattern: {text!r} has {match[0]}, but {len(dimensions)} dimensions are tiled"
        )
    return Place(position, width)


def check_tells_apart(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> None:
    """Refuse a pattern that gives two tiles one name; `counts` are (level, tiles a dimension)."""
    positions = pattern.positions
    has_number = NUMBER in positions
    several = len(counts) > 1 and LEVEL not in positions and not has_number
    missing = {
        position
        for _, grid in counts
        for position, tiles in enumerate(grid)
        if tiles > 1 and position not in positions and not has_number
    }
    if several:
        raise FormatError(
            f"tile:pattern: {pattern.text!r} gives tiles of several levels one name; add {{l}}"
        )
    if missing:
        raise FormatError(
            f"tile:pattern: {pattern.text!r} gives tiles along dimension "
            f"{min(missing)} of tile:dimensions one name; add {{d{min(missing)}}}"
        )
    if _runs_together(pattern):
        _compare_names(pattern, counts)


def _runs_together(pattern: Pattern) -> bool:
    """Whether digits of two placeholders may meet, so that 1, 11 and 11, 1 look the same."""
    between = pattern.parts[2:-1:2]
    return any(isinstance(text, str) and (not text or text.isdigit()) for text in between)


def _compare_names(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> None:
    if sum(math.prod(grid) for _, grid in counts) > MOST_COMPARED:
        raise FormatError(
            f"tile:pattern: {pattern.text!r} has placeholders side by side and too many "
            "tiles to compare their names; put a character between them"
        )
    names: set[str] = set()
    before = 0
    for level, grid in counts:
        for number, indices in enumerate(all_indices(grid)):
            name = pattern.name(indices, level=level, number=number, before=before)
            if name in names:
                raise FormatError(
                    f"tile:pattern: {pattern.text!r} gives two tiles the name {name!r}"
                )
            names.add(name)
        before += math.prod(grid)


def all_indices(grid: Shape) -> Iterator[Shape]:
    """Yield tile indices in table order: the first dimension is fastest."""
    if not grid:
        yield ()
        return
    for rest in all_indices(grid[1:]):
        for first in range(grid[0]):
            yield (first, *rest)
