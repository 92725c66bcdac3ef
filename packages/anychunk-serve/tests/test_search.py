"""Search terms of the list of files."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from anychunk_serve.search import SearchError, parsed


@dataclass
class File:
    name: str = "brain/dapi 01.tif"
    text: str = "brain/dapi 01.tif tiff epsg:32633 uint16 first slice"
    format: str = "tiff"
    dtype: str = "uint16"
    crs: str = "epsg:32633"
    size: int | None = 10_000_000
    mtime_ns: int | None = int(datetime(2026, 3, 15, 12, tzinfo=UTC).timestamp() * 1e9)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "dapi", "DAPI", "brain 01", '"dapi 01"', "dapi -gfp", "slice", "format:tiff",
     "FORMAT:TIFF", "format:tif", "dtype:uint16", "crs:32633", "crs:EPSG:32633", "name:brain",
     'name:"dapi 01"', "size:>9MB", "size>9MB", "size:>=10MB", "size:<=10MB", "size:=10MB",
     "size:<10MiB", "size:>1", "date:2026", "date:2026-03", "date:2026-03-15",
     "date:>=2026-03-15", "date:>2026-03-14", "date:<2026-04", "date<=2026-03-15",
     "-date:2026-04", "-size:>1GB", "-format:npy"],
)  # fmt: skip
def test_matches(text):
    assert parsed(text).matches(File())


@pytest.mark.parametrize(
    "text",
    ["gfp", "-dapi", '"01 dapi"', "format:npy", "dtype:uint8", "crs:4326", "name:tiff",
     "size:>10MB", "size:<10MB", "size:>10MiB", "date:2025", "date:2026-04", "date:>2026-03-15",
     "date:>2026", "date:<2026-03-15", "foo:bar"],
)  # fmt: skip
def test_does_not_match(text):
    assert not parsed(text).matches(File())


def test_what_is_not_known_does_not_match():
    file = File(size=None, mtime_ns=None)
    assert not parsed("size:>0").matches(file)
    assert not parsed("date:>1970").matches(file)


@pytest.mark.parametrize(
    "text",
    ["size:10MB", "size:>9.5e", "size:>ten", "size:>", "date:yesterday", "date:2026-13", "date:2026-02-30",
     "date:>", "date:9999", "x" * 501, " ".join("abcdefghijklmnopq")],
)  # fmt: skip
def test_malformed_terms(text):
    with pytest.raises(SearchError) as raised:
        parsed(text)
    assert "\n" not in str(raised.value)
