"""One selection: its chunks are decoded, and each is copied to its place in the result."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk import decoders, limits
from anychunk.codecs.chain import Decoder
from anychunk.codecs.zarr_core import ArraySpec, NDBuffer
from anychunk.decode.boxes import raise_located
from anychunk.decode.chunks import Stored
from anychunk.io import copying, measuring
from anychunk.io.buffers import borrowed
from anychunk.io.cache import Cache
from anychunk.io.source import Bytes1D
from anychunk.model.grid import Numbers, Plan, Shape
from anychunk.read.joint_places import Places, Selector, is_inside, joint_box, numbered

RECENT: Cache[npt.NDArray[Any]] = Cache(lambda: limits.get().recent_bytes)
"""Decoded chunks of which only a part was read, for the whole process: the next read often takes
another part of the same chunk."""
decoders.changed.append(lambda: RECENT.shrink(0))

TOUCHED: Cache[int] = Cache(1 << 20)
"""Chunks of which parts were read, with what that has cost in pixels: when it is as much as the
chunk, the next part is taken from the whole chunk, which is cached. So successive rows are not
decoded one by one."""


class Batch:
    """One selection: the chunks that it touches, and where each goes in the result."""

    def __init__(
        self,
        places: Places,
        spec: ArraySpec,
        out: Any,
        decode: Decoder,
        *,
        drop_axes: tuple[int, ...] = (),
        is_plain: bool = False,
    ) -> None:
        self.places, self.drop_axes, self.decode = places, drop_axes, decode
        self.wrap: Callable[[Any], Any] = lambda value: value
        if isinstance(out, NDBuffer):
            # assign to numpy arrays directly; arrays on a device need zarr's wrapper
            array = out.as_ndarray_like()
            if isinstance(array, np.ndarray):
                out = array
            else:
                self.wrap = spec.prototype.nd_buffer.from_numpy_array
        self.out = out
        self.shape = spec.shape
        self.dtype = spec.dtype.to_native_dtype()
        self.is_plain = is_plain
        """Whether `places` are slices and `out` is an array of the decoded type."""
        self.fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
        self.recent: Sequence[Hashable] = ()
        """The cache keys of the chunks; empty if decoded chunks are not to be cached."""
        self.where: tuple[Numbers, Shape] | None = None
        """The numbers of the chunks, and the grid, if the place of a chunk matters for decoding."""
        self.missing: list[int] = []
        """The positions of chunks that the file declares absent."""
        self.row = 1
        """How many chunks follow each other along the last axis."""

    def locate(self, numbers: Numbers, grid: Shape) -> None:
        """Say which chunks are read."""
        if self.decode.depends_on_place:
            self.where = (numbers, grid)

    def decoder(self, position: int) -> Decoder:
        """Return the decoder of the chunk at a position of the batch."""
        if self.where is None:
            return self.decode
        numbers, grid = self.where
        return self.decode.at(int(numbers[position]), grid)

    def scatter(
        self, positions: Sequence[int], chunks: Iterable[Stored], name: Callable[[int], str]
    ) -> None:
        """Decode chunks and copy each to its place in the result."""
        if measuring.collectors:
            chunks = measuring.timed_each("fetch_seconds", chunks)
        chunks, done = self._decode_together(positions, chunks)
        if len(done) == len(positions):
            return
        # memory for a very large chunk is allocated only after its stored bytes were checked
        nbytes = self.decode.nbytes
        with borrowed("scratch", nbytes if nbytes <= limits.get().free_bytes else 0) as scratch:
            for number, (position, (source, target), stored) in enumerate(
                zip(positions, self.places(positions), chunks, strict=True)
            ):
                if number in done:
                    continue
                if stored is None:
                    self._fill(position, target)
                    continue
                try:
                    decode = self.decode if self.where is None else self.decoder(position)
                    if self.recent:
                        key = self.recent[position]
                        part = self.part(key, stored, source, decode)
                        if part is None:
                            part = self.kept(key, stored, decode)[source]
                        self.place(target, part)
                    else:
                        memory = scratch if len(scratch) else None
                        self.take(stored, memory, source, target, decode)
                except Exception as e:
                    raise_located(e, partial(name, position))
                    raise

    def _decode_together(
        self, positions: Sequence[int], chunks: Iterable[Stored]
    ) -> tuple[Iterable[Stored], set[int]]:
        """Place the chunks that are decoded faster together; return all, and which those are."""
        if not self.decode.takes_many or self.recent or len(positions) < 2:
            return chunks, set()
        # each is valid only until the next: files are read into the same memory
        listed = [None if stored is None else stored.copy() for stored in chunks]
        done = set[int]()
        present = [i for i, stored in enumerate(listed) if stored is not None]
        for joint in self.decode.many([cast("Bytes1D", listed[i]) for i in present]):
            own = [positions[present[number]] for number in joint.numbers]
            box = joint_box(joint, own, self.places) if self.is_plain else None
            if box is not None:
                parts = [(joint.array, *box)]
            else:
                parts = [
                    (array, numbered(source), target)
                    for position, (_, array) in zip(own, joint.pieces(), strict=True)
                    for source, target in self.places(range(position, position + 1))
                ]
            if not all(is_inside(source, array.shape) for array, source, _ in parts):
                continue  # decoded one by one, which words the error
            for array, source, target in parts:
                self.place(target, array[source])
            done.update(present[number] for number in joint.numbers)
        return listed, done

    def _fill(self, position: int, target: Selector) -> None:
        """Fill the place of an absent chunk."""
        self.out[target] = self.fill
        self.missing.append(position)  # atomic: threads share the list
        if measuring.collectors:
            measuring.count(absent_chunks=1)

    def take(
        self,
        stored: Bytes1D,
        scratch: Bytes1D | None,
        source: Selector,
        target: Selector,
        decode: Decoder,
    ) -> None:
        """Decode one chunk, directly into the result if the selection takes all of it."""
        if self.is_plain:
            place = self.out[target]
            is_fit = place.shape == self.shape or (
                decode.takes_cropped
                and not decode.has_parts  # it may decode less
                and is_first_part(source, place.shape, self.shape)
            )
            if is_fit and decode.into(stored, scratch, place):
                return
        part = decode.part(stored, source)
        if part is not None:
            self.place(target, part)
            return
        self.place(target, decode(stored, scratch)[source])

    def part(
        self, key: Hashable, stored: Bytes1D, source: Selector, decode: Decoder
    ) -> npt.NDArray[Any] | None:
        """Decode a part of a chunk; None if it is cached, or should be, after many parts."""
        spent = TOUCHED.get(key) or 0
        if spent >= decode.nbytes or RECENT.get(key) is not None:
            return None
        part = decode.part(stored, source)
        if part is not None:
            TOUCHED.put(key, spent + part.nbytes + decode.nbytes // 16, 64)
        return part

    def kept(self, key: Hashable, stored: Bytes1D, decode: Decoder) -> npt.NDArray[Any]:
        """Return a decoded chunk from the cache, or decode and cache it."""
        array = RECENT.get(key)
        if array is None:
            # not the scratch buffer: the cached array outlives this read
            memory = np.empty(decode.nbytes, np.uint8)
            array = decode(stored, memory)
            if not np.may_share_memory(array, memory):
                array = array.copy()  # codecs may return memory that they reuse
            array = array.view()
            array.flags.writeable = False
            RECENT.put(key, array, array.nbytes)
        elif measuring.collectors:
            measuring.count(cache_hits=1)
        return array

    def place(self, selection: Selector, array: npt.NDArray[Any]) -> None:
        """Copy a decoded piece to its place in the result."""
        if measuring.collectors:
            measuring.timed("copy_seconds", self._place, selection, array)
        else:
            self._place(selection, array)

    def _place(self, selection: Selector, array: npt.NDArray[Any]) -> None:
        out = self.out
        if self.drop_axes:
            array = array.squeeze(axis=self.drop_axes)
        if (
            isinstance(array, np.ndarray)
            and array.ndim > 1
            and isinstance(out, np.ndarray)
            and type(selection) is tuple
            and all(type(s) is slice for s in selection)
        ):
            copying.assign(out[selection], array)
        else:
            out[selection] = self.wrap(array)


def is_first_part(source: Sequence[slice], part: Shape, whole: Shape) -> bool:
    """Return whether a box takes all of a chunk but some of its last rows and columns."""
    return part[:-2] == whole[:-2] and not any(s.start for s in source)


def recall(keys: Sequence[Hashable], plan: Plan, out: npt.NDArray[Any]) -> bool:
    """Fill `out` from cached chunks; return False, leaving `out` unchanged, if any is missing."""
    found = []
    for key in keys:
        array = RECENT.get(key)
        if array is None:
            return False
        found.append(array)
    if measuring.collectors:
        measuring.count(cache_hits=len(found))
        measuring.timed("copy_seconds", _fill, found, plan, out)
    else:
        _fill(found, plan, out)
    return True


def _fill(found: Sequence[npt.NDArray[Any]], plan: Plan, out: npt.NDArray[Any]) -> None:
    for array, (source, target) in zip(found, plan.places(range(len(found))), strict=True):
        out[target] = array[source]
