"""Images of tiny tiles: each is a chunk, and many are decoded and checked by one call."""

import json
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk.codecs.jpeg2000 import tiles
from anychunk.codestream.jpeg2000 import read_main_header, stream_parts
from anychunk.errors import AnychunkError
from tests.support.compiled import needs_compiled
from tests.support.j2k_streams import compress, decompress, needs_openjpeg

pytestmark = needs_openjpeg


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
    assert image.chunks[-1] <= 16
    expected = imagecodecs.jpeg2k_decode(stream, planar=bands > 1)
    assert np.array_equal(image[...], expected)
    assert np.array_equal(image[..., 7:120, 9:77], expected[..., 7:120, 9:77])
    rows = (*(slice(None),) * (image.ndim - 2), [3, 99], slice(5, 120))
    assert np.array_equal(image.oindex[rows], expected[rows])
    coarse = anychunk.open(path).image(0, level=1)[...]
    # imagecodecs computes another size of some levels
    assert np.array_equal(coarse, np.squeeze(decompress(stream, level=1)))


@needs_compiled
def test_one_call_decodes_all_tiles(tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "decode_tile", lambda *_, **__: pytest.fail("decoded one by one"))
    [plane] = planes()
    path = tmp_path / "a.j2k"
    path.write_bytes(compress([plane], "-t", "16,16", "-n", "3"))
    assert np.array_equal(anychunk.open(path).image(0)[...], plane)


@needs_compiled
@pytest.mark.parametrize("absent", [[0], [9], [17, 18], [3, 12, 21], [89], list(range(0, 90, 2))])
def test_absent_tiles_read_as_fill(absent, tmp_path, monkeypatch):
    """As a mask of NITF says; those around them are still decoded together."""
    [plane] = planes()
    path = tmp_path / "a.j2k"
    path.write_bytes(compress([plane], "-t", "16,16", "-n", "3"))
    index = anychunk.index(path)
    image = index["0/0/image"]
    lengths = image.chunks.lengths.copy()
    assert lengths.shape == (10, 9)
    expected = plane.copy()
    for number in absent:
        y, x = divmod(number, 9)
        lengths[y, x] = 0
        expected[y * 16 : y * 16 + 16, x * 16 : x * 16 + 16] = 7
    masked = replace(image, chunks=replace(image.chunks, lengths=lengths), fill_value=7)
    calls = []
    real = tiles.decode_tile
    monkeypatch.setattr(tiles, "decode_tile", lambda *a, **k: calls.append(a) or real(*a, **k))
    found = anychunk.open(masked)[...]
    assert np.array_equal(found, expected)
    # tiles between two absent ones have no neighbour in their row; their columns differ in length
    assert len(calls) <= 5 or len(absent) > 5


def test_overridden_headers_are_decoded_one_by_one(tmp_path):
    """A tile-part header may have other markers than SOT and SOD; COM says nothing."""
    [plane] = planes()
    stream = compress([plane], "-t", "16,16", "-n", "3")
    header = read_main_header(stream)
    part = stream_parts(memoryview(stream)[header.length :])[40]
    begin, end = (header.length + part.offset + n for n in (0, 12))
    longer = (part.length + 7).to_bytes(4, "big")
    edited = stream[: begin + 6] + longer + stream[begin + 10 : end]
    edited += bytes.fromhex("ff64000500") + b"\x01a" + stream[end:]
    path = tmp_path / "a.j2k"
    path.write_bytes(edited)
    assert np.array_equal(imagecodecs.jpeg2k_decode(edited), plane)
    assert np.array_equal(anychunk.open(path).image(0)[...], plane)


def test_saved_chunks_are_single_tiles(tmp_path):
    """Other readers of references take each chunk for one tile."""
    path = tmp_path / "a.j2k"
    path.write_bytes(compress(planes(), "-t", "16,16", "-n", "3"))
    anychunk.save(anychunk.index(path), tmp_path / "a.json", layout="osml")
    references = json.loads((tmp_path / "a.json").read_text())["refs"]
    ranges = [value[1:] for value in references.values() if isinstance(value, list)]
    assert len(ranges) == 90 * 3
    header = read_main_header(path.read_bytes())
    parts = stream_parts(memoryview(path.read_bytes())[header.length :])
    tiles = {(header.length + part.offset, part.length) for part in parts}
    assert set(map(tuple, ranges)) == tiles


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


@pytest.mark.parametrize("order", ["columns reversed", "rows reversed", "shifted", "pairs swapped"])
def test_an_index_may_have_tiles_in_another_order(order, tmp_path):
    """Each chunk shows the tile that its bytes have, where the index puts it."""
    [plane] = planes(shape=(96, 128))
    path = tmp_path / "a.j2k"
    path.write_bytes(compress([plane], "-t", "16,16", "-n", "3"))
    image = anychunk.index(path)["0/0/image"]
    numbers = np.arange(6 * 8).reshape(6, 8)
    other = {
        "columns reversed": numbers[:, ::-1],
        "rows reversed": numbers[::-1],
        "shifted": np.roll(numbers, 3),
        "pairs swapped": numbers.reshape(6, 4, 2)[..., ::-1].reshape(6, 8),
    }[order]
    chunks = replace(
        image.chunks,
        offsets=image.chunks.offsets.reshape(-1)[other],
        lengths=image.chunks.lengths.reshape(-1)[other],
    )
    found = anychunk.open(replace(image, chunks=chunks))
    tiles = plane.reshape(6, 16, 8, 16).transpose(0, 2, 1, 3).reshape(-1, 16, 16)
    expected = tiles[other].transpose(0, 2, 1, 3).reshape(96, 128)
    assert np.array_equal(found[...], expected)
    assert np.array_equal(found[5:70, 20:101], expected[5:70, 20:101])


def test_an_index_may_state_a_larger_image(tmp_path):
    [plane] = planes(shape=(70, 90))
    path = tmp_path / "a.j2k"
    path.write_bytes(compress([plane], "-t", "16,16", "-n", "3"))
    image = anychunk.index(path)["0/0/image"]
    found = anychunk.open(replace(image, shape=(80, 96)))
    assert np.array_equal(found[...][:70, :90], plane)
    rows = [3, 66, 69]
    assert np.array_equal(found.oindex[rows, :][:, :90], plane[rows])


@pytest.mark.parametrize("is_flat", [True, False])
def test_tiles_in_files_of_their_own(is_flat, tmp_path):
    """Copied to a Zarr folder: small files are read into the same memory, one after the other."""
    rng = np.random.default_rng(5)
    plane = rng.integers(0, 256, (112, 112), "u1")
    if is_flat:  # 128 - 27 and 128 + 27 take equally many bytes
        plane = np.kron(rng.choice([101, 155], (7, 7)), np.ones((16, 16))).astype("u1")
    source, folder = tmp_path / "a.j2k", tmp_path / "a.zarr"
    source.write_bytes(compress([plane], "-t", "16,16", "-n", "1"))
    image = anychunk.open(source).image(0)
    (folder / "c").mkdir(parents=True)
    (folder / "zarr.json").write_text(json.dumps(image.metadata.to_dict()))
    for y, x in np.ndindex(7, 7):
        (folder / f"c/{y}").mkdir(exist_ok=True)
        stored = image.store.get_sync(f"{image.path}/c/{y}/{x}").to_bytes()
        (folder / f"c/{y}/{x}").write_bytes(stored)
    assert np.array_equal(anychunk.open(folder)[...], plane)
    assert np.array_equal(anychunk.open(folder)[20:90, 3:70], plane[20:90, 3:70])
