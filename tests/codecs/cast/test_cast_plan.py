"""Casts between every two types, in every mode, against exact arithmetic."""

import itertools
import math
import random
import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.codecs.cast import blockwise
from anychunk.codecs.cast.blockwise import GOOD, BadValueError, Scratch
from anychunk.codecs.cast.cast_plan import plan
from anychunk.codecs.cast.from_float import MODES
from anychunk.codecs.cast.number_types import (
    BY_NAME,
    IntType,
    code_values,
    has_unused_bits,
    number_type,
    used_bits,
)
from tests.support import exact_cast

NAMES = [*exact_cast.INTS, *exact_cast.FLOATS]
RULES = (None, "clamp", "wrap")


def edge_doubles():
    """Values around what other types can and cannot hold: halves, limits, subnormal numbers."""
    for name in exact_cast.FLOATS:
        kind = BY_NAME[name]
        smallest = 2.0**kind.spacing_exponent if kind.is_signed else kind.low
        for base in (kind.high, smallest, 2.0 ** max(kind.min_exponent, -1022)):
            ulp = 2.0 ** (math.frexp(base)[1] - kind.precision)
            for steps in (0, 0.5, 1.5, -0.5, 0.75):
                near = base + steps * ulp
                yield from (near, math.nextafter(near, math.inf), math.nextafter(near, 0))
    for low, high in exact_cast.INTS.values():
        for bound in (low, high):
            yield from (bound - 1, bound - 0.5, bound, bound + 0.5, bound + 1, bound * 4097.0)
    yield from (0.5, 1.5, 2.5, 0.49999999999999994, 2.0**53 + 2, 2.0**65 + 2**13, 1e300)


def stored_samples(name):
    """Bits of values worth trying, as the array that a step gets."""
    kind = BY_NAME[name]
    if kind.stored.itemsize == 1:
        # codes in use, and some with bits set that say nothing
        codes = np.arange(256, dtype=np.uint8)
        is_used = codes == codes & used_bits(kind) if has_unused_bits(kind) else codes < 256
        return codes[is_used | (codes % 29 == 28)].view(kind.stored)
    bits = 8 * kind.stored.itemsize
    rng = random.Random(name)
    found = {0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1}
    found |= {rng.getrandbits(bits) for _ in range(20)}
    if isinstance(kind, IntType):
        near = [(1 << e) + d for e in range(bits) for d in (-1, 0, 1)] + [5 << 50, 3 << 39, 3 << 54]
        found |= {sign * n % (1 << bits) for n in near for sign in (1, -1)}
        return np.array(sorted(found), f"u{bits // 8}").view(kind.stored)
    with np.errstate(all="ignore"):
        doubles = np.array([sign * v for v in edge_doubles() for sign in (1, -1)])
        wide = doubles.astype(np.float32) if kind.is_foreign else doubles
        edges = wide.astype(kind.dtype).view(kind.bits)
    random_bits = np.array(sorted(found), kind.bits)
    edges = np.unique(edges)
    every = max(1, edges.size // 60)  # a deterministic sample; the specials are in `random_bits`
    return np.unique(np.concatenate([random_bits, edges[::every]])).view(kind.stored)


def numbers(stored, name):
    """The Python numbers of stored values, by a way that is not the one under test."""
    kind = BY_NAME[name]
    if kind.is_foreign and kind.stored.itemsize == 1:
        return code_values(kind)[stored.view(np.uint8)].tolist()
    array = stored.view(kind.dtype)
    return array.tolist() if not kind.is_foreign else array.astype(np.float64).tolist()


def exact(number):
    return number if isinstance(number, float) and not math.isfinite(number) else Fraction(number)


def is_same(found, expected):
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return exact(found) == expected


def apply(step, stored, target):
    out = np.empty(stored.size, BY_NAME[target].stored)
    with np.errstate(all="ignore"):
        bad = step(stored, out, Scratch())
    return bad, out


@pytest.mark.parametrize("source", NAMES)
def test_every_pair_mode_and_rule(source):
    everything = stored_samples(source)
    turns = max(1, everything.size // 64)
    for turn, (target, mode, rule) in enumerate(itertools.product(NAMES, MODES, RULES)):
        if rule == "wrap" and target in exact_cast.FLOATS:
            continue
        # many values take turns: each meets most combinations, and every combination many values
        stored = everything[turn % turns :: turns]
        values = numbers(stored, source)
        step = plan(BY_NAME[source], BY_NAME[target], rounding=mode, out_of_range=rule)
        expected = [exact_cast.cast(exact(v), target, mode, rule) for v in values]
        has_result = np.array([e is not exact_cast.ERROR for e in expected])
        where = (source, target, mode, rule)
        good = stored[has_result]
        bad, out = apply(step, good, target) if good.size else (GOOD, good)
        assert bad == GOOD, (where, values[bad])
        wanted = [e for e in expected if e is not exact_cast.ERROR]
        pairs = zip(numbers(out, target) if good.size else [], wanted, strict=True)
        assert not [pair for pair in pairs if not is_same(*pair)], where
        for index in np.flatnonzero(~has_result)[:5]:
            assert apply(step, stored[index : index + 1], target)[0] == 0, (where, values[index])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "target", ["float32", "float16", "bfloat16", "float8_e5m2", "float4_e2m1fn"]
)
def test_signed_zero_survives(target, mode):
    for source in ("float64", "float32", "float16"):
        values = np.array([-0.0, 0.0, -np.finfo(source).smallest_subnormal], source)
        step = plan(BY_NAME[source], BY_NAME[target], rounding=mode)
        bad, out = apply(step, values, target)
        assert bad == GOOD
        back = out.view(BY_NAME[target].dtype).astype(np.float64)
        assert np.signbit(back).tolist() == [True, False, True]


def test_infinities_stay_between_floats_in_every_mode():
    values = np.array([np.inf, -np.inf, 1.0, np.nan])
    for mode, target in itertools.product(MODES, ("float32", "float16", "bfloat16", "float8_e5m2")):
        bad, out = apply(plan(BY_NAME["float64"], BY_NAME[target], rounding=mode), values, target)
        assert bad == GOOD
        np.testing.assert_array_equal(out.view(BY_NAME[target].dtype).astype("f8"), values)


@settings(max_examples=300, deadline=None)
@given(
    value=st.floats(width=64),
    target=st.sampled_from(NAMES),
    mode=st.sampled_from(MODES),
    rule=st.sampled_from(RULES),
)
def test_any_double(value, target, mode, rule):
    if rule == "wrap" and target in exact_cast.FLOATS:
        rule = None
    expected = exact_cast.cast(exact(value), target, mode, rule)
    step = plan(BY_NAME["float64"], BY_NAME[target], rounding=mode, out_of_range=rule)
    bad, out = apply(step, np.array([value]), target)
    assert (bad == 0) == (expected is exact_cast.ERROR)
    if bad == GOOD:
        assert is_same(numbers(out, target)[0], expected)


@settings(max_examples=300, deadline=None)
@given(
    value=st.integers(-(2**63), 2**64 - 1),
    target=st.sampled_from(NAMES),
    mode=st.sampled_from(MODES),
    rule=st.sampled_from(RULES),
)
def test_any_long_integer(value, target, mode, rule):
    if rule == "wrap" and target in exact_cast.FLOATS:
        rule = None
    source = "int64" if value < 2**63 else "uint64"
    expected = exact_cast.cast(Fraction(value), target, mode, rule)
    step = plan(BY_NAME[source], BY_NAME[target], rounding=mode, out_of_range=rule)
    bad, out = apply(step, np.array([value], source), target)
    assert (bad == 0) == (expected is exact_cast.ERROR)
    if bad == GOOD:
        assert is_same(numbers(out, target)[0], expected)


@pytest.mark.parametrize("target", ["float8_e4m3", "float8_e5m2", "bfloat16", "float6_e3m2fn"])
def test_nearest_even_agrees_with_ml_dtypes(target):
    kind = BY_NAME[target]
    values = np.random.default_rng(0).normal(size=4000).astype(np.float32) * 3
    bad, out = apply(plan(BY_NAME["float32"], kind), values, target)
    assert bad == GOOD
    expected = values.astype(getattr(ml_dtypes, target)).view(kind.bits)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("order", ["C", "F", "strided", "swapped", "transposed"])
def test_any_layout_gives_the_same_values(order):
    values = np.random.default_rng(1).normal(scale=500, size=(70, 30, 40))
    views = {
        "C": values,
        "F": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=1)[:, ::2],
        "swapped": values.astype(">f8"),
        "transposed": np.ascontiguousarray(values.transpose(2, 0, 1)).transpose(1, 2, 0),
    }
    kinds = number_type(values.dtype), BY_NAME["int16"]
    out = blockwise.run(plan(*kinds), views[order], *kinds, np.dtype(">i2"))
    assert out.dtype == np.dtype(">i2")
    np.testing.assert_array_equal(out, np.rint(values).astype("i2"))


def test_first_bad_value_is_the_first_in_c_order():
    values = np.zeros((300, 300))
    values[7, 200] = values[250, 3] = 1e9
    kinds = BY_NAME["float64"], BY_NAME["int16"]
    for view in (values, np.asfortranarray(values), values.astype(">f8")):
        with pytest.raises(BadValueError) as error:
            blockwise.run(plan(*kinds), view, *kinds, np.dtype("i2"))
        assert error.value.index == (7, 200)


@pytest.mark.parametrize("count", [0, 1, 40, 5000, 9999, 10000])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
def test_put_writes_exactly_the_mask(count, dtype):
    out = np.arange(10000).astype(dtype)
    mask = np.zeros(10000, bool)
    mask[np.random.default_rng(2).permutation(10000)[:count]] = True
    expected = out.copy()
    expected[mask] = 77
    blockwise.put(out, mask, np.array(77, dtype), Scratch())
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float64", "uint16"), ("float32", "float16"), ("float32", "bfloat16"),
        ("float32", "int32"), ("int64", "float32"), ("int64", "float64"), ("int32", "float8_e5m2"), ("bfloat16", "int8"),
    ],
)  # fmt: skip
def test_memory_beyond_input_and_output_is_bounded(source, target, mode):
    kinds = BY_NAME[source], BY_NAME[target]
    values = np.resize(np.arange(100), 1 << 20).astype(kinds[0].dtype)
    step = plan(*kinds, rounding=mode)
    blockwise.run(step, values, *kinds, kinds[1].dtype)
    tracemalloc.start()
    out = blockwise.run(step, values, *kinds, kinds[1].dtype)
    extra = tracemalloc.get_traced_memory()[1] - out.nbytes
    tracemalloc.stop()
    assert extra <= 1 << 20
