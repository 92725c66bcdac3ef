"""`cast_value` as a codec: JSON, maps, fill values, errors, and arrays exchanged with zarr."""

import json
import re

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.buffer import default_buffer_prototype
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.codecs.cast_value import CastValue as ZarrCastValue
from zarr.codecs.scale_offset import ScaleOffset as ZarrScaleOffset
from zarr.core.dtype import UInt8

import anychunk
from anychunk.codecs import CastValue, ScaleOffset
from anychunk.codecs.base import ChunkSpec
from anychunk.errors import AnychunkError, ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters
from anychunk.zarr.codecs import adapted


def encode(codec, array):
    return codec.encode_array(array, ChunkSpec(array.shape, array.dtype))


def decode(codec, array, dtype):
    return codec.decode_array(array, ChunkSpec(array.shape, np.dtype(dtype)))


def create(dtype, *filters, fill=0, store=None, shape=(10,), **options):
    store = {} if store is None else store
    return zarr.create_array(
        store, shape=shape, chunks=shape, dtype=dtype, fill_value=fill, filters=filters,
        compressors=None, **options,
    )  # fmt: skip


@pytest.mark.usefixtures("enabled")
class TestCastValueContract(CodecContract):
    codecs = (
        CastValue(data_type="int16"),
        CastValue(data_type="float32"),
        CastValue(data_type="uint8", out_of_range="clamp", rounding="towards-zero"),
        CastValue(data_type="bfloat16", strict=False),
        CastValue(data_type="int32", scalar_map={"encode": [[-5, 3]], "decode": [[3, -5]]}),
    )
    arrays = (
        np.arange(0, 60, 4, dtype="int16").reshape(3, 5),
        np.linspace(0, 96, 7, dtype="float64"),
    )


# -- JSON


@pytest.mark.parametrize(
    "configuration",
    [
        {"data_type": "uint8"},
        {"data_type": "int16", "rounding": "towards-zero", "out_of_range": "wrap"},
        {"data_type": "float8_e4m3", "rounding": "nearest-away"},
        {
            "data_type": "uint8",
            "scalar_map": {"encode": [["NaN", 0], ["+Infinity", 0]], "decode": [[0, "NaN"]]},
        },
    ],
)
@pytest.mark.usefixtures("enabled")  # for float8_e4m3
def test_json_is_zarrs(configuration):
    ours = CastValue.from_dict({"name": "cast_value", "configuration": configuration})
    text = json.dumps(ours.to_dict())
    assert json.loads(text)["configuration"] == configuration
    assert CastValue.from_dict(json.loads(text)) == ours
    theirs = ZarrCastValue.from_dict(json.loads(text))
    assert json.dumps(theirs.to_dict()) == text


@pytest.mark.parametrize(
    "data_type", ["uint8", {"name": "uint8"}, {"name": "uint8", "configuration": {}}, UInt8()]
)
def test_data_type_as_an_object(data_type):
    codec = CastValue(data_type=data_type)
    assert codec.to_dict() == {"name": "cast_value", "configuration": {"data_type": "uint8"}}
    assert codec.dtype == UInt8()


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"data_type": "uint8", "round": "up"}, "unknown key 'round'"),
        ({"data_type": "uint8", "rounding": "up"}, "rounding 'up'.*nearest-even"),
        ({"data_type": "uint8", "out_of_range": "error"}, "out_of_range 'error'"),
        ({"data_type": "float32", "out_of_range": "wrap"}, "'wrap'.*float32"),
        ({"data_type": "complex64"}, "'complex64'"),
        ({"data_type": 8}, "data type 8"),
        ({"data_type": {"name": "uint8", "x": 1}}, "'x': 1"),
        ({}, "'data_type'"),
        ({"data_type": "uint8", "scalar_map": []}, r"scalar_map is \[\]"),
        ({"data_type": "uint8", "scalar_map": {"both": []}}, "'both' in scalar_map"),
        ({"data_type": "uint8", "scalar_map": {"encode": "NaN"}}, "encode is 'NaN'"),
        ({"data_type": "uint8", "scalar_map": {"encode": [[1]]}}, r"encode has \[1\]"),
        ({"data_type": "uint8", "scalar_map": {"encode": [[[1], 1]]}}, r"encode has \[1\]"),
        ({"data_type": "uint8", "scalar_map": {"encode": [[True, 1]]}}, "encode has True"),
    ],
)
def test_bad_configuration_is_refused_when_built(configuration, message):
    with pytest.raises(CodecConfigError, match=message):
        CastValue.from_dict({"name": "cast_value", "configuration": configuration})


@pytest.mark.parametrize(
    ("dtype", "target", "entry", "message"),
    [
        ("int32", "int8", ["NaN", 0], "key 'NaN' .*int32"),
        ("float64", "int8", [1, 999], "value 999 .*int8"),
        ("float64", "int8", [1, 1.5], "value 1.5 .*int8"),
        ("float32", "int8", ["0x7fc0", 1], "4 digits.* 8"),
        ("float32", "int8", [1e300, 1], r"key 1e\+300 .*float32"),
        ("float64", "float4_e2m1fn", ["NaN", "NaN"], "value 'NaN' .*float4_e2m1fn"),
    ],
)
def test_map_is_checked_when_the_array_is_created(dtype, target, entry, message):
    codec = CastValue(data_type=target, scalar_map={"encode": [entry]})
    with pytest.raises(CodecConfigError, match=message):
        create(dtype, codec)


# -- scalar maps


def test_first_of_duplicate_keys_wins():
    scalar_map = {"encode": [[5, 1], [5, 2], [5.0, 3]], "decode": [[1, 5], [1, 6]]}
    codec = CastValue(data_type="uint8", scalar_map=scalar_map)
    encoded = encode(codec, np.array([5.0, 7.0]))
    np.testing.assert_array_equal(encoded, [1, 7])
    np.testing.assert_array_equal(decode(codec, encoded, "f8"), [5, 7])
    assert codec.to_dict()["configuration"]["scalar_map"]["encode"] == [(5, 1), (5, 2), (5.0, 3)]


@pytest.mark.parametrize("order", [1, -1])
def test_hex_nan_keys_match_their_payload(order):
    payload = np.array([0x7FC00001, 0x7FC00000, 0xFFC00002], np.uint32).view(np.float32)
    keys = [["0x7fc00001", 1], ["NaN", 2]][::order]
    encoded = encode(CastValue(data_type="uint8", scalar_map={"encode": keys}), payload)
    np.testing.assert_array_equal(encoded, [1, 2, 2] if order == 1 else [2, 2, 2])


def test_hex_key_alone_leaves_other_nans_an_error():
    codec = CastValue(data_type="uint8", scalar_map={"encode": [["0x7fc00000", 1]]})
    with pytest.raises(ChunkEncodeError, match=r"nan at \(1,\) .*uint8"):
        encode(codec, np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32))


def test_hex_values_are_written_bit_for_bit():
    codec = CastValue(data_type="uint8", scalar_map={"decode": [[0, "0x7f800001"], [1, "NaN"]]})
    out = decode(codec, np.array([0, 1, 2], np.uint8), "f4")
    assert out.view(np.uint32).tolist()[:2] == [0x7F800001, 0x7FC00000]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_maps_of_small_types(dtype):
    nan = {"bfloat16": "0x7fc1", "float8_e5m2": "0x7d"}[dtype]
    codec = CastValue(
        data_type="int8",
        scalar_map={
            "encode": [[nan, 5], ["NaN", 6], [0, 7]],
            "decode": [[5, nan], [7, "-Infinity"]],
        },
    )
    native = np.dtype(getattr(ml_dtypes, dtype))
    bits = np.array([int(nan, 16), 0], f"u{native.itemsize}").view(native)
    values = np.concatenate([bits, np.array([np.nan, -0.0, 3]).astype(native)])
    encoded = encode(codec, values)
    np.testing.assert_array_equal(encoded, [5, 7, 6, 7, 3])
    back = decode(codec, encoded, native)
    assert back[:1].tobytes() == bits[:1].tobytes()
    np.testing.assert_array_equal(back.astype("f8")[1:], [-np.inf, 6, -np.inf, 3])


def test_maps_keep_full_integer_precision():
    big = 2**63 - 1
    scalar_map = {"encode": [[big, 0], [big - 1, 1]], "decode": [[0, big], [1, big - 1]]}
    codec = CastValue(data_type="uint8", scalar_map=scalar_map)
    values = np.array([big, big - 1, 9], np.int64)
    encoded = encode(codec, values)
    np.testing.assert_array_equal(encoded, [0, 1, 9])
    np.testing.assert_array_equal(decode(codec, encoded, "i8"), values)


@pytest.mark.parametrize("share", [0, 0.001, 0.2, 0.9, 1])
@pytest.mark.parametrize("target", ["uint16", "int64", "float32"])
@pytest.mark.parametrize("rule", [None, "clamp"])
def test_map_of_nan_and_infinities_over_many_blocks(share, target, rule):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 60000, 100_000).astype("f8")
    values[rng.random(values.size) < share] = np.nan
    values[::5000] = np.inf
    entries = [["NaN", 3], ["Infinity", 4]]
    codec = CastValue(data_type=target, out_of_range=rule, scalar_map={"encode": entries})
    expected = np.where(np.isnan(values), 3, np.where(np.isinf(values), 4, values))
    np.testing.assert_array_equal(encode(codec, values), expected.astype(target))
    values[::5000] = 7
    codec = CastValue(data_type=target, out_of_range=rule, scalar_map={"encode": entries[:1]})
    expected = np.where(np.isnan(values), 3, values)
    np.testing.assert_array_equal(encode(codec, values), expected.astype(target))


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16"])
def test_many_keys(dtype):
    native = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    pairs = [[n, (n * 37) % 101] for n in range(-50, 50)] + [[3, 9]]
    pairs = [["NaN", 200], *pairs] if dtype != "int64" else pairs
    codec = CastValue(data_type="uint8", strict=False, scalar_map={"encode": pairs})
    values = np.random.default_rng(0).integers(-50, 110, 50_000).astype("f4")
    values[::7] = np.nan if dtype != "int64" else 8
    expected = np.where(values < 50, (values * 37) % 101, values)
    expected = np.where(np.isnan(values), 200, expected)
    found = encode(codec, values.astype(native))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ChunkEncodeError, match=r"-60(\.0)? at \(1,\)"):
        encode(codec, np.array([3, -60]).astype(native))


# -- known defects elsewhere


def test_double_rounding_of_float64_to_float16():
    halfway = 1 + 2.0**-11  # between two float16; the bit far below decides, and float32 loses it
    values = np.array([halfway + 2.0**-40, halfway, halfway - 2.0**-40])
    found = encode(CastValue(data_type="float16"), values)
    np.testing.assert_array_equal(found.astype("f8"), [1 + 2.0**-10, 1, 1])


def test_big_endian_and_strided_input():
    values = np.arange(0, 400, dtype=">f8")[::3]
    for target in ("int16", "bfloat16", "float32"):
        codec = CastValue(data_type=target)
        np.testing.assert_array_equal(
            encode(codec, values), encode(codec, np.ascontiguousarray(values, "<f8"))
        )
    assert decode(codec, np.arange(3, dtype=">f4"), ">f8").dtype == np.dtype(">f8")


def test_wrap_is_right_beyond_2_to_63():
    values = np.array([2.0**63, 2.0**64 + 2.0**12, -(2.0**63) - 2.0**11, 2.0**70 + 2.0**20])
    wrapped = [(int(v) + 2**63) % 2**64 - 2**63 for v in values]
    codec = CastValue(data_type="int64", out_of_range="wrap")
    np.testing.assert_array_equal(encode(codec, values), wrapped)
    codec = CastValue(data_type="uint64", out_of_range="wrap")
    np.testing.assert_array_equal(encode(codec, values), [int(v) % 2**64 for v in values])


def test_clamp_reaches_the_largest_integer():
    codec = CastValue(data_type="int64", out_of_range="clamp")
    assert encode(codec, np.array([1e300, -1e300])).tolist() == [2**63 - 1, -(2**63)]
    codec = CastValue(data_type="uint64", out_of_range="clamp")
    assert encode(codec, np.array([1e300, -1.0])).tolist() == [2**64 - 1, 0]


def test_clamp_into_floats_gives_infinity_where_there_is_one():
    values = np.array([1e300, -1e300, 70000.0])
    found = encode(CastValue(data_type="float16", out_of_range="clamp"), values)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.inf])
    found = encode(CastValue(data_type="float4_e2m1fn", out_of_range="clamp"), values)
    np.testing.assert_array_equal(found.astype("f4"), [6, -6, 6])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_empty_and_scalar_chunks(shape):
    codec = CastValue(data_type="int8", scalar_map={"encode": [["NaN", 0]]})
    values = np.full(shape, 3.0)
    found = encode(codec, values)
    assert found.shape == shape
    np.testing.assert_array_equal(found, values)


# -- creating is strict, opening is not


@pytest.mark.parametrize(
    ("dtype", "target"),
    [("int64", "float64"), ("uint32", "float32"), ("float64", "int64"), ("int16", "bfloat16")],
)
def test_integers_that_a_float_cannot_hold_are_refused_when_created(dtype, target):
    integer, real = sorted((dtype, target), key=lambda name: "float" in name)
    with pytest.raises(CodecConfigError, match=rf"{real} .*\b{integer} .*strict=False"):
        create(dtype, CastValue(data_type=target))
    store = {}
    array = create(dtype, CastValue(data_type=target, strict=False), store=store)
    array[:] = np.arange(10)
    anychunk.enable()
    try:
        np.testing.assert_array_equal(zarr.open_array(store)[:], np.arange(10))
    finally:
        anychunk.disable()


def test_opened_array_rounds():
    codec = CastValue.from_dict(
        {
            "name": "cast_value",
            "configuration": {"data_type": "float64", "rounding": "towards-zero"},
        }
    )
    array = create("int64", codec)
    array[:] = 2**53 + 1
    assert array[0] == 2**53


@pytest.mark.parametrize(
    ("fill", "target", "message"),
    [
        (0.5, "uint8", r"0\.5 .*\b0,.* 0\.0;"),
        (-1, "uint8", r"-1\.0 at \(\) .*uint8 \[0, 255\].*fill value"),
        (float("nan"), "uint8", "nan .*uint8"),
        (0.1, "float32", r"0\.1 .*0\.1"),
    ],
)
def test_fill_value_must_survive(fill, target, message):
    with pytest.raises(CodecConfigError, match=message):
        create("float64", CastValue(data_type=target), fill=fill)


def test_fill_value_that_comes_back_changed_is_allowed_when_opened():
    store = {}
    create("float64", ZarrCastValue(data_type="uint8"), fill=0.5, store=store)
    anychunk.enable()
    try:
        array = zarr.open_array(store)
        np.testing.assert_array_equal(array[:], np.full(10, 0.5))
    finally:
        anychunk.disable()


def test_second_cast_sees_the_type_of_the_first():
    array = create("int64", CastValue(data_type="int16"), CastValue(data_type="float32"))
    array[:] = np.arange(10) * 100
    np.testing.assert_array_equal(array[:], np.arange(10) * 100)


# -- errors


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2, 300, 400], r"cast_value: 300\.0 at \(2,\) .*uint8 \[0, 255\]"),
        ([1, float("nan"), 3, 4], r"cast_value: nan at \(1,\) .*uint8"),
        ([1, 2, 3, float("-inf")], r"cast_value: -inf at \(3,\) .*uint8"),
    ],
)
def test_bad_value_is_named_and_the_chunk_is_not_written(values, message):
    store = {}
    array = create("float64", CastValue(data_type="uint8"), shape=(4,), store=store)
    with pytest.raises(ChunkEncodeError, match=message):
        array[:] = values
    assert set(store) == {"zarr.json"}


def test_infinity_is_an_error_even_with_clamp():
    with pytest.raises(ChunkEncodeError, match=r"inf at \(0,\) .*uint8"):
        encode(CastValue(data_type="uint8", out_of_range="clamp"), np.array([np.inf]))


def test_decoding_names_its_value():
    with pytest.raises(ChunkDecodeError, match=r"300\.0 at \(1,\) .*uint8"):
        decode(CastValue(data_type="float32"), np.array([1, 300], "f4"), "u1")


def test_wrong_chunk_type_is_an_error():
    with pytest.raises(ChunkDecodeError, match=r"\bint8,.* uint8"):
        decode(CastValue(data_type="uint8"), np.zeros(3, np.int8), "f8")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("complex64", "complex64"), ("bool", "bool"), ("S3", "S3"), ("M8[s]", "datetime64[s]")],
)
def test_types_that_are_no_real_numbers(dtype, name):
    with pytest.raises(AnychunkError, match=rf"cast_value: .*{re.escape(name)}"):
        create(dtype, CastValue(data_type="uint8"), fill=None)


# -- with zarr, sharding, version 2

EXAMPLE = [
    {"name": "scale_offset", "configuration": {"offset": -10, "scale": 0.1}},
    {
        "name": "cast_value",
        "configuration": {
            "data_type": "uint8",
            "rounding": "nearest-even",
            "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]},
        },
    },
]
VALUES = np.array([[10.0, np.nan, 0.4], [-1.5, 1234.5, 2539.9]])


@pytest.mark.parametrize("writer", ["ours", "zarr"])
def test_combined_example_is_exchanged_with_zarr(writer):
    theirs = [cls.from_dict(d) for cls, d in zip((ZarrScaleOffset, ZarrCastValue), EXAMPLE)]  # noqa: B905
    ours = [cls.from_dict(d) for cls, d in zip((ScaleOffset, CastValue), EXAMPLE)]  # noqa: B905
    store = {}
    written = create(
        "float64", *(ours if writer == "ours" else theirs), fill=np.nan, store=store, shape=(2, 3)
    )
    written[...] = VALUES
    stored = np.frombuffer(store["c/0/0"].to_bytes(), np.uint8)
    np.testing.assert_array_equal(stored, [2, 0, 1, 1, 124, 255])
    by_zarr = zarr.open_array(store, mode="r")
    assert isinstance(by_zarr.metadata.codecs[1], ZarrCastValue)
    anychunk.enable()
    try:
        by_us = zarr.open_array(store, mode="r")
    finally:
        anychunk.disable()
    assert isinstance(by_us.metadata.codecs[1], CastValue)
    assert by_us[...].tobytes() == by_zarr[...].tobytes()
    np.testing.assert_allclose(by_us[...], VALUES, atol=5.0)  # half a step of 1 / 0.1


def test_enable_is_silent_and_undone(recwarn):
    anychunk.enable()
    assert zarr.registry.get_codec_class("cast_value") is CastValue
    assert zarr.registry.get_codec_class("scale_offset") is ScaleOffset
    anychunk.disable()
    assert zarr.registry.get_codec_class("cast_value") is ZarrCastValue
    assert zarr.registry.get_codec_class("scale_offset") is ZarrScaleOffset
    assert not recwarn.list


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_around_and_inside_shards():
    values = np.arange(64.0).reshape(8, 8)
    cast = CastValue(data_type="uint8")
    inner = ShardingCodec(chunk_shape=(2, 4), codecs=[cast, BytesCodec()])
    outer = ShardingCodec(chunk_shape=(2, 4), codecs=[BytesCodec()])
    for chain, serializer in (((), inner), ((cast,), outer)):
        store = {}
        array = create("float64", *chain, store=store, shape=(8, 8), serializer=serializer)
        array[:4] = values[:4]
        found = zarr.open_array(store)[...]
        np.testing.assert_array_equal(found, np.where(values < 32, values, 0))


@pytest.mark.parametrize("order", ["C", "F"])
def test_version_2_filter(order):
    values = np.arange(30.0).reshape(5, 6)
    values[2, 2] = np.nan
    scalar_map = {"encode": [["NaN", 99]], "decode": [[99, "NaN"]]}
    store = {}
    array = zarr.create_array(
        store, shape=(5, 6), chunks=(3, 4), dtype="float64", zarr_format=2, order=order,
        filters=[filters.CastValue(dtype="<f8", data_type="uint8", scalar_map=scalar_map)],
    )  # fmt: skip
    array[...] = values
    np.testing.assert_array_equal(zarr.open_array(store)[...], values)
    (saved,) = json.loads(store[".zarray"].to_bytes())["filters"]
    assert saved == {
        "id": "cast_value",
        "dtype": "<f8",
        "data_type": "uint8",
        "scalar_map": {"encode": [["NaN", 99]], "decode": [[99, "NaN"]]},
    }
    assert numcodecs.get_codec(saved).get_config() == json.loads(json.dumps(saved)) | {
        "scalar_map": {"encode": [("NaN", 99)], "decode": [(99, "NaN")]}
    }


def test_version_2_filter_refuses_half_a_value():
    codec = filters.CastValue(dtype="<f8", data_type="uint16")
    with pytest.raises(ChunkDecodeError):
        codec.decode(b"abc")
    with pytest.raises(CodecConfigError, match="required key 'dtype'"):
        numcodecs.get_codec({"id": "cast_value", "data_type": "uint16"})


@pytest.mark.parametrize("source", ["float32", "int32"])
@pytest.mark.parametrize("key", ["1", " 1 ", "1e0", "1.0", "-1", "nan", "", "x", "0x10"])
def test_a_number_in_quotes_is_that_number_as_in_zarr(key, source):
    """Zarr writes and opens such stores, so they open here, with the same values."""
    values = np.array([1, 2, 3], source)
    configuration = {"data_type": "uint8", "scalar_map": {"encode": [[key, 7]]}}
    found = []
    for codec in (zarr.codecs.CastValue(**configuration), adapted(CastValue(**configuration))):
        try:
            array = zarr.create_array(
                {}, shape=3, chunks=3, dtype=source, filters=[codec], compressors=None
            )
            array[...] = values
            stored = array.store_path.store.get_sync("c/0", prototype=default_buffer_prototype())
            found.append(stored.to_bytes())
        except ValueError:
            found.append(None)
    assert found[0] == found[1]
    assert (found[0] is None) == (
        key in ("", "x", "0x10") or (source == "int32" and key in ("1e0", "1.0", "nan"))
    )
