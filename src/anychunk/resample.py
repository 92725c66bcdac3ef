"""Smaller versions of an array: six methods, any number of axes, integer ratios.

An output element stands for the `ratio` elements of its window along each axis; a rest at the end
that fills no window is dropped, and an axis shorter than its ratio is one window. `average`, `max`,
`min` and `mode` look at the window alone. `gaussian` (sigma = ratio / 2, cut at 3 sigma) and
`lanczos` (a = 3) weigh its neighbourhood too, centred on the window and normalised to what lies
inside the array; an axis of ratio 1 is left as it is. Integers are exact in `average`, and every
method rounds half to even and keeps to the range of the type.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from anychunk.errors import UnsupportedError
from anychunk.model.grid import Shape

type Array = npt.NDArray[Any]
type Method = Literal["average", "gaussian", "lanczos", "max", "min", "mode"]

METHODS: tuple[str, ...] = get_args(Method.__value__)
BY_WINDOW = ("average", "max", "min", "mode")
"""Methods that need nothing beyond the window."""


def check_method(method: str) -> None:
    if method not in METHODS:
        raise UnsupportedError(f"downsample: method {method!r}, known: {' '.join(METHODS)}")


def check_ratio(shape: Shape, ratio: Sequence[int]) -> None:
    if len(ratio) != len(shape) or any(r < 1 for r in ratio):
        raise UnsupportedError(
            f"downsample: ratio {tuple(ratio)} for an array of {len(shape)} axes; "
            "expected a number from 1 on for each"
        )


def output_shape(shape: Shape, ratio: Shape) -> Shape:
    """Give how many windows there are along each axis: none along one without elements."""
    return tuple(max(min(n, 1), n // r) for n, r in zip(shape, ratio, strict=True))


def clip_ratio(shape: Shape, ratio: Shape) -> Shape:
    """Shorten windows that are longer than their axis."""
    return tuple(max(1, min(n, r)) for n, r in zip(shape, ratio, strict=True))


def taps(ratio: int, method: str) -> tuple[int, Array]:
    """Give the first offset, relative to the window's start, and the weights of a kernel."""
    centre = (ratio - 1) / 2
    reach = 1.5 * ratio if method == "gaussian" else 3.0 * ratio
    if ratio == 1 or method in BY_WINDOW:
        return 0, np.ones(ratio)
    first, last = math.ceil(centre - reach), math.floor(centre + reach)
    at = (np.arange(first, last + 1) - centre) / ratio
    if method == "gaussian":
        return first, np.exp(-2.0 * at * at)  # sigma is half a window: at / 0.5, squared, halved
    return first, np.sinc(at) * np.sinc(at / 3)


def source_range(start: int, stop: int, *, ratio: int, size: int, method: str) -> tuple[int, int]:
    """Give the range along an axis of `size` that outputs `start` to `stop` are computed from."""
    first, weights = taps(ratio, method)
    return max(0, start * ratio + first), min(size, (stop - 1) * ratio + first + len(weights))


def downsample(array: Array, ratio: Sequence[int], method: str = "average") -> Array:
    """Make the whole smaller array."""
    check_method(method)
    check_ratio(array.shape, ratio)
    clipped = clip_ratio(array.shape, tuple(ratio))
    shape = output_shape(array.shape, clipped)
    origin = (0,) * array.ndim
    return downsample_region(
        array, at=origin, start=origin, stop=shape, ratio=clipped, shape=array.shape, method=method
    )


def downsample_region(
    source: Array,
    *,
    at: Shape,
    start: Shape,
    stop: Shape,
    ratio: Shape,
    shape: Shape,
    method: str,
) -> Array:
    """Make outputs `start` to `stop` from `source`, the piece `at` of an array of `shape`.

    The piece must cover `source_range` along each axis, and `ratio` be no longer than the shape.
    """
    check_method(method)
    if source.dtype.kind == "V" and source.dtype.name != "bfloat16":
        raise UnsupportedError(f"downsample: {source.dtype} has no order and no mean")
    if method in BY_WINDOW:
        begin = [s * r - a for s, r, a in zip(start, ratio, at, strict=True)]
        end = [e * r - a for e, r, a in zip(stop, ratio, at, strict=True)]
        window = source[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
        return by_window(window, ratio, method)
    return by_kernel(source, at=at, start=start, stop=stop, ratio=ratio, shape=shape, method=method)


def by_window(array: Array, ratio: Shape, method: str, nodata: float | None = None) -> Array:
    """Reduce windows that lie side by side; the shape is a multiple of the ratio.

    Elements that equal `nodata` have no say in `average`, `max` and `min`.
    """
    if nodata is not None and method != "mode":
        value = np.asarray(nodata).astype(array.dtype)
        is_valid = ~np.isnan(array) if np.isnan(nodata) else array != value
        if not is_valid.all():
            return _of_valid(array, is_valid, value, ratio, method)
    match method:
        case "average":
            return mean(window_sums(array, ratio), math.prod(ratio), array.dtype)
        case "max" | "min":
            pick = np.maximum if method == "max" else np.minimum
            for axis, r in enumerate(ratio):
                pieces = strided(array, axis, r)
                array = pieces[0]
                for piece in pieces[1:]:
                    array = pick(array, piece)
            return np.ascontiguousarray(array)
    return most_common(array, ratio)


def _of_valid(array: Array, is_valid: Array, value: Array, ratio: Shape, method: str) -> Array:
    """Reduce the valid elements of each window; `value` where there are none."""
    counts = add_up(is_valid, ratio, np.dtype(np.int64))
    if method == "average":
        sums = window_sums(np.where(is_valid, array, array.dtype.type(0)), ratio)
        # of the same type: numpy has no integers that hold both signed and unsigned ones
        divisors = np.maximum(counts, 1).astype(sums.dtype)
        reduced = mean(sums, divisors, array.dtype)
    else:
        last = _extremes(array.dtype)[0 if method == "max" else 1]
        reduced = by_window(np.where(is_valid, array, last), ratio, method)
    return np.where(counts > 0, reduced, value)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Give values of a type that are no larger, and no smaller, than any other."""
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)
    return dtype.type(-np.inf), dtype.type(np.inf)


def strided(array: Array, axis: int, ratio: int) -> list[Array]:
    """Give every `ratio`-th element, from each of the first `ratio` on."""
    before = (slice(None),) * axis
    return [array[(*before, slice(i, None, ratio))] for i in range(ratio)]


def sum_dtype(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Give a type in which `count` values add up exactly, or as exactly as floats can."""
    if dtype.kind == "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.clongdouble)
    if dtype.kind not in "iu":
        return np.dtype(np.longdouble if dtype.itemsize == 8 else np.float64)
    if dtype.itemsize <= 2 and count <= 1 << (31 - 8 * dtype.itemsize):
        return np.dtype(f"{dtype.kind}4")
    return np.dtype(f"{dtype.kind}8")


def window_sums(array: Array, ratio: Shape) -> Array:
    """Add up windows. Sums of 64-bit integers come as two halves in a new first axis."""
    kind = sum_dtype(array.dtype, math.prod(ratio))
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        low = (array & np.array(0xFFFFFFFF, array.dtype)).astype(kind)
        high = (array >> np.array(32, array.dtype)).astype(kind)
        return np.stack([add_up(high, ratio, kind), add_up(low, ratio, kind)])
    return add_up(array, ratio, kind)


def add_up(array: Array, ratio: Shape, dtype: np.dtype[Any]) -> Array:
    """Add windows axis by axis, the slowest first: there the pieces are contiguous."""
    for axis, r in enumerate(ratio):
        if r == 1:
            continue
        pieces = strided(array, axis, r)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add(pieces[0], pieces[1], dtype=dtype)
            for piece in pieces[2:]:
                np.add(total, piece, out=total)
        array = total
    return array.astype(dtype, copy=False)


def mean(sums: Array, count: int | Array, dtype: np.dtype[Any]) -> Array:
    """Divide sums of `count` values, one number for all or one each; half goes to even."""
    if dtype.kind == "b":
        return np.rint(sums / count).astype(dtype)
    if dtype.kind not in "iu":
        with np.errstate(over="ignore", invalid="ignore"):
            return (sums / count).astype(dtype)
    if dtype.itemsize == 8:
        return _mean_of_halves(sums[0], sums[1], count, dtype)
    if isinstance(count, int) and count & (count - 1) == 0:
        shift = count.bit_length() - 1
        return _shift_half_even(sums, shift, dtype)
    quotient = sums // count
    return _round_up(quotient, sums - quotient * count, count).astype(dtype)


def _shift_half_even(sums: Array, shift: int, dtype: np.dtype[Any]) -> Array:
    if shift == 0:
        return sums.astype(dtype)
    # adding just under a half, and one more where the quotient is odd, makes a tie go to even
    rounded = sums >> shift
    rounded &= 1
    rounded += sums
    rounded += (1 << (shift - 1)) - 1
    rounded >>= shift
    return rounded.astype(dtype)


def _round_up(quotient: Array, rest: Array, count: int | Array) -> Array:
    twice = rest * 2
    rounded: Array = quotient + ((twice > count) | ((twice == count) & (quotient % 2 == 1)))
    return rounded


def _mean_of_halves(high: Array, low: Array, count: int | Array, dtype: np.dtype[Any]) -> Array:
    """Divide (high * 2**32 + low) without a number that needs more than 64 bits."""
    quotient: Array = high // count
    left: Array = high - quotient * count
    rest = (left << 32) + low
    whole = (quotient << 32) + rest // count
    return _round_up(whole, rest % count, count).astype(dtype)


def most_common(array: Array, ratio: Shape) -> Array:
    """Give the most frequent value of each window, the smallest of several."""
    counts = tuple(n // r for n, r in zip(array.shape, ratio, strict=True))
    if array.size == 0:
        return np.empty(counts, array.dtype)
    split = [k for pair in zip(counts, ratio, strict=True) for k in pair]
    order = [*range(0, 2 * array.ndim, 2), *range(1, 2 * array.ndim, 2)]
    windows = array.reshape(split).transpose(order).reshape(*counts, -1)
    ordered = np.sort(windows, axis=-1)
    best = ordered[..., 0].copy()
    run = np.ones(counts, np.int64)
    longest = run.copy()
    for i in range(1, ordered.shape[-1]):
        run = np.where(ordered[..., i] == ordered[..., i - 1], run + 1, 1)
        is_longer = run > longest
        longest[is_longer] = run[is_longer]
        best[is_longer] = ordered[..., i][is_longer]
    return best


def by_kernel(
    source: Array, *, at: Shape, start: Shape, stop: Shape, ratio: Shape, shape: Shape, method: str
) -> Array:
    """Weigh with a kernel, one axis after the other."""
    wide = np.dtype(np.complex128 if source.dtype.kind == "c" else np.float64)
    array = source.astype(wide)
    with np.errstate(over="ignore", invalid="ignore"):
        for axis in range(source.ndim):
            array = _kernel_axis(
                array, axis, at[axis], (start[axis], stop[axis]), ratio[axis], shape[axis], method
            )
    return to_dtype(array, source.dtype)


def _kernel_axis(  # noqa: PLR0917
    array: Array, axis: int, at: int, outputs: tuple[int, int], ratio: int, size: int, method: str
) -> Array:
    start, stop = outputs
    first, weights = taps(ratio, method)
    array = np.moveaxis(array, axis, 0)
    total = np.zeros((stop - start, *array.shape[1:]), array.dtype)
    norm = np.zeros(stop - start)
    for tap, weight in enumerate(weights, first):
        # outputs j with 0 <= j * ratio + tap < size
        low = max(start, -(tap // ratio))
        high = min(stop, (size - 1 - tap) // ratio + 1)
        if low >= high:
            continue
        begin = low * ratio + tap - at
        piece = array[begin : begin + (high - low - 1) * ratio + 1 : ratio]
        total[low - start : high - start] += weight * piece
        norm[low - start : high - start] += weight
    total /= norm.reshape(-1, *(1,) * (array.ndim - 1))
    return np.moveaxis(total, 0, axis)


def to_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """Round half to even and keep to the range of an integer type."""
    if dtype.kind == "b":
        return np.rint(array) > 0
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array.astype(dtype))
    bounds = np.iinfo(dtype)
    rounded = np.rint(array)
    # a float may lie just above the largest 64-bit integer, and would wrap
    too_high, too_low = rounded >= float(bounds.max), rounded <= float(bounds.min)
    safe = np.where(too_high | too_low, 0.0, rounded).astype(dtype)
    safe[too_high], safe[too_low] = bounds.max, bounds.min
    return safe
