import stat

import obstore
import pytest

from anychunk.errors import SourceError
from anychunk.io.object_stores import memory_store
from anychunk.io.opening import read_object
from anychunk.io.sink import create, creating, put


def test_create_replaces_only_when_complete(tmp_path):
    target = tmp_path / "sub" / "f"
    with create(str(target)) as file:
        file.write(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) & 0o444
    with pytest.raises(ZeroDivisionError), create(str(target)) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"new"
    assert [path.name for path in target.parent.iterdir()] == ["f"]


def test_a_file_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "made"
    with creating(str(target)) as file:
        file.write(b"one")
        assert not target.exists()
        file.write(b"two")
    assert target.read_bytes() == b"onetwo"
    with pytest.raises(RuntimeError), creating(str(target)) as file:
        file.write(b"half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert target.read_bytes() == b"onetwo"


@pytest.mark.parametrize("url", ["{tmp}/a/b/c", "memory://sink/a/b/c"])
def test_put(tmp_path, url):
    url = url.format(tmp=tmp_path)
    put(url, b"one")
    put(url, memoryview(b"two"))
    assert read_object(url).tobytes() == b"two"


def test_put_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceError, match="file"):
        put(str(tmp_path / "file" / "below"), b"x")
    (tmp_path / "dir").mkdir()
    with pytest.raises(SourceError):
        put(str(tmp_path / "dir"), b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir", "file"]


def test_memory_store_is_shared_by_name():
    obstore.put(memory_store("shared"), "k", b"v")
    assert read_object("memory://shared/k").tobytes() == b"v"
    assert read_object("memory://other/k") is None
