"""Bytes that wait in temporary files, and memory that is returned."""

import ctypes

import pytest

from anychunk.io import buffers, sink
from anychunk.io.spool import Spool


def test_named_bytes_come_back_in_order():
    expected = [("a/b", b"one"), ("ü", b""), ("", b"x" * 100_000), ("a/b", b"again")]
    with Spool() as spool:
        assert list(spool) == []
        for name, data in expected:
            spool.add(name, data)
        assert list(spool) == expected
        assert list(spool) == expected


def test_a_local_file_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "made"
    with sink.creating(str(target)) as file:
        file.write(b"one")
        assert not target.exists()
        file.write(b"two")
    assert target.read_bytes() == b"onetwo"
    with pytest.raises(RuntimeError), sink.creating(str(target)) as file:
        file.write(b"half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert target.read_bytes() == b"onetwo"


def test_the_allocator_is_set_back(monkeypatch):
    calls = []

    class Library:
        def mallopt(self, parameter, value):
            calls.append((parameter, value))

        def malloc_trim(self, pad):
            calls.append("trim")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    with pytest.raises(RuntimeError), buffers.returned_at_once():
        assert calls == [(-3, 1 << 20)]
        raise RuntimeError
    assert calls == [(-3, 1 << 20), (-3, 32 << 20), "trim"]


def test_systems_without_these_calls(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with buffers.returned_at_once():
        pass
    buffers.give_back()
