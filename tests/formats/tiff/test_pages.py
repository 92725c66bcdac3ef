"""Pages of one file that are not alike, however much they look it; and OME-TIFF over several files."""

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.decode.boxes import ArrayReader
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import ChunkDecodeError, FormatError, TruncatedError
from anychunk.io.open_sources import Sources
from tests.support.gdal import gdal_read
from tests.support.tiff_edits import Seed, as_type, numbers, written
from tests.support.tiff_images import image_arrays, pages_of_array

RNG = np.random.default_rng(0)
PLAIN = {"compression": "zlib", "metadata": None}
OME = '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:{}">{}</OME>'


def page(*, height=40, width=50, bands=0):
    return RNG.integers(0, 200, (height, width, *([bands] if bands else []))).astype(np.uint8)


def planes_of(path):
    """List the planes (band, y, x) of every array, in order."""
    opened = anychunk.open(path)
    found = [
        pages_of_array(opened[name][...], array.dimension_names)
        for name, array in image_arrays(opened.store.index)
    ]
    return [plane for pages in found for plane in pages]


def hold(path, pages):
    """Hold the planes against the pages, whatever their order."""
    expected = {(np.moveaxis(p, -1, 0) if p.ndim == 3 else p[None]).tobytes() for p in pages}
    found = planes_of(path)
    assert len(found) == len(pages)
    assert {plane.tobytes() for plane in found} == expected


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("tables", [0, 1, 3], ids=["none", "quantisation", "both"])
def test_each_page_is_decoded_by_its_own_jpeg_tables(tmp_path, tables):
    """Two pages of different quality are one array, and each as GDAL reads it."""
    y, x = np.mgrid[:64, :80]
    array = np.stack([y * 2 + x, x * 3, 200 - y]).astype(np.uint8)
    path = tmp_path / "a.tif"
    for mode, quality in ((3, 95), (tables, 10), (3, 50)):
        with rasterio.open(
            path, "w", "GTiff", dtype="uint8", count=3, height=64, width=80, compress="jpeg",
            photometric="YCBCR", jpeg_quality=quality, JPEGTABLESMODE=mode,
            APPEND_SUBDATASET=path.exists(),
        ) as file:  # fmt: skip
            file.write(array)
    found = anychunk.open_array(path)
    assert found.metadata.dimension_names == ("c", "z", "y", "x")
    for number in range(3):
        with rasterio.open(f"GTIFF_DIR:{number + 1}:{path}") as file:
            np.testing.assert_array_equal(found[:, number], file.read())
    with tifffile.TiffFile(path) as tif:
        np.testing.assert_array_equal(np.moveaxis(found[:, 1], 0, -1), tif.pages[1].asarray())


@pytest.mark.parametrize(
    "other",
    [
        {"compression": "lzw"},
        {"predictor": True},
        {"rowsperstrip": 40, "photometric": "miniswhite"},
    ],
    ids=["compression", "predictor", "photometric"],
)
def test_one_page_of_many_is_coded_otherwise(tmp_path, other):
    pages = [page() for _ in range(10)]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for i, data in enumerate(pages):
            file.write(data, **PLAIN | (other if i == 4 else {}))
    hold(tmp_path / "a.tif", pages)


def test_one_page_of_many_has_more_bands(tmp_path):
    pages = [page(bands=3 if i == 4 else 0) for i in range(10)]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for data in pages:
            file.write(data, photometric="rgb" if data.ndim == 3 else "minisblack", **PLAIN)
    hold(tmp_path / "a.tif", pages)


def test_one_page_of_many_is_refused_and_named(tmp_path):
    pages = [page() for _ in range(10)]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for data in pages:
            file.write(data, **PLAIN)
    with tifffile.TiffFile(path) as tif:
        place = tif.pages[4].tags[259].valueoffset
    data = bytearray(path.read_bytes())
    data[place : place + 2] = (34676).to_bytes(2, "little")
    path.write_bytes(data)
    hold(path, pages[:4] + pages[5:])
    (reason,) = anychunk.open(path).attrs["tiff"]["refused"]
    assert "page 4:" in reason
    assert "34676" in reason


def test_fax_pages_with_options_of_their_own(tmp_path):
    """Rows in one dimension and rows in two are told apart by T4Options alone."""
    # ITU-T T.4: each row begins with EOL; where some have two dimensions, a bit says which
    eol, white_8, no_white, black_8, same = "000000000001", "10011", "00110101", "000101", "1"
    black = no_white + black_8
    one = eol + white_8 + eol + black + eol + black
    two = eol + "1" + white_8 + eol + "1" + black + eol + "0" + same * 2
    expected = np.array([[0] * 8, [1] * 8, [1] * 8], bool)
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for text, options in ((one, 0), (two, 1)):
            data = int(text.ljust(96, "0"), 2).to_bytes(12, "big")
            file.write(
                iter([data]), shape=expected.shape, dtype=bool, compression="packbits",
                photometric="miniswhite", rowsperstrip=3, metadata=None,
                extratags=[(292, 4, 1, options, True)],
            )  # fmt: skip
    with tifffile.TiffFile(path) as tif:
        places = [p.tags[259].valueoffset for p in tif.pages]
    stored = bytearray(path.read_bytes())
    for place in places:
        stored[place : place + 2] = (3).to_bytes(2, "little")
    path.write_bytes(stored)
    for plane in planes_of(path):
        np.testing.assert_array_equal(plane[0], expected)


def image(number, planes, places):
    """Give the OME-XML of an image; places are (attributes, file, uuid)."""
    data = "".join(
        f'<TiffData {attributes}><UUID FileName="{file}">urn:uuid:{uuid}</UUID></TiffData>'
        for attributes, file, uuid in places
    )
    return (
        f'<Image ID="Image:{number}"><Pixels ID="Pixels:{number}" DimensionOrder="XYZCT" '
        f'Type="uint8" SizeX="50" SizeY="40" SizeZ="{planes}" SizeC="1" SizeT="1">'
        f'<Channel ID="Channel:{number}:0" Name="n{number}" SamplesPerPixel="1"/>{data}'
        "</Pixels></Image>"
    )


@pytest.fixture
def pair(tmp_path):
    """Two OME-TIFF files of three planes each, with the same images in their XML."""
    pages = {name: [page() for _ in range(3)] for name in "ab"}

    def write(*images):
        for name in "ab":
            with tifffile.TiffWriter(tmp_path / f"{name}.tif") as file:
                for i, data in enumerate(pages[name]):
                    text = OME.format(name, "".join(images)) if i == 0 else None
                    file.write(data, description=text, **PLAIN)
        return tmp_path / "a.tif", tmp_path / "b.tif"

    return write, np.stack(pages["a"]), np.stack(pages["b"])


def test_an_image_is_that_of_its_own_xml(pair):
    """The file that holds nothing of the first image shows the second one, and its companion."""
    write, a, b = pair
    three = 'IFD="0" PlaneCount="3"'
    alone = image(0, 3, [(three, "a.tif", "a")])
    both = image(1, 6, [(three, "a.tif", "a"), (f'FirstZ="3" {three}', "b.tif", "b")])
    opened = anychunk.open(write(alone, both)[1])
    np.testing.assert_array_equal(opened["0/0/image"][...], np.concatenate([a, b]))
    assert opened["0"].attrs["anychunk.bands"][0]["name"] == "n1"


def test_companions_without_a_count_of_planes(pair):
    """OME-TIFF: TiffData with neither IFD nor PlaneCount means every page of the file."""
    write, a, b = pair
    first, second = write(image(0, 6, [("", "a.tif", "a"), ('FirstZ="3"', "b.tif", "b")]))
    np.testing.assert_array_equal(anychunk.open_array(first)[...], np.concatenate([a, b]))
    np.testing.assert_array_equal(anychunk.open_array(second)[...], b)
    second.unlink()
    array = anychunk.open_array(first)
    np.testing.assert_array_equal(array[:3], a)
    for plane in range(3, 6):
        with pytest.raises(anychunk.AnychunkError, match=r"b\.tif"):
            array[plane]


def test_absent_tiles_of_a_mask_mask(tmp_path):
    """The image's nodata is a value of pixels, and says nothing of its mask."""
    path = tmp_path / "a.tif"
    tile = np.full((16, 16), 255, np.uint8)
    shape = {"shape": (16, 32), "dtype": np.uint8, "tile": (16, 16), **PLAIN}
    with tifffile.TiffWriter(path) as file:
        file.write(iter([tile, None]), extratags=[(42113, 2, 4, "255", True)], **shape)
        file.write(iter([tile, None]), subfiletype=2, **shape)
    changed(path, 254, value=4, number=1)
    changed(path, 262, value=4, number=1)
    opened = anychunk.open(path)["0"]
    assert (opened["0/image"][...] == 255).all()
    assert opened["0/mask"][0].tolist() == [255] * 16 + [0] * 16


def changed(path, code, *, value=None, new_code=None, number=0):
    """Change the value of a short tag of one page, or its code."""
    with tifffile.TiffFile(path) as tif:
        tag = tif.pages[number].aspage().tags[code]
    data = bytearray(path.read_bytes())
    if value is not None:
        data[tag.valueoffset : tag.valueoffset + 2] = value.to_bytes(2, "little")
    if new_code is not None:
        data[tag.offset : tag.offset + 2] = new_code.to_bytes(2, "little")
    path.write_bytes(data)


def test_bands_that_are_neither_together_nor_apart_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, page(bands=3), photometric="rgb", **PLAIN)
    changed(path, 284, value=257)
    with pytest.raises(anychunk.AnychunkError, match=r"page 0: .*\b257\b"):
        anychunk.open(path)


def test_jpeg_that_says_itself_what_its_colours_are(tmp_path):
    path = tmp_path / "a.tif"
    data = np.repeat(page(bands=3)[::8, ::8], 8, 0).repeat(8, 1)[:40, :48]
    tifffile.imwrite(path, data, photometric="ycbcr", compression="jpeg", metadata=None)
    expected = tifffile.imread(path)
    changed(path, 262, new_code=263)  # Threshholding, which nobody heeds
    np.testing.assert_array_equal(np.moveaxis(anychunk.open_array(path)[...], 0, -1), expected)


@pytest.mark.parametrize("back_to", [0, 1, 2])
@pytest.mark.parametrize("kinds", [[1, 1, 1], [1, 2, 1]], ids=["alike", "mixed"])
def test_directories_in_a_circle_count_once(tmp_path, kinds, back_to):
    pages = [page(height=40 * kind) for kind in kinds]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for data in pages:
            file.write(data, **PLAIN)
    with tifffile.TiffFile(path) as tif:
        offsets = [p.offset for p in tif.pages]
        end = offsets[-1] + 2 + 12 * len(tif.pages[-1].tags)
    data = bytearray(path.read_bytes())
    data[end : end + 4] = offsets[back_to].to_bytes(4, "little")
    path.write_bytes(data)
    hold(path, pages)


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "packbits", "zstd", "jpeg"])
@pytest.mark.parametrize("bands", [1, 3])
def test_strip_in_the_middle_with_the_rows_of_the_last_is_an_error(tmp_path, compression, bands):
    """It decodes, but only the last strip may be short; rasterio refuses it too, or warns (JPEG)."""
    y, x = np.mgrid[:70, :64]
    pixels = (y * 3 + x).astype("uint8")
    pixels = pixels if bands == 1 else np.stack([pixels, pixels + 1, pixels + 2], -1)
    photometric = "minisblack" if bands == 1 else "rgb"
    options = {"rowsperstrip": 32, "compression": compression, "photometric": photometric}
    seed = Seed(written((pixels, options)))
    entries = {e.code: e for e in seed.entries()}
    for code in (273, 279):
        first, _, last = (v[0] for v in numbers(seed, entries[code]))
        entries[code] = as_type(seed, entries[code], entries[code].type, [first, last, last])
    path = tmp_path / "a.tif"
    path.write_bytes(seed.written(entries.values()))
    assert anychunk.index(path)["0/0/image"].chunk_shape[-2] == 32
    saved = tmp_path / "a.json"
    anychunk.save(anychunk.index(path), saved)
    reader = ArrayReader(ChunkReader(anychunk.index(path)["0/0/image"], Sources({})))
    if compression != "jpeg":
        with pytest.raises(rasterio.errors.RasterioIOError):
            gdal_read(path)
    first = () if bands == 1 else (0,)
    where = r"chunk \(1, 0\)" if bands == 1 else r"chunk \(0, 1, 0\)"
    for array in (anychunk.open_array(path), anychunk.open(saved)["0/0/image"]):
        whole = array[*first, :32], array[*first, 64:]
        with pytest.raises(ChunkDecodeError, match=where):
            array[*first, 40:50, :10]
        with pytest.raises(ChunkDecodeError):
            array[...]
        with pytest.raises(ChunkDecodeError):
            reader.chunk(1)
        if compression != "jpeg":
            expected = pixels if bands == 1 else pixels[..., 0]
            np.testing.assert_array_equal(whole[0], expected[:32])
            np.testing.assert_array_equal(whole[1], expected[64:])
            np.testing.assert_array_equal(reader.chunk(2)[*first, :6], expected[64:])


@pytest.mark.parametrize("code", [322, 323])
def test_tiles_without_their_size_are_refused(tmp_path, code):
    """They were read as strips: libtiff refuses them."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.arange(1024, dtype="u2").reshape(32, 32), tile=(16, 16))
    with tifffile.TiffFile(path) as file:
        at = file.pages[0].tags[code].offset
    data = bytearray(path.read_bytes())
    data[at : at + 2] = (50000).to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="Tile"):
        anychunk.index(path)


def without_tags(path, *codes):
    """Give tags of the first page a number that no reader knows."""
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        for code in codes:
            at = file.pages[0].tags[code].offset
            data[at : at + 2] = (50000).to_bytes(2, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(("code", "name"), [(256, "ImageWidth"), (257, "ImageLength")])
def test_a_page_without_a_size_is_refused_beside_others(tmp_path, code, name):
    """Both tags are required (TIFF 6.0 section 8); such a page was an image without pixels."""
    path = tmp_path / "a.tif"
    first, second = page(), page(height=20)
    tifffile.imwrite(path, first, **PLAIN)
    tifffile.imwrite(path, second, append=True, **PLAIN)
    without_tags(path, code)
    opened = anychunk.open(path)
    hold(path, [second])
    (reason,) = opened.attrs["tiff"]["refused"]
    assert name in reason
    (finding,) = anychunk.verify(path).findings
    assert name in finding.what


def test_the_only_page_without_a_size_has_no_pixels_and_says_so(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, page(), **PLAIN)
    without_tags(path, 256)
    assert anychunk.open_array(path).shape == (40, 0)
    assert not anychunk.verify(path).is_good


def test_a_size_is_not_taken_from_a_stream_that_compression_does_not_name(tmp_path):
    """Uncompressed samples that look like a JPEG stream; with JPEG, the stream states the size."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, page(), compression="jpeg", metadata=None)
    expected = tifffile.imread(path)
    without_tags(path, 256, 257)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)
    with tifffile.TiffFile(path) as file:
        at = file.pages[0].tags[259].valueoffset
    data = bytearray(path.read_bytes())
    data[at : at + 2] = (1).to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="ImageWidth"):
        anychunk.open(path)


def test_a_byte_count_longer_than_the_file(tmp_path):
    """A table of LONG that says it is LONG8: two counts in one number, and others from behind it."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.arange(2048, dtype="u2").reshape(64, 32), tile=(16, 16))
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags[325]
    data = bytearray(path.read_bytes())
    assert (tag.count, data[tag.offset + 2]) == (8, 3)
    data += np.array([512, 512, 512, 512 | 512 << 32, 512, 0, 512, 512], "<u8").tobytes()
    data[tag.offset + 2] = 16
    data[tag.offset + 8 : tag.offset + 12] = (len(data) - 64).to_bytes(4, "little")
    path.write_bytes(data)
    array = anychunk.open_array(path)
    assert array[:16].tolist() == np.arange(2048).reshape(64, 32)[:16].tolist()
    with pytest.raises(TruncatedError):
        array[...]
