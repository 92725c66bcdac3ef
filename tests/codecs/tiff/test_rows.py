"""Decompressed rows of TIFF tiles to their place: the compiled loop and what uses it."""

import itertools
import os
import pickle
import subprocess
import sys
import zlib

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import limits
from anychunk.codecs import TiffTile
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.tiff import decoders
from anychunk.errors import ChunkDecodeError
from anychunk.native import loops
from tests.support.compiled import needs_compiled

# bytes have no planes
PREDICTED = [(size, predictor) for size in (1, 2, 4, 8) for predictor in (1, 2, 3)]
PREDICTED.remove((1, 3))


def predicted(pixels, predictor, *, is_swapped=False):
    """Return (rows, columns, bands) of unsigned integers as a writer stores them.

    By the texts: TIFF 6.0 section 14, and Adobe Photoshop TIFF Technical Note 3.
    """
    if predictor == 3:
        big = pixels.astype(pixels.dtype.newbyteorder(">"))
        rows, columns, bands = pixels.shape
        planes = big.view(np.uint8).reshape(rows, columns * bands, -1).transpose(0, 2, 1)
        line = planes.reshape(rows, -1)
        coded = line.copy()
        coded[:, bands:] -= line[:, :-bands]
        return coded.reshape(-1)
    coded = pixels.copy()
    if predictor == 2:
        coded[:, 1:] -= pixels[:, :-1]
    return (coded.byteswap() if is_swapped else coded).reshape(-1).view(np.uint8)


@needs_compiled
@pytest.mark.parametrize(("size", "predictor"), PREDICTED)
@pytest.mark.parametrize("bands", [1, 2, 3, 4, 5])
def test_rows_are_placed_as_they_were_before_prediction(size, predictor, bands):
    rng = np.random.default_rng(size + 10 * predictor + 100 * bands)
    sides = [(1, 1), (3, 7), (4, 17), (2, 64), (3, 131), (40, 200)]
    for (rows, columns), best, is_swapped in itertools.product(sides, (0, 1, 2), (False, True)):
        pixels = rng.integers(0, 256, (rows, columns, bands * size), "u1").view(f"u{size}")
        stored = predicted(pixels, predictor, is_swapped=is_swapped)
        expected = np.moveaxis(pixels, -1, 0)
        for high, wide in ((rows, columns), (max(1, rows - 1), max(1, columns - 5))):
            room = np.full((bands, high + 1, wide + 2), 77, pixels.dtype)
            shape = (rows, columns, bands)
            target = room[:, :high, :wide]
            assert loops.place_rows(stored, target, shape, size, predictor, is_swapped, best)
            assert np.array_equal(target, expected[:, :high, :wide])
            assert (room[:, high:] == 77).all()
            assert (room[:, :, wide:] == 77).all()


@needs_compiled
@pytest.mark.parametrize(("size", "predictor"), PREDICTED)
@pytest.mark.parametrize("bands", [1, 3, 5])
def test_packbits_are_placed_a_few_rows_at_a_time(size, predictor, bands):
    rng = np.random.default_rng(size + 10 * predictor + 100 * bands)
    # rows shorter and longer than a run, and than what is decoded at a time
    sides = [(1, 1), (3, 7), (700, 3), (40, 200), (3, 9000 // size)]
    for (rows, columns), is_swapped in itertools.product(sides, (False, True)):
        values = rng.integers(0, rng.choice([2, 256]), (rows, columns, bands * size), "u1")
        pixels = values.view(f"u{size}")
        plain = predicted(pixels, predictor, is_swapped=is_swapped)
        # as one piece: runs go on from row to row
        stored = imagecodecs.packbits_encode(plain.tobytes())
        expected, shape = np.moveaxis(pixels, -1, 0), (rows, columns, bands)
        for high, wide in ((rows, columns), (max(1, rows - 1), max(1, columns - 5))):
            room = np.full((bands, high + 1, wide + 2), 77, pixels.dtype)
            target = room[:, :high, :wide]
            assert loops.place_packbits(stored, target, shape, size, predictor, is_swapped)
            assert np.array_equal(target, expected[:, :high, :wide])
            assert (room[:, high:] == 77).all()
            assert (room[:, :, wide:] == 77).all()
            # what is not exactly these rows is left to others; bytes behind them are ignored
            assert loops.place_packbits(stored + b"ab", target, shape, size, predictor, is_swapped)
            for wrong in (stored[:-1], b"", imagecodecs.packbits_encode(plain[:-1].tobytes())):
                assert not loops.place_packbits(wrong, target, shape, size, predictor, is_swapped)
        # a last run that reaches beyond the last row
        long = imagecodecs.packbits_encode(plain[:-1].tobytes()) + b"\xffa"
        assert not loops.place_packbits(long, target, shape, size, predictor, is_swapped)


@needs_compiled
def test_what_does_not_fit_is_not_placed():
    data, out = np.zeros(24, np.uint8), np.full((4, 6), 9, np.uint8)
    refused = [
        (data, out, (4, 6, 2), 1, 1),  # more than the data
        (data, out, (4, 5, 1), 1, 1),  # fewer
        (data, out, (3, 8, 1), 1, 1),  # rows that the data lacks
        (data, out, (8, 3, 1), 1, 1),  # columns that it lacks
        (data, out, (4, 3, 2), 1, 1),  # bands that the target lacks
        (data, out, (4, 3, 1), 2, 1),  # samples of another size
        (data, out, (4, 6, 1), 1, 3),  # bytes in planes
        (data, out, (4, 6, 1), 1, 4),
        (data, out, (4, 2, 1), 3, 1),
        (data, out, (-4, -6, 1), 1, 1),
        (data, out, (1 << 62, 1 << 62, 1 << 62), 1, 1),
        (data, out.reshape(2, 2, 6), (2, 6, 3), 1, 1),
        (data, out.reshape(2, 2, 2, 3), (2, 3, 4), 1, 1),  # two axes of bands
        (data, out[:, ::2], (4, 6, 1), 1, 1),
        (data, out.T, (4, 6, 1), 1, 1),
        (data, out[:0], (4, 6, 1), 1, 1),
    ]
    for *arguments, predictor in refused:
        assert not loops.place_rows(*arguments, predictor, False)
        # its data say nothing about their size: layouts of fewer bytes are none of these rows
        if arguments[2] not in ((4, 5, 1), (3, 8, 1), (8, 3, 1)) or predictor != 1:
            assert not loops.place_packbits(b"\x81\0" * 2, *arguments[1:], predictor, False)
    assert (out == 9).all()
    with pytest.raises((BufferError, ValueError)):
        loops.place_rows(data, b"constant", (4, 6, 1), 1, 1, False)
    with pytest.raises((BufferError, ValueError)):
        loops.place_rows(data[::2], out, (2, 6, 1), 1, 1, False)


KINDS = [
    (compression, dtype, planar, order)
    for compression in ("none", "packbits", "lzw", "zlib", "zstd", "lzma")
    for dtype in ("uint8", "int16", "uint32", "float16", "float32", "float64")
    for planar in ("contig", "separate")
    for order in ("<", ">")
]


LAYOUTS = ({"tile": (32, 48)}, {"rowsperstrip": 9})
BOXES = [
    (slice(None),),
    (slice(None), slice(0, 50), slice(0, 60)),
    (slice(1, 2), slice(3, 66), slice(5, 83)),
    (slice(None), slice(0, 9), slice(0, 83)),
]


def field(dtype):
    steps = np.random.default_rng(0).integers(-3, 4, (3, 70, 83))
    return np.cumsum(steps, axis=2).astype(dtype)


def write(path, pixels, compression, planar, order, **layout):
    options = {"compression": None if compression == "none" else compression}
    if compression in ("lzw", "zlib", "zstd"):
        options["predictor"] = 3 if pixels.dtype.kind == "f" else 2
    tifffile.imwrite(
        path, pixels, photometric="minisblack", planarconfig=planar, byteorder=order, **options,
        **layout, metadata=None,
    )  # fmt: skip


@pytest.mark.parametrize(("compression", "dtype", "planar", "order"), KINDS)
def test_tiles_and_strips_read_as_tifffile_reads_them(tmp_path, compression, dtype, planar, order):
    pixels = field(dtype)
    stored = pixels if planar == "separate" else np.moveaxis(pixels, 0, -1)
    for number, layout in enumerate(LAYOUTS):
        path = tmp_path / f"{number}.tif"
        write(path, stored, compression, planar, order, **layout)
        assert np.array_equal(np.asarray(tifffile.imread(path)), stored)
        array = anychunk.open_array(str(path))
        for box in BOXES:
            assert np.array_equal(array[box], pixels[box])


@needs_compiled
@pytest.mark.parametrize("compression", ["packbits", "lzw", "zlib", "zstd", "lzma"])
def test_a_truncated_chunk_is_refused_wherever_it_goes(compression):
    number = {"packbits": 32773, "lzw": 5, "zlib": 8, "zstd": 50000, "lzma": 34925}[compression]
    pixels = np.random.default_rng(0).integers(0, 60, (24, 40, 3), "u1")
    tile = TiffTile(
        compression=number, samples_per_pixel=3, tile_width=40, tile_height=24, last_height=24,
        last_width=40,
    )  # fmt: skip
    spec = ChunkSpec((3, 24, 40), np.dtype("u1"))
    bands = np.ascontiguousarray(np.moveaxis(pixels, -1, 0)).reshape(-1)
    stored = np.frombuffer(bytes(tile.encode_bytes(bands, spec)), np.uint8)
    assert np.array_equal(tile.decode_bytes(stored, spec), bands)
    for length in range(0, len(stored) - 24, 7):
        with pytest.raises((ChunkDecodeError, RuntimeError, ValueError)):
            tile.decode_bytes(stored[:length], spec)


def test_pictures_at_the_edges_are_cropped(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (70, 83, 3), "u1")
    for compression, size in (("jpegxl", 32), ("webp", 48), ("lerc", 32), ("png", 32)):
        path = tmp_path / f"{compression}.tif"
        stored = pixels if compression != "lerc" else pixels[..., 0]
        lossless = (
            {"compressionargs": {"lossless": True}} if compression in ("jpegxl", "webp") else {}
        )
        tifffile.imwrite(
            path, stored, tile=(size, size), compression=compression, metadata=None, **lossless
        )
        expected = np.moveaxis(stored, -1, 0) if stored.ndim == 3 else stored
        array = anychunk.open_array(str(path))
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[..., :50, :60], expected[..., :50, :60])


@pytest.mark.parametrize(
    ("name", "bands"),
    # WebP has three bands at least
    [
        (n, b)
        for n in ("jpeg", "webp", "jpegxl", "lerc", "png")
        for b in (1, 3)
        if (n, b) != ("webp", 1)
    ],
)
def test_a_picture_of_another_size_than_its_strip_is_decoded_once(
    tmp_path, monkeypatch, name, bands
):
    """The last strip has fewer rows than the others."""
    shape = (37, 50, bands) if bands > 1 else (37, 50)
    pixels = np.random.default_rng(0).integers(0, 255, shape, "u1")
    lossless = {"lossless": True} if name in ("jpegxl", "webp") else {}
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, rowsperstrip=16, compression=name, metadata=None,
        photometric="rgb" if bands > 1 else "minisblack", compressionargs=lossless,
    )  # fmt: skip
    expected = tifffile.imread(tmp_path / "a.tif")
    expected = np.moveaxis(expected, -1, 0) if bands > 1 else expected
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        number = file.pages[0].compression
    real, calls = decoders.PICTURE_DECODERS[number], []

    def counted(tile, data, out):
        calls.append(len(data))
        return real(tile, data, out)

    monkeypatch.setitem(decoders.PICTURE_DECODERS, number, counted)
    array = anychunk.open_array(tmp_path / "a.tif")
    assert np.array_equal(array[...], expected)
    # the compiled loop decodes strips that are whole, and looks only at the header of the last one
    is_in_loop = loops is not None and name in ("jpeg", "webp", "lerc")
    assert len(calls) == (1 if is_in_loop else 3)
    assert np.array_equal(array[..., 30:36, 3:], expected[..., 30:36, 3:])


@needs_compiled
def test_a_picture_smaller_than_its_chunk_leaves_the_fill_value():
    pixels = np.random.default_rng(0).integers(0, 255, (10, 40), "u1")
    tile = TiffTile(compression=34933, tile_width=40, tile_height=16, last_height=10, last_width=40)
    spec = ChunkSpec((16, 40), np.dtype("u1"), 7)
    stored = np.frombuffer(imagecodecs.png_encode(pixels), np.uint8)
    target = np.asarray(tile.decode_bytes(stored, spec)).reshape(16, 40)
    assert np.array_equal(target[:10], pixels)
    assert (target[10:] == 7).all()


def test_the_codec_can_be_pickled_after_it_was_used(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.tif", np.zeros((64, 64), "u2"), tile=(32, 32), compression="zlib"
    )
    array = anychunk.open_array(str(tmp_path / "a.tif"))
    assert not array[...].any()
    assert not pickle.loads(pickle.dumps(array))[...].any()


@pytest.mark.processes
@needs_compiled
def test_results_are_the_same_without_the_compiled_module(tmp_path):
    for number, (compression, dtype, planar, order) in enumerate(KINDS):
        pixels = field(dtype)
        stored = pixels if planar == "separate" else np.moveaxis(pixels, 0, -1)
        layout = LAYOUTS[number % 2]
        write(tmp_path / f"{number}.tif", stored, compression, planar, order, **layout)
    code = (
        "import anychunk, numpy as np, sys, zlib\n"
        "for number in range(int(sys.argv[2])):\n"
        "    found = anychunk.open_array(f'{sys.argv[1]}/{number}.tif')[:, :66, 5:]\n"
        "    print(zlib.crc32(np.ascontiguousarray(found)))\n"
    )
    compiled, pure = (
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(len(KINDS))],
            check=True, capture_output=True, text=True, env={**os.environ, **more},
        ).stdout.split()
        for more in ({}, {"ANYCHUNK_PURE": "1"})
    )  # fmt: skip
    assert compiled == pure
    expected = [zlib.crc32(np.ascontiguousarray(field(kind[1])[:, :66, 5:])) for kind in KINDS]
    assert [int(number) for number in pure] == expected


def with_checksum(data, wanted):
    """Return bytes whose last 4 are replaced so that their CRC-32 is as wanted.

    A CRC is linear: each bit of the last bytes flips the same bits of it, whatever the others are.
    """
    front = data[:-4]
    plain = zlib.crc32(front + bytes(4))
    rows = [(zlib.crc32(front + (1 << n).to_bytes(4, "little")) ^ plain, 1 << n) for n in range(32)]
    missing, chosen = wanted ^ plain, 0
    for bit in range(32):
        pivot = next(row for row in rows if row[0] >> bit & 1)
        rows.remove(pivot)
        rows = [(a ^ pivot[0], b ^ pivot[1]) if a >> bit & 1 else (a, b) for a, b in rows]
        if missing >> bit & 1:
            missing, chosen = missing ^ pivot[0], chosen ^ pivot[1]
    return front + chosen.to_bytes(4, "little")


@pytest.mark.parametrize("is_tiled", [False, True])
def test_windows_of_jpeg_strips_with_the_same_length_and_checksum(tmp_path, is_tiled):
    """Windows of a strip without restart markers, next to a strip that was made to resemble it."""
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (2, 150, 150), np.uint8).repeat(16, 1).repeat(16, 2)
    streams = [imagecodecs.jpeg8_encode(image, level=60) for image in images]
    length = max(map(len, streams))
    # fill bytes before the end marker (T.81 B.1.1.2), and 4 bytes after it
    padded = [s[:-2] + b"\xff" * (length - len(s)) + s[-2:] + b"\0\0\0\0" for s in streams]
    padded[1] = with_checksum(padded[1], zlib.crc32(padded[0]))
    assert zlib.crc32(padded[0]) == zlib.crc32(padded[1])
    assert len(padded[0]) == len(padded[1])
    layout = {"tile": images[0].shape} if is_tiled else {"rowsperstrip": len(images[0])}
    for number, (stream, image) in enumerate(zip(padded, images, strict=True)):
        path = tmp_path / f"{number}.tif"
        tifffile.imwrite(
            path, iter([stream]), shape=image.shape, dtype=np.uint8, compression="jpeg",
            photometric="minisblack", **layout,
        )  # fmt: skip
        whole = imagecodecs.jpeg8_decode(streams[number])
        with limits.override(recent_bytes=0):
            array = anychunk.open_array(str(path))
            for first in (1203, 40, 2300):
                np.testing.assert_array_equal(array[first : first + 64], whole[first : first + 64])
