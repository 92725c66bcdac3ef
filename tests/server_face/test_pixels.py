"""Boxes of awkward files, and what is kept of them."""

import threading

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import LimitError, SourceChangedError, SourceError, TruncatedError
from anychunk.model.index import find
from anychunk.server import pixels as module
from anychunk.server.pixels import Kept, Pixels, served_store
from anychunk.server.sources import ReadFile
from tests.server import serve


def opened(path, *, memory=256 << 20, place="0/0"):
    index = anychunk.index(path)
    return Pixels(served_store(index), place, find(index, place), Kept(memory=memory))


def noise(*shape, dtype="uint16"):
    return np.random.default_rng(1).integers(0, 250, shape, dtype)


@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "zstd"])
@pytest.mark.parametrize("rows", [1, 7, 600])
def test_strips(tmp_path, compression, rows):
    data = noise(600, 700)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=rows, compression=compression, predictor=False)
    found = opened(path)
    for start, stop in (((0, 0, 0), (1, 600, 700)), ((0, 5, 512), (1, 517, 700))):
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        np.testing.assert_array_equal(found.read(start, stop), data[None][box])


def test_what_is_read_stays_as_it_is(tmp_path):
    """Decoders use their memory again: nothing that is given out may lie in it."""
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
            values = found.read((0, y, x), (1, y + 200, x + 200))
            if not np.array_equal(values[0], data[y : y + 200, x : x + 200]):
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
        np.testing.assert_array_equal(
            found.read((0, y, 7), (1, y + 100, 90))[0], data[y : y + 100, 7:90]
        )
    assert len(calls) == 1
    assert isinstance(found._chunk((0, 0, 0), None, is_kept=True), np.memmap)
    assert len(found._kept.small) == 0


def test_chunks_beyond_the_memory_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, noise(400, 400), rowsperstrip=400, compression="zlib")
    with pytest.raises(LimitError, match="give it more --memory"):
        opened(path, memory=1000).read((0, 0, 0), (1, 4, 4))


def test_remote_files(tmp_path):
    data = noise(300, 300)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(64, 64), compression="zlib")
    with serve(tmp_path) as web:
        found = opened(f"{web.url}/a.tif")
        before = len(web.requests)
        np.testing.assert_array_equal(found.read((0, 0, 0), (1, 300, 300))[0], data)
        assert len(web.requests) - before <= 3, "fetched together"
        np.testing.assert_array_equal(found.read((0, 0, 0), (1, 64, 64))[0], data[:64, :64])


def test_read_file_looks_at_every_read(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(200)))
    source = ReadFile(str(path))
    assert source.read(10, 5).tobytes() == bytes(range(10, 15))
    now = source.read_now(10, 5)
    assert now is None or now.tobytes() == bytes(range(10, 15))
    with pytest.raises(TruncatedError):
        source.read(190, 20)
    path.write_bytes(bytes(100))
    for read in (source.read, source.read_now):
        with pytest.raises(SourceChangedError):
            read(10, 5)
    path.unlink()
    with pytest.raises(SourceError, match="gone"):
        source.read(10, 5)
    with pytest.raises(SourceError, match="gone"):
        source.verify()


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "<f4", ">c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pieces_of_large_plain_chunks(tmp_path, dtype, order, monkeypatch):
    """Rows are read, not the chunk; the values are those of numpy's own map."""
    from anychunk.server import plain

    monkeypatch.setattr(plain, "LEAST_CHUNK", 1000)
    data = np.asarray(noise(300, 40, 50, dtype="uint8").astype(dtype), order=order)
    path = tmp_path / "a.npy"
    np.save(path, data)
    found = opened(path)
    assert found._plain is not None
    monkeypatch.setattr(found, "_decode_chunk", None)
    chosen = np.random.default_rng(0)
    for _ in range(60):
        low = [int(chosen.integers(0, n)) for n in data.shape]
        high = [int(chosen.integers(a + 1, n + 1)) for a, n in zip(low, data.shape, strict=True)]
        box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        np.testing.assert_array_equal(found.read(tuple(low), tuple(high)), data[box])


def test_runs():
    from anychunk.server.plain import runs

    whole = [slice(0, 10), slice(0, 20), slice(0, 30)]
    assert runs((10, 20, 30), whole, 2) == (0, [0], 12000)
    rows = [slice(1, 3), slice(0, 20), slice(0, 30)]
    assert runs((10, 20, 30), rows, 2) == (0, [1200], 2400)
    columns = [slice(0, 1), slice(2, 4), slice(100, 400)]
    assert runs((1, 20, 1000), columns, 2) == (2, [4200, 6200], 600)
    # too short to be read one by one: with what lies between them
    short = [slice(0, 1), slice(2, 4), slice(100, 110)]
    assert runs((1, 20, 1000), short, 2) == (1, [4000], 4000)


def test_strips_are_decoded_once_for_a_row_of_pieces(tmp_path, monkeypatch):
    data = noise(1024, 3000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=1, compression="zlib")
    index = anychunk.index(path)
    found = Pixels(
        served_store(index),
        "0/0",
        find(index, "0/0"),
        Kept(memory=256 << 20),
        piece=(1, 512, 512),
    )
    calls = []
    decode = found._decode_chunk
    monkeypatch.setattr(found, "_decode_chunk", lambda *a: calls.append(a) or decode(*a))
    for x in range(0, 3000, 500):
        values = found.read((0, 0, x), (1, 1024, x + 500))
        np.testing.assert_array_equal(values[0], data[:, x : x + 500])
    assert len(calls) == 1024


def test_strips_are_read_together(tmp_path, monkeypatch):
    data = noise(512, 2000)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, rowsperstrip=1, compression="zlib")
    index = anychunk.index(path)
    array = find(index, "0/0")
    kept = Kept(memory=256 << 20)
    found = Pixels(served_store(index), "0/0", array, kept, piece=(1, 512, 512))
    calls = []
    read = ReadFile.read
    monkeypatch.setattr(ReadFile, "read", lambda *a: calls.append(a) or read(*a))
    np.testing.assert_array_equal(found.read((0, 0, 0), (1, 512, 512))[0], data[:, :512])
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
