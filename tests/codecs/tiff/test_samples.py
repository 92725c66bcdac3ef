import numpy as np
import pytest

from anychunk.codecs.tiff import samples


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(("rows", "run"), [(1, 1), (3, 1), (1, 7), (5, 31), (16, 128), (2, 5000)])
@pytest.mark.parametrize("most", [samples.BLOSC_LIMIT, 1], ids=["blosc", "numpy"])
def test_byte_planes_are_joined(size, rows, run, most, monkeypatch):
    monkeypatch.setattr(samples, "BLOSC_LIMIT", most)
    numbers = np.random.default_rng(rows).integers(0, 256, (rows, run, size), dtype=np.uint8)
    planes = np.ascontiguousarray(numbers[:, :, ::-1].transpose(0, 2, 1))
    out = np.zeros(numbers.size, np.uint8)
    samples.join_byte_planes(planes, out)
    np.testing.assert_array_equal(out.reshape(numbers.shape), numbers)
    values = numbers.reshape(-1).view(f"<u{size}")
    assert out.view(f"<u{size}")[-1] == values[-1]


def test_no_rows_to_join():
    samples.join_byte_planes(np.zeros((0, 4, 5), np.uint8), np.zeros(0, np.uint8))
