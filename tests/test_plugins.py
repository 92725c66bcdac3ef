"""Every codec and format is listed where it must be: says which line is missing."""

import importlib
import pkgutil
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import zarr

from anychunk import codecs, formats
from anychunk.codecs.base import ArrayToArray, ArrayToBytes, BytesToBytes

ROOT = Path(__file__).parents[1]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
SHARED = (
    "https://awslabs.github.io/osml-imagery-io/codecs/",
    "scale_offset",
    "cast_value",
    "n5_default",
)
"""Names that other packages register as well."""


def is_ours(cls):
    return isinstance(cls, type) and issubclass(cls, BytesToBytes | ArrayToArray | ArrayToBytes)


def declared_codecs():
    """Every codec class of the package, found by looking at the files."""
    for found in pkgutil.walk_packages(codecs.__path__, "anychunk.codecs."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if is_ours(value) and value.__module__ == module.__name__ and "name" in vars(value):
                yield value


def test_installed_metadata_is_the_files():
    for group, entries in POINTS.items():
        if group.startswith("anychunk."):
            assert {e.name: e.value for e in entry_points(group=group)} == entries, (
                "run: make setup"
            )


@pytest.mark.parametrize("cls", list(declared_codecs()), ids=lambda cls: cls.name)
def test_codec_is_listed(cls):
    line = f'"{cls.name}" = "{cls.__module__}:{cls.__qualname__}"'
    target = f"{cls.__module__}:{cls.__qualname__}"
    assert POINTS["anychunk.codecs"].get(cls.name) == target, f"add to anychunk.codecs: {line}"
    if not cls.name.startswith(SHARED):
        assert POINTS["zarr.codecs"].get(cls.name) == target, f"add to zarr.codecs: {line}"
    else:
        assert cls.name not in POINTS["zarr.codecs"], "zarr would warn users of the other package"


@pytest.mark.parametrize("name", codecs.table())
def test_codec_entry(name):
    cls = codecs.codec_class(name)
    assert is_ours(cls)
    assert cls.name == name
    for label in ("Spec:", "JSON:", "Lossless:"):
        assert label in __import__(cls.__module__, fromlist=["x"]).__doc__, label


@pytest.mark.parametrize("name", codecs.table())
def test_zarr_finds_the_codec(name):
    assert zarr.registry.get_codec_class(name).__name__ == codecs.codec_class(name).__name__


@pytest.mark.parametrize("name", formats.table())
def test_format_entry(name):
    module = formats.table()[name]
    assert isinstance(module, formats.Format | formats.FolderFormat)
    for label in ("Spec:", "Axes:", "Opened:", "Refused:"):
        assert label in module.__doc__, label


def test_every_format_file_is_listed():
    folder = ROOT / "src/anychunk/formats"
    files = {path.stem for path in folder.iterdir() if not path.name.startswith(("_", "."))}
    assert files == set(POINTS["anychunk.formats"])
