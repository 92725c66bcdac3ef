import struct

import numpy as np
import pytest

from anychunk.codestream.jpeg2000 import NAMES
from anychunk.codestream.tiles import index_tiles
from anychunk.errors import LimitError, UnsupportedError
from anychunk.formats._jpeg2000 import axis, chunk_size, level_arrays
from anychunk.io.buffers import MemorySource
from tests.codestream.test_tiles import stream
from tests.support.j2k_streams import compress, field, needs_openjpeg


@pytest.mark.parametrize(
    ("tile", "step", "factor", "chunk"),
    [
        (256, 1, 1, 256),
        (256, 4, 1, 64),
        (320, 64, 1, 5),
        (500, 8, 1, 125),  # two tiles
        (301, 2, 1, 301),  # two tiles
        (301, 32, 1, 301),  # 32 tiles
        (33, 1, 2, 66),  # two tiles, so that no sample of a coarser component is cut
    ],
)
def test_chunk_is_a_whole_number_of_tiles(tile, step, factor, chunk):
    assert chunk_size(tile, step, factor) == chunk


def test_tiles_of_each_chunk():
    found = axis(np.array([0, 156, 412, 668, 900]), 256)
    assert found.first.tolist() == [0, 1, 2, 3]
    assert found.last.tolist() == [1, 2, 3, 3]
    assert not found.is_plain(4)
    assert axis(np.array([0, 256, 512, 600]), 256).is_plain(3)
    # tiles without a sample at this level belong to no chunk
    sparse = axis(np.array([0, 1, 1, 1, 2, 2]), 1)
    assert (sparse.first.tolist(), sparse.last.tolist()) == ([0, 3], [0, 3])
    assert not sparse.is_plain(5)
    assert not sparse.is_plain(2)


@needs_openjpeg
def test_levels_share_one_table():
    data = compress(list(field((300, 260))), "-t", "64,64")
    arrays = level_arrays(index_tiles(MemorySource(data), 0, len(data)), "a.j2k")
    assert [a.shape for a in arrays] == [(-(-300 // 2**n), -(-260 // 2**n)) for n in range(6)]  # fmt: skip
    assert [a.chunk_shape for a in arrays] == [(64 >> n, 64 >> n) for n in range(6)]
    assert all(a.chunks is arrays[0].chunks for a in arrays)
    assert arrays[0].chunks.nbytes == 16 * 25
    assert [a.codecs[1]["configuration"]["resolution_level"] for a in arrays] == list(range(6))


@needs_openjpeg
def test_odd_tiles_join_in_lower_levels():
    data = compress(list(field((300, 260))), "-t", "50,50", "-n", "4")
    arrays = level_arrays(index_tiles(MemorySource(data), 0, len(data)), "a.j2k")
    assert [a.chunk_shape for a in arrays] == [(50, 50), (25, 25), (25, 25), (25, 25)]
    assert [a.grid for a in arrays] == [(6, 6), (6, 6), (3, 3), (2, 2)]


def test_ten_thousand_tiles_are_16_bytes_each():
    data = stream(10_000, 20)
    (array,) = level_arrays(index_tiles(MemorySource(data), 0, len(data)), "a.j2k")
    assert array.chunks.nbytes == 160_000


@pytest.mark.parametrize("marker", [0xFF72, 0xFF74, 0xFF76, 0xFF79])
def test_extensions_of_part_2_are_refused(marker):
    data = stream(2, 30)
    place = data.index(b"\xff\x90")
    data = data[:place] + struct.pack(">HHH", marker, 4, 0) + data[place:]
    with pytest.raises(UnsupportedError, match=rf"a\.j2k.*\b{NAMES[marker]}\b"):
        level_arrays(index_tiles(MemorySource(data), 0, len(data)), "a.j2k")


def test_a_huge_tile_in_few_bytes():
    data = bytearray(stream(1, 100))
    struct.pack_into(">2I", data, 8, 100_000, 100_000)
    struct.pack_into(">2I", data, 24, 100_000, 100_000)
    with pytest.raises(LimitError):
        level_arrays(index_tiles(MemorySource(bytes(data)), 0, len(data)), "a.j2k")
