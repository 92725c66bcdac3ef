"""Headers of fixed-width fields, declared as data and read to plain data.

A layout is a sequence of `Field`, `When` (fields that exist only under a condition) and `Repeat` (a
list of equal records).

A number field whose text is not a number is kept as text: many files have errors in fields that do
not affect their pixels. `number` returns a value that must be a number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anychunk.errors import FormatError, TruncatedError

type Values = dict[str, Any]
type Layout = Sequence[Field | When | Repeat]
type Width = int | Callable[[Values], int]


@dataclass(frozen=True)
class Field:
    """One value of a known width in bytes."""

    name: str
    width: Width
    """Width in bytes, or a function that computes it from the values before it."""
    kind: Literal["text", "int", "uint", "bytes"] = "text"
    """text: ISO 8859-1, trailing blanks dropped; int: decimal digits; uint: big-endian binary."""


@dataclass(frozen=True)
class When:
    """Fields that exist only if `condition` holds for the values before them."""

    condition: Callable[[Values], bool]
    layout: Layout


@dataclass(frozen=True)
class Repeat:
    """Records stored as a list under `name`; `count` is computed from the values before them."""

    name: str
    count: Callable[[Values], int]
    layout: Layout


def number(values: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    """Return a value that must be a number; `default` if it is blank or missing.

    Raises:
        FormatError: it is not a number.
    """
    found = values.get(name)
    value = default if found is None or found == "" else found
    if not isinstance(value, int):
        raise FormatError(f"{name} is {found!r}, expected a number")
    return value


def read(layout: Layout, data: bytes, offset: int = 0) -> tuple[Values, int]:
    """Return the values of `layout` in `data` from `offset` on, and the offset of their end.

    Raises:
        TruncatedError: `data` ends within a field.
    """
    return _read(layout, data, offset, {})


def _read(layout: Layout, data: bytes, offset: int, values: Values) -> tuple[Values, int]:
    for entry in layout:
        if isinstance(entry, Field):
            width = entry.width if isinstance(entry.width, int) else entry.width(values)
            if width < 0 or offset + width > len(data):
                raise TruncatedError(
                    f"@{offset}: {entry.name} takes {width} bytes, "
                    f"the header ends after {len(data)}"
                )
            values[entry.name] = _value(entry.kind, data[offset : offset + width])
            offset += width
        elif isinstance(entry, When):
            if entry.condition(values):
                values, offset = _read(entry.layout, data, offset, values)
        else:
            records = []
            for _ in range(entry.count(values)):
                record, after = _read(entry.layout, data, offset, {})
                if after == offset:
                    # the count comes from the file: empty records would never run out of data
                    raise FormatError(
                        f"@{offset}: records of {entry.name} have length 0, expected at least 1"
                    )
                offset = after
                records.append(record)
            values[entry.name] = records
    return values, offset


def _value(kind: str, raw: bytes) -> Any:
    if kind == "bytes":
        return raw
    if kind == "uint":
        return int.from_bytes(raw, "big")
    text = raw.decode("latin-1").rstrip(" \0")
    digits = text.strip()
    # int() also accepts underscores and digits of other scripts, which the standard does not
    if kind == "int" and digits.removeprefix("-").removeprefix("+").isdigit() and digits.isascii():
        return int(digits)
    return text
