"""Pairs of I and Q bands as complex numbers, against GDAL."""

import numpy as np
import pytest
import rasterio

import anychunk
from anychunk.formats.nitf import uncompressed
from tests.support.gdal import without_band
from tests.support.nitf_writer import Image, des_segment, nitf

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
RNG = np.random.default_rng(7)


def sicd(values, *, imode="P", categories=("I", "Q"), pixel="RE32F_IM32F", **options):
    """Return a NITF file as SICD has it: the image, and its XML in a data extension segment."""
    image = Image(values, imode=imode, irep="NODISPLY", icat="SAR", isubcat=categories, **options)
    xml = f"<SICD xmlns='urn:SICD:1.3.0'><PixelType>{pixel}</PixelType></SICD>".encode()
    return nitf([image], des=[des_segment("XML_DATA_CONTENT", xml)])


def samples(dtype, shape=(2, 21, 30)):
    if np.dtype(dtype).kind == "f":
        return RNG.normal(size=shape).astype(dtype)
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def gdal(path):
    with rasterio.open(path) as opened:
        return without_band(opened.read())


@pytest.mark.parametrize("block", [None, (8, 16)])
@pytest.mark.parametrize("imode", "PBRS")
@pytest.mark.parametrize(
    ("dtype", "expected"), [("f4", "complex64"), ("i2", "complex64"), ("f8", "complex128")]
)
@pytest.mark.parametrize("bands", [2, 4])
def test_equals_gdal(tmp_path, dtype, expected, imode, block, bands):
    values = samples(dtype, (bands, 21, 30))
    file = tmp_path / "a.ntf"
    file.write_bytes(sicd(values, imode=imode, block=block, categories=("I", "Q") * (bands // 2)))
    found = anychunk.open_array(file)
    assert found.dtype == expected
    np.testing.assert_array_equal(found[...], gdal(file))
    pairs = without_band(values[0::2] + 1j * values[1::2])
    np.testing.assert_array_equal(found[...], pairs)
    np.testing.assert_array_equal(found[..., 5:9, 11], pairs[..., 5:9, 11])
    apart = anychunk.open_array(file, complex_pairs=False)
    np.testing.assert_array_equal(apart[...], values)


@pytest.mark.parametrize("imode", "PBRS")
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_large_blocks_are_divided(tmp_path, monkeypatch, imode, dtype):
    """Groups of rows, and bands that would be chunks of their own: I and Q stay together."""
    monkeypatch.setattr(uncompressed, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(uncompressed, "BAND_BYTES", 100)
    values = samples(dtype, (2, 70, 64))
    (tmp_path / "a.ntf").write_bytes(sicd(values, imode=imode))
    found = anychunk.open_array(tmp_path / "a.ntf")
    if imode != "R":
        assert found.chunks[0] < 70
    np.testing.assert_array_equal(found[...], values[0] + 1j * values[1])


def test_integers_of_32_bits_stay_exact(tmp_path):
    """GDAL gives complex64, which rounds them."""
    values = samples("i4")
    (tmp_path / "a.ntf").write_bytes(sicd(values))
    found = anychunk.open_array(tmp_path / "a.ntf")[...]
    assert found.dtype == "complex128"
    np.testing.assert_array_equal(found, values[0] + 1j * values[1])
    np.testing.assert_array_equal(found.astype("complex64"), gdal(tmp_path / "a.ntf"))


@pytest.mark.parametrize(
    ("dtype", "categories", "icat"),
    [
        ("u1", ("M", "P"), "SAR"),  # AMP8I_PHS8I: amplitude and phase
        ("f4", ("M", "P"), "SAR"),
        ("f4", ("Q", "I"), "SAR"),
        ("f4", ("I", "Q"), "VIS"),
        ("f4", ("", ""), "SAR"),
        ("u2", ("I", "Q"), "SAR"),
        ("u1", ("I", "Q"), "SAR"),
    ],
)
def test_other_bands_stay_bands(tmp_path, dtype, categories, icat):
    """As in GDAL."""
    values = samples(dtype)
    image = Image(values, imode="P", icat=icat, isubcat=categories)
    (tmp_path / "a.ntf").write_bytes(nitf([image]))
    found = anychunk.open_array(tmp_path / "a.ntf")[...]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(found, gdal(tmp_path / "a.ntf"))


def test_saved_index(tmp_path):
    values = samples("i2")
    (tmp_path / "a.ntf").write_bytes(sicd(values, imode="S"))
    node = anychunk.index(tmp_path / "a.ntf")
    node.save(tmp_path / "index.json")
    found = anychunk.open_array(tmp_path / "index.json")[...]
    np.testing.assert_array_equal(found, values[0] + 1j * values[1])
    with pytest.raises(
        anychunk.errors.UnsupportedError, match="complex_pairs of anychunk.jbp-block"
    ):
        node.save(tmp_path / "osml.json", layout="osml")
