"""An array cut into regions of whole blocks, worked on by a few threads."""

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from anychunk.formats.n5.write_input import Region, Samples
from anychunk.model.grid import Shape, grid_shape

REGION_BYTES = 64 << 20
"""The most that one thread reads from the caller's array at a time."""


@dataclass(frozen=True, kw_only=True)
class Regions:
    """The array cut into pieces of whole blocks, each read at once."""

    shape: Shape
    block: Shape
    size: Shape
    grid: Shape

    @classmethod
    def of(cls, samples: Samples, block: Shape) -> "Regions":
        """Take as many blocks together as one chunk of the caller's array covers, within reason."""
        size = list(block)
        for axis, step in enumerate(samples.step):
            wanted = -(-step // block[axis]) * block[axis]
            others = math.prod(size) // size[axis] * samples.dtype.itemsize
            most = max(1, REGION_BYTES // (others * block[axis])) * block[axis]
            size[axis] = max(block[axis], min(wanted, most))
        return cls(
            shape=samples.shape,
            block=block,
            size=tuple(size),
            grid=grid_shape(samples.shape, tuple(size)),
        )

    def __len__(self) -> int:
        return math.prod(self.grid)

    def __getitem__(self, number: int) -> Region:
        coords = np.unravel_index(number, self.grid)
        return tuple(
            slice(int(c) * n, min((int(c) + 1) * n, m))
            for c, n, m in zip(coords, self.size, self.shape, strict=True)
        )

    def blocks(self, region: Region) -> Iterator[tuple[Shape, Region]]:
        """Give the grid coordinates of each block of a region, and its place in it."""
        firsts = [s.start // n for s, n in zip(region, self.block, strict=True)]
        counts = [-(-(s.stop - s.start) // n) for s, n in zip(region, self.block, strict=True)]
        for offset in itertools.product(*[range(count) for count in counts]):
            yield (
                tuple(first + i for first, i in zip(firsts, offset, strict=True)),
                tuple(slice(i * n, (i + 1) * n) for i, n in zip(offset, self.block, strict=True)),
            )


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Call `work` with every number below `count`; the first failure stops the others."""
    numbers = itertools.count()  # next() on it is atomic
    failed = threading.Event()

    def run() -> None:
        while not failed.is_set() and (number := next(numbers)) < count:
            try:
                work(number)
            except BaseException:
                failed.set()
                raise

    threads = min(os.cpu_count() or 1, 16, count)
    if threads <= 1:
        run()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="anychunk-n5") as pool:
        for future in [pool.submit(run) for _ in range(threads)]:
            future.result()
