"""Bodies of responses: stored chunks that are read whole, and those read while they are sent."""

from dataclasses import replace

import numpy as np
import pytest

import anychunk
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import FormatError, SourceChangedError, SourceError, TruncatedError
from anychunk.io.file import FileSource, PreadSource
from anychunk.io.objects import ObjectSource
from anychunk.io.open_sources import Sources
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Objects, Parts
from anychunk_serve import response_bodies as module
from anychunk_serve.response_bodies import BytesBody, StoredBody, stored_body
from tests.support.http_server import serve

FILE = bytes(range(250)) * 4


@pytest.fixture(autouse=True)
def streamed(monkeypatch):
    """Stream chunks of 100 bytes and more."""
    monkeypatch.setattr(module, "STREAMED_BYTES", 100)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "a.bin").write_bytes(FILE)
    return str(tmp_path / "a.bin")


def table(*values):
    return np.asarray(values, np.uint64)


def reader(chunks, pins=None):
    array = ArrayIndex(
        shape=chunks.grid,
        chunk_shape=(1,) * len(chunks.grid),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=chunks,
        dimension_names=("x",),
    )
    return ChunkReader(array, Sources(pins or {}, mapped=False), where="a.bin 0")


def whole(body):
    return bytes(body.read(0, len(body)))


def every_part(body):
    """Read a body in pieces of every size, and from every start."""
    data = whole(body)
    for size in (1, 7, 60, 99):
        pieces = [bytes(body.read(n, min(n + size, len(data)))) for n in range(0, len(data), size)]
        assert b"".join(pieces) == data
    for start in range(0, len(data), 13):
        assert bytes(body.read(start, len(data))) == data[start:]
    return data


def test_bytes():
    body = BytesBody.of(b"0123456789")
    assert (len(body), bytes(body.read(2, 5)), body.is_in_memory) == (10, b"234", True)
    assert BytesBody.of(memoryview(b"0123456789")).etag == body.etag
    assert BytesBody.of(b"012345678").etag != body.etag


def test_small_chunks_are_read_whole(file):
    made = reader(ByteRanges(offsets=table(5, 50), lengths=table(99, 0), urls=(file,)))
    body = stored_body(made, 0)
    assert isinstance(body, BytesBody)
    assert whole(body) == FILE[5:104]
    assert stored_body(made, 1) is None, "absent"


def test_large_chunks_are_streamed(file):
    made = reader(ByteRanges(offsets=table(5), lengths=table(300), urls=(file,)))
    body = stored_body(made, 0)
    assert isinstance(body, StoredBody)
    assert not body.is_in_memory
    assert every_part(body) == FILE[5:305]


def test_fronts_and_parts_are_joined(file):
    chunks = ByteRanges(
        offsets=table(900, 0),
        lengths=table(50, 60),
        urls=(file,),
        parts=Parts(starts=table(0, 2, 3), offsets=table(100, 300, 7), lengths=table(40, 30, 1)),
        fronts=(b"front", b"other front"),
        front_ids=np.array([1, 0], np.uint8),
    )
    made = reader(chunks)
    expected = b"other front" + FILE[900:950] + FILE[100:140] + FILE[300:330]
    body = stored_body(made, 0)
    assert isinstance(body, StoredBody)
    assert every_part(body) == expected == bytes(made.read(0))
    # the second chunk is short enough for memory
    assert whole(stored_body(made, 1)) == b"front" + FILE[:60] + FILE[7:8]


def test_whole_files(file):
    made = reader(ByteRanges(offsets=table(0), lengths=table(WHOLE), urls=(file,)))
    body = stored_body(made, 0)
    assert isinstance(body, StoredBody)
    assert every_part(body) == FILE


def test_chunks_that_the_index_holds_are_in_memory():
    made = reader(ByteRanges(offsets=table(100), lengths=table(400), urls=("",), inline=FILE[:600]))
    body = stored_body(made, 0)
    assert body.is_in_memory
    assert whole(body) == FILE[100:500]


def test_one_file_per_chunk(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_bytes(FILE)
    (tmp_path / "in" / "1").write_bytes(FILE[:10])
    (tmp_path / "secret").write_bytes(FILE)
    (tmp_path / "in" / "3").symlink_to(tmp_path / "secret")
    chunks = Objects(base=str(tmp_path / "in"), pattern="{0}", grid=(4,), fronts=(b"front",))
    made = reader(chunks)
    assert isinstance(stored_body(made, 0), StoredBody)
    assert every_part(stored_body(made, 0)) == b"front" + FILE
    assert whole(stored_body(made, 1)) == b"front" + FILE[:10]
    assert stored_body(made, 2) is None, "absent"
    with pytest.raises(FormatError, match="3"):
        stored_body(made, 3)
    with pytest.raises(FormatError, match="3"):
        StoredBody(made, 3)
    with pytest.raises(TruncatedError, match="2"):
        stored_body(reader(replace(chunks, is_sparse=False)), 2)


@pytest.mark.processes
def test_remote_chunks(file, tmp_path):
    with serve(tmp_path) as web:
        url = f"{web.url}/a.bin"
        made = reader(ByteRanges(offsets=table(5), lengths=table(300), urls=(url,)))
        body = stored_body(made, 0)
        assert isinstance(body, StoredBody)
        assert isinstance(body._parts[0][0], ObjectSource)
        assert bytes(body.read(100, 120)) == FILE[105:125]
        objects = Objects(base=web.url, pattern="a.bin", grid=(1,))
        assert whole(stored_body(reader(objects), 0)) == FILE


def test_etags_tell_versions_and_ranges_apart(file, tmp_path):
    def etag(offset, length):
        chunks = ByteRanges(offsets=table(offset), lengths=table(length), urls=(file,))
        return stored_body(reader(chunks), 0).etag

    first = etag(5, 300)
    assert etag(5, 300) == first
    assert len({first, etag(6, 300), etag(5, 301)}) == 3
    (tmp_path / "a.bin").write_bytes(FILE + b"more")
    assert etag(5, 300) != first


def test_a_file_that_changes_while_it_is_sent(file, tmp_path):
    pins = {file: FileSource(file).pin()}
    made = reader(ByteRanges(offsets=table(5), lengths=table(300), urls=(file,)), pins)
    body = stored_body(made, 0)
    assert bytes(body.read(0, 10)) == FILE[5:15]
    (tmp_path / "a.bin").write_bytes(FILE[:50])
    with pytest.raises(SourceChangedError, match=r"chunk \(0,\), bytes 5\.\.305"):
        body.read(10, 20)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(SourceError, match=r"chunk \(0,\), bytes 5\.\.305"):
        body.read(10, 20)


def test_a_chunk_beyond_the_end_of_its_file(file):
    made = reader(ByteRanges(offsets=table(900), lengths=table(300), urls=(file,)))
    body = stored_body(made, 0)
    assert bytes(body.read(0, 100)) == FILE[900:]
    with pytest.raises(TruncatedError, match=r"@1000: .*\b1 bytes.* 1000"):
        body.read(100, 101)


def test_sources_are_never_mapped(file):
    made = reader(ByteRanges(offsets=table(0), lengths=table(300), urls=(file,)))
    assert isinstance(stored_body(made, 0)._parts[0][0], PreadSource)


def test_large_chunks_over_http(client_of, tmp_path):
    """A chunk of an N5 container and one of a TIFF file, streamed, with ranges and HEAD."""
    import tifffile

    data = np.random.default_rng(0).integers(0, 60000, (700, 900), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", data, rowsperstrip=700)
    anychunk.write(data, tmp_path / "v.n5", chunk=(700, 900), compression="raw")
    client = client_of(tmp_path)
    for url in ("/raw/a.tif/0/0/image/c/0/0", "/raw/v.n5/c/0/0"):
        answer = client.get(url)
        assert answer.status_code == 200
        assert len(answer.content) > 600_000
        assert int(client.head(url).headers["content-length"]) == len(answer.content)
        part = client.get(url, headers={"Range": "bytes=300000-600000"})
        assert part.status_code == 206
        assert part.content == answer.content[300000:600001]
        again = client.get(url, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
