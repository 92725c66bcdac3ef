"""Search terms for the list of files, such as `dapi format:tiff size:>10MB date:>=2026-03`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

MOST_TERMS = 16
MOST_CHARACTERS = 500

TERM = re.compile(r'(-?)((?:[^\s"]|"[^"]*"?)+)')
FIELD = re.compile(r"(format|dtype|crs|name):(.+)", re.IGNORECASE | re.DOTALL)
COMPARED = re.compile(r"(size|date)(?::(>=|<=|>|<|=|)|(>=|<=|>|<|=))(.*)", re.IGNORECASE)
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
DATE = re.compile(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?")


class SearchError(ValueError):
    """A search term is malformed."""


class Searched(Protocol):
    """What is known about a file; all texts in lower case."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str:
        """Everything that words are searched in."""
        ...

    @property
    def format(self) -> str: ...
    @property
    def dtype(self) -> str:
        """The data types of its images, separated by spaces."""
        ...

    @property
    def crs(self) -> str: ...
    @property
    def size(self) -> int | None: ...
    @property
    def mtime_ns(self) -> int | None: ...


type Test = Callable[[Searched], bool]


@dataclass(frozen=True)
class Search:
    """Terms that a file must all match."""

    tests: tuple[Test, ...] = ()

    def matches(self, file: Searched) -> bool:
        return all(test(file) for test in self.tests)


def parsed(text: str) -> Search:
    """Parse search terms; raise `SearchError` if one is malformed."""
    if len(text) > MOST_CHARACTERS:
        raise SearchError(f"search: {len(text)} characters, expected at most {MOST_CHARACTERS}")
    terms = TERM.findall(text)
    if len(terms) > MOST_TERMS:
        raise SearchError(f"search: {len(terms)} terms, expected at most {MOST_TERMS}")
    found = []
    for minus, term in terms:
        test = _test(term.replace('"', ""))
        if test is not None:
            found.append(_negated(test) if minus else test)
    return Search(tuple(found))


def _negated(test: Test) -> Test:
    return lambda file: not test(file)


def _test(term: str) -> Test | None:
    compared = COMPARED.fullmatch(term)
    if compared is not None:
        key, after, before, value = compared.groups()
        sign = after or before or ""
        return _size(sign, value, term) if key.lower() == "size" else _date(sign, value, term)
    field = FIELD.fullmatch(term)
    if field is None:
        word = term.lower()
        return (lambda file: word in file.text) if word else None
    key, value = field[1].lower(), field[2].lower()
    return lambda file: value in getattr(file, key)


def _size(sign: str, value: str, term: str) -> Test:
    match = SIZE.fullmatch(value)
    if match is None or not sign:
        raise SearchError(f"{term}: expected a comparison such as size:>10MB or size:<=1GiB")
    base = 1024 if match[3] else 1000
    limit = float(match[1]) * base ** " kmgtp".index(match[2].lower() or " ")
    compare = _comparison(sign, limit, limit)
    return lambda file: file.size is not None and compare(file.size)


def _date(sign: str, value: str, term: str) -> Test:
    try:
        start, end = _span(value)
    except (ValueError, OverflowError) as e:
        raise SearchError(
            f"{term}: expected a date such as date:2026-03 or date:>=2026-03-01"
        ) from e
    first, last = start.timestamp() * 1e9, end.timestamp() * 1e9 - 1
    compare = _comparison(sign, first, last)
    return lambda file: file.mtime_ns is not None and compare(file.mtime_ns)


def _span(value: str) -> tuple[datetime, datetime]:
    """Return where a year, month or day begins and ends, in UTC; raise ValueError if it is none."""
    match = DATE.fullmatch(value)
    if match is None:
        raise ValueError(value)
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    start = datetime(year, month, day, tzinfo=UTC)
    if match[3]:
        return start, start + timedelta(days=1)
    if match[2]:
        return start, (start + timedelta(days=31)).replace(day=1)
    return start, start.replace(year=year + 1)


def _comparison(sign: str, first: float, last: float) -> Callable[[float], bool]:
    """Compare with all values from `first` to `last`."""
    match sign:
        case ">":
            return lambda value: value > last
        case ">=":
            return lambda value: value >= first
        case "<":
            return lambda value: value < first
        case "<=":
            return lambda value: value <= last
    return lambda value: first <= value <= last
