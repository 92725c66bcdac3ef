"""`packbits`: its vectors are run by tests/project/test_specs.py, and against zarrs here."""

import json

import ml_dtypes
import numpy as np
import pytest
import zarr

from anychunk.codecs import PackBits
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.codecs.packbits import BLOCK
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract


@pytest.mark.usefixtures("enabled")  # for int4
class TestPackBits(CodecContract):
    codecs = (PackBits(), PackBits(padding_encoding="first_byte"))
    arrays = (
        np.arange(60).reshape(5, 12) % 3 == 0,
        np.arange(-30, 30, dtype="int16").reshape(5, 12),
        np.array([1 + 2j, -3.5j], "complex64"),
        np.arange(7, dtype="float64") / 3,
        (np.arange(9) % 16 - 8).astype(ml_dtypes.int4),
    )


def spec(array):
    return ChunkSpec(array.shape, array.dtype)


def encode(array, **options):
    return as_bytes(PackBits(**options).encode_chunk(array, spec(array)))


def decode(data, array, **options):
    return PackBits(**options).decode_chunk(as_bytes(data), spec(array))


@pytest.mark.parametrize(
    ("kind", "values", "options", "expected"),
    [  # by hand, from the text
        ("bool", [1, 0, 0, 0, 0, 0, 0, 0, 0, 1], {"padding_encoding": "first_byte"}, "060102"),
        ("int8", [-2, 2, 6, -16], {"first_bit": 1, "last_bit": 4}, "1f83"),
        ("uint16", [0xABC, 0x123], {"last_bit": 11}, "bc3a12"),
        ("float32", [1.5, -2], {"first_bit": 16}, "c03f00c0"),
        ("int4", [-8, 7, -1], {"padding_encoding": "last_byte"}, "780f04"),
        ("float6_e2m3fn", [-7.5, 0.125], {}, "7f00"),
    ],
)
def test_known_bytes(kind, values, options, expected):
    array = np.array(values, np.float64).astype(getattr(ml_dtypes, kind, kind))
    assert encode(array, **options).tobytes().hex() == expected
    np.testing.assert_array_equal(decode(bytes.fromhex(expected), array, **options), array)


def test_blocks_join_without_gaps():
    array = np.random.default_rng(0).integers(0, 1 << 11, BLOCK + 11).astype("uint16")
    packed = encode(array, last_bit=10)
    # independent: one integer of all bits
    whole = sum(int(v) << 11 * i for i, v in enumerate(array[:100]))
    assert packed[:137].tobytes() == (whole & (1 << 8 * 137) - 1).to_bytes(138, "little")[:137]
    np.testing.assert_array_equal(decode(packed, array, last_bit=10), array)


def test_any_element_larger_than_the_bits_is_cut():
    """As the text says: the codec exists to drop bits."""
    array = np.array([0x1234, 0xFFFF], "uint16")
    np.testing.assert_array_equal(
        decode(encode(array, first_bit=4, last_bit=7), array, first_bit=4, last_bit=7),
        array & 0x00F0,
    )


@pytest.mark.parametrize(
    ("data", "options", "match"),
    [
        (b"\1", {}, "1 bytes, expected 2"),
        (b"\1\2\3", {}, "3 bytes, expected 2"),
        (b"\5\1\2", {"padding_encoding": "first_byte"}, "5 padding bits, expected 6"),
        (b"\1\2\7", {"padding_encoding": "last_byte"}, "7 padding bits, expected 6"),
    ],
)
def test_a_damaged_chunk_is_an_error(data, options, match):
    with pytest.raises(ChunkDecodeError, match=match):
        decode(data, np.zeros(10, bool), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"padding_encoding": "start_byte"},  # so the published schema has it, not the text
        {"first_bit": -1},
        {"last_bit": True},
        {"first_bit": 3, "last_bit": 2},
    ],
)
def test_configuration_is_checked(options):
    with pytest.raises(CodecConfigError):
        PackBits.from_dict({"name": "packbits", "configuration": options})


@pytest.mark.parametrize(("dtype", "options"), [("uint8", {"last_bit": 8}), ("S3", {})])
def test_refused_when_the_array_is_created(dtype, options):
    with pytest.raises(CodecConfigError):
        zarr.create_array(
            {}, shape=(4,), dtype=dtype, serializer=PackBits(**options), compressors=None
        )


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("bool", {"padding_encoding": "last_byte"}),
        ("uint16", {"first_bit": 3, "last_bit": 13}),
        ("int16", {"first_bit": 2, "last_bit": 12, "padding_encoding": "first_byte"}),
        ("float64", {"first_bit": 20}),
    ],
)
def test_zarrs_reads_and_writes_the_same(tmp_path, dtype, options):
    pytest.importorskip("zarrs", reason="zarrs has no wheel for this Python: pip install zarrs")
    rng = np.random.default_rng(1)
    # whole chunks: zarrs 0.2.3 misreads parts of a chunk if `first_bit` is not 0
    array = np.frombuffer(rng.bytes(8 * 26), np.dtype(dtype) if dtype != "bool" else "u1")[:26]
    array = array % 2 == 1 if dtype == "bool" else np.nan_to_num(array)
    made = zarr.create_array(
        tmp_path / "ours", shape=array.shape, chunks=(13,), dtype=array.dtype,
        serializer=PackBits(**options), compressors=None, config={"write_empty_chunks": True},
    )  # fmt: skip
    made[...] = array
    settings = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    with zarr.config.set(settings):
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[...], made[...])
        metadata = json.loads((tmp_path / "ours/zarr.json").read_text())
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/zarr.json").write_text(json.dumps(metadata))
        zarr.open_array(tmp_path / "theirs", mode="r+")[...] = array
    for file in (tmp_path / "ours/c").iterdir():
        assert file.read_bytes() == (tmp_path / "theirs/c" / file.name).read_bytes()
