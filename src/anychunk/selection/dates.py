"""Elements along t that a number, a range, a date or an interval selects."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from anychunk.errors import OptionError
from anychunk.metadata.meaning import Meaning
from anychunk.model.index import Json


def times_of(meaning: Meaning, count: int, wanted: int | str, where: str) -> Sequence[int]:
    """Return the elements along t that a number, a range, a date or an interval selects."""
    axis = next(axis for axis in meaning.axes if axis.name == "t")
    dates = _dates(axis.values, axis.attributes)
    text = str(wanted).strip()
    is_year = dates is not None and re.fullmatch(r"\d{4}", text) and isinstance(wanted, str)
    if (number := re.fullmatch(r"\d+", text)) and not is_year:
        found = range(int(text), int(text) + 1)
    elif number is None and (ends := re.fullmatch(r"(\d*):(\d*)", text)):
        found = range(int(ends[1] or 0), int(ends[2]) if ends[2] else count)
    elif dates is None:
        raise OptionError(f"{where}: t has no dates; choose {wanted!r} by number, such as 0 or 0:3")
    else:
        first, last = interval(text)
        picked = tuple(n for n, date in enumerate(dates[:count]) if first <= date < last)
        if not picked:
            shown = [datetime.fromtimestamp(n, UTC).isoformat() for n in (min(dates), max(dates))]
            raise OptionError(f"{where}: nothing is dated {wanted}; dates are {' to '.join(shown)}")
        return picked
    if found.start >= min(found.stop, count):
        raise OptionError(f"{where}: nothing is at {wanted} along t, which has {count} elements")
    return tuple(range(found.start, min(found.stop, count)))


SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "hr": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
}
"""The units of time that CF has, without months and years, which differ in length."""
CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


def _dates(values: Sequence[float] | None, attributes: Mapping[str, Json]) -> list[float] | None:
    """Return CF times as seconds since 1970; None if they are not dates."""
    found = re.fullmatch(r"\s*(\w+)\s+since\s+(\S.*?)\s*", str(attributes.get("units", "")))
    calendar = attributes.get("calendar", "standard")
    if not values or found is None or calendar not in CALENDARS:
        return None
    unit = SECONDS.get(found[1].lower()) or SECONDS.get(found[1].lower().removesuffix("s"))
    try:
        start = datetime.fromisoformat(found[2])
    except ValueError:
        return None
    if unit is None:
        return None
    epoch = (start if start.tzinfo is not None else start.replace(tzinfo=UTC)).timestamp()
    return [epoch + value * unit for value in values]


def interval(text: str) -> tuple[float, float]:
    """Return when a date, or an interval `FROM/TO`, begins and ends, in seconds since 1970.

    A date stands for all of its year, month, day, hour, minute or second. An interval includes both
    of its dates; `..` or nothing leaves an end open.
    """
    first, slash, last = text.partition("/")
    if not slash:
        return _period(text)
    start = -math.inf if first in ("", "..") else _period(first)[0]
    return start, math.inf if last in ("", "..") else _period(last)[1]


PERIOD = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.\d+)?)?)?)?)?)?"
    r"(Z|[+-]\d\d:?\d\d)?"
)


def _period(text: str) -> tuple[float, float]:
    found = PERIOD.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"time {text!r}: expected a date, such as 2026-03 or 2026-03-01T12:30")
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        offset = datetime.fromisoformat(f"2000-01-01T00:00{zone or 'Z'}").tzinfo
        start = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=offset,
        )
        if month is None:
            end = start.replace(year=start.year + 1)
        elif day is None:
            end = (start + timedelta(days=31)).replace(day=1)
        else:
            end = start + STEPS[sum(n is not None for n in (hour, minute, second))]
    except (ValueError, OverflowError) as e:
        raise OptionError(f"time {text!r}: {e}") from e
    return start.timestamp(), end.timestamp()


STEPS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
"""How long a date is that is given to the day, hour, minute or second."""
