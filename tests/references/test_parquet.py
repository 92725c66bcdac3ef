"""Tables of references that are malformed, missing, or written again."""

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anychunk
from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import memory_store, sink
from anychunk.model.index import ByteRanges, GroupIndex
from tests.indexes import MADE, array, plain, uint64


def test_garbled_parquet_is_refused(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    (tmp_path / "i.parquet/0/0/refs.0.parq").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(FormatError, match=r"refs\.0\.parq"):
        anychunk.open(tmp_path / "i.parquet")


def test_a_lost_table_of_parquet_is_no_absent_chunks(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    (tmp_path / "i.parquet/0/0/refs.0.parq").unlink()
    with pytest.raises(FormatError, match="refs.0.parq is missing"):
        anychunk.open(tmp_path / "i.parquet")
    # written by other tools, as fsspec reads it, a missing table means absent chunks
    (tmp_path / "i.parquet/anychunk.json").unlink()
    assert (anychunk.open(tmp_path / "i.parquet", allow=["*"])["0/0"][...] == 9).all()


def test_parquet_saved_again_is_never_half_of_each(tmp_path, monkeypatch):
    node, truth = plain(tmp_path)
    target = tmp_path / "i.parquet"
    MADE["scalar"](tmp_path)[0].save(target)
    real = sink.put

    def failing(url, *pieces, **options):
        if url.endswith("anychunk.json"):
            raise OSError("the disk is full")
        real(url, *pieces, **options)

    monkeypatch.setattr(sink, "put", failing)
    with pytest.raises(OSError, match="full"):
        node.save(target)
    monkeypatch.undo()
    with pytest.raises(UnsupportedError):
        anychunk.open(target)
    node.save(target)
    np.testing.assert_array_equal(anychunk.open(target)["0/0"][...], truth)


@pytest.mark.parametrize("damage", ["beyond", "no offset", "text", "numbers"])
def test_tables_that_do_not_fit_are_refused(tmp_path, damage):
    """Malformed columns are an error of ours; rows beyond the grid are ignored."""
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    path = tmp_path / "i.parquet" / "0" / "0" / "refs.0.parq"
    columns = pq.read_table(path).to_pydict()
    if damage == "beyond":
        columns = {name: [*values, values[0]] for name, values in columns.items()}
    elif damage == "no offset":
        del columns["offset"]
    elif damage == "text":
        columns["size"] = ["a"] * 4
    else:
        columns["raw"] = [1, 2, 3, 4]
    pq.write_table(pa.table(columns), path)
    if damage == "beyond":
        np.testing.assert_array_equal(anychunk.open(tmp_path / "i.parquet")["0/0"][...], truth)
    else:
        with pytest.raises(FormatError, match=r"refs\.0\.parq"):
            anychunk.index(tmp_path / "i.parquet")


@pytest.mark.parametrize("place", ["memory://names", "file"])
def test_names_that_mean_something_in_urls(tmp_path, place):
    """Each array has separate tables, and each dataset of N5 is found."""
    names = ["a#b", "a#c", "a%20b", "a?b", "a b", "é"]
    members, base = {}, f"file://{tmp_path}" if place == "file" else place
    for i, name in enumerate(names):
        (tmp_path / str(i)).write_bytes(bytes([i] * 4))
        chunks = ByteRanges(
            offsets=uint64([0]), lengths=uint64([4]), urls=(str(tmp_path / str(i)),)
        )
        members[name] = array((4,), (4,), chunks)
        anychunk.write(np.full((4,), i, "u1"), tmp_path / "t.n5" / name)
    for path in (tmp_path / "t.n5").rglob("*"):
        if path.is_file():
            obstore.put(memory_store("names"), f"t.n5/{path.relative_to(tmp_path / 't.n5')}", path)
    GroupIndex(members=members).save(f"{base}/i.parquet")
    for target in ("i.parquet", "t.n5"):
        opened = anychunk.open(f"{base}/{target}", **({"allow": ["*"]} if target[0] == "i" else {}))
        known = opened.array_keys() if target[0] == "i" else opened.group_keys()
        inside = "" if target[0] == "i" else "/0/image"
        assert {name: opened[name + inside][...].tolist() for name in known} == {
            name: [i] * 4 for i, name in enumerate(names)
        }
