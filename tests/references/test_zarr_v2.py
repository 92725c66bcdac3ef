import json

import numcodecs
import numpy as np
import pytest
import zarr

import anychunk
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._zarr_metadata import from_v2
from anychunk.model.index import ByteRanges
from anychunk.references.zarr_v2 import to_v2
from tests.support.indexes import array

DELTA = {"id": "delta", "dtype": "<i4", "astype": "<i2"}


SCALED = {"id": "fixedscaleoffset", "scale": 10, "offset": 2, "dtype": "<f8", "astype": "<i2"}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("<i4", DELTA),
        (">i4", {"id": "delta", "dtype": ">i4", "astype": ">i4"}),
        (">i4", {"id": "delta", "dtype": ">i4", "astype": "<i2"}),
        ("<f8", SCALED),
        (">f8", {**SCALED, "dtype": ">f8"}),
        ("<f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}),
        (">f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": ">f8"}),
        ("|b1", {"id": "packbits"}),
        ("<i4", {"id": "zlib", "level": 1}),
        (">i4", None),
    ],
)
def test_filters_of_zarr_v2(tmp_path, dtype, step, order):
    """Every order of axes and bytes, written by zarr, by references to its own files."""
    values = (np.arange(35).reshape(5, 7) * 7 % 50).astype(dtype)
    if dtype == "|b1":
        values = np.arange(35).reshape(5, 7) % 3 == 0
    made = zarr.create_array(
        tmp_path / "z", shape=(5, 7), chunks=(3, 4), dtype=dtype, order=order, zarr_format=2,
        filters=[numcodecs.get_codec(dict(step))] if step else None, compressors=None,
    )  # fmt: skip
    made[...] = values
    refs = {".zgroup": '{"zarr_format":2}'}
    for path in (tmp_path / "z").iterdir():
        refs[f"a/{path.name}"] = (
            path.read_text() if path.name.startswith(".z") else [f"z/{path.name}"]
        )
    (tmp_path / "i.json").write_text(json.dumps(refs))
    truth = zarr.open_array(tmp_path / "z", mode="r")[...]
    np.testing.assert_array_equal(truth, values)
    np.testing.assert_array_equal(anychunk.open(tmp_path / "i.json")["a"][...], truth)


def one_array(codecs, shape=(3, 4, 5), **changes):
    grid = np.zeros((1,) * len(shape), np.uint64)
    chunks = ByteRanges(offsets=grid, lengths=grid, urls=("u",))
    return array(shape, shape, chunks, codecs=codecs, **changes)


def big(endian="big"):
    return {"name": "bytes", "configuration": {"endian": endian}}


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def test_metadata_in_zarr_v2():
    """As the specification of v2 writes them."""
    gzip = {"name": "gzip", "configuration": {"level": 5}}
    made = one_array((transpose(2, 1, 0), big(), gzip), data_type="int16", attributes={"u": "m"})
    zarray, zattrs = to_v2(made, "x")
    assert zarray == {
        "zarr_format": 2,
        "shape": [3, 4, 5],
        "chunks": [3, 4, 5],
        "dtype": ">i2",
        "compressor": {"id": "gzip", "level": 5},
        "fill_value": 9,
        "order": "F",
        "filters": None,
        "dimension_separator": ".",
    }
    assert zattrs == {"u": "m", "_ARRAY_DIMENSIONS": ["y", "x", "z"]}
    fields = from_v2(zarray, zattrs, "x")
    assert fields["codecs"] == made.codecs
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize("name", ["zstd", "numcodecs.zstd"])
@pytest.mark.parametrize("checksum", [False, True])
def test_zstd_in_zarr_v2(name, checksum):
    """A `checksum`, which tensorstore refuses, is stated only where there is one."""
    zstd = {"name": name, "configuration": {"level": 3, "checksum": checksum}}
    zarray, zattrs = to_v2(one_array((big(), zstd), data_type="int16"), "x")
    stated = {"checksum": True} if checksum else {}
    assert zarray["compressor"] == {"id": "zstd", "level": 3, **stated}
    (_, codec) = from_v2(zarray, zattrs, "x")["codecs"]
    assert codec == {**zstd, "name": "zstd"}


@pytest.mark.parametrize(
    ("order", "data_type", "endian", "codec"),
    [
        ((1, 2, 0), "uint16", "little", "tiff-tile"),
        ((1, 2, 0), "uint8", "big", "tiff-tile"),
        ((1, 2, 0), "uint16", "big", "jbp-block"),
        ((1, 0, 2), "float32", "big", "jbp-block"),
        ((1, 0, 2), "uint8", "little", "jbp-block"),
        ((1, 0, 2), "uint16", "little", None),
        ((0, 2, 1), "uint16", "little", None),
        ((1, 2, 0), "bool", "little", None),
    ],
)
def test_interleaved_bands(order, data_type, endian, codec):
    made = one_array((transpose(*order), big(endian)), data_type=data_type, fill_value=0)
    if codec is None:
        with pytest.raises(
            UnsupportedError, match=rf"x: transpose \[{', '.join(map(str, order))}\]"
        ):
            to_v2(made, "x")
    else:
        zarray, _ = to_v2(made, "x")
        assert [f["id"].rpartition("/")[2] for f in zarray["filters"]] == [codec]
        assert zarray["order"] == "C"


@pytest.mark.parametrize(
    ("codecs", "data_type", "named"),
    [
        ((), "uint8", "none"),
        (({"name": "n5_default", "configuration": {}},), "uint8", "n5_default"),
        (({"name": "bytes"}, {"name": "nobody.knows"}), "uint8", "nobody.knows"),
        (({"name": "bytes"},), "r24", "r24"),
    ],
)
def test_what_v2_has_no_form_for(codecs, data_type, named):
    with pytest.raises(UnsupportedError, match=f"x: .*{named}"):
        to_v2(one_array(codecs, data_type=data_type), "x")


ZARRAY = {"shape": [4], "chunks": [2], "dtype": "<u2", "order": "C", "fill_value": 0}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"shape": [-1]}, FormatError),
        ({"shape": 4}, FormatError),
        ({"shape": [True]}, FormatError),
        ({"dtype": "<q9"}, FormatError),
        ({"order": "K"}, FormatError),
        ({"filters": {"id": "delta"}}, FormatError),
        ({"compressor": "zlib"}, FormatError),
        ({"dtype": "|S4"}, UnsupportedError),
        ({"dtype": "<M8[s]"}, UnsupportedError),
        ({"dtype": [["a", "<u2"]]}, UnsupportedError),
        ({"compressor": {"id": "nobody"}}, UnsupportedError),
    ],
)
def test_malformed_v2_metadata_are_refused(change, error):
    with pytest.raises(error, match="x: "):
        from_v2({**ZARRAY, **change}, {}, "x")


@pytest.mark.parametrize("name", ["shape", "chunks", "dtype"])
def test_missing_v2_metadata_are_named(name):
    with pytest.raises(FormatError, match=f"x: .*'{name}'"):
        from_v2({k: v for k, v in ZARRAY.items() if k != name}, {}, "x")


@pytest.mark.parametrize(
    ("dtype", "value", "fill"),
    [
        ("<u2", None, 0),
        ("|b1", None, False),
        ("<c8", None, [0.0, 0.0]),
        ("|b1", 1, True),
        ("<i4", 3.0, 3),
        ("<c8", 2, [2.0, 0.0]),
        ("<f4", "NaN", "NaN"),
        ("<f4", 1.5, 1.5),
    ],
)
def test_fill_values(dtype, value, fill):
    found = from_v2({**ZARRAY, "dtype": dtype, "fill_value": value}, {}, "x")["fill_value"]
    assert found == fill
    assert type(found) is type(fill)
