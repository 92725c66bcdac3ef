"""The data types of `ml_dtypes` in zarr: names, fill values, bytes, and another reader."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec
from zarr.dtype import data_type_registry, parse_dtype

import anychunk
from anychunk.codecs import CastValue
from anychunk.codecs.cast.number_types import BY_NAME, has_unused_bits, used_bits
from anychunk.model.index import ByteRanges, GroupIndex
from anychunk.zarr.array import open_group
from anychunk.zarr.small_types import SmallType
from tests.support.indexes import array as array_index
from tests.support.indexes import pin_of, uint64

pytestmark = pytest.mark.usefixtures("enabled")

NAMES = [name for name, kind in BY_NAME.items() if kind.is_foreign]
# zarr-extensions, data-types/NAME/README.md, "Fill value representation"
NAN = {
    "bfloat16": "0x7fc0",
    "float8_e4m3": "0x7c",
    "float8_e4m3b11fnuz": "0x80",
    "float8_e4m3fnuz": "0x80",
    "float8_e5m2": "0x7e",
    "float8_e5m2fnuz": "0x80",
    "float8_e8m0fnu": "0xff",
}


def all_values(name):
    kind = BY_NAME[name]
    codes = np.arange(256, dtype=np.uint8)
    if kind.stored.itemsize == 2:
        return (codes.astype(np.uint16) << 8 | codes).view(kind.dtype)
    return (codes & used_bits(kind)).view(kind.dtype)


def test_every_published_type_is_here():
    assert len(NAMES) == 15
    for name in NAMES:
        zdtype = data_type_registry.match_json(name, zarr_format=3)
        assert isinstance(zdtype, SmallType)
        assert zdtype.to_json(zarr_format=3) == name
        assert parse_dtype(np.dtype(getattr(ml_dtypes, name)), zarr_format=3) == zdtype


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_stored_and_read_back(name):
    values = all_values(name)
    store = {}
    array = zarr.create_array(store, shape=(256,), chunks=(100,), dtype=name, compressors=None)
    array[:] = values
    found = zarr.open_array(store, mode="r")[:]
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()
    chunk = store["c/0"].to_bytes()
    assert len(chunk) == 100 * BY_NAME[name].stored.itemsize  # one byte a value, never packed
    if has_unused_bits(BY_NAME[name]):
        assert max(chunk) <= used_bits(BY_NAME[name])


@pytest.mark.parametrize("endian", ["little", "big"])
def test_bfloat16_in_either_byte_order(endian):
    store = {}
    array = zarr.create_array(
        store, shape=(3,), dtype="bfloat16", compressors=None, serializer=BytesCodec(endian=endian)
    )
    array[:] = np.array([1, -2, 3]).astype(ml_dtypes.bfloat16)
    assert store["c/0"].to_bytes()[:2] == (b"\x80\x3f" if endian == "little" else b"\x3f\x80")
    np.testing.assert_array_equal(zarr.open_array(store)[:].astype("f4"), [1, -2, 3])


@pytest.mark.parametrize("name", NAN)
def test_nan_is_the_published_one(name):
    kind = BY_NAME[name]
    zdtype = data_type_registry.match_json(name, zarr_format=3)
    for text in ("NaN", NAN[name]):
        scalar = zdtype.from_json_scalar(text, zarr_format=3)
        assert np.asarray(scalar).view(kind.bits) == int(NAN[name], 16)
    assert zdtype.to_json_scalar(scalar, zarr_format=3) == "NaN"
    store = {}
    zarr.create_array(store, shape=(3,), dtype=name, fill_value=float("nan"))
    assert json.loads(store["zarr.json"].to_bytes())["fill_value"] == "NaN"
    assert np.isnan(zarr.open_array(store)[:].astype("f4")).all()


def test_other_nans_are_written_as_bits():
    zdtype = data_type_registry.match_json("bfloat16", zarr_format=3)
    scalar = zdtype.from_json_scalar("0xffc1", zarr_format=3)
    assert zdtype.to_json_scalar(scalar, zarr_format=3) == "0xffc1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("float8_e4m3", 0.1),
        ("float8_e5m2", "-Infinity"),
        ("bfloat16", 3.14159),
        ("int4", -8),
        ("uint2", 3),
        ("float4_e2m1fn", -6),
        ("float8_e8m0fnu", 0.25),
    ],
)
def test_fill_values(name, value):
    store = {}
    zarr.create_array(store, shape=(2,), dtype=name, fill_value=value)
    array = zarr.open_array(store)
    expected = np.array([float(value)], "f8").astype("f4").astype(getattr(ml_dtypes, name))
    assert array[:1].tobytes() == expected.tobytes()
    assert json.loads(store["zarr.json"].to_bytes())["fill_value"] == (
        value if isinstance(value, str) else float(expected[0])
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int4", 8),
        ("uint2", -1),
        ("int4", 1.5),
        ("float4_e2m1fn", "NaN"),
        ("float6_e2m3fn", "Infinity"),
        ("float8_e4m3fnuz", "Infinity"),
        ("float8_e4m3", 1e9),
        ("float8_e8m0fnu", 0),
        ("bfloat16", "0x7f"),
        ("bfloat16", [1]),
        ("bfloat16", True),
    ],
)
def test_values_that_a_type_does_not_have(name, value):
    zdtype = data_type_registry.match_json(name, zarr_format=3)
    with pytest.raises(ValueError, match=re.escape(repr(value))):
        zdtype.from_json_scalar(value, zarr_format=3)
    with pytest.raises(TypeError, match=re.escape(repr(value))):
        zdtype.cast_scalar(value)


def test_scalars_are_rounded_once():
    halfway = 1 + 2.0**-8
    zdtype = data_type_registry.match_json("bfloat16", zarr_format=3)
    assert float(zdtype.cast_scalar(halfway + 2.0**-40)) == 1 + 2.0**-7
    assert float(zdtype.cast_scalar(halfway)) == 1


def test_zarr_version_2_has_no_name_for_them():
    with pytest.raises(ValueError, match="Zarr v2 .*bfloat16"):
        zarr.create_array({}, shape=(2,), dtype=ml_dtypes.bfloat16, zarr_format=2)


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e3m2fn", "int2", "uint4"])
def test_casts_ignore_the_unused_bits_of_stored_bytes(name):
    kind = BY_NAME[name]
    clean = np.arange(4, dtype=np.uint8)
    dirty = clean | ~used_bits(kind)
    store = {}
    codec = CastValue(data_type=name)
    array = zarr.create_array(
        store, shape=(4,), dtype="float32", filters=[codec], compressors=None, fill_value=1
    )
    array[:] = clean.view(kind.dtype).astype("f4")
    expected = array[:].copy()
    store["c/0"] = type(store["c/0"]).from_bytes(dirty.tobytes())
    np.testing.assert_array_equal(array[:], expected)


UNUSED = [name for name in NAMES if has_unused_bits(BY_NAME[name])]


def dirty_and_clean(name):
    """Every byte, and the values of its used bits by the published layout."""
    stored = np.arange(256, dtype=np.uint8)
    if name.startswith("float"):  # sign, exponent, mantissa; a bias of 1 or 3 (README.md)
        exponent, mantissa = int(name[8]), int(name[10])
        width, bias = 1 + exponent + mantissa, (1 << (exponent - 1)) - 1
        bits = stored.astype(int) % (1 << width)
        sign = np.where(bits >> (width - 1), -1.0, 1.0)
        e, m = (bits >> mantissa) % (1 << exponent), bits % (1 << mantissa)
        scale = 2.0 ** (np.maximum(e, 1) - bias - mantissa)
        return stored, sign * (m + np.where(e, 1 << mantissa, 0)) * scale
    width = int(name[-1])
    bits = stored.astype(int) % (1 << width)
    is_negative = ~np.full(256, name.startswith("u")) & (bits >= 1 << (width - 1))
    return stored, (bits - is_negative * (1 << width)).astype(float)


@pytest.mark.parametrize("name", UNUSED)
@pytest.mark.parametrize("shards", [None, (128,)])
def test_a_zarr_store_is_read_without_the_unused_bits_of_stored_bytes(name, shards, tmp_path):
    stored, expected = dirty_and_clean(name)
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(256,),
        chunks=(64,),
        shards=shards,
        dtype=name,
        compressors=None,
        fill_value=1,
    )
    array[:] = stored.view(BY_NAME[name].dtype)  # written as they are
    found = anychunk.open_array(tmp_path / "a.zarr")[:]
    assert (found.astype(float) == expected).all()
    assert (np.signbit(found.astype(float)) == np.signbit(expected)).all()
    assert found.view(np.uint8).max() <= used_bits(BY_NAME[name])


@pytest.mark.parametrize("name", UNUSED)
def test_an_index_ignores_the_unused_bits_of_stored_bytes(name, tmp_path):
    stored, expected = dirty_and_clean(name)
    path = tmp_path / "values.bin"
    path.write_bytes(stored.tobytes())
    chunks = ByteRanges(offsets=uint64([0, 128]), lengths=uint64([128, 128]), urls=(str(path),))
    values = array_index((256,), (128,), chunks, data_type=name, fill_value=1)
    made = GroupIndex(members={"v": values}, pins={str(path): pin_of(path)})
    found = open_group(made)["v"][:]
    assert (found.astype(float) == expected).all()
    assert path.read_bytes() == stored.tobytes()


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_a_fill_value_in_bits_ignores_the_unused_ones(name):
    zdtype = data_type_registry.match_json(name, zarr_format=3)
    dirty = zdtype.from_json_scalar("0xc1", zarr_format=3)
    assert dirty.tobytes() == b"\x01"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fnuz", "int4", "int2"])
def test_tensorstore_reads_and_writes_the_same(name, tmp_path):
    import tensorstore

    values = all_values(name)[:64]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    array = zarr.create_array(ours, shape=(64,), chunks=(32,), dtype=name, compressors=None)
    array[:] = values
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(ours)}}
    try:
        opened = tensorstore.open(spec).result()
    except ValueError as e:
        pytest.skip(f"tensorstore does not open {name}: {str(e)[:80]}")
    found = opened.read().result()
    assert found.tobytes() == values.tobytes()
    spec["kvstore"]["path"] = str(theirs)
    spec["metadata"] = json.loads((ours / "zarr.json").read_text())
    written = tensorstore.open(spec, create=True).result()
    written.write(values).result()
    assert zarr.open_array(theirs, mode="r")[:].tobytes() == values.tobytes()
