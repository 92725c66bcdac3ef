"""What TIFF files mean, compared with GDAL: place, samples, texts, colours, on every shared file."""

import functools
import logging
import warnings

import numpy as np
import pytest
import rasterio
import rasterio.crs
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images
from tests.support.corpus import needs_corpus, samples

FILES = [*samples("tiff/"), *samples("ome-tiff/")]
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
OTHER_CRS = {
    "ca_nrc_NAD83v70VG.tif": "its heights are the samples of a band; GDAL gives the CRS with heights",
    "tp_image4.tif": "a local system (LOCAL_CS), which is not a CRS",
}
CONVERTED = {"YCBCR", "SEPARATED"}
"""GDAL shows these as RGB, which libtiff makes of them; ours stay as stored."""
OTHER_TEXTS = {
    "hopper_lzw.tif": "a description that is not UTF-8, which rasterio leaves out",
    "old-style-jpeg-compression-no-samplesperpixel.tif": "a damaged tag, which tifffile leaves out",
}


@functools.cache
def opened(path):
    """Return the first image's meaning, its attribute `tiff`, and GDAL's dataset."""
    logging.getLogger("rasterio").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        dataset = rasterio.open(path)
    index = anychunk.index(path)
    image = next(images(index))
    return meaning_of(index, image), image.attributes["tiff"], dataset


def both(sample):
    try:
        return opened(sample.file)
    except (rasterio.errors.RasterioIOError, anychunk.AnychunkError) as e:
        pytest.skip(f"one of the readers does not open it: {e}")


@needs_corpus
@pytest.mark.parametrize("sample", FILES, ids=lambda s: s.path)
def test_place(sample):
    pytest.importorskip("pyproj", reason='the extra geo is missing: pip install "anychunk[geo]"')
    meaning, _, dataset = both(sample)
    place = meaning.place
    theirs = tuple(dataset.transform)[:6]
    # rasterio shows a transform that the file does not state as the identity
    np.testing.assert_allclose(place.transform or IDENTITY, theirs, rtol=1e-12)
    points, points_crs = dataset.gcps
    np.testing.assert_allclose(
        np.array(place.gcps).reshape(-1, 5),
        np.array([(p.col, p.row, p.x, p.y, p.z) for p in points]).reshape(-1, 5),
    )
    rpcs = dataset.rpcs
    assert (place.rpc is None) == (rpcs is None)
    if rpcs is not None:
        for name, value in rpcs.to_dict().items():
            if value is not None:  # GDAL passes them on as text, with 15 digits
                np.testing.assert_allclose(place.rpc[name], value, rtol=1e-13)
    crs = dataset.crs or points_crs
    if sample.file.name in OTHER_CRS:
        assert (place.crs is None) == (sample.file.name == "tp_image4.tif")
        return
    assert (place.crs is None) == (not crs)
    if crs:
        assert rasterio.crs.CRS.from_user_input(place.crs.code or place.crs.wkt) == crs


@needs_corpus
@pytest.mark.parametrize("sample", FILES, ids=lambda s: s.path)
def test_samples(sample):
    meaning, tiff, dataset = both(sample)
    bands = [meaning.band(number) for number in range(dataset.count)]
    nodata = dataset.nodatavals[0] if dataset.count else None
    assert (meaning.nodata is None) == (nodata is None)
    if nodata is not None:
        np.testing.assert_equal(float(meaning.nodata), nodata)
    assert tuple(band.scale for band in bands) == dataset.scales
    assert tuple(band.offset for band in bands) == dataset.offsets
    assert tuple(band.unit for band in bands) == dataset.units
    assert [dict(band.tags) for band in bands] == [dataset.tags(n) for n in dataset.indexes]
    if tiff["kind"] != "ome":
        assert tuple(band.name for band in bands) == dataset.descriptions


@needs_corpus
@pytest.mark.parametrize("sample", FILES, ids=lambda s: s.path)
def test_texts(sample):
    meaning, tiff, dataset = both(sample)
    if sample.file.name in OTHER_TEXTS:
        return
    theirs = dataset.tags()
    if tiff["kind"] == "ome":
        theirs.pop("TIFFTAG_IMAGEDESCRIPTION")  # the OME-XML, which the root group has
    # tifffile strips texts; GDAL shows empty ones
    assert meaning.tags == {name: text.rstrip() for name, text in theirs.items() if text}


@needs_corpus
@pytest.mark.parametrize("sample", FILES, ids=lambda s: s.path)
def test_colours(sample):
    meaning, tiff, dataset = both(sample)
    display, theirs = meaning.display, [color.name for color in dataset.colorinterp]
    if tiff["photometric"] in CONVERTED and "red" in theirs and display["model"] != "rgb":
        assert display["model"] in ("ycbcr", "cmyk")
        return
    if "c" in meaning.names and len(meaning.bands) != dataset.count:
        return  # channels in several pages, of which GDAL shows the first
    ours = [(meaning.band(n).interpretation or "Undefined").lower() for n in range(dataset.count)]
    is_grey = display["model"] == "grey" and dataset.count == 1
    if is_grey and theirs == ["palette"]:
        check_grey_as_palette(display, dataset.colormap(1))
    elif not (is_grey and display.get("inverted")):  # GDAL has no word for it above 8 bits
        assert ours == theirs
    if theirs[:1] == ["palette"] and not is_grey:
        colors = {n: tuple(c) for n, c in enumerate(display["palette"]["colors"])}
        table = dataset.colormap(1)
        assert set(colors) == set(table)
        if meaning.nodata in table:  # GDAL makes it transparent
            table[meaning.nodata] = (*table[meaning.nodata][:3], 255)
        # GDAL divides by 257 where libtiff and Pillow take the upper byte
        assert max(abs(a - b) for n in table for a, b in zip(table[n], colors[n], strict=True)) <= 1


def check_grey_as_palette(display, table):
    """GDAL shows images of one bit, and those whose zero is white, by a table of greys."""
    low, high = display["range"][0]
    for value, color in table.items():
        grey = (value - low) / (high - low) * 255
        expected = 255 - grey if display.get("inverted") else grey
        assert max(abs(part - expected) for part in color[:3]) <= 2


@needs_corpus
def test_most_georeferenced_files_have_transform_and_crs():
    pytest.importorskip("pyproj", reason='the extra geo is missing: pip install "anychunk[geo]"')
    found = []
    for sample in FILES:
        if "geotiff" in sample.properties:
            index = anychunk.index(sample.file)
            found.append(meaning_of(index, next(images(index))).place)
    assert sum(place.transform is not None for place in found) > 0.8 * len(found)
    assert sum(place.crs is not None for place in found) > 0.8 * len(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026:03:07 10:20:30", "2026-03-07T10:20:30"),
        ("    :  :     :  :  ", None),
        ("2026-03-07", None),
    ],
)
def test_date_and_time(tmp_path, text, expected):
    tifffile.imwrite(
        tmp_path / "a.tif", np.zeros((4, 4), "uint8"), extratags=[(306, 2, None, text, True)]
    )
    index = anychunk.index(tmp_path / "a.tif")
    assert meaning_of(index, next(images(index))).time == expected


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_special_characters_in_texts_of_gdal(tmp_path):
    texts = {"A": "salt & pepper", "B": "1 < 2 > 0", "C": "\"quoted\" 'so'", "D": "&lt; &amp;"}
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=8, height=8, count=1, dtype="uint8"
    ) as out:
        out.write(np.zeros((1, 8, 8), "uint8"))
        out.update_tags(**texts)
    with rasterio.open(tmp_path / "a.tif") as found:
        assert texts.items() <= found.tags().items()
    assert texts.items() <= anychunk.open(tmp_path / "a.tif")["0"].attrs["anychunk.tags"].items()
