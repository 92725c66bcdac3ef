"""Files that differ only in compression, read back by rasterio and tifffile."""

import imagecodecs
import numpy as np
import pytest
import rasterio
import tifffile
import xarray

import anychunk
from anychunk.errors import FormatError, UnsupportedError
from tests.support.combined_files import write_geotiff

KINDS = {
    "none": {},
    "zlib": {"compression": "zlib"},
    "predicted": {"compression": "zlib", "predictor": True},
    "zstd": {"compression": "zstd"},
    "lzw": {"compression": "lzw"},
    "big": {"compression": "zlib", "byteorder": ">"},
}
VALUES = np.random.default_rng(4).integers(0, 4000, (len(KINDS), 40, 56), dtype="uint16")


@pytest.fixture
def files(tmp_path):
    """Files with partial tiles at both edges."""
    paths = []
    for number, options in enumerate(KINDS.values()):
        paths.append(str(tmp_path / f"{number}.tif"))
        tifffile.imwrite(paths[-1], VALUES[number], tile=(16, 16), metadata=None, **options)
    return paths


def read(node):
    return anychunk.open(node)["0/0/image"][...]


def test_stacks(files):
    truth = np.stack([tifffile.imread(path) for path in files])
    node = anychunk.index(files, combine="stack")
    np.testing.assert_array_equal(read(node), truth)
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][2:5, 30:, 11], truth[2:5, 30:, 11])  # fmt: skip
    # all in one part, and in the other order
    indexes = {path: anychunk.index(path) for path in reversed(files)}
    np.testing.assert_array_equal(read(anychunk.combine.combine(indexes, "stack")), truth[::-1])
    choices = node["0/0/image"].codecs[0]["configuration"]["choices"]
    assert len(choices) < len(files) + 1
    bands = anychunk.index(files[:2], combine="stack", along="c")
    np.testing.assert_array_equal(read(bands), truth[:2])


def test_dates_sort_them_too(files):
    dates = [f"2024-01-0{day}" for day in (3, 1, 2, 6, 5, 4)]
    node = anychunk.index(files, combine="stack", dates=dates)
    np.testing.assert_array_equal(read(node), VALUES[np.argsort(dates)])
    found = xarray.open_dataset(node, engine="anychunk")["image"]
    np.testing.assert_array_equal(found.sel(t="2024-01-06"), VALUES[3])


def test_saved_copies_and_refusals(files, tmp_path):
    node = anychunk.index(files, combine="stack")
    for target in ("a.json", "a.parquet", "a.icechunk"):
        message = r"chunks are compressed in different ways, which .* save with copy=.needed"
        with pytest.raises(UnsupportedError, match=message):
            node.save(tmp_path / target)
        node.save(tmp_path / target, copy="needed")
        np.testing.assert_array_equal(read(tmp_path / target), VALUES)
    anychunk.append(files[1], tmp_path / "b.icechunk", combine="stack")
    message = r"0/0/image: compression anychunk.tiff-tile \(LZW\), expected numcodecs.zlib as in the repository"
    with pytest.raises(FormatError, match=message):
        anychunk.append(files[4], tmp_path / "b.icechunk", combine="stack")


def test_concatenation_and_mosaic(tmp_path):
    values = np.random.default_rng(6).integers(0, 255, (64, 128), dtype="uint8")
    paths = [
        write_geotiff(tmp_path / f"{n}.tif", values[:, 64 * n : 64 * n + 64], 640 * n, 1000, compress=c)
        for n, c in enumerate(("deflate", "lzw"))
    ]  # fmt: skip
    truth = np.concatenate([rasterio.open(path).read(1) for path in paths], axis=1)
    for options in ({"combine": "concat", "along": "x"}, {"combine": "mosaic"}):
        np.testing.assert_array_equal(read(anychunk.index(paths, **options)), truth)


def test_what_else_differs_is_refused(files, tmp_path):
    tifffile.imwrite(tmp_path / "other.tif", VALUES[0], tile=(32, 32), compression="zlib")
    with pytest.raises(FormatError, match=r"other.tif 0/0: chunk shape \(1, 32, 32\), expected"):
        anychunk.index([files[0], str(tmp_path / "other.tif")], combine="stack")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_bytes_behind_a_stream_are_ignored_as_in_one_file(tmp_path):
    """Writers may round the lengths of tiles up; GDAL and we read them alike."""
    values = np.arange(64 * 48, dtype="uint16").reshape(64, 48)
    encode = {"zlib": imagecodecs.zlib_encode, "zstd": imagecodecs.zstd_encode}
    paths = []
    for name, function in encode.items():
        tiles = [
            bytes(function(values[y : y + 16, x : x + 16].tobytes())) + bytes(5)
            for y in range(0, 64, 16)
            for x in range(0, 48, 16)
        ]
        paths.append(str(tmp_path / f"{name}.tif"))
        tifffile.imwrite(
            paths[-1], iter(tiles), shape=values.shape, dtype=values.dtype, tile=(16, 16),
            compression=name, metadata=None,
        )  # fmt: skip
        with rasterio.open(paths[-1]) as file:
            np.testing.assert_array_equal(file.read(1), values)
    node = anychunk.index(paths, combine="stack", dates=False)
    assert node["0/0/image"].codecs[0]["name"] == "anychunk.choice"
    np.testing.assert_array_equal(read(node), [values, values])
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][1, 20:30, 5:20], values[20:30, 5:20])  # fmt: skip
