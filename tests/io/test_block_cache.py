"""Reading ahead along a chain, as TIFF directories and tile-parts of JPEG 2000 form one."""

import threading

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import limits
from anychunk.io.block_cache import GUESSES, SHORT, Blocks, Chain
from anychunk.io.memory import MemorySource
from tests.support.http_server import serve
from tests.support.patience import wait_until

GAP = limits.get().coalesce_gap


def test_close_links_are_read_with_what_lies_between():
    chain, step = Chain(), GAP // 2
    assert chain.after(step).length == 0  # two places are no chain
    first = chain.after(2 * step + 100).length
    assert first >= 20 * step
    following = chain.after(2 * step + 100 + first + step // 3).length
    assert following > 4 * first or following == limits.get().coalesce_cap
    assert chain.after(10).length == 0  # elsewhere


def test_far_links_at_equal_distances_are_guessed():
    chain, step = Chain(), 10 * GAP
    chain.after(step)
    places = chain.after(2 * step).places
    assert places == tuple(step * n for n in range(2, 2 + GUESSES))
    following = chain.after(places[-1] + step).places
    assert following == tuple(places[-1] + step * n for n in range(1, 1 + 4 * GUESSES))


def test_far_links_at_other_distances_are_read_one_by_one():
    chain = Chain()
    chain.after(10 * GAP)
    assert chain.after(25 * GAP).places == (25 * GAP,)
    assert chain.after(27 * GAP).places == (27 * GAP,)
    assert chain.after(27 * GAP + 100) == chain.after(27 * GAP + 50)  # close, and backwards: usual


class Recorded(MemorySource):
    """Remembers what was read; reads from `together` on wait until more than four run at once."""

    def __init__(self, data, together):
        super().__init__(data)
        self.spans, self.now, self.most, self.together = [], 0, 0, together
        self._lock = threading.Lock()

    def read(self, offset, length):
        with self._lock:
            self.spans.append((offset, length))
            self.now += 1
            self.most = max(self.most, self.now)
        if offset >= self.together:
            wait_until(lambda: self.most > 4)
        with self._lock:
            self.now -= 1
        return super().read(offset, length)


@pytest.mark.parametrize("step", [70_000, 400_000])
def test_what_is_read_ahead_is_what_is_there(step):
    data = np.random.default_rng(1).integers(0, 256, 50 * step, np.uint8)
    source = Recorded(data, data.size if step < GAP else 10 * step)
    blocks = Blocks(source)
    for _ in range(2):  # parsers come back
        for place in range(8, data.size - 4096, step):
            for length in (2, 300, 4000):
                np.testing.assert_array_equal(
                    blocks.read(place, length), data[place : place + length]
                )
    if step < GAP:
        assert len(source.spans) <= 6
        assert sum(length for _, length in source.spans) <= data.size
    else:
        assert source.most > 4
        assert sum(length for _, length in source.spans) <= 3 * 65_536 + 60 * SHORT


@pytest.mark.processes
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_an_ome_tiff_of_200_planes(tmp_path, compression, tile):
    """Most planes lie between their directories, 70 kB apart."""
    planes = np.random.default_rng(0).integers(0, 4000, (200, 192, 192), np.uint16)
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, planes, compression=compression, tile=tile, metadata={"axes": "ZYX"})
    size = path.stat().st_size
    with serve(tmp_path) as served:
        index = anychunk.index(f"{served.url}/a.ome.tif")
        assert len(served.requests) <= 6
        spans = [tuple(map(int, r.removeprefix("bytes=").split("-"))) for _, r in served.requests]
        fetched = sum(min(last, size - 1) - first + 1 for first, last in spans)
        # only strips that are not compressed lie before all directories but the first
        assert fetched <= (size if compression or tile else 200_000)
        image = anychunk.open(index)["0/0/image"]
        np.testing.assert_array_equal(np.squeeze(image[150]), planes[150])
