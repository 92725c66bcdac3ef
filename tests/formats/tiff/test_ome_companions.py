"""OME-TIFF in several files."""

import shutil

import numpy as np
import pytest
import tifffile

import anychunk

SMALL = np.arange(60, dtype="uint8").reshape(6, 10)


@pytest.fixture
def two_files(tmp_path):
    """Return a function that writes an OME-TIFF whose second plane is in a companion."""
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
    assert array.metadata.dimension_names == ("z", "y", "x")
    np.testing.assert_array_equal(array[...], expected)
    index = anychunk.index(path)
    assert {str(tmp_path / "b.ome.tif")} <= set(index.pins)


def test_missing_companion_is_named_when_read(two_files, tmp_path):
    write, expected = two_files
    path = write("b.ome.tif")
    (tmp_path / "b.ome.tif").unlink()
    array = anychunk.open_array(path)
    np.testing.assert_array_equal(array[0], expected[0])
    with pytest.raises(anychunk.AnychunkError, match=r"b\.ome\.tif"):
        array[1]


def test_companion_outside_the_folder_is_refused(two_files, tmp_path):
    write, _ = two_files
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    path = write("../b.ome.tif")
    moved = outside / "a.ome.tif"
    shutil.move(path, moved)
    with pytest.raises(anychunk.AnychunkError, match=r"\.\./b\.ome\.tif"):
        anychunk.open(moved)


def test_companion_with_too_few_pages_is_refused(two_files):
    write, _ = two_files
    path = write("b.ome.tif")
    text = tifffile.tiffcomment(path).replace('FirstZ="1" IFD="0"', 'FirstZ="1" IFD="7"')
    tifffile.tiffcomment(path, text.encode())
    with pytest.raises(anychunk.errors.FormatError, match=r"\b7\b.*b\.ome\.tif.*\b1\b"):
        anychunk.open(path)


def test_companion_of_another_type_is_refused(two_files, tmp_path):
    write, expected = two_files
    path = write("b.ome.tif")
    tifffile.imwrite(tmp_path / "b.ome.tif", expected[1].astype("float32"), metadata=None)
    with pytest.raises(anychunk.errors.FormatError, match=r"page 0 of b\.ome\.tif"):
        anychunk.open(path)
