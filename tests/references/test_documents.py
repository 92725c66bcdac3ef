"""Rows and documents become an index, or an error that says which is wrong."""

import numpy as np
import pytest

from anychunk import limits
from anychunk.errors import FormatError, LimitError
from anychunk.model.index import INLINE, WHOLE
from anychunk.model.pin import Pin
from anychunk.references.documents import (
    DEEPEST,
    Rows,
    build_array,
    build_tree,
    no_rows,
    url_resolver,
    with_pins,
)

FIELDS = {
    "shape": (4, 4),
    "chunk_shape": (2, 2),
    "data_type": "uint8",
    "codecs": ({"name": "bytes"},),
    "fill_value": 0,
    "dimension_names": ("y", "x"),
    "attributes": {},
}


def rows(numbers, offsets, lengths, ids=None, **more):
    return Rows(
        numbers=np.array(numbers, np.int64),
        offsets=np.array(offsets, np.uint64),
        lengths=np.array(lengths, np.uint64),
        url_ids=np.array(ids or [0] * len(numbers), np.int64),
        **more,
    )


def test_rows_are_spread_over_the_grid():
    found = build_array(
        FIELDS,
        rows([3, 0], [7, 5], [2, 1], [2, 0], parts={3: [(9, 1)]}, inline={1: b"ab", 2: b"c"}),
        ["u", "unused", "w"],
        "x",
    ).chunks
    assert found.offsets.tolist() == [[5, 0], [2, 7]]
    assert found.lengths.tolist() == [[1, 2], [1, 2]]
    assert found.urls == ("u", "w", INLINE)
    assert found.url_ids.tolist() == [[0, 2], [2, 1]]
    assert found.inline == b"abc"
    assert found.parts.starts.tolist() == [0, 0, 0, 0, 1]
    assert found.parts.offsets.tolist() == [9]
    empty = build_array(FIELDS, no_rows(), [], "x").chunks
    assert not empty.lengths.any()


@pytest.mark.parametrize(
    "wrong",
    [
        rows([0], [0], [0]),
        rows([0], [2**63], [1]),
        rows([0], [1], [2**63]),
        rows([0], [1], [int(WHOLE) - 1]),
        rows([0, 1, 2, 3, 0], [0] * 5, [1] * 5),
        rows([], [], [], inline={0: b""}),
        rows([], [], [], inline=dict.fromkeys(range(5), b"x")),
    ],
)
def test_rows_that_no_object_has_are_refused(wrong):
    with pytest.raises(FormatError, match="x: "):
        build_array(FIELDS, wrong, ["u"], "x")


def test_grids_are_checked():
    for chunk_shape in ((2,), (2, 0)):
        with pytest.raises(FormatError, match=r"x: .*\(4, 4\)"):
            build_array({**FIELDS, "chunk_shape": chunk_shape}, no_rows(), [], "x")
    with limits.override(chunks=3), pytest.raises(LimitError, match="x: 4 .* 3"):
        build_array(FIELDS, no_rows(), [], "x")


def test_trees():
    leaf = build_array(FIELDS, no_rows(), [], "x")
    node = build_tree(
        {"b/10": leaf, "b/9": leaf, "b/x": {"k": 1}, "": {"t": 2}, "a/c/d": leaf}, "x"
    )
    assert list(node.members) == ["a", "b"]
    assert list(node["b"].members) == ["9", "10", "x"]  # numbers by value
    assert node.attributes == {"t": 2}
    assert node["b/x"].attributes == {"k": 1}
    assert node["a/c/d"] == leaf
    assert build_tree({"": leaf}, "x") is leaf


@pytest.mark.parametrize("path", ["a//b", "a/../b", "..", "/a", "/".join("a" * (DEEPEST + 1))])
def test_paths_that_are_none_are_refused(path):
    with pytest.raises(FormatError, match="x: "):
        build_tree({path: {}}, "x")


def test_nothing_is_inside_an_array():
    leaf = build_array(FIELDS, no_rows(), [], "x")
    with pytest.raises(FormatError, match="x: 'a/b/c' .*'a/b'"):
        build_tree({"a/b": leaf, "a/b/c": {}}, "x")


def test_pins_move_with_an_index(tmp_path):
    about = {"base": "/old", "pins": {"/old/f": {"size": 3, "mtime_ns": 4}}, "index": 1, "files": 7}
    nodes = {"": {"anychunk": about, "title": "t"}}
    for place, url, pin in (
        ("/old/i", "/old/f", Pin(size=3, mtime_ns=4)),
        (f"{tmp_path}/i", f"{tmp_path}/f", Pin(size=3)),
    ):
        node = with_pins(build_tree(nodes, place), url_resolver(nodes, place, ()))
        assert node.pins == {url: pin}
        assert node.attributes == {"title": "t", "anychunk": {"files": 7}}
    for base in (3, ["/old"]):
        with pytest.raises(FormatError, match="i: base"):
            url_resolver({"": {"anychunk": {"base": base}}}, "/old/i", ())
