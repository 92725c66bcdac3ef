"""One selection: the chunks that it touches, and where each goes in the result."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.codecs.chain import Decoder
from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.io import copying, measuring
from anychunk.model.grid import Numbers, Plan

type Array = npt.NDArray[Any]
type Selector = Any


class Request:
    """Chunks, and their places in an array."""

    def __init__(
        self,
        reader: ChunkReader,
        reading: Reading,
        decode: Decoder,
        *,
        numbers: Sequence[int] | Numbers,
        out: Any,
        fill: Any,
        plan: Plan | None = None,
        listed: Sequence[tuple[Selector, Selector]] = (),
        drop_axes: tuple[int, ...] = (),
        wrap: Callable[[Any], Any] | None = None,
        is_plain: bool = False,
    ) -> None:
        """Describe a selection.

        Parameters:
            reader: Of the array.
            reading: What its sources are checked by.
            decode: Its decoder.
            numbers: The number of each chunk; no place overlaps another.
            out: The result.
            fill: The value of absent chunks.
            plan: Where chunks go: boxes along each axis.
            listed: The same where there is no plan: what is taken of each chunk, with any kind of
                selector, and its place.
            drop_axes: Axes that selectors leave with one element, and the result does not have.
            is_plain: Whether listed places are boxes of a numpy array of the decoded type.
            wrap: What arrays that are not numpy's take instead of a numpy array.
        """
        self.reader, self.reading, self.decode = reader, reading, decode
        self.numbers = np.asarray(numbers)
        self.out, self.fill, self.plan, self.listed = out, fill, plan, listed
        self.drop_axes, self.wrap = drop_axes, wrap
        self.is_plain = plan is not None or is_plain
        """Whether places are slices and `out` is a numpy array of the decoded type."""
        self.recent: Sequence[Hashable] = ()
        """The cache keys of the chunks; empty if decoded chunks are not to be cached."""
        self.missing: list[int] = []
        """The positions of chunks that the file declares absent."""

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, positions: range) -> Iterator[tuple[Selector, Selector]]:
        """Yield what is taken of some chunks, and where it goes."""
        if self.plan is not None:
            return self.plan.places(positions)
        return (self.listed[position] for position in positions)

    def place_of(self, position: int) -> tuple[Selector, Selector]:
        """Return what is taken of one chunk, and where it goes."""
        return next(self.places(range(position, position + 1)))

    def name(self, position: int) -> str:
        """Return the address of a chunk."""
        return self.reader.describe(int(self.numbers[position]))

    def decoder(self, position: int) -> Decoder:
        """Return the decoder of a chunk."""
        if not self.decode.depends_on_place:
            return self.decode
        return self.decode.at(int(self.numbers[position]), self.reader.grid)

    def fill_absent(self, position: int, target: Selector) -> None:
        """Fill the place of an absent chunk."""
        self.out[target] = self.fill
        self.missing.append(position)  # atomic: threads share the list
        if measuring.collectors:
            measuring.count(absent_chunks=1)

    def place(self, selection: Selector, array: Array) -> None:
        """Copy a decoded piece to its place in the result."""
        if measuring.collectors:
            measuring.timed("copy_seconds", self._place, selection, array)
        else:
            self._place(selection, array)

    def _place(self, selection: Selector, array: Array) -> None:
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
            out[selection] = array if self.wrap is None else self.wrap(array)
