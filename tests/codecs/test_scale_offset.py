"""`scale_offset`: exact integers, floats as numpy computes them, and every way it can fail."""

import json
from fractions import Fraction

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs.scale_offset import ScaleOffset as ZarrScaleOffset

from anychunk.codecs import ScaleOffset
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.cast.number_types import BY_NAME, code_values
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters
from tests.support import exact_cast

INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "int4", "uint2"]


def encode(codec, array):
    return codec.encode_array(array, ChunkSpec(array.shape, array.dtype))


def decode(codec, array):
    return codec.decode_array(array, ChunkSpec(array.shape, array.dtype))


def create(dtype, codec, *, fill=0, store=None, shape=(4,)):
    return zarr.create_array(
        {} if store is None else store, shape=shape, chunks=shape, dtype=dtype, fill_value=fill,
        filters=[codec], compressors=None,
    )  # fmt: skip


@pytest.mark.usefixtures("enabled")
class TestScaleOffsetContract(CodecContract):
    codecs = (ScaleOffset(), ScaleOffset(offset=-3, scale=2), ScaleOffset(offset=5, scale="-1"))
    arrays = (
        np.arange(60, dtype="int32").reshape(5, 12) * 1000,
        np.linspace(0, 96, 7, dtype="float64"),
        np.arange(-4, 9, dtype="float16"),
    )


# -- JSON


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (ScaleOffset(), {"name": "scale_offset"}),
        (ScaleOffset(offset=5, scale=0.1),
         {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}),
        (ScaleOffset(offset=np.float32(0.5)),
         {"name": "scale_offset", "configuration": {"offset": 0.5}}),
        (ScaleOffset(scale="0x3ff0000000000000"),
         {"name": "scale_offset", "configuration": {"scale": "0x3ff0000000000000"}}),
    ],
)  # fmt: skip
def test_json_is_zarrs(codec, data):
    assert codec.to_dict() == data
    assert ScaleOffset.from_dict(json.loads(json.dumps(data))) == codec
    assert ZarrScaleOffset.from_dict(dict(data)).to_dict() == data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": float("nan")}, "scale .*nan"),
        ({"scale": float("inf")}, "scale .*inf"),
        ({"scale": "NaN"}, "scale .*'NaN'"),
        ({"scale": "-Infinity"}, "scale .*'-Infinity'"),
        ({"scale": 0}, "scale must .*zero"),
        ({"scale": -0.0}, "scale must .*zero"),
        ({"offset": float("nan")}, "offset .*nan"),
        ({"offset": None}, "offset .*NoneType"),
        ({"offset": True}, "offset .*bool"),
    ],
)
def test_bad_configuration_is_refused_when_built(options, message):
    with pytest.raises(CodecConfigError, match=message):
        ScaleOffset(**options)
    with pytest.raises(CodecConfigError, match=message):
        ScaleOffset.from_dict({"name": "scale_offset", "configuration": options})


def test_unknown_key():
    with pytest.raises(CodecConfigError, match="unknown key 'gain'"):
        ScaleOffset.from_dict({"name": "scale_offset", "configuration": {"gain": 1}})


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        ("int32", {"offset": 1.5}, "offset .*1.5 .*int32"),
        ("uint8", {"offset": 256}, "offset .*256 .*uint8"),
        ("uint8", {"scale": -1}, "scale .*-1 .*uint8"),
        ("int16", {"offset": "NaN"}, "offset .*'NaN' .*int16"),
        ("float64", {"offset": "NaN"}, "offset .*'NaN'"),
        ("float64", {"scale": "0x7ff8000000000001"}, "scale .*0x7ff8000000000001"),
        ("float16", {"scale": 1e-9}, "scale .*1e-09 .*float16"),
        ("float32", {"scale": 1e300}, r"scale .*1e\+300 .*float32"),
        ("float32", {"scale": "0x3ff0"}, "4 digits.* 8"),
        ("complex64", {"offset": 1}, "complex64"),
        ("bool", {}, "bool"),
    ],
)
def test_refused_when_the_array_is_created(dtype, options, message):
    with pytest.raises(CodecConfigError, match=message):
        create(dtype, ScaleOffset(**options))


# -- integers, against exact arithmetic


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(INTS), data=st.data())
def test_integers_are_exact_or_an_error(name, data):
    kind = BY_NAME[name]
    any_value = st.integers(kind.low, kind.high) | st.sampled_from([kind.low, kind.high, 0, 1])
    offset, value = data.draw(any_value), data.draw(any_value)
    scale = data.draw(any_value.filter(bool) | st.sampled_from([1, kind.low or 1]))
    codec = ScaleOffset(offset=offset, scale=scale)
    stored = np.array([value], "i8" if kind.low < 0 else "u8").astype(kind.dtype)
    expected = (value - offset) * scale
    if not kind.low <= value - offset <= kind.high and kind.low <= expected <= kind.high:
        with pytest.raises(ChunkEncodeError, match=rf" by way of {value - offset}, .*\b{name} "):
            encode(codec, stored)
    elif kind.low <= expected <= kind.high:
        assert int(encode(codec, stored)[0]) == expected
    else:
        with pytest.raises(ChunkEncodeError, match=rf" {expected}, .*\b{name} "):
            encode(codec, stored)
    quotient = Fraction(value, scale)
    if quotient.denominator != 1:
        with pytest.raises(ChunkDecodeError, match=f"scale {scale}$"):
            decode(codec, stored)
    elif kind.low <= quotient <= kind.high and kind.low <= quotient + offset <= kind.high:
        assert int(decode(codec, stored)[0]) == quotient + offset
    else:
        with pytest.raises(ChunkDecodeError, match=rf"\b{name} "):
            decode(codec, stored)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "int4", "int2"])
def test_an_intermediate_integer_that_does_not_fit_is_an_error(name):
    """The result would fit; the published text asks for an error all the same."""
    kind = BY_NAME[name]
    codec = ScaleOffset(offset=-1, scale=-1)
    highest, lowest = (np.array([n]).astype(kind.dtype) for n in (kind.high, kind.low))
    with pytest.raises(ChunkEncodeError, match=f"becomes {kind.low} by way of {kind.high + 1}"):
        encode(codec, highest)
    with pytest.raises(ChunkDecodeError, match=f"becomes {kind.high} by way of {kind.high + 1}"):
        decode(codec, lowest)
    almost = np.array([kind.high - 1]).astype(kind.dtype)
    assert int(decode(codec, encode(codec, almost))[0]) == kind.high - 1


def test_int64_overflow_is_an_error():
    with pytest.raises(ChunkEncodeError, match=r"9223372036854775807 at \(1,\) .*184467"):
        encode(ScaleOffset(scale=2), np.array([1, 2**63 - 1]))


def test_uint32_product_beyond_int64_is_an_error():
    codec = ScaleOffset(scale=2**32 - 1)
    with pytest.raises(ChunkEncodeError, match=r"uint32 \[0, 4294967295\]"):
        encode(codec, np.array([0, 2**32 - 1], np.uint32))


def test_uint64_is_exact_over_its_whole_range():
    codec = ScaleOffset(offset=2**63, scale=1)
    values = np.array([2**63, 2**64 - 1, 2**63 + 12345], np.uint64)
    encoded = encode(codec, values)
    np.testing.assert_array_equal(encoded, values - np.uint64(2**63))
    np.testing.assert_array_equal(decode(codec, encoded), values)


def test_first_bad_value_is_named_and_the_chunk_is_not_written():
    store = {}
    array = create("uint8", ScaleOffset(offset=10), fill=10, store=store)
    with pytest.raises(ChunkEncodeError, match=r"scale_offset: 5 at \(1,\) .*-5, "):
        array[:] = [10, 5, 20, 4]
    assert set(store) == {"zarr.json"}


# -- floats


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("offset", "scale"), [(0.1, 3.7), (-273.15, 0.01), (5, -2)])
def test_floats_are_computed_in_their_own_type(dtype, offset, scale):
    values = np.random.default_rng(0).normal(scale=50, size=70_000).astype(dtype)
    values[::1000] = np.inf
    values[1::1000] = np.nan
    a, b = np.dtype(dtype).type(offset), np.dtype(dtype).type(scale)
    codec = ScaleOffset(offset=offset, scale=scale)
    np.testing.assert_array_equal(encode(codec, values), (values - a) * b)
    np.testing.assert_array_equal(decode(codec, values), values / b + a)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3", "float8_e5m2", "float6_e2m3fn"])
def test_small_floats_round_every_operation(name):
    kind = BY_NAME[name]
    codes = np.arange(256, dtype=np.uint8)
    stored = codes.astype(kind.bits) << (8 * (kind.itemsize - 1)) if kind.itemsize > 1 else codes
    values = [float(v) for v in stored.view(kind.dtype).astype("f8")]
    if kind.itemsize == 1:
        values = code_values(kind).tolist()
    offset, scale = Fraction(3, 4), Fraction(1, 2)
    codec = ScaleOffset(offset=0.75, scale=0.5)
    for bits, value in zip(stored, values, strict=True):
        if not np.isfinite(value):
            continue
        expected = exact_cast.cast(Fraction(value) - offset, name, "nearest-even", None)
        if expected is not exact_cast.ERROR:
            expected = exact_cast.cast(expected * scale, name, "nearest-even", None)
        array = np.array([bits], kind.stored).view(kind.dtype)
        if expected is exact_cast.ERROR:
            with pytest.raises(ChunkEncodeError, match=rf"\b{name} "):
                encode(codec, array)
        else:
            assert Fraction(float(encode(codec, array)[0])) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_float_overflow_is_an_error(dtype):
    native = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    high = ml_dtypes.finfo(native).max
    values = np.array([np.inf, np.nan, 1, high]).astype(native)
    with pytest.raises(ChunkEncodeError, match=rf"at \(3,\) .*\b{dtype} "):
        encode(ScaleOffset(scale=2), values)
    with pytest.raises(ChunkDecodeError, match=rf"at \(3,\) .*\b{dtype} "):
        decode(ScaleOffset(scale=0.5), values)
    found = encode(ScaleOffset(scale=2), values[:3]).astype("f8")
    np.testing.assert_array_equal(found, [np.inf, np.nan, 2])


def test_identity_hands_the_array_on():
    values = np.arange(5.0)
    assert encode(ScaleOffset(), values) is values


@pytest.mark.parametrize("dtype", [">f8", ">i4", ">u8", ">f2"])
def test_big_endian_stays_big_endian(dtype):
    values = np.arange(10, 40, dtype=dtype)[::3]
    codec = ScaleOffset(offset=3, scale=2)
    encoded = encode(codec, values)
    assert encoded.dtype == values.dtype
    np.testing.assert_array_equal(encoded, (values.astype("f8") - 3) * 2)
    np.testing.assert_array_equal(decode(codec, encoded), values)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_empty_and_scalar_chunks(shape):
    for dtype in ("int16", "float32", "uint64"):
        found = encode(ScaleOffset(offset=1, scale=2), np.full(shape, 3, dtype))
        np.testing.assert_array_equal(found, np.full(shape, 4, dtype))


# -- fill values


def test_fill_value_is_encoded():
    array = create("float64", ScaleOffset(offset=5, scale=2), fill=10.0)
    np.testing.assert_array_equal(array[:], [10.0] * 4)


@pytest.mark.parametrize(
    ("dtype", "options", "fill", "message"),
    [
        ("uint8", {"offset": 10}, 0, r"0 at \(\) .*-10, .*fill value"),
        ("float32", {"scale": 10.0}, 3e38, r"3\.0\d*e\+38 at \(\) .*float32 .*fill value"),
        ("float32", {"scale": 1e-40}, 1.00001, r"1\.00001\d* .*strict=False"),
    ],
)
def test_fill_value_must_survive(dtype, options, fill, message):
    with pytest.raises(CodecConfigError, match=message):
        create(dtype, ScaleOffset(**options), fill=fill)


def test_rounding_of_a_fill_value_is_no_loss():
    array = create("float64", ScaleOffset(offset=273.15, scale=0.1), fill=0.3)
    np.testing.assert_array_equal(array[:], [0.3] * 4)


# -- Zarr v2


@pytest.mark.parametrize("order", ["C", "F"])
def test_version_2_filter(order):
    values = np.arange(30, dtype="<i4").reshape(5, 6)
    store = {}
    array = zarr.create_array(
        store, shape=(5, 6), chunks=(3, 4), dtype="int32", zarr_format=2, order=order,
        filters=[filters.ScaleOffset(dtype="<i4", offset=3, scale=2)],
    )  # fmt: skip
    array[...] = values
    np.testing.assert_array_equal(zarr.open_array(store)[...], values)
    (saved,) = json.loads(store[".zarray"].to_bytes())["filters"]
    assert saved == {"id": "scale_offset", "dtype": "<i4", "offset": 3, "scale": 2}
    codec = numcodecs.get_codec(saved)
    out = np.empty((5, 6), "<i4")
    codec.decode(codec.encode(values), out)
    np.testing.assert_array_equal(out, values)
