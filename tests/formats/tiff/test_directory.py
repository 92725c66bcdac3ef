"""Structural tags that are damaged: read by strict rules, or refused, never replaced by defaults."""

import io
import struct
from dataclasses import replace

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.errors import FormatError, TruncatedError
from anychunk.formats.tiff.directory import SINGLE, STRUCTURAL
from anychunk.verification.checks import verify
from tests.support.gdal import gdal_shown
from tests.support.tiff_edits import (
    ASCII,
    BYTE,
    DOUBLE,
    FLOAT,
    LONG,
    LONG8,
    RATIONAL,
    SHORT,
    SLONG,
    Seed,
    as_type,
    numbers,
    written,
)

RANDOM = np.random.default_rng(3)
GREY = RANDOM.integers(0, 60_000, (50, 60)).astype("uint16")
RGBA = RANDOM.integers(0, 255, (50, 60, 4)).astype("uint8")
TILED = Seed(written((GREY, {"tile": (16, 32), "compression": "zlib", "predictor": 2})))
STRIPS = Seed(written((RGBA, {"photometric": "rgb", "extrasamples": [2], "rowsperstrip": 16})))
TWO = {"photometric": "minisblack", "rowsperstrip": 16}
PAGES = Seed(written((GREY, TWO), (GREY[:20], TWO)), directory=1)
EXPECTED = {TILED: GREY, STRIPS: np.moveaxis(RGBA, -1, 0)}


def edited(path, seed, code, change):
    """Write the file with another entry `code`; give its path."""
    entries = [change(e) if e.code == code else e for e in seed.entries()]
    path.write_bytes(seed.written(entries))
    return path


def structural(seed):
    return [e.code for e in seed.entries() if e.code in STRUCTURAL]


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE, ASCII, RATIONAL, SLONG])
@pytest.mark.parametrize(
    ("seed", "code"),
    [(s, c) for s in (TILED, STRIPS) for c in structural(s)],
    ids=lambda v: str(v) if isinstance(v, int) else "",
)
def test_other_types_are_refused(tmp_path, seed, code, kind):
    path = edited(tmp_path / "a.tif", seed, code, lambda e: as_type(seed, e, kind))
    with pytest.raises(FormatError, match=STRUCTURAL[code]):
        anychunk.open(path)


@pytest.mark.parametrize("kind", [BYTE, SHORT, LONG8])
@pytest.mark.parametrize("seed", [TILED, STRIPS], ids=["tiled", "strips"])
@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_unsigned_integers_of_any_size_are_read(tmp_path, seed, kind):
    """As TIFF 6.0 section 2 asks of readers; tifffile takes a BYTE for text."""
    most = {BYTE: 255, SHORT: 65535, LONG8: 1 << 63}[kind]
    entries = [
        as_type(seed, e, kind)
        if e.code in STRUCTURAL and max(numbers(seed, e))[0] <= most and e.type != kind
        else e
        for e in seed.entries()
    ]
    assert sum(e.type == kind for e in entries) > 3
    path = tmp_path / "a.tif"
    path.write_bytes(seed.written(entries))
    np.testing.assert_array_equal(anychunk.open_array(path)[...], EXPECTED[seed])
    np.testing.assert_array_equal(gdal_shown(path), EXPECTED[seed])


@pytest.mark.parametrize("code", structural(STRIPS))
def test_values_outside_the_file_are_not_replaced_by_defaults(tmp_path, code):
    def change(entry):
        return replace(entry, type=SHORT, count=5, value=bytes(10), pointer=1 << 30)

    path = edited(tmp_path / "a.tif", STRIPS, code, change)
    with pytest.raises(FormatError, match=STRUCTURAL[code]):
        anychunk.open(path)


@pytest.mark.parametrize(
    ("code", "count"),
    [(code, count) for code in structural(TILED) for count in ((0, 2) if code in SINGLE else (0,))],
)
def test_single_tags_have_one_value(tmp_path, code, count):
    path = edited(tmp_path / "a.tif", TILED, code, lambda e: replace(e, count=count))
    with pytest.raises(FormatError, match=STRUCTURAL[code]):
        anychunk.open(path)


@pytest.mark.parametrize("code", [322, 323])
def test_tiles_without_a_size_are_refused(tmp_path, code):
    """TileLength without a value is not a tile of one row, TileWidth 0 is not a strip."""
    path = edited(tmp_path / "a.tif", TILED, code, lambda e: as_type(TILED, e, SHORT, [0]))
    with pytest.raises(FormatError, match="is 0"):
        anychunk.open(path)
    path.write_bytes(TILED.written([e for e in TILED.entries() if e.code != 323]))
    with pytest.raises(FormatError, match="TileLength"):
        anychunk.open(path)


def test_rows_per_strip_zero_is_refused(tmp_path):
    path = edited(tmp_path / "a.tif", STRIPS, 278, lambda e: as_type(STRIPS, e, SHORT, [0]))
    with pytest.raises(FormatError, match="rowsperstrip"):
        anychunk.open(path)


def test_an_offset_of_zero_beside_others_is_not_an_absent_chunk(tmp_path):
    """Absent tiles have a byte count of 0: GDAL reads this one at offset 0, and fails."""

    def change(entry):
        values = [v[0] for v in numbers(TILED, entry)]
        return as_type(TILED, entry, entry.type, [*values[:2], 0, *values[3:]])

    path = edited(tmp_path / "a.tif", TILED, 324, change)
    array = anychunk.open_array(path)
    np.testing.assert_array_equal(array[:16, :60], GREY[:16])
    with pytest.raises(TruncatedError):
        array[16:32, :32]
    # a page without any data is empty, as GDAL writes it
    path = edited(
        tmp_path / "b.tif",
        TILED,
        324,
        lambda e: as_type(TILED, e, e.type, [0] * len(numbers(TILED, e))),
    )
    assert not anychunk.open_array(path)[...].any()


def test_damaged_page_among_good_ones_is_named(tmp_path):
    path = edited(tmp_path / "a.tif", PAGES, 258, lambda e: as_type(PAGES, e, FLOAT))
    group = anychunk.open(path)
    np.testing.assert_array_equal(group["0/0/image"][...], GREY)
    assert "page 1" in group.attrs["tiff"]["refused"][0]
    assert "BitsPerSample" in group.attrs["tiff"]["refused"][0]
    report = verify(path)
    assert not report.is_good
    assert [f.severity for f in report.findings] == ["warning"]


def test_subifd_that_tifffile_drops_is_named(tmp_path):
    """It cannot read the directory, and leaves the page out without an error."""
    seed = Seed(written((GREY, {**TWO, "subifds": 1}), (GREY[:20], TWO)), directory=-1)
    path = edited(tmp_path / "a.tif", seed, 277, lambda e: replace(e, type=7))
    with tifffile.TiffFile(path) as tif:
        assert [len(series) for series in tif.series(kind="generic")] == [1]
    group = anychunk.open(path)
    assert sorted(group) == ["0"]
    assert "SubIFD 0" in group.attrs["tiff"]["refused"][0]


def test_second_mask_of_an_image_is_an_image(tmp_path):
    path = tmp_path / "a.tif"
    masks = [RANDOM.integers(0, 2, (50, 60)).astype(bool) for _ in range(2)]
    pages = [
        (mask, {**TWO, "rowsperstrip": 10 + i, "subfiletype": 4}) for i, mask in enumerate(masks)
    ]
    path.write_bytes(written((GREY, TWO), *pages))
    group = anychunk.open(path)
    first, second = masks
    np.testing.assert_array_equal(group["0/0/image"][...], GREY)
    np.testing.assert_array_equal(group["0/0/mask"][...], first * np.uint8(255))
    np.testing.assert_array_equal(group["1/0/image"][...], second)


@pytest.mark.parametrize("cut", ["pointer", "directory", "far"])
def test_pages_before_a_broken_chain_open(tmp_path, cut):
    path = tmp_path / "a.tif"
    place = PAGES.place
    data = bytearray(PAGES.data)
    if cut == "far":
        data[place : place + 4] = struct.pack("<I", 0xFFFFFF00)
    elif cut == "directory":
        (offset,) = struct.unpack_from("<I", data, place)
        data = data[: offset + 20]
    else:
        # the first directory, then nothing: its own pointer is missing
        entries = replace(PAGES, directory=0).entries()
        data = bytearray(replace(PAGES, directory=0).written(entries))[:-2]
    path.write_bytes(data)
    group = anychunk.open(path)
    np.testing.assert_array_equal(group["0/0/image"][...], GREY)
    (reason,) = group.attrs["tiff"]["refused"]
    assert "page 1" in reason
    assert "None" not in reason
    assert str(len(data)) in reason
    assert not verify(path).is_good


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (code, kind)
        for code, right in {
            282: RATIONAL,
            283: RATIONAL,
            296: SHORT,
            305: ASCII,
            320: SHORT,
        }.items()
        for kind in (BYTE, ASCII, SHORT, RATIONAL, FLOAT, DOUBLE, 7)
        if kind != right
    ],
)
def test_damaged_descriptions_do_not_prevent_opening(tmp_path, code, kind):
    palette = np.arange(768, dtype="uint16").reshape(3, 256)
    seed = Seed(written((RGBA[..., 0], {"photometric": "palette", "colormap": palette})))
    path = edited(tmp_path / "a.tif", seed, code, lambda e: replace(e, type=kind, count=2))
    group = anychunk.open(path)
    np.testing.assert_array_equal(group["0/0/image"][...], RGBA[..., 0])
    if code == 320:
        assert group["0"].attrs["anychunk.display"]["model"] != "palette"


@pytest.mark.parametrize("to", [0, 1])
def test_a_chain_that_returns_is_told(tmp_path, to):
    """Pages behind it may be lost; libtiff reports an error there, too."""
    path = tmp_path / "a.tif"
    data = bytearray(written((GREY, TWO), (GREY[:20], TWO), (GREY[:30], TWO)))
    offsets = [page.offset for page in tifffile.TiffFile(io.BytesIO(data)).pages]
    (count,) = struct.unpack_from("<H", data, offsets[1])
    struct.pack_into("<I", data, offsets[1] + 2 + 12 * count, offsets[to])
    path.write_bytes(data)
    group = anychunk.open(path)
    np.testing.assert_array_equal(group["1/0/image"][...], GREY[:20])
    (reason,) = group.attrs["tiff"]["refused"]
    assert f"page 2: its directory is said to be at {offsets[to]}" in reason
    assert f"that of page {to}" in reason
    assert not verify(path).is_good


def test_ycbcr_has_three_samples(tmp_path):
    """TIFF 6.0 section 21; GDAL refuses such pages, tifffile too."""
    path = edited(tmp_path / "a.tif", PAGES, 262, lambda e: as_type(PAGES, e, SHORT, [6]))
    (reason,) = anychunk.open(path).attrs["tiff"]["refused"]
    assert "SamplesPerPixel 1, expected 3" in reason


def test_tiles_longer_than_a_number_of_64_bits(tmp_path):
    """Neither libtiff nor tifffile reads them."""
    big = written((GREY, {"tile": (16, 32)}), bigtiff=True)
    seed = Seed(big)
    path = edited(tmp_path / "a.tif", seed, 322, lambda e: as_type(seed, e, LONG8, [1 << 61]))
    with pytest.raises(FormatError):
        anychunk.open(path)


def test_fewer_samples_than_bits_and_colours(tmp_path):
    """Every second sample would be taken for one of another pixel; libtiff refuses the file."""
    path = edited(tmp_path / "a.tif", STRIPS, 277, lambda e: as_type(STRIPS, e, SHORT, [2]))
    with pytest.raises(FormatError, match="SamplesPerPixel is 2, but BitsPerSample has 4 values"):
        anychunk.open(path)


def test_more_samples_than_bits_and_lerc_bands(tmp_path):
    """The fourth would be taken for opacity, which LERC stores as a mask; libtiff refuses it."""
    seed = Seed(written((RGBA[..., :3], {"photometric": "rgb", "compression": "lerc"})))
    path = edited(tmp_path / "a.tif", seed, 277, lambda e: as_type(seed, e, SHORT, [4]))
    with pytest.raises(FormatError, match="BitsPerSample has 3 values, expected 4"):
        anychunk.open(path)


@pytest.mark.parametrize("code", [279, 325])
def test_several_chunks_need_byte_counts(tmp_path, code):
    """Libtiff refuses such pages, and tifffile reads their first chunk only."""
    seed = Seed(written((GREY, TWO if code == 279 else {"tile": (16, 32)})))
    entries = [e for e in seed.entries() if e.code != code]
    (tmp_path / "a.tif").write_bytes(seed.written(entries))
    with pytest.raises(FormatError, match="ByteCounts of page 0 is missing"):
        anychunk.open(tmp_path / "a.tif")


@pytest.mark.parametrize("code", [324, 325])
def test_more_offsets_or_byte_counts_than_tiles(tmp_path, code):
    """As in libtiff and tifffile, those behind the last tile are ignored."""

    def longer(entry):
        return as_type(TILED, entry, LONG, [*(n for (n,) in numbers(TILED, entry)), 1, 1])

    path = edited(tmp_path / "a.tif", TILED, code, longer)
    np.testing.assert_array_equal(tifffile.imread(path), GREY)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], GREY)


@pytest.mark.parametrize("bits", [None, 1, 2, 4])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_more_colours_than_bits_can_number(tmp_path, bits, compression):
    """Without BitsPerSample, of which the default is 1, a palette of 256 colours was read as bool.

    Libtiff refuses such pages.
    """
    colors = RANDOM.integers(0, 1 << 16, (3, 256)).astype("uint16")
    options = {"photometric": "palette", "colormap": colors, "compression": compression}
    seed = Seed(written((RGBA[..., 0], options)))
    entries = [
        e if e.code != 258 else as_type(seed, e, SHORT, [bits])
        for e in seed.entries()
        if e.code != 258 or bits is not None
    ]
    (tmp_path / "a.tif").write_bytes(seed.written(entries))
    with pytest.raises(FormatError, match="ColorMap has 768 values"):
        anychunk.open(tmp_path / "a.tif")
    with pytest.raises(rasterio.errors.RasterioIOError):
        rasterio.open(tmp_path / "a.tif")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_samples_that_neither_byte_count_nor_bits_confirm(tmp_path):
    """The byte count of a single uncompressed strip may be wrong, but not all of these."""
    grey = np.arange(400, dtype="uint8").reshape(20, 20)
    seed = Seed(written((grey, {"rowsperstrip": 20})))
    two = {277: [2], 279: [800]}
    changed = edited(tmp_path / "a.tif", seed, 277, lambda e: as_type(seed, e, SHORT, two[277]))
    with pytest.raises(FormatError, match="SamplesPerPixel is 2, but BitsPerSample has one value"):
        anychunk.open(changed)
    made = [as_type(seed, e, e.type, two[e.code]) if e.code in two else e for e in seed.entries()]
    (tmp_path / "b.tif").write_bytes(seed.written(made) + bytes(1000))
    with rasterio.open(tmp_path / "b.tif") as file:
        expected = file.read()
    np.testing.assert_array_equal(anychunk.open(tmp_path / "b.tif")["0/0/image"][...], expected)


def test_bits_that_neither_byte_count_nor_colours_confirm(tmp_path):
    """One bit changed to two: samples were taken from what follows the only strip."""
    seed = Seed(written((RANDOM.integers(0, 2, (20, 20)).astype(bool), {"rowsperstrip": 20})))
    made = {258: [2], 262: [3], 320: [0, 0, 0, 9, 9, 9]}
    kept = [entry for entry in seed.entries() if entry.code not in made]
    added = [as_type(seed, replace(kept[0], code=code), SHORT, made[code]) for code in made]
    path = tmp_path / "a.tif"
    path.write_bytes(seed.written(sorted(kept + added, key=lambda e: e.code)) + bytes(100))
    with pytest.raises(FormatError, match="ColorMap has 6 values, expected 12, and the strip 60"):
        anychunk.open(path)
    with pytest.raises(rasterio.errors.RasterioIOError):
        rasterio.open(path)
