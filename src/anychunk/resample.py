"""Downsampling of arrays by integer ratios: six methods, any number of axes. Pure.

Along each axis an output element covers a window of `ratio` input elements. An incomplete window
at the end is dropped, except that an axis shorter than its ratio is one window. `average`, `max`,
`min` and `mode` use only the window. `gaussian` (sigma = ratio / 2, cut off at 3 sigma) and
`lanczos` (a = 3) also weigh elements around it; weights are normalised over those inside the array,
and an axis of ratio 1 is left unchanged. `average` is exact for integers. All methods round half to
even and clamp to the range of the data type.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from anychunk.errors import UnsupportedError
from anychunk.model.grid import Array, Shape

type Method = Literal["average", "gaussian", "lanczos", "max", "min", "mode"]

METHODS: tuple[str, ...] = get_args(Method.__value__)
BY_WINDOW = ("average", "max", "min", "mode")
"""Methods that use only the elements of the window."""


def check_method(method: str) -> None:
    """Raise `UnsupportedError` unless `method` exists."""
    if method not in METHODS:
        raise UnsupportedError(
            f"downsample: unknown method {method!r}; expected one of: {' '.join(METHODS)}"
        )


def check_ratio(shape: Shape, ratio: Sequence[int]) -> None:
    """Raise `UnsupportedError` unless `ratio` has one positive integer per axis."""
    if len(ratio) != len(shape) or any(r < 1 for r in ratio):
        raise UnsupportedError(
            f"downsample: ratio {tuple(ratio)} for an array of {len(shape)} axes; "
            "expected one positive integer per axis"
        )


def output_shape(shape: Shape, ratio: Shape) -> Shape:
    """Return the number of windows along each axis; an empty axis stays empty."""
    return tuple(max(min(n, 1), n // r) for n, r in zip(shape, ratio, strict=True))


def clip_ratio(shape: Shape, ratio: Shape) -> Shape:
    """Limit the ratio along each axis to the length of the axis."""
    return tuple(max(1, min(n, r)) for n, r in zip(shape, ratio, strict=True))


def taps(ratio: int, method: str) -> tuple[int, Array]:
    """Return the offset of a kernel's first weight from the window's start, and its weights."""
    centre = (ratio - 1) / 2
    reach = 1.5 * ratio if method == "gaussian" else 3.0 * ratio
    if ratio == 1 or method in BY_WINDOW:
        return 0, np.ones(ratio)
    first, last = math.ceil(centre - reach), math.floor(centre + reach)
    at = (np.arange(first, last + 1) - centre) / ratio
    if method == "gaussian":
        return first, np.exp(-2.0 * at * at)  # exp(-(at / sigma)**2 / 2) with sigma = 0.5
    return first, np.sinc(at) * np.sinc(at / 3)


def source_range(start: int, stop: int, *, ratio: int, size: int, method: str) -> tuple[int, int]:
    """Return the input range, along an axis of `size`, that outputs `start` to `stop` depend on."""
    first, weights = taps(ratio, method)
    return max(0, start * ratio + first), min(size, (stop - 1) * ratio + first + len(weights))


def downsample(array: Array, ratio: Sequence[int], method: str = "average") -> Array:
    """Return a whole array, `ratio` times smaller along each axis."""
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
    """Return outputs `start` to `stop`, computed from a piece of the input.

    Parameters:
        source: The piece; it must cover `source_range` along each axis.
        at: Where the piece begins in the whole input.
        start: The first output element along each axis.
        stop: The end of the outputs along each axis.
        ratio: Input elements per output element; no longer than `shape`, see `clip_ratio`.
        shape: Of the whole input.
        method: One of `METHODS`.
    """
    check_method(method)
    if source.dtype.kind == "V" and source.dtype.name != "bfloat16":
        raise UnsupportedError(
            f"downsample: {source.dtype} cannot be ordered or averaged; expected numbers"
        )
    if method in BY_WINDOW:
        begin = [s * r - a for s, r, a in zip(start, ratio, at, strict=True)]
        end = [e * r - a for e, r, a in zip(stop, ratio, at, strict=True)]
        window = source[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
        return by_window(window, ratio, method)
    return by_kernel(source, at=at, start=start, stop=stop, ratio=ratio, shape=shape, method=method)


def by_window(array: Array, ratio: Shape, method: str, nodata: float | None = None) -> Array:
    """Reduce adjacent windows; the shape must be a multiple of the ratio.

    Elements equal to `nodata` are excluded from `average`, `max` and `min`; a window with no others
    becomes `nodata`. `mode` counts them like any other value.
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
    """Reduce the valid elements of each window; use `value` where a window has none."""
    counts = add_up(is_valid, ratio, np.dtype(np.int64))
    if method == "average":
        sums = window_sums(np.where(is_valid, array, array.dtype.type(0)), ratio)
        # same type as the sums: numpy would promote int64 and uint64 to float64
        divisors = np.maximum(counts, 1).astype(sums.dtype)
        reduced = mean(sums, divisors, array.dtype)
    else:
        last = _extremes(array.dtype)[0 if method == "max" else 1]
        reduced = by_window(np.where(is_valid, array, last), ratio, method)
    return np.where(counts > 0, reduced, value)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a type."""
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)
    return dtype.type(-np.inf), dtype.type(np.inf)


def strided(array: Array, axis: int, ratio: int) -> list[Array]:
    """Return `ratio` views along an axis: the first element of every window, the second, ..."""
    before = (slice(None),) * axis
    return [array[(*before, slice(i, None, ratio))] for i in range(ratio)]


def sum_dtype(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """Return a type that holds the sum of `count` values: exactly for integers up to 32 bits."""
    if dtype.kind == "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.clongdouble)
    if dtype.kind not in "iu":
        return np.dtype(np.longdouble if dtype.itemsize == 8 else np.float64)
    # 2**k values of b bits need b + k bits, and one for the sign
    if dtype.itemsize <= 2 and count <= 1 << (31 - 8 * dtype.itemsize):
        return np.dtype(f"{dtype.kind}4")
    return np.dtype(f"{dtype.kind}8")


def window_sums(array: Array, ratio: Shape) -> Array:
    """Return the sums of windows.

    Sums of 64-bit integers may overflow: they are returned as two sums, of the upper and of the
    lower 32 bits, in a new first axis.
    """
    kind = sum_dtype(array.dtype, math.prod(ratio))
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        low = (array & np.array(0xFFFFFFFF, array.dtype)).astype(kind)
        high = (array >> np.array(32, array.dtype)).astype(kind)
        return np.stack([add_up(high, ratio, kind), add_up(low, ratio, kind)])
    return add_up(array, ratio, kind)


def add_up(array: Array, ratio: Shape, dtype: np.dtype[Any]) -> Array:
    """Add up windows axis by axis, the slowest first: its pieces are contiguous in memory."""
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
    """Divide sums by `count`, a number or one per window; integers are rounded half to even."""
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
    # add just under one half, plus 1 if the quotient is odd: only then does a tie carry
    rounded = sums >> shift
    rounded &= 1
    rounded += sums
    rounded += (1 << (shift - 1)) - 1
    rounded >>= shift
    return rounded.astype(dtype)


def _round_up(quotient: Array, rest: Array, count: int | Array) -> Array:
    """Add 1 where the rest is more than half of `count`, or half and the quotient is odd."""
    twice = rest * 2
    rounded: Array = quotient + ((twice > count) | ((twice == count) & (quotient % 2 == 1)))
    return rounded


def _mean_of_halves(high: Array, low: Array, count: int | Array, dtype: np.dtype[Any]) -> Array:
    """Divide (high * 2**32 + low) by `count`; no intermediate value needs more than 64 bits."""
    quotient: Array = high // count
    left: Array = high - quotient * count
    rest = (left << 32) + low
    whole = (quotient << 32) + rest // count
    return _round_up(whole, rest % count, count).astype(dtype)


def most_common(array: Array, ratio: Shape) -> Array:
    """Return the most frequent value of each window; on a tie, the smallest."""
    counts = tuple(n // r for n, r in zip(array.shape, ratio, strict=True))
    if array.size == 0:
        return np.empty(counts, array.dtype)
    split = [k for pair in zip(counts, ratio, strict=True) for k in pair]
    order = [*range(0, 2 * array.ndim, 2), *range(1, 2 * array.ndim, 2)]
    windows = array.reshape(split).transpose(order).reshape(*counts, -1)
    # equal values are adjacent once sorted: the longest run is the mode
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
    """Convolve with a separable kernel, one axis after the other."""
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
    # one pass per weight over all outputs, rather than one per output over all weights
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
    """Convert floats to a type; integers are rounded half to even and clamped to their range."""
    if dtype.kind == "b":
        return np.rint(array) > 0
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array.astype(dtype))
    bounds = np.iinfo(dtype)
    rounded = np.rint(array)
    # float64 cannot hold the largest 64-bit integers: rounded up to 2**63, they would wrap
    too_high, too_low = rounded >= float(bounds.max), rounded <= float(bounds.min)
    safe = np.where(too_high | too_low, 0.0, rounded).astype(dtype)
    safe[too_high], safe[too_low] = bounds.max, bounds.min
    return safe
