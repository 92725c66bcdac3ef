"""Boxes of strips, large chunks and remote files, and what is cached of them."""

import threading

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import LimitError
from anychunk.io.file import PreadSource
from anychunk.model.index import find
from anychunk_serve import box_reader as module
from anychunk_serve.box_reader import BoxReader, Caches, served_store
from tests.support.http_server import serve


def opened(path, *, memory=256 << 20, place="0/0/image"):
    index = anychunk.index(path)
    return BoxReader(served_store(index), place, find(index, place), Caches(memory=memory))


def noise(*shape, dtype="uint16"):
    return np.random.default_rng(1).integers(0, 250, shape, dtype)


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "zstd"])
@pytest.mark.parametrize("rows", [1, 7, 600])
def test_strips(tmp_path, compression, rows):
    data = noise(600, 700)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=rows, compression=compression, predictor=False)
    found = opened(path)
    for start, stop in (((0, 0), (600, 700)), ((5, 512), (517, 700))):
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        np.testing.assert_array_equal(found.read(start, stop), data[box])


def test_what_is_read_stays_as_it_is(tmp_path):
    """Decoders reuse their memory: no result may lie in it."""
    data = noise(512, 512, 3, dtype="uint8")
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, tile=(64, 64), compression="lzw", photometric="rgb")
    found = opened(path)
    boxes = [((0, y, x), (3, y + 64, x + 64)) for y in range(0, 512, 64) for x in range(0, 512, 64)]
    boxes += [((1, y, 3), (2, y + 50, 500)) for y in range(0, 400, 50)]
    read = [found.read(*box) for box in boxes]
    expected = data.transpose(2, 0, 1)
    for (start, stop), values in zip(boxes, read, strict=True):
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        np.testing.assert_array_equal(values, expected[box])


def test_many_threads_read_the_same(tmp_path):
    data = noise(1000, 1000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=3, compression="zlib", predictor=2)
    found, wrong = opened(path, memory=8 << 20), []

    def read(seed):
        chosen = np.random.default_rng(seed)
        for _ in range(20):
            y, x = (int(n) for n in chosen.integers(0, 800, 2))
            values = found.read((y, x), (y + 200, x + 200))
            if not np.array_equal(values, data[y : y + 200, x : x + 200]):
                wrong.append((y, x))

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_chunks_are_decoded_once_and_kept_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1 << 16)
    data = noise(400, 400)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=400, compression="zlib")
    found = opened(path)
    calls = []
    decode = found._decode_chunk
    monkeypatch.setattr(found, "_decode_chunk", lambda *a: calls.append(a) or decode(*a))
    for y in range(0, 400, 100):
        np.testing.assert_array_equal(found.read((y, 7), (y + 100, 90)), data[y : y + 100, 7:90])
    assert len(calls) == 1
    assert isinstance(found._chunk((0, 0), None, is_cached=True), np.memmap)
    assert len(found._caches.small) == 0


def test_chunks_beyond_the_memory_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, noise(400, 400), rowsperstrip=400, compression="zlib")
    with pytest.raises(LimitError, match=r"320000 bytes.* 1000;.*--memory"):
        opened(path, memory=1000).read((0, 0), (4, 4))


def test_a_chunk_of_far_too_many_stored_bytes_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, noise(16, 16), rowsperstrip=16, compression="zlib")
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["StripByteCounts"].overwrite([5000])
        file.filehandle.seek(6000)
        file.filehandle.write(b"0")
    with pytest.raises(LimitError) as e:
        opened(path).read((0, 0), (4, 4))
    assert str(e.value).count("a.tif") == 1
    assert all(word in str(e.value) for word in ("5000 bytes", "512 decoded", "anychunk.open"))


@pytest.mark.processes
def test_remote_files(tmp_path):
    data = noise(300, 300)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(64, 64), compression="zlib")
    with serve(tmp_path) as web:
        found = opened(f"{web.url}/a.tif")
        before = len(web.requests)
        np.testing.assert_array_equal(found.read((0, 0), (300, 300)), data)
        assert len(web.requests) - before <= 3, "fetched together"
        np.testing.assert_array_equal(found.read((0, 0), (64, 64)), data[:64, :64])


def test_strips_are_decoded_once_for_a_row_of_pieces(tmp_path, monkeypatch):
    data = noise(1024, 3000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=1, compression="zlib")
    index = anychunk.index(path)
    found = BoxReader(
        served_store(index),
        "0/0/image",
        find(index, "0/0/image"),
        Caches(memory=256 << 20),
        piece=(512, 512),
    )
    calls = []
    decode = found._decode_chunk
    monkeypatch.setattr(found, "_decode_chunk", lambda *a: calls.append(a) or decode(*a))
    for x in range(0, 3000, 500):
        values = found.read((0, x), (1024, x + 500))
        np.testing.assert_array_equal(values, data[:, x : x + 500])
    assert len(calls) == 1024


def test_strips_are_read_together(tmp_path, monkeypatch):
    data = noise(512, 2000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=1, compression="zlib")
    index = anychunk.index(path)
    array = find(index, "0/0/image")
    caches = Caches(memory=256 << 20)
    found = BoxReader(served_store(index), "0/0/image", array, caches, piece=(512, 512))
    calls = []
    read = PreadSource.read
    monkeypatch.setattr(PreadSource, "read", lambda *a: calls.append(a) or read(*a))
    np.testing.assert_array_equal(found.read((0, 0), (512, 512)), data[:, :512])
    assert len(calls) == 1


def test_spans():
    offsets, lengths = np.array([100, 0, 50, 10**6], "u8"), np.array([10, 0, 50, 7], "u8")
    assert module.spans_of(offsets, lengths) == {
        50: (50, 110),
        100: (50, 110),
        10**6: (10**6, 10**6 + 7),
    }
    assert module.spans_of(offsets, np.full(4, 2**64 - 1, "u8")) is None
    assert module.spans_of(offsets[:0], lengths[:0]) is None
