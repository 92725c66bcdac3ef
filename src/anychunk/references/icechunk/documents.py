"""The metadata documents of a repository, written and read concurrently."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from itertools import batched
from typing import Any

from anychunk.codecs.zarr_core import default_buffer_prototype
from anychunk.formats._zarr_metadata import Document, parse_document

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
