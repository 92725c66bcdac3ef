"""Flat tables of references, and what is copied where a format has none."""

import json

import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.errors import LimitError, UnsupportedError
from anychunk.model.index import INLINE, WHOLE, ByteRanges, GroupIndex
from anychunk.references.chunk_references import (
    Capabilities,
    chunk_references,
    used_urls,
    with_found_pins,
)
from tests.support.effort import at_most
from tests.support.indexes import MADE, PATHS, array, pin_of, plain, uint64

ALL = Capabilities(name="all", has_parts=True, has_whole=True)
FEW = Capabilities(name="few")
NONE = Capabilities(name="none", has_inline=False)


def references(node, capabilities, path, copy="needed"):
    return chunk_references(node, capabilities, copy=copy, storage=None)[path][1]


def test_columns_are_flat_and_in_c_order(tmp_path):
    node, _ = plain(tmp_path)
    found = references(node, ALL, "0/0", copy="never")
    assert found.offsets.tolist() == [4, 0, 20, 0]
    assert found.lengths.tolist() == [4, 0, 4, int(WHOLE)]
    assert found.present.tolist() == [0, 2, 3]
    assert found.url_ids_of(found.present).tolist() == [0, 0, 1]
    assert found.with_parts().tolist() == []
    assert not found.copied


def test_whole_objects_get_their_length_where_one_is_needed(tmp_path):
    node, _ = plain(tmp_path)
    assert references(node, FEW, "0/0", copy="never").lengths.tolist() == [4, 0, 4, 4]


def test_parts_stay_or_are_copied(tmp_path):
    node, truth = MADE["parted"](tmp_path)
    found = references(node, ALL, "p")
    assert (found.with_parts().tolist(), found.copied) == ([0], {})
    found = references(node, FEW, "p")
    assert found.copied == {0: truth[:4].tobytes()}
    assert found.lengths.tolist() == [0, 4]
    assert found.parts is None


@pytest.mark.parametrize("kind", ["parted", "fronted"])
def test_nothing_is_copied_into_a_format_that_holds_no_chunks(tmp_path, kind):
    node, _ = MADE[kind](tmp_path)
    with pytest.raises(UnsupportedError, match=f"array {PATHS[kind]}: .*none") as e:
        references(node, NONE, PATHS[kind])
    assert "copy=" not in str(e.value)
    with pytest.raises(ValueError, match="'always'"):
        references(node, ALL, PATHS[kind], copy="always")


def test_inline_chunks_are_copied_again():
    chunks = ByteRanges(
        offsets=uint64([2, 0]), lengths=uint64([2, 2]), urls=(INLINE,), inline=b"abcd"
    )
    node = GroupIndex(members={"a": array((4,), (2,), chunks)})
    found = references(node, ALL, "a")
    assert found.copied == {0: b"cd", 1: b"ab"}
    assert found.lengths.tolist() == [0, 0]
    assert list(used_urls({"a": (node["a"], found)})) == []


def test_objects_are_listed_and_pinned(tmp_path):
    node, _ = MADE["objects"](tmp_path)
    found = chunk_references(node, ALL, copy="never", storage=None)
    urls = [str(tmp_path / "tiles" / name) for name in ("t0_0", "t1_0")]
    assert list(used_urls(found)) == urls
    assert found["o"][1].lengths.tolist() == [int(WHOLE), int(WHOLE), 0]
    assert references(node, FEW, "o").lengths.tolist() == [2, 2, 0]
    pinned = with_found_pins(node, found)
    assert pinned.pins == {url: pin_of(tmp_path / "tiles" / url[-4:]) for url in urls}


def test_sources_without_a_pin_get_one(tmp_path):
    node, _ = plain(tmp_path)
    bare = GroupIndex(members=node.members)
    found = chunk_references(bare, ALL, copy="never", storage=None)
    assert with_found_pins(bare, found).pins == node.pins
    known = chunk_references(node, ALL, copy="never", storage=None)
    assert with_found_pins(node, known) is node


def test_copies_are_limited(tmp_path):
    node, _ = MADE["fronted"](tmp_path)
    with limits.override(index_bytes=7), pytest.raises(LimitError, match=r"8 bytes.* 7\b"):
        references(node, ALL, "f")
    with limits.override(index_bytes=8):
        assert set(references(node, ALL, "f").copied) == {0, 1}


def test_arrays_without_axes(tmp_path):
    node, _ = MADE["scalar"](tmp_path)
    found = references(node, ALL, "s")
    assert (found.grid, found.offsets.tolist(), found.lengths.tolist()) == ((), [1], [1])
    np.testing.assert_array_equal(found.present, [0])


def announced(tmp_path, dimensions):
    """An N5 dataset of one block that announces many more."""
    anychunk.write(np.ones((8, 8), "uint8"), tmp_path / "a.n5", chunk=(8, 8), compression="raw")
    document = tmp_path / "a.n5/attributes.json"
    fields = json.loads(document.read_text()) | {"dimensions": dimensions}
    document.write_text(json.dumps(fields))
    return tmp_path / "a.n5"


def test_absent_blocks_are_not_looked_up_one_by_one(tmp_path):
    node = anychunk.index(announced(tmp_path, [16_000, 16_000]))
    with at_most(100_000):
        node.save(tmp_path / "a.json")
    assert (anychunk.open_array(tmp_path / "a.json")[:8, :16] == [1] * 8 + [0] * 8).all()


def test_more_absent_blocks_are_refused_than_a_saved_index_may_have(tmp_path):
    node = anychunk.index(announced(tmp_path, [80_000, 80_000]))
    with at_most(100_000), pytest.raises(LimitError, match=r"100000000 chunks with 1 references"):
        node.save(tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()
