import base64
import zlib

import numpy as np
import pytest

from anychunk import limits
from anychunk.codecs import Piece
from anychunk.codecs.base import as_bytes
from anychunk.codecs.piece import ROW, pack_points, range_key, unpack_points
from anychunk.codecs.seek.points import find_records
from anychunk.codecs.seek.walk import stream_of
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.model.fronts import FRONT, WHOLE, Front
from anychunk.testing.codecs import CodecContract
from tests.codecs.seek.encoders import GZIP, RAW


class TestPiece(CodecContract):
    codecs = tuple(Piece(compression=name) for name in ("gzip", "zlib", "bzip2"))
    arrays = (np.arange(60, dtype="uint16").reshape(5, 12),)


def decode(codec, data):
    return as_bytes(codec.decode_bytes(as_bytes(data), None)).tobytes()


def test_known_front():
    front = Front(WHOLE, 100, 50, 60, 150).pack()
    assert len(front) == FRONT.size == 64
    assert front[:16].hex() == "01000000000000006400000000000000"
    stream = zlib.compress(bytes(range(150)))
    found = decode(Piece(compression="zlib"), front + stream)
    assert found == bytes(range(100, 150)) + bytes(10)


@pytest.mark.parametrize(
    "front",
    [
        b"",
        Front(2, 0, 1, 1, 1).pack(),
        Front(WHOLE, 0, 5, 4, 9).pack(),
        Front(WHOLE, 8, 2, 2, 9).pack(),
        Front(0, 0, 2, 2, 2).pack(),
    ],
)
def test_damaged_fronts(front):
    with pytest.raises(ChunkDecodeError):
        decode(Piece(compression="gzip"), front)


def pointed(size=1 << 19):
    stream = np.frombuffer(GZIP["zlib 6"](RAW), np.uint8)
    cuts = [*range(0, len(RAW), size), len(RAW)]
    records = find_records(stream_of(stream), "gzip", cuts)
    ranges = [stream[r.at : r.at + r.length] for r in records]
    named = [(range_key(data), size, r) for data, r in zip(ranges, records, strict=True)]
    return Piece(compression="gzip", points=pack_points(named)), ranges, size


def test_points():
    codec, ranges, size = pointed()
    padded = RAW + bytes(-len(RAW) % size)
    for number, data in enumerate(ranges):
        assert decode(codec, data) == padded[number * size : (number + 1) * size]
    again = Piece.from_dict(codec.to_dict())
    assert decode(again, ranges[1]) == RAW[size : 2 * size]
    assert "points" not in repr(codec)


def test_a_changed_file_misses_its_points():
    codec, ranges, _ = pointed()
    with pytest.raises(ChunkDecodeError, match="changed"):
        decode(codec, ranges[1][:-1])
    with pytest.raises(ChunkDecodeError):
        decode(codec, np.concatenate([ranges[1][:8] ^ 1, ranges[1][8:]]))
    with pytest.raises(ChunkEncodeError):
        codec.encode_bytes(np.zeros(9, np.uint8), None)


def test_damaged_points():
    codec, ranges, _ = pointed()
    data = base64.b64decode(codec.points)
    rng = np.random.default_rng(3)
    for text in (5, "!", "", "AA==", base64.b64encode(data[:-1]).decode()):
        with pytest.raises(CodecConfigError):
            Piece(compression="gzip", points=text)
    for place in [*rng.integers(0, len(data), 40), *range(4, 4 + ROW.itemsize)]:
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        try:
            damaged = Piece(compression="gzip", points=base64.b64encode(changed).decode())
            with limits.override(chunk_bytes=1 << 22):
                found = [decode(damaged, stored) for stored in ranges[:2]]
        except AnychunkError:
            continue
        # a window of which no byte is used there, or the length of another chunk
        assert found[0][: 1 << 18] == RAW[: 1 << 18]


def test_refused_configurations():
    for compression in ("raw", 5, None):
        with pytest.raises(CodecConfigError):
            Piece(compression=compression)
    assert unpack_points(pack_points([])) == {}
