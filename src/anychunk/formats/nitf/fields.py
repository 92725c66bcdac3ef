"""Fixed-width fields: one declaration serves reading and writing.

A layout is a sequence of `Field`, `When` (fields that are there only sometimes) and `Repeat` (a
list of equal records). `read` gives plain data, `write` the same bytes back.

A number whose text is no number is kept as text: a file may be right in all that matters and wrong
in a field that nobody needs. `number` is how a caller asks for one that it does need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from anychunk.errors import FormatError, TruncatedError

type Values = dict[str, Any]
type Layout = Sequence[Field | When | Repeat]
type Width = int | Callable[[Values], int]


@dataclass(frozen=True)
class Field:
    """One value of a known width in bytes."""

    name: str
    width: Width
    kind: Literal["text", "int", "uint", "bytes"] = "text"
    """text: ISO 8859-1, blanks at the end dropped; int: decimal digits; uint: big-endian binary."""


@dataclass(frozen=True)
class When:
    """Fields that are there only where `condition` holds for the values read before."""

    condition: Callable[[Values], bool]
    layout: Layout


@dataclass(frozen=True)
class Repeat:
    """Records, as many as `count` tells from the values read before, as a list under `name`."""

    name: str
    count: Callable[[Values], int]
    layout: Layout


def number(values: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    """Give a value that must be a number; blank is `default`, where there is one."""
    value = values.get(name)
    if value is None or value == "":
        value = default
    if not isinstance(value, int):
        raise FormatError(f"{name} is {value!r}, expected a number")
    return value


def read(layout: Layout, data: bytes, offset: int = 0) -> tuple[Values, int]:
    """Read `layout` from `data`; give the values and where they end."""
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
                    raise FormatError(f"@{offset}: records of {entry.name} are empty")
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
    # int() takes underscores and other scripts' digits, which a file may not use
    if kind == "int" and digits.removeprefix("-").removeprefix("+").isdigit() and digits.isascii():
        return int(digits)
    return text


def write(layout: Layout, values: Mapping[str, Any]) -> bytes:
    """Write values as `layout` says; what is missing becomes blanks or zeros."""
    parts = []
    for entry in layout:
        if isinstance(entry, Field):
            known = cast("Values", values)
            width = entry.width if isinstance(entry.width, int) else entry.width(known)
            parts.append(_encoded(entry, values.get(entry.name), width))
        elif isinstance(entry, When):
            if entry.condition(cast("Values", values)):
                parts.append(write(entry.layout, values))
        else:
            records = values.get(entry.name, [])
            parts.extend(write(entry.layout, record) for record in records)
    return b"".join(parts)


def _encoded(entry: Field, value: Any, width: int) -> bytes:
    match entry.kind:
        case "bytes":
            raw = bytes(value or b"\0" * width)
        case "uint":
            raw = int(value or 0).to_bytes(width, "big")
        case "int" if not isinstance(value, str):
            raw = f"{int(value or 0):0{width}d}".encode()
        case _:
            raw = str(value or "").ljust(width).encode("latin-1")
    if len(raw) != width:
        raise FormatError(f"{entry.name} is {value!r}, which does not fit {width} bytes")
    return raw
