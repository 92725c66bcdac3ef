"""Thumbnails of served images."""

import numpy as np
import pytest
import rasterio
import tifffile

from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex
from anychunk_serve.box_reader import Caches, served_store
from anychunk_serve.chunks import Chunks
from anychunk_serve.hierarchy import served_tree
from anychunk_serve.thumbnails import ServedArray
from tests.support.serving import picture

pytestmark = pytest.mark.processes


def test_absent_pixels_are_fill_values(tmp_path):
    (tmp_path / "a").touch()
    nothing = np.zeros((1, 1), np.uint64)
    own = ArrayIndex(
        shape=(4, 4),
        chunk_shape=(4, 4),
        data_type="float32",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(offsets=nothing, lengths=nothing, urls=(str(tmp_path / "a"),)),
        fill_value="NaN",
        dimension_names=("y", "x"),
    )
    store = served_store(GroupIndex(members={"0": own}))
    chunks = Chunks(served_tree(store.index), store, caches=Caches(memory=1 << 20))
    array = chunks.array("0/image")
    assert np.isnan(ServedArray(chunks, "0/image", array)[0:2, 0:2]).all()


def opaque(colours):
    return np.dstack([colours, np.full(colours.shape[:2], 255)])


RNG = np.random.default_rng(1)
GREY = RNG.integers(0, 256, (60, 80), "uint8")


def test_a_photograph_of_8_bits_is_not_stretched(client_of, tmp_path):
    data = (GREY // 4 + 90).astype("uint8")
    tifffile.imwrite(tmp_path / "a.tif", data, photometric="minisblack")
    expected = opaque(np.repeat(data[..., None], 3, 2))
    assert np.array_equal(picture(client_of, tmp_path / "a.tif"), expected)


def test_min_is_white(client_of, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", GREY, photometric="miniswhite")
    expected = opaque(np.repeat(255 - GREY.astype(int)[..., None], 3, 2))
    assert np.array_equal(picture(client_of, tmp_path / "a.tif"), expected)


def test_palette(client_of, tmp_path):
    table = RNG.integers(0, 256, (3, 256)).astype("uint16") * 257
    tifffile.imwrite(tmp_path / "a.tif", GREY, photometric="palette", colormap=table)
    expected = opaque((table.T >> 8).astype(int)[GREY])
    assert np.array_equal(picture(client_of, tmp_path / "a.tif"), expected)


def test_cmyk(client_of, tmp_path):
    data = RNG.integers(0, 256, (60, 80, 4), "uint8")
    tifffile.imwrite(tmp_path / "a.tif", data, photometric="separated")
    inks, black = 255 - data[..., :3].astype(int), 255 - data[..., 3:].astype(int)
    # round half up or half to even are the same: 255 is odd, so that no half occurs
    expected = opaque((2 * inks * black + 255) // 510)
    assert np.array_equal(picture(client_of, tmp_path / "a.tif"), expected)


def test_unassociated_alpha(client_of, tmp_path):
    data = RNG.integers(1, 256, (60, 80, 4), "uint8")
    data[:20, :, 3], data[20:40, :, 3] = 0, 255
    tifffile.imwrite(tmp_path / "a.tif", data, photometric="rgb", extrasamples=["unassalpha"])
    found = picture(client_of, tmp_path / "a.tif")
    assert np.array_equal(found[20:], data[20:])
    assert not found[:20].any()


def test_mask_and_nodata(client_of, tmp_path):
    profile = {
        "driver": "GTiff",
        "width": 80,
        "height": 60,
        "dtype": "uint8",
        "compress": "deflate",
    }
    place = rasterio.transform.from_origin(0, 60, 1, 1)
    valid = RNG.integers(0, 2, (60, 80)).astype(bool)
    colours = RNG.integers(0, 256, (3, 60, 80), "uint8")
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(tmp_path / "m.tif", "w", count=3, transform=place, **profile) as out,
    ):
        out.write(colours)
        out.write_mask(valid)
    expected = np.where(valid[..., None], opaque(colours.transpose(1, 2, 0)), 0)
    assert np.array_equal(picture(client_of, tmp_path / "m.tif"), expected)
    with rasterio.open(
        tmp_path / "n.tif", "w", count=1, transform=place, nodata=7, **profile
    ) as out:
        out.write(np.where(valid, 100, 7).astype("uint8"), 1)
    expected = np.where(valid[..., None], (100, 100, 100, 255), 0)
    assert np.array_equal(picture(client_of, tmp_path / "n.tif"), expected)


def test_channels_have_their_colours(client_of, tmp_path):
    data = RNG.integers(0, 4000, (2, 60, 80), "uint16")
    metadata = {"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"], "Color": [65535, 16711935]}}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata=metadata, photometric="minisblack")
    client = client_of(tmp_path / "a.ome.tif")
    ome = client.get("/zarr/a.ome.tif/0/zarr.json").json()["attributes"]["ome"]
    channels = ome["omero"]["channels"]
    assert [channel["color"] for channel in channels] == ["0000FF", "00FF00"]
    scaled = []
    for plane, channel in zip(data, channels, strict=True):
        low, high = channel["window"]["start"], channel["window"]["end"]
        scaled.append(np.clip((plane - low) / (high - low), 0, 1))
    blue, green = (np.rint(plane * 255) for plane in scaled)
    expected = opaque(np.dstack([np.zeros_like(blue), green, blue]))
    assert np.array_equal(picture(client_of, tmp_path / "a.ome.tif"), expected)
