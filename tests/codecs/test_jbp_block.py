import numcodecs
import numpy as np
import pytest
import zarr

from anychunk.codecs import JbpBlock
from anychunk.codecs.base import ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters

RNG = np.random.default_rng(1)


def block(nbpp, imode="B", pvtype="INT", shape=(3, 5, 6), **options):
    bands, height, width = shape
    return JbpBlock(
        num_bands=bands, block_height=height, block_width=width, nbpp=nbpp, imode=imode,
        pvtype=pvtype, **options,
    )  # fmt: skip


class BlockContract(CodecContract):
    chunks = (3, 5, 6)
    takes_any_shape = False


class TestUnsigned(BlockContract):
    codecs = tuple(block(n, m) for n in (9, 12, 16) for m in "BPRS")
    arrays = (RNG.integers(0, 512, (3, 5, 6), "u2"),)


class TestSigned(BlockContract):
    codecs = (block(32, "P", "SI"), block(20, "R", "SI"), block(32, "S", "SI", abpp=20, pjust="L"))
    arrays = (RNG.integers(-(2**19), 2**19, (3, 5, 6), "i4"),)


class TestFloat(BlockContract):
    codecs = tuple(block(32, m, "R") for m in "BPRS")
    arrays = (RNG.normal(size=(3, 5, 6)).astype("f4"),)


class TestComplex(BlockContract):
    codecs = tuple(block(64, m, "C") for m in "BP")
    arrays = ((RNG.normal(size=(3, 5, 6)) + 1j).astype("c8"),)


class TestComplexPairs(BlockContract):
    codecs = (
        *(block(16, m, "SI", shape=(6, 5, 6), complex_pairs=True) for m in "BPRS"),
        block(32, "P", "R", shape=(6, 5, 6), complex_pairs=True),
        block(12, "R", "SI", shape=(6, 5, 6), complex_pairs=True),
    )
    arrays = ((RNG.integers(-99, 99, (3, 5, 6)) + 5j).astype("c8"),)


class TestComplexPairsOfDoubles(BlockContract):
    codecs = (
        block(64, "P", "R", shape=(6, 5, 6), complex_pairs=True),
        block(32, "B", "SI", shape=(6, 5, 6), complex_pairs=True),
    )
    arrays = (RNG.integers(-(2**31) + 1, 2**31, (3, 5, 6)) * (1 - 1j),)


class TestBits(BlockContract):
    codecs = (block(1, "B", "B"), block(1, "P", "INT"), block(7, "R"))
    arrays = (RNG.integers(0, 2, (3, 5, 6), "u1"),)


def decode(codec, data, dtype):
    out = np.frombuffer(codec.decode_bytes(np.frombuffer(data, np.uint8), None), np.uint8)
    return out.view(dtype).reshape(codec.shape)


@pytest.mark.parametrize(
    ("imode", "data"),
    [
        # bands 1 2 and 3 4 of a row of two pixels
        ("B", "0001 0002 0003 0004"),
        ("S", "0001 0002 0003 0004"),
        ("R", "0001 0002 0003 0004"),
        ("P", "0001 0003 0002 0004"),
    ],
)
def test_known_order(imode, data):
    codec = block(16, imode, shape=(2, 1, 2))
    found = decode(codec, bytes.fromhex(data), "<u2")
    np.testing.assert_array_equal(found, [[[1, 2]], [[3, 4]]])


@pytest.mark.parametrize(
    ("imode", "data"), [("B", "0001 fffe 8000 7fff"), ("P", "0001 8000 fffe 7fff")]
)
def test_known_pairs(imode, data):
    """I = 1 and -2, Q = -32768 and 32767, of two pixels."""
    codec = block(16, imode, "SI", shape=(2, 1, 2), complex_pairs=True)
    found = decode(codec, bytes.fromhex(data), "<c8")
    np.testing.assert_array_equal(found, [[[1 - 32768j, -2 + 32767j]]])


@pytest.mark.parametrize("value", [0.5, 32768, -32769j, np.nan, np.inf * 1j])
def test_parts_that_do_not_fit(value):
    codec = block(16, "P", "SI", shape=(2, 1, 1), complex_pairs=True)
    with pytest.raises(ChunkEncodeError, match="16 bits"):
        codec.encode_bytes(np.array([value], "<c8").view(np.uint8), None)


def test_known_bits():
    # 12 bits: 0xABC 0xDEF 0x123, and 4 bits of padding
    found = decode(block(12, shape=(1, 1, 3)), bytes.fromhex("abcdef1230"), "<u2")
    np.testing.assert_array_equal(found, [[[0xABC, 0xDEF, 0x123]]])
    found = decode(block(1, pvtype="B", shape=(1, 2, 5)), bytes([0b10110011, 0b10000000]), "u1")
    np.testing.assert_array_equal(found, [[[1, 0, 1, 1, 0], [0, 1, 1, 1, 0]]])


def test_bands_stored_separately_are_padded_to_bytes():
    found = decode(block(4, shape=(2, 1, 3)), bytes.fromhex("1230 4560"), "u1")
    np.testing.assert_array_equal(found, [[[1, 2, 3]], [[4, 5, 6]]])
    found = decode(block(4, "R", shape=(2, 1, 3)), bytes.fromhex("123456"), "u1")
    np.testing.assert_array_equal(found, [[[1, 2, 3]], [[4, 5, 6]]])


@pytest.mark.parametrize(
    ("pvtype", "pjust", "data", "expected"),
    [
        ("INT", "R", "0fff 0001", [0xFFF, 1]),
        ("INT", "L", "fff0 0010", [0xFFF, 1]),
        # JBP: bits that are not significant are zero, also those above a sign
        ("SI", "R", "0fff 0001", [-1, 1]),
        ("SI", "R", "ffff 0001", [-1, 1]),
        ("SI", "L", "fff0 0010", [-1, 1]),
    ],
)
def test_justified(pvtype, pjust, data, expected):
    codec = block(16, pvtype=pvtype, shape=(1, 1, 2), abpp=12, pjust=pjust)
    found = decode(codec, bytes.fromhex(data), codec.dtype)
    np.testing.assert_array_equal(found, [[expected]])


@pytest.mark.parametrize("length", [0, 1, 179, 181, 360])
def test_wrong_length(length):
    with pytest.raises(ChunkDecodeError, match="expected 180"):
        block(16).decode_bytes(np.zeros(length, np.uint8), None)


def test_wrong_chunk():
    spec = ChunkSpec((3, 5, 7), np.dtype("u2"))
    with pytest.raises(ChunkDecodeError, match="180 bytes.*210"):
        block(16).decode_bytes(np.zeros(180, np.uint8), spec)


@pytest.mark.parametrize("value", [512, -257])
def test_values_that_do_not_fit(value):
    signed = value < 0
    codec = block(9, pvtype="SI" if signed else "INT")
    data = np.full((3, 5, 6), value, codec.dtype)
    with pytest.raises(ChunkEncodeError, match=f"{value} .*9 bits"):
        codec.encode_bytes(data.reshape(-1).view(np.uint8), None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nbpp": 65}, {"nbpp": 0}, {"nbpp": "8"}, {"imode": "X"}, {"pvtype": "R"}, {"pvtype": "?"},
        {"num_bands": 0}, {"block_width": -1}, {"block_height": True}, {"abpp": 9}, {"pjust": "M"},
        {"complex_pairs": True},
    ],
)  # fmt: skip
def test_configuration_is_checked(wrong):
    good = {
        "num_bands": 1, "block_height": 2, "block_width": 2, "nbpp": 8, "imode": "B", "pvtype": "INT",
    }  # fmt: skip
    JbpBlock(**good)
    with pytest.raises(CodecConfigError):
        JbpBlock(**{**good, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression": "fax-3d"}, {"compression": None}, {"compression": ["vq"]}, {"num_bands": 2},
        {"nbpp": 8}, {"pvtype": "INT"}, {"abpp": 1}, {"complex_pairs": True},
        {"compression": "vq"}, {"compression": "vq", "nbpp": 8, "pvtype": "INT", "block_width": 12},
    ],
)  # fmt: skip
def test_configuration_of_compressed_blocks_is_checked(wrong):
    good = {
        "num_bands": 1, "block_height": 8, "block_width": 8, "nbpp": 1, "imode": "B", "pvtype": "B",
        "compression": "fax-1d",
    }  # fmt: skip
    assert JbpBlock(**good).configuration() == good
    with pytest.raises(CodecConfigError):
        JbpBlock(**{**good, **wrong})


def test_keys_as_in_osml_imagery_io():
    assert block(8).to_dict() == {
        "name": "anychunk.jbp-block",
        "configuration": {
            "num_bands": 3, "block_height": 5, "block_width": 6, "nbpp": 8, "imode": "B", "pvtype": "INT",
        },
    }  # fmt: skip


def test_zarr_v2():
    options = block(16, "P").configuration()
    numcodecs.register_codec(filters.JbpBlock)
    values = RNG.integers(0, 9999, (3, 5, 6), "u2")
    store = {}
    array = zarr.create_array(
        store, shape=values.shape, chunks=values.shape, dtype="u2", zarr_format=2,
        filters=[filters.JbpBlock(**options)], compressors=None,
    )  # fmt: skip
    array[...] = values
    assert store["0.0.0"].to_bytes() == values.transpose(1, 2, 0).astype(">u2").tobytes()
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values)
