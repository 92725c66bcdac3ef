"""Pieces of large uncompressed chunks."""

import numpy as np
import pytest

import anychunk
from anychunk.model.index import find
from anychunk_serve import box_reader
from anychunk_serve.box_reader import BoxReader, Caches, served_store


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "<f4", ">c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pieces_of_large_chunks(tmp_path, dtype, order, monkeypatch):
    """Only rows are read, never the whole chunk; the values are those that numpy wrote."""
    monkeypatch.setattr(box_reader, "LEAST_CHUNK", 1000)
    rng = np.random.default_rng(1)
    data = np.asarray(rng.integers(0, 250, (300, 40, 50), "uint8").astype(dtype), order=order)
    path = tmp_path / "a.npy"
    np.save(path, data)
    index = anychunk.index(path)
    found = BoxReader(
        served_store(index), "0/0/image", find(index, "0/0/image"), Caches(memory=256 << 20)
    )
    assert found._layout is not None
    monkeypatch.setattr(found, "_decode_chunk", None)
    chosen = np.random.default_rng(0)
    for _ in range(60):
        low = [int(chosen.integers(0, n)) for n in data.shape]
        high = [int(chosen.integers(a + 1, n + 1)) for a, n in zip(low, data.shape, strict=True)]
        box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        np.testing.assert_array_equal(found.read(tuple(low), tuple(high)), data[box])
