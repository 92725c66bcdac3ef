"""The two codecs in one pass give what they give one after the other."""

import json

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, TransposeCodec

import anychunk
from anychunk.codecs import CastValue, ScaleOffset
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast import fuse
from anychunk.codecs.cast.fused_cast import FusedCast
from anychunk.errors import AnychunkError
from anychunk.zarr import pipeline

SCALE, CAST = ScaleOffset(offset=100, scale=3.5), CastValue(data_type="uint16")
NAN_MAP = {"encode": [["NaN", 7]], "decode": [[7, "NaN"]]}
INFINITY_MAP = {"encode": [["Infinity", 7], ["NaN", 8]], "decode": [[7, "Infinity"], [8, "NaN"]]}


def test_only_adjacent_pairs_are_fused():
    transpose, serializer = TransposeCodec(order=(1, 0)), BytesCodec()
    assert fuse([SCALE, CAST, serializer]) == [
        FusedCast(scale_offset=SCALE, cast_value=CAST),
        serializer,
    ]
    for chain in ([CAST, SCALE], [SCALE, transpose, CAST], [SCALE, serializer], []):
        assert fuse(chain) == chain


def outcome(call):
    try:
        return call().tobytes()
    except AnychunkError as e:
        return type(e), str(e)


@pytest.mark.parametrize("source", ["float64", "float32", "float16", "int32", "uint64"])
@pytest.mark.parametrize("target", ["uint16", "int8", "float32", "bfloat16", "float8_e4m3"])
@pytest.mark.parametrize("rule", [None, "clamp"])
@pytest.mark.parametrize("scalar_map", [None, NAN_MAP, INFINITY_MAP])
def test_fused_is_the_same_errors_included(source, target, rule, scalar_map):
    if scalar_map is not None and np.dtype(source).kind != "f":
        scalar_map = {"encode": [[120, 7]], "decode": [[7, 120]]}
    scale = ScaleOffset(offset=100, scale=3 if np.dtype(source).kind != "f" else 3.7)
    cast = CastValue(data_type=target, out_of_range=rule, scalar_map=scalar_map)
    (fused,) = fuse([scale, cast])
    rng = np.random.default_rng(0)
    for extremes in ((), (np.nan,), (np.inf,), (6e4,), (np.finfo("f8").max,)):
        values = 100 + rng.random(40_000) * 60
        values[777 : 777 + len(extremes)] = extremes
        with np.errstate(all="ignore"):
            array = values.astype(source)
        spec = ChunkSpec(array.shape, array.dtype)
        apart = outcome(lambda: cast.encode_array(scale.encode_array(array, spec), spec))  # noqa: B023
        assert outcome(lambda: fused.encode_array(array, spec)) == apart  # noqa: B023
    stored = rng.integers(0, 120, 40_000).astype(cast.kind.dtype)
    apart = outcome(lambda: scale.decode_array(cast.decode_array(stored, spec), spec))
    assert outcome(lambda: fused.decode_array(stored, spec)) == apart


def test_overflow_of_a_mapped_value_is_found():
    cast = CastValue(data_type="uint8", scalar_map={"decode": [[1, 3e38]]})
    (fused,) = fuse([ScaleOffset(scale=0.5), cast])
    with pytest.raises(AnychunkError, match="scale_offset: .*float32"):
        fused.decode_array(np.array([0, 1], np.uint8), ChunkSpec((2,), np.dtype("f4")))


def test_ordinary_zarr_arrays_run_fused():
    pipeline.install()
    values = np.arange(100.0, 160).reshape(6, 10)
    store = {}
    array = zarr.create_array(
        store, shape=(6, 10), chunks=(4, 4), dtype="float64", filters=[SCALE, CAST], fill_value=100
    )
    used = list(array.async_array.codec_pipeline)
    assert isinstance(used[0], FusedCast)
    assert [codec.to_dict()["name"] for codec in array.metadata.codecs[:2]] == [
        "scale_offset",
        "cast_value",
    ]
    array[...] = values
    np.testing.assert_allclose(array[...], values, atol=0.5 / 3.5)
    with pytest.raises(ValueError, match=r"cast_value: 349650.0 at \(0, 0\) .*uint16"):
        array[0, 0] = 1e5


@pytest.mark.parametrize("offset", [0, 0.0, -0.0])
def test_an_identity_changes_no_bit(offset):
    """Also of zeros and NaN, as if there were no `scale_offset`."""
    values = np.array([-0.0, 0.0, 1.5, -np.inf, np.nan], "f8")
    values.view("u8")[4] |= 1 << 63 | 1 << 40  # negative, and with a payload
    fused = FusedCast(
        scale_offset=ScaleOffset(offset=offset), cast_value=CastValue(data_type="float32")
    )
    spec = ChunkSpec(values.shape, values.dtype)
    stored = fused.encode_array(values, spec)
    assert stored.tobytes() == values.astype("f4").tobytes()
    assert fused.decode_array(stored, spec).tobytes() == values.astype("f4").astype("f8").tobytes()


def test_codecs_that_differ_in_the_sign_of_a_zero():
    values = np.array([np.nan, 2.0])
    spec = ChunkSpec(values.shape, values.dtype)
    for zero in (0.0, -0.0):
        codec = CastValue(data_type="float32", scalar_map={"encode": [["NaN", zero]]})
        assert codec.encode_array(values, spec).tobytes() == np.array([zero, 2], "f4").tobytes()
    for offset in (0.0, -0.0):
        codec = ScaleOffset(offset=offset, scale=2.0)
        expected = (np.array([-0.0]) - offset) * 2.0
        found = codec.encode_array(np.array([-0.0]), ChunkSpec((1,), values.dtype))
        assert found.tobytes() == expected.tobytes()


def sharded(codec, configuration, fill):
    """Return a store of zarr's whose only shard lacks its second chunk."""
    shards = {
        "chunk_shape": [2],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill,
        "codecs": [
            {"name": codec, "configuration": configuration},
            {"name": "sharding_indexed", "configuration": shards},
        ],
        "attributes": {},
    }
    store = zarr.storage.MemoryStore(
        {"zarr.json": zarr.core.buffer.cpu.Buffer.from_bytes(json.dumps(metadata).encode())}
    )
    zarr.open_array(store)[:2] = [1, 2]
    return store


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_absent_chunks_of_shards_behind_codecs_that_differ_in_the_sign_of_a_zero():
    casts = [
        {"data_type": "float32", "scalar_map": {"encode": [[5, zero]]}} for zero in (0.0, -0.0)
    ]
    scales = [{"offset": offset, "scale": 2.0} for offset in (0.0, -0.0)]
    stores = [sharded("cast_value", cast, 5) for cast in casts]
    stores += [sharded("scale_offset", scale, -0.0) for scale in scales]
    expected = [zarr.open_array(store)[...].tobytes() for store in stores]
    assert expected[0] != expected[1]
    anychunk.enable()
    assert [zarr.open_array(store)[...].tobytes() for store in stores] == expected
