"""Local files that are read by position or whole; maps are tested in test_source.py."""

import copy
import os
import pickle

import numpy as np
import pytest

from anychunk.errors import (
    FormatError,
    LimitError,
    SourceChangedError,
    SourceError,
    TruncatedError,
)
from anychunk.io import file
from anychunk.io.file import FileSource, ObjectBuffer, PreadSource, stat_pin
from anychunk.io.open_sources import Sources
from anychunk.io.system import read_into


def test_every_read_is_checked_against_the_pin(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(200)))
    source = PreadSource(str(path))
    assert source.read(10, 5).tobytes() == bytes(range(10, 15))
    now = source.read_now(10, 5)
    assert now is None or now.tobytes() == bytes(range(10, 15))
    with pytest.raises(TruncatedError):
        source.read(190, 20)
    path.write_bytes(bytes(100))
    for read in (source.read, source.read_now):
        with pytest.raises(SourceChangedError):
            read(10, 5)
    path.unlink()
    with pytest.raises(SourceError, match="a.bin"):
        source.read(10, 5)
    with pytest.raises(SourceError, match="a.bin"):
        source.verify()


def test_reads_without_waiting_are_optional(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100))
    source = PreadSource(str(path))

    def not_supported(*_):
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "preadv", not_supported)
    assert source.read_now(0, 10) is None
    with pytest.raises(SourceError, match="not supported"):
        source.read(0, 10)
    monkeypatch.undo()
    monkeypatch.setattr(file, "NOWAIT", 0)
    assert source.read_now(0, 10) is None


def test_runs_are_read_into_one_array(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(200)))
    source = PreadSource(f"file://{path}")
    assert source.read_runs([5, 100, 7], 3).tolist() == [5, 6, 7, 100, 101, 102, 7, 8, 9]
    with pytest.raises(TruncatedError, match=r"@199: .*3 bytes.* 200"):
        source.read_runs([5, 199], 3)


def test_files_outside_of_the_roots_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "in" / "a").write_bytes(b"abc")
    (tmp_path / "in" / "b").symlink_to(tmp_path / "secret")
    roots = (str(tmp_path / "in"),)
    assert PreadSource(str(tmp_path / "in" / "a"), roots=roots).read(0, 3).tobytes() == b"abc"
    with pytest.raises(FormatError):
        PreadSource(str(tmp_path / "in" / "b"), roots=roots)
    pinned = PreadSource(
        str(tmp_path / "in" / "b"), stat_pin(str(tmp_path / "secret")), roots=roots
    )
    with pytest.raises(FormatError):
        pinned.read(0, 3)


def test_unmapped_sources(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100))
    pins = {str(path): FileSource(str(path)).pin()}
    sources = Sources(pins, mapped=False)
    source = sources.open(str(path))
    assert isinstance(source, PreadSource)
    assert sources.open(str(path)) is source
    os.truncate(path, 50)
    assert sources.verify(str(path)) is source
    with pytest.raises(SourceChangedError):
        source.read(0, 10)


def test_short_reads_are_continued(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(100)))
    readv, preadv = os.readv, os.preadv
    monkeypatch.setattr(os, "readv", lambda handle, views: readv(handle, [views[0][:7]]))
    monkeypatch.setattr(os, "preadv", lambda h, views, at, flags: preadv(h, [views[0][:7]], at))
    assert ObjectBuffer().read(str(path)).tobytes() == bytes(range(100))
    assert PreadSource(str(path)).read(10, 80).tobytes() == bytes(range(10, 90))
    handle = os.open(path, os.O_RDONLY)
    try:
        out = memoryview(bytearray(30))
        assert read_into(handle, out, offset=90) == 10
        assert bytes(out[:10]) == bytes(range(90, 100))
    finally:
        os.close(handle)


def test_a_buffer_is_bounded_and_used_again(tmp_path):
    for name, size in (("a", 100), ("b", 10), ("c", 200)):
        (tmp_path / name).write_bytes(bytes([size]) * size)
    buffer = ObjectBuffer(150)
    first = buffer.read(str(tmp_path / "a"))
    second = buffer.read(str(tmp_path / "b"))
    assert np.shares_memory(first, second)
    assert second.tobytes() == bytes([10]) * 10
    with pytest.raises(LimitError, match=r"200 .*150"):
        buffer.read(str(tmp_path / "c"))
    assert buffer.read(str(tmp_path / "none")) is None


def test_versions_of_files(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert stat_pin(str(tmp_path / "a")).size == 3
    assert stat_pin(str(tmp_path / "none")) is None
    assert stat_pin(str(tmp_path / "a" / "b")) is None
    with pytest.raises(SourceError):
        stat_pin(str(tmp_path / ("x" * 5000)))


def rewritten(path, data, *, by):
    """Change the content of a file, and restore its size and its time of modification."""
    before = path.stat()
    if by == "writing":
        with path.open("r+b") as file:
            file.write(data)
    else:
        other = path.with_suffix(".new")
        other.write_bytes(data)
        other.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


needs_status_times = pytest.mark.skipif(
    os.name == "nt", reason="Windows does not record when the status of a file changed"
)


@needs_status_times
@pytest.mark.parametrize("by", ["writing", "replacing"])
@pytest.mark.parametrize("mapped", [True, False])
def test_restored_times_do_not_hide_a_change(tmp_path, by, mapped):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    sources = Sources({str(path): FileSource(str(path)).pin()}, mapped=mapped)
    assert sources.verify(str(path)).read(0, 6).tobytes() == b"before"
    rewritten(path, b"after!", by=by)
    for _ in range(3):
        with pytest.raises(SourceChangedError, match="status change.*open it again"):
            sources.verify(str(path)).read(0, 6)


@needs_status_times
@pytest.mark.parametrize("what", ["permissions", "a hard link"])
def test_a_change_of_status_alone_says_so(tmp_path, what):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    sources = Sources({}, on_change="warn")
    sources.verify(str(path))
    if what == "permissions":
        path.chmod(0o600)
    else:
        os.link(path, tmp_path / "b")
    with pytest.warns(UserWarning, match="permissions, name or number of hard links"):
        assert sources.verify(str(path)).read(0, 6).tobytes() == b"before"
    assert sources.verify(str(path)).read(0, 6).tobytes() == b"before"


def test_a_pickled_pin_has_neither_inode_nor_time_of_status_change(tmp_path):
    """They differ for every copy of a file, so only this process can compare them."""
    (tmp_path / "a").write_bytes(b"before")
    pin = FileSource(str(tmp_path / "a")).pin()
    status = (tmp_path / "a").stat()
    for number in (status.st_ino, status.st_ctime_ns):
        assert (number in pin.identity) == (os.name != "nt")
    assert pickle.loads(pickle.dumps(pin)).identity == ()
    assert copy.deepcopy(pin).identity == pin.identity
    assert str(status.st_ino) not in repr(pin)


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")


@needs_pipes
@pytest.mark.parametrize("mapped", [True, False])
def test_a_pipe_is_refused(tmp_path, mapped):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(SourceError):
        Sources({}, mapped=mapped).open(str(tmp_path / "a")).read(0, 1)
    with pytest.raises(SourceError, match="regular"):
        ObjectBuffer().read(str(tmp_path / "a"))
