"""Thumbnails: the right plane, the right level, the right grey."""

import json
import struct
import zlib

import imagecodecs
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tifffile

import anychunk
from anychunk import limits
from anychunk.errors import LimitError, OptionError, UnsupportedError
from anychunk.io.opening import read_object
from anychunk.metadata.painting import paint
from anychunk.selection.cuts import selection
from anychunk.thumbnail import band_limits, block_steps, means, png, thumbnail
from tests.cli.test_cli import run
from tests.support.effort import at_most


def test_ramp_is_stretched(tmp_path):
    np.save(tmp_path / "a.npy", np.tile(np.arange(1000, dtype="uint16") * 60, (400, 1)))
    pixels = thumbnail(anychunk.index(tmp_path / "a.npy"), size=100, percentiles=(0, 100))
    assert pixels.shape == (40, 100)
    assert pixels.dtype == np.uint8
    # means of ten columns each, from black to white
    expected = np.rint(np.linspace(0, 255, 100)).astype(int)
    assert np.abs(pixels[0].astype(int) - expected).max() <= 1
    assert (pixels == pixels[0]).all()


def test_place_along_other_axes(tmp_path):
    data = np.zeros((5, 20, 30), "uint16")
    data[3, :, 15:] = 9
    np.save(tmp_path / "a.npy", data)
    index = anychunk.index(tmp_path / "a.npy")
    assert thumbnail(index).max() == 0
    assert thumbnail(index, at={"z": 3})[0, -1] == 255
    with pytest.raises(UnsupportedError, match=r"z 7 .*\b4$"):
        thumbnail(index, at={"z": 7})


def test_colours_and_one_band(tmp_path):
    data = np.zeros((50, 60, 3), "uint8")
    data[:25, :, 0], data[25:, :, 2] = 200, 100
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(32, 32))
    index = anychunk.index(tmp_path / "a.tif")
    pixels = thumbnail(index, percentiles=(0, 100))
    assert pixels.shape == (50, 60, 3)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[-1, -1].tolist() == [0, 0, 255]  # each band between its own limits
    # a photograph of 8 bits is not stretched
    assert thumbnail(index)[0, 0].tolist() == [200, 0, 0]
    assert thumbnail(index, wanted=selection(bands=[2]))[0, 0] == 0
    with pytest.raises(OptionError, match=r"band 3; there are 3"):
        thumbnail(index, wanted=selection(bands=[3]))


def write_turned(path, orientation, **options):
    """Write a small picture without any symmetry, with the tag Orientation."""
    data = np.random.default_rng(8).integers(0, 256, (20, 30, 3)).astype("uint8")
    tag = (274, "H", 1, orientation, True)
    tifffile.imwrite(path, data, photometric="rgb", extratags=[tag], **options)
    return data


def by_pillow(path):
    """Return the pixels of a picture, upright."""
    with PIL.Image.open(path) as picture:
        picture.load()
        # newer releases turn TIFFs when they are loaded, and then forget the tag
        return np.asarray(PIL.ImageOps.exif_transpose(picture))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path, orientation):
    data = write_turned(tmp_path / "a.tif", orientation)
    expected = by_pillow(tmp_path / "a.tif")
    assert expected.shape[:2] == ((20, 30) if orientation < 5 else (30, 20))
    found = thumbnail(anychunk.index(tmp_path / "a.tif"), size=30)
    np.testing.assert_array_equal(found, expected)
    # the array stays as it is stored
    stored = np.asarray(anychunk.open_array(tmp_path / "a.tif"))
    np.testing.assert_array_equal(stored.transpose(1, 2, 0), data)


def test_orientation_is_ignored_on_a_map(tmp_path):
    """Like GDAL, whose transforms refer to stored rows and columns."""
    place = [(33550, "d", 3, (10.0, 10.0, 0.0)), (33922, "d", 6, (0.0, 0, 0, 500, 900, 0))]
    data = np.arange(600, dtype="uint8").reshape(20, 30)
    tags = [(274, "H", 1, 6, True), *((*tag, True) for tag in place)]
    tifffile.imwrite(tmp_path / "a.tif", data, extratags=tags)
    found = thumbnail(anychunk.index(tmp_path / "a.tif"), size=30)
    np.testing.assert_array_equal(found, data)


def test_a_palette_colours_its_image(tmp_path):
    colours = np.zeros((3, 256), "uint16")
    colours[:, 7], colours[:, 200] = (65535, 0, 257), (0, 257 * 100, 0)
    data = np.full((40, 50), 7, "uint8")
    data[20:] = 200
    tifffile.imwrite(tmp_path / "a.tif", data, colormap=colours, photometric="palette")
    pixels = thumbnail(anychunk.index(tmp_path / "a.tif"))
    assert pixels[0, 0].tolist() == [255, 0, 1]
    assert pixels[-1, -1].tolist() == [0, 100, 0]


def test_the_fitting_level_is_read(tmp_path):
    full, half = np.full((400, 400), 7, "uint8"), np.tile(np.arange(200, dtype="uint8"), (200, 1))
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(full, tile=(64, 64), subifds=1)
        file.write(half, tile=(64, 64), subfiletype=1)
    index = anychunk.index(tmp_path / "a.tif")
    assert len(set(thumbnail(index, size=150).reshape(-1).tolist())) > 50
    assert len(set(thumbnail(index, size=300).reshape(-1).tolist())) == 1


def test_missing_values_are_black():
    data = np.array([[[np.nan, 5.0, 10.0, -9999.0]]])
    whole = np.arange(2), np.arange(5)
    assert grey(means(data, *whole, -9999), (0, 100)).tolist() == [[0, 0, 255, 0]]
    assert grey(np.full((1, 2, 2), np.nan), (2, 98)).tolist() == [[0, 0], [0, 0]]


def grey(values, percentiles):
    display = {"model": "grey", "bands": [0]}
    return paint({0: values[0]}, display, band_limits(values, [0], display, None, percentiles))


def test_a_line_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(10))
    with pytest.raises(UnsupportedError, match="dim_0"):
        thumbnail(anychunk.index(tmp_path / "a.npy"))


def test_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.random.default_rng(0).normal(size=(300, 200)))
    code, out, err = run(capsys, "thumb", "a.npy", "--size", "100")
    assert (code, out, err) == (0, "a.npy.png: 67 x 100\n", "")
    assert imagecodecs.png_decode((tmp_path / "a.npy.png").read_bytes()).shape == (100, 67)
    code, _, err = run(capsys, "thumb", "a.npy", "--at", "z:3")
    assert code == 2
    assert err.count("\n") == 1


def test_axes_in_any_order_make_a_png(tmp_path):
    data = np.arange(40 * 60, dtype="uint16").reshape(40, 60)
    anychunk.write(data, str(tmp_path / "a.n5"), chunk=(16, 16))
    picture = thumbnail(anychunk.index(tmp_path / "a.n5"), size=64)
    np.testing.assert_array_equal(imagecodecs.png_decode(png(picture)), picture)
    np.testing.assert_array_equal(imagecodecs.png_decode(png(picture.T)), picture.T)


@pytest.mark.parametrize("shape", [(1, 1, 3), (5, 1, 3), (1, 5, 3)])
def test_a_picture_of_one_pixel(shape, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.full(shape, 9, "uint8"), photometric="rgb")
    picture = thumbnail(anychunk.index(tmp_path / "a.tif"))
    assert imagecodecs.png_decode(png(picture)).shape == picture.shape == shape


def test_a_picture_of_nothing_is_black():
    nothing = np.full((3, 4, 1), np.nan)
    display = {"model": "rgb", "bands": [0, 1, 2]}
    limits = band_limits(nothing, [0, 1, 2], display, None, (2, 98))
    pixels = paint(dict(enumerate(nothing)), display, limits)
    assert pixels.shape == (4, 1, 3)
    assert not pixels.any()


def test_arrays_may_come_from_elsewhere(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 8), "uint8"))
    node = anychunk.index(tmp_path / "a.tif")
    asked = []

    def opened(path):
        asked.append(path)
        return anychunk.open(node)[path]

    assert thumbnail(node, open_path=opened).shape == (8, 8)
    assert asked == ["0/0/image"]


def test_a_small_picture_mixes_the_colours_of_a_palette_not_their_numbers(tmp_path):
    colours = np.zeros((3, 256), "uint16")
    # between black and white, by number, lies red
    colours[:, 1], colours[:, 2], colours[:, 3] = 0, (65535, 0, 0), 65535
    data = np.where(np.indices((400, 400)).sum(0) % 2, 1, 3).astype("uint8")
    tifffile.imwrite(tmp_path / "a.tif", data, colormap=colours, photometric="palette")
    pixels = thumbnail(anychunk.index(tmp_path / "a.tif"), size=100)
    assert pixels.shape == (100, 100, 3)
    assert (pixels == 128).all()


def test_nodata_is_excluded_from_a_small_picture(tmp_path):
    import rasterio

    data = np.repeat(np.array([10, 20], "int16"), 200)[None].repeat(400, 0)
    data[::2] = -9999
    data[:, :40] = -9999
    profile = {"driver": "GTiff", "width": 400, "height": 400, "count": 1, "dtype": "int16"}
    # no georeference is what GDAL warns of
    transform = rasterio.transform.from_origin(0, 400, 1, 1)
    with rasterio.open(
        tmp_path / "a.tif", "w", nodata=-9999, transform=transform, **profile
    ) as out:
        out.write(data, 1)
    pixels = thumbnail(anychunk.index(tmp_path / "a.tif"), size=100, percentiles=(0, 100))
    assert pixels.shape == (100, 100, 4)
    assert not pixels[:, :10].any(), "transparent: no pixel is valid"
    assert (pixels[:, 10:50] == (0, 0, 0, 255)).all()
    assert (pixels[:, 50:] == 255).all()


def test_a_mean_that_equals_nodata_is_there():
    found = means(np.array([[[-1, 1, 0, 0]]], "int8"), np.arange(2), np.array([0, 2, 4]), 0)
    np.testing.assert_array_equal(found, [[[0, np.nan]]])


def test_records_are_refused():
    data = np.zeros((1, 2, 2), [("a", "u1"), ("b", "f4")])
    with pytest.raises(UnsupportedError, match="'u1'"):
        means(data, np.arange(3), np.arange(3), None)


def test_strips_are_bounded_whatever_the_order_of_axes():
    class Large:
        shape, chunks = (100_000, 100_000, 3), (256, 256, 3)

    assert block_steps(Large, 0, 1) == (256, 10_752)

    class Wide:
        shape, chunks = (1000, 3000, 3), (256, 256, 3)

    assert block_steps(Wide, 0, 1) == (768, 3000)


def grid_of_tiles(path, *, side, count, tile, stored):
    """Write a TIFF of count x count tiles, of which the tiles `stored` all refer to one stream."""
    stream = zlib.compress(np.full((tile, tile), 9, "uint8").tobytes())
    numbers = np.zeros(count * count, "uint32")
    numbers[stored] = 1
    start = 8 + len(stream) + len(stream) % 2
    tables = (numbers * 8).astype("<u4").tobytes() + (numbers * len(stream)).astype("<u4").tobytes()
    entries = [
        (256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1),
        (277, 3, 1, 1), (322, 4, 1, tile), (323, 4, 1, tile), (324, 4, count * count, start),
        (325, 4, count * count, start + 4 * count * count),
    ]  # fmt: skip
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    data = b"II*\0" + struct.pack("<I", start + len(tables)) + stream
    path.write_bytes(data.ljust(start, b"\0") + tables + directory)
    return path


def test_many_chunks_of_the_same_few_bytes_are_refused(tmp_path):
    """45 KB that would decode to 18 GB."""
    path = grid_of_tiles(tmp_path / "a.tif", side=131_072, count=64, tile=2048, stored=slice(None))
    assert path.stat().st_size < 50_000
    with at_most(200_000), pytest.raises(LimitError, match="thumbnail_bytes"):
        thumbnail(anychunk.index(path), size=64)
    path = grid_of_tiles(tmp_path / "b.tif", side=512, count=8, tile=64, stored=slice(8, None))
    found = thumbnail(anychunk.index(path), size=8)
    assert (found == [[0]] + [[9]] * 7).all()
    with limits.override(thumbnail_bytes=1 << 10), pytest.raises(LimitError):
        thumbnail(anychunk.index(path), size=8)


def test_absent_chunks_are_not_read(tmp_path):
    """Of 4 GB, one tile is stored."""
    path = grid_of_tiles(tmp_path / "a.tif", side=65_536, count=32, tile=2048, stored=[33])
    with at_most(500_000):
        found = thumbnail(anychunk.index(path), size=32)
    assert found.shape == (32, 32)
    assert found[1, 1] == 9
    assert np.count_nonzero(found) == 1


def test_a_remote_picture(capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4))
    url = "memory://thumbnails/a.png"
    assert run(capsys, "thumb", str(tmp_path / "a.npy"), "-o", url)[0] == 0
    data = read_object(url)
    assert imagecodecs.png_decode(data.tobytes()).shape == (3, 4)


def test_absent_blocks_are_not_tried(tmp_path):
    """A few bytes announce 390,625 of them; the folder is listed."""
    anychunk.write(np.full((64, 64), 9, "uint8"), tmp_path / "a.n5", chunk=(64, 64))
    document = tmp_path / "a.n5/attributes.json"
    attributes = json.loads(document.read_text()) | {"dimensions": [40_000, 40_000]}
    document.write_text(json.dumps(attributes))
    with at_most(1_000_000):
        found = thumbnail(anychunk.index(tmp_path / "a.n5"), size=512)
    assert found.shape == (512, 512)
    # a link may lead to any number of blocks, so those are tried
    (tmp_path / "a.n5/9").symlink_to("0")
    with (
        limits.override(probed_chunks=1000),
        pytest.raises(LimitError, match="raise probed_chunks"),
    ):
        thumbnail(anychunk.index(tmp_path / "a.n5"), size=8)
