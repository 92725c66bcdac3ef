"""The table of sources in a repository: rows are added, and what was there is not written again."""

import asyncio
import json

import numpy as np
import pytest
import zarr

from anychunk.errors import FormatError
from anychunk.model.pin import Pin
from anychunk.references.icechunk import sources
from anychunk.references.icechunk.sources import (
    KEY,
    ROWS,
    TABLE,
    append_rows,
    read_rows,
    read_urls,
    source_rows,
    with_rows,
)
from anychunk.zarr.core import default_buffer_prototype


class Counted(zarr.storage.MemoryStore):
    """A store that notes which keys are written."""

    def __init__(self):
        super().__init__()
        self.written = []

    async def set(self, key, value, byte_range=None):
        self.written.append(key)
        await super().set(key, value, byte_range)


def rows(first, count):
    return [{"url": f"/data/é {i}.tif", "size": i} for i in range(first, first + count)]


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize("counts", [(1, 2), (ROWS, 1), (ROWS - 1, 2, ROWS + 3)])
def test_rows_are_added_and_zarr_reads_them(counts):
    store = Counted()

    async def run():
        first = 0
        for count in counts:
            await append_rows(store, rows(first, count))
            first += count
        return await read_rows(store, "here")

    assert asyncio.run(run()) == rows(0, sum(counts))
    texts = zarr.open_array(store, path=TABLE)[...]
    assert [json.loads(text) for text in texts] == rows(0, sum(counts))


def test_only_new_rows_and_the_last_chunk_are_written():
    store = Counted()

    async def run():
        await append_rows(store, rows(0, 5 * ROWS + 10))
        store.written.clear()
        await append_rows(store, rows(5 * ROWS + 10, 10))

    asyncio.run(run())
    assert store.written == [KEY, f"{TABLE}/c/5"]


ODD = [
    '/a "quoted" \\ back\\slash.tif',
    '/looks like a row {"url":"x"}.tif',
    '/{\\"url\\":\\"x\\"}',
    "/line\nbreak é 𝄞.tif",
    "",
]


def test_urls_are_read_without_the_rest_of_the_rows():
    store = Counted()
    given = [{"url": url, "etag": '{"url":"e"}'} for url in ODD * 300]

    async def run():
        await append_rows(store, given)
        return await read_urls(store, "here")

    assert asyncio.run(run()) == ODD * 300


@pytest.mark.parametrize(
    "text", ['{"size":1,"url":"/a"}', '{ "url" : "/a" }', '{"url":"\\u002fa"}']
)
def test_urls_of_rows_that_others_wrote(monkeypatch, text):
    store = Counted()
    encoded = sources._encoded
    monkeypatch.setattr(sources, "_encoded", lambda texts: encoded([text] * len(texts)))

    async def run():
        await append_rows(store, rows(0, 3))
        return await read_urls(store, "here")

    assert asyncio.run(run()) == ["/a"] * 3


@pytest.mark.parametrize("text", ["", "[]", '{"url":3}', '{"url":"\\x"}', '{"url":"a', "{"])
def test_damaged_rows_are_errors_not_missing_urls(monkeypatch, text):
    store = Counted()
    encoded = sources._encoded
    monkeypatch.setattr(sources, "_encoded", lambda texts: encoded([text] * len(texts)))

    async def run():
        await append_rows(store, rows(0, 3))
        return await read_urls(store, "here")

    with pytest.raises(FormatError, match="here anychunk.sources"):
        asyncio.run(run())


def test_pins_and_folders_become_rows_and_attributes_again():
    pins = {"/a": Pin(size=1, mtime_ns=5), "/b": Pin(size=2, etag="e")}
    found = source_rows(pins, ["/folder"])
    about = {"pins": {"/first": {"size": 9}}, "files": 4}
    attributes = with_rows({"anychunk": about, "title": "t"}, found)
    assert attributes["title"] == "t"
    assert attributes["anychunk"]["pins"] == {
        "/first": {"size": 9},
        "/a": {"size": 1, "mtime_ns": 5},
        "/b": {"size": 2, "etag": "e"},
    }
    assert attributes["anychunk"]["folders"] == ["/folder"]
    assert with_rows({"x": 1}, []) == {"x": 1}


def damaged(change):
    """Return a store with a table of 3 rows after a change by `change(store, make)`."""
    store = Counted()
    make = default_buffer_prototype().buffer.from_bytes

    async def run():
        await append_rows(store, rows(0, 3))
        await change(store, make)

    asyncio.run(run())
    return store


async def no_chunk(store, make):
    await store.delete(f"{TABLE}/c/0")


async def no_stream(store, make):
    await store.set(f"{TABLE}/c/0", make(b"nothing"))


async def short(store, make):
    data = sources.streams.encode_zstd(np.frombuffer(b"\3\0\0\0\xff\xff\0\0abc", np.uint8), 3)
    await store.set(f"{TABLE}/c/0", make(bytes(data)))


async def other_rows(store, make):
    await store.set(f"{TABLE}/c/0", make(sources._encoded(["[1]", '{"u": 1}', "no json"])))


async def other_shape(store, make):
    await store.set(KEY, make(json.dumps({**sources._document(3), "shape": [-1]}).encode()))


async def other_codecs(store, make):
    await store.set(KEY, make(json.dumps({**sources._document(3), "codecs": []}).encode()))


@pytest.mark.parametrize(
    "change", [no_chunk, no_stream, short, other_rows, other_shape, other_codecs]
)
def test_a_damaged_table_is_refused(change):
    with pytest.raises(FormatError, match=r"anychunk\.sources"):
        asyncio.run(read_rows(damaged(change), "here"))
