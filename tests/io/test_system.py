"""Functions that a system may lack: each is taken away, and its fallback does the same."""

import errno
import io
import os
import threading

import numpy as np
import pytest

import anychunk
from anychunk.conversion import staging
from anychunk.errors import FormatError, SourceError, UnsupportedError
from anychunk.io import inside, sink, system
from anychunk.io.file import PreadSource
from anychunk.io.inside import Walk, resolve
from anychunk.references.urls import UrlResolver

DATA = bytes(range(256)) * 40


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(DATA)
    return tmp_path / "file"


@pytest.fixture(params=["with", "without"])
def every_call(request, monkeypatch):
    """With all calls of this system, and without those that Windows lacks."""
    if request.param == "without":
        for name in ("HAS_PREADV", "HAS_READV", "HAS_PWRITE", "HAS_WRITEV"):
            monkeypatch.setattr(system, name, False)
        for name in ("preadv", "pread", "readv", "writev", "pwrite", "fchmod"):
            monkeypatch.delattr(os, name)


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(system, "IS_WINDOWS", True)
    monkeypatch.setattr(system, "PAUSES_S", (0.0, 0.0))


@pytest.mark.usefixtures("every_call")
class TestReadsAndWrites:
    def test_read_by_position(self, file):
        handle, out = os.open(file, system.READ), bytearray(300)
        try:
            assert system.read_into(handle, memoryview(out), offset=100) == 300
            assert bytes(out) == DATA[100:400]
            assert system.read_into(handle, memoryview(out), offset=len(DATA) - 10) == 10
            assert bytes(out[:10]) == DATA[-10:]
            assert system.read_into(handle, memoryview(out), offset=len(DATA) + 10) == 0
        finally:
            os.close(handle)

    def test_read_on(self, file):
        handle, out = os.open(file, system.READ), bytearray(len(DATA) + 5)
        try:
            assert system.read_into(handle, memoryview(out)) == len(DATA)
            assert bytes(out[: len(DATA)]) == DATA
        finally:
            os.close(handle)

    def test_source(self, file):
        source = PreadSource(str(file))
        assert source.read_runs((5, 1000), 20).tobytes() == DATA[5:25] + DATA[1000:1020]
        # answers at once, or says that it does not know
        now = source.read_now(5, 20)
        assert now is None or now.tobytes() == DATA[5:25]

    def test_threads_share_a_handle(self, tmp_path):
        """Blocks are written and read back by several threads, in any order."""
        with (tmp_path / "scratch").open("w+b") as scratch:
            handle, wrong = scratch.fileno(), []

            def work(number):
                for i in range(number, 400, 4):
                    system.write_at(handle, np.full(1000, i % 251, np.uint8), i * 1000)
                    if system.read_at(handle, 1000, i * 1000) != bytes([i % 251]) * 1000:
                        wrong.append(i)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong
            whole = np.frombuffer(system.read_at(handle, 400_000, 0), np.uint8)
            np.testing.assert_array_equal(whole, np.arange(400).repeat(1000) % 251)
            system.write_at(handle, np.empty((0, 3), "u2"), 7)
            assert system.read_at(handle, 10, 399_995) == bytes([399 % 251]) * 5

    def test_pieces_are_written(self, tmp_path):
        place = tmp_path / "folder" / "chunk"
        sink.put(str(place), b"abc", np.arange(3, dtype="<u2"), b"", b"end")
        assert place.read_bytes() == b"abc\0\0\1\0\2\0end"
        sink.put(str(place), b"new", root=str(tmp_path))
        assert place.read_bytes() == b"new"
        assert [p.name for p in (place.parent).iterdir()] == ["chunk"]

    def test_file_is_created(self, tmp_path):
        with sink.create(str(tmp_path / "made")) as made:
            made.write(DATA)
        assert (tmp_path / "made").read_bytes() == DATA


def test_short_writes_are_continued(tmp_path, monkeypatch):
    """A write may take less than it is given: before, the rest was lost."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: pwrite(handle, data[:7], at))
    monkeypatch.setattr(os, "pread", lambda handle, length, at: pread(handle, min(length, 9), at))
    with (tmp_path / "scratch").open("w+b") as scratch:
        system.write_at(scratch.fileno(), np.arange(50, dtype="<u2"), 3)
        found = system.read_at(scratch.fileno(), 100, 3)
    np.testing.assert_array_equal(np.frombuffer(found, "<u2"), np.arange(50))


def test_file_that_would_block(monkeypatch, file):
    monkeypatch.setattr(system, "HAS_PREADV", False)
    monkeypatch.setattr(io, "FileIO", lambda *_, **__: _Blocked())
    handle = os.open(file, system.READ)
    try:
        with pytest.raises(BlockingIOError):
            system.read_into(handle, memoryview(bytearray(5)), offset=0)
    finally:
        os.close(handle)


class _Blocked:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def readinto(self, _):
        return None


@pytest.mark.usefixtures("windows")
class TestReplace:
    """On Windows a file that is open cannot be replaced."""

    def test_it_is_tried_again(self, tmp_path, monkeypatch):
        failures, replace = [1, 1], os.replace

        def busy(source, target):
            if failures:
                failures.pop()
                raise PermissionError(errno.EACCES, "Access is denied")
            replace(source, target)

        monkeypatch.setattr(os, "replace", busy)
        sink.put(str(tmp_path / "a"), b"new")
        assert (tmp_path / "a").read_bytes() == b"new"
        assert not failures

    @pytest.mark.parametrize("way", ["put", "create"])
    def test_a_file_that_stays_open_is_an_error(self, tmp_path, monkeypatch, way):
        def busy(source, target):
            raise PermissionError(errno.EACCES, "Access is denied")

        (tmp_path / "a").write_bytes(b"old")
        monkeypatch.setattr(os, "replace", busy)
        with pytest.raises(SourceError, match="a: cannot be replaced .Access is denied.; close"):
            if way == "put":
                sink.put(str(tmp_path / "a"), b"new")
            else:
                with sink.create(str(tmp_path / "a")) as made:
                    made.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert [p.name for p in (tmp_path).iterdir()] == ["a"]


@pytest.mark.usefixtures("windows")
def test_locks_are_removed_when_they_are_closed(tmp_path, monkeypatch):
    """Windows does not remove a file that is open."""
    opened, unlink = set(), os.unlink
    os_open, os_close = os.open, os.close

    def opening(path, *args):
        handle = os_open(path, *args)
        opened.add(handle)
        return handle

    def closing(handle):
        opened.discard(handle)
        os_close(handle)

    def busy(path):
        if opened:
            raise PermissionError(errno.EACCES, "Access is denied")
        unlink(path)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    monkeypatch.setattr(os, "unlink", busy)
    with staging.exclusive(str(tmp_path / "lock"), "taken"):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def test_other_systems_do_not_try_again(tmp_path, monkeypatch):
    calls = []

    def refuse(source, target):
        calls.append(target)
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SourceError, match="Permission denied"):
        sink.put(str(tmp_path / "a"), b"new")
    assert len(calls) == 1


@pytest.mark.usefixtures("windows")
class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["NUL", "con", "Aux.txt", "com1.tif", "LPT¹", "NUL .a", "CONIN$", "a:b", "a.", "a ", "C:"],
    )
    def test_special(self, name):
        assert system.is_special(name)
        with pytest.raises(FormatError):
            resolve("/data", name if name != "C:" else "x/C:")
        with pytest.raises(FormatError):
            resolve("/data", f"sub/{name}/x")
        with pytest.raises(FormatError):
            UrlResolver(url="/data/index.json").resolve(f"sub/{name}")
        with pytest.raises(FormatError), Walk(["/data"]) as walk:
            walk._open_real(f"/data/{name}", system.READ)

    @pytest.mark.parametrize("name", ["a.tif", "console", "COM", "com10", "nul1", "..", ".", "a b"])
    def test_plain(self, name):
        assert not system.is_special(name)

    @pytest.mark.parametrize(
        "reference",
        [
            "C:/Windows/a",
            "c:a",
            "\\\\server\\share\\a",
            "//server/share/a",
            "..\\a",
            "x\\..\\..\\a",
            "\\a",
            "file:///C:/a",
            "file://server/share/a",
        ],
    )
    def test_references_that_leave_the_folder(self, reference):
        """A share of another server must not even be looked at: Windows would log in there."""
        with pytest.raises(FormatError, match="outside|not the name"):
            resolve("/data", reference)
        with pytest.raises(FormatError, match="outside|not the name"):
            UrlResolver(url="/data/index.json").resolve(reference)


def test_special_names_are_plain_elsewhere(tmp_path):
    assert not system.is_special("NUL")
    assert resolve(str(tmp_path), "a:b") == f"{tmp_path}/a:b"


class TestCase:
    """Where `a` and `A` are one file, the second array would overwrite the first."""

    @pytest.fixture
    def ignoring(self, monkeypatch):
        """A file system that ignores case, as those of macOS and Windows do."""
        samefile = os.path.samefile
        monkeypatch.setattr(
            os.path, "samefile", lambda a, b: samefile(a, a) and a.lower() == b.lower()
        )

    def test_this_file_system(self, tmp_path):
        (tmp_path / "case").mkdir()
        is_same = (tmp_path / "CASE").exists()
        assert system.ignores_case(str(tmp_path / "case")) == is_same
        assert system.ignores_case(str(tmp_path / "case" / "not there" / "1")) == is_same

    def test_the_root(self, monkeypatch):
        assert not system.ignores_case("/")
        monkeypatch.setattr(system, "IS_WINDOWS", True)
        assert system.ignores_case("/")

    def test_names_that_differ_in_case_only(self, tmp_path, ignoring):
        with pytest.raises(UnsupportedError, match="'a/B' and 'a/b'"):
            sink.check_case(str(tmp_path / "t"), ["a", "a/B", "a/b"])
        sink.check_case(str(tmp_path / "t"), ["a", "a/B", "c"])
        sink.check_case("memory://t", ["a", "A"])

    @pytest.mark.parametrize("suffix", [".zarr", ".parquet"])
    def test_nothing_is_overwritten(self, tmp_path, ignoring, suffix):
        for name, value in (("a", 1), ("A", 2)):
            (tmp_path / str(value)).mkdir()
            np.save(tmp_path / str(value) / f"{name}.npy", np.full((4, 4), value))
        index = anychunk.index([tmp_path / "1/a.npy", tmp_path / "2/A.npy"], combine="group")
        with pytest.raises(UnsupportedError, match="differ only in case"):
            if suffix == ".zarr":
                anychunk.convert(index, tmp_path / "out.zarr")
            else:
                index.save(tmp_path / "out.parquet")
        assert not (tmp_path / f"out{suffix}").exists()

    def test_names_are_kept_where_they_differ(self, tmp_path):
        sink.check_case(str(tmp_path), ["a", "A"])


@pytest.mark.usefixtures("windows")
def test_real_paths_are_compared_as_windows_does():
    assert inside.is_below("\\\\?\\C:\\Data\\a.tif", "c:\\data")
    assert inside.is_below("//?/UNC/server/share/a", "//SERVER/share")
    assert inside.is_below("C:/", "C:/")
    assert inside.is_below("C:/a", "C:/")
    assert not inside.is_below("C:/database/a", "C:/data")
    assert not inside.is_below("D:/data/a", "C:/data")


@pytest.mark.usefixtures("windows")
def test_junctions_are_links(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    assert not system.is_link(str(tmp_path / "folder"))
    monkeypatch.setattr(os.path, "isjunction", lambda path: path.endswith("folder"))
    assert system.is_link(str(tmp_path / "folder"))


class TestOpenedElsewhere:
    """Without directory handles: the opened file is compared with the one that was checked."""

    @pytest.fixture(autouse=True, params=["system says where", "system does not say"])
    def names_only(self, request, monkeypatch):
        monkeypatch.setattr(system, "HAS_HANDLES", False)
        if request.param == "system does not say":
            monkeypatch.setattr(system, "HAS_PROC", False)

    def swapped(self, monkeypatch, swap):
        """Let an attacker act between the check of a path and its opening."""
        os_open = os.open

        def opening(path, *args, **kwargs):
            swap()
            return os_open(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", opening)

    @pytest.mark.parametrize("swaps_back", [False, True])
    def test_read(self, tmp_path, monkeypatch, swaps_back):
        folder = tmp_path / "in" / "sub"
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(b"mine")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "a").write_bytes(b"secret")
        moved = tmp_path / "in" / "moved"

        def swap():
            if not moved.exists():
                folder.rename(moved)
                folder.symlink_to(tmp_path / "out")

        fstat = os.fstat

        def swap_back(handle):
            if swaps_back and moved.exists():
                folder.unlink()
                moved.rename(folder)
            return fstat(handle)

        self.swapped(monkeypatch, swap)
        monkeypatch.setattr(os, "fstat", swap_back)
        with Walk([str(tmp_path / "in")]) as walk, pytest.raises(FormatError):
            walk.open(str(folder / "a"))

    def test_write(self, tmp_path, monkeypatch):
        folder = tmp_path / "in" / "sub"
        folder.mkdir(parents=True)
        (tmp_path / "out").mkdir()

        def swap():
            if not folder.is_symlink():
                folder.rmdir()
                folder.symlink_to(tmp_path / "out")

        self.swapped(monkeypatch, swap)
        with pytest.raises(FormatError):
            sink.put(str(folder / "a"), b"bytes", root=str(tmp_path / "in"))
        assert [p.name for p in (tmp_path / "out").iterdir()] == []

    def test_a_link_is_not_updated(self, tmp_path, monkeypatch):
        monkeypatch.setattr(system, "NOFOLLOW", 0)
        monkeypatch.setattr(sink, "UPDATE", os.O_RDWR | os.O_CREAT)
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / "a").symlink_to("secret")
        with pytest.raises(SourceError, match="symbolic link"), sink.update(str(tmp_path / "a")):
            pytest.fail("the file behind the link was opened")
        with sink.update(str(tmp_path / "b")) as file:
            file.write(b"bytes")
        assert (tmp_path / "b").read_bytes() == b"bytes"

    def test_a_temporary_name_that_is_a_link(self, tmp_path, monkeypatch):
        """Without O_NOFOLLOW the file behind it must not be overwritten."""
        monkeypatch.setattr(sink, "WRITE", system.WRITE & ~system.NOFOLLOW | os.O_EXCL)
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / sink._aside_name("a")).symlink_to("secret")
        sink.put(str(tmp_path / "a"), b"bytes")
        assert (tmp_path / "a").read_bytes() == b"bytes"
        assert (tmp_path / "secret").read_bytes() == b"secret"
