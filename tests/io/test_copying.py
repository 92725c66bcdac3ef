import itertools

import numpy as np
import pytest

from anychunk.io import copying


def field(shape, dtype):
    count = int(np.prod(shape))
    return (np.arange(count) * 7 % 251).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["u1", ">u2", "<i4", ">f8", "?", ">c16"])
@pytest.mark.parametrize(
    "shape", [(64, 64, 64), (200, 170), (5, 7000), (7000, 5), (9, 19, 21, 13), (40000,), (0, 9000)]
)
def test_every_order_of_axes(shape, dtype):
    array = field(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        source = array.transpose(order)
        out = np.zeros(source.shape, np.dtype(dtype).newbyteorder("="))
        copying.assign(out, source)
        assert np.array_equal(out, source)


def test_parts_of_larger_arrays_and_negative_strides():
    array = field((70, 80, 90), ">u2").T
    source = array[5:70:2, ::-1, 3:]
    target = np.zeros((60, 90, 100), "u2")
    copying.assign(target[:33, 5:85, 7:74], source)
    assert np.array_equal(target[:33, 5:85, 7:74], source)
    assert target.sum(dtype=np.int64) == source.sum(dtype=np.int64)


def test_broadcast_and_strings_are_left_to_numpy():
    out = np.zeros((100, 100), "u2")
    copying.assign(out, np.array(3, "u2"))
    assert (out == 3).all()
    words = np.full((200, 200), "word", np.dtypes.StringDType())
    copy = np.empty_like(words)
    copying.assign(copy, words.T)
    assert (copy == "word").all()


def test_few_bands_of_a_pixel_are_copied_plainly(monkeypatch):
    """Tiles would cost several times as much where a cache line holds several pixels."""
    monkeypatch.setattr(copying, "tile_shape", lambda *_: pytest.fail("cut into tiles"))
    source = field((256, 256, 4), ">u2").transpose(2, 0, 1)
    out = np.zeros(source.shape, "u2")
    copying.assign(out, source)
    assert np.array_equal(out, source)
