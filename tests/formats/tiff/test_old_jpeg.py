"""Old-style JPEG (compression 6): files made of the parts of JPEG streams, read by libtiff too."""

import struct

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError, UnsupportedError


def grey(height, width):
    y, x = np.mgrid[:height, :width]
    return np.clip(128 + 90 * np.sin(x / 11) * np.cos(y / 7), 0, 255).astype(np.uint8)


def colours(height, width):
    return np.dstack([grey(height, width), grey(width, height).T, 255 - grey(height, width)])


def jpeg(pixels, subsampling="444"):
    is_grey = pixels.ndim == 2
    return bytes(
        imagecodecs.jpeg8_encode(
            pixels, level=85, subsampling=None if is_grey else subsampling, optimize=False
        )
    )


def markers(stream):
    """Return (marker, start, end) of the segments up to the scan, its header included."""
    found, at = [], 2
    while True:
        length = struct.unpack(">H", stream[at + 2 : at + 4])[0]
        found.append((stream[at + 1], at, at + 2 + length))
        at += 2 + length
        if found[-1][0] == 0xDA:
            return found


def scan(stream):
    """Return the entropy-coded bytes of a stream."""
    return stream[markers(stream)[-1][2] : -2]


def tables(stream):
    """Return quantization, DC and AC tables as the tags 519, 520 and 521 store them."""
    found = {519: [], 520: [], 521: []}
    for marker, start, end in markers(stream):
        at = start + 4
        while marker in (0xDB, 0xC4) and at < end:
            kind = stream[at] >> 4
            size = 64 if marker == 0xDB else 16 + sum(stream[at + 1 : at + 17])
            found[519 if marker == 0xDB else 520 + kind].append(stream[at + 1 : at + 1 + size])
            at += 1 + size
    return found


def tiff(tags, heap):
    """Lay out a little-endian TIFF; `heap` follows the header, tags are (type, values)."""
    start = 8 + len(heap) + len(heap) % 2
    count = len(tags)
    extra = start + 2 + 12 * count + 4
    entries, values = b"", b""
    for code, (kind, numbers) in sorted(tags.items()):
        packed = struct.pack(f"<{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        field = packed.ljust(4, b"\0")
        if len(packed) > 4:
            field = struct.pack("<I", extra + len(values))
            values += packed
        entries += struct.pack("<HHI", code, kind, len(numbers)) + field
    head = struct.pack("<2sHI", b"II", 42, start)
    directory = struct.pack("<H", count) + entries + bytes(4)
    return head + heap.ljust(start - 8, b"\0") + directory + values


def common(pixels, subsampling=(1, 1)):
    height, width = pixels.shape[:2]
    bands = 1 if pixels.ndim == 2 else 3
    made = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [8] * bands),
        259: (3, [6]),
        262: (3, [1 if bands == 1 else 6]),
        277: (3, [bands]),
        284: (3, [1]),
        512: (3, [1]),
    }
    if bands == 3:
        made[530] = (3, list(subsampling))
    return made


def put(heap, parts):
    """Append parts to the heap; return it, and the offset of each in the file."""
    offsets = []
    for part in parts:
        heap += bytes(len(heap) % 2)
        offsets.append(8 + len(heap))
        heap += part
    return heap, offsets


def whole_stream_file(pixels, subsampling="444", shift=5, height=None):
    """A whole JPEG at tag 513; the only strip begins `shift` bytes into its scan header."""
    stream = jpeg(pixels, subsampling)
    heap, (at,) = put(b"", [stream])
    start = at + markers(stream)[-1][1] + shift
    uses = {}
    for code, found in tables(stream).items():
        heap, places = put(heap, found)
        uses[code] = (4, places if pixels.ndim == 2 else [places[0], places[1], places[1]])
    return stream, tiff(
        {
            **common(pixels, (2, 1) if subsampling == "422" else (1, 1)),
            **uses,
            257: (4, [height or len(pixels)]),
            273: (4, [start]),
            278: (4, [len(pixels)]),
            279: (4, [at + len(stream) - start]),
            513: (4, [at]),
            514: (4, [len(stream)]),
        },
        heap,
    )


def tiled_file(pixels, tile, *, subsampling="444", as_streams=False):
    """Tiles that share the tables of tags 519 to 521, or are streams of their own."""
    height, width = pixels.shape[:2]
    rows, columns = -(-height // tile), -(-width // tile)
    padding = ((0, rows * tile - height), (0, columns * tile - width), (0, 0))
    padded = np.pad(pixels, padding[: pixels.ndim], mode="edge")
    streams = [
        jpeg(padded[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile], subsampling)
        for i in range(rows)
        for j in range(columns)
    ]
    tags = {
        **common(pixels, (2, 2) if subsampling == "420" else (1, 1)),
        322: (4, [tile]),
        323: (4, [tile]),
    }
    heap, offsets = put(b"", streams if as_streams else [scan(s) for s in streams])
    tags[324] = (4, offsets)
    tags[325] = (4, [len(s if as_streams else scan(s)) for s in streams])
    if not as_streams:
        for code, found in tables(streams[0]).items():
            heap, places = put(heap, found)
            uses = [0] if pixels.ndim == 2 else [0, 1, 1]
            tags[code] = (4, [places[use] for use in uses])
    return streams, tiff(tags, heap)


def by_libtiff(data, bands):
    array = imagecodecs.tiff_decode(data, asrgb=bands == 3)
    return array if bands == 1 else np.moveaxis(array[..., :3], -1, 0)


def read(tmp_path, data):
    path = tmp_path / "old.tif"
    path.write_bytes(data)
    return anychunk.open(path)["0/0/image"][...]


@pytest.mark.parametrize("shift", [2, 5, 12])
def test_a_strip_that_begins_inside_the_scan_header(tmp_path, shift):
    """As libtiff does, decode the stream at tag 513 wherever the strip begins."""
    pixels = grey(61, 77)
    stream, data = whole_stream_file(pixels, shift=shift)
    found = read(tmp_path, data)
    np.testing.assert_array_equal(found, by_libtiff(data, 1))
    np.testing.assert_array_equal(found, imagecodecs.jpeg8_decode(stream))


@pytest.mark.parametrize("subsampling", ["444", "422"])
def test_colours_of_a_strip_that_begins_inside_the_scan_header(tmp_path, subsampling):
    pixels = colours(64, 80)
    _, data = whole_stream_file(pixels, subsampling)
    found = read(tmp_path, data)
    difference = np.abs(found.astype(int) - by_libtiff(data, 3))
    assert difference.max() <= 1
    assert np.abs(found.astype(int) - np.moveaxis(pixels, -1, 0)).mean() < 6


def test_a_stream_of_another_size_than_the_page(tmp_path):
    with pytest.raises(UnsupportedError, match="61 x 77.*60 x 77"):
        read(tmp_path, whole_stream_file(grey(61, 77), height=60)[1])


def tables_file(pixels, width):
    """One strip, its tables in tags 519 to 521, and a stream of tables with a frame at 513."""
    stream = jpeg(pixels)
    header = stream[: markers(stream)[-1][2]]
    heap, (head, body) = put(b"", [header, scan(stream)])
    uses = {}
    for code, found in tables(stream).items():
        heap, places = put(heap, found)
        uses[code] = (4, places)
    return tiff(
        {
            **common(pixels),
            **uses,
            256: (4, [width]),
            273: (4, [body]),
            278: (4, [len(pixels)]),
            279: (4, [len(scan(stream))]),
            513: (4, [head]),
            514: (4, [len(header)]),
        },
        heap,
    )


def test_the_width_of_a_frame_beside_the_tables(tmp_path):
    """With other units per row than the stream has, every row would begin at a wrong place."""
    pixels = grey(61, 77)
    found = read(tmp_path, tables_file(pixels, 77))
    np.testing.assert_array_equal(found, by_libtiff(tables_file(pixels, 77), 1))
    np.testing.assert_array_equal(read(tmp_path, tables_file(pixels, 75)), found[:, :75])
    for width in (40, 78, 90):
        with pytest.raises(FormatError, match=f"ImageWidth is {width}.* 77 columns"):
            read(tmp_path, tables_file(pixels, width))


@pytest.mark.parametrize("as_streams", [False, True])
def test_tiles(tmp_path, as_streams):
    pixels = grey(61, 77)
    streams, data = tiled_file(pixels, 32, as_streams=as_streams)
    tiles = [imagecodecs.jpeg8_decode(stream) for stream in streams]
    expected = np.block([tiles[i : i + 3] for i in (0, 3)])[:61, :77]
    np.testing.assert_array_equal(read(tmp_path, data), expected)


def test_tiles_equal_those_of_libtiff(tmp_path):
    """One column of them: libtiff takes tiles for strips, and cannot decode a second column."""
    _, data = tiled_file(grey(61, 30), 32)
    np.testing.assert_array_equal(read(tmp_path, data), by_libtiff(data, 1))
    pixels = colours(64, 32)
    _, data = tiled_file(pixels, 32, subsampling="420")
    found = read(tmp_path, data).astype(int)
    assert np.abs(found - by_libtiff(data, 3)).max() <= 1
    assert np.abs(found - np.moveaxis(pixels, -1, 0)).mean() < 8


def test_streams_in_some_strips_only(tmp_path):
    """Neither libtiff nor tifffile decode it."""
    streams, data = tiled_file(grey(32, 64), 32, as_streams=True)
    first = data.index(streams[0])
    damaged = data[:first] + b"\x12\x34" + data[first + 2 :]
    with pytest.raises(UnsupportedError, match="SOI"):
        read(tmp_path, damaged)
