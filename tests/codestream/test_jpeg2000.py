import struct

import pytest

from anychunk.codestream.jpeg2000 import (
    COM,
    QCD,
    TLM,
    Component,
    NeedsMoreError,
    Rect,
    find_end,
    read_main_header,
    single_tile_header,
    stream_parts,
    tile_parts,
)
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from tests.support.j2k_streams import compress, field, needs_openjpeg

# written by hand from T.800 A.5 and A.6: an image of 1 x 9 samples
EXAMPLE = bytes.fromhex(
    "ff4f"
    "ff510029000000000001000000090000000000000000000000010000000900000000000000000001070101"
    "ff5c00074040484850"
    "ff52000c0000000100010303 0001"
    "ff90"
)


def siz(**changes) -> bytes:
    values = {"x1": 1000, "y1": 800, "x0": 100, "y0": 50, "tw": 256, "th": 200, "tx": 90, "ty": 0, "n": 1} | changes  # fmt: skip
    count = values.pop("n")
    components = changes.get("components", bytes((7, 1, 1)) * min(count, 100))
    values.pop("components", None)
    body = struct.pack(">H8IH", 0, *values.values(), count) + components
    return b"\xff\x51" + struct.pack(">H", len(body) + 2) + body


COD = b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x01\x04\x04\x00\x01"
QUANTIZATION = b"\xff\x5c\x00\x07\x40\x40\x48\x48\x50"


def header(*segments: bytes) -> bytes:
    return b"\xff\x4f" + b"".join(segments) + b"\xff\x90"


def test_fields_of_the_standard():
    """One component of 8 bits, 1 x 9, one 5/3 decomposition, blocks of 32 x 32."""
    found = read_main_header(EXAMPLE)
    assert found.siz.image == Rect(0, 0, 1, 9)
    assert (found.siz.tile_width, found.siz.tile_height, found.siz.tiles) == (1, 9, 1)
    assert found.siz.components == (Component(8, False, 1, 1),)
    assert (found.cod.layers, found.cod.progression, found.cod.is_transformed) == (1, 0, False)
    style = found.cod.style
    assert (style.levels, style.xcb, style.ycb, style.transform) == (1, 5, 5, 1)
    assert found.is_reversible
    assert not found.is_ht
    assert QCD in found.markers


def test_tiles_on_the_canvas():
    """T.800 B-5 to B-10."""
    found = read_main_header(header(siz(), COD, QUANTIZATION)).siz
    assert (found.columns, found.rows, found.tiles) == (4, 4, 16)
    assert found.tile(0) == Rect(100, 50, 346, 200)
    assert found.tile(5) == Rect(346, 200, 602, 400)
    assert found.tile(15) == Rect(858, 600, 1000, 800)


def test_single_tile_keeps_its_position():
    main = read_main_header(header(siz(), COD, QUANTIZATION))
    alone = read_main_header(single_tile_header(main, 5) + b"\xff\x90")
    assert alone.siz.image == main.siz.tile(5)
    assert (alone.siz.tile_x0, alone.siz.tile_y0) == (346, 200)
    assert (alone.siz.tile_width, alone.siz.tile_height) == (256, 200)
    assert alone.siz.tiles == 1
    assert alone.cod == main.cod


def test_tlm_is_removed():
    tlm = b"\xff\x55\x00\x0a\x00\x50\x00" + bytes(5)
    comment = b"\xff\x64\x00\x07\x00\x01abc"
    found = read_main_header(header(siz(), COD, tlm, QUANTIZATION, comment))
    assert found.data == header(siz(), COD, QUANTIZATION, comment)[:-2]
    assert {TLM, COM} <= found.markers
    assert found.tlm == ((0, b"\x50\x00" + bytes(5)),)
    assert found.comments == ("abc",)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", FormatError, "ff4f"),
        (header(COD, QUANTIZATION), FormatError, "COD.*SIZ"),
        (header(siz(), QUANTIZATION), FormatError, "COD"),
        (header(siz(), COD), FormatError, "QCD"),
        (header(siz(), siz(), COD, QUANTIZATION), FormatError, "2 SIZ"),
        (header(siz(tw=0), COD, QUANTIZATION), FormatError, "0 x 200"),
        (header(siz(tx=101), COD, QUANTIZATION), FormatError, r"\(101, 0\).*\(100, 50\)"),
        (header(siz(tw=5), COD, QUANTIZATION), FormatError, r"5 x 200.*\(100, 50\)"),
        (header(siz(x1=100), COD, QUANTIZATION), FormatError, r"\(100, 800\).*\(100, 50\)"),
        (header(siz(n=0), COD, QUANTIZATION), FormatError, "0 components"),
        (header(siz(n=65535), COD, QUANTIZATION), FormatError, "65535 components"),
        (header(siz(x1=2**32 - 1, tw=20), COD, QUANTIZATION), FormatError, "65535"),
        (header(siz(components=bytes((7, 0, 1))), COD, QUANTIZATION), FormatError, r"\(0, 1\)"),
        (header(siz(components=bytes((38, 1, 1))), COD, QUANTIZATION), FormatError, "39 bits"),
        (
            header(
                siz(n=3, components=bytes((0, 1, 1, 7, 1, 1, 7, 1, 1))),
                COD[:8] + b"\1" + COD[9:],
                QUANTIZATION,
            ),
            FormatError,
            r"\[1, 8, 8\] bits.* colour transform",
        ),
        (header(siz(), COD[:9] + b"\x21" + COD[10:], QUANTIZATION), FormatError, "33 levels"),
        (header(siz(), COD[:9] + b"\x81" + COD[10:], QUANTIZATION), UnsupportedError, "DFS"),
        (header(siz(), COD[:10] + b"\x09" + COD[11:], QUANTIZATION), FormatError, "2048 x 64"),
        (header(siz(), COD[:13] + b"\x02", QUANTIZATION), UnsupportedError, "wavelet 2"),
        (header(siz(), COD[:5] + b"\x05" + COD[6:], QUANTIZATION), FormatError, "progression 5"),
        (header(siz(), b"\x12\x34"), FormatError, "byte 45.*0x1234"),
        (header(siz(), b"\xff\x64\x00\x01"), FormatError, "length 1"),
        (header(siz(), COD, QUANTIZATION)[:-2], NeedsMoreError, "SOT"),
        (header(siz())[:20], NeedsMoreError, "SIZ at byte 2.*20 bytes"),
    ],
)
def test_bad_main_header(data, error, message):
    with pytest.raises(error, match=message):
        read_main_header(data)


def test_type_holds_every_component():
    def dtype(*components):
        body = b"".join(bytes(c) for c in components)
        made = header(siz(n=len(components), components=body), COD, QUANTIZATION)
        return read_main_header(made).siz.dtype.name

    assert dtype((7, 1, 1)) == "uint8"
    assert dtype((0, 1, 1), (8, 1, 1)) == "uint16"
    assert dtype((0x87, 1, 1)) == "int8"
    assert dtype((0x87, 1, 1), (7, 1, 1)) == "int16"
    assert dtype((30, 1, 1)) == "uint32"


def part(tile=0, number=0, length=20, marker=b"\xff\x90\x00\x0a") -> bytes:
    return marker + struct.pack(">HIBB", tile, length, number, 0) + b"\xff\x93" + bytes(6)


def test_tile_parts():
    found = tile_parts(part(3) + part(3, 1) + part(5, 0, 0))
    assert [(p.tile, p.number, p.offset, p.length) for p in found] == [
        (3, 0, 0, 20), (3, 1, 20, 20), (5, 0, 40, 20),
    ]  # fmt: skip


@pytest.mark.parametrize("length", [20, 0])
def test_tile_parts_up_to_the_end_of_the_codestream(length):
    """Ranges that other software indexed may include EOC; it is no part of a tile-part."""
    assert [p.length for p in tile_parts(part() + part(1, 0, length) + b"\xff\xd9")] == [20, 20]


def test_end_marker_among_packets():
    """T.800 A.8.1: the counter of SOP looks like EOC, alone or with the next byte."""
    counters = b"\xff\x91\0\4\xff\xd9" + b"\x80" + b"\xff\x91\0\4\0\xff\xd9"
    data = counters + b"\xff\xd9" + bytes(9) + b"\xff\xd9"
    assert find_end(data, 0) == len(counters)
    assert find_end(counters, 0) is None
    assert find_end(b"\xff\xd9", 0) == 0


def test_stream_parts_end_with_the_end_marker():
    data = part() + part(1)
    assert len(stream_parts(data + b"\xff\xd9" + b"padding")) == 2
    for wrong in (data, data[:-1] + b"\xff\xd9", data + b"\0\xff\xd9", data + b"\xff"):
        with pytest.raises(TruncatedError):
            stream_parts(wrong)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", TruncatedError),
        (b"\xff\xd9", TruncatedError),
        (part()[:-1], TruncatedError),
        (part() + b"\xff", TruncatedError),
        (part() + b"\xd9\xff", TruncatedError),
        (part() + b"\xff\xd9\0", TruncatedError),
        (part(length=13), TruncatedError),
        (part(length=21), TruncatedError),
        (part(marker=b"\xff\x93\x00\x0a"), FormatError),
        (part(marker=b"\xff\x90\x00\x0b"), FormatError),
    ],
)
def test_bad_tile_parts(data, error):
    with pytest.raises(error):
        tile_parts(data)


@needs_openjpeg
def test_openjpeg_header():
    stream = compress(list(field((300, 200), bands=3)), "-t", "64,50", "-SOP", "-EPH", "-p", "CPRL", "-r", "9,1")  # fmt: skip
    found = read_main_header(stream)
    assert (found.siz.rows, found.siz.columns) == (6, 4)
    cod = found.cod
    assert (cod.has_sop, cod.has_eph, cod.progression, cod.layers) == (True, True, 4, 2)
    assert stream[found.length : found.length + 2] == b"\xff\x90"
