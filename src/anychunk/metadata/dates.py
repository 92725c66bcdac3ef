"""Dates of images: read from text, found in names of files, written as a CF coordinate.

A date is an integer, microseconds since 1970 in UTC. As int64 it survives every reader: floating
point seconds lose the last digits of dates with fractions, and xarray decodes them inexactly.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from anychunk.errors import FormatError
from anychunk.model.index import Json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = "microseconds since 1970-01-01"
FIRST_YEAR, LAST_YEAR = 1678, 2261
"""Years that numpy's nanoseconds hold, which xarray decodes dates to."""
DIRECTIVES = {
    "Y": r"[12]\d{3}",
    "y": r"\d\d",
    "m": r"(?:0[1-9]|1[0-2])",
    "d": r"(?:0[1-9]|[12]\d|3[01])",
    "j": r"(?:00[1-9]|0[1-9]\d|[12]\d\d|3[0-5]\d|36[0-6])",
    "H": r"(?:[01]\d|2[0-3])",
    "M": r"[0-5]\d",
    "S": r"[0-5]\d",
    "f": r"\d{1,6}",
    "b": r"[A-Za-z]{3}",
    "B": r"[A-Za-z]{3,9}",
    "z": r"(?:Z|[+-]\d\d:?\d\d)",
}
"""What `datetime.strptime` reads for each directive; numbers have all their digits in names."""

type Order = Literal["date", "given"]
type Duplicates = Literal["error", "keep"]
type Georeference = Literal["error", "drop"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the files of a stack follow each other along t, and whether they may lie apart."""

    order: Order = "date"
    """"given" keeps the order of the files."""
    duplicates: Duplicates = "error"
    """"keep" keeps files of the same date, in the order in which they are given."""
    georeference: Georeference = "error"
    """"drop" drops the georeference of files at different places, with a warning."""

    def __post_init__(self) -> None:
        if self.order not in ("date", "given"):
            raise ValueError(f"order is {self.order!r}, expected 'date' or 'given'")
        if self.duplicates not in ("error", "keep"):
            raise ValueError(f"duplicates is {self.duplicates!r}, expected 'error' or 'keep'")
        if self.georeference not in ("error", "drop"):
            raise ValueError(f"georeference is {self.georeference!r}, expected 'error' or 'drop'")


def attributes() -> dict[str, Json]:
    """Return the CF attributes of a coordinate of dates."""
    return {"standard_name": "time", "units": UNITS, "calendar": "proleptic_gregorian"}


def from_datetime(found: datetime) -> int:
    """Return a date; one without an offset is in UTC."""
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def from_text(text: str | None) -> int | None:
    """Return a date of ISO 8601; None if the text is absent, not a date, or beyond xarray."""
    try:
        found = datetime.fromisoformat(text.strip()) if text is not None else None
    except ValueError:
        return None
    if found is None or not FIRST_YEAR <= found.year <= LAST_YEAR:
        return None
    return from_datetime(found)


def from_value(value: Any) -> int:
    """Return what a caller gives as a date: text, a datetime, a date, or a datetime64.

    Raises:
        ValueError: It is not a date, or one that xarray cannot decode.
    """
    import numpy as np

    if isinstance(value, np.datetime64):
        value = None if np.isnat(value) else value.astype("datetime64[us]").item()
    if isinstance(value, str):
        found = from_text(value)
    elif isinstance(value, datetime):
        found = from_datetime(value) if FIRST_YEAR <= value.year <= LAST_YEAR else None
    elif isinstance(value, date):
        found = from_value(datetime(value.year, value.month, value.day, tzinfo=UTC))
    else:
        found = None
    if found is None:
        raise ValueError(
            f"{value!r} is not a date, expected ISO 8601 text, a datetime or a datetime64 of the "
            f"years {FIRST_YEAR} to {LAST_YEAR}"
        )
    return found


def text_of(found: int) -> str:
    """Return a date as ISO 8601, for messages and attributes."""
    return (EPOCH + timedelta(microseconds=found)).replace(tzinfo=None).isoformat()


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return a pattern as a regular expression, and the directive of each of its groups."""
    pieces = re.split(r"(%.|\*|\?)", pattern)
    text, directives = "", []
    for piece in pieces:
        if piece == "%%":
            text += "%"
        elif piece in ("*", "?"):
            text += ".*?" if piece == "*" else "."
        elif piece.startswith("%") and len(piece) == 2:
            if piece[1] not in DIRECTIVES:
                known = " ".join(f"%{name}" for name in DIRECTIVES)
                raise ValueError(f"dates={pattern!r}: {piece} is not known; known are {known}")
            directives.append(piece)
            text += f"({DIRECTIVES[piece[1]]})"
        else:
            text += re.escape(piece)
    if not directives:
        raise ValueError(
            f"dates={pattern!r} is neither 'tags' nor a pattern of file names such as '%Y%m%d'"
        )
    if len(set(directives)) < len(directives):
        raise ValueError(f"dates={pattern!r} has a directive twice; replace the other date by *")
    if not {"%Y", "%y"} & set(directives):
        raise ValueError(f"dates={pattern!r} has no year; write %Y or %y, as in '%Y%m%d'")
    if any(piece in ("*", "?") for piece in pieces):
        text = rf"\A{text}\Z"
    else:
        # not a part of a longer number, such as the number of an orbit
        text = rf"(?<!\d){text}" if pieces[1] in directives and not pieces[0] else text
        text = rf"{text}(?!\d)" if not pieces[-1] and pieces[-2] in directives else text
    return re.compile(text, re.DOTALL), tuple(directives)


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that cannot give dates, with a ValueError."""
    _compiled(pattern)


def from_name(pattern: str, name: str) -> int | None:
    """Return the first date in a name that a pattern of `strptime` describes; None if none is.

    Parameters:
        pattern: Such as `%Y%m%d`. With `*` or `?`, it describes the whole name.
        name: The name of a file, or its path if the pattern has a slash.
    """
    compiled, directives = _compiled(pattern)
    for match in compiled.finditer(name):
        try:
            found = datetime.strptime(" ".join(match.groups()), " ".join(directives))  # noqa: DTZ007 - a zone may be in the name
        except ValueError:  # such as 31 February
            continue
        if FIRST_YEAR <= found.year <= LAST_YEAR:
            return from_datetime(found)
    return None


def first_twice(found: Sequence[int]) -> tuple[int, int] | None:
    """Return the numbers of the first two equal dates; None if all are distinct."""
    known: dict[int, int] = {}
    for number, value in enumerate(found):
        if (other := known.setdefault(value, number)) != number:
            return other, number
    return None


def refuse_twice(found: Sequence[int], names: Sequence[str]) -> None:
    """Refuse files of the same date.

    Parameters:
        found: The dates.
        names: The urls of the files, for the message.
    """
    if (twice := first_twice(found)) is None:
        return
    first, second = (names[number] for number in twice)
    raise FormatError(
        f"combine: {first} and {second} have the same date {text_of(found[twice[0]])}; pass "
        "duplicates='keep' to keep both, dates=False to stack without dates, or along='z'"
    )


def refuse_earlier(there: Sequence[int], new: Sequence[int], rules: Rules, where: str) -> None:
    """Refuse dates that cannot follow those of a repository.

    Parameters:
        there: The dates that the repository has.
        new: Those that are appended, in their order.
        rules: What is asked for.
        where: The repository, for messages.
    """
    both = sorted(set(there) & set(new))
    if both and rules.duplicates == "error":
        raise FormatError(
            f"{where}: already has the date {text_of(both[0])}; pass duplicates='keep' to keep both"
        )
    if rules.order == "date" and there and new and new[0] < max(there):
        raise FormatError(
            f"{where}: the date {text_of(new[0])} is earlier than the last one there, "
            f"{text_of(max(there))}; pass order='given' to append it all the same, or index all "
            "files anew"
        )


def is_dates(described_by: Mapping[str, Json]) -> bool:
    """Return whether positions with these attributes are dates as this module writes them."""
    return described_by.get("units") == UNITS
