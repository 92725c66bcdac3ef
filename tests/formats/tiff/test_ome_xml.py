"""OME-XML: order of axes, channels, placements of planes."""

from itertools import permutations, product
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk.errors import FormatError, LimitError
from anychunk.formats.tiff.ome_xml import (
    Placement,
    band_names,
    channels,
    display_channels,
    parse_xml,
    placements,
)
from tests.support.effort import at_most

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
    assert names == ("t", "c", "z", "y", "x")
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
    found = channels(element)
    assert band_names(found, 3) == ["DAPI", None, None]
    # what is not stated is left to whoever draws them
    assert display_channels(found, 3) == [
        {"band": 0, "label": "DAPI", "color": "0000FF"},
        {"band": 1, "color": "FF0000"},
        {"band": 2},
    ]
    assert band_names(found, 2) == [None, None]
    assert display_channels(found, 2) == []


def test_bands_of_a_channel_of_rgb_share_its_name():
    element = ET.Element("Pixels")
    ET.SubElement(element, "Channel", {"Name": "stain", "SamplesPerPixel": "3"})
    ET.SubElement(element, "Channel", {"Name": "DAPI"})
    assert band_names(channels(element), 4) == [None, None, None, "DAPI"]
    assert display_channels(channels(element), 4) == []


def announcing(path, *, sizes="", data='<TiffData IFD="0" PlaneCount="1"/>', more=""):
    """Write one page of 8 x 8 with OME-XML; give its path."""
    numbers = {"SizeX": 8, "SizeY": 8, "SizeC": 1, "SizeZ": 1, "SizeT": 1} | dict(
        part.split("=") for part in sizes.split()
    )
    pixels = " ".join(f'{key}="{value}"' for key, value in numbers.items())
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f'<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" {pixels}>'
        f"{data}</Pixels></Image>{more}</OME>"
    )
    tifffile.imwrite(path, np.ones((8, 8), "uint8"), description=text, metadata=None)
    return path


MODULO = (
    '<StructuredAnnotations><XMLAnnotation ID="A" Namespace="openmicroscopy.org/omero/dimension/'
    'modulo"><Value><Modulo><ModuloAlongT Type="other" Start="0" End="1e9" Step="1"/></Modulo>'
    "</Value></XMLAnnotation></StructuredAnnotations>"
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": '<TiffData IFD="0" PlaneCount="2000000000"/>'},
        {"data": '<TiffData IFD="2000000000" PlaneCount="1"/>'},
        {"data": '<TiffData IFD="0" PlaneCount="60000"/>' * 100, "sizes": "SizeT=60000"},
        # the first is read before tifffile comes to the second
        {"data": '<TiffData IFD="0" PlaneCount="2000000000"/><TiffData IFD="x"/>'},
        {"data": '<TiffData IFD="-1" PlaneCount="1"/>'},
        {"sizes": "SizeT=1000000"},
        {"sizes": "SizeT=10000 SizeZ=10000"},
        {"sizes": "SizeT=-10000 SizeZ=-10000"},
        {"more": MODULO},
    ],
    ids=str,
)
def test_numbers_are_checked_before_planes_are_listed(tmp_path, wrong):
    """A few hundred bytes of XML would take 18 GB, or half a minute."""
    path = announcing(tmp_path / "a.ome.tif", **wrong)
    with at_most(200_000), pytest.raises((FormatError, LimitError), match="OME-XML"):
        anychunk.open(path)


def test_planes_of_files_that_are_not_here_are_accepted(tmp_path):
    path = announcing(tmp_path / "a.ome.tif", sizes="SizeT=3000 SizeZ=2")
    array = anychunk.open_array(path)
    assert array.shape == (3000, 2, 8, 8)
    assert (array[0, 0] == 1).all()


def test_a_page_of_another_type_is_refused_by_name(tmp_path):
    """OME-XML declares one data type: without BitsPerSample, a page would be one of single bits."""
    path = tmp_path / "a.ome.tif"
    planes = np.arange(4 * 18 * 20, dtype="uint16").reshape(4, 18, 20)
    tifffile.imwrite(path, planes, metadata={"axes": "ZYX"}, rowsperstrip=18, contiguous=False)
    with tifffile.TiffFile(path) as tif:
        entry = tif.pages[2].aspage().tags[258].offset
    data = bytearray(path.read_bytes())
    data[entry : entry + 2] = (65000).to_bytes(2, "little")
    path.write_bytes(data)
    group = anychunk.open(path)
    assert {array.dtype for _, array in group.arrays()} | {
        array.dtype for _, array in group.members(max_depth=None) if hasattr(array, "dtype")
    } == {np.dtype("uint16")}
    assert any("page 2" in reason for reason in group.attrs["tiff"]["refused"])
