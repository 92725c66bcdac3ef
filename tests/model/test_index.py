import pickle

import numpy as np
import pytest

from anychunk import limits
from anychunk.errors import FormatError, LimitError
from anychunk.model.grid import grid_shape
from anychunk.model.index import (
    ArrayIndex,
    ByteRanges,
    Computed,
    GroupIndex,
    Objects,
    Parts,
    find,
    walk,
)


def ranges(grid, **changes):
    zeros = np.zeros(grid, np.uint64)
    return ByteRanges(**{"offsets": zeros, "lengths": zeros, "urls": ("u",), **changes})


def array(**changes):
    made = {
        "shape": (10, 7),
        "chunk_shape": (4, 7),
        "data_type": "uint8",
        "codecs": ({"name": "bytes"},),
        "chunks": ranges((3, 1)),
        "dimension_names": ("y", "x"),
    }
    return ArrayIndex(**{**made, **changes})


def test_metadata_is_zarr_v3():
    from zarr.core.metadata import ArrayV3Metadata

    found = ArrayV3Metadata.from_dict(array(attributes={"a": 1}).metadata())
    assert found.shape == (10, 7)
    assert found.chunk_grid.chunk_shape == (4, 7)
    assert found.dimension_names == ("y", "x")
    assert found.attributes == {"a": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"chunk_shape": (4,)},
        {"chunk_shape": (0, 7)},
        {"dimension_names": ("y",)},
        {"dimension_names": ("y", "x\nimport os")},
        {"chunks": ranges((2, 1))},
        {"chunks": Objects(base="b", pattern="{0}", grid=(9, 9))},
    ],
)
def test_what_does_not_fit_is_refused(changes):
    with pytest.raises(FormatError, match="index: "):
        array(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": np.zeros(3, np.uint64)},
        {"url_ids": np.ones((3, 1), np.uint8)},
        {"fronts": (b"x",), "front_ids": np.ones((3, 1), np.uint8)},
        {
            "parts": Parts(
                starts=np.zeros(3, np.uint64),
                offsets=np.zeros(0, np.uint64),
                lengths=np.zeros(0, np.uint64),
            )
        },
    ],
)
def test_tables_that_do_not_fit_are_refused(changes):
    with pytest.raises(FormatError, match="index: "):
        ranges((3, 1), **changes)


def test_number_of_chunks_is_bounded():
    with (
        limits.override(chunks=2),
        pytest.raises(LimitError, match="3 chunks are over the limit of 2"),
    ):
        array()


def test_compares_by_value():
    assert array() == array()
    assert array() != array(shape=(9, 7))
    assert array() != array(chunks=ranges((3, 1), lengths=np.ones((3, 1), np.uint64)))
    assert GroupIndex(members={"a": array()}) == GroupIndex(members={"a": array()})
    assert array() != GroupIndex(members={})


@pytest.mark.parametrize(
    "chunks",
    [
        ranges((3, 1), fronts=(b"a",)),
        Objects(base="b", pattern="{0}/{1}", grid=(3, 1)),
        Computed(source="0/0", method="m", configuration={}, grid=(3, 1)),
    ],
)
def test_pickles(chunks):
    group = GroupIndex(members={"a": array(chunks=chunks)})
    assert pickle.loads(pickle.dumps(group)) == group


def test_find_and_walk():
    group = GroupIndex(members={"a": GroupIndex(members={"b": array()}), "c": array()})
    assert [path for path, _ in walk(group)] == ["", "a", "a/b", "c"]
    assert [path for path, _ in group.arrays()] == ["a/b", "c"]
    assert group["a/b"] == array()
    for path in ("b", "a/b/c", "a//b", "c/c"):
        assert find(group, path) is None
        with pytest.raises(KeyError):
            group[path]


def test_pattern_is_no_format_string():
    chunks = Objects(base="b", pattern="{1}/{0}/{0.__class__}{x}%d", grid=(2, 2))
    assert chunks.name((5, 6)) == "6/5/{0.__class__}{x}%d"


def test_small():
    count = 1000
    chunks = ranges(
        (count,),
        url_ids=np.zeros(count, np.uint32),
        fronts=(b"",),
        front_ids=np.zeros(count, np.uint32),
    )
    assert chunks.nbytes <= 32 * count


def test_grid_shape():
    assert grid_shape((10, 0, 1), (4, 3, 1)) == (3, 0, 1)


@pytest.mark.parametrize(
    ("data_type", "fill"),
    [
        ("uint8", 0),
        ("float32", 0),
        ("bool", False),
        ("complex64", [0.0, 0.0]),
        ("complex128", [0.0, 0.0]),
        ("string", ""),
        ({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}, 0),
    ],
)
def test_default_fill_value(data_type, fill):
    from zarr.dtype import parse_dtype

    found = array(data_type=data_type).metadata()["fill_value"]
    assert (type(found), found) == (type(fill), fill)
    parse_dtype(data_type, zarr_format=3).from_json_scalar(found, zarr_format=3)


@pytest.mark.parametrize("fill", [0, 0.0, [0.0], "0", {}])
def test_complex_fill_value_is_a_pair(fill):
    with pytest.raises(FormatError, match="complex64"):
        array(data_type="complex64", fill_value=fill)


@pytest.mark.parametrize("dtype", ["bool", "complex64", "float16"])
def test_absent_chunk_reads_as_the_default_fill(dtype):
    import anychunk

    absent = np.zeros((1,), np.uint64)
    index = array(
        shape=(3,),
        chunk_shape=(3,),
        data_type=dtype,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(offsets=absent, lengths=absent, urls=("memory://none",)),
        dimension_names=("x",),
    )
    np.testing.assert_array_equal(anychunk.open(index)[...], np.zeros(3, dtype))
    group = anychunk.open(GroupIndex(members={"a": index}))
    np.testing.assert_array_equal(group["a"][...], np.zeros(3, dtype))
