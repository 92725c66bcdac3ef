"""A test class that checks what every file format must do.

Inherit it in a test module, with files made by another program and the arrays they contain:

    import numpy as np

    from anychunk.testing.formats import FormatContract


    class TestNpy(FormatContract):
        def samples(self, folder):
            array = np.arange(12, dtype="uint16").reshape(3, 4)
            np.save(folder / "a.npy", array)
            yield folder / "a.npy", {"0/0/image": array}
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
from anychunk.errors import AnychunkError, InternalError, SourceChangedError
from anychunk.model.index import ArrayIndex, Node, walk

type Expected = Mapping[str, npt.NDArray[Any]]
"""Arrays by their paths in the hierarchy; "" for a file that is one array."""


def read_all(index: Node) -> dict[str, npt.NDArray[Any]]:
    """Read every array of an index with zarr; return them by path."""
    opened = api.open(index)
    if isinstance(opened, zarr.Array):
        return {"": np.asarray(opened[...])}
    paths = [path for path, node in walk(index) if isinstance(node, ArrayIndex)]
    return {path: np.asarray(opened[path][...]) for path in paths}


class FormatContract:
    """Tests of a format; implement `samples`."""

    tolerance: ClassVar[float] = 0
    """Largest absolute error of a lossy format."""
    prefixes: ClassVar[int] = 60
    """How many truncated versions of each file are tried."""

    def samples(self, folder: Path) -> Iterator[tuple[Path, Expected]]:
        """Write files to `folder` with another program; yield each with the arrays it contains."""
        raise NotImplementedError

    def is_incomplete(self, index: Node) -> bool:
        """Return whether `index` says that parts of its file are missing or cannot be read."""
        return False

    def assert_equal(self, found: Mapping[str, npt.NDArray[Any]], expected: Expected) -> None:
        """Compare shapes, data types and values up to `tolerance`; `found` may have more arrays."""
        assert set(expected) <= set(found)
        for path, array in expected.items():
            assert found[path].shape == array.shape, path
            assert found[path].dtype == array.dtype.newbyteorder("="), path
            if self.tolerance:
                np.testing.assert_allclose(found[path], array, rtol=0, atol=self.tolerance)
            else:
                np.testing.assert_array_equal(found[path], array)

    def test_equals_outside_reader(self, tmp_path: Path) -> None:
        """Every array of every file has the expected values."""
        count = 0
        for file, expected in self.samples(tmp_path):
            self.assert_equal(read_all(api.index(file)), expected)
            count += 1
        assert count, "samples() yielded no files"

    def test_index_is_plain_data(self, tmp_path: Path) -> None:
        """An index survives pickling, compares equal and still reads."""
        for file, expected in self.samples(tmp_path):
            index = api.index(file)
            again = pickle.loads(pickle.dumps(index))  # noqa: S301 - our own bytes
            assert again == index
            self.assert_equal(read_all(again), expected)

    def test_truncated_file_is_refused(self, tmp_path: Path) -> None:
        """Every truncated file raises an `AnychunkError`, says so, or reads completely."""
        for file, expected in self.samples(tmp_path):
            data = file.read_bytes()
            steps = np.unique(np.linspace(0, len(data) - 1, self.prefixes).astype(int))
            cut = file.with_name(f"cut{file.suffix}")
            for length in steps.tolist():
                cut.write_bytes(data[:length])
                try:
                    index = api.index(cut)
                    found = read_all(index)
                except InternalError:
                    raise
                except AnychunkError:
                    continue
                if not self.is_incomplete(index):
                    self.assert_equal(found, expected)

    def test_any_bytes(self, tmp_path: Path) -> None:
        """A damaged file raises an `AnychunkError` or opens and reads; nothing else escapes."""
        rng = np.random.default_rng(0)
        for file, _ in self.samples(tmp_path):
            whole = np.frombuffer(file.read_bytes(), np.uint8)
            for _round in range(20):
                data = whole.copy()
                # in the first bytes, where most formats have their structure
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
                except InternalError:
                    raise
                except AnychunkError:
                    continue

    def test_changed_source_is_noticed(self, tmp_path: Path) -> None:
        """Reading through an index raises `SourceChangedError` after the file was modified."""
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
