"""What a TIFF says beside its pixels: ground coordinates, nodata, OME, further files."""

import json
import logging
import shutil
import warnings

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.metadata import geo
from tests.corpus import needs_corpus, samples

GEO = [s for s in samples("tiff/") if "geotiff" in s.properties]
OTHER_CODES = {
    "ca_nrc_NAD83v70VG.tif": "GDAL gives the code of the CRS with heights, 8254 for 8255"
}
SMALL = np.arange(60, dtype="uint8").reshape(6, 10)


def opened_by_rasterio(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        logging.getLogger("rasterio").setLevel(logging.CRITICAL)
        return rasterio.open(path)


@needs_corpus
@pytest.mark.parametrize("sample", GEO, ids=lambda s: s.path)
def test_ground_coordinates_are_those_of_gdal(sample):
    attributes = dict(anychunk.open(sample.file)["0"].attrs)
    assert json.dumps(attributes)
    transform = attributes.get("spatial:transform")
    try:
        dataset = opened_by_rasterio(sample.file)
    except rasterio.errors.RasterioIOError:
        pytest.skip("rasterio does not open it")
    with dataset:
        if transform is not None and not dataset.transform.is_identity:
            np.testing.assert_allclose(transform, tuple(dataset.transform)[:6], rtol=1e-9)
            bounds = attributes["spatial:bbox"]
            if dataset.transform.b == dataset.transform.d == 0 and dataset.transform.e < 0:
                np.testing.assert_allclose(bounds, tuple(dataset.bounds), rtol=1e-9)
        code = attributes.get("proj:code")
        theirs = dataset.crs.to_epsg() if dataset.crs else None
        if code is not None and theirs is not None and sample.file.name not in OTHER_CODES:
            assert code == f"EPSG:{theirs}"


@needs_corpus
def test_most_georeferenced_files_have_transform_and_code():
    found = [anychunk.index(s.file)["0"].attributes for s in GEO]
    assert sum("spatial:transform" in a for a in found) > 0.8 * len(found)
    assert sum("proj:code" in a for a in found) > 0.5 * len(found)


def test_points_are_half_a_pixel_off():
    # GeoTIFF 1.1 section 7.1: RasterPixelIsPoint ties to the centre of a pixel
    area = geo.geotiff_transform(
        scale=(10, 10, 0), tiepoints=(0, 0, 0, 100, 200, 0), matrix=None, is_point=False
    )
    point = geo.geotiff_transform(
        scale=(10, 10, 0), tiepoints=(0, 0, 0, 100, 200, 0), matrix=None, is_point=True
    )
    assert area == (10, 0, 100, 0, -10, 200)
    assert point == (10, 0, 95, 0, -10, 205)
    assert geo.bounds(area, (2, 3)) == (100, 180, 130, 200)
    assert geo.rescaled(area, 2, 4) == (20, 0, 100, 0, -40, 200)


@pytest.mark.parametrize(
    ("dtype", "text", "fill"),
    [("uint8", "7", 7), ("uint8", "-9999", 0), ("int16", "-9999", -9999), ("uint8", "7.5", 0),
     ("float32", "nan", "NaN"), ("float32", "-3.4028234663852886e+38", -3.4028234663852886e38),
     ("float64", "1,5", 1.5), ("uint8", "none", 0), ("int64", "9007199254740993", 9007199254740993)],
)  # fmt: skip
def test_nodata_is_the_fill_value(tmp_path, dtype, text, fill):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, SMALL.astype(dtype), extratags=[(42113, "s", 0, text, True)])
    assert anychunk.index(path)["0/0"].fill_value == fill


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
    assert list(axes) == ["c", "z", "band", "y", "x"]
    assert axes["x"] == {"name": "x", "type": "space", "unit": "micrometer"}
    scale = ome["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"]
    assert scale == [1, 2, 1, 0.25, 0.5]
    assert [c["label"] for c in ome["omero"]["channels"]] == ["DAPI", "GFP"]
    assert [c["color"] for c in ome["omero"]["channels"]] == ["0000FF", "00FF00"]


def test_palette_and_tags(tmp_path):
    path = tmp_path / "a.tif"
    colors = np.arange(768, dtype="uint16").reshape(3, 256)
    tifffile.imwrite(path, SMALL, colormap=colors, photometric="palette", software="them")
    tiff = anychunk.open(path)["0"].attrs["tiff"]
    assert tiff["photometric"] == "PALETTE"
    assert tiff["color_map"] == colors.tolist()
    assert tiff["tags"]["Software"] == "them"


@pytest.fixture
def two_files(tmp_path):
    """An OME-TIFF whose second plane lies in a companion."""
    planes = [SMALL.astype("uint16"), SMALL.astype("uint16") * 3]
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:A">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="10" '
        'SizeY="6" SizeC="1" SizeZ="2" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>'
        '<TiffData FirstZ="0" IFD="0" PlaneCount="1"><UUID FileName="a.ome.tif">urn:uuid:A</UUID>'
        '</TiffData><TiffData FirstZ="1" IFD="0" PlaneCount="1"><UUID FileName="{}">urn:uuid:B'
        "</UUID></TiffData></Pixels></Image></OME>"
    )

    def write(name):
        first = tmp_path / "a.ome.tif"
        tifffile.imwrite(first, planes[0], description=xml.format(name), metadata=None)
        tifffile.imwrite(tmp_path / "b.ome.tif", planes[1], metadata=None)
        return first

    return write, np.stack(planes)


def test_companion_files(two_files, tmp_path):
    write, expected = two_files
    path = write("b.ome.tif")
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == ("z", "band", "y", "x")
    np.testing.assert_array_equal(array[...][:, 0], expected)
    index = anychunk.index(path)
    assert {str(tmp_path / "b.ome.tif")} <= set(index.pins)


def test_missing_companion_is_named_when_read(two_files, tmp_path):
    write, expected = two_files
    path = write("b.ome.tif")
    (tmp_path / "b.ome.tif").unlink()
    array = anychunk.open_array(path)
    np.testing.assert_array_equal(array[0, 0], expected[0])
    with pytest.raises(anychunk.AnychunkError, match=r"b\.ome\.tif"):
        array[1]


def test_companion_outside_the_folder_is_refused(two_files, tmp_path):
    write, _ = two_files
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    path = write("../b.ome.tif")
    moved = outside / "a.ome.tif"
    shutil.move(path, moved)
    with pytest.raises(anychunk.AnychunkError, match="reference"):
        anychunk.open(moved)
