import struct

import numpy as np
import pytest

import anychunk
from anychunk.codestream import tiles
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.codestream.tiles import index_tiles
from anychunk.errors import FormatError, TruncatedError
from anychunk.io import MemorySource
from tests.j2k_streams import compress, field, interleaved, needs_openjpeg
from tests.server import serve

REQUEST_S, BYTES_S = 0.03, 100e6


class Remote(MemorySource):
    """A remote source that adds up the cost of its reads."""

    is_local = False

    def __init__(self, data):
        super().__init__(data)
        self.requests, self.bytes = 0, 0

    def read(self, offset, length):
        self.requests += 1
        self.bytes += length
        return super().read(offset, length)

    @property
    def cost_s(self):
        return self.requests * REQUEST_S + self.bytes / BYTES_S


def stream(count: int, length: int, *, last_length: int | None = None) -> bytes:
    """Return a stream of `count` tiles with tile-parts of `length` zeros."""
    size = struct.pack(">H8IH3B", 0, count, 1, 0, 0, 1, 1, 0, 0, 1, 7, 1, 1)
    header = (
        b"\xff\x4f\xff\x51" + struct.pack(">H", 41) + size
        + b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x00\x04\x04\x00\x01\xff\x5c\x00\x04\x40\x40"
    )  # fmt: skip
    body = bytearray()
    for tile in range(count):
        told = length if last_length is None or tile < count - 1 else last_length
        body += b"\xff\x90\x00\x0a" + struct.pack(">HIBB", tile, told, 0, 1) + b"\xff\x93"
        body += bytes(length - 14)
    return header + bytes(body) + b"\xff\xd9"


def with_tlm(data: bytes, entries: list[tuple[int, int]], *, kind: int = 0x60) -> bytes:
    """Return a stream with a TLM; `kind` says how numbers and lengths are written."""
    pattern = {0x60: ">HI", 0x50: ">BI", 0x40: ">I", 0x10: ">BH", 0x20: ">HH"}[kind]
    rows = b"".join(struct.pack(pattern, *(e if pattern[1:] != "I" else e[1:])) for e in entries)
    place = read_main_header(data).length
    return data[:place] + b"\xff\x55" + struct.pack(">HBB", len(rows) + 4, 0, kind) + rows + data[place:]  # fmt: skip


def test_hops():
    data = stream(50, 100)
    found = index_tiles(MemorySource(b"junk" + data + b"more"), 4, len(data) + 4)
    assert found.length == len(data)
    first = 4 + found.header.length
    assert found.offsets.tolist() == [first + 100 * n for n in range(50)]
    assert set(found.lengths.tolist()) == {100}
    assert not found.has_tlm


def test_last_tile_part_without_a_length():
    """T.800 A.4.2: Psot = 0, up to EOC."""
    found = index_tiles(MemorySource(data := stream(3, 100, last_length=0)), 0, len(data))
    assert found.lengths.tolist() == [100, 100, 100]


@pytest.mark.parametrize("kind", [0x60, 0x50, 0x40, 0x10, 0x20])
@pytest.mark.parametrize("source", [MemorySource, Remote])
def test_tlm(kind, source):
    plain = stream(20, 100)
    data = with_tlm(plain, [(n, 100) for n in range(20)], kind=kind)
    found = index_tiles(source(data), 0, len(data))
    assert found.has_tlm
    hopped = index_tiles(MemorySource(plain), 0, len(plain))
    assert (found.offsets - hopped.offsets == len(data) - len(plain)).all()
    assert (found.lengths == hopped.lengths).all()
    assert found.header.data == hopped.header.data


@pytest.mark.parametrize(
    "entries",
    [
        [(n, 100) for n in range(19)],
        [(n, 90) for n in range(20)],
        [(19 - n, 100) for n in range(20)],
        [(n, 2**31) for n in range(20)],
        [(500, 100)] * 20,
    ],
    ids=["one too few", "too short", "other tiles", "too long", "no such tile"],
)
def test_wrong_tlm_is_ignored(entries):
    data = with_tlm(stream(20, 100), entries)
    found = index_tiles(MemorySource(data), 0, len(data))
    assert not found.has_tlm
    assert set(found.lengths.tolist()) == {100}


@needs_openjpeg
def test_tlm_of_openjpeg_equals_hopping():
    data = compress(list(field((300, 260), bands=3)), "-t", "64,64", "-TP", "R", "-TLM")
    found = index_tiles(MemorySource(data), 0, len(data))
    assert found.has_tlm
    parts = tiles.sot_parts(MemorySource(data), found.header.siz, found.header.length, len(data))
    order = np.argsort(parts.tiles, kind="stable")
    np.testing.assert_array_equal(found.offsets, parts.offsets[order])
    np.testing.assert_array_equal(found.lengths, parts.lengths[order])
    assert len(parts.tiles) == 6 * found.header.siz.tiles
    mixed = interleaved(data)
    assert not index_tiles(MemorySource(mixed), 0, len(mixed)).has_tlm, "it tells the old order"


@pytest.mark.parametrize(
    ("count", "length"), [(4, 8 << 20), (2000, 1000), (200, 100_000), (12, 4 << 20), (64, 1 << 20)]
)
def test_remote_reads_are_as_cheap_as_possible(count, length):
    data = stream(count, length)
    source = Remote(data)
    assert len(index_tiles(source, 0, len(data)).offsets) == count
    hop = count * (REQUEST_S + 12 / BYTES_S)
    read_on = -(-len(data) // tiles.WINDOW) * REQUEST_S + len(data) / BYTES_S
    first = REQUEST_S + tiles.HEAD / BYTES_S
    assert source.cost_s <= 1.1 * min(hop, read_on) + first + REQUEST_S + tiles.HOP / BYTES_S


def test_remote_by_tlm_is_two_requests(tmp_path):
    """The first bytes, then the rest of the main header: 60 kB of TLM for 10,000 tiles."""
    count = 10_000
    data = with_tlm(stream(count, 60), [(n, 60) for n in range(count)])
    (tmp_path / "a.j2k").write_bytes(data)
    with serve(tmp_path) as served:
        index = anychunk.index(f"{served.url}/a.j2k")
        assert index["0/0"].grid == (1, 1, count)
        assert len(served.requests) == 2


def test_remote_small_header_is_one_request_and_the_hops(tmp_path):
    (tmp_path / "a.j2k").write_bytes(stream(3, 200))
    with serve(tmp_path) as served:
        anychunk.index(f"{served.url}/a.j2k")
        assert len(served.requests) == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d[:-60], TruncatedError, r"tile 19 part 0 has 100 bytes, .* \d\d$"),
        (lambda d: d[:-102], TruncatedError, "1 of 20 tiles"),
        (lambda d: d[:70], TruncatedError, "SOT|20 of 20"),
        (lambda d: d.replace(b"\xff\x90\x00\x0a\x00\x05", b"\xff\x90\x00\x0a\x00\x25"), FormatError, "tile 37"),
        (lambda d: d.replace(b"\xff\x90\x00\x0a\x00\x05", b"\xff\x90\x00\x0b\x00\x05"), FormatError, "11 bytes"),
        (lambda d: d.replace(b"\x00\x05\x00\x00\x00\x64\x00", b"\x00\x05\x00\x00\x00\x64\x02"), FormatError, "part 2"),
        (lambda d: d.replace(b"\x00\x05\x00\x00\x00\x64\x00\x01", b"\x00\x05\x00\x00\x00\x64\x00\x02"), TruncatedError, "tile 5 has 1 parts, expected 2"),
        (lambda d: d.replace(b"\x00\x05\x00\x00\x00\x64", b"\x00\x05\x00\x00\x00\x0c"), TruncatedError, "12 bytes"),
    ],
)  # fmt: skip
def test_damaged(change, error, message):
    data = change(stream(20, 100))
    with pytest.raises(error, match=message):
        index_tiles(MemorySource(data), 0, len(data))


def test_range_outside_the_object():
    data = stream(2, 50)
    with pytest.raises(TruncatedError, match=rf"{len(data)} bytes.* {len(data)}$"):
        index_tiles(MemorySource(data), 10, len(data))
