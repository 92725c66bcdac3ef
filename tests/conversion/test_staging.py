"""Conversions to N5 and JNRRD: invisible until complete, resumed part by part, one at a time."""

import errno
import json
import signal

import numpy as np
import pytest
import tensorstore
import tifffile

import anychunk
from anychunk.conversion.staging import exclusive
from anychunk.errors import AnychunkError, FormatError, SourceError
from anychunk.formats.jnrrd.write import Writer
from anychunk.formats.n5.write import Target
from anychunk.io import sink
from anychunk.io.object_stores import memory_store
from tests.support import processes

TARGETS = ["b.n5", "b.jnrrd"]
OPTIONS = {"chunk": (8, 16, 16), "compression": "gzip"}


@pytest.fixture
def npy(tmp_path):
    data = np.random.default_rng(1).integers(0, 99, (32, 40, 48), dtype="uint16")
    np.save(tmp_path / "a.npy", data)
    return tmp_path / "a.npy", data


@pytest.fixture
def parts(monkeypatch):
    """Make the regions of N5 one block each, so that there are many parts."""
    monkeypatch.setattr("anychunk.formats.n5.write_input.REGION_BYTES", 1)
    monkeypatch.setattr("anychunk.io.threads.cores", lambda: 1)


def n5_read(path):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}
    return tensorstore.open(spec).result()[...].read().result()


def fail_after(monkeypatch, count, error):
    """Let the writers of both formats fail after some blocks or tiles; return how many they wrote."""
    written = []
    n5_put, jnrrd_make = Target.put_bytes, Writer.make

    def put_bytes(self, url, *pieces):
        if not url.endswith(".json"):
            written.append(url)
            if len(written) > count:
                raise error
        n5_put(self, url, *pieces)

    def make(self, job):
        tile = jnrrd_make(self, job)
        if tile.place not in self.kept:
            written.append(job.place)
            if len(written) > count:
                raise error
        return tile

    monkeypatch.setattr(Target, "put_bytes", put_bytes)
    monkeypatch.setattr(Writer, "make", make)
    return written


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_visible_after_a_failure(npy, tmp_path, target, monkeypatch, parts):
    fail_after(monkeypatch, 5, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        anychunk.convert(npy[0], tmp_path / target, **OPTIONS)
    assert not (tmp_path / target).exists()
    with pytest.raises(FileNotFoundError):
        anychunk.open(tmp_path / target)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".{target}.part", "a.npy"]


@pytest.mark.parametrize("levels", [None, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_resumed_part_by_part(npy, tmp_path, target, levels, monkeypatch, parts):
    file, data = npy
    options = OPTIONS if levels is None else {**OPTIONS, "levels": levels}
    whole = tmp_path / "whole" / target
    anychunk.convert(file, whole, **options)
    with monkeypatch.context() as patch:
        fail_after(patch, 9, AnychunkError("stop"))
        with pytest.raises(AnychunkError, match="stop"):
            anychunk.convert(file, tmp_path / target, **options)
    with monkeypatch.context() as patch:
        written = fail_after(patch, 10_000, AnychunkError("never"))
        done = anychunk.convert(file, tmp_path / target, verify=True, **options)
    count = 4 * 3 * 3 + (0 if levels is None else {"b.n5": 2 * 2 * 2, "b.jnrrd": 2 * 2 * 2}[target])
    assert len(written) < count
    assert 0 < done.skipped_bytes < data.nbytes
    assert not (tmp_path / f".{target}.part").exists()
    if target == "b.n5":
        np.testing.assert_array_equal(
            n5_read(tmp_path / target / ("" if levels is None else "s0")), data.T
        )
    else:
        assert (tmp_path / target).read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_a_part_damaged_meanwhile_is_written_again(npy, tmp_path, target, monkeypatch, parts):
    file, data = npy
    with monkeypatch.context() as patch:
        fail_after(patch, 9, AnychunkError("stop"))
        with pytest.raises(AnychunkError, match="stop"):
            anychunk.convert(file, tmp_path / target, **OPTIONS)
    if target == "b.n5":
        block = next(p for p in (tmp_path / f".{target}.part/b.n5").rglob("*") if p.is_file())
        block.write_bytes(block.read_bytes()[:-1])
    else:
        with (tmp_path / f".{target}.part/b.jnrrd").open("r+b") as out:
            out.seek(-40, 2)
            out.write(bytes(8))
    anychunk.convert(file, tmp_path / target, **OPTIONS)
    found = anychunk.open_array(tmp_path / target)[...]
    np.testing.assert_array_equal(found, data)


def test_external_tiles_are_resumed(npy, tmp_path, monkeypatch):
    file, data = npy
    options = {"external": True, "pattern": "tiles/{x}_{y}_{z}.gz"}
    with monkeypatch.context() as patch:
        fail_after(patch, 7, AnychunkError("stop"))
        with pytest.raises(AnychunkError, match="stop"):
            anychunk.convert(file, tmp_path / "b.jnrrd", **options, **OPTIONS)
    assert not (tmp_path / "b.jnrrd").exists()
    with monkeypatch.context() as patch:
        written = fail_after(patch, 10_000, AnychunkError("never"))
        done = anychunk.convert(file, tmp_path / "b.jnrrd", **options, verify=True, **OPTIONS)
    assert len(written) < 36
    assert done.skipped_bytes > 0
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "b.jnrrd")[...], data)


@pytest.mark.parametrize("target", TARGETS)
def test_only_the_same_conversion_is_resumed(npy, tmp_path, target, monkeypatch):
    with monkeypatch.context() as patch:
        fail_after(patch, 3, AnychunkError("stop"))
        with pytest.raises(AnychunkError, match="stop"):
            anychunk.convert(npy[0], tmp_path / target, **OPTIONS)
    other = {**OPTIONS, "compression": "zstd"}
    with pytest.raises(FileExistsError, match=rf"\.{target}\.part: .*overwrite"):
        anychunk.convert(npy[0], tmp_path / target, **other)
    anychunk.convert(npy[0], tmp_path / target, overwrite=True, **other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", target]


@pytest.mark.processes
@pytest.mark.parametrize("target", [*TARGETS, "b.zarr"])
def test_a_second_conversion_gets_one_line(npy, tmp_path, target):
    with exclusive(str(tmp_path / f".{target}.part.lock"), ""):
        done = processes.run(processes.COMMAND, ["convert", "a.npy", target], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{target}: another conversion is writing to it" in done.stderr
    assert not (tmp_path / target).exists()


ENDED = """
import os, sys
from anychunk.cli import main
from anychunk.conversion.staging import Journal
real, count, how = Journal.add, [], int(sys.argv.pop(1))

def add(self, name, checksum):
    real(self, name, checksum)
    count.append(name)
    if len(count) == 3:
        os.kill(os.getpid(), how)

Journal.add = add
sys.exit(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("target", TARGETS)
def test_an_ended_command_is_resumed(tmp_path, target, how):
    """Ctrl-C or kill in the middle, then the same command again."""
    data = np.random.default_rng(2).integers(0, 99, (1024, 1024), dtype="uint16")
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(128, 128))
    arguments = ["convert", "a.tif", target, "--chunk", "128x128", "--compression", "gzip"]
    ended = processes.run(ENDED, [int(how), *arguments], cwd=tmp_path)
    if how == signal.SIGINT:
        assert ended.returncode == 130, ended.stderr
        # before it, a thread of concurrent.futures may complain: an interrupt in Condition.wait of
        # one thread releases the lock that another holds
        assert ended.stderr.splitlines()[-1].startswith("anychunk: interrupted; ")
    else:
        assert ended.returncode == -how, ended.stderr
    assert not (tmp_path / target).exists()
    done = processes.run(processes.COMMAND, [*arguments, "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["skipped_bytes"] > 0
    found = anychunk.open_array(tmp_path / target)[...]
    np.testing.assert_array_equal(found.squeeze(), data)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tif", target]


def test_a_dataset_joins_a_container(npy, tmp_path, monkeypatch):
    file, data = npy
    anychunk.convert(file, tmp_path / "b.n5/volumes/raw")
    anychunk.convert(file, tmp_path / "b.n5/volumes/other")
    anychunk.convert(file, tmp_path / "b.n5/labels")
    assert sorted(anychunk.open(tmp_path / "b.n5").keys()) == ["labels", "volumes"]
    for name in ("volumes/raw", "volumes/other", "labels"):
        np.testing.assert_array_equal(n5_read(tmp_path / "b.n5" / name), data.T)
    assert "n5" in json.loads((tmp_path / "b.n5/attributes.json").read_text())
    with pytest.raises(FileExistsError, match=r"b\.n5/labels: .*overwrite"):
        anychunk.convert(file, tmp_path / "b.n5/labels")
    with pytest.raises(FileExistsError, match=r"b\.n5: .*overwrite"):
        anychunk.convert(file, tmp_path / "b.n5")
    np.save(file, data[:5])
    anychunk.convert(file, tmp_path / "b.n5/labels", overwrite=True)
    assert n5_read(tmp_path / "b.n5/labels").shape == data[:5].T.shape
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.n5"]
    anychunk.convert(file, tmp_path / "c.n5")
    with pytest.raises(FormatError, match=r"c\.n5: .*dataset"):
        anychunk.convert(file, tmp_path / "c.n5/below")


def test_a_remote_container_is_resumed(npy, monkeypatch, parts):
    file, data = npy
    target = "memory://staging/b.n5"
    with monkeypatch.context() as patch:
        fail_after(patch, 9, AnychunkError("stop"))
        with pytest.raises(AnychunkError, match="stop"):
            anychunk.convert(file, target, **OPTIONS)
    done = anychunk.convert(file, target, verify=True, **OPTIONS)
    assert 0 < done.skipped_bytes < data.nbytes
    np.testing.assert_array_equal(anychunk.open_array(target)[...], data)
    keys = [str(o["path"]) for batch in memory_store("staging").list() for o in batch]
    assert not [key for key in keys if "journal" in key]


def test_a_link_in_place_of_the_part_is_refused(npy, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".b.n5.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match=r"\.b\.n5\.part: .*symbolic link"):
        anychunk.convert(npy[0], tmp_path / "b.n5")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_container_that_was_never_finished_is_not_good(tmp_path, npy, monkeypatch):
    """`anychunk.write` fails: no attributes are there, and `verify` says that nothing is."""
    fail_after(monkeypatch, 3, AnychunkError("stop"))
    with pytest.raises(AnychunkError, match="stop"):
        anychunk.write(npy[1], tmp_path / "b.n5/raw", chunk=(16, 16, 16))
    assert not list((tmp_path / "b.n5").rglob("attributes.json"))
    (tmp_path / "b.n5/attributes.json").write_text('{"n5": "2.5.1"}')  # as others leave it
    report = anychunk.verify(tmp_path / "b.n5")
    assert (report.arrays, report.is_good) == (0, False)


def test_a_full_disk_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"f: No space"), sink.create(str(tmp_path / "f")):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(SourceError, match=r"g: No space"), sink.update(str(tmp_path / "g")):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), sink.create(str(tmp_path / "f")):
        raise FileNotFoundError("a source")
