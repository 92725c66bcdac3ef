"""Rows of JPEG pictures from where they begin, compared with whole pictures as libjpeg decodes them."""

import io

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile

import anychunk
from anychunk import limits
from anychunk.codecs.tiff import decoders
from anychunk.codestream.jpeg_points import (
    Huffman,
    read_scan,
    read_tables,
    stream_of_rows,
    stuffed,
    unstuffed,
)
from anychunk.errors import FormatError
from anychunk.native import loops
from tests.compiled import needs_compiled

pytestmark = needs_compiled
KINDS = {
    "grey": ("L", {}),
    "4:4:4": ("RGB", {"subsampling": 0}),
    "4:2:2": ("RGB", {"subsampling": 1}),
    "4:2:0": ("RGB", {"subsampling": 2}),
    "CMYK": ("CMYK", {}),
}


def picture(mode, height, width, noise, seed=0):
    bands = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 125 * np.sin(x / (13 + 5 * n)) * np.cos(y / (29 - 4 * n)) for n in range(bands)]
    values = np.dstack(planes) + rng.normal(0, noise, (height, width, bands))
    return (
        np.clip(values, 0, 255)
        .astype(np.uint8)
        .reshape(height, width, *([bands] if bands > 1 else []))
    )


def encoded(array, mode, monkeypatch, **options):
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 1 << 22)
    file = io.BytesIO()
    height, width = array.shape[:2]
    Image.frombytes(mode, (width, height), array.tobytes()).save(file, "JPEG", **options)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("quality", [3, 75, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_whole(kind, quality, is_optimized, monkeypatch):
    mode, options = KINDS[kind]
    for height, width, noise in ((203, 97, 0), (64, 16, 40), (131, 1, 9)):
        array = picture(mode, height, width, noise)
        stream = encoded(
            array, mode, monkeypatch, quality=quality, optimize=is_optimized, **options
        )
        whole = imagecodecs.jpeg8_decode(stream)
        rng = np.random.default_rng(quality)
        scan = read_scan(stream, None)
        for _ in range(8):
            first, stop = sorted(rng.choice(height + 1, 2, replace=False).tolist())
            rows = stream_of_rows(stream, scan, first, stop)
            part = imagecodecs.jpeg8_decode(rows.data)
            assert part.shape[0] == rows.height
            found = part[first - rows.first : stop - rows.first]
            np.testing.assert_array_equal(found, whole[first:stop])


def test_few_bytes_are_decoded(monkeypatch):
    stream = encoded(picture("L", 2000, 300, 20), "L", monkeypatch)
    rows = stream_of_rows(stream, read_scan(stream, None), 1500, 1510)
    assert (rows.first, rows.height) == (1488, 32)
    assert len(rows.data) < len(stream) / 40


def test_the_walk_continues_where_it_stopped(monkeypatch):
    stream = encoded(picture("RGB", 400, 200, 20), "RGB", monkeypatch)
    steps, once = read_scan(stream, None), read_scan(stream, None)
    for row in (1, 2, 7, 25):
        assert steps.walk(stream, row)
        assert steps.known == row
    assert once.walk(stream, 25)
    np.testing.assert_array_equal(steps.records, once.records)


def test_a_table_without_the_code_is_extended(monkeypatch):
    """Differences between rows that grow slowly are small, the coefficients themselves are not."""
    array = np.repeat(np.arange(128, 208, 4, np.uint8), 8)[:, None].repeat(160, axis=1)
    stream = encoded(array, "L", monkeypatch, optimize=True)
    scan = read_scan(stream, None)
    rows = stream_of_rows(stream, scan, 80, 90)
    added = read_scan(rows.data, None).tables[0].symbols
    assert set(added) > set(scan.tables[0].symbols)
    np.testing.assert_array_equal(
        imagecodecs.jpeg8_decode(rows.data)[80 - rows.first :][:10],
        imagecodecs.jpeg8_decode(stream)[80:90],
    )


def test_symbols_are_added_at_the_end():
    # T.81 table K.3
    standard = Huffman((0, 1, 5, 1, 1, 1, 1, 1, 1, *[0] * 7), bytes(range(12)))
    assert standard.code(0) == "00"
    assert standard.code(5) == "110"
    assert standard.code(11) == "111111110"
    longer = standard.with_symbol(13)
    assert longer.code(13) == "1111111110000000"
    assert [longer.code(n) for n in range(12)] == [standard.code(n) for n in range(12)]
    assert standard.with_symbol(11) is standard
    full = Huffman((1, *[0] * 14, (1 << 15) - 1), bytes(1))
    assert full.with_symbol(5) is None


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_rows": 1}])
def test_what_is_not_walked(options, monkeypatch):
    assert read_scan(encoded(picture("L", 80, 80, 5), "L", monkeypatch, **options), None) is None


def test_damaged_tables():
    for body in (b"\0", bytes(17)[:-1], b"\0" + bytes([0] * 15 + [3]) + b"ab", b"\0\3" + bytes(18)):
        with pytest.raises(FormatError):
            read_tables(body)


@pytest.mark.parametrize("kind", ["grey", "4:2:0"])
def test_damaged_pictures_are_those_of_the_whole(kind, monkeypatch):
    """Where a part is decoded, it is what libjpeg makes of the damaged picture."""
    mode, options = KINDS[kind]
    stream = encoded(picture(mode, 160, 120, 15), mode, monkeypatch, **options)
    start = read_scan(stream, None).data_at
    rng = np.random.default_rng(5)
    decoded = refused = 0
    for _ in range(150):
        damaged = stream.copy()
        for place in rng.integers(start, len(stream) - 2, 2):
            damaged[place] ^= 1 << int(rng.integers(8))
        scan = read_scan(damaged, None)
        first = int(rng.integers(0, 150))
        rows = stream_of_rows(damaged, scan, first, first + 10)
        if rows is None:
            refused += 1
            continue
        try:
            whole = imagecodecs.jpeg8_decode(damaged)
        except imagecodecs.Jpeg8Error:
            continue  # below the part
        part = imagecodecs.jpeg8_decode(rows.data)[first - rows.first :][:10]
        np.testing.assert_array_equal(part, whole[first : first + 10])
        decoded += 1
    assert decoded > 20
    assert refused > 5


def test_a_cut_picture_is_not_walked_to_its_end(monkeypatch):
    stream = encoded(picture("L", 160, 120, 15), "L", monkeypatch)
    cut = np.concatenate([stream[: len(stream) // 2], stream[-2:]])
    scan = read_scan(cut, None)
    assert stream_of_rows(cut, scan, 140, 150) is None
    assert stream_of_rows(cut, scan, 10, 20) is not None


@pytest.mark.parametrize("value", [(), (0, 0, 0, 0), (1, 4, 0, 0), (1, 0, 2, 0), (1, 0, 0, -1)])
def test_hostile_layouts(value):
    with pytest.raises(ValueError, match="layout"):
        loops.jpeg_walk(b"", bytes(272 * 2), np.array(value, np.int64), np.zeros(36, np.int64), 0)
    with pytest.raises(ValueError, match="rows"):
        good = np.array((1, 0, 0, 0), np.int64)
        loops.jpeg_walk(b"", bytes(272), good, np.full(36, 9, np.int64), 0)


def test_stuffing():
    data = np.array([255, 0, 255, 255, 1, 255], np.uint8)
    assert stuffed(data).tolist() == [255, 0, 0, 255, 0, 255, 0, 1, 255, 0]
    assert unstuffed(stuffed(data)).tolist() == data.tolist()


@pytest.mark.parametrize("has_tables", [False, True])
def test_windows_of_one_strip(tmp_path, has_tables):
    """The strip of a TIFF, with its tables in the tag or in the stream."""
    image = picture("L", 2400, 2400, 12)
    path = tmp_path / "a.tif"
    shape = {"tile": (2400, 2400)} if has_tables else {"rowsperstrip": 2400}
    tifffile.imwrite(path, image, compression="jpeg", **shape)
    whole = tifffile.imread(path)
    decoders.WALKED.clear()
    with limits.override(recent_bytes=0):
        array = anychunk.open_array(str(path))
        for first in (1203, 40, 801, 1203):
            np.testing.assert_array_equal(array[first : first + 64], whole[first : first + 64])
    assert len(decoders.WALKED) == 1


def test_another_picture_of_the_same_length_has_its_own_walk(tmp_path):
    """What is remembered is found by the checksum of all bytes, not by the file."""
    images = [picture("L", 2400, 2400, 0), picture("L", 2400, 2400, 0)[::-1]]
    streams = [imagecodecs.jpeg8_encode(image, level=60) for image in images]
    length = max(map(len, streams))
    path = tmp_path / "a.tif"
    decoders.WALKED.clear()
    for image, stream in zip(images, streams, strict=True):
        whole = imagecodecs.jpeg8_decode(stream)
        padded = stream[:-2] + b"\xff" * (length - len(stream)) + stream[-2:]
        tifffile.imwrite(
            path, iter([padded]), shape=image.shape, dtype=np.uint8, compression="jpeg",
            rowsperstrip=2400, photometric="minisblack",
        )  # fmt: skip
        with limits.override(recent_bytes=0):
            array = anychunk.open_array(str(path))
            np.testing.assert_array_equal(array[900:950], whole[900:950])
    assert len(decoders.WALKED) == 2
