"""`tile:pattern`: the names of external tiles.

Spec: JNRRD Tiling Extension 1.0.0 sections 6.1 and 7.4.6; docs/formats/jnrrd.md.

`{x}` `{y}` `{z}` are tile indices by position in `tile:dimensions`, `{d0}` `{d1}` … for any number
of dimensions; `{c}` `{t}` are the axes labelled c and t, or else the fourth and fifth; `{l}` is the
level; `{i}` is the number of the tile, within its level if the pattern has `{l}`, or else within
all levels. `{z:03d}` has at least three digits. Any other name is that of a field of the header
with a text or an integer: `{content}`, `{dicom:study.instance_uid}`, or a key of its key/value
pairs. `{{` and `}}` are braces of the name itself, as in Python's format strings.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anychunk.errors import FormatError
from anychunk.formats.jnrrd.tiling_fields import all_indices
from anychunk.model.grid import Shape
from anychunk.model.index import Json

TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
FIELD = re.compile(r"([xyzctli]|d\d{1,2})(?::0?(\d{1,2})d?)?")
BY_POSITION = {"x": 0, "y": 1, "z": 2, "c": 3, "t": 4}
KNOWN = (
    "known: {x} {y} {z} {c} {t} {d0} {d1} … {l} {i}, each with :03d or without; header fields; "
    "{{ and }} for braces"
)
MOST_COMPARED = 1 << 18
"""Maximum number of names that are compared to find two tiles of the same name."""
MOST_NESTED = 8
"""How deep fields are nested whose values a pattern may name."""


@dataclass(frozen=True)
class Place:
    """A placeholder."""

    position: int
    """A position in `tile:dimensions`, or `LEVEL`, or `NUMBER`."""
    width: int
    """The minimum number of digits."""


LEVEL, NUMBER = -1, -2


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern."""

    text: str
    """The pattern as in the header."""
    parts: tuple[str | Place, ...]
    """Text and placeholders in turn; the first and the last are text, perhaps empty."""

    @property
    def positions(self) -> set[int]:
        """The positions of all placeholders."""
        return {part.position for part in self.parts if isinstance(part, Place)}

    def name(self, indices: Sequence[int], *, level: int, number: int, before: int) -> str:
        """Return the name of a tile.

        Parameters:
            indices: Its indices along `tile:dimensions`.
            level: Its level.
            number: Its number within the level.
            before: How many tiles the levels before it have.
        """
        place = number if LEVEL in self.positions else number + before
        values = {LEVEL: level, NUMBER: place, **dict(enumerate(indices))}
        return "".join(
            part if isinstance(part, str) else str(values[part.position]).zfill(part.width)
            for part in self.parts
        )


def placeholder_words(fields: Mapping[str, Json]) -> dict[str, str]:
    """Return the fields of a header that a pattern may name, nested ones by their path."""
    found: dict[str, str] = {}
    pairs = fields.get("key_values")
    for key, value in (pairs if isinstance(pairs, Mapping) else {}).items():
        _add_words(found, str(key), value)
    for key, value in fields.items():
        if key != "key_values":
            _add_words(found, key, value)
    return found


def _add_words(found: dict[str, str], path: str, value: Json, depth: int = 0) -> None:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        found[path] = str(value)
    elif isinstance(value, Mapping) and depth < MOST_NESTED:
        for key, inner in value.items():
            _add_words(found, f"{path}.{key}", inner, depth + 1)


def parse_pattern(
    text: str,
    dimensions: Shape,
    labels: Sequence[str | None] = (),
    words: Mapping[str, str] | None = None,
) -> Pattern:
    """Parse a pattern.

    `str.format` is not used, because it would let an untrusted pattern access attributes of
    objects.

    Parameters:
        text: The pattern.
        dimensions: `tile:dimensions`.
        labels: The labels of the file's axes, which may say what `{c}` and `{t}` are.
        words: What other placeholders stand for, by name.
    """
    parts: list[str | Place] = [""]
    position = 0
    for match in TOKEN.finditer(text):
        parts = _with_text(parts, text[position : match.start()])
        position = match.end()
        if match[0] in ("{{", "}}"):
            parts = _with_text(parts, match[0][0])
        elif match[1] is None:
            raise FormatError(f"tile:pattern: {text!r} has a brace outside a placeholder; {KNOWN}")
        elif place := FIELD.fullmatch(match[1]):
            parts += [_place(place, text, dimensions, labels), ""]
        else:
            parts = _with_text(parts, _word(match[1], text, words or {}))
    return Pattern(text, tuple(_with_text(parts, text[position:])))


def _with_text(parts: list[str | Place], text: str) -> list[str | Place]:
    """Add to the text at the end of the parts."""
    return [*parts[:-1], f"{parts[-1]}{text}"]


def _word(name: str, text: str, words: Mapping[str, str]) -> str:
    """Return the value of the header field that a placeholder names."""
    if name not in words:
        raise FormatError(f"tile:pattern: {text!r} has the unknown placeholder {{{name}}}; {KNOWN}")
    value = words[name]
    if not value or re.search(r"[{}/\\\0\n]", value) or value in (".", ".."):
        raise FormatError(
            f"tile:pattern: {text!r}: {{{name}}} stands for {value[:40]!r}, which cannot be "
            "part of a file name"
        )
    return value


def _place(
    match: re.Match[str], text: str, dimensions: Shape, labels: Sequence[str | None]
) -> Place:
    name, width = match[1], int(match[2] or 0)
    if name in ("l", "i"):
        return Place(LEVEL if name == "l" else NUMBER, width)
    position = int(name[1:]) if name[0] == "d" else BY_POSITION[name]
    if name in ("c", "t") and name in labels and labels.index(name) in dimensions:
        position = dimensions.index(labels.index(name))
    if not 0 <= position < len(dimensions):
        raise FormatError(
            f"tile:pattern: {text!r} has {{{match[0]}}}, but only {len(dimensions)} "
            "tiled dimensions"
        )
    return Place(position, width)


def check_unique_names(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> None:
    """Refuse a pattern that gives two tiles the same name.

    Parameters:
        pattern: The pattern.
        counts: For each stored level, its number and its tiles along each of `tile:dimensions`.
    """
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
            f"tile:pattern: {pattern.text!r} gives tiles of several levels the same name; add {{l}}"
        )
    if missing:
        raise FormatError(
            f"tile:pattern: {pattern.text!r} gives tiles along entry {min(missing)} of "
            f"tile:dimensions the same name; add {{d{min(missing)}}}"
        )
    # every varying index is in the name, so names can only coincide if digits run together
    if _runs_together(pattern):
        _compare_names(pattern, counts)


def _runs_together(pattern: Pattern) -> bool:
    """Return whether digits of two placeholders may touch: (1, 11) and (11, 1) both give 111."""
    between = pattern.parts[2:-1:2]
    return any(isinstance(text, str) and (not text or text.isdigit()) for text in between)


def _compare_names(pattern: Pattern, counts: Sequence[tuple[int, Shape]]) -> None:
    if sum(math.prod(grid) for _, grid in counts) > MOST_COMPARED:
        raise FormatError(
            f"tile:pattern: {pattern.text!r} has adjacent placeholders and more than "
            f"{MOST_COMPARED} tiles, too many to compare their names; "
            "put a character between the placeholders"
        )
    names: set[str] = set()
    before = 0
    for level, grid in counts:
        for name in pattern_names(pattern, level, grid, before=before):
            if name in names:
                raise FormatError(
                    f"tile:pattern: {pattern.text!r} gives two tiles the same name, {name!r}"
                )
            names.add(name)
        before += math.prod(grid)


def pattern_names(pattern: Pattern, level: int, grid: Shape, *, before: int) -> Iterator[str]:
    """Yield the names of all tiles of a level, in table order.

    Parameters:
        pattern: The pattern.
        level: The level.
        grid: Its tiles along each of `tile:dimensions`.
        before: How many tiles the levels before it have.
    """
    for number, indices in enumerate(all_indices(grid)):
        yield pattern.name(indices, level=level, number=number, before=before)
