import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError
from tests.support.combined_files import save_all

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("axis", ["y", "x"])
def test_concat(tmp_path, axis):
    shapes = [(32, 48), (16, 48), (21, 48)] if axis == "y" else [(32, 48), (32, 16), (32, 11)]
    values = [RANDOM.integers(0, 255, shape, dtype="uint8") for shape in shapes]
    paths = save_all(tmp_path, values, compression="zlib")
    found = anychunk.open(paths, combine="concat", along=axis)["0/0/image"][...]
    truth = np.concatenate(values, axis=0 if axis == "y" else 1)
    np.testing.assert_array_equal(found.reshape(truth.shape), truth)


def test_concat_only_where_chunks_end(tmp_path):
    paths = save_all(tmp_path, [np.zeros((20, 16), "u1"), np.zeros((16, 16), "u1")])
    with pytest.raises(FormatError, match=r"0.tif 0/0: .*20 along 'y' .* 16"):
        anychunk.index(paths, combine="concat", along="y")
    with pytest.raises(ValueError, match="needs along="):
        anychunk.index(paths, combine="concat")
    with pytest.raises(FormatError, match="'q'.* y x"):
        anychunk.index(paths, combine="concat", along="q")
