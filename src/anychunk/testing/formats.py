"""What every file format keeps, as a test class to inherit.

class TestNpy(FormatContract):
def samples(self, folder):
np.save(folder / "a.npy", array)
yield folder / "a.npy", {"0/0": array}
"""

import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from anychunk import api
from anychunk.errors import AnychunkError, SourceChangedError
from anychunk.model.index import ArrayIndex, Node, walk

type Expected = Mapping[str, npt.NDArray[Any]]


def read_all(index: Node) -> dict[str, npt.NDArray[Any]]:
    """Read every array of an index through zarr."""
    opened = api.open(index)
    if isinstance(opened, zarr.Array):
        return {"": np.asarray(opened[...])}
    paths = [path for path, node in walk(index) if isinstance(node, ArrayIndex)]
    return {path: np.asarray(opened[path][...]) for path in paths}


class FormatContract:
    """Give `samples`: files made by something that is not ours, and what they hold."""

    tolerance: ClassVar[float] = 0
    """How far a lossy format may be off."""
    prefixes: ClassVar[int] = 60
    """How many lengths of a cut file are tried."""
    is_checked: ClassVar[bool] = False
    """Whether the format can notice flipped bits in its samples."""

    def samples(self, folder: Path) -> Iterator[tuple[Path, Expected]]:
        raise NotImplementedError

    def assert_equal(self, found: Mapping[str, npt.NDArray[Any]], expected: Expected) -> None:
        assert set(expected) <= set(found)
        for path, array in expected.items():
            assert found[path].shape == array.shape, path
            assert found[path].dtype == array.dtype.newbyteorder("="), path
            if self.tolerance:
                np.testing.assert_allclose(found[path], array, rtol=0, atol=self.tolerance)
            else:
                np.testing.assert_array_equal(found[path], array)

    def test_equals_outside_reader(self, tmp_path: Path) -> None:
        count = 0
        for file, expected in self.samples(tmp_path):
            self.assert_equal(read_all(api.index(file)), expected)
            count += 1
        assert count, "a contract without samples proves nothing"

    def test_index_is_plain_data(self, tmp_path: Path) -> None:
        for file, expected in self.samples(tmp_path):
            index = api.index(file)
            again = pickle.loads(pickle.dumps(index))  # noqa: S301 - our own bytes
            assert again == index
            self.assert_equal(read_all(again), expected)

    def test_cut_file_is_no_picture(self, tmp_path: Path) -> None:
        """Every prefix gives an error, or all that the whole file gives; never less."""
        for file, expected in self.samples(tmp_path):
            data = file.read_bytes()
            steps = np.unique(np.linspace(0, len(data) - 1, self.prefixes).astype(int))
            cut = file.with_name(f"cut{file.suffix}")
            for length in steps.tolist():
                cut.write_bytes(data[:length])
                try:
                    found = read_all(api.index(cut))
                except AnychunkError:
                    continue
                self.assert_equal(found, expected)

    def test_any_bytes(self, tmp_path: Path) -> None:
        """Damaged files give an index and arrays, or an error of ours."""
        rng = np.random.default_rng(0)
        for file, _ in self.samples(tmp_path):
            whole = np.frombuffer(file.read_bytes(), np.uint8)
            for _round in range(20):
                data = whole.copy()
                # damage where structure is likely: near the start
                places = rng.integers(0, min(len(data), 512), 4)
                data[places] = rng.integers(0, 256, 4)
                damaged = file.with_name(f"damaged{file.suffix}")
                damaged.write_bytes(data.tobytes())
                try:
                    index = api.index(damaged)
                    total = sum(
                        int(np.prod(a.shape, dtype=float))
                        for _, a in walk(index)
                        if isinstance(a, ArrayIndex)
                    )
                    if total < 1 << 24:
                        read_all(index)
                except AnychunkError:
                    continue

    def test_changed_source_is_noticed(self, tmp_path: Path) -> None:
        for file, _ in self.samples(tmp_path):
            index = api.index(file)
            opened: Any = api.open(index)
            path = next(path for path, node in walk(index) if isinstance(node, ArrayIndex))
            array = opened[path] if path else opened
            np.asarray(array[...])
            stat = file.stat()
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))
            with pytest.raises(SourceChangedError):
                np.asarray(array[...])
            with pytest.raises(SourceChangedError):
                read_all(index)
