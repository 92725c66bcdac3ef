"""TIFF files that GDAL writes, read as GDAL reads them: what tifffile does not read, or not right."""

import imagecodecs
import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.errors import ChunkDecodeError

HEIGHT, WIDTH = 45, 71
QUIET = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")


def field(bands, dtype="float64"):
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).normal(0, 2, (bands, HEIGHT, WIDTH))
    waves = np.stack([np.sin(y / 9 + i) * 50 + np.cos(x / 7) * 50 + 110 for i in range(bands)])
    return (waves + noise).astype(dtype)


def write(path, array, *, dtype=None, **options):
    """Write with GDAL; give what it reads back."""
    shape = {"count": len(array), "height": array.shape[1], "width": array.shape[2]}
    with rasterio.open(
        path, "w", "GTiff", dtype=dtype or array.dtype.name, **shape, **options
    ) as f:
        f.write(array)
    with rasterio.open(path) as f:
        return f.read()


@QUIET
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("dtype", ["complex_int16", "complex64"])
def test_complex_samples_with_a_predictor(tmp_path, dtype, interleave, order):
    parts = field(4).round()
    array = (parts[:2] + 1j * (parts[2:] - 300)).astype("complex64")
    options = {"compress": "lzw", "predictor": 2, "interleave": interleave, "ENDIANNESS": order}
    expected = write(tmp_path / "a.tif", array, dtype=dtype, **options)
    np.testing.assert_array_equal(expected, array)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array)


@QUIET
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_lerc_in_a_big_endian_file(tmp_path, dtype, interleave):
    array = field(2, dtype)
    options = {"compress": "lerc_zstd", "interleave": interleave, "ENDIANNESS": "BIG"}
    np.testing.assert_array_equal(write(tmp_path / "a.tif", array, **options), array)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array)


@QUIET
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_that_lerc_loses_in_a_big_endian_file(tmp_path, dtype):
    """LERC gets swapped samples from libtiff, and masks those that look like NaN then."""
    options = {"compress": "lerc", "ENDIANNESS": "BIG", "tiled": True}
    options |= {"blockxsize": 32, "blockysize": 32}
    array = np.full((1, 32, 64), 3.5, dtype)
    size = array.itemsize
    lost = np.frombuffer(b"\x41" + bytes(size - 3) + b"\xf1\x7f", f">f{size}")[0]
    array[0, 5, 40] = lost
    array[0, 5, 3] = np.nan  # whose swapped bytes are a number
    read = write(tmp_path / "a.tif", array, **options)
    np.testing.assert_array_equal(read[..., :32], array[..., :32])
    assert read[0, 5, 40] != lost
    ours = anychunk.open_array(tmp_path / "a.tif")
    np.testing.assert_array_equal(ours[:, :32], array[0, :, :32])
    with pytest.raises(ChunkDecodeError, match="1 samples are lost"):
        ours[...]


@QUIET
@pytest.mark.parametrize("second", [None, "deflate", "zstd"])
def test_lerc_with_reversed_bits(tmp_path, second):
    """FillOrder 2, as `tiffcp -f lsb2msb` writes it: libtiff reverses the bits of LERC, too."""
    path = tmp_path / "a.tif"
    array = np.linspace(0, 1000, 40 * 50).reshape(40, 50).astype("uint16")
    tifffile.imwrite(
        path, array, tile=(16, 32), compression="lerc", extratags=[(263, 3, 1, 2, True)],
        compressionargs={"compression": second} if second else {}, byteorder="<",
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        # tifffile does not write FillOrder: another tag becomes it
        data[page.tags[263].offset : page.tags[263].offset + 2] = (266).to_bytes(2, "little")
        for start, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            data[start : start + count] = imagecodecs.bitorder_encode(
                bytes(data[start : start + count])
            )
    path.write_bytes(data)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(1), array)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], array)


@QUIET
@pytest.mark.parametrize("compress", ["lerc", "lerc_deflate"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_lerc_with_bands_that_are_valid_in_different_places(tmp_path, interleave, compress):
    array = field(2, "float32")
    array[0, 5:20, 5:30] = np.nan
    array[1, 15:25, 5:70] = np.nan
    expected = write(tmp_path / "a.tif", array, compress=compress, interleave=interleave)
    np.testing.assert_array_equal(expected, array)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array)


@QUIET
@pytest.mark.parametrize("bands", [2, 4])
def test_alpha_that_lerc_keeps_as_a_mask(tmp_path, bands):
    array = field(bands, "uint8")
    array[-1] = 255
    array[-1, :30] = 0
    array[:-1, :30] = 0
    options = {"photometric": "RGB"} if bands == 4 else {}
    expected = write(
        tmp_path / "a.tif", array, compress="lerc", alpha="YES", interleave="pixel", blockysize=16,
        **options,
    )  # fmt: skip
    np.testing.assert_array_equal(expected, array)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array)


@QUIET
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_integers_of_24_bits(tmp_path, interleave, order):
    array = (field(3) * 60000).astype("uint32")
    options = {"nbits": 24, "compress": "lzw", "interleave": interleave, "ENDIANNESS": order}
    np.testing.assert_array_equal(write(tmp_path / "a.tif", array, **options), array)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array)


@QUIET
def test_three_bands_that_are_no_colours_are_not_taken_for_ycbcr(tmp_path):
    array = field(3, "uint8")
    options = {"compress": "jpeg", "jpeg_quality": 95, "interleave": "pixel"}
    expected = write(tmp_path / "a.tif", array, photometric="MINISBLACK", **options)
    assert np.abs(expected.astype(int) - array).max() < 10
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], expected)
