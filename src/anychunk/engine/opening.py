"""Read an array of an index, local or remote, without zarr."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import codecs
from anychunk.codecs import data_types
from anychunk.codecs.base import ChunkSpec, as_bytes
from anychunk.codecs.chain import Decoder
from anychunk.codecs.standard import Sharding
from anychunk.decode.boxes import ArrayReader, located
from anychunk.decode.chunks import ChunkReader
from anychunk.engine.request import Request
from anychunk.engine.run import MOST_NUMBERS, Engine
from anychunk.errors import FormatError, NoSuchImageError, OptionError, untrusted
from anychunk.io.open_sources import Sources
from anychunk.io.source import OnChange, Storage
from anychunk.model.grid import Spans, cut_box
from anychunk.model.index import ArrayIndex, Computed, Node, address, find, pins_at_once

type Array = npt.NDArray[Any]


def open_engine(
    root: Node, path: str, *, storage: Storage | None = None, on_change: OnChange = "error"
) -> "Engine | ComputedEngine":
    """Return the engine of the array at `path` of an index."""
    if on_change not in ("error", "warn"):
        raise OptionError(f"on_change is {on_change!r}, expected 'error' or 'warn'")
    sources = Sources(pins_at_once(root), storage=storage, on_change=on_change, roots=root.roots)
    array, where = find(root, path), address(root, path)
    if not isinstance(array, ArrayIndex):
        raise NoSuchImageError(f"{where}: no array")
    if isinstance(array.chunks, Computed):
        source = find(root, array.chunks.source)
        if not isinstance(source, ArrayIndex):
            raise FormatError(
                f"{where}: computed from {array.chunks.source!r}, which is not an array"
            )
        stored = ChunkReader(source, sources, where=address(root, array.chunks.source))
        return ComputedEngine(array, ArrayReader(stored), where)
    reader = ChunkReader(array, sources, where=where)
    decode, fill = decoder(array, where, is_range=reader.has_ranges)
    return (Engine if reader.is_local else RemoteEngine)(reader, decode, fill)


def decoder(array: ArrayIndex, where: str, *, is_range: bool) -> tuple[Decoder, Any]:
    """Return the decoder of an array, and the value of absent chunks."""
    kind = array.data_type
    with untrusted(f"{where}: data type or fill value"):
        dtype = data_types.native(kind)
        # of a deferred index no chunk is absent, and its fill value takes long to make
        is_known = "fill_value" in array.__dict__
        fill = data_types.scalar(kind, array.fill_value) if is_known else 0
    spec = ChunkSpec(array.chunk_shape, dtype, fill, None if dtype.name == kind else kind)
    chain = [codecs.from_json(codec) for codec in array.codecs]
    return Decoder(chain, spec, is_range=is_range), fill


class RemoteEngine(Engine):
    """Reads one array whose chunks are fetched."""

    def _read_request(self, request: Request, threads: int) -> None:
        from anychunk.engine.remote import read_remote

        # in a thread of its own, because that of the caller may run an event loop
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, read_remote(request)).result()

    def _keys(self, *_: Any) -> tuple[()]:
        return ()  # nothing says whether a remote object has changed since


class ComputedEngine:
    """Reads one array whose chunks are computed from another array."""

    def __init__(self, array: ArrayIndex, source: ArrayReader, where: str) -> None:
        self.shape, self.index, self._source, self._where = array.shape, array, source, where
        self._decode, _ = decoder(array, where, is_range=False)
        self.dtype = self._decode.dtype

    def box(self, box: Spans) -> Array:
        """Return a box, given as (start, stop) along each axis."""
        from anychunk.decode.computed import compute_chunk  # only JNRRD has such chunks

        start, stop = tuple(a for a, _ in box), tuple(b for _, b in box)
        out = np.empty([b - a for a, b in box], self.dtype)
        shapes = {"chunk_shape": self.index.chunk_shape, "shape": self.shape}
        for coords, piece in cut_box(start, stop, **shapes) if out.size else ():
            with located(lambda coords=coords: f"{self._where} chunk {coords}"):  # type: ignore[misc]
                data = as_bytes(compute_chunk(self.index, coords, self._source))
                out[piece.target] = self._decode(data)[piece.source]
        return out


class PlainArray:
    """An array of an index, as far as reading boxes needs it."""

    def __init__(
        self,
        root: Node,
        path: str,
        *,
        storage: Storage | None = None,
        on_change: OnChange = "error",
    ) -> None:
        """Open the array at `path` of an index."""
        self._engine = open_engine(root, path, storage=storage, on_change=on_change)
        self._index = self._engine.index
        self.shape, self.dtype = self._engine.shape, self._engine.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of what is decoded at once: of the chunks in a shard, if chunks are shards."""
        first = codecs.from_json(self._index.codecs[0])
        return first.chunk_shape if isinstance(first, Sharding) else self._index.chunk_shape

    @property
    def fill_value(self) -> Any:
        return data_types.scalar(self._index.data_type, self._index.fill_value)

    def __getitem__(self, box: Any) -> Array:
        return picked(self._engine, box)


def picked(engine: Engine | ComputedEngine, box: Any) -> Array:
    """Return what a box takes: a slice or an integer for each axis; None for everything.

    Raises:
        OptionError: The box is anything else, or an integer counts beyond the end of its axis.
    """
    shape = engine.shape
    entries = [slice(None)] * len(shape) if box is None else box
    if isinstance(entries, slice | int | np.integer):
        entries = (entries,)
    if not isinstance(entries, tuple | list) or len(entries) != len(shape):
        raise OptionError(
            f"box={box!r}, expected a slice or an integer for each of {len(shape)} axes of {shape}"
        )
    spans, steps, kept = [], [], []
    for entry, size in zip(entries, shape, strict=True):
        start, stop, step = span(entry, size)
        spans.append((start, max(start, stop)))
        steps.append(slice(None, None, step) if isinstance(entry, slice) else 0)
        kept.append(step)
    listed = [range(a, b, step) for (a, b), step in zip(spans, kept, strict=True)]
    is_listed = all(len(numbers) <= MOST_NUMBERS for numbers in listed)
    if max(kept, default=1) > 1 and is_listed and isinstance(engine, Engine):
        numbers = [np.arange(n.start, n.stop, n.step) for n in listed]
        steps = [slice(None) if isinstance(step, slice) else 0 for step in steps]
        return engine.outer(numbers)[(*steps, ...)]
    return engine.box(spans)[(*steps, ...)]


def span(entry: Any, size: int) -> tuple[int, int, int]:
    """Return (start, stop, step) of a slice or an integer along an axis."""
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, slice | int | np.integer):
        raise OptionError(f"box has {entry!r}, expected a slice or an integer")
    if isinstance(entry, slice):
        try:
            found = entry.indices(size)
        except (TypeError, ValueError) as e:
            raise OptionError(f"box has {entry!r}: {e}") from None
        if found[2] < 0:
            raise OptionError(f"box has {entry!r}; negative steps are not supported")
        return found
    number = int(entry)
    if not -size <= number < size:
        raise OptionError(f"box has {number}, beyond the {size} elements of its axis")
    return number % size, number % size + 1, 1
