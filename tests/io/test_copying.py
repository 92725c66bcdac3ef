import itertools

import numpy as np
import pytest

from anychunk.io import copying
from anychunk.native import loops
from tests.support.compiled import needs_compiled


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


@needs_compiled
@pytest.mark.parametrize("best", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["u1", "i1", "?", "<u2", ">u2", ">i2", "<f2"])
@pytest.mark.parametrize("bands", [2, 3, 4])
def test_bands_are_separated_as_numpy_does(bands, dtype, best):
    """Widths around whole groups of 8, 16 and 32 pixels, and no byte beside them."""
    for width in (2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 129):
        array = np.moveaxis(field((3, width, bands), "u1").astype(dtype), -1, 0)
        room = np.full((bands + 1, 5, width + 9), 77).astype(np.dtype(dtype).newbyteorder("="))
        expected = room.copy()
        place = (slice(bands), slice(1, 4), slice(4, 4 + width))
        expected[place] = array
        assert loops.separate_bands(array, room[place], not array.dtype.isnative, best)
        assert room.tobytes() == expected.tobytes()


@needs_compiled
def test_other_copies_are_not_taken_for_bands():
    plain = np.zeros((3, 40, 50), "u1")
    others = [
        plain,
        plain.transpose(0, 2, 1),
        np.moveaxis(np.zeros((40, 50, 5), "u1"), -1, 0),
        np.moveaxis(np.zeros((40, 50, 3), "u4"), -1, 0),
        np.moveaxis(np.zeros((40, 50, 4), "u1")[..., :3], -1, 0),
        np.moveaxis(np.zeros((40, 50, 3), "u1")[:, ::2], -1, 0),
        np.moveaxis(np.zeros((40, 50, 3), "u1")[:, :, ::-1], -1, 0),
        np.moveaxis(np.zeros((0, 50, 3), "u1"), -1, 0),
    ]
    for array in others:
        assert not loops.separate_bands(array, np.empty(array.shape, array.dtype), False)
    three = np.moveaxis(np.zeros((40, 50, 3), "u1"), -1, 0)
    assert not loops.separate_bands(three, np.empty((3, 40, 49), "u1"), False)
    assert not loops.separate_bands(three, np.empty((3, 40, 50), "u2"), False)
    with pytest.raises((BufferError, ValueError)):
        loops.separate_bands(three, b"constant", False)


@needs_compiled
@pytest.mark.parametrize("dtype", ["u1", ">u2", "<i2", "?"])
@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3)])
def test_the_compiled_loop_is_used_for_bands(dtype, lead, monkeypatch):
    called = []

    class Spy:
        def separate_bands(self, *arguments):
            called.append(loops.separate_bands(*arguments))
            return called[-1]

        def place_rows(self, *arguments):
            called.append(loops.place_rows(*arguments))
            return called[-1]

    monkeypatch.setattr(copying, "loops", Spy())
    source = np.moveaxis(field((*lead, 30, 40, 3), dtype), -1, -3)
    out = np.zeros(source.shape, np.dtype(dtype).newbyteorder("="))
    copying.assign(out, source)
    assert called == [True]
    assert np.array_equal(out, source)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<u8", ">i4", "u1", "<f2"])
def test_bands_of_any_size(dtype):
    pixels = field((30, 41, 3), dtype)
    for source in (np.moveaxis(pixels, -1, 0), np.moveaxis(pixels, -1, 0)[None]):
        room = np.full((*source.shape[:-1], 50), 9).astype(np.dtype(dtype).newbyteorder("="))
        copying.assign(room[..., 3:44], source)
        assert np.array_equal(room[..., 3:44], source)
        assert (room[..., :3] == 9).all()
        assert (room[..., 44:] == 9).all()


def test_bands_copied_within_one_array():
    memory = field((64, 64, 3), "u1")
    expected = np.moveaxis(memory.copy(), -1, 0)
    copying.assign(memory.reshape(3, 64, 64), np.moveaxis(memory, -1, 0))
    assert np.array_equal(memory.reshape(3, 64, 64), expected)
