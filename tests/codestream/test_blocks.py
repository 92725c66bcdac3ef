"""The table of code-blocks: the compiled walk and the Python one, saved tables, damaged tiles."""

import contextlib
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

from anychunk.codestream import blocks
from anychunk.codestream.block_table import ABSENT, COLUMNS, NoTableError, pack, unpack
from anychunk.codestream.blocks import count_exact, tile_layout, walk_parameters, walk_tile
from anychunk.codestream.jpeg2000 import read_main_header, tile_parts
from anychunk.codestream.packet_walk import Walk
from anychunk.errors import FormatError, TruncatedError
from anychunk.native import loops
from tests.support.compiled import needs_compiled
from tests.support.j2k_streams import compress, field, needs_openjpeg, with_packed_headers

ENCODINGS = {
    "5/3": ("-n", "4"),
    "9/7, layers": ("-I", "-r", "20,8,2"),
    "precincts": ("-c", "[64,64],[32,32]", "-p", "RPCL"),
    "position first": ("-c", "[64,32]", "-p", "PCRL"),
    "component first": ("-c", "[64,64]", "-p", "CPRL", "-r", "9,3"),
    "lazy": ("-M", "1", "-r", "9,3"),
    "terminated": ("-M", "5"),
    "markers": ("-SOP", "-EPH", "-p", "RLCP"),
    "offset": ("-d", "37,51"),
    "tile-parts": ("-TP", "R"),
    "small blocks": ("-b", "4,4"),
}


def opened(stream: bytes):
    """Return the main header, the layout of tile 0, and a function that reads its body."""
    header = read_main_header(stream)
    view = memoryview(stream)[header.length : -2]
    parts = [part for part in tile_parts(view) if part.tile == 0]
    heads = [view[part.offset : part.offset + part.length] for part in parts]
    layout = tile_layout(header, 0, heads, parts)
    stops = [*layout.starts.tolist()[1:], layout.total]
    spans = zip(layout.offsets.tolist(), layout.starts.tolist(), stops, strict=True)
    body = b"".join(bytes(view[place : place + b - a]) for place, a, b in spans)
    return header, layout, lambda at, length: memoryview(body)[at : at + length]


def lossless(shape=(90, 110), **options) -> bytes:
    image = field(shape)[0]
    return imagecodecs.jpeg2k_encode(image, level=0, codecformat="J2K", reversible=True, **options)


def same(a, b) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in COLUMNS)


@needs_openjpeg
@needs_compiled
@pytest.mark.parametrize("options", ENCODINGS.values(), ids=ENCODINGS)
def test_compiled_and_python_agree(options, monkeypatch):
    header, layout, read = opened(compress(list(field((120, 150), bands=3)), *options))
    compiled = [walk_tile(header, layout, read, step=step) for step in (0, 100)]
    monkeypatch.setattr(blocks, "loops", None)
    pure = [walk_tile(header, layout, read, step=step) for step in (0, 100)]
    assert same(*compiled)
    assert same(*pure)
    assert same(compiled[0], pure[0])


@needs_openjpeg
def test_packed_packet_headers(monkeypatch):
    stream = compress(list(field((100, 100))), "-SOP", "-EPH")
    inside, apart = (opened(data) for data in (stream, with_packed_headers(stream)))
    found = [walk_tile(*one) for one in (inside, apart)]
    assert np.array_equal(found[0].lengths, found[1].lengths)
    assert np.array_equal(found[0].planes, found[1].planes)


def test_known_table():
    """One code-block of a constant image, and an image without any coded coefficient."""
    header, layout, read = opened(lossless((64, 64), resolutions=1))
    table = walk_tile(header, layout, read)
    assert len(table.planes) == 1
    assert table.lengths.sum() == layout.total - int(table.offsets[0])
    flat = imagecodecs.jpeg2k_encode(
        np.full((64, 64), 128, "u1"), level=0, codecformat="J2K", reversible=True, resolutions=1
    )
    assert walk_tile(*opened(flat)).planes.tolist() == [ABSENT]


def test_saved_tables():
    header, layout, read = opened(lossless((300, 200)))
    table = walk_tile(header, layout, read)
    again, loaded = unpack(header, pack(layout, table))
    assert same(table, loaded)
    assert (again.number, again.total, again.markers) == (0, layout.total, layout.markers)
    assert np.array_equal(again.offsets, layout.offsets)


def test_saved_tables_are_not_trusted():
    header, layout, read = opened(lossless((300, 200)))
    packed = pack(layout, walk_tile(header, layout, read))
    other, *_ = opened(lossless((200, 200)))
    with pytest.raises(FormatError):
        unpack(other, packed)
    rng = np.random.default_rng(0)
    for _ in range(50):
        data = bytearray(packed)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        for damaged in (bytes(data), packed[: int(rng.integers(len(packed)))]):
            with contextlib.suppress(FormatError):
                unpack(header, damaged)


@pytest.mark.parametrize("is_pure", [False, True])
def test_damaged_tiles(is_pure, monkeypatch):
    if is_pure:
        monkeypatch.setattr(blocks, "loops", None)
    stream = lossless()
    header = read_main_header(stream)
    head, body = stream[: header.length], stream[header.length : -2]

    def with_body(part: bytes) -> bytes:
        return head + part[:6] + len(part).to_bytes(4, "big") + part[10:] + b"\xff\xd9"

    for cut in (1, 10, len(body) - 16):
        with pytest.raises(TruncatedError):
            walk_tile(*opened(with_body(body[:-cut])))
    with pytest.raises(FormatError):
        walk_tile(*opened(with_body(body + b"\1")))
    walk_tile(*opened(with_body(body + b"\0\0")))  # padding


def test_too_many_blocks_have_no_table(monkeypatch):
    monkeypatch.setattr(blocks, "MAX_BLOCKS", 3)
    with pytest.raises(NoTableError):
        walk_tile(*opened(lossless()))


@needs_compiled
def test_random_bodies():
    """Whatever the bytes are, the compiled walk stays inside them, and agrees with Python."""
    header, layout, read = opened(lossless((70, 70), resolutions=3))
    rng = np.random.default_rng(1)
    for _ in range(200):
        body = bytearray(read(0, layout.total))
        for place in rng.integers(0, len(body), 3).tolist():
            body[place] = int(rng.integers(256))
        found = []
        for walk in (blocks._Compiled(header, layout), Walk(header, layout)):
            answer = walk.resume(memoryview(bytes(body)), 0)
            found.append(answer[:3])
        assert found[0] == found[1]


@needs_openjpeg
@needs_compiled
@pytest.mark.parametrize("options", [("-b", "4,4"), ("-r", "20,8,2", "-SOP", "-EPH"), ("-M", "5")])
def test_tiles_walked_one_after_the_other(options, monkeypatch):
    """Small and large tiles share memory; a tile is exact if and only if Python finds it so."""
    stream = compress(list(field((150, 170), bands=3)), "-t", "64,48", "-n", "3", *options)
    header = read_main_header(stream)
    data = stream[header.length : -2]
    parts = tile_parts(data)
    layout = tile_layout(header, 0, [memoryview(data)[: parts[0].length]], parts[:1])
    edges = header.siz.tile_edges(np.array([part.tile for part in parts]))
    bodies = [(part.offset + 14, part.length - 14) for part in parts]
    table = np.concatenate([edges, bodies], axis=1)
    for order in (slice(None), slice(None, None, -1)):
        assert count_exact(header, layout, memoryview(data), table[order]) == len(parts)
    monkeypatch.setattr(blocks, "loops", None)
    rng = np.random.default_rng(0)
    for number, (x0, y0, x1, y1, offset, length) in enumerate(table.tolist()):
        damaged = bytearray(data)
        damaged[offset + int(rng.integers(min(length, 40)))] ^= 1 << int(rng.integers(8))
        body = memoryview(damaged)[offset : offset + length]
        there = replace(layout, number=parts[number].tile, total=length)
        try:
            walk_tile(header, there, lambda at, size, body=body: body[at : at + size])
            is_good = True
        except (FormatError, NoTableError):
            is_good = False
        place = np.array([x0, y0, x1, y1, offset, length]).tobytes()
        parameters = walk_parameters(header, layout)
        assert loops.walk_all(parameters, bytes(damaged), place) == is_good
        # a tile that is cut
        short = np.array([x0, y0, x1, y1, offset, length - 1]).tobytes()
        assert loops.walk_all(parameters, data, short) == 0


@needs_compiled
@pytest.mark.parametrize("data", [b"", b"\0" * 80, b"\1" + b"\0" * 79, b"\xff" * 8000])
def test_malformed_parameters(data):
    with pytest.raises(ValueError, match="parameters"):
        loops.walk_begin(data)
