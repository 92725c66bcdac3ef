"""The sources of a repository, one row per file, in an array of text at its root.

Pins among the root's attributes would be written again by every commit, so that appending to a
large archive would cost more than indexing the appended files. Rows are only ever added to the end
of this array: a commit writes the rows that it adds, and at most one chunk that was there before.

A row is a JSON object: `url`, and `size`, `etag` and `mtime_ns` as in a pin. The row of a folder,
which cannot be pinned, has only `url`.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import batched
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.codecs import streams
from anychunk.errors import ChunkDecodeError, FormatError
from anychunk.formats._zarr_metadata import Document, parse_document
from anychunk.model.grid import chunk_key
from anychunk.references.documents import pin_json
from anychunk.zarr.core import default_buffer_prototype

# The metadata documents of a repository, written and read concurrently.


AT_ONCE = 16
"""How many keys are written or read at once. A call is short, and Icechunk's threads report the end
of each to the event loop: with a thousand at once, they mostly wait for each other."""


async def write_documents(store: Any, documents: Mapping[str, Document]) -> None:
    """Write metadata documents by their keys."""
    await write_keys(store, ((key, _text(document)) for key, document in documents.items()))


async def write_keys(store: Any, items: Iterable[tuple[str, bytes]]) -> None:
    """Write bytes by their keys, a few at a time."""
    make = default_buffer_prototype().buffer.from_bytes
    waiting = iter(items)

    async def write() -> None:
        for key, data in waiting:
            await store.set(key, make(data))

    # a task for each of a few writers, not for each key: it would cost as much as what it waits for
    writers = [asyncio.ensure_future(write()) for _ in range(AT_ONCE)]
    try:
        await asyncio.gather(*writers)
    finally:
        for writer in writers:  # after a failure; otherwise they have ended
            writer.cancel()


def _text(document: Document) -> bytes:
    # without spaces: a snapshot has the metadata of all nodes, and a writer holds it several times
    return json.dumps(document, separators=(",", ":")).encode()


async def delete_keys(store: Any, keys: Iterable[str]) -> None:
    """Delete nodes by the keys of their metadata, with all their chunks."""
    for key in keys:
        await store.delete_dir(key.removesuffix("/zarr.json"))


async def read_bytes(store: Any, key: str) -> bytes | None:
    """Return the bytes under a key, or None."""
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else bytes(found.to_bytes())


async def is_empty(store: Any) -> bool:
    """Return whether a repository holds nothing; Icechunk's own answer takes all nodes to find."""
    return await read_bytes(store, "zarr.json") is None and bool(await store.is_empty(""))


async def read_documents(store: Any, paths: Iterable[str] = ("",)) -> dict[str, Document]:
    """Read the metadata of every node at or below `paths`, one depth of the tree at a time."""
    found: dict[str, Document] = {}
    paths = list(paths)
    while paths:
        keys = [f"{path}/zarr.json" if path else "zarr.json" for path in paths]
        texts = [
            text
            for some in batched(keys, AT_ONCE)
            for text in await asyncio.gather(*(read_bytes(store, key) for key in some))
        ]
        groups = []
        for path, key, text in zip(paths, keys, texts, strict=True):
            if text is None:
                continue
            found[key] = parse_document(text, key)
            if found[key].get("node_type") == "group":
                groups.append(path)
        lists = await asyncio.gather(*(_member_names(store, path) for path in groups))
        paths = [
            f"{path}/{name}" if path else name
            for path, names in zip(groups, lists, strict=True)
            for name in names
        ]
    return found


async def _member_names(store: Any, path: str) -> list[str]:
    return [name async for name in store.list_dir(path) if name != "zarr.json"]


TABLE = "anychunk.sources"
"""Name of the array."""
KEY = f"{TABLE}/zarr.json"
ROWS = 1024
"""How many rows a chunk has."""
URL = re.compile(rb'\{"url":("[^"\\]*(?:\\.[^"\\]*)*")')
"""The url of a row that we wrote, in a chunk: a quotation mark inside a text is escaped in JSON."""

type Row = Mapping[str, Any]


def source_rows(pins: Mapping[str, Any], folders: Iterable[str]) -> list[Row]:
    """Return the rows of sources, by the urls that are written, and of folders."""
    rows: list[Row] = [{"url": url, **pin_json(pin)} for url, pin in pins.items()]
    return [*rows, *({"url": url} for url in folders)]


async def append_rows(store: Any, rows: Sequence[Row]) -> None:
    """Add rows to the table of a repository, which is created if it does not exist."""
    if not rows:
        return
    count = _count(await read_bytes(store, KEY), TABLE)
    start = count - count % ROWS
    texts = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows]
    if start < count:
        last = await read_bytes(store, chunk_key(TABLE, (start // ROWS,)))
        texts = [*_decoded(last, TABLE)[: count - start], *texts]
    make = default_buffer_prototype().buffer.from_bytes
    document = json.dumps(_document(start + len(texts))).encode()
    await store.set(KEY, make(document))
    for first in range(0, len(texts), ROWS):
        key = chunk_key(TABLE, ((start + first) // ROWS,))
        await store.set(key, make(_encoded(texts[first : first + ROWS])))


async def read_rows(store: Any, where: str) -> list[Row]:
    """Return all rows of a repository; none if it has no table."""
    count, pieces = await _read(store, where)
    texts = [text for piece in pieces for text in _decoded(piece, where)]
    return _parsed(texts[:count], where)


async def read_urls(store: Any, where: str) -> list[str]:
    """Return the urls of all rows, without parsing the rest of them."""
    count, pieces = await _read(store, where)
    urls: list[str] = []
    for number, piece in enumerate(pieces):
        rows = min(ROWS, count - number * ROWS)
        found = _found_urls(_decompressed(piece, where))
        if len(found) != rows:  # rows of another form, or damaged ones
            found = [row["url"] for row in _parsed(_decoded(piece, where)[:rows], where)]
        urls += found
    return urls


def _found_urls(chunk: bytes) -> list[str]:
    """Return the urls in a chunk as far as we wrote them; none if one cannot be parsed."""
    texts = b",".join(URL.findall(chunk))
    try:
        return list(json.loads(b"[" + texts + b"]"))
    except ValueError:
        return []


async def _read(store: Any, where: str) -> tuple[int, list[bytes | None]]:
    """Return the number of rows, and the chunks that have them."""
    count = _count(await read_bytes(store, KEY), where)
    limits.check_table(count, where=f"{where} {TABLE}")
    keys = [chunk_key(TABLE, (number,)) for number in range(-(-count // ROWS))]
    return count, await asyncio.gather(*(read_bytes(store, key) for key in keys))


def _document(count: int) -> Document:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [count],
        "data_type": "string",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [ROWS]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "",
        "codecs": [
            {"name": "vlen-utf8"},
            {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
        ],
        "dimension_names": ["source"],
        "attributes": {"description": "Indexed files, as JSON: url, size, etag, mtime_ns"},
    }


def _count(document: bytes | None, where: str) -> int:
    """Return the number of rows, from the metadata of the table."""
    if document is None:
        return 0
    found = parse_document(document, f"{where} {TABLE}")
    shape = found.get("shape")
    count = shape[0] if isinstance(shape, list) and len(shape) == 1 else None
    expected = _document(0)
    is_ours = all(found.get(k) == expected[k] for k in ("data_type", "chunk_grid", "codecs"))
    if type(count) is not int or count < 0 or not is_ours:
        raise FormatError(f"{where} {TABLE}: expected one axis of text in chunks of {ROWS} rows")
    return count


def _encoded(texts: Sequence[str]) -> bytes:
    """Return a chunk: `vlen-utf8` has the number of texts, then each with its length in front."""
    import numcodecs  # slow to import

    padded = [*texts, *[""] * (ROWS - len(texts))]
    data = numcodecs.VLenUTF8().encode(np.array(padded, dtype=object))
    return bytes(streams.encode_zstd(np.frombuffer(data, np.uint8), 3))


def _decompressed(data: bytes | None, where: str) -> bytes:
    if data is None:
        raise FormatError(f"{where} {TABLE}: a chunk is missing")
    try:
        return streams.decode_zstd_bounded(
            np.frombuffer(data, np.uint8), limits.get().header_bytes
        ).tobytes()
    except ChunkDecodeError as e:
        raise FormatError(f"{where} {TABLE}: {e}") from e


def _decoded(data: bytes | None, where: str) -> list[str]:
    """Return the texts of a chunk, which is untrusted: every length is checked."""
    found = _decompressed(data, where)
    texts, place = [], 4
    for _ in range(ROWS):
        size = int.from_bytes(found[place : place + 4], "little")
        text = found[place + 4 : place + 4 + size]
        place += 4 + size
        if place > len(found):
            raise FormatError(f"{where} {TABLE}: a chunk ends before its last row")
        texts.append(text.decode(errors="replace"))
    return texts


def _parsed(texts: Sequence[str], where: str) -> list[Row]:
    """Parse rows, all at once: one by one would take most of the time of an append."""
    try:
        rows: list[Any] = json.loads(f"[{','.join(texts)}]")
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where} {TABLE}: a row is not JSON: {e}") from e
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("url"), str):
            raise FormatError(
                f"{where} {TABLE}: row {str(row)[:80]}, expected an object with a url"
            )
    if len(rows) != len(texts):
        raise FormatError(f"{where} {TABLE}: {len(rows)} objects, expected {len(texts)} rows")
    return rows


def without_table(documents: Mapping[str, Document]) -> dict[str, Document]:
    """Return the metadata of a repository without that of its table, which is not an image."""
    return {key: document for key, document in documents.items() if key != KEY}


def with_rows(attributes: Document, rows: Sequence[Row]) -> Document:
    """Return the root's attributes with the rows as its pins and folders, as other formats have."""
    if not rows:
        return attributes
    about = attributes.get("anychunk")
    about = dict(about) if isinstance(about, Mapping) else {}
    pins, folders = about.get("pins") or {}, about.get("folders") or []
    if not isinstance(pins, Mapping) or not isinstance(folders, list):
        return attributes  # refused where they are read
    pinned = {r["url"]: {k: v for k, v in r.items() if k != "url"} for r in rows if "size" in r}
    about["pins"] = {**pins, **pinned}
    if named := [*folders, *(row["url"] for row in rows if "size" not in row)]:
        about["folders"] = named
    return {**attributes, "anychunk": about}


def refuse_name(names: Iterable[str], target: str) -> None:
    """Refuse an index with a member that has the name of the table."""
    if TABLE in names:
        raise FormatError(
            f"{target}: an array or group is called {TABLE!r}, which is the name of the table of "
            "sources; rename the file"
        )
