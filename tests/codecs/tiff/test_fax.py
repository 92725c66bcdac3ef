"""CCITT data in TIFF: written by libtiff, read by ours, by a plain reader and by GDAL."""

import contextlib
import io
import logging
from concurrent.futures import ThreadPoolExecutor

import imagecodecs
import numpy as np
import pytest
import rasterio
import tifffile
from PIL import Image

import anychunk
from anychunk.codecs import TiffTile
from anychunk.codecs import _fax_lines as fax_lines
from anychunk.codecs.tiff import fax, libtiff_messages
from anychunk.errors import ChunkDecodeError, MissingDependencyError
from tests.support import naive_fax
from tests.support.compiled import needs_compiled

KINDS = {
    "group 4": ("group4", 0),
    "group 3": ("group3", 0),
    "group 3, 2-D": ("group3", 1),
    "group 3, fill": ("group3", 4),
    "group 3, 2-D, fill": ("group3", 5),
    "runs in bytes": ("tiff_ccitt", 0),
}
END_OF_BLOCK = 2 * naive_fax.EOL


def picture(height=20, width=70):
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(5).random((height, width)) * 0.5
    return (np.sin(x / 5) + np.cos(y / 3) + noise) > 0.5


def pictures():
    yield picture()
    yield picture(33, 301)
    yield np.random.default_rng(5).random((9, 130)) > 0.5
    yield np.zeros((4, 2600), bool)
    yield np.ones((4, 5300), bool)
    yield np.zeros((3, 1), bool)


def tiff(pixels, kind, rows=None):
    name, options = KINDS[kind]
    out = io.BytesIO()
    tags = {292: options, 278: rows or len(pixels)}
    Image.fromarray(pixels).save(out, "TIFF", compression=name, tiffinfo=tags)
    return out.getvalue()


def strips(data):
    page = tifffile.TiffFile(io.BytesIO(data)).pages[0]
    ranges = zip(page.dataoffsets, page.databytecounts, strict=True)
    return [data[start : start + length] for start, length in ranges]


def strip(pixels, kind):
    return strips(tiff(pixels, kind))[0]


def tile(pixels, kind, **changes):
    name, options = KINDS[kind]
    height, width = pixels.shape
    made = {
        "compression": {"group4": 4, "group3": 3, "tiff_ccitt": 2}[name],
        "t4_options": options,
        "bits_per_sample": 1,
        "tile_height": height,
        "tile_width": width,
        "last_height": height,
    }
    return TiffTile(**{**made, **changes})


def decode(made, data):
    return fax.decode(made, np.frombuffer(data, np.uint8))[..., 0]


def to_bits(data):
    return "".join(f"{byte:08b}" for byte in data)


def to_bytes(bits):
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


@pytest.mark.parametrize("kind", KINDS)
def test_whole_data(kind):
    for pixels in pictures():
        np.testing.assert_array_equal(
            decode(tile(pixels, kind), strip(pixels, kind)), pixels, strict=True
        )


def plainly(kind, data, pixels):
    height, width = pixels.shape
    if kind == "group 4":
        return naive_fax.group4(data, height, width)
    if kind == "runs in bytes":
        return naive_fax.runs_in_bytes(data, height, width)
    return naive_fax.group3(data, height, width, "2-D" in kind)


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_that_break_a_code_are_found(kind):
    """Silent are those that a reader of the standard, who checks everything, accepts too.

    A few more are allowed: libtiff accepts a row that ends in pass mode, and reports an
    extension code behind the last row as if it were the end.
    """
    pixels = picture(14, 60)
    data = strip(pixels, kind)
    made = tile(pixels, kind)
    found = missed = accepted = 0
    for bit in range(0, 8 * len(data), 1 if kind == "group 4" else 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 128 >> bit % 8
        try:
            expected, is_odd = plainly(kind, bytes(damaged), pixels)
        except naive_fax.Damaged:
            try:
                missed += bool((decode(made, bytes(damaged)) != pixels).any())
            except ChunkDecodeError:
                found += 1
            continue
        if not is_odd:
            np.testing.assert_array_equal(decode(made, bytes(damaged)), expected)
        accepted += 1
    assert found > 2 * accepted
    assert missed <= found / 50


@pytest.mark.parametrize("kind", KINDS)
def test_missing_rows_are_errors(kind):
    pixels = picture()
    data = strip(pixels, kind)
    taller = tile(pixels, kind, tile_height=23, last_height=23)
    with pytest.raises(ChunkDecodeError, match=r"\b20\b.*\b23\b"):
        decode(taller, data)
    for part in (0.1, 0.5, 0.9):
        with pytest.raises(ChunkDecodeError):
            decode(tile(pixels, kind), data[: int(len(data) * part)])
    with pytest.raises(ChunkDecodeError):
        decode(tile(pixels, kind), b"")


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_strip_is_shorter(kind):
    pixels = picture()
    made = tile(pixels, kind, tile_height=32, last_height=20)
    np.testing.assert_array_equal(decode(made, strip(pixels, kind)), pixels)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_beyond_the_chunk_are_left_out(kind):
    pixels = picture()
    made = tile(pixels, kind, tile_height=17, last_height=17)
    np.testing.assert_array_equal(decode(made, strip(pixels, kind)), pixels[:17])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("rows", [20, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_pages_with_a_row_too_many_are_read_as_by_gdal_and_tifffile(tmp_path, kind, rows):
    """Scanners state a height of one row less than they code: in one strip, and in the last of three."""
    data = bytearray(tiff(picture(), kind, rows=rows))
    height = tifffile.TiffFile(io.BytesIO(data)).pages[0].tags["ImageLength"]
    size = {tifffile.DATATYPE.SHORT: 2, tifffile.DATATYPE.LONG: 4}[height.dtype]
    data[height.valueoffset : height.valueoffset + size] = (19).to_bytes(size, "little")
    path = tmp_path / "page.tif"
    path.write_bytes(data)
    ours = anychunk.open_array(path)[...]
    with rasterio.open(path) as theirs:
        np.testing.assert_array_equal(ours, theirs.read(1))
    np.testing.assert_array_equal(ours, tifffile.imread(path))
    np.testing.assert_array_equal(ours, picture()[:19])


def test_a_lost_end_of_line_code():
    """Without the check, libtiff returns a page of as many rows as announced, the last one invented."""
    pixels = picture()
    bits = to_bits(strip(pixels, "group 3"))
    lines = bits.split(naive_fax.EOL)
    bits = naive_fax.EOL.join([*lines[:5], lines[5] + lines[6], *lines[7:]])
    with pytest.raises(ChunkDecodeError, match=r"\b19 rows.*\b20\b"):
        decode(tile(pixels, "group 3"), to_bytes(bits))


def test_ends_of_group_4():
    pixels = picture()
    bits = to_bits(strip(pixels, "group 4"))
    codes = bits[: bits.rindex(END_OF_BLOCK)]
    made = tile(pixels, "group 4")
    for end in ("", "0" * 40, naive_fax.EOL, END_OF_BLOCK + "0110" * 9):
        np.testing.assert_array_equal(decode(made, to_bytes(codes + end)), pixels)
    with pytest.raises(ChunkDecodeError, match="line 20"):
        decode(made, to_bytes(codes + "011" * 9))


def test_group_3_with_page_end_and_without_end_of_line_codes():
    pixels = picture()
    made = tile(pixels, "group 3")
    bits = to_bits(strip(pixels, "group 3"))
    with_end = bits + "0" * 11 + 6 * naive_fax.EOL
    np.testing.assert_array_equal(decode(made, to_bytes(with_end)), pixels)
    bare = bits.replace(naive_fax.EOL, "")
    np.testing.assert_array_equal(decode(made, to_bytes(bare)), pixels)
    with pytest.raises(ChunkDecodeError):
        decode(made, to_bytes(bare[: len(bare) // 2]))


def test_bit_order():
    pixels = picture()
    for kind in KINDS:
        flipped = to_bytes("".join(f"{byte:08b}"[::-1] for byte in strip(pixels, kind)))
        np.testing.assert_array_equal(decode(tile(pixels, kind, fill_order=2), flipped), pixels)


def test_runs_divided_by_empty_ones():
    """Make-up codes above 1728 are younger than T.4: writers divided longer runs."""
    white, black = naive_fax.CODES
    code = {run: bits for bits, run in white.items()}, {run: bits for bits, run in black.items()}
    row = code[0][1728] + code[0][0] + code[1][0] + code[0][960] + code[0][12] + code[1][300 % 64]
    row = row.replace(code[1][44], code[1][256] + code[1][44])
    data = to_bytes(2 * (naive_fax.EOL + row))
    pixels = np.zeros((2, 3000), bool)
    pixels[:, 2700:] = True
    np.testing.assert_array_equal(decode(tile(pixels, "group 3"), data), pixels)
    two = naive_fax.EOL + "1" + row + naive_fax.EOL + "0"
    halves = row.split(code[1][0])
    two += "001" + halves[0] + code[1][0] + "001" + halves[1]
    np.testing.assert_array_equal(decode(tile(pixels, "group 3, 2-D"), to_bytes(two)), pixels)


def test_tables_equal_those_of_libtiff():
    """Every run of either colour, written by libtiff, is read here, and nothing is left over."""
    reader = fax_lines.Reader
    for first in range(0, 2700, 900):
        runs = np.arange(first, first + 900)
        pixels = np.zeros((900, 6000), bool)
        for row, run in zip(pixels, runs, strict=True):
            row[run : 2 * run + 1] = True
        data = np.frombuffer(strip(pixels, "group 3"), np.uint8)
        lines = fax_lines.find_lines(data, False)
        read = reader(data)
        ends = lines.ends - lines.fill
        for start, end in zip(lines.starts.tolist(), ends.tolist(), strict=True):
            assert read.runs_add_up(start, end, 6000)
            assert not read.runs_add_up(start, end, 5999)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_pages_of_which_gdal_warns_are_refused(tmp_path, caplog):
    """GDAL returns pixels with a warning, or raises; what it reads without one is the same."""
    caplog.set_level(logging.WARNING, "rasterio")
    rng = np.random.default_rng(5)
    pixels = picture(40, 200)
    path = tmp_path / "page.tif"
    warned = 0
    for kind in ("group 4", "group 3", "group 3, 2-D"):
        data = tiff(pixels, kind, rows=8)
        page = tifffile.TiffFile(io.BytesIO(data)).pages[0]
        for offset in page.dataoffsets[:4]:
            damaged = bytearray(data)
            damaged[offset + 6] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            caplog.clear()
            try:
                with rasterio.open(path) as dataset:
                    theirs = dataset.read()
            except rasterio.errors.RasterioIOError:
                theirs = None
            if theirs is None or any("at line" in message for message in caplog.messages):
                warned += 1
                with pytest.raises(ChunkDecodeError):
                    anychunk.open(path)["0/0/image"][...]
                continue
            with contextlib.suppress(ChunkDecodeError):  # codes between rows
                np.testing.assert_array_equal(anychunk.open(path)["0/0/image"][...], theirs[0])
    assert warned > 6


def test_warnings_are_seen_whatever_the_logger_is_set_to(caplog):
    pixels = picture()
    damaged = bytearray(strip(pixels, "group 4"))
    damaged[20] ^= 0xFF
    logger = logging.getLogger("imagecodecs")
    level = logger.level
    try:
        logging.disable(logging.CRITICAL)
        logger.setLevel(logging.CRITICAL)
        with pytest.raises(ChunkDecodeError):
            decode(tile(pixels, "group 4"), bytes(damaged))
    finally:
        logging.disable(logging.NOTSET)
        logger.setLevel(level)
    logger.warning("of %s", "others")
    assert caplog.messages == ["of others"]


def test_threads_see_their_own_warnings():
    pixels = picture(60, 400)
    whole = strip(pixels, "group 4")
    damaged = bytearray(whole)
    damaged[30] ^= 0xFF

    def is_refused(is_damaged):
        try:
            decode(tile(pixels, "group 4"), bytes(damaged) if is_damaged else whole)
        except ChunkDecodeError:
            return True
        return False

    asked = [bool(n % 2) for n in range(200)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(is_refused, asked)) == asked


def test_an_imagecodecs_that_reports_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(libtiff_messages, "_decode", lambda _: (None, []))
    with pytest.raises(MissingDependencyError, match="imagecodecs"):
        libtiff_messages._check_that_messages_arrive.__wrapped__()


@needs_compiled
def test_the_compiled_module_agrees():
    """It decodes what libtiff's encoder writes; of damaged data, only what libtiff decodes."""
    agreed = refused = 0
    for pixels in pictures():
        data = strip(pixels, "group 4")
        for order in (1, 2):
            stored = np.frombuffer(data, np.uint8)
            stored = stored if order == 1 else imagecodecs.bitorder_decode(stored.copy())
            out = np.full(pixels.size, 7, np.uint8)
            assert fax.decode_exact(tile(pixels, "group 4", fill_order=order), stored, out)
            np.testing.assert_array_equal(out.reshape(pixels.shape), pixels)
        made = tile(pixels, "group 4")
        for bit in np.random.default_rng(6).integers(0, 8 * len(data), 200).tolist():
            damaged = bytearray(data)
            damaged[bit // 8] ^= 128 >> bit % 8
            stored = np.frombuffer(damaged, np.uint8)
            out = np.full(pixels.size, 7, np.uint8)
            if not fax.decode_exact(made, stored, out):
                refused += 1
                continue
            agreed += 1
            expected = fax.decode(made, stored)[..., 0]  # by libtiff
            np.testing.assert_array_equal(out.reshape(pixels.shape), expected)
    assert agreed > 20
    assert refused > 200


def test_the_compiled_module_leaves_odd_data_to_libtiff():
    pixels = picture()
    data = strip(pixels, "group 4")
    codes = to_bits(data)[: to_bits(data).rindex(END_OF_BLOCK)]
    made, shorter = (tile(pixels, "group 4", tile_height=n, last_height=n) for n in (20, 19))
    for one, stored in ((made, to_bytes(codes)), (shorter, data), (made, data[:9]), (made, b"")):
        out = np.zeros(one.tile_height * one.tile_width, np.uint8)
        assert not fax.decode_exact(one, np.frombuffer(stored, np.uint8), out)
    whole = np.frombuffer(data, np.uint8)
    assert not fax.decode_exact(made, whole, np.zeros((20, 140), np.uint8)[:, ::2])
    assert not fax.decode_exact(made, whole, np.zeros(pixels.shape, np.uint16))
    two = tile(pixels, "group 4", samples_per_pixel=2)
    assert not fax.decode_exact(two, whole, np.zeros(2 * pixels.size, np.uint8))
