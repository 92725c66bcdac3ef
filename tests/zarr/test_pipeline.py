import asyncio
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import obstore
import pytest
import zarr

import anychunk
from anychunk import limits
from anychunk.decode.chunks import ChunkReader
from anychunk.engine import local
from anychunk.errors import ChunkDecodeError, SourceChangedError, SourceError, TruncatedError
from anychunk.io import threads
from anychunk.io.file import FileSource
from anychunk.io.object_stores import memory_store
from anychunk.io.open_sources import Sources
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, GroupIndex, Objects, Parts
from anychunk.zarr import pipeline, selectors
from tests.support.http_server import serve
from tests.support.patience import PATIENCE_S

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
RNG = np.random.default_rng(0)


def tiled(values, chunk, url, put, *, codecs=(BYTES,), encode=bytes, gap=0, absent=(), fill=7):
    """Store the chunks of `values` in one object, back to front, and index them."""
    grid = tuple(-(-n // c) for n, c in zip(values.shape, chunk, strict=True))
    padded = np.full([g * c for g, c in zip(grid, chunk, strict=True)], fill, values.dtype)
    padded[tuple(slice(n) for n in values.shape)] = values
    offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
    data = b"head"
    for coords in reversed(list(np.ndindex(grid))):
        if coords in absent:
            continue
        where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, chunk, strict=True))
        stored = encode(np.ascontiguousarray(padded[where]).tobytes())
        offsets[coords], lengths[coords] = len(data), len(stored)
        data += stored + bytes(gap)
    put(data)
    return ArrayIndex(
        shape=values.shape,
        chunk_shape=chunk,
        data_type=values.dtype.name,
        codecs=codecs,
        chunks=ByteRanges(offsets=offsets, lengths=lengths, urls=(url,)),
        fill_value=fill,
        dimension_names=(None,) * values.ndim,
    )


def gzipped(data):
    import gzip

    return gzip.compress(data, 1)


VALUES = RNG.integers(0, 9999, (70, 90, 11)).astype("uint16")


@pytest.fixture(params=["file", "memory", "http"])
def place(request, tmp_path):
    """Give (url, put) of somewhere to store an object."""
    if request.param == "file":
        yield str(tmp_path / "f"), (tmp_path / "f").write_bytes
    elif request.param == "memory":
        yield "memory://pipeline/f", lambda data: obstore.put(memory_store("pipeline"), "f", data)
    else:
        with serve(tmp_path) as served:
            yield f"{served.url}/f", (tmp_path / "f").write_bytes


SELECTIONS = {
    "all": np.s_[...],
    "window": np.s_[13:40, 20:77, 3:9],
    "one chunk": np.s_[0:16, 0:16, 0:4],
    "strided": np.s_[::3, 5:80:7, ::2],
    "integers": np.s_[5, :, 3],
    "one value": np.s_[69, 89, 10],
}


@pytest.mark.processes
@pytest.mark.parametrize(("codecs", "encode"), [((BYTES,), bytes), ((BYTES, GZIP), gzipped)])
def test_selections_equal_numpy(place, codecs, encode):
    array = anychunk.open(tiled(VALUES, (16, 16, 4), *place, codecs=codecs, encode=encode))
    assert type(array.async_array.codec_pipeline) is pipeline.IndexPipeline
    for name, selection in SELECTIONS.items():
        np.testing.assert_array_equal(array[selection], VALUES[selection], err_msg=name)
    np.testing.assert_array_equal(
        array.oindex[[3, 50], :, [1, 9]], VALUES[np.ix_([3, 50], range(90), [1, 9])]
    )
    np.testing.assert_array_equal(
        array.vindex[[3, 50], [1, 80], [1, 9]], VALUES[[3, 50], [1, 80], [1, 9]]
    )
    np.testing.assert_array_equal(array.blocks[1, 2], VALUES[16:32, 32:48])
    mask = VALUES > 9000
    np.testing.assert_array_equal(array.get_mask_selection(mask), VALUES[mask])


@pytest.mark.processes
def test_absent_chunks_are_fill(place):
    array = anychunk.open(tiled(VALUES, (16, 16, 4), *place, absent=[(0, 0, 0), (4, 5, 2)]))
    expected = VALUES.copy()
    expected[:16, :16, :4] = 7
    expected[64:, 80:, 8:] = 7
    np.testing.assert_array_equal(array[...], expected)
    with zarr.config.set({"array.read_missing_chunks": False}):
        strict = zarr.open_array(array.store, mode="r")
        with pytest.raises(zarr.errors.ChunkNotFoundError):
            strict[:16, :16, :4]
        np.testing.assert_array_equal(strict[16:32, 16:32], VALUES[16:32, 16:32])


@pytest.mark.processes
def test_chunk_of_several_parts_and_a_front(place):
    url, put = place
    put(b"..CDEF..AB..GH")
    codecs = (BYTES, {"name": "offset", "configuration": {"offset": 2}})
    chunks = ByteRanges(
        offsets=np.array([8, 2], np.uint64),
        lengths=np.array([2, 4], np.uint64),
        urls=(url,),
        parts=Parts(
            starts=np.array([0, 1, 1], np.uint64),
            offsets=np.array([12], np.uint64),
            lengths=np.array([2], np.uint64),
        ),
        fronts=(b"xy", b"zz"),
        front_ids=np.array([1, 0], np.uint8),
    )
    index = ArrayIndex(
        shape=(8,),
        chunk_shape=(4,),
        data_type="uint8",
        codecs=codecs,
        chunks=chunks,
        dimension_names=("x",),
    )
    array = anychunk.open(index)
    assert array[...].tobytes() == b"ABGHCDEF"
    assert array.store.get_sync("c/0").to_bytes() == b"zzABGH"
    assert array.store._size("c/0") == 6


def test_chunks_in_many_objects(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 4)
    chunks = ByteRanges(
        offsets=np.zeros(3, np.uint64),
        lengths=np.array([WHOLE, 0, WHOLE], np.uint64),
        urls=(str(tmp_path / "a"), str(tmp_path / "b")),
        url_ids=np.array([1, 0, 0], np.uint8),
    )
    index = ArrayIndex(
        shape=(12,),
        chunk_shape=(4,),
        data_type="uint8",
        codecs=(BYTES,),
        chunks=chunks,
        fill_value=46,
        dimension_names=("x",),
    )
    index = GroupIndex(
        members={"a": index}, pins={str(tmp_path / "a"): FileSource(str(tmp_path / "a")).pin()}
    )
    array = anychunk.open(index)["a"]
    assert array[...].tobytes() == b"bbbb....aaaa"
    (tmp_path / "a").write_bytes(b"AAAA")
    os.utime(tmp_path / "a", ns=(0, 0))
    assert array[:4].tobytes() == b"bbbb"
    with pytest.raises(SourceChangedError):
        array[...]


@pytest.mark.processes
@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_one_object_a_chunk(tmp_path, is_remote, is_sparse):
    with serve(tmp_path) as served:
        base = served.url if is_remote else str(tmp_path)
        for name, data in {"0-0": b"ab", "1-1": b"cd"}.items():
            (tmp_path / name).write_bytes(data)
        index = ArrayIndex(
            shape=(2, 4),
            chunk_shape=(1, 2),
            data_type="uint8",
            codecs=(BYTES,),
            fill_value=46,
            dimension_names=("y", "x"),
            chunks=Objects(base=base, pattern="{1}-{0}", grid=(2, 2), is_sparse=is_sparse),
        )
        array = anychunk.open(index)
        assert array[0, :2].tobytes() == b"ab"
        if is_sparse:
            assert array[...].tobytes() == b"ab....cd"
        else:
            with pytest.raises(TruncatedError, match="(1-0|0-1) is missing"):
                array[...]


@pytest.mark.processes
def test_remote_ranges_are_coalesced(tmp_path):
    values = RNG.integers(0, 255, (64, 64)).astype("uint8")
    with serve(tmp_path) as served:
        array = anychunk.open(
            tiled(values, (8, 8), f"{served.url}/f", (tmp_path / "f").write_bytes)
        )
        served.requests.clear()
        np.testing.assert_array_equal(array[...], values)
        assert len(served.requests) == 1
        with limits.override(coalesce_cap=1024):
            served.requests.clear()
            np.testing.assert_array_equal(array[...], values)
            assert len(served.requests) == 4
    with serve(tmp_path) as served, limits.override(coalesce_gap=100):
        array = anychunk.open(
            tiled(values, (8, 8), f"{served.url}/f", (tmp_path / "f").write_bytes, gap=101)
        )
        np.testing.assert_array_equal(array[:8, :16], values[:8, :16])
        assert len(served.requests) == 2


@pytest.mark.processes
def test_parts_that_come_together_make_one_chunk(tmp_path):
    """A chunk whose parts are in one answer is handed over once, and not once a part."""
    (tmp_path / "f").write_bytes(bytes(range(40)))
    with serve(tmp_path) as served:
        chunks = ByteRanges(
            offsets=np.array([30, 8], np.uint64),
            lengths=np.array([2, 4], np.uint64),
            urls=(f"{served.url}/f",),
            parts=Parts(
                starts=np.array([0, 2, 2], np.uint64),
                offsets=np.array([2, 20], np.uint64),
                lengths=np.array([1, 1], np.uint64),
            ),
        )
        index = ArrayIndex(
            shape=(8,), chunk_shape=(4,), data_type="uint8", codecs=({"name": "bytes"},),
            chunks=chunks, dimension_names=("x",),
        )  # fmt: skip
        reader = ChunkReader(index, Sources({}))
        taken = []
        asyncio.run(
            reader.fetch_many(
                np.arange(2),
                lambda positions, data: taken.extend(zip(positions, map(bytes, data), strict=True)),
            )
        )
    assert sorted(taken) == [(0, bytes([30, 31, 2, 20])), (1, bytes([8, 9, 10, 11]))]


@pytest.mark.processes
def test_rows_of_chunks_are_read_with_the_little_between_them(tmp_path):
    """Five of eight chunks a row: what lies between two rows is shorter than a row."""
    values = RNG.integers(0, 255, (64, 64)).astype("uint8")
    with serve(tmp_path) as served, limits.override(coalesce_gap=0):
        array = anychunk.open(
            tiled(values, (8, 8), f"{served.url}/f", (tmp_path / "f").write_bytes)
        )
        for window, bound, count in (
            (np.s_[:, :40], 4 << 20, 1),
            (np.s_[:, :40], 1000, 4),
            (np.s_[:, :24], 4 << 20, 8),
        ):
            with limits.override(coalesce_join=bound):
                served.requests.clear()
                np.testing.assert_array_equal(array[window], values[window])
                assert len(served.requests) == count


@pytest.mark.processes
@pytest.mark.parametrize("damage", ["500", "short", "gone"])
def test_remote_failure_is_never_fill(tmp_path, damage):
    with serve(tmp_path) as served, limits.override(retries=1, retry_s=2):
        array = anychunk.open(
            tiled(VALUES, (16, 16, 4), f"{served.url}/f", (tmp_path / "f").write_bytes)
        )
        if damage == "500":
            served.fail = [500] * 1000
        elif damage == "short":
            served.short = True
        else:
            (tmp_path / "f").unlink()
        with pytest.raises((SourceError, TruncatedError, FileNotFoundError)):
            array[...]


def test_damaged_chunk_is_named(tmp_path):
    index = tiled(
        VALUES,
        (16, 16, 4),
        str(tmp_path / "f"),
        (tmp_path / "f").write_bytes,
        codecs=(BYTES, GZIP),
        encode=gzipped,
    )
    data = bytearray((tmp_path / "f").read_bytes())
    offset = int(index.chunks.offsets[2, 3, 1])
    data[offset : offset + 20] = bytes(20)
    (tmp_path / "f").write_bytes(data)
    array = anychunk.open(index)
    with pytest.raises(
        ChunkDecodeError, match=rf"chunk \(2, 3, 1\), bytes {offset}\.\.\d+: gzip: "
    ) as caught:
        array[...]
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(array[:16], VALUES[:16])


def test_changed_file_is_noticed(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    array = anychunk.open_array(tmp_path / "a.npy")
    array[0]
    np.save(tmp_path / "a.npy", VALUES[:, ::-1])
    with pytest.raises(SourceChangedError):
        array[0]


def test_short_file_raises_before_it_is_touched(tmp_path):
    """A memory map of a file that was cut kills the process on access."""
    np.save(tmp_path / "a.npy", VALUES)
    array = anychunk.open_array(tmp_path / "a.npy")
    with (tmp_path / "a.npy").open("r+b") as file:
        file.truncate(200)
    with pytest.raises(SourceChangedError):
        array[...]


def test_other_stores_keep_their_pipeline():
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="uint8")
    assert type(array.async_array.codec_pipeline).__name__ == "BatchedCodecPipeline"
    array[...] = 3
    assert (array[...] == 3).all()


@pytest.mark.processes
def test_enable_keeps_the_pipeline_of_other_stores(place):
    fused = "zarr.core.codec_pipeline.FusedCodecPipeline"
    store = anychunk.open(tiled(VALUES, (16, 16, 4), *place)).store
    with zarr.config.set({pipeline.PATH: fused}):
        anychunk.enable()
        try:
            array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="uint8")
            assert type(array.async_array.codec_pipeline).__name__ == "FusedCodecPipeline"
            array = zarr.open_array(store)
            assert type(array.async_array.codec_pipeline).__name__ == "IndexPipeline"
            np.testing.assert_array_equal(array[...], VALUES)
        finally:
            anychunk.disable()
        assert zarr.config.get(pipeline.PATH) == fused


@pytest.mark.processes
@pytest.mark.parametrize("name", ["BatchedCodecPipeline", "FusedCodecPipeline"])
def test_pipelines_of_zarr_read_our_stores(place, name):
    store = anychunk.open(tiled(VALUES, (16, 16, 4), *place, absent=[(0, 0, 0)])).store
    expected = VALUES.copy()
    expected[:16, :16, :4] = 7
    with zarr.config.set({pipeline.PATH: f"zarr.core.codec_pipeline.{name}"}):
        array = zarr.open_array(store)
    assert type(array.async_array.codec_pipeline).__name__ == name
    np.testing.assert_array_equal(array[3:60:2], expected[3:60:2])


@pytest.mark.processes
def test_pickled_array_reads_in_a_fresh_process(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    array = anychunk.open_array(tmp_path / "a.npy")
    array[0]
    (tmp_path / "array.pickle").write_bytes(pickle.dumps(array))
    code = (
        "import pickle, sys, numpy as np;"
        "a = pickle.loads(open(sys.argv[1], 'rb').read());"
        "print(type(a.async_array.codec_pipeline).__name__, int(a[...].sum(dtype=np.uint64)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "array.pickle"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split() == ["IndexPipeline", str(int(VALUES.sum(dtype=np.uint64)))]


def test_dask(tmp_path):
    import dask.array

    np.save(tmp_path / "a.npy", VALUES)
    lazy = dask.array.from_zarr(anychunk.open_array(tmp_path / "a.npy"))
    np.testing.assert_array_equal(lazy[::2].compute(scheduler="threads"), VALUES[::2])


def test_dask_does_not_multiply_the_threads(tmp_path, monkeypatch):
    """With as many threads of Dask as cores, there are at most as many of ours, not the square."""
    import dask.array

    cores = 6
    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(selectors, "cores", lambda: cores)
    values = RNG.integers(0, 9, (2048, 2048), np.uint8)
    file = tmp_path / "f"
    index = tiled(
        values, (64, 64), str(file), file.write_bytes, codecs=(BYTES, GZIP), encode=gzipped
    )
    decoding, seen, real = [], set(), local.decode_chunks

    def scatter(*arguments):
        decoding.append(1)
        seen.add((threading.get_ident(), len(decoding)))
        try:
            real(*arguments)
        finally:
            decoding.pop()

    monkeypatch.setattr(local, "rows_of", lambda _: None)
    monkeypatch.setattr(local, "decode_chunks", scatter)
    lazy = dask.array.from_zarr(anychunk.open(index), chunks=(512, 1024))
    found = lazy.compute(scheduler="threads", num_workers=cores)
    threads.pool().shutdown()
    np.testing.assert_array_equal(found, values)
    assert len({thread for thread, _ in seen}) > 1, "several threads decode"
    assert len({thread for thread, _ in seen}) <= 2 * cores
    assert max(count for _, count in seen) <= 2 * cores


def test_two_threads(tmp_path):
    index = tiled(VALUES, (16, 16, 4), str(tmp_path / "f"), (tmp_path / "f").write_bytes)
    array = anychunk.open(index)
    results = []

    def work():
        results.extend(np.array_equal(array[...], VALUES) for _ in range(5))

    started = [threading.Thread(target=work) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert results == [True] * 20


@pytest.mark.processes
def test_inside_an_event_loop(place):
    array = anychunk.open(tiled(VALUES, (16, 16, 4), *place))

    async def read():
        return await array.async_array.getitem(np.s_[3:60])

    np.testing.assert_array_equal(asyncio.run(read()), VALUES[3:60])


@pytest.mark.processes
def test_writing_is_refused(place):
    array = anychunk.open(tiled(VALUES, (16, 16, 4), *place))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_scratch_is_not_shared_between_chunks(tmp_path):
    """A decoder that fills the scratch buffer must not see its array change afterwards."""
    values = np.arange(40, dtype="uint8").reshape(20, 2)
    array = anychunk.open(
        tiled(
            values,
            (1, 2),
            str(tmp_path / "f"),
            (tmp_path / "f").write_bytes,
            codecs=(BYTES, GZIP),
            encode=gzipped,
        )
    )
    np.testing.assert_array_equal(array[...], values)


def test_group_of_arrays(tmp_path):
    first = tiled(VALUES, (16, 16, 4), str(tmp_path / "f"), (tmp_path / "f").write_bytes)
    group = anychunk.open(GroupIndex(members={"a": GroupIndex(members={"c": first}), "c": first}))
    np.testing.assert_array_equal(group["a/c"][...], VALUES)
    np.testing.assert_array_equal(group["c"][3], VALUES[3])
    assert sorted(group.array_keys()) == ["c"]
    assert sorted(group.group_keys()) == ["a"]
