"""Every request of the caller looks at a local file once, however many chunks it reads."""

import os
from collections import Counter

import numpy as np
import pytest
import tifffile

import anychunk

VALUES = np.random.default_rng(0).integers(0, 255, (512, 512), dtype="u1")


@pytest.fixture
def looks(tmp_path, monkeypatch):
    """Count the calls that ask the system about a file of this test, by path or by handle."""
    count = Counter()

    def counted(name):
        real = getattr(os, name)

        def call(file, *args, **kwargs):
            # modules that are imported on first use ask about other files
            count[name] += isinstance(file, int) or str(file).startswith(str(tmp_path))
            return real(file, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("stat", "fstat", "lstat"):
        counted(name)
    return count


@pytest.mark.parametrize(
    "selection",
    [np.s_[...], np.s_[:10, :10], np.s_[5, 5], np.s_[::2, ::3], np.s_[100:400, 7]],
    ids=["all", "window", "element", "steps", "column"],
)
@pytest.mark.parametrize("layout", ["tiles", "levels"])
def test_one_look_per_request(tmp_path, looks, selection, layout):
    with tifffile.TiffWriter(tmp_path / "a.tif") as tif:
        levels = 2 if layout == "levels" else 0
        tif.write(VALUES, tile=(64, 64), compression="zlib", subifds=levels)
        for level in range(1, levels + 1):
            tif.write(VALUES[:: 2**level, :: 2**level], tile=(64, 64), subfiletype=1)
    array = anychunk.open_array(tmp_path / "a.tif")
    array[0]  # opens the file
    array.attrs.asdict()  # looks for side files
    for _ in range(2):
        looks.clear()
        expected = (
            VALUES[selection] if array.ndim == 2 else VALUES[None][(0, *np.index_exp[selection])]
        )
        found = array[selection] if array.ndim == 2 else array[(0, *np.index_exp[selection])]
        np.testing.assert_array_equal(found, expected)
        assert sum(looks.values()) == 1, looks


def test_opening_is_the_look_of_the_first_request(tmp_path, looks):
    np.save(tmp_path / "a.npy", VALUES)
    array = anychunk.open_array(tmp_path / "a.npy")
    looks.clear()
    np.testing.assert_array_equal(array[...], VALUES)
    assert sum(looks.values()) == 1, looks


def test_one_look_per_file_that_is_read(tmp_path, looks):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", VALUES + number)
    array = anychunk.open_array(
        anychunk.index(sorted(map(str, tmp_path.glob("*.npy"))), combine="stack", along="t")
    )
    array[...]
    looks.clear()
    np.testing.assert_array_equal(array[...], np.stack([VALUES + n for n in range(3)]))
    assert sum(looks.values()) == 3, looks
