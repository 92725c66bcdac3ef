import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from anychunk import resample as ds
from anychunk.decode.computed import shrink
from anychunk.errors import UnsupportedError

RNG = np.random.default_rng(3)
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def windows(array, ratio):
    """Yield every window, cut the slow and obvious way."""
    ratio = [min(r, n) for r, n in zip(ratio, array.shape, strict=True)]
    shape = [max(1, n // r) for n, r in zip(array.shape, ratio, strict=True)]
    for index in np.ndindex(*shape):
        yield (
            index,
            array[tuple(slice(i * r, i * r + r) for i, r in zip(index, ratio, strict=True))],
        )


def brute(array, ratio, pick):
    found = dict(windows(array, ratio))
    out = np.empty([max(i) + 1 for i in zip(*found, strict=True)], array.dtype)
    for index, window in found.items():
        out[index] = pick(window)
    return out


def exact_mean(window):
    """Python's round of a fraction is half to even, whatever the size of the numbers."""
    return round(Fraction(sum(int(v) for v in window.flat), window.size))


def smallest_mode(window):
    values, counts = np.unique(window, return_counts=True)
    return values[counts.argmax()]


SHAPES = [
    ((13,), (2,)),
    ((9, 7), (2, 3)),
    ((6, 5, 8), (1, 2, 4)),
    ((3, 4), (4, 8)),
    ((5, 4, 3, 2), (2, 2, 2, 2)),
]


@pytest.mark.parametrize(("shape", "ratio"), SHAPES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_average_of_integers_is_the_exact_mean(dtype, shape, ratio):
    bounds = np.iinfo(dtype)
    array = RNG.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)
    np.testing.assert_array_equal(
        ds.downsample(array, ratio, "average"), brute(array, ratio, exact_mean)
    )


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("end", ["min", "max"])
def test_average_never_overflows(dtype, end):
    value = getattr(np.iinfo(dtype), end)
    array = np.full((64, 64), value, dtype)
    assert (ds.downsample(array, (64, 64)) == value).all()


def test_average_rounds_half_to_even():
    array = np.array([0, 1, 1, 2, 2, 3, -1, 0, -2, -1], np.int16)
    np.testing.assert_array_equal(ds.downsample(array, (2,)), [0, 2, 2, 0, -2])
    thirds = np.array([0, 0, 1, 0, 1, 1], np.uint8)
    np.testing.assert_array_equal(ds.downsample(thirds, (3,)), [0, 1])


@pytest.mark.parametrize(("shape", "ratio"), SHAPES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_average_of_floats(dtype, shape, ratio):
    array = RNG.normal(size=shape).astype(dtype)
    expected = brute(array, ratio, lambda w: w.astype("c16" if dtype[0] == "c" else "f8").mean())
    # one unit in the last place of the type, for sums in another order
    np.testing.assert_allclose(
        ds.downsample(array, ratio),
        expected,
        rtol=2 * np.finfo(dtype).eps,
        atol=2 * np.finfo(dtype).eps,
    )


def test_average_of_large_floats_is_finite():
    array = np.full(8, np.finfo("f8").max)
    assert np.isfinite(ds.downsample(array, (8,))).all()


@pytest.mark.parametrize(("shape", "ratio"), SHAPES)
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "u8"])
@pytest.mark.parametrize("method", ["max", "min", "mode"])
def test_max_min_and_mode(method, dtype, shape, ratio):
    array = RNG.integers(0, 5, shape).astype(dtype)
    pick = {"max": np.max, "min": np.min, "mode": smallest_mode}[method]
    np.testing.assert_array_equal(ds.downsample(array, ratio, method), brute(array, ratio, pick))


def weights(method, ratio, size, output):
    """Give {place: weight} along one axis from the definitions."""
    centre = output * ratio + (ratio - 1) / 2
    found = {}
    for place in range(size):
        at = place - centre
        if ratio == 1:
            value = float(place == output)
        elif method == "gaussian":
            sigma = ratio / 2
            value = math.exp(-(at**2) / (2 * sigma**2)) if abs(at) <= 3 * sigma else 0.0
        else:
            x = at / ratio
            value = float(np.sinc(x) * np.sinc(x / 3)) if abs(x) <= 3 else 0.0
        if value:
            found[place] = value
    total = sum(found.values())
    return {place: value / total for place, value in found.items()}


@pytest.mark.parametrize("method", ["gaussian", "lanczos"])
@pytest.mark.parametrize(
    ("shape", "ratio"), [((13,), (2,)), ((9, 11), (2, 3)), ((8, 6, 5), (4, 1, 2)), ((3, 9), (4, 2))]
)
def test_kernels_are_their_definition(method, shape, ratio):
    array = RNG.normal(size=shape)
    ratio = tuple(min(r, n) for r, n in zip(ratio, shape, strict=True))
    expected = np.empty([max(1, n // r) for n, r in zip(shape, ratio, strict=True)])
    for index in np.ndindex(expected.shape):
        axes = [weights(method, r, n, i) for r, n, i in zip(ratio, shape, index, strict=True)]
        expected[index] = sum(
            array[place] * math.prod(axis[p] for axis, p in zip(axes, place, strict=True))
            for place in itertools.product(*axes)
        )
    np.testing.assert_allclose(
        ds.downsample(array, ratio, method), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_kernels_keep_to_the_range_of_integers(dtype):
    bounds = np.iinfo(dtype)
    # lanczos overshoots beside a step
    array = np.full(64, bounds.min, dtype)
    array[32:] = bounds.max
    made = ds.downsample(array, (2,), "lanczos")
    assert made.dtype == array.dtype
    assert made[0] == bounds.min
    assert made[-1] == bounds.max
    assert (np.diff(made[:8].astype(float)) >= 0).all()


@given(
    array=hnp.arrays(
        st.sampled_from(["u1", "i4"]), hnp.array_shapes(min_dims=1, max_dims=3, max_side=12)
    ),
    ratios=st.tuples(*[st.integers(1, 5)] * 3),
    method=st.sampled_from(ds.METHODS),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_piece_is_a_piece_of_the_whole(array, ratios, method, data):
    ratio = ratios[: array.ndim]
    whole = ds.downsample(array, ratio, method)
    start = tuple(data.draw(st.integers(0, n - 1)) for n in whole.shape)
    stop = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(start, whole.shape, strict=True))
    asked = []

    def read(low, high):
        asked.append((low, high))
        return array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]

    found = shrink(
        read,
        start=start,
        stop=stop,
        ratio=ratio,
        shape=array.shape,
        method=method,
        itemsize=1 << 21,
    )
    np.testing.assert_array_equal(
        found, whole[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]
    )
    # pieces of the source are bounded, unless one element needs more
    assert len(asked) >= 1


def test_unknown_method_is_refused():
    with pytest.raises(UnsupportedError, match="'median'.* average gaussian lanczos"):
        ds.downsample(np.zeros(4), (2,), "median")
    with pytest.raises(UnsupportedError, match="V3"):
        ds.downsample(np.zeros(4, "V3"), (2,), "average")


def exact_valid_mean(nodata):
    def pick(window):
        values = [int(v) for v in window.flat if v != nodata]
        return round(Fraction(sum(values), len(values))) if values else nodata

    return pick


@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_average_of_what_is_valid_is_exact(dtype, end):
    bounds = np.iinfo(dtype)
    near = bounds.max - 7 if end == "max" else bounds.min
    array = (RNG.integers(0, 7, (12, 18)).astype(dtype) + np.asarray(near, dtype)).astype(dtype)
    for nodata in (int(array[0, 0]), bounds.max, bounds.min):
        array[RNG.random(array.shape) < 0.4] = nodata
        np.testing.assert_array_equal(
            ds.by_window(array, (2, 3), "average", nodata),
            brute(array, (2, 3), exact_valid_mean(nodata)),
        )


@pytest.mark.parametrize("nodata", [-9999.0, math.nan, math.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_largest_and_smallest_of_what_is_valid(dtype, nodata):
    array = np.array([-np.inf, nodata, 3, nodata, nodata, nodata, 1, 2], dtype)
    missing = array[1]
    np.testing.assert_array_equal(
        ds.by_window(array, (2,), "max", nodata), np.array([-np.inf, 3, missing, 2], dtype)
    )
    np.testing.assert_array_equal(
        ds.by_window(-array, (2,), "min", -nodata), np.array([np.inf, -3, -missing, -2], dtype)
    )


def test_truth_values_are_rounded_too():
    array = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0], bool)
    assert ds.downsample(array, (4,)).tolist() == [False, False, True]
    line = np.zeros(40, bool)
    line[10] = True
    # a weight is never half of all: rounded, nothing is left of a single element
    assert not ds.downsample(line, (4,), "gaussian").any()
    assert not ds.downsample(line, (4,), "lanczos").any()
    assert ds.downsample(~line, (4,), "lanczos").all()


@pytest.mark.parametrize("method", ds.METHODS)
def test_an_axis_without_elements(method):
    assert ds.downsample(np.zeros((0, 5), "u2"), (2, 2), method).shape == (0, 2)
    assert ds.downsample(np.zeros((4, 0, 3)), (2, 2, 1), method).shape == (2, 0, 3)


@pytest.mark.parametrize("ratio", [(0, 2), (2,), (-1, 2), (2, 2, 2)])
def test_ratios_that_are_none(ratio):
    with pytest.raises(UnsupportedError, match="2 axes"):
        ds.downsample(np.zeros((4, 4)), ratio)


@pytest.mark.parametrize("method", ["average", "gaussian", "lanczos"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_infinities_that_cancel_are_no_number(dtype, method):
    assert np.isnan(ds.downsample(np.array([np.inf, -np.inf], dtype), (2,), method)).all()
