"""Thumbnails of served images."""

import numpy as np

from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex
from anychunk.server.box_reader import Caches, served_store
from anychunk.server.chunks import Chunks
from anychunk.server.hierarchy import served_tree
from anychunk.server.thumbnails import ServedArray


def test_absent_pixels_are_fill_values(tmp_path):
    (tmp_path / "a").touch()
    nothing = np.zeros((1, 1), np.uint64)
    own = ArrayIndex(
        shape=(4, 4),
        chunk_shape=(4, 4),
        data_type="float32",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(offsets=nothing, lengths=nothing, urls=(str(tmp_path / "a"),)),
        fill_value="NaN",
        dimension_names=("y", "x"),
    )
    store = served_store(GroupIndex(members={"0": own}))
    chunks = Chunks(served_tree(store.index), store, caches=Caches(memory=1 << 20))
    array = chunks.array("0/image")
    assert np.isnan(ServedArray(chunks, "0/image", array)[0:2, 0:2]).all()
