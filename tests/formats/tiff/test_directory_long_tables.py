"""Tables of more strips or tiles than tifffile is asked to read."""

import struct
import zlib

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import limits
from anychunk.errors import LimitError
from anychunk.formats.tiff.directory import LONG_TABLE
from tests.support.http_server import serve

SIDE = 300
"""Tiles along each axis: 90,000, more than `LONG_TABLE`."""
KINDS = {3: "H", 4: "I", 16: "Q"}


def tiff(side, *, order="<", is_big=True, compression=1, kinds=(16, 4), absent=(), lost=()):
    """Return a file of 16 x 16 tiles of its own, written by the specification; tile n holds n."""
    count = side * side
    tiles = [bytes([n % 251]) * 256 for n in range(min(count, 251))]
    if compression == 8:
        tiles = [zlib.compress(tile) for tile in tiles]
    entry, pointer = ("HHQQ", "Q") if is_big else ("HHII", "I")
    head = struct.pack(f"{order}2sH", b"II" if order == "<" else b"MM", 43 if is_big else 42)
    head += struct.pack(f"{order}HHQ", 8, 0, 16) if is_big else struct.pack(f"{order}I", 8)
    start = len(head) + (8 if is_big else 2) + 10 * struct.calcsize(f"{order}{entry}")
    start += struct.calcsize(pointer)
    places = np.cumsum([0, *map(len, tiles)])[:-1]
    sizes = [np.dtype(f"{order}u{struct.calcsize(KINDS[kind])}") for kind in kinds]
    first, second = start, start + count * sizes[0].itemsize
    base = second + count * sizes[1].itemsize
    numbers = np.arange(count) % len(tiles)
    offsets = base + places[numbers]
    lengths = np.array([len(tile) for tile in tiles])[numbers]
    offsets[list(absent)] = lengths[list(absent)] = 0
    offsets[list(lost)] = 0
    tags = [
        (256, 4, 1, 16 * side), (257, 4, 1, 16 * side), (258, 3, 1, 8), (259, 3, 1, compression),
        (262, 3, 1, 1), (277, 3, 1, 1), (322, 4, 1, 16), (323, 4, 1, 16),
        (324, kinds[0], count, first), (325, kinds[1], count, second),
    ]  # fmt: skip
    entries = b""
    for code, kind, number, value in tags:
        if number == 1 and kind == 3:  # a value that is shorter than its field comes first in it
            field = struct.pack(f"{order}H", value).ljust(struct.calcsize(pointer), b"\0")
        elif number == 1:
            field = struct.pack(f"{order}I", value).ljust(struct.calcsize(pointer), b"\0")
        else:
            field = struct.pack(f"{order}{pointer}", value)
        entries += struct.pack(f"{order}{entry[:-1]}", code, kind, number) + field
    directory = struct.pack(f"{order}{'Q' if is_big else 'H'}", len(tags)) + entries
    directory += struct.pack(f"{order}{pointer}", 0)
    tables = offsets.astype(sizes[0]).tobytes() + lengths.astype(sizes[1]).tobytes()
    return head + directory + tables + b"".join(tiles)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"order": ">", "compression": 8},
        {"is_big": False, "kinds": (4, 3)},
        {"is_big": False, "kinds": (4, 4), "order": ">"},
        {"kinds": (16, 16), "compression": 8},
    ],
)
def test_as_tifffile_reads_them(tmp_path, form):
    assert SIDE * SIDE > LONG_TABLE
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(SIDE, **form))
    found = anychunk.open_array(path)
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        chunks = anychunk.index(path)["0/0/image"].chunks
        assert chunks.offsets.reshape(-1).tolist() == list(page.dataoffsets)
        assert chunks.lengths.reshape(-1).tolist() == list(page.databytecounts)
    expected = np.repeat(
        np.repeat((np.arange(SIDE * SIDE) % 251).reshape(SIDE, SIDE), 16, 0), 16, 1
    )
    for box in (np.s_[:40, :40], np.s_[-70:, -33:], np.s_[2000:2020, 100:140]):
        np.testing.assert_array_equal(found[box], expected[box])


def test_tiles_that_are_absent_or_lost(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(SIDE, absent=[0, 80_000], lost=[5]))
    chunks = anychunk.index(path)["0/0/image"].chunks
    lengths, offsets = chunks.lengths.reshape(-1), chunks.offsets.reshape(-1)
    assert np.flatnonzero(lengths == 0).tolist() == [0, 80_000]
    assert offsets[5] == path.stat().st_size
    found = anychunk.open_array(path)
    assert not found[:16, :16].any()
    with pytest.raises(anychunk.errors.TruncatedError):
        found[:16, 80:96]


def test_tables_that_are_not_in_the_file_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    whole = tiff(SIDE, kinds=(16, 16))
    path.write_bytes(whole[: 90_000 * 12])  # ends inside the second table
    with pytest.raises(anychunk.errors.FormatError, match="TileByteCounts"):
        anychunk.index(path)
    path.write_bytes(whole)
    with limits.override(chunks=89_999), pytest.raises(LimitError, match="--limit chunks="):
        anychunk.index(path)


@pytest.mark.processes
def test_tables_may_be_longer_than_a_header_and_are_fetched_once(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(SIDE, kinds=(16, 16)))
    with serve(tmp_path) as served, limits.override(header_bytes=100_000):
        index = anychunk.index(f"{served.url}/a.tif")
        assert len(served.requests) <= 4
    assert index["0/0/image"].chunks.nbytes == 16 * SIDE * SIDE


def test_memory_per_chunk(tmp_path):
    """A table of a million tiles takes 16 bytes per tile, and no more than 32 while it is read."""
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(1000, kinds=(16, 16)))
    anychunk.index(path)
    import tracemalloc

    tracemalloc.start()
    try:
        index = anychunk.index(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index["0/0/image"].chunks.nbytes == 16 * 10**6
    assert peak <= 32 * 10**6 + 16 * (1 << 20)
