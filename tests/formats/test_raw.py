import math

import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError, TruncatedError
from anychunk.formats import _raw
from anychunk.model.index import ArrayIndex


def opened(path, values, *, order, offset, chunk_bytes):
    """Write the samples of `values` behind `offset` other bytes, and open them."""
    path.write_bytes(b"\xff" * offset + values.tobytes(order))
    raw = _raw.cut(
        values.shape,
        values.dtype.itemsize,
        endian="big" if values.dtype.byteorder == ">" else "little",
        url=str(path),
        offset=offset,
        chunk_bytes=chunk_bytes,
        is_fortran=order == "F",
    )
    index = ArrayIndex(
        shape=values.shape,
        chunk_shape=raw.chunk_shape,
        data_type=values.dtype.name,
        codecs=raw.codecs,
        chunks=raw.chunks,
        dimension_names=(None,) * values.ndim,
    )
    return anychunk.open(index), raw


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8"])
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (12,), (7, 5), (3, 11, 13), (2, 1, 9, 4), (1, 1, 31), (0, 4), (4, 0)]
)
@pytest.mark.parametrize("chunk_bytes", [1, 16, 60, 1 << 20])
def test_equals_numpy(tmp_path, shape, dtype, order, chunk_bytes):
    values = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    array, raw = opened(tmp_path / "a", values, order=order, offset=13, chunk_bytes=chunk_bytes)
    np.testing.assert_array_equal(array[...], values)
    assert int(raw.chunks.lengths.sum()) == values.nbytes


def test_several_axes_are_cut(tmp_path):
    values = np.arange(3 * 5 * 7, dtype="<u2").reshape(3, 5, 7)
    array, raw = opened(tmp_path / "a", values, order="F", offset=0, chunk_bytes=24)
    # stored as (7, 5, 3): four rows of three 2-byte samples are 24 bytes
    assert raw.chunk_shape == (3, 4, 1)
    assert raw.chunks.grid == (1, 2, 7)
    assert raw.chunks.lengths[0, :, 0].tolist() == [24, 6]
    np.testing.assert_array_equal(array[...], values)


def test_standard_codecs_where_every_chunk_is_full():
    raw = _raw.cut((12, 2), 1, endian="big", url="a", offset=0, chunk_bytes=10)
    assert raw.chunk_shape == (4, 2)
    assert raw.codecs == ({"name": "bytes"},)
    assert raw.chunks.fronts == ()


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 7, 16, 31, 64, 100])
def test_even_divisor(most):
    for size in range(1, 300):
        fitting = [n for n in range(most // 4 + 1, most + 1) if size % n == 0]
        assert _raw.even_divisor(size, most) == max(fitting, default=0), size
        odd = [n for n in fitting if n % 2]
        assert _raw.even_divisor(size, most, lambda n: n % 2 == 1) == max(odd, default=0), size


def test_divisors_of_a_long_prime_are_found_at_once():
    assert _raw.even_divisor((1 << 31) - 1, 1 << 25) == 0


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ((3, 4), None),
        ((3, 5), TruncatedError),
        ((1 << 62, 9), TruncatedError),
        ((0, 5), None),
        ((0, 1 << 61), None),
        ((0, 1 << 62), FormatError),
        ((1 << 40, 0, 1 << 40), FormatError),
    ],
)
def test_extent(shape, error):
    if error is None:
        _raw.check_extent(shape, 2, offset=10, size=34, where="a.raw")
        raw = _raw.cut(shape, 2, endian="little", url="a.raw", offset=10, chunk_bytes=1 << 22)
        assert math.prod(raw.chunks.grid) == (1 if math.prod(shape) else 0)
        return
    with pytest.raises(error, match="a.raw"):
        _raw.check_extent(shape, 2, offset=10, size=34, where="a.raw")
