"""Tables of references that are malformed, missing, or written again."""

import json

import fsspec
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
import zarr
from fastparquet.cencoding import NumpyIO
from fsspec.implementations.reference import LazyReferenceMapper

import anychunk
from anychunk import limits
from anychunk.errors import FormatError, LimitError, SourceError
from anychunk.io import sink, system
from anychunk.io.object_stores import memory_store
from anychunk.model.index import ByteRanges, GroupIndex, Parts
from anychunk.references import parquet
from tests.support.combined_files import write_geotiff
from tests.support.indexes import MADE, array, plain, uint64


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
    old, old_truth = MADE["scalar"](tmp_path)
    old.save(target)
    real = sink._write_aside

    def failing(folder, name, pieces):
        if name == "anychunk.json":
            raise OSError("the disk is full")
        real(folder, name, pieces)

    monkeypatch.setattr(sink, "_write_aside", failing)
    with pytest.raises(SourceError, match="full"):
        node.save(target, overwrite=True)
    monkeypatch.undo()
    np.testing.assert_array_equal(anychunk.open(target)["s"][...], old_truth)
    node.save(target, overwrite=True)
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


def with_parts(tmp_path, rows, **lists):
    """An index as osml-imagery-io 0.2.2 writes it: columns for chunks of several parts."""
    a = tmp_path / "a.bin"
    a.write_bytes(bytes(range(40)))
    folder = tmp_path / "i.parquet"
    (folder / "0").mkdir(parents=True, exist_ok=True)
    array = {"zarr_format": 2, "shape": [8], "chunks": [4], "dtype": "|u1", "compressor": None, "filters": None,
             "order": "C", "fill_value": 9, "dimension_separator": "."}  # fmt: skip
    metadata = {".zgroup": {"zarr_format": 2}, "0/.zarray": array}
    text = json.dumps({"metadata": metadata, "record_size": rows})
    (folder / ".zmetadata").write_text(text)
    url, empty = lists.pop("name", f"file://{a}"), [None] * (rows - 2)
    kinds = pa.list_(pa.int64())
    table = {
        "path": pa.array(lists.pop("path", [None, url]) + empty, pa.string()),
        "offset": pa.array([0, 8, *[0] * (rows - 2)]), "size": pa.array([0, 4, *[0] * (rows - 2)]),
        "raw": pa.nulls(rows), "range_path": pa.array([url, None, *empty], pa.string()),
        "offsets": pa.array(lists.pop("offsets", [[30, 2, 20], None]) + empty, kinds),
        "sizes": pa.array(lists.pop("sizes", [[2, 1, 1], None]) + empty, kinds),
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / "0/refs.0.parq", compression="zstd")
    return folder


def fsspec_store(folder, engine="fastparquet"):
    options = {"remote_protocol": "file", "remote_options": {"asynchronous": True}}
    fs = fsspec.filesystem(
        "reference", fo=str(folder), asynchronous=True, skip_instance_cache=True, **options
    )
    fs.references = LazyReferenceMapper(str(folder), fs=fsspec.filesystem("file"), engine=engine)
    return zarr.storage.FsspecStore(fs=fs, read_only=True, path="")


def parted_tables(folder):
    """Tables of two chunks each, of which all, one and none are of several ranges."""
    (folder / "a.bin").write_bytes(bytes(range(100)))
    starts = uint64([0, 2, 3, 4, 4, 4, 4])
    chunks = ByteRanges(
        offsets=uint64([30, 40, 50, 60, 70, 0]),
        lengths=uint64([2, 3, 3, 4, 4, 0]),
        urls=("", str(folder / "a.bin")),
        url_ids=np.array([1, 1, 1, 1, 1, 0], np.uint8),
        parts=Parts(starts=starts, offsets=uint64([2, 20, 7, 9]), lengths=uint64([1, 1, 1, 1])),
    )
    truth = [30, 31, 2, 20, 40, 41, 42, 7, 50, 51, 52, 9, *range(60, 64), *range(70, 74), *[9] * 4]
    return GroupIndex(members={"p": array((24,), (4,), chunks)}), np.array(truth, np.uint8)


def test_chunks_of_several_parts_are_written_as_osml_does(tmp_path, monkeypatch):
    """Its columns: `path` is null, and the ranges are in `offsets` and `sizes`."""
    monkeypatch.setattr(parquet, "RECORD_SIZE", 2)
    node, truth = parted_tables(tmp_path)
    node.save(tmp_path / "i.parquet")
    np.testing.assert_array_equal(anychunk.open(tmp_path / "i.parquet")["p"][...], truth)
    assert anychunk.index(tmp_path / "i.parquet")["p"].chunks.parts is not None
    url = str(tmp_path / "a.bin")
    all_several, one, none = (
        pq.read_table(tmp_path / f"i.parquet/p/refs.{record}.parq") for record in range(3)
    )
    assert all_several.select(["path", "offset", "size"]).to_pydict() == {
        "path": [None, None], "offset": [0, 0], "size": [0, 0],
    }  # fmt: skip
    assert one.select(["path", "offset", "size", "range_path", "offsets", "sizes"]).to_pydict() == {
        "path": [None, url], "offset": [0, 60], "size": [0, 4],
        "range_path": [url, None], "offsets": [[50, 9], None], "sizes": [[3, 1], None],
    }  # fmt: skip
    assert {str(one.schema.field(name).type) for name in ("offsets", "sizes")} == {
        "list<element: int64>"
    }
    assert none.column_names == ["path", "offset", "size"]


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.parametrize("engine", ["fastparquet", "pyarrow"])
@pytest.mark.parametrize("length", [4, len(parquet.SEVERAL_RANGES)])
def test_fsspec_never_shows_several_parts_as_absent(tmp_path, engine, length):
    """Where only `path` is null, it does: what the column `raw` holds decodes to no chunk."""
    (tmp_path / "a.bin").write_bytes(bytes(range(100)))
    chunks = ByteRanges(
        offsets=uint64([30, 0]),
        lengths=uint64([length - 1, length]),
        urls=(str(tmp_path / "a.bin"),),
        parts=Parts(starts=uint64([0, 1, 1]), offsets=uint64([2]), lengths=uint64([1])),
    )
    node = GroupIndex(members={"p": array((2 * length,), (length,), chunks)})
    node.save(tmp_path / "i.parquet")
    opened = zarr.open_array(
        fsspec_store(tmp_path / "i.parquet", engine), path="p", mode="r", zarr_format=2
    )
    np.testing.assert_array_equal(opened[length:], range(length))
    with pytest.raises(ValueError, match="reshape"):
        opened[:length]
    truth = [*range(30, 29 + length), 2, *range(length)]
    node.save(tmp_path / "copied.parquet", copy="needed")
    opened = zarr.open_array(
        fsspec_store(tmp_path / "copied.parquet", engine), path="p", mode="r", zarr_format=2
    )
    np.testing.assert_array_equal(opened[...], truth)


def test_base_is_the_folder_of_the_index(tmp_path):
    """Portable indexes of osml-imagery-io: parquet has no place for the value of a template."""
    folder = with_parts(tmp_path, 2, name="{{base}}a.bin")
    found = anychunk.open(folder)["0"]
    np.testing.assert_array_equal(found[...], [30, 31, 2, 20, 8, 9, 10, 11])
    (tmp_path / "moved").mkdir()
    for name in ("a.bin", "i.parquet"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    found = anychunk.open(tmp_path / "moved/i.parquet")["0"]
    np.testing.assert_array_equal(found[...], [30, 31, 2, 20, 8, 9, 10, 11])


@pytest.mark.parametrize("name", ["{{base}}../a.bin", "{{base}}file:///etc/a.bin"])
def test_base_does_not_leave_the_folder(tmp_path, name):
    with pytest.raises(FormatError, match="outside"):
        anychunk.open(with_parts(tmp_path, 2, name=name))


def test_chunks_of_several_parts_are_read(tmp_path):
    """Their path is null; fsspec's readers take them for absent ones."""
    for rows in (2, 100):
        found = anychunk.open(with_parts(tmp_path, rows))["0"][...]
        np.testing.assert_array_equal(found, [30, 31, 2, 20, 8, 9, 10, 11])


@pytest.mark.parametrize("damage", [
    {"offsets": [[1, 2], None]}, {"offsets": [None, None]}, {"sizes": [[2, 1, -1], None]}, {"offsets": [[], None], "sizes": [[], None]},
    {"path": ["x", None]}, {"offsets": [[30, None, 20], None]}, {"sizes": [[0, 1, 1], None]},
])  # fmt: skip
def test_malformed_parts_are_refused(tmp_path, damage):
    with pytest.raises(FormatError, match="range_path|0 bytes"):
        anychunk.open(with_parts(tmp_path, 2, **damage))


def test_endless_lists_of_parts_are_refused(tmp_path):
    many = [1] * 1000
    with limits.override(chunks=900), pytest.raises(LimitError, match="refs.0.parq"):
        anychunk.open(with_parts(tmp_path, 2, offsets=[many, None], sizes=[many, None]))


@pytest.mark.parametrize("has_exchange", [True, False])
def test_replaced_in_one_step(tmp_path, monkeypatch, has_exchange):
    """Tables of the old index are gone; a save that fails leaves it; files of others stay."""
    monkeypatch.setattr(system, "HAS_HANDLES", has_exchange)
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"f{number}.tif"))
        tifffile.imwrite(paths[-1], np.full((32, 32), number, "uint8"), tile=(16, 16))
    target = tmp_path / "index.parquet"

    def names():
        return sorted(anychunk.open(target, allow=["*"]).group_keys())

    anychunk.index(paths, combine="group").save(target)
    target.chmod(0o750)
    anychunk.index(paths[:2], combine="group").save(target, overwrite=True)
    assert names() == ["f0", "f1"]
    assert not (target / "f2").exists()
    assert target.stat().st_mode & 0o777 == 0o750

    def fail(*_, **__):
        raise OSError("no more")

    with monkeypatch.context() as broken:
        broken.setattr(parquet, "_records", fail)
        with pytest.raises(OSError, match="no more"):
            anychunk.index(paths, combine="group").save(target, overwrite=True)
    assert names() == ["f0", "f1"]
    (target / "notes.txt").write_text("mine")
    anychunk.index(paths, combine="group").save(target, overwrite=True)
    assert names() == ["f0", "f1", "f2"]
    assert (target / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".part") == []


def test_fastparquet_reads_an_empty_page_to_the_end():
    """Why no page may be empty; if this fails, fastparquet has mended it."""
    assert len(NumpyIO(np.frombuffer(b"abcdef", np.uint8)).read(0)) == 6


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
def test_fsspec_finds_every_chunk_of_a_group(tmp_path):
    """A table that fsspec cannot read is taken for absent chunks, read as fill values."""
    for number in range(3):
        write_geotiff(
            tmp_path / f"{number}.tif", np.full((64, 64), number, "uint16"), 500_000, 5_000_000
        )
    node = anychunk.index(sorted(tmp_path.glob("*.tif")), combine="group")
    node.save(tmp_path / "group.parquet")
    mapper = LazyReferenceMapper(str(tmp_path / "group.parquet"))
    opened = anychunk.open(tmp_path / "group.parquet")
    for number in range(3):
        for name, keys in {"y": ["0"], "x": ["0"], "image": ["0.0", "0.1", "1.0", "1.1"]}.items():
            for key in keys:
                assert mapper[f"{number}/0/0/{name}/{key}"], (name, key)
        assert (opened[f"{number}/0/0/image"][...] == number).all()
        assert np.diff(opened[f"{number}/0/0/x"][...]).all()


def test_bytes_that_wait_come_back_in_order():
    expected = [("a/b", b"one"), ("ü", b""), ("", b"x" * 100_000), ("a/b", b"again")]
    with parquet.Spool() as spool:
        assert list(spool) == []
        for name, data in expected:
            spool.add(name, data)
        assert list(spool) == expected
        assert list(spool) == expected
