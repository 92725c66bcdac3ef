"""Bands, colours, nodata and tags of NITF images, compared with GDAL."""

import io
import warnings

import numpy as np
import pytest
import rasterio
from PIL import Image as PillowImage
from rasterio.enums import ColorInterp
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.formats.nitf.meaning import time
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images
from tests.support.corpus import needs_corpus, samples
from tests.support.nitf_writer import Image, nitf

RNG = np.random.default_rng(8)


def made(folder, image, **options):
    path = folder / "a.ntf"
    path.write_bytes(nitf([image], **options))
    return path


def meaning(path):
    index = anychunk.index(path)
    return meaning_of(index, next(iter(images(index))))


def gdal(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        return rasterio.open(path)


def array(bands, dtype="u1", top=256):
    return RNG.integers(0, top, (bands, 16, 16)).astype(dtype)


@pytest.mark.parametrize(
    ("irep", "colours", "shown"),
    [
        ("RGB", ("R", "G", "B"), [0, 1, 2]),
        ("MULTI", ("B", "G", "R", ""), [2, 1, 0]),
        ("MULTI", ("", "R", "", "G", "B"), [1, 3, 4]),
    ],
)
def test_red_green_and_blue(tmp_path, irep, colours, shown):
    path = made(tmp_path, Image(array(len(colours)), irep=irep, irepband=colours))
    found = meaning(path)
    assert found.display == {"model": "rgb", "bands": shown, "range": [[0, 255]]}
    names = {"R": "Red", "G": "Green", "B": "Blue", "": None}
    assert [band.interpretation for band in found.bands] == [names[c] for c in colours]
    with gdal(path) as opened:
        expected = [names[c] or "undefined" for c in colours]
        assert [i.name for i in opened.colorinterp] == [name.lower() for name in expected]
    assert [band.name for band in found.bands] == [c or None for c in colours]


def test_wavelengths_are_names(tmp_path):
    waves = ("450.0", "550.0", "650.0", "850.0")
    path = made(tmp_path, Image(array(4, "u2"), irep="MULTI", isubcat=waves, irepband=("",) * 4))
    found = meaning(path)
    assert [band.name for band in found.bands] == list(waves)
    assert found.display["model"] == "channels"
    group = anychunk.open(path)["0/0"]
    assert group["c"][...].tolist() == list(waves)


def test_grey(tmp_path):
    path = made(tmp_path, Image(array(1)))
    found = meaning(path)
    assert found.names == ("y", "x")
    assert found.display == {"model": "grey", "bands": [0], "range": [[0, 255]]}
    assert found.bands[0].interpretation == "Gray"
    with gdal(path) as opened:
        assert opened.colorinterp == (ColorInterp.gray,)
    assert found.nodata is None


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"nbpp": 1, "pvtype": "B"}, [[0, 1]]),
        ({"nbpp": 5}, [[0, 31]]),
        ({"nbpp": 8, "abpp": 6}, [[0, 63]]),
    ],
)
def test_few_bits_are_drawn_over_their_range(tmp_path, options, limits):
    values = array(1, top=limits[0][1] + 1)
    assert meaning(made(tmp_path, Image(values, **options))).display["range"] == limits


@pytest.mark.parametrize("dtype", ["u2", "i2", "f4", "c8"])
def test_many_bits_have_no_range(tmp_path, dtype):
    """How bright they are is found out by looking at them."""
    found = meaning(made(tmp_path, Image(array(1, dtype))))
    assert found.display == {"model": "grey", "bands": [0]}


@pytest.mark.parametrize("size", [4, 200, 216, 255, 256])
def test_palettes_are_those_of_gdal(tmp_path, size):
    lut = tuple(RNG.integers(0, 256, size).astype("u1").tobytes() for _ in range(3))
    image = Image(array(1, top=size), irep="RGB/LUT", irepband=("LU",), lut=lut)
    path = made(tmp_path, image)
    found = meaning(path)
    assert found.display["model"] == "palette"
    assert found.bands[0].interpretation == "Palette"
    colours = found.display["palette"]["colors"]
    with gdal(path) as opened:
        expected = opened.colormap(1)
        assert [tuple(c) for c in colours[:size]] == [expected[n] for n in range(size)]
        assert found.nodata == opened.nodata
    # pixels that are not stored have the index after the last colour
    assert colours[size:] == ([[0, 0, 0, 0]] if size < 255 else [])
    assert found.nodata == (size if size < 255 else None)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], image.array[0])


def test_a_transparent_entry_that_is_listed(tmp_path):
    """Some CADRG frames list black as the 217th colour."""
    lut = tuple(RNG.integers(1, 256, 216).astype("u1").tobytes() + b"\0" for _ in range(3))
    path = made(tmp_path, Image(array(1, top=216), irep="RGB/LUT", irepband=("LU",), lut=lut))
    found = meaning(path)
    colours = found.display["palette"]["colors"]
    assert len(colours) == 217
    assert colours[216] == [0, 0, 0, 0]
    assert colours[0] == [lut[0][0], lut[1][0], lut[2][0], 255]
    with gdal(path) as opened:
        assert found.nodata == opened.nodata == 216


@needs_corpus
def test_palette_of_a_real_frame():
    (sample,) = (s for s in samples("nitf/") if s.file.name == "RPFTOC01.ON2")
    found = meaning(sample.file)
    with gdal(sample.file) as opened:
        expected = opened.colormap(1)
        assert found.nodata == opened.nodata
    colours = found.display["palette"]["colors"]
    assert [tuple(c) for c in colours[:216]] == [expected[n] for n in range(216)]
    assert colours[216] == [0, 0, 0, 0]


def test_one_look_up_table_is_a_scale_of_grey(tmp_path):
    lut = (bytes(range(0, 256, 16)),)
    path = made(tmp_path, Image(array(1, top=16), irepband=("LU",), lut=lut))
    colours = meaning(path).display["palette"]["colors"]
    assert colours[3] == [48, 48, 48, 255]
    with gdal(path) as opened:
        assert opened.colormap(1)[3] == (48, 48, 48, 255)


@pytest.mark.parametrize(("ic", "model"), [("NC", "ycbcr"), ("C3", "rgb")])
def test_luminance_and_chrominance(tmp_path, ic, model):
    """The codec of JPEG makes red, green and blue of it; stored samples stay as they are."""
    image = Image(array(3), ic=ic, irep="YCbCr601", irepband=("Y", "Cb", "Cr"), imode="P")
    if ic == "C3":
        out = io.BytesIO()
        PillowImage.fromarray(np.moveaxis(image.array, 0, -1)).save(out, "JPEG", quality=100)
        image.payload = out.getvalue()
    found = meaning(made(tmp_path, image))
    assert found.display["model"] == model
    assert found.display["bands"] == [0, 1, 2]
    if ic == "NC":
        names = ["YCbCr_Y", "YCbCr_Cb", "YCbCr_Cr"]
        assert [band.interpretation for band in found.bands] == names
    else:
        assert [band.interpretation for band in found.bands] == ["Red", "Green", "Blue"]


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
def test_the_pad_pixel_is_nodata(tmp_path, dtype):
    pad = np.asarray(7).astype(np.dtype(dtype).newbyteorder(">")).tobytes()
    values = array(1, dtype, 200)
    path = made(tmp_path, Image(values, ic="NM", block=(8, 8), absent={(0, 1)}, pad=pad))
    found = meaning(path)
    assert found.nodata == 7
    if dtype == "u1":  # GDAL reads pad pixels of 8 bits only
        with gdal(path) as opened:
            assert opened.nodata == 7
    assert (anychunk.open_array(path)[:8, 8:] == 7).all()


def test_complex_pads_are_not_nodata(tmp_path):
    pad = np.asarray(1 + 2j, ">c8").tobytes()
    values = array(1, "c8")
    path = made(tmp_path, Image(values, ic="NM", block=(8, 8), absent={(0, 1)}, pad=pad))
    assert meaning(path).nodata is None
    assert (anychunk.open_array(path)[:8, 8:] == 1 + 2j).all()


def test_complex_pairs_have_no_name(tmp_path):
    image = Image(array(2, "f4"), imode="P", icat="SAR", isubcat=("I", "Q"))
    found = meaning(made(tmp_path, image))
    assert found.names == ("y", "x")
    assert [band.name for band in found.bands] in ([], [None])


@pytest.mark.parametrize("version", ["NITF02.10", "NITF02.00"])
def test_tags_are_those_of_gdal(tmp_path, version):
    image = Image(array(1), comments=("first comment", "and the second"))
    path = made(tmp_path, image, version=version)
    found = meaning(path).tags
    with gdal(path) as opened:
        tags = opened.tags()
    assert found["NITF_IID1"] == "test"
    assert found["NITF_IDATIM"] == "20260101000000"
    assert found["NITF_IMAGE_COMMENTS"].split() == ["first", "comment", "and", "the", "second"]
    assert {key: tags[key].rstrip() for key in found} == found


@needs_corpus
@pytest.mark.parametrize("sample", samples("nitf/"), ids=lambda s: s.path)
def test_tags_and_nodata_of_real_files(sample):
    index = anychunk.index(sample.file)
    if len(list(images(index))) != 1:
        pytest.skip("no image, or several")
    found = meaning(sample.file)
    with gdal(sample.file) as opened:
        tags = {key: text.strip() for key, text in opened.tags().items()}
        assert found.nodata == opened.nodata
    assert found.tags["NITF_FHDR"] in ("NITF02.10", "NITF02.00", "NSIF01.00")
    different = {key: text for key, text in found.tags.items() if tags.get(key, text) != text}
    assert different == {}


def test_names_of_images(tmp_path):
    about = anychunk.open(made(tmp_path, Image(array(1))))["0"].attrs
    assert about["ome"]["multiscales"][0]["name"] == "test"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20260307102030", "2026-03-07T10:20:30+00:00"),
        ("2026----------", None),
        ("20261307102030", None),
        ("07102030ZMAR26", None),
        (None, None),
    ],
)
def test_date_and_time(text, expected):
    assert time(text) == expected
