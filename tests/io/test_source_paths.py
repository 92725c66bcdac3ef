"""Paths and urls of every system, compared with pathlib's."""

from pathlib import PurePosixPath, PureWindowsPath

import pytest

from anychunk.io import source, system
from anychunk.io.source import (
    absolute,
    as_url,
    drive_first,
    file_url,
    is_absolute,
    is_remote,
    local_path,
)
from anychunk.references.urls import folder_of


@pytest.fixture
def windows(monkeypatch):
    """Strings are treated as on Windows; `os.path` is this system's."""
    monkeypatch.setattr(system, "IS_WINDOWS", True)


PATHS = [
    "C:\\scans\\a.tif",
    "c:/scans/a b.tif",
    "\\\\server\\share\\a.tif",
    "D:\\ä#1%20.n5",
    "scans\\a.tif",
    "..\\a.tif",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_drive_is_no_scheme(path):
    assert not is_remote(path)


@pytest.mark.parametrize("place", ["s3://b/a", "https://h/a", "gs://b/a", "memory://a", "az://c/a"])
def test_schemes(place, windows):
    assert is_remote(place)
    assert as_url(place) == place
    assert file_url(place) == place


@pytest.mark.parametrize("path", PATHS)
def test_paths_of_windows(path, windows):
    expected = PureWindowsPath(path)
    assert local_path(path) == as_url(path) == expected.as_posix()
    assert as_url(expected) == expected.as_posix()
    assert is_absolute(expected.as_posix()) == (expected.drive != "")


@pytest.mark.parametrize("path", [p for p in PATHS if PureWindowsPath(p).is_absolute()])
def test_file_urls_of_windows(path, windows):
    expected = PureWindowsPath(path)
    assert local_path(expected.as_uri()) == expected.as_posix()
    if expected.drive.endswith(":"):
        assert file_url(expected.as_posix()) == expected.as_uri()
        assert local_path(file_url(expected.as_posix())) == expected.as_posix()
        plain = file_url(expected.as_posix(), is_quoted=False)
        assert drive_first(plain.removeprefix("file://")) == expected.as_posix()


def test_localhost(windows):
    assert local_path("file://localhost/C:/a%20b") == "C:/a b"


def test_absolute_paths_have_forward_slashes(windows, monkeypatch):
    monkeypatch.setattr(source.os.path, "abspath", lambda path: f"C:\\scans\\{path}")
    assert absolute("a.tif") == "C:/scans/a.tif"
    assert folder_of("a.tif") == "C:/scans"


@pytest.mark.parametrize("path", ["/scans/a.tif", "/a b#c%20", "/C:/x", "/odd\\name"])
def test_paths_elsewhere(path):
    """A backslash is part of a name, and so is a colon."""
    assert local_path(path) == as_url(path) == path
    assert local_path(file_url(path)) == path
    assert PurePosixPath(path).as_uri() == file_url(path)
    assert is_absolute(path)
    assert not is_absolute("C:/x")
