"""Images of tiny tiles: many are one chunk, and are decoded and checked by one call."""

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk.codecs.jpeg2000 import codec
from anychunk.codestream.jpeg2000 import read_main_header, stream_parts
from anychunk.errors import AnychunkError
from anychunk.native import loops
from tests.j2k_streams import compress, decompress, needs_openjpeg

pytestmark = needs_openjpeg
needs_loops = pytest.mark.skipif(
    loops is None, reason="needs the compiled module: `make setup` with a C compiler"
)


def planes(bands=1, shape=(150, 131)):
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, shape, "u1") for _ in range(bands)]


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        ("-t", "16,8", "-n", "3"),
        ("-t", "13,11", "-n", "2", "-I", "-r", "3"),
        ("-t", "16,16", "-n", "3", "-r", "9,1", "-SOP", "-EPH"),
        ("-t", "16,16", "-n", "2", "-TP", "R"),
        ("-t", "16,16", "-n", "2", "-d", "5,3", "-T", "5,3"),
    ],
    ids="".join,
)
def test_every_level_equals_openjpeg(bands, options, tmp_path):
    stream = compress(planes(bands), *options)
    path = tmp_path / "a.j2k"
    path.write_bytes(stream)
    image = anychunk.open(path).image(0)
    assert image.chunks[-1] > 16
    expected = imagecodecs.jpeg2k_decode(stream, planar=bands > 1)
    assert np.array_equal(image[...], expected)
    assert np.array_equal(image[..., 7:120, 9:77], expected[..., 7:120, 9:77])
    coarse = anychunk.open(path).image(0, level=1)[...]
    # imagecodecs computes another size of some levels
    assert np.array_equal(coarse, np.squeeze(decompress(stream, level=1)))


@needs_loops
def test_one_call_decodes_all_tiles(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "decode_tile", lambda *_, **__: pytest.fail("decoded one by one"))
    [plane] = planes()
    path = tmp_path / "a.j2k"
    path.write_bytes(compress([plane], "-t", "16,16", "-n", "3"))
    assert np.array_equal(anychunk.open(path).image(0)[...], plane)


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_tile_is_reported(seed, tmp_path):
    """A packet that is longer or shorter than its header says, or bytes after the last one."""
    stream = compress(planes(), "-t", "16,16", "-n", "3")
    header = read_main_header(stream)
    parts = stream_parts(memoryview(stream)[header.length :])
    part = parts[seed * 7 % len(parts)]
    begin = header.length + part.offset
    damaged = bytearray(stream)
    damaged[begin + 14 : begin + 18] = b"\xff\x7f\xff\x7f"  # no packet has so long a header
    path = tmp_path / "a.j2k"
    path.write_bytes(damaged)
    with pytest.raises(AnychunkError, match=f"tile {part.tile}"):
        anychunk.open(path).image(0)[...]
