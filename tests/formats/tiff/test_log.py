"""Logarithmic luminance (SGILOG, LogLuv): coded by the formulas of its author, read by GDAL too.

Spec: Greg Ward Larson, LogLuv encoding for full-gamut, high-dynamic range images (1998).
"""

import numpy as np
import pytest
import rasterio

import anychunk
from anychunk.errors import ChunkDecodeError, UnsupportedError
from tests.formats.tiff.test_old_jpeg import put, tiff
from tests.support.gdal import without_band

LOG, LOG24, LOG_L, LOG_LUV = 34676, 34677, 32844, 32845
RNG = np.random.default_rng(12)


def run_lengths(row):
    """Code the byte planes of one row, most significant bytes first."""
    out = bytearray()
    for plane in row.view(np.uint8).reshape(len(row), -1).T.tolist():
        at = 0
        while at < len(plane):
            run = 1
            while at + run < len(plane) and plane[at + run] == plane[at] and run < 129:
                run += 1
            # 128 to 255: 2 to 129 times the next byte; below: as many bytes as they are
            out += bytes((126 + run, plane[at])) if run > 1 else bytes((1, plane[at]))
            at += run
    return bytes(out)


def codes(bits, shape=(21, 40)):
    found = RNG.integers(0, 1 << 15, shape)
    found[:, :9] = found[:, :1]
    if bits == 16:
        found[::3] |= 1 << 15  # the sign
        return found.astype(">u2")
    u, v = RNG.integers(60, 200, (2, *shape))
    return (found << 16 | u << 8 | v).astype(">u4")


def luminance(stored):
    number = stored.astype(int)
    value = np.exp2(((number & 0x7FFF) + 0.5) / 256 - 64)
    return np.where(number & 0x7FFF, np.where(number >> 15, -value, value), 0)


def xyz(stored):
    number = stored.astype(int)
    y = luminance(number >> 16)
    u, v = ((number >> 8 & 255) + 0.5) / 410, ((number & 255) + 0.5) / 410
    scale = 1 / (6 * u - 16 * v + 12)
    x_share, y_share = 9 * u * scale, 4 * v * scale
    return np.stack([x_share / y_share * y, y, (1 - x_share - y_share) / y_share * y])


def write(
    path, shape, parts, *, compression=LOG, bits=32, kind=3, rows=None, tile=None, photo=None
):
    bands = 3 if len(shape) == 3 else 1
    heap, offsets = put(b"", parts)
    height, width = shape[:2]
    tags = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * bands),
        259: (3, [compression]),
        262: (3, [photo or (LOG_L if bands == 1 else LOG_LUV)]),
        277: (3, [bands]),
        284: (3, [1]),
        339: (3, [kind] * bands),
        324 if tile else 273: (4, offsets),
        325 if tile else 279: (4, [len(part) for part in parts]),
    }
    tags |= {322: (4, [tile]), 323: (4, [tile])} if tile else {278: (4, [rows or height])}
    path.write_bytes(tiff(tags, heap))
    return path


def strips(stored, rows):
    coded = [run_lengths(row) for row in stored]
    return [b"".join(coded[i : i + rows]) for i in range(0, len(coded), rows)]


def by_gdal(path):
    with rasterio.open(path) as dataset:
        return without_band(dataset.read())


pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


@pytest.mark.parametrize("rows", [21, 8])
def test_luminance(tmp_path, rows):
    stored = codes(16)
    path = write(tmp_path / "y.tif", stored.shape, strips(stored, rows), rows=rows)
    found = anychunk.open(path)["0/0/image"][...]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, by_gdal(path))
    np.testing.assert_allclose(found, luminance(stored), rtol=1e-6)


@pytest.mark.parametrize("rows", [21, 8])
def test_colours(tmp_path, rows):
    stored = codes(32)
    path = write(tmp_path / "xyz.tif", (*stored.shape, 3), strips(stored, rows), rows=rows)
    found = anychunk.open(path)["0/0/image"][...]
    np.testing.assert_array_equal(found, by_gdal(path))
    np.testing.assert_allclose(found, xyz(stored), rtol=1e-4, atol=0)


def test_24_bits(tmp_path):
    stored = RNG.integers(0, 256, (6, 30, 3)).astype(np.uint8)
    stored[..., 0] |= 4  # 0 is no luminance
    path = write(tmp_path / "24.tif", stored.shape, [stored.tobytes()], compression=LOG24)
    found = anychunk.open(path)["0/0/image"][...]
    np.testing.assert_array_equal(found, by_gdal(path))
    number = stored[..., 0].astype(int) << 2 | stored[..., 1] >> 6
    np.testing.assert_allclose(found[1], np.exp2((number + 0.5) / 64 - 12), rtol=1e-4)


def test_tiles(tmp_path):
    stored = codes(16, (32, 48))
    tiles = [stored[i : i + 16, j : j + 16] for i in (0, 16) for j in (0, 16, 32)]
    parts = [strips(np.ascontiguousarray(tile), 16)[0] for tile in tiles]
    path = write(tmp_path / "t.tif", stored.shape, parts, tile=16)
    found = anychunk.open(path)["0/0/image"][...]
    np.testing.assert_array_equal(found, by_gdal(path))
    np.testing.assert_allclose(found, luminance(stored), rtol=1e-6)


@pytest.mark.parametrize(("bits", "kind"), [(16, 2), (8, 1)])
def test_bits_per_sample_do_not_change_the_values(tmp_path, bits, kind):
    """They say what the writer converted from. GDAL converts to them again."""
    stored = codes(32)
    path = write(tmp_path / "i.tif", (*stored.shape, 3), strips(stored, 21), bits=bits, kind=kind)
    found = anychunk.open(path)["0/0/image"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[...], xyz(stored), rtol=1e-4, atol=0)


def test_missing_data_is_an_error(tmp_path):
    stored = codes(32)
    (data,) = strips(stored, 21)
    path = write(tmp_path / "s.tif", (*stored.shape, 3), [data[: len(data) // 2]])
    with pytest.raises(ChunkDecodeError):
        anychunk.open(path)["0/0/image"][...]


@pytest.mark.parametrize("photo", [1, 2, LOG_L])
def test_other_colours_are_refused(tmp_path, photo):
    path = write(tmp_path / "p.tif", (4, 4, 3), [bytes(100)], photo=photo)
    with pytest.raises(UnsupportedError, match=f"34676.*\\b{photo}\\b"):
        anychunk.open(path)
