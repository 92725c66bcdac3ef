"""TIFF through the web, and through readers that know nothing of anychunk."""

import numpy as np
import pytest
import tensorstore
import tifffile
import zarr

import anychunk
from anychunk import limits
from anychunk.codecs import TiffTile
from anychunk.io.block_cache import Blocks
from anychunk.zarr.store import IndexStore
from tests.support.http_server import serve

FIELD = np.random.default_rng(0).integers(0, 999, (512, 512)).astype("uint16")


@pytest.fixture
def cog(tmp_path):
    """A COG with two overviews, its directories in front, as GDAL writes it."""
    import rasterio
    from rasterio.enums import Resampling
    from rasterio.shutil import copy

    options = {"driver": "GTiff", "width": 2048, "height": 2048, "count": 1, "dtype": "uint16",
               "tiled": True, "blockxsize": 256, "blockysize": 256, "crs": "EPSG:32633",
               "transform": rasterio.Affine(10, 0, 500000, 0, -10, 5000000)}  # fmt: skip
    field = np.tile(FIELD, (4, 4))
    plain = tmp_path / "plain.tif"
    with rasterio.open(plain, "w", **options) as dataset:
        dataset.write(field, 1)
        dataset.build_overviews([2, 4], Resampling.nearest)
    path = tmp_path / "cog.tif"
    copy(plain, path, driver="COG", compress="deflate", predictor="yes", blocksize=256)
    return path, field


@pytest.mark.processes
def test_cog_over_http(cog):
    path, field = cog
    with serve(path.parent) as served:
        group = anychunk.open(f"{served.url}/{path.name}")
        assert len(served.requests) <= 2
        image = group["0"]
        assert image.attrs["proj:code"] == "EPSG:32633"
        assert sorted(image)[:3] == ["0", "1", "2"]
        served.requests.clear()
        # one row of tiles lies in one run
        level = image["0/image"]
        np.testing.assert_array_equal(level[:256], field[:256])
        assert len(served.requests) == 1
        served.requests.clear()
        np.testing.assert_array_equal(level[300:310, 300:310], field[300:310, 300:310])
        assert len(served.requests) == 1
        np.testing.assert_array_equal(level[...], field)


@pytest.mark.processes
def test_many_directories_far_apart_are_fetched_once(tmp_path, monkeypatch):
    """More of them than there are blocks: tifffile and we read each several times."""
    values = np.arange(40 * 96 * 96 * 3, dtype="uint32").astype("uint8").reshape(40, 96, 96, 3)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for value in values:
            file.write(value, photometric="rgb", contiguous=False, metadata=None)
    monkeypatch.setitem(Blocks.__init__.__kwdefaults__, "most", 8)
    monkeypatch.setitem(Blocks.__init__.__kwdefaults__, "block", 16 << 10)
    with serve(tmp_path) as served, limits.override(head_bytes=4096):
        node = anychunk.index(f"{served.url}/a.tif")
        assert len(served.requests) <= len(values) + 4
        found = anychunk.open(node)["0/0/image"]
        np.testing.assert_array_equal(np.moveaxis(found[...], 0, -1), values)


PORTABLE = {
    "uncompressed tiles": {"tile": (64, 64)},
    "uncompressed strips": {"rowsperstrip": 7},
    "big-endian": {"byteorder": ">"},
    "zstd": {"tile": (64, 64), "compression": "zstd"},
}


def exported(path, folder):
    """Write what the store serves to a folder: metadata and chunks, nothing of ours."""
    store = IndexStore(anychunk.index(path))

    async def copy():
        return [(key, await store.get(key, zarr.core.buffer.default_buffer_prototype()))
                async for key in store.list()]  # fmt: skip

    for key, value in zarr.core.sync.sync(copy()):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(value.to_bytes())


@pytest.mark.parametrize("options", PORTABLE.values(), ids=PORTABLE)
@pytest.mark.parametrize("bands", [1, 3])
def test_portable_arrays_open_without_anychunk(tmp_path, options, bands):
    array = FIELD if bands == 1 else np.stack([FIELD, FIELD + 1, FIELD * 2], -1)
    expected = array if bands == 1 else np.moveaxis(array, -1, 0)
    path, folder = tmp_path / "a.tif", tmp_path / "out"
    tifffile.imwrite(path, array, metadata=None, **options)
    names = [c["name"] for c in anychunk.index(path)["0/0/image"].codecs]
    assert set(names) <= {"transpose", "bytes", "zstd"}
    exported(path, folder)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/0/0/image/"}}
    found = tensorstore.open(spec, read=True).result().read().result()
    np.testing.assert_array_equal(found, expected)
    read = zarr.open_array(f"{folder}/0/0/image", mode="r")
    assert all(type(c).__module__.startswith("zarr.") for c in read.metadata.codecs)
    np.testing.assert_array_equal(read[...], expected)


def test_strips_without_gaps_are_cut_evenly(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.tile(FIELD, (4, 4)), rowsperstrip=1, metadata=None)
    array = anychunk.index(path)["0/0/image"]
    assert array.chunk_shape == (256, 2048)
    assert array.chunks.nbytes <= 32 * array.chunks.offsets.size


def test_other_compressions_are_tiff_tile(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, FIELD, tile=(128, 128), compression="lzw", predictor=2)
    codec = anychunk.index(path)["0/0/image"].codecs[-1]
    assert codec["name"] == TiffTile.name
    # only what the bytes need stands there
    assert codec["configuration"] == {
        "compression": 5, "bits_per_sample": 16, "predictor": 2, "tile_width": 128,
        "tile_height": 128, "last_height": 128, "last_width": 128,
    }  # fmt: skip
