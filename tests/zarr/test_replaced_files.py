"""Local files that another takes the place of, with the same size and modification time.

`cp -p`, `rsync -t` and `tar` restore the time, so that only device, inode and ctime differ.
"""

import os
import pickle
import shutil
from pathlib import Path

import nibabel
import nrrd
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import SourceChangedError
from tests.decode.test_windows import codestream, equally_long
from tests.support.n5_blocks import write_dataset
from tests.support.nitf_writer import Image, nitf
from tests.support.processes import run

pytestmark = [
    pytest.mark.skipif(
        os.name == "nt", reason="Windows does not record when the status of a file changed"
    ),
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]

OLD = np.arange(48 * 64, dtype="uint16").reshape(48, 64)
NEW = OLD[::-1] + 7


def tiff(path, image):
    tifffile.imwrite(path, image, tile=(16, 32))


def nifti(path, image):
    nibabel.save(nibabel.Nifti1Image(image.T, np.eye(4)), path)


def pixels_of(array):
    return np.asarray(array[...]).reshape(-1, 64)


WRITERS = {
    "a.npy": np.save,
    "a.tif": tiff,
    "a.nii": nifti,
    "a.nrrd": lambda path, image: nrrd.write(str(path), image.T, {"encoding": "raw"}),
    "a.ntf": lambda path, image: path.write_bytes(nitf([Image(image[None], nbpp=16)])),
}


def replaced(path, data):
    """Put another file of the same size and time in its place, in one step."""
    other = path.with_name("other")
    other.write_bytes(data)
    shutil.copystat(path, other)
    other.replace(path)


def rewritten(path, data):
    """Write into the same file, and restore its time."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "replaced": replaced,
    "rewritten": rewritten,
    "chmod": lambda path, data: path.chmod(0o600),
    "hard link": lambda path, data: os.link(path, path.with_name("link")),
}


def change(path, data, how):
    before = path.stat()
    CHANGES[how](path, data)
    after = path.stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def data_of(path, image):
    """Return the file that the format's writer makes of an image."""
    other = path.with_name(f"new{path.suffix}")
    WRITERS[path.name](other, image)
    return other.read_bytes()


@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("name", WRITERS)
def test_every_read_raises_until_it_is_opened_again(tmp_path, name, how, is_read_before):
    path = tmp_path / name
    WRITERS[name](path, OLD)
    new = data_of(path, NEW)
    array = anychunk.open_array(path)
    if is_read_before:
        np.testing.assert_array_equal(pixels_of(array), OLD)
    change(path, new, how)
    for _ in range(3):
        with pytest.raises(SourceChangedError, match="open it again"):
            array[...]
    is_new = how in ("replaced", "rewritten")
    np.testing.assert_array_equal(pixels_of(anychunk.open_array(path)), NEW if is_new else OLD)


@pytest.mark.parametrize("is_read_before", [False, True])
def test_windows_of_jpeg2000(tmp_path, is_read_before):
    [(before, old), (after, new)] = equally_long(codestream)
    path = tmp_path / "a.j2k"
    path.write_bytes(old)
    array = anychunk.open_array(path)
    if is_read_before:
        np.testing.assert_array_equal(array[:50, :50], before[:50, :50])
    change(path, new, "replaced")
    for _ in range(3):
        with pytest.raises(SourceChangedError, match="open it again"):
            array[:50, :50]
    np.testing.assert_array_equal(anychunk.open_array(path)[...], after)


@pytest.mark.parametrize("name", ["a.tif", "a.npy"])
def test_a_saved_index_knows_the_file_that_it_read_first(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path, OLD)
    new = data_of(path, NEW)
    anychunk.index(path).save(tmp_path / "index.json")
    path.chmod(0o600)  # nothing that a saved index could know
    array = anychunk.open_array(tmp_path / "index.json")
    np.testing.assert_array_equal(pixels_of(array), OLD)
    change(path, new, "replaced")
    for _ in range(3):
        with pytest.raises(SourceChangedError, match="open it again"):
            array[...]


def test_blocks_of_a_saved_n5_index(tmp_path):
    write_dataset(tmp_path / "a.n5" / "d", OLD, (16, 32))
    write_dataset(tmp_path / "b.n5" / "d", NEW, (16, 32))
    anychunk.index(tmp_path / "a.n5").save(tmp_path / "index.json")
    array = anychunk.open_array(tmp_path / "index.json")
    np.testing.assert_array_equal(array[...], OLD.T)
    block = Path("d", "1", "1")
    change(tmp_path / "a.n5" / block, (tmp_path / "b.n5" / block).read_bytes(), "replaced")
    for _ in range(3):
        with pytest.raises(SourceChangedError, match="open it again"):
            array[...]


@pytest.mark.processes
@pytest.mark.parametrize("is_read_before", [False, True])
def test_another_process_sees_for_itself_which_file_it_reads(tmp_path, is_read_before):
    path = tmp_path / "a.tif"
    tiff(path, OLD)
    array = anychunk.open_array(path)
    if is_read_before:
        array[...]
    (tmp_path / "pickled").write_bytes(pickle.dumps(array))
    path.chmod(0o600)
    code = """
import pickle, sys
from pathlib import Path
import numpy as np
from anychunk.errors import SourceChangedError

array = pickle.loads(Path("pickled").read_bytes())
np.save("read.npy", array[...])
Path("a.tif").chmod(0o640)
try:
    array[...]
except SourceChangedError as e:
    print(e)
"""
    done = run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "open it again" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "read.npy"), OLD)


def test_a_changed_source_that_is_accepted(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, OLD)
    array = anychunk.open_array(path, on_change="warn")
    change(path, data_of(path, NEW), "replaced")
    with pytest.warns(UserWarning, match="what is read may be wrong"):
        np.testing.assert_array_equal(array[...], np.load(path))
