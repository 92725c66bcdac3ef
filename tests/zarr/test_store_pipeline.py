"""Ordinary Zarr read while `enable()` is in effect: equal to tensorstore and zarr, and still zarr's errors."""

import pickle

import numpy as np
import obstore
import pytest
import tensorstore
import zarr
from numcodecs import Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, MemoryStore, ObjectStore

import anychunk
from anychunk import limits
from anychunk.engine import shards
from anychunk.zarr import store_pipeline
from anychunk.zarr.store_pipeline import StorePipeline
from tests.support.compiled import needs_compiled

VALUES = np.random.default_rng(5).integers(0, 50, (70, 90), "u2")
VALUES[8:16, 16:48] = 7  # chunks of shards that are absent
BOXES = [
    np.s_[...],
    np.s_[3, 5:60],
    np.s_[17:50, 33:34],
    np.s_[-1],
    np.s_[::3, 4],
    np.s_[9:2],
    np.s_[[1, 60], 2],
]
CHAINS = {
    "plain": [BytesCodec()],
    "big": [BytesCodec(endian="big"), ZstdCodec()],
    "gzip": [BytesCodec(), GzipCodec()],
    "zstd": [BytesCodec(), ZstdCodec(checksum=True)],
    "two": [BytesCodec(), ZstdCodec(), Crc32cCodec()],
    "blosc": [BytesCodec(), BloscCodec(cname="zstd")],
    "shards": [ShardingCodec(chunk_shape=(8, 16), codecs=[BytesCodec(), ZstdCodec()])],
    "index first": [ShardingCodec(chunk_shape=(8, 16), index_location="start")],
    "no checksum": [ShardingCodec(chunk_shape=(16, 16), index_codecs=[BytesCodec()])],
}
pytestmark = needs_compiled


def create(store, chain="zstd", **options):
    array = zarr.create(
        store=store, shape=VALUES.shape, chunks=(32, 32), dtype="u2", codecs=CHAINS[chain],
        fill_value=7, overwrite=True, **options,
    )  # fmt: skip
    array[:64] = VALUES[:64]  # the last row of chunks is absent
    expected = VALUES.copy()
    expected[64:] = 7
    return expected


@pytest.fixture
def by_zarr(monkeypatch):
    """Return the keys of the chunks that are left to zarr."""
    left, before = [], BatchedCodecPipeline.read

    async def read(self, items, *rest, **options):
        items = list(items)
        left.extend(getattr(item[0], "path", "inner") for item in items)
        return await before(self, items, *rest, **options)

    monkeypatch.setattr(BatchedCodecPipeline, "read", read)
    return left


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("kind", ["folder", "obstore", "memory"])
def test_every_chain_in_every_store(tmp_path, enabled, by_zarr, chain, kind):
    expected = create(tmp_path / "a", chain)
    peer = tensorstore.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/a/"}).result()
    np.testing.assert_array_equal(peer.read().result(), expected)
    store = {"folder": lambda: LocalStore(tmp_path / "a"), "memory": lambda: copied(tmp_path / "a"),
             "obstore": lambda: ObjectStore(obstore.store.LocalStore(tmp_path / "a"))}[kind]()  # fmt: skip
    array = zarr.open_array(store, mode="r")
    assert isinstance(array.async_array.codec_pipeline, StorePipeline)
    for box in BOXES:
        np.testing.assert_array_equal(array[box], expected[box])
    by_zarr.clear()
    np.testing.assert_array_equal(array[5:70, 9:80], expected[5:70, 9:80])
    # chains of two compressions, and shards of a store that is no folder
    is_shards = isinstance(CHAINS[chain][0], ShardingCodec)
    assert bool(by_zarr) == (chain == "two" or (is_shards and kind == "memory"))


def copied(folder):
    """Return the files of a folder as objects in memory."""
    store = obstore.store.MemoryStore()
    for path in folder.rglob("*"):
        if path.is_file():
            obstore.put(store, path.relative_to(folder).as_posix(), path.read_bytes())
    return ObjectStore(store)


@pytest.mark.parametrize("chain", ["zstd", "shards"])
def test_a_large_array_is_read_by_threads(tmp_path, enabled, by_zarr, monkeypatch, chain):
    monkeypatch.setattr(store_pipeline, "INLINE_RESULT", 0)
    monkeypatch.setattr(store_pipeline, "MANY_BYTES", 1)
    monkeypatch.setattr(store_pipeline, "INLINE_BYTES", 0)
    monkeypatch.setattr(shards, "INLINE_BYTES", 0)
    monkeypatch.setattr(shards, "PART_BYTES", 1)
    expected = create(tmp_path / "a", chain)
    array = zarr.open_array(tmp_path / "a", mode="r")
    with zarr.config.set({"codec_pipeline.max_workers": 3}):
        np.testing.assert_array_equal(array[...], expected)
        np.testing.assert_array_equal(array[1:31, 1:31], expected[1:31, 1:31])
    assert by_zarr == []


def test_old_arrays(tmp_path, enabled, by_zarr):
    """Version 2 of Zarr, with names of chunks and codecs of its own."""
    array = zarr.create_array(
        tmp_path / "a", shape=VALUES.shape, chunks=(32, 32), dtype=">u2", zarr_format=2,
        compressors=Zstd(level=1), fill_value=7,
    )  # fmt: skip
    array[:64] = VALUES[:64]
    peer = tensorstore.open({"driver": "zarr", "kvstore": f"file://{tmp_path}/a/"}).result()
    array = zarr.open_array(tmp_path / "a", mode="r")
    for box in BOXES:
        np.testing.assert_array_equal(array[box], peer.read().result()[box])


def test_what_is_written_is_read(tmp_path, enabled):
    """An array changes while it is open, and is read by a copy, too."""
    expected = create(tmp_path / "a")
    array = zarr.open_array(tmp_path / "a", mode="r+")
    copy = pickle.loads(pickle.dumps(array))
    for number in range(3):
        expected[number:40, 50:] = array[number:40, 50:] = number
        np.testing.assert_array_equal(array[...], expected)
        np.testing.assert_array_equal(copy[...], expected)
    (tmp_path / "a/c/0/1").unlink()
    expected[:32, 32:64] = 7
    np.testing.assert_array_equal(array[...], expected)


def damaged(path, edit):
    data = bytearray(path.read_bytes())
    path.write_bytes(edit(data) or data)


DAMAGE = {
    "empty": lambda data: b"",
    "no index": lambda data: data[:9],
    "checksum": lambda data: data.__setitem__(-1, data[-1] ^ 1),
    "a byte": lambda data: data.__setitem__(5, data[5] ^ 1),
}


@pytest.mark.parametrize("chain", ["zstd", "shards", "no checksum"])
@pytest.mark.parametrize("edit", DAMAGE)
def test_damage_is_what_zarr_finds(tmp_path, chain, edit):
    """An error of the same class, or the same pixels where nothing tells the damage."""
    create(tmp_path / "a", chain)
    damaged(tmp_path / "a/c/1/1", DAMAGE[edit])

    def found():
        try:
            return zarr.open_array(tmp_path / "a", mode="r")[...].tolist()
        except Exception as e:
            return type(e)

    expected = found()
    anychunk.enable()
    try:
        assert found() == expected
    finally:
        anychunk.disable()


@pytest.mark.parametrize("at", ["start", "end"])
def test_an_index_of_a_shard_that_points_elsewhere(tmp_path, enabled, at):
    """Offsets and lengths that would wrap around when they are added."""
    codecs = [ShardingCodec(chunk_shape=(8, 16), index_codecs=[BytesCodec()], index_location=at)]
    array = zarr.create(
        store=tmp_path / "a", shape=(32, 32), chunks=(32, 32), dtype="u2", codecs=codecs
    )
    array[...] = VALUES[:32, :32]
    path = tmp_path / "a/c/0/0"
    data = bytearray(path.read_bytes())
    entries = np.frombuffer(data, "<u8", 16, 0 if at == "start" else len(data) - 128)
    for offset, length in ((2**64 - 8, 16), (2**63, 256), (len(data) - 10, 256), (0, 2**64 - 1)):
        entries[4:6] = offset, length
        path.write_bytes(data)
        with pytest.raises(Exception):  # noqa: B017 - whichever zarr has
            zarr.open_array(tmp_path / "a", mode="r")[...]
        np.testing.assert_array_equal(array[8:16, 16:], VALUES[8:16, 16:32])


def test_pipeline_of_zarr_behind_it(tmp_path, enabled):
    create(tmp_path / "a")
    array = zarr.open_array(tmp_path / "a", mode="r")
    pipeline = array.async_array.codec_pipeline
    base = pipeline._base
    assert list(pipeline) == list(base)
    assert pipeline.supports_partial_decode == base.supports_partial_decode
    assert pipeline.supports_partial_encode == base.supports_partial_encode
    with pytest.raises(NotImplementedError):
        StorePipeline.from_codecs([])
    assert isinstance(
        zarr.create(shape=1, store=MemoryStore()).async_array.codec_pipeline, BatchedCodecPipeline
    )


def test_chunks_that_are_too_large_are_left_to_zarr(tmp_path, enabled, by_zarr):
    expected = create(tmp_path / "a")
    with limits.override(free_bytes=100):
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "a", mode="r")[...], expected)
    assert by_zarr
