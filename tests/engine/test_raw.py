import os

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.engine import local, raw
from anychunk.engine.raw import Run, join_rows
from anychunk.errors import ChunkDecodeError, SourceChangedError, TruncatedError
from anychunk.io.file import FileSource
from anychunk.model.grid import plan_box
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex
from anychunk.zarr import selectors
from tests.support import compiled

RNG = np.random.default_rng(5)
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.fixture
def placed(monkeypatch):
    """Return the shapes of all that is copied or read to the result at once."""
    shapes = []

    def fill(self, run, out, real=raw.Runs.fill):
        shapes.append(out.shape)
        return real(self, run, out)

    monkeypatch.setattr(raw.Runs, "fill", fill)
    return shapes


def written(tmp_path, kind, *, rows, dtype="uint16", byteorder="<", height=96, width=40):
    """Write strips with tifffile; return the path and (band, y, x)."""
    shape = {"one": (height, width), "interleaved": (height, width, 3), "many": (height, width, 7)}
    pixels = RNG.integers(0, 200, shape.get(kind, (3, height, width))).astype(dtype)
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path,
        pixels,
        rowsperstrip=rows,
        photometric="rgb" if kind == "interleaved" else "minisblack",
        planarconfig={"separate": "separate", "one": None}.get(kind, "contig"),
        byteorder=byteorder,
        metadata=None,
    )
    found = tifffile.imread(path)
    return path, np.moveaxis(found, -1, 0) if kind in ("interleaved", "many") else found


@pytest.mark.parametrize("kind", ["one", "interleaved", "separate", "many"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "complex64"])
@pytest.mark.parametrize("least", [1, 1 << 20])
def test_windows_are_those_of_tifffile(tmp_path, monkeypatch, kind, byteorder, dtype, least):
    monkeypatch.setattr(raw, "LEAST_FILL", least)
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.ROWS_BYTES", 2000)
    monkeypatch.setattr(local, "LEAST_COPIES", 1 << 10)
    monkeypatch.setattr(local, "LEAST_COPY", 1 << 9)
    path, expected = written(tmp_path, kind, rows=8, dtype=dtype, byteorder=byteorder)
    array = anychunk.open_array(path)
    assert np.array_equal(array[...], expected)
    for _ in range(30):
        ends = [sorted(RNG.integers(0, n + 1, 2)) for n in expected.shape]
        box = tuple(slice(int(a), int(b)) for a, b in ends)
        if RNG.random() < 0.6:  # all columns
            box = (*box[:-1], slice(None))
        assert np.array_equal(array[box], expected[box]), box


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("one", [(96, 40)]),
        ("interleaved", [(3, 96, 40)]),
        ("separate", [(1, 96, 40)] * 3),
    ],
)
def test_contiguous_strips_are_read_at_once(tmp_path, monkeypatch, placed, kind, expected):
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.ROWS_BYTES", 2000)
    if kind == "interleaved" and raw.loops is None:
        pytest.skip(compiled.WHY)
    path, pixels = written(tmp_path, kind, rows=8)
    array = anychunk.open_array(path)
    assert array.nchunks > 3
    assert np.array_equal(array[...], pixels)
    assert placed == expected


def test_rows_of_a_window_are_read_at_once(tmp_path, monkeypatch, placed):
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.ROWS_BYTES", 2000)
    path, pixels = written(tmp_path, "one", rows=8)
    assert np.array_equal(anychunk.open_array(path)[5:83], pixels[5:83])
    assert placed == [(78, 40)]


def test_a_large_chunk_is_divided_among_threads(tmp_path, monkeypatch, placed):
    monkeypatch.setattr(local, "LEAST_COPIES", 1 << 10)
    monkeypatch.setattr(local, "LEAST_COPY", 1 << 9)
    monkeypatch.setattr(selectors, "cores", lambda: 2)
    path, pixels = written(tmp_path, "one", rows=96)
    array = anychunk.open_array(path)
    assert array.nchunks == 1
    assert np.array_equal(array[...], pixels)
    assert sorted(placed) == [(24, 40)] * 4


def strips(path, offsets, lengths, *, chunk=(4, 10), height=16):
    """Return an array of strips of 40 bytes, wherever they are said to be."""
    return ArrayIndex(
        shape=(height, chunk[1]),
        chunk_shape=chunk,
        data_type="uint8",
        codecs=(BYTES,),
        chunks=ByteRanges(
            offsets=np.array(offsets, np.uint64).reshape(-1, 1),
            lengths=np.array(lengths, np.uint64).reshape(-1, 1),
            urls=(str(path),),
        ),
        fill_value=9,
        dimension_names=(None, None),
    )


def opened(index):
    return anychunk.open(GroupIndex(members={"a": index}, pins={}))["a"]


@pytest.mark.parametrize(
    ("offsets", "runs"),
    [
        ([0, 40, 80, 120], [(16, 10)]),
        ([0, 40, 100, 140], [(8, 10), (8, 10)]),
        ([120, 80, 40, 0], [(4, 10)] * 4),
        ([0, 0, 40, 80], [(4, 10), (12, 10)]),
        ([*range(960, -1, -40)], []),
    ],
)
def test_strips_in_any_order(tmp_path, placed, offsets, runs):
    data = RNG.integers(0, 255, 1000).astype(np.uint8)
    (tmp_path / "a.bin").write_bytes(data.tobytes())
    count = len(offsets)
    array = opened(strips(tmp_path / "a.bin", offsets, [40] * count, height=4 * count))
    expected = np.concatenate([data[start : start + 40].reshape(4, 10) for start in offsets])
    assert np.array_equal(array[...], expected)
    assert placed == runs


def test_absent_strips_have_the_fill_value(tmp_path, placed):
    data = RNG.integers(0, 255, 200).astype(np.uint8)
    (tmp_path / "a.bin").write_bytes(data.tobytes())
    array = opened(strips(tmp_path / "a.bin", [0, 40, 0, 80], [40, 40, 0, 40]))
    expected = np.full((16, 10), 9)
    expected[:8], expected[12:] = data[:80].reshape(8, 10), data[80:120].reshape(4, 10)
    assert np.array_equal(array[...], expected)
    assert placed == [(8, 10), (4, 10)]


@pytest.mark.parametrize("length", [39, 41, 1])
def test_a_strip_of_another_length_is_refused(tmp_path, length):
    (tmp_path / "a.bin").write_bytes(bytes(200))
    array = opened(strips(tmp_path / "a.bin", [0, 40, 80, 120], [40, 40, length, 40]))
    with pytest.raises(ChunkDecodeError, match=r"chunk \(2, 0\)"):
        array[...]


@pytest.mark.parametrize("offset", [121, 1 << 40, (1 << 64) - 40, (1 << 64) - 1])
def test_a_strip_beyond_the_end_is_refused(tmp_path, offset):
    (tmp_path / "a.bin").write_bytes(bytes(160))
    array = opened(strips(tmp_path / "a.bin", [0, 40, 80, offset], [40] * 4))
    with pytest.raises(TruncatedError, match=r"chunk \(3, 0\)"):
        array[...]


def test_a_changed_file_is_refused(tmp_path):
    path, _ = written(tmp_path, "one", rows=8)
    array = anychunk.open_array(path)
    array[...]
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceChangedError):
        array[...]


def test_read_stats_count_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.ROWS_BYTES", 2000)
    path, pixels = written(tmp_path, "one", rows=8)
    array = anychunk.open_array(path)
    with anychunk.read_stats() as stats:
        array[...]
    assert stats.chunks == array.nchunks
    assert stats.stored_bytes == stats.decoded_bytes == pixels.nbytes


def test_another_file_at_the_path_is_not_read(tmp_path):
    """The map still shows the file that was opened."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old" * 10)
    source = FileSource(str(path))
    out = np.zeros(6, np.uint8)
    assert source.fill(memoryview(out), 3)
    assert out.tobytes() == b"oldold"
    (tmp_path / "b.bin").write_bytes(b"new" * 10)
    (tmp_path / "b.bin").replace(path)
    assert not source.fill(memoryview(out), 3)
    assert source.read(3, 3).tobytes() == b"old"
    path.unlink()
    assert not source.fill(memoryview(out), 3)


def test_memory_that_is_filled_slowly_is_copied_to(tmp_path, monkeypatch):
    monkeypatch.setattr(raw, "LEAST_FILL", 1)
    filled = []

    def fill(self, out, offset, real=FileSource.fill):
        filled.append((np.frombuffer(out, np.uint8).ctypes.data - offset) % 4096)
        return real(self, out, offset)

    monkeypatch.setattr(FileSource, "fill", fill)
    path, expected = written(tmp_path, "one", rows=8, dtype="uint8", width=1)
    array = anychunk.open_array(path)
    for row in range(96):  # each begins one byte later in the file
        found = array[row:]
        assert np.array_equal(found, expected[row:])
    assert not any(0 < distance < raw.TOO_NEAR for distance in filled)
    assert filled


def test_less_of_the_file_is_not_enough(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(30))
    assert not FileSource(str(path)).fill(memoryview(np.zeros(6, np.uint8)), 28)


def test_rows_are_joined_within_one_plane():
    plan = plan_box([(2, 10)], (4,))
    sides = plan.sources[0], plan.targets[0]
    assert list(join_rows([0, 4, 8, 12, 16, 20], *sides, 1)) == [
        Run(0, 3, 2, 0, 8),
        Run(3, 3, 14, 0, 8),
    ]
    assert list(join_rows([0, None, 8], *sides, 1)) == [Run(0, 1, 2, 0, 2), Run(2, 1, 8, 6, 2)]
    assert list(join_rows([None] * 3, *sides, 1)) == []
