"""Tables of code-blocks, which outlive an array: each is used for the file that it was made from."""

import io
import os
import zipfile
from itertools import count

import fsspec
import imagecodecs
import numpy as np
import pytest
import tifffile
from obstore.store import MemoryStore

import anychunk
from anychunk.formats import _jpeg2000
from tests.support.http_server import serve

OPTIONS = {"level": 0, "codecformat": "J2K", "reversible": True}
SHAPE = (304, 304)
WINDOW = np.s_[30:80, 100:150]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Divide tiles of more than 64 x 64, so that small images have windows."""
    monkeypatch.setattr(_jpeg2000, "SIDE", 64)
    monkeypatch.setattr(_jpeg2000, "SMALLEST", 32)
    monkeypatch.setattr("anychunk.codecs.chain.LEAST_PART", 1 << 14)


def codestream(image):
    return imagecodecs.jpeg2k_encode(image, **OPTIONS)


def tiff(image):
    """Return a TIFF file of one JPEG 2000 tile."""
    file = io.BytesIO()
    tifffile.imwrite(file, image, tile=SHAPE, compression="jpeg2000", compressionargs=OPTIONS)
    return file.getvalue()


def equally_long(encode):
    """Return two images, each with its file; the files have the same length and headers."""
    found = {}
    for seed in count():
        image = np.random.default_rng(seed).integers(0, 256, SHAPE, np.uint8)
        data = encode(image)
        if len(data) in found:
            return [found[len(data)], (image, data)]
        found[len(data)] = image, data
    raise AssertionError


def check(url, image, **options):
    array = anychunk.open_array(url, **options)
    np.testing.assert_array_equal(array[WINDOW], image[WINDOW])


@pytest.mark.parametrize("encode", [codestream, tiff])
def test_members_of_one_name_in_two_archives(tmp_path, encode):
    for number, (image, data) in enumerate(equally_long(encode)):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo("a"), data)
        with path.open("rb") as file:
            check("zip://a", image, storage=fsspec.filesystem("zip", fo=file))


@pytest.mark.parametrize("encode", [codestream, tiff])
def test_objects_of_one_name_in_two_stores(encode):
    """Stores in memory number the versions of an object as etags."""
    for image, data in equally_long(encode):
        store = MemoryStore()
        store.put("a", data)
        check("s3://bucket/a", image, storage={"resolve": lambda url, store=store: (store, "a")})


@pytest.mark.parametrize("encode", [codestream, tiff])
def test_an_object_without_a_version_is_replaced(encode):
    files = fsspec.filesystem("memory")
    for image, data in equally_long(encode):
        files.pipe_file("/replaced", data)
        files.store["/replaced"].modified = None
        check("memory://replaced", image, storage=files)
    files.rm("/replaced")


@pytest.mark.processes
@pytest.mark.parametrize("encode", [codestream, tiff])
def test_a_url_without_etag_is_replaced(tmp_path, encode):
    with serve(tmp_path) as served:
        served.has_etags = False
        for image, data in equally_long(encode):
            (tmp_path / "a").write_bytes(data)
            os.utime(tmp_path / "a", (0, 0))
            check(f"{served.url}/a", image)


@pytest.mark.processes
def test_a_table_is_shared_by_all_who_open_the_same_version(tmp_path):
    [(image, data), _] = equally_long(codestream)
    (tmp_path / "a").write_bytes(data)
    with serve(tmp_path) as served:
        check(f"{served.url}/a", image)
        first = len(served.requests)
        check(f"{served.url}/a", image)
        assert len(served.requests) - first < first
