"""Bytes that wait in temporary files."""

import pytest

from anychunk.io import sink
from anychunk.references.parquet import Spool


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
