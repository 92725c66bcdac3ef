"""Colours, resolutions and side files of JPEG 2000, compared with GDAL, Pillow and OpenJPEG."""

import struct
import warnings

import imagecodecs
import numpy as np
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.images import images
from tests.formats.jpeg2000.test_jpeg2000 import box, ycc_to_rgb
from tests.support.corpus import needs_corpus, samples
from tests.support.gdal import has_driver
from tests.support.j2k_streams import compress, field, needs_openjpeg

pytestmark = [
    needs_openjpeg,
    pytest.mark.skipif(not has_driver("JP2OpenJPEG"), reason="rasterio has no JP2OpenJPEG driver"),
]
GREY, SRGB, SYCC, CMYK = 17, 16, 18, 12
COLOURS = {GREY: "grey", SRGB: "rgb", SYCC: "ycbcr", CMYK: "cmyk"}


def jp2(stream, bands, space, *, depth=8, inside=b"", shape=(64, 50)):
    ihdr = struct.pack(">IIHBBBB", *shape, bands, depth - 1, 7, 0, 0)
    colr = b"" if space is None else box(b"colr", b"\1\0\0" + struct.pack(">I", space))
    return (
        b"\0\0\0\x0cjP  \r\n\x87\n"
        + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
        + box(b"jp2h", box(b"ihdr", ihdr) + colr + inside)
        + box(b"jp2c", stream)
    )


def cdef(*entries):
    rows = b"".join(struct.pack(">HHH", *entry) for entry in entries)
    return box(b"cdef", struct.pack(">H", len(entries)) + rows)


def meaning(path):
    index = anychunk.index(path)
    return meaning_of(index, next(iter(images(index))))


def save(folder, data, name="a.jp2"):
    (folder / name).write_bytes(data)
    return folder / name


def interpretations(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as opened:
            return [colour.name for colour in opened.colorinterp]


def ours(found, bands):
    names = [band.interpretation for band in found.bands] or [None] * bands
    return [(name or "undefined").lower() for name in names]


@pytest.mark.parametrize(
    ("space", "bands", "entries", "expected"),
    [
        (GREY, 1, (), {"model": "grey", "bands": [0], "range": [[0, 255]]}),
        (SRGB, 3, (), {"model": "rgb", "bands": [0, 1, 2], "range": [[0, 255]]}),
        (SYCC, 3, (), {"model": "ycbcr", "bands": [0, 1, 2], "range": [[0, 255]]}),
        (CMYK, 4, (), {"model": "cmyk", "bands": [0, 1, 2, 3], "range": [[0, 255]]}),
        # components in the order blue, green, red
        (
            SRGB,
            3,
            ((0, 0, 3), (1, 0, 2), (2, 0, 1)),
            {"model": "rgb", "bands": [2, 1, 0], "range": [[0, 255]]},
        ),
        (
            SRGB,
            4,
            ((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0)),
            {
                "model": "rgb",
                "bands": [0, 1, 2],
                "range": [[0, 255]],
                "alpha": {"band": 3, "associated": False, "range": [0, 255]},
            },
        ),
        (
            GREY,
            2,
            ((0, 2, 0), (1, 0, 1)),
            {
                "model": "grey",
                "bands": [1],
                "range": [[0, 255]],
                "alpha": {"band": 0, "associated": True, "range": [0, 255]},
            },
        ),
        (SRGB, 5, (), {"model": "rgb", "bands": [0, 1, 2], "range": [[0, 255]]}),
    ],
    ids=["grey", "rgb", "ycbcr", "cmyk", "bgr", "rgba", "premultiplied", "more bands"],
)
def test_colour_spaces(tmp_path, space, bands, entries, expected):
    stream = compress(list(field((64, 50), bands=bands)), "-mct", "0")
    inside = cdef(*entries) if entries else b""
    path = save(tmp_path, jp2(stream, bands, space, inside=inside))
    found = meaning(path)
    assert found.display == expected
    if COLOURS[space] in ("grey", "rgb") and entries != ((0, 2, 0), (1, 0, 1)) and bands < 5:
        assert ours(found, bands) == interpretations(path)


def test_components_in_another_order_are_shown_by_gdal_alike(tmp_path):
    """GDAL applies channel definitions by naming bands, as we do: values stay in place."""
    image = field((64, 50), bands=3)
    data = jp2(
        compress(list(image), "-mct", "0"), 3, SRGB, inside=cdef((0, 0, 3), (1, 0, 2), (2, 0, 1))
    )
    path = save(tmp_path, data)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], image)
    assert meaning(path).display["bands"] == [2, 1, 0]


@pytest.mark.parametrize(
    ("bands", "options", "model"),
    [
        (1, (), "grey"),
        (3, (), "rgb"),  # the codestream's own colour transform
        (3, ("-mct", "0"), "rgb"),
        (2, ("-mct", "0"), "channels"),
        (5, ("-mct", "0"), "channels"),
    ],
)
def test_bare_codestreams(tmp_path, bands, options, model):
    stream = compress(list(field((64, 50), bands=bands)), *options)
    found = meaning(save(tmp_path, stream, "a.j2k"))
    assert found.display["model"] == model
    assert ours(found, bands) == ["undefined"] * bands


def test_coarse_chrominance_is_not_rgb(tmp_path):
    """OpenJPEG converts such an image whatever its colour space; ours stay as stored."""
    luma, chroma = field((130, 98))[0], field((65, 49), depth=7)[0]
    stream = compress([luma, chroma, chroma], "-mct", "0", "-n", "3", sampling="@1x1:2x2:2x2")
    path = save(tmp_path, jp2(stream, 3, SRGB, shape=(130, 98)))
    assert meaning(path).display["model"] == "ycbcr"
    stored = anychunk.open_array(path)[...]
    expected = imagecodecs.jpeg2k_decode(stream, planar=True)
    assert np.abs(ycc_to_rgb(stored) - expected).max() <= 1


@pytest.mark.parametrize("depth", [9, 12, 16])
def test_many_bits_have_no_range(tmp_path, depth):
    stream = compress(list(field((64, 50), depth=depth)), depth=depth)
    found = meaning(save(tmp_path, jp2(stream, 1, GREY, depth=depth)))
    assert found.display == {"model": "grey", "bands": [0]}


@needs_corpus
def test_alpha_of_one_bit():
    (sample,) = (s for s in samples("jpeg2000/") if "rgba_alpha_1bit" in s.file.name)
    found = meaning(sample.file)
    assert found.display["alpha"] == {"band": 3, "associated": False, "range": [0, 1]}
    assert ours(found, 4) == interpretations(sample.file)


def palette_boxes(table, depth, order=None):
    columns = len(table[0])
    sizes = -(-depth // 8)
    pclr = struct.pack(">HB", len(table), columns) + bytes([depth - 1] * columns)
    pclr += b"".join(int(n).to_bytes(sizes, "big") for row in table for n in row)
    order = order or range(columns)
    cmap = b"".join(struct.pack(">HBB", 0, 1, n) for n in order)
    return box(b"pclr", pclr) + box(b"cmap", cmap)


def test_palette(tmp_path):
    """Indices and colours together are what OpenJPEG and GDAL show."""
    indices = field((64, 50), depth=2)
    table = [[255, 0, 0], [0, 255, 0], [1, 2, 255], [9, 8, 7]]
    data = jp2(compress(list(indices), depth=2), 1, SRGB, depth=2, inside=palette_boxes(table, 8))
    path = save(tmp_path, data)
    found = meaning(path)
    assert found.names == ("y", "x")
    assert found.display["model"] == "palette"
    assert found.bands[0].interpretation == "Palette"
    colours = np.array(found.display["palette"]["colors"])
    np.testing.assert_array_equal(colours[:, 3], 255)
    stored = anychunk.open_array(path)[...]
    np.testing.assert_array_equal(colours[stored][..., :3], imagecodecs.jpeg2k_decode(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as opened:
            shown = opened.colormap(1)
    assert [tuple(c) for c in colours] == [shown[n] for n in range(4)]


def test_palette_with_columns_in_another_order(tmp_path):
    indices = field((64, 50), depth=2)
    table = [[255, 0, 0], [0, 255, 0], [1, 2, 255], [9, 8, 7]]
    inside = palette_boxes(table, 8, order=(2, 1, 0))
    data = jp2(compress(list(indices), depth=2), 1, SRGB, depth=2, inside=inside)
    colours = np.array(meaning(save(tmp_path, data)).display["palette"]["colors"])
    np.testing.assert_array_equal(colours[:, :3], np.array(table)[:, ::-1])


def test_palette_with_opacity_and_many_bits(tmp_path):
    indices = field((64, 50), depth=2)
    table = [[4095, 0, 0, 4095], [0, 4095, 0, 2048], [0, 0, 4095, 0], [100, 200, 300, 4095]]
    inside = palette_boxes(table, 12) + cdef((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0))
    data = jp2(compress(list(indices), depth=2), 1, SRGB, depth=2, inside=inside)
    found = meaning(save(tmp_path, data)).display
    assert found["model"] == "palette"
    expected = np.rint(np.array(table) * 255 / 4095).astype(int)
    np.testing.assert_array_equal(found["palette"]["colors"], expected)


@pytest.mark.parametrize("kind", [b"resc", b"resd"])
def test_resolution_is_the_size_of_a_pixel(tmp_path, kind):
    """200 pixels per cm across, 100 down: 50 and 100 micrometres."""
    body = struct.pack(">HHHHbb", 10000, 1, 20000, 1, 0, 0)
    inside = box(b"res ", box(kind, body))
    stream = compress(list(field((64, 50))), "-n", "3")
    path = save(tmp_path, jp2(stream, 1, GREY, inside=inside))
    found = meaning(path)
    assert [(axis.name, axis.unit) for axis in found.axes] == [("y", "meter"), ("x", "meter")]
    assert [axis.scale for axis in found.axes] == pytest.approx([1e-4, 5e-5])
    if kind == b"resc":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path) as opened:
                tags = opened.tags()
        per_metre = [100 * float(tags[f"TIFFTAG_{name}RESOLUTION"]) for name in "YX"]
        assert [1 / axis.scale for axis in found.axes] == pytest.approx(per_metre, rel=1e-4)
    level = anychunk.open(path)["0"].attrs["ome"]["multiscales"][0]["datasets"][1]
    assert level["coordinateTransformations"][0]["scale"] == pytest.approx([2e-4, 1e-4])


def test_samples_of_levels_lie_where_they_are_said_to(tmp_path):
    """A ramp: the value of a sample is its position, which the low-pass filter keeps."""
    ramp = np.broadcast_to(np.arange(256, dtype="u1"), (64, 256)).copy()
    stream = compress([ramp], "-n", "4")
    path = save(tmp_path, stream, "a.j2k")
    index = anychunk.index(path)
    image = next(iter(images(index)))
    for level in levels_of(index, image):
        values = anychunk.open(path)[f"0/{level.name}/image"][3]
        inner = values[2:-2].astype(float)
        expected = level.origin[1] + level.scale[1] * np.arange(2, len(values) - 2)
        np.testing.assert_allclose(inner, expected, atol=0.5)


def test_world_file(tmp_path):
    """It has the centre of the first pixel, and no CRS; a georeference inside replaces it."""
    stream = compress(list(field((64, 50))), "-n", "3")
    path = save(tmp_path, jp2(stream, 1, GREY))
    (tmp_path / "a.j2w").write_text("2\n0\n0\n-3\n100\n200\n")
    found = meaning(path)
    assert found.place.transform == (2, 0, 99, 0, -3, 201.5)
    assert found.place.crs is None
    with rasterio.open(path) as opened:
        assert tuple(opened.transform)[:6] == found.place.transform
    level = anychunk.open(path)["0/1"].attrs
    assert level["spatial:transform"] == [4, 0, 99, 0, -6, 201.5]
    ignored = anychunk.index(path, sidecars=False)
    assert meaning_of(ignored, next(iter(images(ignored)))).place.transform is None
    assert str(tmp_path / "a.j2w") in {
        pin.removeprefix("file://") for pin in anychunk.index(path).pins
    }


def test_auxiliary_file(tmp_path):
    stream = compress(list(field((64, 50))), "-n", "3")
    resolution = box(b"res ", box(b"resc", struct.pack(">HHHHbb", 10000, 1, 20000, 1, 0, 0)))
    path = save(tmp_path, jp2(stream, 1, GREY, inside=resolution))
    (tmp_path / "a.jp2.aux.xml").write_text(
        """<PAMDataset><SRS>EPSG:32631</SRS><GeoTransform>100, 2, 0, 200, 0, -3</GeoTransform>
        <PAMRasterBand band="1"><NoDataValue>7</NoDataValue></PAMRasterBand></PAMDataset>"""
    )
    with rasterio.open(path) as opened:
        assert tuple(opened.transform)[:6] == (2, 0, 100, 0, -3, 200)
        assert (opened.crs.to_epsg(), opened.nodata) == (32631, 7)
    found = meaning(path)
    assert found.place.transform == (2, 0, 100, 0, -3, 200)
    assert found.place.crs.code == "EPSG:32631"
    assert found.nodata == 7
    index = anychunk.index(path)
    second = levels_of(index, next(iter(images(index))))[1]
    assert second.scale == pytest.approx((6, 4))
    assert second.origin == pytest.approx((0, 0))
