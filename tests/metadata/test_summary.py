"""`repr` of an index, a group and an array: a summary whose length does not depend on the file's."""

import pickle
import shutil

import numpy as np
import pytest
import rasterio
import tifffile
import zarr
from rasterio import Affine

import anychunk
from anychunk.metadata.summary import short, size
from anychunk.model.index import ArrayIndex, ByteRanges
from tests.support.http_server import serve


@pytest.fixture
def files(tmp_path):
    """Return 20 files of three channels, with much metadata."""
    made = []
    for number in range(20):
        made.append(tmp_path / f"scene-{number:02}.ome.tif")
        data = np.full((3, 64, 64), number, "uint16")
        tifffile.imwrite(made[-1], data, tile=(16, 16), metadata={"axes": "CYX"})
    return made


@pytest.mark.parametrize("combine", ["stack", "group"])
def test_of_twenty_files(files, combine):
    text = repr(anychunk.index(files, combine=combine))
    assert len(text) < 2000
    assert "uint16" in text
    assert "16 x 16" in text
    assert len(text.splitlines()) <= 12


def test_names_format_size_images_and_levels(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        out.write(np.zeros((64, 96), "uint8"), tile=(32, 32), subifds=1)
        out.write(np.zeros((32, 48), "uint8"), tile=(32, 32), subfiletype=1)
        out.write(np.zeros((10, 20, 3), "uint16"))
    size_of_file = (tmp_path / "a.tif").stat().st_size
    head, first, second = repr(anychunk.index(tmp_path / "a.tif")).splitlines()
    assert f"{tmp_path}/a.tif, tiff, {size_of_file / 1024:.1f} KiB: 2 images" in head
    assert "0: (y x) 64 x 96 uint8, chunks 32 x 32, 2 levels" in first
    assert "1: (c y x) 3 x 10 x 20 uint16" in second


def test_of_an_array():
    chunks = ByteRanges(
        offsets=np.zeros((1000, 1000), np.uint64),
        lengths=np.ones((1000, 1000), np.uint64),
        urls=("a" * 10_000,),
    )
    array = ArrayIndex(
        shape=(1000, 1000),
        chunk_shape=(1, 1),
        data_type={"name": "numpy.datetime64", "configuration": {"unit": "s"}},
        codecs=(),
        chunks=chunks,
        dimension_names=("y", None),
    )
    assert repr(array) == "<ArrayIndex: (y -) 1000 x 1000 numpy.datetime64, chunks 1 x 1>"


def test_names_of_files_are_printable_and_short(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    name = "x\x1b[31m" + "y" * 200
    group.create_array(name, shape=(2, 2), chunks=(2, 2), dtype="uint8")
    text = repr(anychunk.index(tmp_path / "a.zarr"))
    assert "\x1b" not in text
    assert all(len(line) < 300 for line in text.splitlines())


@pytest.mark.processes
def test_asks_no_server(tmp_path):
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_array(
        "b", shape=(2, 2), chunks=(2, 2), dtype="uint8"
    )
    with serve(tmp_path) as served:
        index = anychunk.index(f"{served.url}/a.zarr")
        before = len(served.requests)
        assert "on demand" in repr(index)
        assert len(served.requests) == before


def test_size_and_short():
    assert [size(n) for n in (0, 1023, 1024, 3 << 30, 1 << 70)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 GiB",
        f"{2**20:.1f} PiB",
    ]
    assert short("a\nb") == "a\N{REPLACEMENT CHARACTER}b"
    assert short("x" * 50 + "end", 21) == "x" * 10 + "…" + "x" * 7 + "end"


@pytest.fixture
def placed(tmp_path):
    """Return a GeoTIFF with a coarser level, by GDAL."""
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "count": 3, "height": 64, "width": 96, "dtype": "uint8"}
    with rasterio.open(
        path, "w", crs="EPSG:32611", transform=Affine(10, 0, 500, 0, -10, 900),
        tiled=True, blockxsize=32, blockysize=32, interleave="pixel", **profile,
    ) as out:  # fmt: skip
        out.write(np.zeros((3, 64, 96), "uint8"))
        out.build_overviews([2])
    return path


def test_of_groups_and_arrays(placed):
    group = anychunk.open(placed)
    head, image = repr(group).splitlines()
    assert head.startswith(f"<Group {placed}, tiff, ")
    facts = "(c y x) 3 x 64 x 96 uint8, chunks 3 x 32 x 32, 2 levels, EPSG:32611>"
    assert image == f"  0: {facts}"
    assert repr(group["0"]).splitlines() == [f"<Group {placed} 0: 1 image", f"  /: {facts}"]
    coarse = "(c y x) 3 x 32 x 48 uint8, chunks 3 x 128 x 128, level 1 of 2, EPSG:32611>"
    assert repr(group.image(0, level=1)) == f"<Array {placed} 0/1/image: {coarse}"
    assert repr(group["0/0/x"]) == f"<Array {placed} 0/0/x: (x) 96 float64, chunks 96, EPSG:32611>"
    assert repr(pickle.loads(pickle.dumps(group))) == repr(group)
    assert repr(group.images[0]) == f"<Image 0: {facts}"


def test_of_the_combined(placed):
    other = shutil.copy(placed, placed.with_name("b.tif"))
    group = anychunk.open_group([placed, other], combine="stack", along="z")
    assert repr(group).splitlines()[0] == "<Group tiff: 1 image"
    assert repr(group["0/0/image"]).startswith("<Array 0/0/image: (c z y x) 3 x 2 x 64 x 96 uint8")
