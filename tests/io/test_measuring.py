"""What `read_stats` counts, compared with what the files and the server say."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.io import measuring
from anychunk.native import loops
from tests.support.http_server import serve

VALUES = np.random.default_rng(0).integers(0, 4000, (300, 200), "u2")
STEPS = ("fetch_seconds", "decode_seconds", "copy_seconds")


@pytest.fixture
def path(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", VALUES, tile=(64, 64), compression="zlib")
    return tmp_path / "a.tif"


def stored(path):
    with tifffile.TiffFile(path) as tif:
        return tif.pages[0].databytecounts


def test_a_full_read(path):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as stats:
        assert np.array_equal(array[...], VALUES)
    assert stats.chunks == len(stored(path)) == 20
    assert stats.stored_bytes == sum(stored(path))
    assert stats.decoded_bytes == 20 * 64 * 64 * 2
    assert (stats.requests, stats.fetched_bytes, stats.absent_chunks, stats.cache_hits) == (0,) * 4
    # the compiled loop takes stored bytes from the map, and crops chunks in place: nothing is fetched or copied
    assert (stats.fetch_seconds > 0) == (loops is None)
    assert stats.decode_seconds > 0
    assert stats.seconds > 0


def test_a_box_that_begins_inside_of_chunks_is_copied(path):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as stats:
        assert np.array_equal(array[5:, 7:], VALUES[5:, 7:])
    assert stats.chunks == 20
    # the compiled loop copies only the part that is wanted, and counts all it does as decoding
    measured = {step for step in STEPS if getattr(stats, step) > 0}
    assert measured == ({*STEPS} if loops is None else {"decode_seconds"})


@pytest.mark.parametrize("selection", [np.s_[::2, ::3], np.s_[5, 6]], ids=["steps", "element"])
def test_a_read_by_zarr(path, selection):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as stats:
        assert np.array_equal(array[selection], VALUES[selection])
    assert stats.chunks == (20 if isinstance(selection[0], slice) else 1)


def test_chunks_that_are_in_memory(path):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as first:
        array[:20, :20]
    with anychunk.read_stats() as second:
        assert np.array_equal(array[20:40, 20:40], VALUES[20:40, 20:40])
    assert (first.chunks, first.cache_hits) == (1, 0)
    assert (second.chunks, second.cache_hits) == (0, 1)
    assert second.decode_seconds == 0 < second.copy_seconds


def test_absent_chunks(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", VALUES * 0, tile=(64, 64), compression="zlib")
    data = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as tif:
        for code in ("TileOffsets", "TileByteCounts"):
            tag = tif.pages[0].tags[code]
            width = tag.valuebytecount // tag.count
            data[tag.valueoffset : tag.valueoffset + 3 * width] = bytes(3 * width)
    (tmp_path / "a.tif").write_bytes(data)
    with anychunk.read_stats() as stats:
        anychunk.open_array(tmp_path / "a.tif")[...]
    assert (stats.absent_chunks, stats.chunks) == (3, 17)


@pytest.mark.processes
def test_requests(path):
    with serve(path.parent) as served, anychunk.read_stats() as stats:
        array = anychunk.open_array(f"{served.url}/a.tif")
        opened = len(served.requests)
        assert stats.requests == opened
        assert np.array_equal(array[...], VALUES)
    assert stats.requests == len(served.requests)
    spans = [r.removeprefix("bytes=").split("-") for _, r in served.requests]
    last = path.stat().st_size - 1
    assert stats.fetched_bytes == sum(min(int(b), last) - int(a) + 1 for a, b in spans)
    assert stats.chunks == 20
    assert stats.fetch_seconds > 0


def test_chunks_that_are_files(tmp_path):
    anychunk.write(VALUES, tmp_path / "a.n5", chunk=(64, 64))
    array = anychunk.open_array(tmp_path / "a.n5")
    with anychunk.read_stats() as stats:
        array[...]
    files = [p for p in (tmp_path / "a.n5").rglob("*") if p.is_file() and p.suffix != ".json"]
    assert stats.chunks == len(files) == 20
    assert stats.stored_bytes == sum(p.stat().st_size for p in files)
    # the compiled loop reads the files as well
    assert (stats.fetch_seconds > 0) == (loops is None)


def test_windows_of_a_jpeg2000_tile(tmp_path):
    imagecodecs = pytest.importorskip("imagecodecs")
    side = np.arange(2100) % 251
    image = (side[:, None] + side).astype("u1")
    stream = imagecodecs.jpeg2k_encode(image, level=0, reversible=True, codecformat="J2K")
    (tmp_path / "a.j2k").write_bytes(stream)
    array = anychunk.open_array(tmp_path / "a.j2k")
    with anychunk.read_stats() as stats:
        assert np.array_equal(array[100:200, 1000:1100], image[100:200, 1000:1100])
    assert stats.chunks >= 1
    assert 0 < stats.stored_bytes < len(stream)
    assert stats.decode_seconds > 0


def test_nothing_is_counted_outside_of_a_block(path):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as stats:
        pass
    array[...]
    assert {name for name, value in stats.asdict().items() if value} == {"seconds"}
    assert measuring.collectors == ()


def test_nested_blocks(path):
    array = anychunk.open_array(path)
    with anychunk.read_stats() as outer:
        array[...]
        with anychunk.read_stats() as inner:
            array[:64]
    assert (outer.chunks, inner.chunks) == (24, 4)


def test_a_block_ends_with_an_error(path):
    with pytest.raises(ZeroDivisionError), anychunk.read_stats() as stats:
        1 / 0  # noqa: B018
    assert measuring.collectors == ()
    assert stats.seconds > 0


def test_threads_add_up(path):
    array = anychunk.open_array(path)
    start = threading.Barrier(4)

    def read():
        start.wait()
        for _ in range(5):
            array[...]

    with anychunk.read_stats() as stats, ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read) for _ in range(4)]:
            done.result()
    assert stats.chunks == 4 * 5 * 20
    assert stats.stored_bytes == 4 * 5 * sum(stored(path))


def test_it_prints(path):
    with anychunk.read_stats() as stats:
        anychunk.open_array(path)[...]
    lines = str(stats).splitlines()
    assert [line.split()[0] for line in lines] == ["fetch", "decode", "copy", "block"]
    assert "20 chunks" in lines[1]
