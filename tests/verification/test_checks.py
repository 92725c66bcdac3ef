"""Verification: good files pass, every kind of damage is found, other readers are compared."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import UnsupportedError
from anychunk.model.index import ByteRanges, GroupIndex, Parts
from anychunk.verification.checks import difference
from tests.test_cli import run


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


def test_a_broken_chunk_is_named(tiff):
    index = anychunk.index(tiff)
    chunks = index["0/0"].chunks
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
    array = index["0/0"]
    chunks = replace(array.chunks, **tables)
    return GroupIndex(members={"0": GroupIndex(members={"0": replace(array, chunks=chunks)})})


def test_ranges_beyond_the_object(tiff):
    index = anychunk.index(tiff)
    offsets = index["0/0"].chunks.offsets.copy()
    offsets[0, 3, 2] = tiff.stat().st_size - 1
    found = anychunk.verify(changed(index, offsets=offsets)).findings
    assert any(f"{tiff.stat().st_size} bytes" in f.what and "(0, 3, 2)" in f.where for f in found)


def test_ranges_that_overlap(tiff):
    index = anychunk.index(tiff)
    lengths = index["0/0"].chunks.lengths.copy()
    lengths[0, 0, 0] += 1
    found = anychunk.verify(changed(index, lengths=lengths)).findings
    assert ("warning", True) in [
        (f.severity, "(0, 0, 0)" in f.what and "(0, 0, 1)" in f.what) for f in found
    ]


def test_parts_are_checked_too(tmp_path):
    file = tmp_path / "a.npy"
    np.save(file, np.arange(8, dtype="uint8"))
    array = anychunk.index(file)["0/0"]
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
    chunks = index["0/0"].chunks
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
    array = replace(index["0/0"], chunks=replace(index["0/0"].chunks, urls=(str(other),)))
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
    assert f"{tiff}: good; 1 arrays, 12 chunks (0 absent)" in out
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
    assert f"{tiff}: good; 1 arrays, 12 chunks" in out
    code, out, _ = run(capsys, "verify", *files, "--json")
    assert code == 1
    assert [report["is_good"] for report in json.loads(out)] == [False, False, True]
    assert run(capsys, "verify", files[0])[0] == 2


def test_absent_chunks_are_counted(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, "uint8"))
    array = anychunk.index(tmp_path / "a.npy")["0/0"]
    chunks = ByteRanges(
        offsets=np.zeros(1, np.uint64), lengths=np.zeros(1, np.uint64), urls=array.chunks.urls
    )
    report = anychunk.verify(GroupIndex(members={"0": replace(array, chunks=chunks)}))
    assert (report.is_good, report.absent, report.chunks) == (True, 1, 1)
