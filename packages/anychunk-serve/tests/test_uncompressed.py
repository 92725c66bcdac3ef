"""Pieces of large uncompressed chunks."""

import numpy as np
import pytest

import anychunk
from anychunk.model.index import find
from anychunk_serve import uncompressed
from anychunk_serve.box_reader import BoxReader, Caches, served_store
from anychunk_serve.uncompressed import runs


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "<f4", ">c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pieces_of_large_chunks(tmp_path, dtype, order, monkeypatch):
    """Only rows are read, never the whole chunk; the values are those that numpy wrote."""
    monkeypatch.setattr(uncompressed, "LEAST_CHUNK", 1000)
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


def test_runs():
    whole = [slice(0, 10), slice(0, 20), slice(0, 30)]
    assert runs((10, 20, 30), whole, 2) == (0, [0], 12000)
    rows = [slice(1, 3), slice(0, 20), slice(0, 30)]
    assert runs((10, 20, 30), rows, 2) == (0, [1200], 2400)
    columns = [slice(0, 1), slice(2, 4), slice(100, 400)]
    assert runs((1, 20, 1000), columns, 2) == (2, [4200, 6200], 600)
    # too short for separate reads: read with the bytes between them
    short = [slice(0, 1), slice(2, 4), slice(100, 110)]
    assert runs((1, 20, 1000), short, 2) == (1, [4000], 4000)
