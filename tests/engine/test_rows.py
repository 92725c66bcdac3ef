"""Chunks that the compiled loop decodes together, compared with tifffile, and with each by itself."""

import itertools
import json
import warnings

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.codecs import libraries
from anychunk.engine import local
from anychunk.engine.rows import PLACED, Table
from anychunk.errors import AnychunkError
from anychunk.native import loops
from anychunk.zarr import pipeline
from tests.support.compiled import needs_compiled

pytestmark = needs_compiled

STREAMS = (None, "packbits", "lzw", "zlib", "zstd", "lzma")
PICTURES = ("jpeg", "webp", "lerc")
LAYOUTS = (
    {"tile": (16, 32)},
    {"rowsperstrip": 1},
    {"rowsperstrip": 16},
)
BOXES = (
    (slice(None), slice(None)),
    (slice(5, 60), slice(None)),
    (slice(None), slice(40, 97)),
    (slice(3, 52), slice(1, 98)),
    (slice(16, 48), slice(32, 96)),
)
"""Of an image of 61 x 99 pixels: whole, cut above, on the left, everywhere, and along chunks."""


def write(path, *, dtype="u1", bands="one", compression=None, order="<", **layout):
    """Write an image of 61 x 99 pixels, and return it as (bands, y, x) or (y, x)."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:61, 0:99]
    values = 40 * np.sin(x / 9) * np.cos(y / 7) + 100 + rng.integers(0, 3, (61, 99))
    if bands != "one":
        axis = -1 if bands == "interleaved" else 0
        values = np.stack([values, values[::-1], 255 - values], axis=axis)
    values = values.astype(dtype)
    options = {"photometric": "rgb" if bands == "interleaved" else "minisblack", "metadata": None}
    if bands == "separate":
        options["planarconfig"] = "separate"
    if compression in ("lzw", "zlib", "zstd"):
        options["predictor"] = 3 if values.dtype.kind == "f" else 2
    if compression == "webp":
        options["compressionargs"] = {"lossless": True}
    tifffile.imwrite(
        path, values, byteorder=order, compression=compression, **options, **layout
    )  # fmt: skip
    found = tifffile.imread(path)
    return np.moveaxis(found, -1, 0) if bands == "interleaved" else found


@pytest.fixture
def taken(monkeypatch):
    """How many chunks the loop has decoded, and how many it has left."""
    counts, real = {"taken": 0, "left": 0}, Table.decode

    def decode(self, data):
        done = real(self, data)
        counts["taken"] += int((done == PLACED).sum())
        counts["left"] += int((done != PLACED).sum())
        return done

    monkeypatch.setattr(Table, "decode", decode)
    return counts


def one_by_one(monkeypatch):
    monkeypatch.setattr(local, "rows_of", lambda _: None)


CASES = [
    *itertools.product(STREAMS, ("u1", "i2", "u4", "f4", "f8"), ("one", "interleaved", "separate")),
    *itertools.product(("lerc",), ("u1", "i2", "u4", "f4", "f8"), ("one", "separate")),
    ("jpeg", "u1", "one"), ("jpeg", "u1", "interleaved"), ("webp", "u1", "interleaved"),
]  # fmt: skip


@pytest.mark.parametrize(("compression", "dtype", "bands"), CASES)
def test_pixels_are_those_of_tifffile(tmp_path, taken, compression, dtype, bands):
    for order, layout in itertools.product("<>", LAYOUTS):
        if compression in PICTURES and (layout == {"rowsperstrip": 1} or order == ">"):
            continue  # tifffile does not write these
        expected = write(
            tmp_path / "a.tif",
            dtype=dtype, bands=bands, compression=compression, order=order, **layout,
        )  # fmt: skip
        array = anychunk.open_array(tmp_path / "a.tif")
        for box in BOXES:
            np.testing.assert_array_equal(array[(..., *box)], expected[(..., *box)])
    assert taken["taken"] > 20


@pytest.mark.parametrize("kind", [*STREAMS[1:], *PICTURES])
def test_only_what_is_not_a_whole_chunk_is_left(tmp_path, taken, kind):
    bands = "interleaved" if kind == "webp" else "one"
    write(tmp_path / "a.tif", compression=kind, bands=bands, rowsperstrip=16)
    anychunk.open_array(tmp_path / "a.tif")[...]
    # four strips; of the last, the 13 rows are known, but libraries of pictures take only whole ones
    assert taken == ({"taken": 3, "left": 1} if kind in PICTURES else {"taken": 4, "left": 0})


def outcome(path):
    """Return the pixels, or the error."""
    try:
        return anychunk.open_array(path)[...]
    except AnychunkError as e:
        return f"{type(e).__name__}: {e}"


def assert_same(found, expected):
    if isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [*STREAMS[1:], *PICTURES, "g4"])
def test_damaged_chunks_have_the_same_outcome_as_by_themselves(tmp_path, monkeypatch, kind):
    """One changed byte, or one chunk cut short: the same error in the same words, or the same pixels."""
    path = tmp_path / "a.tif"
    bands = "interleaved" if kind in ("webp", "jpeg") else "one"
    if kind == "g4":
        bits = np.random.default_rng(0).random((64, 96)) < 0.3
        data = imagecodecs.tiff_encode(bits, compression="CCITTFAX4", rowsperstrip=16)
        path.write_bytes(data)
    else:
        write(path, compression=kind, bands=bands, tile=(16, 32))
    original = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        offsets, lengths = page.dataoffsets, page.databytecounts
        counts = page.tags["TileByteCounts" if page.is_tiled else "StripByteCounts"].valueoffset
    rng = np.random.default_rng(1)
    refused = 0
    for number in range(40):
        damaged = bytearray(original)
        chunk = int(rng.integers(len(offsets)))
        if number % 4:
            at = offsets[chunk] + int(rng.integers(lengths[chunk]))
            damaged[at] ^= 1 << int(rng.integers(8))
        elif page.is_tiled:
            width = 4 if page.tags["TileByteCounts"].dtype == 4 else 2
            short = int(rng.integers(1, lengths[chunk]))
            at = counts + width * chunk
            damaged[at : at + width] = short.to_bytes(width, "little")
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            together = outcome(path)
            with monkeypatch.context() as patch:
                one_by_one(patch)
                by_itself = outcome(path)
        assert_same(together, by_itself)
        refused += isinstance(by_itself, str)
    assert refused or kind in ("packbits", "jpeg")  # which have no checksum


def test_a_picture_does_not_see_the_tables_of_another(tmp_path, monkeypatch):
    """A JPEG tile without quantization table is an error, whatever was decoded before it."""
    pixels = np.random.default_rng(0).integers(0, 255, (16, 96), "u1")
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, pixels, tile=(16, 16), compression="jpeg", metadata=None)
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        assert page.jpegtables is None
        offset, length = page.dataoffsets[2], page.databytecounts[2]
    stream = bytes(data[offset : offset + length])
    at = stream.index(b"\xff\xdb")
    data[offset + at + 1] = 0xFE  # a comment of the same length in place of the quantization table
    path.write_bytes(data)
    together = outcome(path)
    assert "ChunkDecodeError" in together
    assert "chunk (0, 2)" in together
    one_by_one(monkeypatch)
    assert together == outcome(path)


def test_absent_chunks_are_filled(tmp_path, taken):
    path = tmp_path / "a.tif"
    expected = write(path, compression="zlib", tile=(16, 32))
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["TileByteCounts"]
        places = file.pages[0].tags["TileOffsets"]
    data = bytearray(path.read_bytes())
    for found in (tag, places):
        width = {3: 2, 4: 4}[found.dtype]
        data[found.valueoffset + width : found.valueoffset + 2 * width] = bytes(width)
    path.write_bytes(data)
    expected[:16, 32:64] = 0
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)
    assert taken["left"] == 1


@pytest.mark.parametrize("kind", ["zlib", "jpeg"])
def test_without_the_libraries_chunks_are_decoded_one_by_one(tmp_path, monkeypatch, taken, kind):
    expected = write(tmp_path / "a.tif", compression=kind, tile=(16, 32))
    monkeypatch.setattr(libraries, "functions", lambda _: None)
    pipeline.DECODERS.clear()
    try:
        np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], expected)
    finally:
        pipeline.DECODERS.clear()
    assert taken == {"taken": 0, "left": 0}


def test_places_outside_of_the_result_are_refused():
    """The loop checks every place and range itself: an index may be damaged."""
    data, out = np.arange(64, dtype=np.uint8), np.zeros((8, 8), np.uint8)

    def call(
        *, offset=0, length=16, start=0, extent=(4, 4), first=(0, 0), shape=(4, 4, 1), strides=(8, 0), **more
    ):  # fmt: skip
        done = np.ones(1, np.uint8)
        box = [first[0], extent[0], first[1], extent[1], 0, shape[2]]
        is_begun = loops.place_chunks(
            0, b"", b"", data, np.array([offset], np.uint64), np.array([length], np.uint64), out,
            np.array([start], np.int64), np.array(box, np.int64), np.array(more.get("shapes", ()), np.int64), done,
            np.empty(1, np.uint8), np.array(shape, np.int64), np.array([strides[0], 1, strides[1]], np.int64), 1, 1,
            False, 0,
        )  # fmt: skip
        return is_begun and bool(done[0])

    assert call()
    np.testing.assert_array_equal(out[:4, :4], data[:16].reshape(4, 4))
    assert call(start=36)
    assert call(offset=48)
    assert call(first=(2, 1), extent=(2, 3))
    np.testing.assert_array_equal(out[:2, :3], data[:16].reshape(4, 4)[2:, 1:])
    assert call(shapes=(2, 4, 1), length=8, extent=(2, 4))
    out[:] = 0
    refused = [
        {"start": 37}, {"start": -1}, {"start": 1 << 62}, {"start": (1 << 63) - 1}, {"extent": (5, 4)}, {"extent": (4, 5)},
        {"extent": (0, 4)}, {"extent": (-1, 4)}, {"offset": 49}, {"offset": (1 << 64) - 8},
        {"length": (1 << 64) - 1}, {"length": 15}, {"length": 0}, {"strides": (1 << 62, 0)},
        {"strides": (8, 1 << 62), "shape": (4, 2, 2)}, {"strides": (-8, 0)},
        {"shape": (1 << 40, 1 << 40, 1)}, {"shape": (0, 4, 1)}, {"first": (1, 0)}, {"first": (0, 1)}, {"first": (-1, 0)},
        {"first": (1 << 62, 0)}, {"first": (0, (1 << 63) - 1)}, {"shapes": (5, 4, 1)}, {"shapes": (2, 4, 1)}, {"shapes": (0, 4, 1)},
        {"shapes": (4, 4)},
    ]  # fmt: skip
    for options in refused:
        assert not call(**options), options
    assert not out.any()


def test_an_array_without_any_chunk_is_its_fill_value(tmp_path):
    (tmp_path / "a.n5/data").mkdir(parents=True)
    (tmp_path / "a.n5/attributes.json").write_text('{"n5": "2.0.0"}')
    about = {"dimensions": [7, 5], "blockSize": [3, 2], "dataType": "uint16"}
    text = json.dumps({**about, "compression": {"type": "gzip"}})
    (tmp_path / "a.n5/data/attributes.json").write_text(text)
    anychunk.save(anychunk.index(tmp_path / "a.n5"), tmp_path / "a.json")
    found = anychunk.open(tmp_path / "a.json")["data/0/image"][...]
    np.testing.assert_array_equal(found, np.zeros((5, 7), "u2"))
