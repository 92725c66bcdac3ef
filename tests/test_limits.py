import pytest

from anychunk import limits
from anychunk.errors import LimitError


def test_override_is_undone():
    before = limits.get()
    with limits.override(chunk_bytes=5) as now:
        assert limits.get() is now
        assert now.chunk_bytes == 5
    assert limits.get() is before


def test_chunk_size():
    limits.check_chunk(limits.get().chunk_bytes, where="x")
    with pytest.raises(LimitError, match="x: a chunk of .* is over the limit"):
        limits.check_chunk(limits.get().chunk_bytes + 1, where="x")


def test_expansion():
    limits.check_chunk(limits.get().free_bytes, where="x", stored=1)
    limits.check_chunk(100 * limits.MIB, where="x", stored=limits.MIB)
    with pytest.raises(LimitError, match="x: 10 stored bytes announce a chunk"):
        limits.check_chunk(100 * limits.MIB, where="x", stored=10)


def test_header():
    with limits.override(header_bytes=10), pytest.raises(LimitError, match="11 bytes of header"):
        limits.check_header(11, where="x")
