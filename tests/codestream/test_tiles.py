import struct

import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.codestream import tiles
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.codestream.tiles import index_tiles
from anychunk.errors import FormatError, TruncatedError
from anychunk.io.buffers import MemorySource
from tests.support.compiled import needs_compiled
from tests.support.effort import at_most
from tests.support.http_server import serve
from tests.support.j2k_streams import compress, field, interleaved, needs_openjpeg


class Remote(MemorySource):
    """A remote source that counts its reads."""

    is_local = False

    def __init__(self, data):
        super().__init__(data)
        self.requests, self.bytes = 0, 0

    def read(self, offset, length):
        self.requests += 1
        self.bytes += length
        return super().read(offset, length)


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


def changed(data, place, value):
    """Return a stream with other bytes in the SOT of its third tile-part."""
    start = read_main_header(data).length + 2 * 100 + place
    return data[:start] + value + data[start + len(value) :]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, b"\xff\x90"),
        (0, b"\xff\x91"),
        (2, b"\x00\x0b"),
        (4, b"\x00\x01"),
        (4, b"\xff\xff"),
        (6, bytes(4)),
        (6, b"\xff\xff\xff\xff"),
        (6, b"\x00\x00\x00\x0d"),
        (10, b"\x01"),
        (11, b"\x00"),
        (11, b"\x02"),
    ],
)
def test_the_compiled_loop_finds_the_same(monkeypatch, place, value):
    data = changed(stream(8, 100), place, value)
    found = []
    for module in (tiles.loops, None):
        monkeypatch.setattr(tiles, "loops", module)
        try:
            parts = index_tiles(MemorySource(data), 0, len(data))
            found.append([parts.starts.tolist(), parts.offsets.tolist(), parts.lengths.tolist()])
        except (FormatError, TruncatedError) as e:
            found.append([type(e), str(e)])
    assert found[0] == found[1]


@needs_compiled
def test_many_tiles_are_found_by_the_compiled_loop():
    data = stream(20_000, 20)
    with at_most(2000):
        index_tiles(MemorySource(data), 0, len(data))


def test_last_tile_part_without_a_length():
    """T.800 A.4.2: Psot = 0, up to EOC."""
    found = index_tiles(MemorySource(data := stream(3, 100, last_length=0)), 0, len(data))
    assert found.lengths.tolist() == [100, 100, 100]


@pytest.mark.parametrize(
    ("length", "padding"),
    [
        (100, b""), (100, bytes(5)), (100, b"\xff" * 4), (100, b"\0\xff\xd9"),
        (0, b""), (0, bytes(5)), (0, b"\xff" * 4), (0, b"\0\xff\xd9\0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", [MemorySource, Remote])
def test_padding_after_the_end(monkeypatch, padding, source, length):
    """Also if the last tile-part states no length, and EOC must be found (T.800 A.4.2)."""
    monkeypatch.setattr(tiles, "WINDOW", 30)  # EOC is at the border of two reads
    data = stream(3, 100, last_length=length)
    found = index_tiles(source(data + padding), 0, len(data + padding))
    assert found.lengths.tolist() == [100, 100, 100]
    assert found.length == len(data)


@pytest.mark.parametrize("source", [MemorySource, Remote])
@pytest.mark.parametrize("has_tlm", [False, True])
@pytest.mark.parametrize("lost", [1, 2, 3, -1, -2])
def test_bytes_lost_or_inserted_in_the_last_tile_part(source, has_tlm, lost):
    """The last tile-part then reaches over EOC, or ends before it."""
    data = stream(20, 100)
    data = with_tlm(data, [(n, 100) for n in range(20)]) if has_tlm else data
    damaged = data[:-30] + bytes(max(-lost, 0)) + data[-30 + max(lost, 0) :]
    assert len(damaged) == len(data) - lost
    with pytest.raises(TruncatedError, match=r"EOC|expected 14 to"):
        index_tiles(source(damaged), 0, len(damaged))
    # inside a container, other bytes follow
    padded = damaged + bytes(40)
    with pytest.raises(TruncatedError, match="EOC"):
        index_tiles(source(padded), 0, len(data), is_announced=True)


@pytest.mark.parametrize("source", [MemorySource, Remote])
@pytest.mark.parametrize("has_tlm", [False, True])
@pytest.mark.parametrize("length", [100, 0])
def test_without_end_marker_only_if_the_length_is_announced(source, has_tlm, length):
    """As in some satellite images: the length of the box says that nothing is missing."""
    data = stream(20, 100, last_length=length)[:-2]
    data = with_tlm(data, [(n, 100) for n in range(20)]) if has_tlm else data
    found = index_tiles(source(data + b"next box"), 0, len(data), is_announced=True)
    assert found.lengths.tolist() == [100] * 20
    assert found.length == len(data)
    with pytest.raises(TruncatedError, match="EOC.*nothing"):
        index_tiles(source(data), 0, len(data))


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
def test_remote_tile_parts_are_skipped_unless_a_request_costs_more(count, length):
    data = stream(count, length)
    source = Remote(data)
    assert len(index_tiles(source, 0, len(data)).offsets) == count
    assert source.bytes <= len(data) + tiles.HEAD
    if length > limits.get().coalesce_gap:
        assert source.bytes <= 12 * count + tiles.HEAD
    else:
        assert source.requests <= 8


@pytest.mark.parametrize(("count", "length"), [(300, 5000), (40, 300_000), (3, 20_000)])
@pytest.mark.parametrize("is_even", [True, False])
def test_remote_streams_without_tlm_over_http(tmp_path, count, length, is_even):
    """No byte is fetched twice, and of long tile-parts little more than their headers."""
    header = read_main_header(stream(count, length)).length
    lengths = [length if is_even else length + 37 * (n * n % 91) for n in range(count)]
    data = stream(count, length)[:header]
    for tile, told in enumerate(lengths):
        data += b"\xff\x90\x00\x0a" + struct.pack(">HIBB", tile, told, 0, 1) + b"\xff\x93"
        data += bytes(told - 14)
    (tmp_path / "a.j2k").write_bytes(data + b"\xff\xd9")
    with serve(tmp_path) as served:
        index = anychunk.index(f"{served.url}/a.j2k")
        assert index["0/0/image"].chunks.lengths.reshape(-1).tolist() == lengths
        spans = [tuple(map(int, r.removeprefix("bytes=").split("-"))) for _, r in served.requests]
        fetched = sum(min(last, len(data) + 1) - first + 1 for first, last in spans)
        assert fetched <= len(data) + 2
        if length > limits.get().coalesce_gap:
            # 64 kB before the chain is recognised, then 8 kB for each tile-part
            assert fetched <= 32_768 + 65_536 + (count + 4) * 8192
        else:
            assert len(spans) <= 6


def test_remote_by_tlm_is_two_requests(tmp_path):
    """The first bytes, then the rest of the main header: 60 kB of TLM for 10,000 tiles."""
    count = 10_000
    data = with_tlm(stream(count, 60), [(n, 60) for n in range(count)])
    (tmp_path / "a.j2k").write_bytes(data)
    with serve(tmp_path) as served:
        index = anychunk.index(f"{served.url}/a.j2k")
        assert index["0/0/image"].grid == (1, count)
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
