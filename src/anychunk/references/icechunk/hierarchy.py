"""Metadata documents of a repository, written and read many at a time."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from anychunk.codecs.zarr_core import default_buffer_prototype
from anychunk.references.rebuild import Document, parse_document


async def set_documents(store: Any, documents: Mapping[str, Document]) -> None:
    make = default_buffer_prototype().buffer.from_bytes
    await asyncio.gather(
        *(
            store.set(key, make(json.dumps(document).encode()))
            for key, document in documents.items()
        )
    )


async def get(store: Any, key: str) -> bytes | None:
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else bytes(found.to_bytes())


async def read_documents(store: Any) -> dict[str, Document]:
    """Read the metadata of every node, level by level."""
    found: dict[str, Document] = {}
    level = [""]
    while level:
        keys = [f"{path}/zarr.json" if path else "zarr.json" for path in level]
        texts = await asyncio.gather(*(get(store, key) for key in keys))
        groups = []
        for path, key, text in zip(level, keys, texts, strict=True):
            if text is None:
                continue
            found[key] = parse_document(text, key)
            if found[key].get("node_type") == "group":
                groups.append(path)
        lists = await asyncio.gather(*(_names(store, path) for path in groups))
        level = [
            f"{path}/{name}" if path else name
            for path, names in zip(groups, lists, strict=True)
            for name in names
        ]
    return found


async def _names(store: Any, path: str) -> list[str]:
    """List the members of a group."""
    return [name async for name in store.list_dir(path) if name != "zarr.json"]
