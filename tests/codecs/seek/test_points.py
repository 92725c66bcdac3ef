import bz2
import shutil
import subprocess
import zlib
from itertools import pairwise

import numpy as np
import pytest

from anychunk.codecs.seek import deflate
from anychunk.codecs.seek.points import decode_record, find_records
from anychunk.codecs.seek.walk import stream_of
from anychunk.errors import AnychunkError, ChunkDecodeError, LimitError
from tests.codecs.seek.encoders import CASES, GZIP, RAW

CUTS = [*range(16, len(RAW), 1 << 19), len(RAW)]
"""Pieces of 512 KiB after 16 bytes."""


def assert_pieces(stream, compression, cuts=CUTS):
    """Check that each piece decodes from its own bytes; return the records."""
    records = find_records(stream_of(stream), compression, cuts)
    data = np.frombuffer(stream, np.uint8)
    for record, (start, stop) in zip(records, pairwise(cuts), strict=True):
        out = np.empty(stop - start, np.uint8)
        stored = data[record.at : record.at + record.length]
        decode_record(stored, record, compression, out)
        assert out.tobytes() == RAW[start:stop]
    return records


def bzip2_end(count):
    """Return the length of the first of two streams."""
    return len(bz2.compress(RAW[:count], 2))


@pytest.mark.parametrize(("compression", "name", "encode"), CASES, ids=lambda v: str(v)[:20])
def test_every_encoder(compression, name, encode):
    records = assert_pieces(encode(RAW), compression)
    if compression == "bzip2":
        # a range begins with the stream that it belongs to, behind the stream's header
        assert {record.at for record in records} <= {4, bzip2_end(500_001) + 4}
        assert len({record.at for record in records}) == (2 if name == "streams" else 1)
    elif name not in ("fixed", "isal 0", "zlib-ng 1"):
        # isal writes blocks of more than a piece where the data is empty
        assert max(record.skip for record in records) <= 3 << 18
        assert len({(record.at, record.bit) for record in records}) >= len(records) - 1


def test_ranges_of_bzip2_differ_at_their_start():
    """Saved indexes find records by the first eight bytes and the length of a range."""
    starts = set()
    for number in range(9):
        stream = bz2.compress(RAW[number * 1000 :][:5000])
        (record,) = find_records(stream_of(stream), "bzip2", [0, 5000])[:1]
        starts.add(stream[record.at : record.at + 8])
    assert len(starts) == 9


@pytest.mark.processes
@pytest.mark.parametrize("options", [[], ["-i"], ["-9"]], ids=str)
def test_pigz(options):
    if shutil.which("pigz") is None:
        pytest.skip("needs pigz: apt-get install pigz")
    command = ["pigz", "-c", *options]
    stream = subprocess.run(command, input=RAW, capture_output=True, check=True).stdout
    assert_pieces(stream, "gzip")


@pytest.mark.parametrize("backend", ["zlib", "zlib_ng", "isal"])
def test_backends(backend, monkeypatch):
    """What one decoder has found, every decoder reads."""
    streams = [GZIP[name](RAW) for name in ("zlib 0", "zlib 6", "isal 1", "small members")]
    hidden = {"zlib": ("isal", "zlib_ng"), "zlib_ng": ("isal",), "isal": ()}[backend]
    real = deflate.importlib.import_module

    def without(name):
        if name.split(".")[0] in hidden:
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(deflate.importlib, "import_module", without)
    deflate.backend.cache_clear()
    try:
        for stream in streams:
            assert_pieces(stream, "gzip")
    finally:
        deflate.backend.cache_clear()


def test_small_pieces():
    cuts = [0, 1, 2, 70_000, 70_001, 400_000, len(RAW)]
    for compression, name in (("gzip", "zlib 6"), ("bzip2", "bzip2 1"), ("lzw", "libtiff")):
        encode = next(e for c, n, e in CASES if (c, n) == (compression, name))
        assert_pieces(encode(RAW), compression, cuts)


def test_windows_hold_what_is_needed():
    stream = GZIP["zlib 6"](RAW)
    windows = [deflate.unpack_window(r.window) for r in assert_pieces(stream, "gzip")]
    shares = [np.count_nonzero(np.frombuffer(w, np.uint8)) / 32768 for w in windows if w]
    assert shares
    assert max(shares) < 0.9


@pytest.mark.parametrize(
    ("compression", "name"),
    [("gzip", "zlib 6"), ("gzip", "zlib 0"), ("bzip2", "bzip2 1"), ("lzw", "imagecodecs")],
)
def test_a_flipped_bit_raises(compression, name):
    """Anywhere in the stored bytes of a piece that matter; those of other pieces do not."""
    encode = next(e for c, n, e in CASES if (c, n) == (compression, name))
    stream = encode(RAW)
    records = find_records(stream_of(stream), compression, CUTS)
    rng = np.random.default_rng(1)
    for record in records[1:]:
        stored = np.frombuffer(stream, np.uint8)[record.at : record.at + record.length].copy()
        clean = np.empty(record.nbytes, np.uint8)
        decode_record(stored, record, compression, clean)
        for place in rng.integers(64, record.length - 64, 12):
            damaged, out = stored.copy(), np.empty(record.nbytes, np.uint8)
            damaged[place] ^= 1 << int(rng.integers(8))
            try:
                decode_record(damaged, record, compression, out)
            except ChunkDecodeError:
                continue
            # decoded bytes that precede the piece may be damaged without any effect on it
            assert out.tobytes() == clean.tobytes()


def test_damage_is_found_while_searching():
    stream = bytearray(GZIP["zlib 6"](RAW))
    stream[len(stream) // 2] ^= 4
    with pytest.raises(ChunkDecodeError):
        find_records(stream_of(bytes(stream)), "gzip", CUTS)
    with pytest.raises(ChunkDecodeError):
        find_records(stream_of(GZIP["zlib 6"](RAW)[:-5]), "gzip", CUTS)


@pytest.mark.parametrize("compression", ["gzip", "zlib", "bzip2", "lzw"])
def test_any_bytes(compression):
    rng = np.random.default_rng(2)
    for length in (0, 1, 2, 9, 1000):
        data = rng.integers(0, 256, length, np.uint8).tobytes()
        with pytest.raises(AnychunkError):
            find_records(stream_of(data), compression, [0, 1 << 20])


def test_alignment_blocks_decode_to_nothing():
    for bit in range(1, 8):
        blocks = deflate.ALIGNED[bit]
        # a final empty block at the wanted bit
        number = int.from_bytes(blocks, "little") | 0b011 << (8 * (len(blocks) - 1) + bit)
        whole = number.to_bytes(len(blocks) + 2, "little")
        assert zlib.decompress(whole, -15) == b""


@pytest.mark.parametrize("compression", ["gzip", "bzip2"])
def test_cuts_beyond_what_a_stream_can_hold(compression):
    """A damaged header may say that the samples begin anywhere."""
    stream = stream_of({"gzip": GZIP["zlib 6"], "bzip2": bz2.compress}[compression](RAW[:9999]))
    for cuts in ([1 << 60, (1 << 60) + 9], [0, 1 << 60]):
        with pytest.raises(LimitError):
            find_records(stream, compression, cuts)
