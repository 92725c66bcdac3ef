"""A read-only zarr store in front of an index.

Metadata comes from the index, chunks from the sources that it names. Keys that the index does not
have are absent. A chunk that cannot be read raises an error, because zarr would show fill values
for a missing one.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Self, cast

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)

from anychunk import limits
from anychunk.codecs.base import as_bytes
from anychunk.decode.boxes import ArrayReader, located
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import FormatError
from anychunk.io.cache import Cache
from anychunk.io.open_sources import Sources
from anychunk.io.source import Bytes1D, OnChange, Storage, is_remote
from anychunk.model.grid import Shape, chunk_key, parse_coords, split_key
from anychunk.model.index import (
    ArrayIndex,
    ByteRanges,
    Computed,
    GroupIndex,
    Node,
    Saved,
    address,
    find,
    load_saved,
    pins_at_once,
    saved_at,
    walk,
)
from anychunk.zarr.core import Buffer, BufferPrototype, default_buffer_prototype

METADATA = "zarr.json"


class IndexStore(Store):
    """Shows an index to zarr as a Zarr v3 hierarchy."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True
    supports_consolidated_metadata = False

    def __init__(
        self,
        index: Node,
        *,
        storage: Storage | None = None,
        on_change: OnChange = "error",
        read_only: bool = True,
    ) -> None:
        if not read_only:
            raise ValueError("IndexStore is read-only; open it with read_only=True")
        super().__init__(read_only=True)
        self.index = index
        self.sources = Sources(
            pins_at_once(index), storage=storage, on_change=on_change, roots=index.roots
        )
        self._readers: dict[str, ChunkReader | None] = {}
        self._computed: Cache[Bytes1D] = Cache(_computed_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexStore) and self.index == other.index

    def __hash__(self) -> int:
        return hash(self.where(""))

    def __repr__(self) -> str:
        return f"IndexStore({self.where('')})"

    __str__ = __repr__

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_readers": {}}
        saved = saved_at(self.index)
        if saved is None or not _is_loaded_again(self.index, saved, self.sources.storage):
            return state
        del state["index"], state["sources"]
        return state | {"_saved": (saved, self.sources.storage, self.sources.on_change)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        self.__dict__.update(state)
        if saved is not None:
            origin, storage, on_change = saved
            self.index = load_saved(origin, storage)
            self.sources = Sources(
                self.index.pins, storage=storage, on_change=on_change, roots=self.index.roots
            )

    def with_read_only(self, read_only: bool = False) -> Self:
        return type(self)(
            self.index,
            storage=self.sources.storage,
            on_change=self.sources.on_change,
            read_only=read_only,
        )

    def where(self, path: str) -> str:
        """Return the address of a node for messages: the source, then the path."""
        return address(self.index, path)

    def chunk_reader(self, path: str) -> ChunkReader | None:
        """Return the chunk reader of the array at `path`; None unless its chunks are stored."""
        if path not in self._readers:
            node = find(self.index, path)
            is_stored = isinstance(node, ArrayIndex) and not isinstance(node.chunks, Computed)
            self._readers[path] = (
                ChunkReader(cast("ArrayIndex", node), self.sources, where=self.where(path))
                if is_stored
                else None
            )
        return self._readers[path]

    @property
    def damaged_streams(self) -> int:
        """How many long streams were found to be damaged: what is cached of them is wrong."""
        return sum(r.damaged_streams for r in list(self._readers.values()) if r is not None)

    def _metadata(self, key: str) -> bytes | None:
        path = key.removesuffix(METADATA).rstrip("/")
        if key not in (METADATA, f"{path}/{METADATA}"):
            return None
        node = find(self.index, path)
        return None if node is None else json.dumps(node.metadata()).encode()

    def _find_chunk(self, key: str) -> tuple[str, ArrayIndex, Shape] | None:
        """Return the path, the array and the grid coordinates of the chunk that `key` names."""
        split = split_key(key)
        if split is None:
            return None
        path, rest = split
        node = find(self.index, path)
        if not isinstance(node, ArrayIndex):
            return None
        coords = parse_coords(rest, node.grid)
        return None if coords is None else (path, node, coords)

    def _bytes(self, key: str) -> Bytes1D | bytes | None:
        if key.endswith(METADATA):
            return self._metadata(key)
        chunk = self._find_chunk(key)
        if chunk is None:
            return None
        path, node, coords = chunk
        reader = self.chunk_reader(path)
        if reader is None:
            return self._computed_chunk(key, path, node, coords)
        number = reader.number(coords)
        with located(lambda: reader.describe(number), is_decoding=False):
            return reader.read(number)

    def _computed_chunk(self, key: str, path: str, node: ArrayIndex, coords: Shape) -> Bytes1D:
        known = (key, self.damaged_streams)
        found = self._computed.get(known)
        if found is None:
            # two threads may compute the same chunk at once, which is rare and harmless
            found = self._compute(path, node, coords)
            self._computed.put(known, found, len(found))
        return found

    def _compute(self, path: str, node: ArrayIndex, coords: Shape) -> Bytes1D:
        chunks = cast("Computed", node.chunks)
        reader = self.chunk_reader(chunks.source)
        if reader is None:
            raise FormatError(
                f"{self.where(path)}: its chunks are computed from {chunks.source!r}, "
                "which is not a stored array"
            )
        from anychunk.decode.computed import compute_chunk  # only JNRRD has such chunks

        return as_bytes(compute_chunk(node, coords, ArrayReader(reader)))

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        data = self._bytes(key)
        if data is None:
            return None
        start, stop = clip(byte_range, len(data))
        buffer = (prototype or default_buffer_prototype()).buffer
        piece = data[start:stop]
        return (
            buffer.from_bytes(piece) if isinstance(piece, bytes) else buffer.from_array_like(piece)
        )

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if not self._is_open:
            await self._open()
        if key.endswith(METADATA):
            return self.get_sync(key, prototype=prototype, byte_range=byte_range)
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    def _size(self, key: str) -> int | None:
        if key.endswith(METADATA):
            data = self._metadata(key)
            return None if data is None else len(data)
        chunk = self._find_chunk(key)
        if chunk is None:
            return None
        reader = self.chunk_reader(chunk[0])
        if reader is None:
            computed = self._bytes(key)
            return None if computed is None else len(computed)
        return reader.size(reader.number(chunk[2]))

    async def exists(self, key: str) -> bool:
        return self._size(key) is not None

    async def getsize(self, key: str) -> int:
        size = self._size(key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()

    def delete_sync(self, key: str) -> None:
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        for key in self._keys(self.index, ""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self._keys(self.index, ""):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        path = prefix.rstrip("/")
        node = find(self.index, path)
        if node is not None:
            yield METADATA
            for name in node.members if isinstance(node, GroupIndex) else ():
                yield name
        if isinstance(node, ArrayIndex):
            if any(True for _ in self._chunk_keys(node, path)):
                yield "c"
            return
        if node is None:
            start = f"{path}/"
            seen = set()
            for key in self._keys(self.index, ""):
                name = key.removeprefix(start).split("/", 1)[0]
                if key.startswith(start) and name not in seen:
                    seen.add(name)
                    yield name

    def _keys(self, node: Node, path: str) -> Iterator[str]:
        yield f"{path}/{METADATA}" if path else METADATA
        if isinstance(node, ArrayIndex):
            yield from self._chunk_keys(node, path)
            return
        for name, member in node.members.items():
            yield from self._keys(member, f"{path}/{name}" if path else name)

    def _chunk_keys(self, node: ArrayIndex, path: str) -> Iterator[str]:
        reader = self.chunk_reader(path)
        for number, coords in enumerate(itertools.product(*map(range, node.grid))):
            if reader is None or reader.size(number) is not None:
                yield chunk_key(path, coords)


SMALL_TABLES = 32 * 1024
"""Chunk tables up to this many bytes are pickled rather than loaded again."""


def _is_loaded_again(index: Node, saved: Saved, storage: Storage | None) -> bool:
    """Return whether a pickled store refers to the saved index instead of containing it.

    Its tables must be large, and whoever reads its sources must be able to read the index as well:
    a local index of remote sources may be on another machine than they.
    """
    if storage is not None and any(map(callable, storage.values())):
        return False
    if saved.pin is not None and saved.pin.signed:
        return False  # only this process has the signature of the index
    arrays = [node for _, node in walk(index) if isinstance(node, ArrayIndex)]
    tables = [a.chunks for a in arrays if isinstance(a.chunks, ByteRanges)]
    if sum(table.nbytes for table in tables) <= SMALL_TABLES:
        return False
    return is_remote(saved.url) or not any(is_remote(url) for t in tables for url in t.urls)


def _computed_bytes() -> int:
    return limits.get().computed_bytes


def clip(request: ByteRequest | None, size: int) -> tuple[int, int]:
    """Turn a byte request into (start, stop) inside a value of `size` bytes."""
    match request:
        case None:
            return 0, size
        case RangeByteRequest(start, end):
            return min(start, size), min(end, size)
        case OffsetByteRequest(offset):
            return min(offset, size), size
        case SuffixByteRequest(suffix):
            return max(0, size - suffix), size
    raise TypeError(f"Unexpected byte_range, got {request!r}")
