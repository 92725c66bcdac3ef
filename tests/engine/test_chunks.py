import os

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import limits
from anychunk.codecs.chain import Decoder
from anychunk.engine.chunks import RECENT
from anychunk.engine.rows import Table
from anychunk.errors import SourceChangedError

VALUES = np.random.default_rng(0).integers(0, 9999, (300, 300), dtype="uint16")


@pytest.fixture
def path(tmp_path):
    RECENT.clear()
    tifffile.imwrite(tmp_path / "a.tif", VALUES, tile=(64, 64), compression="zlib", predictor=2)
    yield tmp_path / "a.tif"
    RECENT.clear()


@pytest.fixture
def decoded(monkeypatch):
    """Count the chunks that are decoded."""
    found = []
    before = Decoder.__call__

    def call(self, data, scratch=None):
        found.append(len(data))
        return before(self, data, scratch)

    def decode(self, data, real=Table.decode):
        found.extend(data.lengths.tolist())
        return real(self, data)

    monkeypatch.setattr(Decoder, "__call__", call)
    monkeypatch.setattr(Table, "decode", decode)
    return found


def test_parts_of_a_chunk_decode_it_once(path, decoded):
    array = anychunk.open_array(path)
    for row in range(64):
        np.testing.assert_array_equal(array[row], VALUES[row])
    assert len(decoded) == 5
    assert 0 < RECENT.nbytes <= limits.get().recent_bytes


def test_whole_chunks_are_not_kept(path):
    array = anychunk.open_array(path)
    np.testing.assert_array_equal(array[...], VALUES)
    np.testing.assert_array_equal(array[64:128, 64:128], VALUES[64:128, 64:128])
    assert RECENT.nbytes == 0


def test_kept_chunks_are_read_only(path, monkeypatch):
    kept = []
    put = RECENT.put
    monkeypatch.setattr(RECENT, "put", lambda key, *rest: kept.append(key) or put(key, *rest))
    anychunk.open_array(path)[:5, :5]
    (key,) = kept
    with pytest.raises(ValueError, match="read-only"):
        RECENT.get(key)[0] = 1


def test_results_are_the_callers_own(path):
    array = anychunk.open_array(path)
    array[:5, :5][...] = 7
    found = array[:5, :5]
    np.testing.assert_array_equal(found, VALUES[:5, :5])
    found[...] = 7
    np.testing.assert_array_equal(array[:5, :5], VALUES[:5, :5])


def test_a_changed_file_is_noticed(path):
    array, trusting = anychunk.open_array(path), anychunk.open_array(path, on_change="warn")
    for opened in (array, trusting):
        np.testing.assert_array_equal(opened[:5, :5], VALUES[:5, :5])
    tifffile.imwrite(path, VALUES + 1, tile=(64, 64), compression="zlib", predictor=2)
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(SourceChangedError):
        array[:5, :5]
    with pytest.warns(UserWarning, match="may be wrong"):
        found = trusting[:5, :5]
    assert not np.array_equal(found, VALUES[:5, :5])


def test_bounded(path):
    with limits.override(recent_bytes=3 * 64 * 64 * 2):
        array = anychunk.open_array(path)
        for start in range(0, 256, 64):
            for other in range(0, 256, 64):
                box = np.s_[start : start + 9, other : other + 9]
                np.testing.assert_array_equal(array[box], VALUES[box])
                assert RECENT.nbytes <= limits.get().recent_bytes
    with limits.override(recent_bytes=0):
        RECENT.clear()
        np.testing.assert_array_equal(array[:5, :5], VALUES[:5, :5])
        assert RECENT.nbytes == 0
