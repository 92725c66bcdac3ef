"""Processes that are killed at any step of writing an index: the same call again completes it."""

import signal

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError
from anychunk.references import icechunk as ice
from tests.support import processes

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is of POSIX"),
    pytest.mark.filterwarnings("ignore:.*Zarr V3 specification"),
]
VALUES = np.random.default_rng(5).integers(0, 4000, (32, 32), dtype="uint16")

KILLED = """
import functools, os, signal, sys
import icechunk
import anychunk, anychunk.archive, anychunk.references.documents
from anychunk.io import sink, system
from anychunk.references.icechunk import transaction

step, steps = int(sys.argv[1]), 0

def count():
    global steps
    steps += 1
    if steps == step:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(owner, name):
    plain = getattr(owner, name)
    @functools.wraps(plain)
    def watched(*args, **options):
        count()  # before it, and after it
        found = plain(*args, **options)
        if name != "set":
            count()
        return found
    setattr(owner, name, watched)

for name in ("set", "set_virtual_refs_arr", "set_virtual_ref", "sync_clear"):
    watch(icechunk.IcechunkStore, name)
watch(icechunk.Session, "commit")
for name in ("create_branch", "reset_branch", "delete_branch", "save_config"):
    watch(icechunk.Repository, name)
watch(system, "replace")
watch(system, "exchange")
watch(sink, "remove")
for name in ("_put_by", "_put_inside"):
    watch(sink, name)

transaction.PIECE = int(sys.argv[2])
anychunk.archive.MOST_IMAGES = anychunk.references.documents.MOST_IMAGES = 1
"""

APPEND = (
    KILLED
    + """
anychunk.append(sys.argv[4:], "t.icechunk", combine=sys.argv[3], batch=2)
print(steps)
"""
)

INDEX = (
    KILLED
    + """
anychunk.index_to(sys.argv[5:], sys.argv[4], combine=sys.argv[3], batch=2, overwrite=True)
print(steps)
"""
)


def written(folder, count):
    paths = []
    for i in range(count):
        paths.append(str(folder / f"f{i}.tif"))
        tifffile.imwrite(
            paths[-1], VALUES + i, tile=(16, 16), compression="zlib",
            datetime=f"2026:01:{i + 1:02} 00:00:00",
        )  # fmt: skip
    return paths


def images(target, how):
    """Return the pixels of all files that are in an index, by number."""
    opened = anychunk.open(target, allow=["*"])
    if how == "group":
        return {name: opened[f"{name}/0/0/image"][...] for name in sorted(opened.group_keys())}
    return {f"f{i}": image for i, image in enumerate(opened["0/0/image"][...])}


def check(target, how, count):
    found = images(target, how)
    assert list(found) == [f"f{i}" for i in range(count)]
    for i in range(count):
        np.testing.assert_array_equal(found[f"f{i}"].reshape(32, 32), VALUES + i)


def some_of(steps, most=8):
    """Return steps to be killed at: the first and last ones, and some between."""
    return sorted({*np.linspace(1, steps, most).round().astype(int).tolist(), 2, steps - 1})


@pytest.mark.parametrize("piece", [120_000, 3])
@pytest.mark.parametrize("how", ["stack", "group"])
def test_append_killed_at_any_step_and_resumed(tmp_path, how, piece):
    """Whole batches are there or not; resumed, nothing is missing and nothing twice."""
    paths = written(tmp_path, 6)
    (tmp_path / "whole").mkdir()
    whole = processes.run(APPEND, [0, piece, how, *paths], cwd=tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    lefts = set()
    for step in some_of(int(whole.stdout)):
        folder = tmp_path / str(step)
        folder.mkdir()
        killed = processes.run(APPEND, [step, piece, how, *paths], cwd=folder)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        target = str(folder / "t.icechunk")
        left = len(ice.saved_sources(target))
        assert left % 2 == 0
        lefts.add(left)
        if left:
            check(target, how, left)
        assert anychunk.append(paths, target, combine=how, batch=2) == 6 - left
        check(target, how, 6)
        assert len(anychunk.index(target, allow=["*"]).pins) == 6
    assert lefts >= {0, 4}


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("name", ["t.json", "t.parquet", "t.icechunk"])
def test_index_killed_at_any_step_and_run_again(tmp_path, name, is_replaced):
    """What is there is the old index or the new one; none only where there was none."""
    paths = written(tmp_path, 5)
    counts = set()

    def prepared(folder):
        folder.mkdir()
        if is_replaced:
            anychunk.index_to(paths[:3], combine="group", target=folder / name)
        return folder

    def arguments(step):
        return [step, 120_000, "group", name, *paths]

    whole = processes.run(INDEX, arguments(0), cwd=prepared(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    for step in some_of(int(whole.stdout)):
        folder = prepared(tmp_path / str(step))
        killed = processes.run(INDEX, arguments(step), cwd=folder)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        try:
            count = len(images(folder / name, "group"))
        except (FileNotFoundError, AnychunkError):
            count = 0
        counts.add(count)
        if count:
            check(folder / name, "group", count)
        anychunk.index_to(paths, combine="group", target=folder / name, batch=2, overwrite=True)
        check(folder / name, "group", 5)
    assert counts <= {5, 3 if is_replaced else 0}
