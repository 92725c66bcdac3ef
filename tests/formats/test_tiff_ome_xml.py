"""OME-XML: order of axes, channels, placements of planes."""

from itertools import permutations, product
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk.errors import FormatError
from anychunk.formats.tiff.ome_xml import Placement, channels, parse_xml, placements

SIZES = {"T": 2, "C": 3, "Z": 4}
NAMESPACE = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"


def value(position):
    """Return the sample value of the plane at a position along T, C and Z: all are distinct."""
    return 100 * position["T"] + 10 * position["C"] + position["Z"]


def written(path, order):
    """Write an OME-TIFF with planes in this order of axes, the fastest one first."""
    axes = order[::-1]
    data = np.zeros([SIZES[a] for a in axes] + [5, 7], "uint16")
    for index in np.ndindex(data.shape[:3]):
        data[index] = value(dict(zip(axes, index, strict=True)))
    tifffile.imwrite(path, data, metadata={"axes": f"{axes}YX"}, ome=True)


@pytest.mark.parametrize("order", ["".join(p) for p in permutations("TCZ")])
def test_axes_are_those_of_dimension_order(tmp_path, order):
    path = tmp_path / "a.ome.tif"
    written(path, order)
    # the file's own account of its pages, by OME-XML alone
    with tifffile.TiffFile(path) as tif:
        (pixels,) = ET.fromstring(tif.ome_metadata).iter(f"{NAMESPACE}Pixels")
        assert pixels.attrib["DimensionOrder"] == f"XY{order}"
        sizes = [int(pixels.attrib[f"Size{a}"]) for a in order]
        for number, page in enumerate(tif.pages):
            index = np.unravel_index(number, sizes, order="F")  # the fastest axis is the first
            assert (page.asarray() == value(dict(zip(order, index, strict=True)))).all()
    array = anychunk.open_array(path)
    names = array.metadata.dimension_names
    assert names == (*order[::-1].lower(), "band", "y", "x")
    axes = anychunk.open(path)["0"].attrs["ome"]["multiscales"][0]["axes"]
    types = {"t": "time", "c": "channel", "z": "space"}
    assert [(a["name"], a["type"]) for a in axes[:3]] == [(n, types[n]) for n in names[:3]]
    assert_values(array[...], names)


def assert_values(pixels, names):
    """Check every plane of an array against its position along the named axes."""
    for t, c, z in product(*(range(SIZES[a]) for a in "TCZ")):
        position = {"t": t, "c": c, "z": z}
        plane = pixels[tuple(position.get(name, slice(None)) for name in names)]
        assert (plane == 100 * t + 10 * c + z).all()


@pytest.mark.parametrize("order", ["TCZ", "ZTC"])
def test_converted_axes_are_in_the_order_of_ome_zarr(tmp_path, order):
    written(tmp_path / "a.ome.tif", order)
    anychunk.convert(tmp_path / "a.ome.tif", tmp_path / "a.zarr")
    image = zarr.open_group(tmp_path / "a.zarr", mode="r")
    (multiscale,) = image.attrs["ome"]["multiscales"]
    names = [axis["name"] for axis in multiscale["axes"]]
    assert names[:3] == ["t", "c", "z"]
    assert_values(image[multiscale["datasets"][0]["path"]][...], names)


def pixels_element(*tiff_data, **attributes):
    sizes = {"DimensionOrder": "XYCZT", "SizeC": "3", "SizeZ": "4", "SizeT": "2", **attributes}
    element = ET.Element("Pixels", sizes)
    for attrib, file in tiff_data:
        child = ET.SubElement(element, "TiffData", attrib)
        if file is not None:
            ET.SubElement(child, "UUID", {"FileName": file[0]}).text = file[1]
    return element


def test_placements_are_counted_along_dimension_order():
    element = pixels_element(
        ({"FirstC": "1", "FirstZ": "2", "FirstT": "1", "IFD": "5", "PlaneCount": "2"}, None),
        ({"FirstT": "1"}, ("b.tif", "urn:uuid:B")),
        ({"IFD": "3"}, ("a.tif", "urn:uuid:A")),
        ({"FirstC": "3", "IFD": "0"}, None),  # beyond SizeC: cropped away
    )
    # XYCZT: plane number = c + 3 * (z + 4 * t)
    assert placements(element, "urn:uuid:A", "a.tif", "a.tif") == [
        Placement(start=1 + 3 * (2 + 4 * 1), count=2, file=None, directory=5),
        Placement(start=12, count=None, file="b.tif", directory=0),
        Placement(start=0, count=1, file=None, directory=3),
    ]


def test_samples_of_rgb_are_one_plane():
    element = pixels_element(({"FirstZ": "1", "IFD": "0"}, None))
    ET.SubElement(element, "Channel", {"SamplesPerPixel": "3"})
    assert [p.start for p in placements(element, None, "a.tif", "a.tif")] == [1]


@pytest.mark.parametrize("wrong", [{"SizeZ": "many"}, {"DimensionOrder": "XYCZTQ"}])
def test_unreadable_pixels_name_the_file(wrong):
    element = pixels_element(({"IFD": "0"}, None), **wrong)
    with pytest.raises(FormatError, match=r"a\.tif"):
        placements(element, None, "a.tif", "a.tif")


def test_text_that_is_not_xml():
    assert parse_xml(None) is None
    assert parse_xml("") is None
    assert parse_xml("<OME>") is None


def test_channels():
    element = ET.Element("Pixels")
    ET.SubElement(element, "Channel", {"Name": "DAPI", "Color": "65535"})
    ET.SubElement(element, "Channel", {"ID": "Channel:0:1", "Color": "-16776961"})
    ET.SubElement(element, "Channel", {"Color": "blue"})
    found = channels(element, np.dtype("int16"))
    assert [c["label"] for c in found] == ["DAPI", "Channel:0:1", "2"]
    assert [c["color"] for c in found] == ["0000FF", "FF0000", "FFFFFF"]
    assert found[0]["window"] == {"min": -32768, "max": 32767, "start": -32768, "end": 32767}
    assert "window" not in channels(element, np.dtype("float32"))[0]
