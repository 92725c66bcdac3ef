"""Chunk grids, checked against plain numpy indexing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.model import grid

MANY = 200


@st.composite
def arrays(draw, min_side=0):
    """Draw a shape of up to four axes, and a chunk shape that may be larger than the array."""
    ndim = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(min_side, 9)) for _ in range(ndim))
    chunk = tuple(draw(st.integers(1, 11)) for _ in range(ndim))
    return shape, chunk


@st.composite
def boxes(draw):
    """Draw an array and a box inside it, which may be empty."""
    shape, chunk = draw(arrays())
    start = tuple(draw(st.integers(0, n)) for n in shape)
    stop = tuple(draw(st.integers(a, n)) for a, n in zip(start, shape, strict=True))
    return shape, chunk, start, stop


def counted(shape):
    return np.arange(math.prod(shape)).reshape(shape)


def chunk_data(array, chunk, coords):
    """Return a whole chunk, -1 outside the array."""
    data = np.full(chunk, -1)
    part = array[grid.chunk_box(coords, chunk, array.shape)]
    data[tuple(slice(n) for n in part.shape)] = part
    return data


def sliced(start, stop):
    return tuple(slice(a, b) for a, b in zip(start, stop, strict=True))


@given(arrays())
@settings(max_examples=MANY, deadline=None)
def test_chunks_cover_every_element_once(case):
    shape, chunk = case
    seen = np.zeros(shape, int)
    size = grid.grid_shape(shape, chunk)
    for coords in itertools.product(*map(range, size)):
        box = grid.chunk_box(coords, chunk, shape)
        assert all(0 < s.stop - s.start <= n for s, n in zip(box, chunk, strict=True))
        seen[box] += 1
    assert (seen == 1).all()


@given(arrays(min_side=1))
@settings(max_examples=MANY, deadline=None)
def test_numbers_coordinates_and_keys_round_trip(case):
    shape, chunk = case
    size = grid.grid_shape(shape, chunk)
    every = list(itertools.product(*map(range, size)))
    assert [grid.chunk_number(coords, size) for coords in every] == list(range(len(every)))
    assert [grid.chunk_coords(number, size) for number in range(len(every))] == every
    texts = []
    for path, coords in itertools.product(("", "a", "a/c/b"), every):
        found, text = grid.split_key(grid.chunk_key(path, coords))
        assert (found, grid.parse_coords(text, size)) == (path, coords)
        texts.append(text)
    expected = [n for _ in range(3) for n in range(len(every))]
    assert grid.parse_many_coords(texts, size).tolist() == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("c/1/0", ("", "1/0")),
        ("a/b/c/7", ("a/b", "7")),
        ("a/c/c/7", ("a/c", "7")),
        ("c", ("", "")),
        ("a/c", ("a", "")),
        ("c/c", ("c", "")),
        ("c/0/scalar/c", ("c/0/scalar", "")),
        ("zarr.json", None),
        ("a/abc", None),
        ("ac/zarr.json", None),
        ("", None),
    ],
)
def test_split_key(key, expected):
    assert grid.split_key(key) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/2/3", "01/0", "-1/0", "1/", "/1", "2/0", "0/3", "1 /0", "+1/0", "¹/0", "0/٢"],
)
def test_coordinates_outside_the_grid_are_none(text):
    assert grid.parse_coords(text, (2, 3)) is None
    assert grid.parse_coords("9" * 5000 + "/0", (2, 3)) is None


@given(boxes())
@settings(max_examples=MANY, deadline=None)
def test_cut_box_reads_as_numpy_does(case):
    shape, chunk, start, stop = case
    array = counted(shape)
    expected = array[sliced(start, stop)]
    out = np.full(expected.shape, -2)
    touched = []
    for coords, piece in grid.cut_box(start, stop, chunk_shape=chunk, shape=shape):
        taken = chunk_data(array, chunk, coords)[piece.source]
        inside = array[grid.chunk_box(coords, chunk, shape)]
        assert piece.is_whole == (taken.shape == inside.shape)
        out[piece.target] = taken
        touched.append(coords)
    np.testing.assert_array_equal(out, expected)
    if expected.size:
        # exactly the chunks with an element in the box, each once, in C order
        marked = np.zeros(shape, bool)
        marked[sliced(start, stop)] = True
        size = grid.grid_shape(shape, chunk)
        assert touched == [
            coords
            for coords in itertools.product(*map(range, size))
            if marked[grid.chunk_box(coords, chunk, shape)].any()
        ]
        part = grid.touched_grid(start, stop, chunk)
        assert touched == list(itertools.product(*(range(s.start, s.stop) for s in part)))


@pytest.mark.parametrize("few", [1, 16, 10**6])
@given(case=boxes())
@settings(max_examples=MANY, deadline=None)
def test_plan_box_reads_as_numpy_does(case, few):
    shape, chunk, start, stop = case
    array = counted(shape)
    expected = array[sliced(start, stop)]
    size = grid.grid_shape(shape, chunk)
    with pytest.MonkeyPatch.context() as patch:
        # both ways of enumerating chunks, whatever their number
        patch.setattr(grid, "FEW", few)
        plan = grid.plan_box(list(zip(start, stop, strict=True)), chunk)
        numbers = [int(n) for n in plan.numbers(size)]
        places = list(plan.places(range(len(plan))))
        middle = len(plan) // 2
        halves = [range(middle), range(middle, len(plan))]
        assert [p for half in halves for p in plan.places(half)] == places
    assert len(numbers) == len(places) == len(plan)
    out = np.full(expected.shape, -2)
    for number, (source, target) in zip(numbers, places, strict=True):
        data = chunk_data(array, chunk, grid.chunk_coords(number, size))
        out[target] = data[source]
    np.testing.assert_array_equal(out, expected)
    if expected.size:
        assert numbers == sorted(set(numbers))
    else:
        assert numbers == []


@given(data=st.data(), case=arrays())
@settings(max_examples=MANY, deadline=None)
def test_spans_are_those_of_numpy(data, case):
    shape, _ = case
    axis = st.one_of(
        st.integers(-10, 10),
        st.slices(10),
        st.builds(slice, *[st.none() | st.integers(-12, 12)] * 2),
        st.just(Ellipsis),
    )
    selection = tuple(data.draw(st.lists(axis, max_size=5)))
    found = grid.spans(selection, shape)
    array = counted(shape)
    try:
        expected = array[selection]
    except IndexError:
        # numpy's complaint is zarr's to make
        assert found is None
        return
    if found is None:
        assert any(isinstance(part, slice) and part.step not in (None, 1) for part in selection)
        return
    spans, dropped = found
    box = array[tuple(slice(a, b) for a, b in spans)]
    np.testing.assert_array_equal(np.squeeze(box, axis=dropped), expected)


@pytest.mark.parametrize(
    "selection",
    [
        [1, 2],
        (np.array([True, False, True]),),
        (np.int64(1),),
        (True,),
        (None,),
        (slice(None, None, 2),),
        (slice(None, None, -1),),
        (Ellipsis, Ellipsis),
        (0, 0, 0),
        "name",
    ],
    ids=repr,
)
def test_other_selections_are_left_to_zarr(selection):
    assert grid.spans(selection, (3, 4)) is None


def test_an_array_without_axes_has_one_chunk():
    assert grid.grid_shape((), ()) == ()
    assert list(grid.touched_chunks((), (), ())) == [()]
    assert grid.chunk_key("a", ()) == "a/c"
    assert grid.parse_coords("", ()) == ()
    assert grid.parse_many_coords(["", ""], ()).tolist() == [0, 0]
    assert grid.spans((), ()) == ([], ())
    plan = grid.plan_box([], ())
    assert (len(plan), list(plan.numbers(())), list(plan.places(range(1)))) == (1, [0], [((), ())])
