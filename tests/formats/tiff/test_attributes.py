"""What made TIFF files mean, rule by rule: nodata, axes, resolution, colours, texts."""

import numpy as np
import pytest
import rasterio
import tifffile
from PIL import Image

import anychunk
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images

SMALL = np.arange(60, dtype="uint8").reshape(6, 10)


@pytest.mark.parametrize(
    ("dtype", "text", "fill"),
    [("uint8", "7", 7), ("uint8", "-9999", 0), ("int16", "-9999", -9999), ("uint8", "7.5", 0),
     ("float32", "nan", "NaN"), ("float32", "-3.4028234663852886e+38", -3.4028234663852886e38),
     ("float64", "1,5", 1.5), ("uint8", "none", 0), ("int64", "9007199254740993", 9007199254740993),
     ("float32", "1.#INF", "Infinity"), ("uint8", "nan", 0)],
)  # fmt: skip
def test_nodata_is_the_fill_value(tmp_path, dtype, text, fill):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, SMALL.astype(dtype), extratags=[(42113, "s", 0, text, True)])
    assert anychunk.index(path)["0/0/image"].fill_value == fill


def test_ome_axes_units_and_channels(tmp_path):
    path = tmp_path / "a.ome.tif"
    metadata = {
        "axes": "CZYX", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.25,
        "PhysicalSizeYUnit": "µm", "PhysicalSizeZ": 2.0, "PhysicalSizeZUnit": "µm",
        "Channel": {"Name": ["DAPI", "GFP"], "Color": [65535, 16711935]},
    }  # fmt: skip
    tifffile.imwrite(path, np.zeros((2, 3, 16, 16), "uint16"), metadata=metadata, ome=True)
    image = anychunk.open(path)["0"]
    ome = image.attrs["ome"]
    axes = {a["name"]: a for a in ome["multiscales"][0]["axes"]}
    assert list(axes) == ["c", "z", "y", "x"]
    assert axes["x"] == {"name": "x", "type": "space", "unit": "micrometer"}
    scale = ome["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"]
    assert scale == [1, 2, 0.25, 0.5]
    assert [c["label"] for c in ome["omero"]["channels"]] == ["DAPI", "GFP"]
    assert [c["color"] for c in ome["omero"]["channels"]] == ["0000FF", "00FF00"]
    assert image["0/c"][...].tolist() == ["DAPI", "GFP"]
    np.testing.assert_allclose(image["0/z"][...], [0, 2, 4])


def meaning(path, number=0):
    index = anychunk.index(path)
    return meaning_of(index, list(images(index))[number])


def test_palette_and_tags(tmp_path):
    path = tmp_path / "a.tif"
    colors = (np.arange(768, dtype="uint16") * 85).reshape(3, 256)
    tifffile.imwrite(path, SMALL, colormap=colors, photometric="palette", software="them")
    tiff = anychunk.open(path)["0"].attrs["tiff"]
    assert tiff["photometric"] == "PALETTE"
    assert tiff["tags"]["Software"] == "them"
    found = meaning(path)
    assert found.tags["TIFFTAG_SOFTWARE"] == "them"
    assert found.display["model"] == "palette"
    with Image.open(path) as image:
        expected = np.array(image.getpalette()).reshape(-1, 3)
    table = np.array(found.display["palette"]["colors"])
    np.testing.assert_array_equal(table, np.insert(expected, 3, 255, 1))


@pytest.mark.parametrize(
    ("array", "options", "expected"),
    [
        (SMALL, {}, {"model": "grey", "bands": [0], "range": [[0, 255]]}),
        (
            SMALL,
            {"photometric": "miniswhite"},
            {"model": "grey", "bands": [0], "range": [[0, 255]], "inverted": True},
        ),
        (
            SMALL.astype("uint16"),
            {"photometric": "miniswhite"},
            {"model": "grey", "bands": [0], "range": [[0, 65535]], "inverted": True},
        ),
        # without stated limits, whoever draws it looks at samples
        (SMALL.astype("uint16"), {}, {"model": "grey", "bands": [0]}),
        (
            SMALL > 7,
            {"photometric": "minisblack"},
            {"model": "grey", "bands": [0], "range": [[0, 1]]},
        ),
        (
            np.dstack([SMALL] * 3),
            {"photometric": "rgb"},
            {"model": "rgb", "bands": [0, 1, 2], "range": [[0, 255]]},
        ),
        (
            np.dstack([SMALL] * 4),
            {"photometric": "rgb", "extrasamples": ["unassalpha"]},
            {
                "model": "rgb",
                "bands": [0, 1, 2],
                "range": [[0, 255]],
                "alpha": {"band": 3, "associated": False, "range": [0, 255]},
            },
        ),
        (
            np.dstack([SMALL.astype("uint16")] * 4),
            {"photometric": "rgb", "extrasamples": ["assocalpha"]},
            {
                "model": "rgb",
                "bands": [0, 1, 2],
                "alpha": {"band": 3, "associated": True, "range": [0, 65535]},
            },
        ),
        (
            np.dstack([SMALL] * 4),
            {"photometric": "rgb", "extrasamples": ["unspecified"]},
            {"model": "rgb", "bands": [0, 1, 2], "range": [[0, 255]]},
        ),
        (
            np.dstack([SMALL] * 2),
            {"photometric": "minisblack", "extrasamples": ["unassalpha"], "planarconfig": "contig"},
            {
                "model": "grey",
                "bands": [0],
                "range": [[0, 255]],
                "alpha": {"band": 1, "associated": False, "range": [0, 255]},
            },
        ),
        (
            np.dstack([SMALL] * 4),
            {"photometric": "separated"},
            {"model": "cmyk", "bands": [0, 1, 2, 3], "range": [[0, 255]]},
        ),
        (
            np.dstack([SMALL] * 5),
            {"photometric": "minisblack", "planarconfig": "contig"},
            {"model": "channels"},
        ),
        (
            np.dstack([SMALL] * 3),
            {"photometric": "ycbcr", "compression": "jpeg"},  # decoded to RGB
            {"model": "rgb", "bands": [0, 1, 2], "range": [[0, 255]]},
        ),
        (
            SMALL,
            {"extratags": [(274, 3, 1, 6, True)]},
            {"model": "grey", "bands": [0], "range": [[0, 255]], "orientation": 6},
        ),
    ],
    ids=[
        "grey", "white is zero", "white is zero, 16 bits", "grey of 16 bits", "bits", "rgb",
        "rgba", "associated alpha", "no alpha", "grey and alpha", "cmyk", "five bands", "jpeg",
        "turned",
    ],
)  # fmt: skip
def test_display(tmp_path, array, options, expected):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, array, metadata=None, **options)
    assert meaning(path).display == expected


def test_fourth_sample_of_rgb_without_a_word_is_alpha(tmp_path):
    path = tmp_path / "a.tif"
    array = np.dstack([SMALL] * 4)
    tifffile.imwrite(path, array, photometric="rgb", extrasamples=["unassalpha"], metadata=None)
    with tifffile.TiffFile(path) as file:
        at = file.pages[0].tags[338].offset
    data = bytearray(path.read_bytes())
    data[at : at + 2] = (60000).to_bytes(2, "little")
    path.write_bytes(data)
    assert meaning(path).display["alpha"] == {"band": 3, "associated": False, "range": [0, 255]}


IMAGEJ = {
    # ResolutionUnit, description -> the size and unit along x
    "no unit of TIFF": ("NONE", {"unit": "um"}, 0.25, "micrometer"),
    "micron": ("NONE", {"unit": "micron"}, 0.25, "micrometer"),
    "nanometres": ("NONE", {"unit": "nm"}, 0.25, "nanometer"),
    "centimetres": ("CENTIMETER", {"unit": "um"}, 0.25, "centimeter"),
    "inches": ("INCH", {"unit": "um"}, 0.25, "inch"),
    "pixels": ("NONE", {"unit": "pixel"}, None, None),
    "no unit at all": ("NONE", {}, None, None),
}


@pytest.mark.parametrize(("unit", "described", "scale", "name"), IMAGEJ.values(), ids=IMAGEJ)
def test_imagej_resolution(tmp_path, unit, described, scale, name):
    """Four pixels per unit: which unit that is depends on ResolutionUnit."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, np.zeros((3, 2, 6, 10), "uint16"), imagej=True, resolution=(4, 4),
        resolutionunit=unit, metadata={"axes": "TZYX", "spacing": 1.5, "finterval": 0.5, **described},
    )  # fmt: skip
    axes = {axis.name: axis for axis in meaning(path).axes}
    assert (axes["x"].scale, axes["x"].unit) == (scale, name)
    assert axes["z"].scale == 1.5
    assert (axes["t"].scale, axes["t"].unit) == (0.5, "second")


def test_imagej_colours_and_limits(tmp_path):
    path = tmp_path / "a.tif"
    ramp = np.arange(256, dtype="uint8")
    none = np.zeros(256, "uint8")
    tifffile.imwrite(
        path, np.zeros((2, 6, 10), "uint16"), imagej=True,
        metadata={"axes": "CYX", "mode": "composite", "Ranges": (10.0, 900.0, 5.0, 70.0),
                  "LUTs": [np.stack([ramp, none, none]), np.stack([none, ramp, ramp])]},
    )  # fmt: skip
    assert meaning(path).display == {
        "model": "channels",
        "channels": [
            {"band": 0, "color": "FF0000", "window": [10.0, 900.0]},
            {"band": 1, "color": "00FFFF", "window": [5.0, 70.0]},
        ],
    }


def test_imagej_limits_of_one_channel(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, SMALL.astype("uint16"), imagej=True, metadata={"min": 3.0, "max": 50.0})
    assert meaning(path).display == {"model": "grey", "bands": [0], "range": [[3.0, 50.0]]}


@pytest.mark.parametrize(
    ("size", "unit", "scale", "name"),
    [(65.0, "nm", 65.0, "nanometer"), (0.5, "mm", 0.5, "millimeter"), (2.0, "pixel", 2.0, None)],
)
def test_ome_units_are_kept(tmp_path, size, unit, scale, name):
    path = tmp_path / "a.ome.tif"
    metadata = {"axes": "YX", "PhysicalSizeX": size, "PhysicalSizeXUnit": unit}
    tifffile.imwrite(path, SMALL, ome=True, metadata=metadata, resolution=(300, 300),
                     resolutionunit="INCH")  # fmt: skip
    x = meaning(path).axes[-1]
    assert (x.scale, x.unit) == (scale, name)
    # along y the XML states nothing: the tags do
    y = meaning(path).axes[-2]
    assert (y.scale, y.unit) == (pytest.approx(1 / 300), "inch")


def test_ome_is_what_ome_types_reads(tmp_path):
    import ome_types

    path = tmp_path / "a.ome.tif"
    metadata = {
        "axes": "TCZYX", "PhysicalSizeX": 0.1, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 0.3,
        "TimeIncrement": 4.0, "Channel": {"Name": ["a", "b", "c"], "Color": [-1, 255, 65535]},
    }  # fmt: skip
    tifffile.imwrite(path, np.zeros((2, 3, 4, 8, 9), "uint8"), ome=True, metadata=metadata)
    found = meaning(path)
    pixels = ome_types.from_tiff(path).images[0].pixels
    stated = [pixels.time_increment, None, pixels.physical_size_z, pixels.physical_size_y,
              pixels.physical_size_x]  # fmt: skip
    assert [axis.scale for axis in found.axes] == stated
    assert [axis.unit for axis in found.axes] == ["second", None] + ["micrometer"] * 3
    assert [band.name for band in found.bands] == [channel.name for channel in pixels.channels]
    colors = [channel.color.as_hex(format="long")[1:].upper() for channel in pixels.channels]
    assert [c["color"] for c in found.display["channels"]] == [color[:6] for color in colors]


AXES = {
    "TCZYX": ("t", "c", "z", "y", "x"),
    "ZCTYX": ("t", "c", "z", "y", "x"),
    "CZYX": ("c", "z", "y", "x"),
    "QYX": ("z", "y", "x"),  # one axis of another meaning is z
    "ZQYX": ("t", "z", "y", "x"),  # or t
    "TQYX": ("t", "z", "y", "x"),
    "ACYX": ("c", "z", "y", "x"),
}


@pytest.mark.parametrize(("axes", "names"), AXES.items(), ids=AXES)
def test_axes(tmp_path, axes, names):
    path = tmp_path / "a.tif"
    shape = (*range(2, len(axes)), 6, 7)
    data = np.arange(np.prod(shape), dtype="uint16").reshape(shape)
    tifffile.imwrite(path, data, metadata={"axes": axes}, photometric="minisblack")
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == names
    letters = [n.upper() for n in names]
    other = next((letter for letter in axes if letter not in "TCZYX"), None)
    taken = [other if letter not in axes else letter for letter in letters]
    order = [axes.index(letter) for letter in taken]
    np.testing.assert_array_equal(array[...], data.transpose(order))
    assert meaning(path).is_image


def test_axes_beyond_those_of_an_image_divide_it(tmp_path):
    path = tmp_path / "a.tif"
    data = np.arange(2 * 3 * 4 * 5 * 6, dtype="float32").reshape(2, 3, 4, 5, 6)
    tifffile.imwrite(path, data, photometric="minisblack", metadata={"axes": "AQRYX"})
    group = anychunk.open(path)
    assert sorted(group, key=int) == ["0", "1", "2", "3", "4", "5"]
    for number, plane in enumerate(data.reshape(6, 4, 5, 6)):
        np.testing.assert_array_equal(group[f"{number}/0/image"][...], plane)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_channels_of_several_samples_are_one_axis(tmp_path, compression, planar):
    """As SizeC counts them: channels times samples."""
    import ome_types

    path = tmp_path / "a.ome.tif"
    data = np.arange(4 * 2 * 8 * 9 * 3, dtype="uint16").reshape(4, 2, 8, 9, 3)
    axes = "ZCYXS"
    stored = data
    if planar == "separate":
        stored, axes = np.moveaxis(data, -1, -3), "ZCSYX"
    tifffile.imwrite(path, stored, ome=True, photometric="rgb", planarconfig=planar,
                     compression=compression, metadata={"axes": axes})  # fmt: skip
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == ("c", "z", "y", "x")
    expected = np.moveaxis(data, (1, 4), (0, 1)).reshape(6, 4, 8, 9)
    np.testing.assert_array_equal(array[...], expected)
    assert ome_types.from_tiff(path).images[0].pixels.size_c == len(array[...])


def test_depth_and_bands(tmp_path):
    """Tiles with a depth hold the bands of each slice together."""
    path = tmp_path / "a.tif"
    data = np.arange(16 * 32 * 32 * 3, dtype="uint16").reshape(16, 32, 32, 3)
    tifffile.imwrite(path, data, volumetric=True, tile=(16, 16, 16), photometric="rgb",
                     compression="zlib", metadata=None)  # fmt: skip
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == ("c", "z", "y", "x")
    np.testing.assert_array_equal(array[...], np.moveaxis(data, -1, 0))


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_one_slice_in_tiles_of_several(tmp_path, compression):
    path = tmp_path / "a.tif"
    data = np.arange(40 * 40, dtype="uint16").reshape(1, 40, 40)
    tifffile.imwrite(path, data, volumetric=True, tile=(16, 16, 16), compression=compression)
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == ("z", "y", "x")
    np.testing.assert_array_equal(array[...], tifffile.imread(path))


def test_gdal_metadata(tmp_path):
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", width=10, height=6, count=2, dtype="uint8",
                       crs="EPSG:32633", transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6),
                       nodata=9) as file:  # fmt: skip
        file.write(np.stack([SMALL, SMALL]))
        file.scales, file.offsets, file.units = (0.5, 2.0), (1.0, -1.0), ("m", "s")
        file.descriptions = ("depth", "time")
        file.update_tags(A="b")
        file.update_tags(1, STATISTICS_MEAN="4")
    found = meaning(path)
    with rasterio.open(path) as file:
        assert tuple(band.scale for band in found.bands) == file.scales == (0.5, 2.0)
        assert tuple(band.offset for band in found.bands) == file.offsets
        assert tuple(band.unit for band in found.bands) == file.units
        assert tuple(band.name for band in found.bands) == file.descriptions
        assert dict(found.tags) == file.tags()
        assert dict(found.bands[0].tags) == file.tags(1)
        assert found.nodata == file.nodata
    level = anychunk.open(path)["0/0"]
    assert level["scale"][...].tolist() == [0.5, 2.0]
    assert level["offset"][...].tolist() == [1.0, -1.0]
    assert level["c"][...].tolist() == ["depth", "time"]


def test_ground_sizes_are_those_of_the_place(tmp_path):
    """Not those of XResolution, which is meant for paper."""
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", width=10, height=6, count=1, dtype="uint8",
                       transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)) as file:  # fmt: skip
        file.write(SMALL, 1)
        file.update_tags(TIFFTAG_XRESOLUTION="72", TIFFTAG_YRESOLUTION="72",
                         TIFFTAG_RESOLUTIONUNIT="2")  # fmt: skip
    assert [axis.scale for axis in meaning(path).axes] == [None, None]
    image = anychunk.open(path)["0"]
    (step,) = image.attrs["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]
    assert step["scale"] == [10, 10]
    assert image["0/x"][:2].tolist() == [500005, 500015]


def test_axes_of_any_length_have_no_coordinates(tmp_path):
    """A damaged width would take gigabytes of positions."""
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", width=10, height=6, count=1, dtype="uint8",
                       transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)) as file:  # fmt: skip
        file.write(SMALL, 1)
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags[256].overwrite(60_000, dtype="H")
        file.pages[0].tags[257].overwrite(6, dtype="H")
    assert "x" in anychunk.index(path)["0/0"].members
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags[256].overwrite(1 << 30, dtype="I")
    members = anychunk.index(path)["0/0"].members
    assert "x" not in members
    assert members["spatial_ref"].attributes["GeoTransform"].startswith("500000.0 10.0")
