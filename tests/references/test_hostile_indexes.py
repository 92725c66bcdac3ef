"""Saved indexes are untrusted: few bytes claim little memory, and every error is ours."""

import json
import os
import shutil
import tracemalloc
import zlib

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, LimitError
from anychunk.references import icechunk
from anychunk.references.icechunk.storage import is_tree
from tests.support.effort import at_most

GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def array(shape=(4, 4), chunk=(4, 4), codecs=({"name": "bytes"},), **more):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": list(codecs),
        **more,
    }


def write(path, refs):
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return str(path)


@pytest.fixture
def tiff(tmp_path):
    data = (np.arange(64 * 64) % 251).astype("uint8").reshape(64, 64)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(32, 32), compression="zlib")
    return anychunk.index(tmp_path / "a.tif")


@pytest.fixture
def bounded():
    """An index of a few KiB may not take more than what is free of checks."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * limits.get().free_bytes


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(("arrays", "side"), [(1, 1 << 14), (40, 1 << 13), (40, 1 << 10)])
def test_few_bytes_announce_many_chunks(tmp_path, arrays, side):
    refs = {"zarr.json": GROUP}
    for i in range(arrays):
        refs[f"a{i}/zarr.json"] = array((side, side), (1, 1))
        refs[f"a{i}/c/0/0"] = ["x", 0, 1]
    with pytest.raises(LimitError, match="chunks"):
        anychunk.index(write(tmp_path / "a.json", refs))


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("shape", [(0, 1 << 40), (1 << 40, 0)])
def test_an_axis_without_elements_beside_one_with_many_chunks(tmp_path, shape):
    """Zarr lists the chunks along each axis, one by one."""
    refs = {"zarr.json": json.dumps(GROUP), "a/zarr.json": json.dumps(array(shape=shape))}
    path = write(tmp_path / "a.json", refs)
    found = anychunk.open(path)["a"]
    assert found[...].shape == shape
    assert found[:, :3].shape == (*shape[:1], min(3, shape[1]))
    assert anychunk.verify(path).chunks == 0


@pytest.mark.parametrize(
    ("data_type", "bits", "width"), [("uint8", 16, 8), ("float32", 32, 4), ("int16", 32, 2)]
)
def test_a_codec_of_another_data_type(tmp_path, data_type, bits, width):
    """Decoded bytes are elements of the array's type, whatever the configuration says."""
    size = np.dtype(data_type).itemsize
    count = 4 * width * bits // 8 // size
    values = np.arange(1, 1 + count).astype(data_type)
    (tmp_path / "data").write_bytes(zlib.compress(values.tobytes()))
    name = "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile"
    sizes = {"tile_width": width, "tile_height": 4, "bits_per_sample": bits}
    codecs = (
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": name, "configuration": {"compression": 8, **sizes}},
    )
    document = array((1, 4, count // 4), (1, 4, count // 4), codecs, data_type=data_type)
    length = (tmp_path / "data").stat().st_size
    refs = {
        "zarr.json": json.dumps(GROUP),
        "a/zarr.json": json.dumps(document),
        "a/c/0/0/0": ["data", 0, length],
    }
    found = anychunk.open(write(tmp_path / "a.json", refs))["a"]
    np.testing.assert_array_equal(found[...].reshape(-1), values)


def test_a_sparse_array_opens(tmp_path):
    (tmp_path / "x").write_bytes(b"\7")
    refs = {"zarr.json": array((1 << 10, 1 << 10), (1, 1)), "c/1/2": ["x", 0, 1]}
    found = anychunk.open_array(write(tmp_path / "a.json", refs))
    assert found[1, 2] == 7
    assert not found[2:4].any()


def test_a_chunk_is_refused_before_its_result_is_allocated(tmp_path):
    (tmp_path / "x").write_bytes(bytes(99))
    refs = {"zarr.json": array((60000, 60000), (60000, 60000), ({"name": "bytes"}, ZSTD))}
    refs["c/0/0"] = ["x", 0, 99]
    opened = anychunk.open_array(write(tmp_path / "a.json", refs))
    tracemalloc.start()
    with pytest.raises(LimitError, match=r"chunk \(0, 0\)"):
        opened[...]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("number", [-1, None])
@pytest.mark.parametrize("column", ["offset", "size"])
def test_negative_and_missing_numbers_in_parquet_are_refused(tmp_path, tiff, column, number):
    import pyarrow as pa
    import pyarrow.parquet as pq

    tiff.save(tmp_path / "a.parq")
    (tmp_path / "a.parq/anychunk.json").unlink()  # as written by others
    file = tmp_path / "a.parq/0/0/image/refs.0.parq"
    table = pq.read_table(file)
    place = table.column_names.index(column)
    numbers = pa.array([number] * table.num_rows, pa.int64())
    pq.write_table(table.set_column(place, column, numbers), file)
    with pytest.raises(FormatError, match="negative"):
        anychunk.index(tmp_path / "a.parq")


def test_many_tables_that_do_not_exist_are_not_asked_for(tmp_path, tiff, monkeypatch):
    from anychunk.references import parquet

    tiff.save(tmp_path / "a.parq")
    (tmp_path / "a.parq/anychunk.json").unlink()
    file = tmp_path / "a.parq/.zmetadata"
    known = json.loads(file.read_text())
    known["record_size"] = 1
    known["metadata"]["0/0/image/.zarray"] |= {"shape": [2000, 2000], "chunks": [1, 1]}
    file.write_text(json.dumps(known))
    asked = []
    monkeypatch.setattr(parquet, "_read_table", lambda *a: asked.append(a))
    anychunk.index(tmp_path / "a.parq")
    assert len(asked) == 1


CHANGES = {
    "a lone surrogate in a url": lambda refs: refs.update({"0/0/image/c/0/0": ["\ud800", 0, 1]}),
    "codecs that are a number": lambda refs: change(refs, codecs=3),
    "a codec without a name": lambda refs: change(refs, codecs=[{"configuration": {}}]),
    "blosc of a wrong type": lambda refs: change(
        refs, codecs=[{"name": "bytes"}, {"name": "blosc", "configuration": {"cname": []}}]
    ),
    "transpose of text": lambda refs: change(
        refs, codecs=[{"name": "transpose", "configuration": {"order": "ab"}}, {"name": "bytes"}]
    ),
    "a data type that is an object": lambda refs: change(refs, data_type={"name": 3}),
    "a fill value that is a list": lambda refs: change(refs, fill_value=[1]),
    "attributes that are a list": lambda refs: change(refs, attributes=[1]),
    "names that are numbers": lambda refs: change(refs, dimension_names=[1, 2]),
    "pins that are a list": lambda refs: refs.update(
        {"zarr.json": GROUP | {"attributes": {"anychunk": {"pins": [1]}}}}
    ),
    "about that is text": lambda refs: refs.update(
        {"zarr.json": GROUP | {"attributes": {"anychunk": "x"}}}
    ),
}


def change(refs, **changes):
    document = json.loads(refs["0/0/image/zarr.json"])
    refs["0/0/image/zarr.json"] = json.dumps(document | changes)


def use(path):
    """Open everything in an index, and read it."""
    found = anychunk.open(path)
    for _, member in found.members(max_depth=None):
        if isinstance(member, zarr.Array):
            member[...]


@pytest.mark.parametrize("name", CHANGES)
def test_every_error_is_ours(tmp_path, tiff, name):
    tiff.save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    CHANGES[name](document["refs"])
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(AnychunkError):
        use(tmp_path / "a.json")


def test_flipped_bytes_of_icechunk(tmp_path, tiff):
    """Every file, a byte in several places: an error of ours or the same pixels."""
    tiff.save(tmp_path / "a.icechunk")
    expected = anychunk.open_array(tiff)[...]
    outcomes = {"error": 0, "same": 0}
    files = [f for f in sorted((tmp_path / "a.icechunk").rglob("*")) if f.is_file()]
    for file in files:
        whole = file.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 0x5A
            file.write_bytes(damaged)
            try:
                found = anychunk.open_array(tmp_path / "a.icechunk")[...]
                np.testing.assert_array_equal(found, expected)
                icechunk.saved_sources(str(tmp_path / "a.icechunk"))
                outcomes["same"] += 1
            except AnychunkError:
                outcomes["error"] += 1
        file.write_bytes(whole)
    assert outcomes["error"] >= len(files) // 2


@pytest.mark.parametrize("about", ["x", [1], {"pins": [1]}, {"base": 3}, {"folders": 1}])
def test_sources_of_a_repository_that_is_not_ours(tmp_path, tiff, about):
    ice = pytest.importorskip("icechunk", reason='needs icechunk: pip install "anychunk[icechunk]"')
    place = tmp_path / "a.icechunk"
    repository = ice.Repository.create(ice.local_filesystem_storage(str(place)))
    session = repository.writable_session("main")
    zarr.create_group(session.store, attributes={"anychunk": about})
    session.commit("foreign")
    with pytest.raises(FormatError):
        icechunk.saved_sources(str(place))


@pytest.mark.skipif(os.name == "nt", reason="on Windows a symbolic link takes a right of its own")
@pytest.mark.parametrize("length", [4, None])
def test_a_source_swapped_for_a_link_after_opening(tmp_path, length):
    """References without pins, as other programs write them, are checked again when read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(b"abcd")
    (tmp_path / "in/x").write_bytes(b"1234")
    reference = ["x"] if length is None else ["x", 0, length]
    refs = {"zarr.json": array((2, 2), (2, 2)), "c/0/0": reference}
    opened = anychunk.open_array(write(tmp_path / "in/a.json", refs))
    (tmp_path / "in/x").unlink()
    (tmp_path / "in/x").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="link"):
        opened[...]
    allowed = anychunk.open_array(str(tmp_path / "in/a.json"), allow=["*"])
    np.testing.assert_array_equal(allowed[...], [[97, 98], [99, 100]])


def test_a_panic_of_rust_is_an_error_of_ours(tmp_path, tiff, monkeypatch):
    class PanicException(BaseException):
        __module__ = "pyo3_runtime"

    def panic(*_, **__):
        raise PanicException("index out of bounds")

    tiff.save(tmp_path / "a.icechunk")
    monkeypatch.setattr(icechunk, "icechunk_module", lambda: shutil)  # any foreign module
    monkeypatch.setattr(icechunk, "readonly_store", panic)
    monkeypatch.setattr(shutil, "IcechunkError", OSError, raising=False)
    with pytest.raises(AnychunkError, match="index out of bounds"):
        anychunk.index(tmp_path / "a.icechunk")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("02 01 02 04 04 04 28 01", True),  # [1, 2]
        ("01 00 28 02 28 01", False),  # a vector whose only element is the vector itself
        # vectors of two elements, both of them the vector before: 2**30 values
        ("01 07 04 02 03 04 28 28" + " 02 05 06 28 28" * 29 + " 04 28 01", False),
        ("01 07 04" + " 01 03 28" * 100 + " 02 28 01", False),  # 100 levels
        ("01 07 04" + " 01 03 28" * 10 + " 02 28 01", True),  # 10 levels
        ("", True),
    ],
)
def test_flexbuffers_that_are_no_tree(data, expected):
    """Icechunk follows their offsets until its stack overflows, or for hours."""
    with at_most(100_000):
        assert is_tree(bytes.fromhex(data)) is expected
