"""Verification: good files pass, every kind of damage is found, other readers are compared."""

import json
import os
import re
import tracemalloc
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk import limits
from anychunk.decode import present
from anychunk.errors import UnsupportedError
from anychunk.model.index import ByteRanges, GroupIndex, Parts
from anychunk.verification.checks import difference
from anychunk.zarr.array import Array
from tests.cli.test_cli import run
from tests.support.effort import at_most
from tests.support.jnrrd_tiles import external


@pytest.fixture
def tiff(tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (3, 200, 150), dtype="uint8")
    file = tmp_path / "a.tif"
    tifffile.imwrite(file, data.transpose(1, 2, 0), tile=(64, 64), compression="zlib")
    return file


def test_good_files(tiff, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((30, 40), "float32"))
    for file, reader in ((tiff, "tifffile"), (tiff, "rasterio"), (tmp_path / "a.npy", "numpy")):
        report = anychunk.verify(file, against=reader)
        assert report.findings == []
        assert report.is_good
        assert report.chunks > 0
        assert report.compared == reader


@pytest.mark.parametrize("reader", ["tifffile", "rasterio"])
def test_separate_bands_are_compared(tmp_path, reader):
    data = np.random.default_rng(0).integers(0, 255, (3, 40, 30), dtype="uint8")
    file = tmp_path / "a.tif"
    tifffile.imwrite(file, data, photometric="rgb", planarconfig="separate", compression="zlib")
    report = anychunk.verify(file, against=reader)
    assert report.findings == []
    assert report.compared == reader


@pytest.mark.parametrize("format", ["n5", "zarr"])
@pytest.mark.parametrize("codec", ["pad", "offset", "transpose", "n5_default"])
def test_zarr_documents_that_read_n5_blocks_transposed(tmp_path, codec, format):
    """Example 3 of the proposals of pad and offset, and two documents that read them right."""
    data, folder = np.arange(8 * 12, dtype="uint16").reshape(8, 12), tmp_path / "a.n5"
    options = {"chunk": (4, 4), "compression": "zstd", "also_zarr": True}
    anychunk.write(data if codec != "n5_default" else data[:7], folder, **options)
    file = folder / "zarr.json"
    document = json.loads(file.read_text())
    if codec in ("pad", "offset"):
        transpose, *others, _ = document["codecs"]
        assert transpose["name"] == "transpose"
        found = {"location": "start", "nbytes": 12} if codec == "pad" else {"offset": 12}
        document["codecs"] = [*others, {"name": codec, "configuration": found}]
        file.write_text(json.dumps(document))
        expected = data[4:, :4]
        np.testing.assert_array_equal(zarr.open_array(folder, mode="r")[:4, 4:], expected)
        findings = anychunk.verify(folder, format=format).findings
        assert [(f.severity, f.where) for f in findings] == [("warning", str(file))]
        assert "transposed" in findings[0].what
    else:
        assert codec in str(document["codecs"])
        assert anychunk.verify(folder, format=format).is_good


def test_absent_chunks_are_read_many_at_a_time(tmp_path, monkeypatch):
    """A few bytes announce any number of them."""
    anychunk.write(np.ones((16, 16), "uint8"), tmp_path / "a.n5", chunk=(8, 8))
    attributes = json.loads((tmp_path / "a.n5/attributes.json").read_text())
    attributes["dimensions"] = [80_000, 14]
    (tmp_path / "a.n5/attributes.json").write_text(json.dumps(attributes))
    calls = []
    read = Array.__getitem__
    monkeypatch.setattr(Array, "__getitem__", lambda *args: calls.append(1) or read(*args))
    report = anychunk.verify(tmp_path / "a.n5")
    assert report.is_good
    assert report.chunks == 20_000
    assert len(calls) <= 40


def test_a_broken_chunk_is_named(tiff):
    index = anychunk.index(tiff)
    chunks = index["0/0/image"].chunks
    offset = int(chunks.offsets[0, 1, 2])
    with tiff.open("r+b") as file:
        file.seek(offset + 20)
        file.write(b"\xff" * 200)
    report = anychunk.verify(tiff)
    assert not report.is_good
    assert [f.severity for f in report.findings] == ["error"]
    assert "(0, 1, 2)" in report.findings[0].what
    assert report.chunks == 12


def changed(index, **tables):
    array = index["0/0/image"]
    chunks = replace(array.chunks, **tables)
    return GroupIndex(members={"0": GroupIndex(members={"0": replace(array, chunks=chunks)})})


def test_ranges_beyond_the_object(tiff):
    index = anychunk.index(tiff)
    offsets = index["0/0/image"].chunks.offsets.copy()
    offsets[0, 3, 2] = tiff.stat().st_size - 1
    found = anychunk.verify(changed(index, offsets=offsets)).findings
    assert any(f"{tiff.stat().st_size} bytes" in f.what and "(0, 3, 2)" in f.where for f in found)


def test_ranges_that_overlap(tiff):
    index = anychunk.index(tiff)
    lengths = index["0/0/image"].chunks.lengths.copy()
    lengths[0, 0, 0] += 1
    found = anychunk.verify(changed(index, lengths=lengths)).findings
    assert ("warning", True) in [
        (f.severity, "(0, 0, 0)" in f.what and "(0, 0, 1)" in f.what) for f in found
    ]


def test_parts_are_checked_too(tmp_path):
    file = tmp_path / "a.npy"
    np.save(file, np.arange(8, dtype="uint8"))
    array = anychunk.index(file)["0/0/image"]
    parts = Parts(
        starts=np.array([0, 1], np.uint64),
        offsets=np.array([10**6], np.uint64),
        lengths=np.array([4], np.uint64),
    )
    chunks = replace(array.chunks, lengths=np.array([4], np.uint64), parts=parts)
    found = anychunk.verify(GroupIndex(members={"0": replace(array, chunks=chunks)})).findings
    assert any("bytes 1000000..1000004" in f.what for f in found)


def test_shared_bytes_are_only_noted(tiff):
    index = anychunk.index(tiff)
    chunks = index["0/0/image"].chunks
    offsets, lengths = chunks.offsets.copy(), chunks.lengths.copy()
    offsets[0, 1, 1], lengths[0, 1, 1] = offsets[0, 0, 0], lengths[0, 0, 0]
    report = anychunk.verify(changed(index, offsets=offsets, lengths=lengths))
    assert report.is_good
    assert [f.severity for f in report.findings] == ["info"]


def test_changed_source(tiff):
    index = anychunk.index(tiff)
    os.utime(tiff, ns=(1, 1))
    report = anychunk.verify(index)
    assert ("error", str(tiff)) in [(f.severity, f.where) for f in report.findings]
    assert not report.is_good


def test_missing_source(tiff):
    index = anychunk.index(tiff)
    tiff.unlink()
    found = anychunk.verify(index).findings
    assert ("error", str(tiff)) in [(f.severity, f.where) for f in found]


def test_pixels_that_differ_from_another_reader(tmp_path):
    file, other = tmp_path / "a.npy", tmp_path / "b.npy"
    data = np.arange(600, dtype="int16").reshape(20, 30)
    np.save(file, data)
    np.save(other, data + np.int16(3) * (data == 95))
    index = anychunk.index(file)
    array = replace(
        index["0/0/image"], chunks=replace(index["0/0/image"].chunks, urls=(str(other),))
    )
    wrong = GroupIndex(members={"0": GroupIndex(members={"0": array})}, attributes=index.attributes)
    report = anychunk.verify(wrong, against="numpy")
    assert report.findings[0].severity == "error"
    assert re.search(r"^1 .*\bnumpy\b.*\(3, 5\).* 3$", report.findings[0].what)
    assert anychunk.verify(wrong, against="numpy", tolerance=3).is_good


def test_no_such_reader(tiff):
    with pytest.raises(UnsupportedError, match="'photoshop'.* numpy rasterio tensorstore tifffile"):
        anychunk.verify(tiff, against="photoshop")


@pytest.mark.parametrize("dtype", ["float32", "complex64", "uint64", "bool"])
def test_difference(dtype):
    a = np.array([0, 1, 1], dtype)
    b = np.array([0, 1, 0], dtype)
    wrong, gap = difference(a, b, 0)
    assert wrong.tolist() == [False, False, True]
    assert gap == 1
    if a.dtype.kind in "fc":
        a[0] = b[0] = np.nan
        assert difference(a, b, 0)[0].tolist() == [False, False, True]


def test_command(capsys, tiff):
    code, out, err = run(capsys, "verify", str(tiff), "--against", "tifffile")
    assert (code, err) == (0, "")
    assert f"{tiff}: good; 1 array, 12 chunks (0 absent)" in out
    tiff.write_bytes(tiff.read_bytes()[:-2000])
    code, out, _ = run(capsys, "verify", str(tiff), "--json")
    assert code == 1
    found = json.loads(out)
    assert not found["is_good"]
    assert {f["severity"] for f in found["findings"]} == {"error"}


def test_a_file_that_does_not_open_does_not_stop_the_others(capsys, tiff, tmp_path):
    (tmp_path / "text").write_text("hello")
    files = [str(tmp_path / "text"), str(tmp_path / "none.tif"), str(tiff)]
    code, out, err = run(capsys, "verify", *files)
    assert (code, err) == (1, "")
    assert all(f"error {file}: " in out for file in files[:2])
    assert f"{tiff}: good; 1 array, 12 chunks" in out
    code, out, _ = run(capsys, "verify", *files, "--json")
    assert code == 1
    assert [report["is_good"] for report in json.loads(out)] == [False, False, True]
    assert run(capsys, "verify", files[0])[0] == 2


def test_absent_chunks_are_counted(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, "uint8"))
    array = anychunk.index(tmp_path / "a.npy")["0/0/image"]
    chunks = ByteRanges(
        offsets=np.zeros(1, np.uint64), lengths=np.zeros(1, np.uint64), urls=array.chunks.urls
    )
    report = anychunk.verify(GroupIndex(members={"0": replace(array, chunks=chunks)}))
    assert (report.is_good, report.absent, report.chunks) == (True, 1, 1)


def test_millions_of_missing_tiles_are_not_all_tried(tmp_path):
    """A header of a few KiB announces them; the first thousands are enough."""
    path = external(tmp_path / "a.jnrrd", [3001, 3001], [1, 1], pattern="{x}_{y}")
    tracemalloc.start()
    report = anychunk.verify(path, workers=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    assert report.chunks < 20_000
    assert not report.is_good
    assert "stopped" in report.findings[-1].what


def test_an_array_without_axes(tmp_path):
    array = {
        "zarr_format": 2, "shape": [], "chunks": [], "dtype": "|u1", "compressor": None,
        "filters": None, "fill_value": 0, "order": "C",
    }  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(array), "a/0": ["a", 0, 1]}
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "refs": refs}))
    report = anychunk.verify(tmp_path / "a.json")
    assert (report.findings, report.chunks) == ([], 1)


def announce_more_blocks(path, dimensions):
    document = path / "attributes.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | {"dimensions": dimensions}))


def test_absent_blocks_are_not_tried(tmp_path):
    """A few bytes announce millions: the folder is listed, and its last block still checked."""
    anychunk.write(np.ones((16, 16), "uint8"), tmp_path / "a.n5", chunk=(8, 8), compression="gzip")
    announce_more_blocks(tmp_path / "a.n5", [80_000, 80_000])
    (tmp_path / "a.n5/9999").mkdir()
    (tmp_path / "a.n5/9999/9999").write_bytes(b"no block")
    (tmp_path / "a.n5/10000").mkdir()
    (tmp_path / "a.n5/10000/0").write_bytes(b"beyond the dataset")
    with at_most(1_000_000):
        report = anychunk.verify(tmp_path / "a.n5")
    assert report.chunks == 10_000**2
    assert [f.severity for f in report.findings] == ["error"]
    assert "(9999, 9999)" in report.findings[0].what


def test_absent_chunks_of_a_table_are_not_tried(tmp_path):
    array = {
        "zarr_format": 2, "shape": [3_000_000], "chunks": [1], "dtype": "|u1", "compressor": None,
        "filters": None, "fill_value": 0, "order": "C",
    }  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(array)}
    refs |= {"a/2999999": ["a.bin", 0, 3]}  # three bytes for a chunk of one
    (tmp_path / "a.bin").write_bytes(bytes(3))
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with at_most(1_000_000):
        report = anychunk.verify(tmp_path / "a.json")
    assert (report.chunks, report.absent) == (3_000_000, 2_999_999)
    assert [f.severity for f in report.findings] == ["error"]


@pytest.mark.parametrize("part", [{}, {"window": ((0, 1), (5, 9))}])
def test_an_absent_chunk_of_any_size_is_not_allocated(tmp_path, part):
    """A strip of 2 GB without data, in a file of some hundred bytes."""
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((1, 16), np.uint8), metadata=None)
    data = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        tags = file.pages[0].tags
        for code, number in ((256, 2_000_000_000), (273, 0), (279, 0)):
            tag = tags[code]
            size = {3: 2, 4: 4, 16: 8}[tag.dtype]
            if size == 2:
                data[tag.offset + 2 : tag.offset + 4] = (4).to_bytes(2, "little")
            data[tag.valueoffset : tag.valueoffset + 4] = number.to_bytes(4, "little")
    (tmp_path / "a.tif").write_bytes(data)
    tracemalloc.start()
    report = anychunk.verify(tmp_path / "a.tif", workers=1, **part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.is_good, report.chunks, report.absent) == (True, 1, 1)
    assert peak < 64 << 20


def test_what_cannot_be_listed_is_tried_up_to_a_limit_that_names_itself(tmp_path):
    """A link in the place of a folder may lead to any number of blocks."""
    anychunk.write(np.ones((16, 16), "uint8"), tmp_path / "a.n5", chunk=(8, 8))
    announce_more_blocks(tmp_path / "a.n5", [80_000, 80])
    (tmp_path / "a.n5/7").symlink_to("0")
    with limits.override(probed_chunks=5000):
        report = anychunk.verify(tmp_path / "a.n5")
    assert 5000 <= report.chunks < 20_000
    assert [f.severity for f in report.findings] == ["warning"]
    assert "raise probed_chunks: --limit probed_chunks=" in report.findings[0].what
    assert anychunk.verify(tmp_path / "a.n5").is_good


@pytest.mark.parametrize("pattern", ["{x:02}{y:02}", "{x:02}0{y:02}", "{x:02}_{y:02}"])
def test_tiles_whose_digits_touch_are_checked(tmp_path, pattern):
    """Digits that touch do not tell where one index ends: all tiles are tried."""
    sizes = [24, 24]
    path = external(tmp_path / "a.jnrrd", sizes, [1, 1], pattern=pattern, sparse=True)
    name = pattern.replace("{x:02}", "01").replace("{y:02}", "02")
    (tmp_path / name).write_bytes(b"two")
    report = anychunk.verify(path)
    assert [f.severity for f in report.findings] == ["error"]
    assert name in report.findings[0].what
    (tmp_path / name).write_bytes(b"\xff")
    assert anychunk.verify(path).is_good
    anychunk.index(path).save(tmp_path / "a.json")
    expected = np.zeros(sizes, "uint8")
    expected[2, 1] = 255
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.json")[...], expected)


def test_a_folder_that_may_not_be_listed_is_not_absent(tmp_path, monkeypatch):
    anychunk.write(np.ones((16, 16), "uint8"), tmp_path / "a.n5", chunk=(8, 8), compression="gzip")
    (tmp_path / "a.n5/1/1").write_bytes(b"no block")
    monkeypatch.setattr(present.os, "scandir", Mock(side_effect=PermissionError(13, "denied")))
    assert not anychunk.verify(tmp_path / "a.n5").is_good


def test_coordinates_of_a_saved_index_are_decoded(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.ones((8, 9), "uint8"), resolution=(3, 3))
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "a.json")
    saved = json.loads((tmp_path / "a.json").read_text())
    saved["refs"]["0/0/x/c/0"] = "base64:AAAA"
    (tmp_path / "a.json").write_text(json.dumps(saved))
    report = anychunk.verify(tmp_path / "a.json")
    assert [(f.severity, "0/0/x" in f.where) for f in report.findings] == [("error", True)]
    assert (report.arrays, report.chunks) == (1, 1)
