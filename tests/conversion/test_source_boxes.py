"""Boxes of a source: right wherever they lie, and every chunk decoded once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from zarr.codecs import TransposeCodec, ZstdCodec

from anychunk.conversion import source_boxes
from anychunk.conversion.source_boxes import SourceBoxes
from tests.support.patience import PATIENCE_S

VALUES = np.random.default_rng(0).integers(0, 1000, (50, 70)).astype("uint16")


class Counting:
    """An array that counts how often each chunk is read."""

    def __init__(self, array):
        self.array = array
        self.reads = []
        self.metadata, self.chunks = array.metadata, array.chunks
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, box):
        self.reads.append(tuple((s.start, s.stop) for s in box))
        return self.array[box]


def stored(chunks=(20, 30), **options):
    options.setdefault("compressors", [ZstdCodec()])
    array = zarr.create_array({}, data=VALUES, chunks=chunks, **options)
    return Counting(array)


def boxes(step):
    return [
        (slice(y, min(y + step, 50)), slice(x, min(x + step, 70)))
        for y in range(0, 50, step)
        for x in range(0, 70, step)
    ]


@pytest.mark.parametrize("step", [7, 16, 33, 100])
def test_boxes_are_those_of_the_array(step):
    source = SourceBoxes(stored(), (step, step))
    for box in boxes(step):
        np.testing.assert_array_equal(source.read(box), VALUES[box])


def test_every_chunk_is_decoded_once():
    array = stored()
    source = SourceBoxes(array, (8, 8))
    assert source.is_cached
    for box in boxes(8):
        source.read(box)
    assert len(array.reads) == len(set(array.reads)) == 9
    # chunks at the edge are read as far as the array reaches
    assert ((40, 50), (60, 70)) in array.reads


@pytest.mark.parametrize(
    ("region", "options"),
    [
        # a region that covers chunks needs each once anyway
        ((20, 30), {}),
        ((100, 100), {}),
        # bytes that are only copied or transposed cost less than a cache
        ((8, 8), {"compressors": None}),
        ((8, 8), {"compressors": None, "filters": [TransposeCodec(order=(1, 0))]}),
    ],
)
def test_nothing_is_cached_where_it_would_not_help(region, options):
    array = stored(**options)
    source = SourceBoxes(array, region)
    assert not source.is_cached
    box = (slice(3, 11), slice(5, 13))
    np.testing.assert_array_equal(source.read(box), VALUES[box])
    assert array.reads == [((3, 11), (5, 13))]


def test_the_cache_is_bounded_but_holds_one_chunk(monkeypatch):
    monkeypatch.setattr(source_boxes, "CACHE_BYTES", 1)
    array = stored()
    source = SourceBoxes(array, (8, 8))
    for box in [(slice(0, 8), slice(0, 8)), (slice(8, 16), slice(8, 16))]:
        np.testing.assert_array_equal(source.read(box), VALUES[box])
    assert len(array.reads) == 1, "a chunk larger than the bound is kept while it is in use"
    source.read((slice(0, 8), slice(40, 48)))
    source.read((slice(0, 8), slice(0, 8)))
    assert len(array.reads) == 3, "it is evicted by the next"


def test_threads_wait_for_the_first_that_decodes_a_chunk():
    array = stored(chunks=(50, 70))
    source = SourceBoxes(array, (8, 8))
    threads = 4
    ready, decoding, release = threading.Barrier(threads + 1), threading.Event(), threading.Event()
    real = array.array

    class Slow:
        def __getitem__(self, box):
            decoding.set()
            assert release.wait(PATIENCE_S)
            return real[box]

    array.array = Slow()

    def read(box):
        ready.wait(PATIENCE_S)
        return source.read(box)

    picked = boxes(8)[:threads]
    with ThreadPoolExecutor(threads) as pool:
        found = [pool.submit(read, box) for box in picked]
        ready.wait(PATIENCE_S)
        assert decoding.wait(PATIENCE_S)
        release.set()
        for box, future in zip(picked, found, strict=True):
            np.testing.assert_array_equal(future.result(PATIENCE_S), VALUES[box])
    assert len(array.reads) == 1
    assert not source._decoding, "no lock is left behind"


def test_a_failure_is_raised_to_every_reader_and_not_cached():
    array = stored(chunks=(50, 70))
    source = SourceBoxes(array, (8, 8))
    real = array.array
    box = (slice(0, 8), slice(0, 8))

    class Broken:
        def __getitem__(self, box):
            raise OSError("disk failed")

    array.array = Broken()
    for _ in range(2):
        with pytest.raises(OSError, match="disk failed"):
            source.read(box)
    array.array = real
    np.testing.assert_array_equal(source.read(box), VALUES[box])
