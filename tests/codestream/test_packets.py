import struct

import imagecodecs
import numpy as np
import pytest

from anychunk.codestream.jpeg2000 import read_main_header, tile_parts
from anychunk.codestream.packets import MAX_PACKETS, check_tile
from anychunk.codestream.tiles import index_tiles
from anychunk.errors import AnychunkError, FormatError, TruncatedError
from anychunk.io.buffers import MemorySource
from tests.support.corpus import needs_corpus, samples
from tests.support.j2k_streams import compress, field, needs_openjpeg


def walk(data: bytes, *, offset: int = 0) -> int:
    """Walk every tile of a stream."""
    found = index_tiles(MemorySource(data), offset, len(data) - offset)
    for tile in range(found.header.siz.tiles):
        start, stop = int(found.starts[tile]), int(found.starts[tile + 1])
        ranges = zip(found.offsets[start:stop].tolist(), found.lengths[start:stop].tolist(), strict=True)  # fmt: skip
        body = b"".join(data[o : o + n] for o, n in ranges)
        check_tile(found.header, tile, memoryview(body), tile_parts(body))
    return found.header.siz.tiles


DAMAGED = (
    "00r0_gray_l.jp2",
    "security_line_decode_dfs_vert.j2k",
    "security_marker_com_underflow.j2k",
)
SAMPLES = [s for s in samples("jpeg2000/") if s.file.name not in DAMAGED and "tiles_" not in s.path]


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.file.name)
def test_real_streams_are_exactly_their_packets(sample):
    """Kakadu, OpenJPH, OpenJPEG, ECW and others: no byte more, no byte less."""
    data = sample.file.read_bytes()
    assert walk(data, offset=data.index(b"\xff\x4f\xff\x51"))


@needs_openjpeg
@pytest.mark.parametrize("progression", ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize(
    "options",
    [
        ("-r", "30,9,1", "-c", "[64,32],[16,16]", "-t", "77,50"),
        ("-M", "1", "-r", "9,1"),
        ("-M", "4", "-r", "9,1"),
        ("-M", "5"),
        ("-SOP", "-EPH", "-TP", "R"),
        ("-d", "13,7", "-T", "5,3", "-t", "100,90", "-c", "[32,32]"),
    ],
    ids="".join,
)
def test_streams_of_openjpeg(progression, options):
    stream = compress(list(field((150, 130), bands=3)), "-p", progression, *options)
    assert walk(stream)


@needs_openjpeg
@pytest.mark.parametrize("progression", ["RPCL", "PCRL", "CPRL"])
def test_subsampled_components_by_position(progression):
    luma, chroma = field((128, 96))[0], field((64, 48))[0]
    options = ("-p", progression, "-mct", "0", "-c", "[32,32]", "-t", "64,64", "-n", "3")
    assert walk(compress([luma, chroma, chroma], *options, sampling="@1x1:2x2:2x2")) == 4


@needs_openjpeg
def test_one_byte_more_or_less():
    stream = compress(list(field((96, 96))), "-r", "8,1")
    header = read_main_header(stream)
    body = stream[header.length : -2]

    def check(data: bytes) -> None:
        data = data[:6] + struct.pack(">I", len(data)) + data[10:]
        check_tile(header, 0, memoryview(data), tile_parts(data))

    check(body)
    check(body + bytes(3))  # padding with zeros is accepted
    with pytest.raises(FormatError, match="tile 0: 1 bytes.*12"):
        check(body + b"\1")
    with pytest.raises(TruncatedError, match="packet 11 of 12"):
        check(body[:-1])
    rng = np.random.default_rng(0)
    for _ in range(200):
        with pytest.raises(AnychunkError):
            check(body[:14] + rng.bytes(len(body) - 14))


@needs_openjpeg
def test_more_packets_than_bytes():
    """Precincts of one sample: an error before the walk begins."""
    stream = compress(list(field((96, 96))), "-c", "[64,64]")
    header = read_main_header(stream)
    tiny = bytearray(header.data)
    place = tiny.index(b"\xff\x52") + 14
    tiny[place : place + 6] = b"\x01\x11\x11\x11\x11\x11"
    small = read_main_header(bytes(tiny) + b"\xff\x90")
    body = stream[header.length : -2]
    short = body[:6] + struct.pack(">I", 500) + body[10:500]
    with pytest.raises(TruncatedError, match=r"486 bytes.*\d{4,}"):
        check_tile(small, 0, memoryview(short), tile_parts(short))
    assert MAX_PACKETS < 1 << 20, "a walk takes seconds at the most"


def test_more_progressions_than_openjpeg_takes_are_refused():
    """Each of them lists 65,535 layers again: without a bound, 4 KB took longer than a minute."""
    stream = imagecodecs.jpeg2k_encode(
        np.zeros((8, 8), "u1"), level=0, resolutions=1, codecformat="j2k"
    )
    at = stream.index(b"\xff\x52")  # COD
    many = b"".join(struct.pack(">BBHBBB", 0, 0, 65535, 33, 1, 0) for _ in range(500))
    poc = b"\xff\x5f" + struct.pack(">H", 2 + len(many)) + many
    layers = stream[: at + 6] + b"\xff\xff" + stream[at + 8 :]
    edited = layers[:at] + poc + layers[at:]
    with pytest.raises(FormatError, match="500 progressions, and at most 32 are"):
        walk(edited)
    assert imagecodecs.jpeg2k_decode(stream).shape == (8, 8)
    with pytest.raises(imagecodecs.Jpeg2kError):
        imagecodecs.jpeg2k_decode(edited)
