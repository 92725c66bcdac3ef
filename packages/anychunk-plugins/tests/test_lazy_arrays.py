"""Bands and chunks of lazy arrays."""

import numpy as np

import anychunk
from anychunk.metadata.meaning import Axis
from anychunk_plugins.lazy_arrays import Bands, several_chunks
from tests.support.made_images import made


def test_small_chunks_are_read_together():
    assert several_chunks((10_000, 10_000), (16, 10_000), 1) == (128, 10_000)
    assert several_chunks((3, 50, 60), (1, 10, 10), 2) == (1, 50, 60)
    assert several_chunks((100_000, 100_000), (256, 256), 2) == (1024, 1024)
    assert several_chunks((5000, 5000), (4096, 4096), 2) == (4096, 4096)
    assert several_chunks((1_000_000, 1_000_000), (256, 256), 1) == (8192, 8192)


def test_selections_of_bands(tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (4, 5, 6, 7)).astype("uint8")
    axes = [Axis(name=n) for n in "tcyx"]
    array = anychunk.open(made(tmp_path, [data], axes=axes, chunk=(1, 5, 3, 4)))["0/0/image"]
    view = Bands(array, 1, [3, 0, 1])
    expected = np.moveaxis(data, 1, -1)[..., [3, 0, 1]]
    one = Bands(array, 1, [2], is_single=True)
    for selection in (np.s_[:], np.s_[1], np.s_[1:3, 2:5, 0], np.s_[:, 1, :, 1:]):
        np.testing.assert_array_equal(view[selection], expected[selection])
    for selection in (np.s_[:], np.s_[1], np.s_[1:3, 2:5, 0], np.s_[0, :, 3:]):
        np.testing.assert_array_equal(one[selection], data[:, 2][selection])
