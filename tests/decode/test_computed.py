"""Chunks that the store computes from another array."""

import asyncio
import pickle

import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.errors import ChunkDecodeError, FormatError, TruncatedError
from anychunk.model.index import ArrayIndex, ByteRanges, Computed, GroupIndex, Objects
from anychunk.resample import downsample
from anychunk.zarr.store import IndexStore

VALUES = np.random.default_rng(0).integers(0, 1000, (21, 34), dtype=np.uint16)
RATIO = (2, 3)
SMALL = downsample(VALUES, RATIO)
BYTES = ({"name": "bytes", "configuration": {"endian": "little"}},)


@pytest.fixture
def index(tmp_path):
    """An array of one file, and another that is computed from it."""
    file = tmp_path / "data"
    file.write_bytes(VALUES.astype("<u2").tobytes())
    one = (1, 1)
    stored = ArrayIndex(
        shape=VALUES.shape,
        chunk_shape=VALUES.shape,
        data_type="uint16",
        codecs=BYTES,
        chunks=ByteRanges(
            offsets=np.zeros(one, np.uint64),
            lengths=np.full(one, VALUES.nbytes, np.uint64),
            urls=(str(file),),
        ),
        dimension_names=("y", "x"),
    )
    computed = ArrayIndex(
        shape=SMALL.shape,
        chunk_shape=(4, 4),
        data_type="uint16",
        codecs=BYTES,
        chunks=Computed(
            source="a",
            method="downsample",
            configuration={"ratio": list(RATIO), "method": "average"},
            grid=(3, 3),
        ),
        dimension_names=("y", "x"),
    )
    return GroupIndex(members={"a": stored, "b": computed})


def test_reads_as_any_array(index):
    array = anychunk.open(index)["b"]
    np.testing.assert_array_equal(array[...], SMALL)
    np.testing.assert_array_equal(array[3:9, 5], SMALL[3:9, 5])
    again = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(again[...], SMALL)


def test_keys_are_there(index):
    store = IndexStore(index)
    keys = [f"b/c/{y}/{x}" for y in range(3) for x in range(3)]

    async def listed():
        return [key async for key in store.list_prefix("b/c/")]

    assert asyncio.run(listed()) == keys
    assert asyncio.run(store.exists("b/c/2/2"))
    assert not asyncio.run(store.exists("b/c/3/0"))
    assert asyncio.run(store.getsize("b/c/0/0")) == 4 * 4 * 2
    assert store.get_sync("b/c/3/0") is None


def test_chunks_are_kept_within_a_bound(index):
    store = IndexStore(index)
    first = store.get_sync("b/c/0/0").as_numpy_array()
    assert store.get_sync("b/c/0/0").as_numpy_array().ctypes.data == first.ctypes.data
    with limits.override(computed_bytes=100):
        for key in ("b/c/0/1", "b/c/0/2", "b/c/1/0", "b/c/1/1"):
            store.get_sync(key)
        assert store._computed.nbytes <= 100
    assert store.get_sync("b/c/0/0").as_numpy_array().tobytes() == first.tobytes()


def test_missing_source_is_no_fill_value(index):
    lost = GroupIndex(members={"b": index["b"]})
    with pytest.raises(FormatError, match="index b: .*'a'"):
        anychunk.open(lost)["b"][...]


def test_objects_have_fronts_and_padded_names(tmp_path):
    for number in range(12):
        (tmp_path / f"chunk{number:03d}").write_bytes(bytes([number]))
    chunks = Objects(
        base=str(tmp_path),
        pattern="chunk{0:03}",
        grid=(12,),
        is_sparse=False,
        fronts=(b"\0" * 5, b"\1\0\0\0\0"),
        front_ids=np.array([0] * 11 + [1], np.uint8),
    )
    array = ArrayIndex(
        shape=(12,),
        chunk_shape=(1,),
        data_type="uint8",
        codecs=(
            {"name": "bytes"},
            {"name": "anychunk.stream", "configuration": {"compression": "raw", "checksum": True}},
        ),
        chunks=chunks,
        dimension_names=("x",),
    )
    opened = anychunk.open(array)
    np.testing.assert_array_equal(opened[:11], np.arange(11))
    with pytest.raises(ChunkDecodeError, match="checksum"):
        opened[11]
    (tmp_path / "chunk003").unlink()
    with pytest.raises(TruncatedError, match="chunk003"):
        opened[:]
