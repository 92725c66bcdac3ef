"""Bands without stated colours: everyone who draws them does it as QGIS, GDAL and rio-tiler do.

Three or more bands are red, green and blue of the first three, each between its own limits. Of two
bands, the first is grey. The painter below shares only the percentiles with ours.
"""

import warnings

import numpy as np
import pytest
import rasterio
import tifffile
from ome_zarr_models.common.omero import Omero
from ome_zarr_models.v05.image import ImageAttrs
from rasterio.enums import ColorInterp
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.conversion import convert
from anychunk.thumbnail import thumbnail
from anychunk_plugins.napari import get_reader
from tests.support.serving import picture

pytestmark = pytest.mark.processes


THUMBNAIL, SAMPLES = (2, 98), (0.5, 99.5)
"""The percentiles of thumbnails, and of display ranges that are found once for an image."""
PLANES = [
    np.random.default_rng(n).integers(20 * n, 20 * n + 30 + 20 * n, (60, 80)) for n in range(5)
]
COLOURS = ["FF0000", "00FF00", "0000FF"]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def write(path, count, dtype="uint16", *, colours=None, planes=PLANES):
    """Write bands with different ranges as GDAL does by default; return what GDAL reads."""
    profile = {"driver": "GTiff", "height": 60, "width": 80, "count": count, "dtype": dtype}
    if dtype == "uint8":
        profile["photometric"] = "minisblack"
    with rasterio.open(path, "w", **profile) as file:
        if colours is not None:
            file.colorinterp = colours
        file.write(np.stack(planes[:count]).astype(dtype))
    with rasterio.open(path) as file:
        return file.read()


def painted(planes, percentiles):
    """Return (y, x, band) as bytes, each band between its own percentiles; 8 bits as stored."""
    found = []
    for plane in planes:
        low, high = (0, 255) if plane.dtype == "uint8" else np.percentile(plane, percentiles)
        found.append(np.floor(255 * np.clip((plane - low) / (high - low), 0, 1) + 0.5))
    return np.stack(found, axis=-1).astype("uint8")


def by_omero(planes, attributes):
    """Return the sum of the active channels, as viewers of OME-Zarr draw them."""
    ImageAttrs.model_validate(attributes["ome"])
    omero = Omero.model_validate(attributes["ome"]["omero"])
    found = np.zeros((*planes[0].shape, 3))
    for plane, channel in zip(planes, omero.channels, strict=True):
        if channel.active:
            low, high = channel.window.start, channel.window.end
            colour = np.frombuffer(bytes.fromhex(channel.color), np.uint8) / 255
            found += np.clip((plane - low) / (high - low), 0, 1)[..., None] * colour
    return np.floor(255 * np.clip(found, 0, 1) + 0.5).astype("uint8")


def by_napari(path):
    """Return the visible layers of napari, which show colours or shades of grey."""
    shown = [layer for layer in get_reader(str(path))(str(path)) if layer[1].get("visible", True)]
    ((levels, given, _),) = shown
    data = np.asarray(levels[0] if isinstance(levels, list) else levels)
    if given.get("rgb"):
        return data
    assert given["colormap"] == "gray"
    low, high = given["contrast_limits"]
    grey = np.floor(255 * np.clip((data - low) / (high - low), 0, 1) + 0.5)
    return np.repeat(grey.astype("uint8")[..., None], 3, axis=2)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_everyone_draws_the_same(client_of, tmp_path, count, dtype):
    path = tmp_path / "a.tif"
    planes = write(path, count, dtype)
    shown = planes[:3] if count >= 3 else planes[[0, 0, 0]]
    found = thumbnail(anychunk.index(path), size=80)
    expected = painted(shown, THUMBNAIL)
    np.testing.assert_array_equal(found, expected if count >= 3 else expected[..., 0])
    expected = painted(shown, SAMPLES)
    np.testing.assert_array_equal(by_napari(path), expected)
    np.testing.assert_array_equal(picture(client_of, path)[..., :3], expected)
    client = client_of(path)
    served = client.get("/zarr/a.tif/0/zarr.json").json()["attributes"]
    np.testing.assert_array_equal(by_omero(planes, served), expected)
    assert served["anychunk.display"]["model"] == ("rgb" if count >= 3 else "grey")
    # a conversion looks for display ranges, too
    convert(path, tmp_path / "a.zarr")
    stored = anychunk.open(tmp_path / "a.zarr").attrs
    np.testing.assert_array_equal(by_omero(planes, stored), expected)
    np.testing.assert_array_equal(by_napari(tmp_path / "a.zarr"), expected)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_channels_of_an_index(tmp_path, count):
    """Colours are in the index itself, without a server."""
    write(tmp_path / "a.tif", count)
    omero = anychunk.open(tmp_path / "a.tif")["0"].attrs["ome"]["omero"]
    shown = COLOURS if count >= 3 else ["FFFFFF"]
    assert [c["color"] for c in omero["channels"]] == [*shown, *["FFFFFF"] * (count - len(shown))]
    assert [c["active"] for c in omero["channels"]] == [n < len(shown) for n in range(count)]
    assert omero["rdefs"]["model"] == ("color" if count >= 3 else "greyscale")


def test_stated_colours_of_bands_are_kept(client_of, tmp_path):
    """Blue, green, red and near infrared, as GDAL writes them with 16 bits."""
    path = tmp_path / "a.tif"
    colours = [ColorInterp.blue, ColorInterp.green, ColorInterp.red, ColorInterp.undefined]
    planes = write(path, 4, colours=colours)
    expected = painted(planes[[2, 1, 0]], THUMBNAIL)
    np.testing.assert_array_equal(thumbnail(anychunk.index(path), size=80), expected)
    expected = painted(planes[[2, 1, 0]], SAMPLES)
    np.testing.assert_array_equal(by_napari(path), expected)
    np.testing.assert_array_equal(picture(client_of, path)[..., :3], expected)
    served = client_of(path).get("/zarr/a.tif/0/zarr.json").json()["attributes"]
    np.testing.assert_array_equal(by_omero(planes, served), expected)


def test_opacity_beside_bands_without_colours(client_of, tmp_path):
    path = tmp_path / "a.tif"
    colours = [ColorInterp.gray, ColorInterp.undefined, ColorInterp.undefined, ColorInterp.alpha]
    opaque = np.full((60, 80), 65535)
    planes = write(path, 4, colours=colours, planes=[*PLANES[:3], opaque])
    found = thumbnail(anychunk.index(path), size=80)
    assert (found[..., 3] == 255).all()
    np.testing.assert_array_equal(found[..., :3], painted(planes[:3], THUMBNAIL))
    expected = np.dstack([painted(planes[:3], SAMPLES), opaque // 257])
    np.testing.assert_array_equal(by_napari(path), expected)
    np.testing.assert_array_equal(picture(client_of, path), expected)


@pytest.mark.parametrize("dates", [None, "named"])
def test_files_of_microscopes_are_added_up(client_of, tmp_path, dates):
    """Channels of OME, with and without names."""
    data = np.stack(PLANES[:2]).astype("uint16")
    channel = {"Channel": {"Name": ["DAPI", "GFP"]}} if dates else {}
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, data, metadata={"axes": "CYX", **channel}, photometric="minisblack")
    served = client_of(path).get("/zarr/a.ome.tif/0/zarr.json").json()["attributes"]
    channels = served["ome"]["omero"]["channels"]
    assert [(c["color"], c["active"]) for c in channels] == [("0000FF", True), ("00FF00", True)]
    layers = get_reader(str(path))(str(path))
    assert [given["blending"] for _, given, _ in layers] == ["additive"] * 2
