import os

import numpy as np
import obstore
import pytest

import anychunk
from anychunk import limits
from anychunk.errors import (
    FormatError,
    MissingFileError,
    SourceChangedError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.io.block_cache import Blocks, buffered
from anychunk.io.buffers import MemorySource
from anychunk.io.file import FileSource
from anychunk.io.inside import resolve
from anychunk.io.object_stores import memory_store
from anychunk.io.objects import ObjectSource
from anychunk.io.open_sources import Sources
from anychunk.io.opening import Folder, open_source, pin_of, read_object
from anychunk.model.pin import Pin
from tests.support.http_server import serve

DATA = bytes(range(256)) * 1000


@pytest.fixture
def file(tmp_path):
    (tmp_path / "f.bin").write_bytes(DATA)
    return str(tmp_path / "f.bin")


@pytest.fixture(params=["file", "file url", "memory", "http", "bytes", "blocks"])
def source(request, file, tmp_path):
    match request.param:
        case "file":
            yield open_source(file)
        case "file url":
            yield open_source((tmp_path / "f.bin").as_uri())
        case "memory":
            obstore.put(memory_store("test"), "a/f.bin", DATA)
            yield open_source("memory://test/a/f.bin")
        case "http":
            with serve(tmp_path) as served:
                yield open_source(f"{served.url}/f.bin")
        case "bytes":
            yield MemorySource(DATA)
        case "blocks":
            yield Blocks(MemorySource(DATA), block=1000, most=3)


@pytest.mark.processes
def test_reads_exactly_what_was_asked(source):
    assert source.size() == len(DATA)
    assert source.pin().size == len(DATA)
    for offset, length in [
        (0, 0),
        (0, 10),
        (5, 70_000),
        (len(DATA) - 3, 3),
        (len(DATA), 0),
        (999, 2),
    ]:
        found = source.read(offset, length)
        assert found.dtype == np.uint8
        assert found.tobytes() == DATA[offset : offset + length]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 10**7), (len(DATA), 1), (-1, 3), (3, -1), (10**12, 1)]
)
def test_beyond_the_end_is_an_error(source, offset, length):
    with pytest.raises(TruncatedError, match="the object ends after 256000"):
        source.read(offset, length)


@pytest.mark.processes
def test_local_reads_are_views(file):
    source = FileSource(file)
    assert np.shares_memory(source.read(0, 100), source.read(50, 100))


@pytest.mark.processes
def test_first_request_brings_head_and_size(tmp_path, file):
    with serve(tmp_path) as served:
        source = ObjectSource(f"{served.url}/f.bin")
        assert source.size() == len(DATA)
        assert source.read(0, 1000).tobytes() == DATA[:1000]
        assert len(served.requests) == 1


@pytest.mark.processes
def test_empty_object(tmp_path):
    (tmp_path / "e").write_bytes(b"")
    assert FileSource(str(tmp_path / "e")).read(0, 0).tobytes() == b""
    with serve(tmp_path) as served:
        assert ObjectSource(f"{served.url}/e").size() == 0
    obstore.put(memory_store("test"), "e", b"")
    assert ObjectSource("memory://test/e").size() == 0


@pytest.mark.processes
@pytest.mark.parametrize("url", ["{tmp}/none", "memory://test/none", "{http}/none"])
def test_missing(tmp_path, url):
    with serve(tmp_path) as served:
        url = url.format(tmp=tmp_path, http=served.url)
        with pytest.raises(MissingFileError, match="none: no such"):
            open_source(url).size()
        assert read_object(url) is None


@pytest.mark.processes
def test_failing_server_is_retried_then_named(tmp_path, file):
    with serve(tmp_path) as served, limits.override(retries=2, retry_s=10):
        served.fail = [500, 503]
        assert ObjectSource(f"{served.url}/f.bin").size() == len(DATA)
        served.fail = [500] * 50
        with pytest.raises(SourceError, match=r"f\.bin") as caught:
            ObjectSource(f"{served.url}/f.bin").size()
        assert "\n" not in str(caught.value)


@pytest.mark.processes
def test_short_body_is_an_error(tmp_path, file):
    with serve(tmp_path) as served, limits.override(retries=1, retry_s=2):
        source = ObjectSource(f"{served.url}/f.bin")
        source.size()
        served.short = True
        with pytest.raises((SourceError, TruncatedError), match=r"f\.bin"):
            source.read(40_000, 100_000)


def test_unreadable_file(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(SourceError, match="/d: not a regular file"):
        FileSource(str(tmp_path / "d"))
    with pytest.raises(SourceError):
        read_object(str(tmp_path / "d"))


@pytest.mark.parametrize("url", ["ftp://host/x", "gopher://x/y"])
def test_unknown_scheme(url):
    with pytest.raises(UnsupportedError, match="supported: s3 gs az"):
        open_source(url).size()


@pytest.mark.processes
class TestPins:
    def test_changed_before_opening(self, file):
        with pytest.raises(SourceChangedError, match="size 256000, was 5 when indexed"):
            Sources({file: Pin(size=5)}).open(file)

    def test_changed_after_opening(self, file):
        sources = Sources({file: FileSource(file).pin()})
        sources.verify(file)
        os.utime(file, ns=(0, 0))
        with pytest.raises(SourceChangedError, match="index it again"):
            sources.verify(file)

    def test_remote_answers_are_held_against_the_pin(self, tmp_path, file):
        with serve(tmp_path) as served:
            url = f"{served.url}/f.bin"
            sources = Sources({url: ObjectSource(url).pin()})
            assert sources.open(url).read(50_000, 10).tobytes() == DATA[50_000:50_010]
            os.utime(file, ns=(10**18, 10**18))
            with pytest.raises(SourceChangedError, match="etag"):
                sources.open(url).read(50_000, 10)

    def test_etag_decides_alone(self):
        old, new = Pin(size=1, etag="a", mtime_ns=1), Pin(size=1, etag="a", mtime_ns=2)
        assert old.differs(new) is None
        assert Pin(size=1, mtime_ns=1).differs(new) is not None
        assert Pin(size=1).differs(new) is None


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["local", "http"])
def test_a_whole_object_is_held_against_its_pin(tmp_path, kind):
    file = tmp_path / "f.bin"
    file.write_bytes(b"before")
    with serve(tmp_path) as served:
        url = str(file) if kind == "local" else f"{served.url}/f.bin"
        sources = Sources({url: pin_of(url)})
        assert sources.whole(url).tobytes() == b"before"
        file.write_bytes(b"after!")
        os.utime(file, ns=(1, 1))
        with pytest.raises(SourceChangedError, match="index it again"):
            sources.whole(url)
        with pytest.warns(UserWarning, match="may be wrong"):
            assert Sources(sources.pins, on_change="warn").whole(url).tobytes() == b"after!"
        file.unlink()
        assert sources.whole(url) is None
        assert pin_of(url) is None


def test_files_that_are_kept_open_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(anychunk.io.open_sources, "MOST_OPEN", 3)
    sources = Sources({})
    views = []
    for i in range(9):
        (tmp_path / str(i)).write_bytes(bytes([i]))
        views.append(sources.open(str(tmp_path / str(i))).read(0, 1))
    assert len(sources._open) == 3
    assert [int(view[0]) for view in views] == list(range(9))


class Counting(MemorySource):
    reads = 0

    def read(self, offset, length):
        self.reads += 1
        return super().read(offset, length)


def test_blocks_bound_requests_and_memory():
    counting = Counting(DATA)
    blocks = Blocks(counting, block=1000, most=4)
    for i in range(1000):
        blocks.read(i, 4)
    assert counting.reads == 2  # one block, and the next where a read crosses into it
    blocks.read(0, 100_000)
    assert len(blocks._cache) <= 4


def test_blocks_keep_what_small_reads_wanted():
    """Directories that lie apart, more than there are blocks, are fetched once."""
    counting = Counting(DATA)
    for block in (1000, 2048):
        blocks, counting.reads = Blocks(counting, block=block, most=2), 0
        places = range(block - 3, len(DATA) - 40, 2 * block)
        for length in (2, 20, 5, 0):
            for place in places:
                wanted = DATA[place : place + length]
                assert blocks.read(place, length).tobytes() == bytes(wanted)
        assert counting.reads <= 2 * len(places)


def test_a_whole_object_is_bounded():
    obstore.put(memory_store("whole"), "a", b"0123456789")
    sources = Sources({})
    assert bytes(sources.whole("memory://whole/a")) == b"0123456789"
    with limits.override(chunk_bytes=9), pytest.raises(AnyLimit, match="10 bytes are over"):
        sources.whole("memory://whole/a")


class TestFolder:
    @pytest.fixture(params=["local", "memory"])
    def folder(self, request, tmp_path):
        for name in ("a/one", "a/b/two", "three"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(name.encode())
            obstore.put(memory_store("folder"), f"top/{name}", name.encode())
        return Folder(str(tmp_path) if request.param == "local" else "memory://folder/top/")

    def test_names(self, folder):
        assert folder.names() == (["a"], ["three"])
        assert folder.child("a").names() == (["b"], ["one"])

    def test_read(self, folder):
        assert folder.read("three") == b"three"
        assert folder.read("a/b/two") == b"a/b/two"
        assert folder.read("nothing") is None
        with limits.override(header_bytes=2), pytest.raises(AnyLimit):
            folder.read("three")

    def test_web_server_does_not_list(self):
        with pytest.raises(UnsupportedError, match="http://127.0.0.1:1/x: .* list"):
            Folder("http://127.0.0.1:1/x").names()


AnyLimit = anychunk.errors.LimitError


class TestResolve:
    @pytest.mark.parametrize("reference", ["x.raw", "sub/x.raw", "./x.raw", "a b.raw"])
    def test_inside(self, tmp_path, reference):
        assert resolve(str(tmp_path), reference).startswith(f"{tmp_path}/")

    @pytest.mark.parametrize(
        "reference",
        [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "file:///etc/passwd",
            "s3://b/k",
            "http://h/x",
            "..",
            "a\0b",
            "..\\x",
            "\\\\host\\x",
        ],
    )
    @pytest.mark.parametrize("base", ["local", "s3://bucket/folder"])
    def test_outside_is_refused(self, tmp_path, base, reference):
        with pytest.raises(FormatError, match="leads outside"):
            resolve(str(tmp_path) if base == "local" else base, reference)

    def test_link_that_leads_outside_is_refused(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "secret").write_text("x")
        (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
        with pytest.raises(FormatError, match="leads outside"):
            resolve(str(tmp_path / "in"), "link")

    def test_allowed_explicitly(self, tmp_path):
        assert resolve(str(tmp_path), "s3://b/k", allow=["s3://b/"]) == "s3://b/k"
        with pytest.raises(FormatError):
            resolve(str(tmp_path), "s3://c/k", allow=["s3://b/"])


@pytest.mark.processes
def test_blocks_take_the_head_from_the_first_request(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100_000))
    with serve(tmp_path) as served:
        source = open_source(f"{served.url}/a")
        blocks = buffered(source)
        blocks.read(0, 1000)
        blocks.read(5000, 20_000)
        assert len(served.requests) == 1
        blocks.read(30_000, 10_000)
        assert len(served.requests) == 2
