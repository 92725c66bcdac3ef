"""No file stays open behind an index or an error until the garbage collector runs."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError
from tests.support.nitf_writer import Image, nitf

FOLDER = Path("/proc/self/fd")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="open files are counted in Linux alone")
DATA = np.arange(4096, dtype="uint8").reshape(1, 64, 64)


def whole(name, path):
    if name == "nitf":
        path.write_bytes(nitf([Image(DATA)]))
    else:
        tifffile.imwrite(path, DATA, tile=(16, 16), ome=name == "ome", photometric="minisblack")


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def opened(path):
    return sum(os.path.realpath(link) == str(path) for link in FOLDER.iterdir())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", ["nitf", "tiff", "ome"])
@pytest.mark.parametrize("kept", [1.0, 0.5, 0.1])
def test_files_are_closed(tmp_path, name, kept):
    path = tmp_path.resolve() / "a"
    whole(name, path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    for _ in range(3):
        try:
            group = anychunk.open(path)
            for _, array in group.members(max_depth=None):
                if hasattr(array, "shape"):
                    array[...]
            del group, array
        except AnychunkError:
            assert kept < 1
    # one is kept for the next reader
    assert opened(path) <= 1
