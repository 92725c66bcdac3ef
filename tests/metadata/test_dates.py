"""Dates in texts and names, compared with `datetime` and numpy."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest

from anychunk.errors import FormatError
from anychunk.metadata import dates


def microseconds(text):
    return int(np.datetime64(text, "us").astype("int64"))


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        ("2024-02-29", "2024-02-29"),
        ("2024-02-29T10:11:12.345678Z", "2024-02-29T10:11:12.345678"),
        ("2024-02-29T10:11:12.3456789+02:00", "2024-02-29T08:11:12.345678"),
        (date(1969, 12, 31), "1969-12-31"),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), "1969-12-31T23:59:59.999999"),  # noqa: DTZ001
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-1))), "2024-01-01T01:00:00"),
        (np.datetime64("2024-01-01T00:00:00.000001500", "ns"), "2024-01-01T00:00:00.000001"),
    ],
)
def test_dates_of_callers(value, truth):
    assert dates.from_value(value) == microseconds(truth)
    assert np.datetime64(dates.text_of(dates.from_value(value))) == np.datetime64(truth)


@pytest.mark.parametrize(
    "value",
    ["", "today", "0800-01-01", "9999-01-01", None, 5, np.datetime64("NaT", "s"), date(1, 1, 1)],
)
def test_what_is_not_a_date(value):
    with pytest.raises(ValueError, match="is not a date"):
        dates.from_value(value)
    if isinstance(value, str | None):
        assert dates.from_text(value) is None


@pytest.mark.parametrize(
    ("pattern", "name", "truth"),
    [
        ("%Y%m%d", "scene_20240103.tif", "2024-01-03"),
        ("%Y%m%d", "LC08_L2SP_196024_20200103_20200823_02_T1_SR_B4.TIF", "2020-01-03"),
        ("*_%Y%m%d_02_*", "LC08_L2SP_196024_20200103_20200823_02_T1_SR_B4.TIF", "2020-08-23"),
        ("%Y%m%dT%H%M%S", "S2A_MSIL2A_20240103T101011_N0510.SAFE", "2024-01-03T10:10:11"),
        ("A%Y%j", "MOD13Q1.A2024032.h18v04.061.hdf", "2024-02-01"),
        ("%Y-%m-%d", "x-2024-01-03.tif", "2024-01-03"),
        ("%Y/%m/%d", "s3://bucket/2024/01/03/a.tif", "2024-01-03"),
        ("%d%b%Y", "03Jan2024.tif", "2024-01-03"),
        ("%Y%m%d%H%M%S%f", "20240103101011123.tif", "2024-01-03T10:10:11.123"),
        ("%Y%m%dT%H%M%z", "20240103T1010+0200.tif", "2024-01-03T08:10"),
        ("t?_%Y", "t1_2024", "2024-01-01"),
        ("100%%_%Y", "100%_2024", "2024-01-01"),
        ("%Y%m%d", "20230229_20230301.tif", "2023-03-01"),  # the first is not a day
        ("%Y%m%d", "20240103101011.tif", None),  # a part of a longer number
        ("%Y%m%d", "120240103.tif", None),
        ("%Y%m%d", "scene.tif", None),
        ("a%Y", "b2024", None),
        ("%Y", "scene_1200.tif", None),  # beyond what xarray decodes
    ],
)
def test_dates_in_names(pattern, name, truth):
    found = dates.from_name(pattern, name)
    assert found == (None if truth is None else microseconds(truth))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("day", "neither 'tags' nor a pattern"), ("%m%d", "no year"), ("%Y%Q", "%Q is not known"),
     ("%Y_%Y", "twice")],
)  # fmt: skip
def test_patterns_that_give_no_dates(pattern, message):
    with pytest.raises(ValueError, match=message):
        dates.check_pattern(pattern)


def test_rules():
    rules = dates.Rules()
    dates.refuse_earlier([1, 5], [6, 7], rules, "there")
    dates.refuse_earlier([], [1], rules, "there")
    with pytest.raises(FormatError, match=r"there: the date 1970-01-01T00:00:00.000003 is earlier"):
        dates.refuse_earlier([1, 5], [3], rules, "there")
    with pytest.raises(FormatError, match="already has the date"):
        dates.refuse_earlier([1, 5], [5], dates.Rules(order="given"), "there")
    dates.refuse_earlier([1, 5], [5], dates.Rules(duplicates="keep"), "there")
    dates.refuse_earlier([1, 5], [3], dates.Rules(order="given"), "there")
    with pytest.raises(FormatError, match="b and d have the same date 1970-01-01T00:00:00.000002"):
        dates.refuse_twice([1, 2, 3, 2], "abcd")
    for wrong in ({"order": "x"}, {"duplicates": "x"}, {"georeference": "x"}):
        with pytest.raises(ValueError, match="'x', expected"):
            dates.Rules(**wrong)
    assert dates.from_datetime(datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000_000
