"""`dted`: records made by hand, and values that osml-imagery-io 0.2.2 decodes from them."""

import numcodecs
import numpy as np
import pytest

from anychunk.codecs import Dted
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters
from tests.support.dted_cells import record, word

RNG = np.random.default_rng(3)
RECORDS = record(0, [1, 0x8002, 0xFFFF]) + record(1, [0x8000, 0x8003, 7])
CODEC = {"num_lat_points": 3, "num_lon_lines": 2, "record_size": 18}


def cell(rows, columns, **options):
    return Dted(num_lat_points=rows, num_lon_lines=columns, record_size=12 + 2 * rows, **options)


class TestContract(CodecContract):
    codecs = (cell(5, 6), cell(5, 6, verify_checksums=True))
    arrays = (RNG.integers(-16000, 32767, (5, 6), "i2"),)
    chunks = (5, 6)
    takes_any_shape = False


def decoded(data, **options):
    codec = Dted(**CODEC, **options)
    buffer = np.frombuffer(data, np.uint8)
    return np.asarray(codec.decode_bytes(buffer, None)).view("<i2").reshape(codec.shape).tolist()


def test_known_values():
    assert decoded(RECORDS) == [[-32767, 7], [-2, -3], [1, 0]]
    assert decoded(RECORDS, trim_top=1, trim_left=1) == [[-3], [0]]
    assert decoded(RECORDS, trim_bottom=2) == [[-32767, 7]]
    assert decoded(RECORDS, trim_right=1, verify_checksums=True) == [[-32767], [-2], [1]]
    assert decoded(RECORDS[:18]) == [[-32767, -32767], [-2, -32767], [1, -32767]]


def test_zarr_v2():
    codec = numcodecs.get_codec({"id": Dted.name, **CODEC})
    assert isinstance(codec, filters.Dted)
    found = np.frombuffer(codec.decode(RECORDS), "<i2").reshape(3, 2)
    assert found.tolist() == [[-32767, 7], [-2, -3], [1, 0]]
    assert codec.encode(codec.decode(RECORDS))[:4].tobytes() == b"\xaa\0\0\0"


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (RECORDS[:-1], {}),
        (RECORDS * 2, {}),
        (b"", {}),
        (b"\xab" + RECORDS[1:], {}),
        (RECORDS[:-1] + b"\x99", {"verify_checksums": True}),
    ],
)
def test_damaged(data, options):
    with pytest.raises(ChunkDecodeError):
        decoded(data, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_lat_points": 0},
        {"num_lat_points": True},
        {"record_size": 17},
        {"trim_top": -1},
        {"trim_top": 2, "trim_bottom": 1},
        {"trim_left": 2},
        {"num_lon_lines": "2"},
    ],
)
def test_refused_configurations(options):
    with pytest.raises(CodecConfigError):
        Dted(**{**CODEC, **options})


def test_heights_that_dted_cannot_hold():
    values = np.full((3, 2), -16001, "<i2").reshape(-1).view(np.uint8)
    with pytest.raises(ChunkEncodeError):
        Dted(**CODEC).encode_bytes(values, None)
    with pytest.raises(ChunkEncodeError):
        Dted(**CODEC, trim_top=1).encode_bytes(np.zeros(8, np.uint8), None)
    assert word(-1) == 0x8001
