"""Conversions that are stopped and run again after the source was replaced by another file.

The other file has the same size and modification time, as after `cp -p`.
"""

import os

import numpy as np
import pytest
import tensorstore
import tifffile
import zarr

import anychunk
from anychunk.conversion.staging import Journal
from anychunk.errors import AnychunkError, TargetExistsError
from tests.zarr.test_replaced_files import change

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="Windows does not record when the status of a file changed"
)

OLD = np.random.default_rng(1).integers(0, 99, (64, 96), dtype="uint16")
NEW = OLD + 100


def zarr_pixels(path):
    return zarr.open_group(path, mode="r")["0/image"][:]


def n5_pixels(path):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}
    return tensorstore.open(spec).result()[...].read().result().T


READERS = {
    "b.zarr": zarr_pixels,
    "b.n5": n5_pixels,
    "b.tif": lambda path: tifffile.imread(path, key=0),
}
OPTIONS = {
    "b.zarr": {"chunk": (16, 16), "axes": "yx", "levels": 1, "shard": False, "workers": 1},
    "b.n5": {"chunk": (16, 16)},
    "b.tif": {"chunk": (16, 16), "axes": "yx", "levels": 1, "workers": 1},
}


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Return a function that converts, and stops after the first part has been written."""
    np.save(tmp_path / "a.npy", OLD)
    np.save(tmp_path / "new.npy", NEW)
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 512)
    monkeypatch.setattr("anychunk.formats.n5.write_input.REGION_BYTES", 1)
    monkeypatch.setattr("anychunk.io.threads.cores", lambda: 1)

    def convert(source, target):
        add = Journal.add

        def stopping(self, *given):
            add(self, *given)
            raise AnychunkError("stop")

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "add", stopping)
            with pytest.raises(AnychunkError, match="stop"):
                anychunk.convert(source, target, **OPTIONS[target.name])

    return convert


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("how", ["replaced", "rewritten"])
@pytest.mark.parametrize("name", READERS)
def test_old_and_new_are_not_mixed(tmp_path, stopped, name, how, is_saved):
    file = source = tmp_path / "a.npy"
    if is_saved:
        source = tmp_path / "a.json"
        anychunk.index(file).save(source)
    target = tmp_path / name
    stopped(source, target)
    change(file, (tmp_path / "new.npy").read_bytes(), how)
    with pytest.raises(FileExistsError, match=rf"\.{name}\.part: .*overwrite"):
        anychunk.convert(source, target, **OPTIONS[target.name])
    assert not target.exists()
    anychunk.convert(source, target, overwrite=True, **OPTIONS[target.name])
    np.testing.assert_array_equal(READERS[name](target), NEW)


@pytest.mark.parametrize("name", READERS)
def test_the_same_file_is_resumed(tmp_path, stopped, name):
    target = tmp_path / name
    stopped(tmp_path / "a.npy", target)
    done = anychunk.convert(tmp_path / "a.npy", target, **OPTIONS[target.name])
    assert done.skipped_bytes > 0
    np.testing.assert_array_equal(READERS[name](target), OLD)


@pytest.mark.parametrize("how", ["replaced", "rewritten"])
@pytest.mark.parametrize("name", READERS)
def test_a_finished_target_is_not_taken_for_that_of_another_file(tmp_path, name, how):
    file, target = tmp_path / "a.npy", tmp_path / name
    np.save(file, OLD)
    np.save(tmp_path / "new.npy", NEW)
    anychunk.convert(file, target, **OPTIONS[name])
    change(file, (tmp_path / "new.npy").read_bytes(), how)
    with pytest.raises(TargetExistsError):
        anychunk.convert(file, target, **OPTIONS[name])
    np.testing.assert_array_equal(READERS[name](target), OLD)
    anychunk.convert(file, target, overwrite=True, **OPTIONS[name])
    np.testing.assert_array_equal(READERS[name](target), NEW)
