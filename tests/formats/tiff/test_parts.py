"""Parts of large JPEG 2000 tiles of TIFF: equal to the crop of the whole, without decoding it."""

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.codecs.tiff import decoders
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.engine import chunks
from anychunk.errors import AnychunkError
from tests.support.http_server import serve

SIZE = 304
"""Of the image, which has one tile and a part of a second one in each direction."""
TILE = 256
WINDOWS = (np.s_[0:7, 0:9], np.s_[100:164, 30:90], np.s_[250:256, 200:256], np.s_[3:4, 255:256])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("anychunk.codecs.chain.LEAST_PART", 1 << 14)
    for cache in (chunks.TOUCHED, chunks.RECENT):
        cache.clear()


@pytest.fixture
def whole_decodes(monkeypatch):
    """Count the chunks that are decoded whole."""
    counted = []
    real = decoders.PICTURE_DECODERS[34712]

    def decode(tile, data, out=None):
        counted.append(tile)
        return real(tile, data, out)

    for code in (34712, 33003, 33005):
        monkeypatch.setitem(decoders.PICTURE_DECODERS, code, decode)
    return counted


def noise(shape, dtype):
    rng = np.random.default_rng(5)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def write(path, image, compression=34712, form="J2K", change=bytes, **options):
    """Write an image whose tiles are codestreams of OpenJPEG."""
    padded = np.zeros((512, 512, *image.shape[2:]), image.dtype)
    padded[:SIZE, :SIZE] = image
    tiles = [padded[y : y + TILE, x : x + TILE] for y in (0, TILE) for x in (0, TILE)]
    streams = [change(imagecodecs.jpeg2k_encode(t, codecformat=form, **options)) for t in tiles]
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            iter(streams),
            shape=image.shape,
            dtype=image.dtype,
            photometric="rgb" if image.ndim == 3 else "minisblack",
            compression=compression,
            tile=(TILE, TILE),
        )
    return str(path)


CASES = {
    "grey": ((SIZE, SIZE), "u1", {"level": 0, "reversible": True}),
    "wide": ((SIZE, SIZE), "u2", {"level": 0, "reversible": True}),
    "colours": ((SIZE, SIZE, 3), "u1", {"level": 0, "reversible": True}),
    "lossy": ((SIZE, SIZE, 3), "u1", {"level": 60, "reversible": False}),
}


@pytest.mark.parametrize("compression", [34712, 33003, 33005])
@pytest.mark.parametrize("name", CASES)
def test_parts_are_exact(name, compression, tmp_path, whole_decodes):
    shape, dtype, options = CASES[name]
    path = write(tmp_path / "a.tif", noise(shape, dtype), compression, **options)
    with tifffile.TiffFile(path) as tiff:
        expected = tiff.asarray()
    if expected.ndim == 3:
        expected = np.moveaxis(expected, -1, 0)
    array = anychunk.open_array(path)
    for window in WINDOWS:
        np.testing.assert_array_equal(array[(..., *window)], expected[(..., *window)])
    assert not whole_decodes
    across = np.s_[..., 240:300, 100:300]
    np.testing.assert_array_equal(array[across], expected[across])


def test_many_parts_decode_the_tile_once(tmp_path, whole_decodes):
    image = noise((SIZE, SIZE), "u1")
    path = write(tmp_path / "a.tif", image, level=0, reversible=True)
    array = anychunk.open_array(path)
    for row in range(40):
        np.testing.assert_array_equal(array[row, :60], image[row, :60])
    assert len(whole_decodes) == 1


def test_files_inside_of_tiles_are_decoded_whole(tmp_path, whole_decodes):
    """JP2 may state colours that have to be converted."""
    image = noise((SIZE, SIZE), "u1")
    path = write(tmp_path / "a.tif", image, form="JP2", level=0, reversible=True)
    np.testing.assert_array_equal(anychunk.open_array(path)[9:20, 3:30], image[9:20, 3:30])
    assert whole_decodes


def cut(stream: bytes) -> bytes:
    """Return a codestream that lacks its last packets."""
    header = read_main_header(stream)
    part = bytearray(stream[header.length : -1000])
    part[6:10] = len(part).to_bytes(4, "big")
    return stream[: header.length] + bytes(part) + b"\xff\xd9"


def test_parts_of_a_stream_with_a_damaged_marker(tmp_path):
    """As libjpeg skips bytes up to the next marker, the whole tile decodes; parts do, too."""
    pixels = np.tile(np.arange(256, dtype=np.uint8), (2048, 8))
    stream = bytearray(imagecodecs.jpeg8_encode(pixels))
    assert stream[2:4] == b"\xff\xe0"
    stream[4:6] = b"\0\0"
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        options = {"shape": pixels.shape, "dtype": "uint8", "rowsperstrip": 2048}
        file.write(iter([bytes(stream)]), compression=7, **options)
    expected = tifffile.imread(tmp_path / "a.tif")
    found = anychunk.open_array(tmp_path / "a.tif")
    np.testing.assert_array_equal(found[:20, :20], expected[:20, :20])
    np.testing.assert_array_equal(found[...], expected)
    assert anychunk.verify(tmp_path / "a.tif").is_good


def test_damage_is_found_by_every_part(tmp_path):
    """Bytes that are lost anywhere in a tile make every part of it an error."""
    image = noise((SIZE, SIZE), "u1")
    array = anychunk.open_array(
        write(tmp_path / "a.tif", image, change=cut, level=0, reversible=True)
    )
    for window in WINDOWS:
        with pytest.raises(AnychunkError):
            _ = array[window]


def fetched(served) -> int:
    """Return how many bytes were asked for by ranges since the list of requests was cleared."""
    spans = [span.removeprefix("bytes=").split("-") for _, span in served.requests if span]
    return sum(int(last) + 1 - int(first) for first, last in spans)


@pytest.mark.processes
@pytest.mark.parametrize("name", CASES)
def test_remote_parts_are_exact(name, tmp_path, whole_decodes):
    shape, dtype, options = CASES[name]
    path = write(tmp_path / "a.tif", noise(shape, dtype), **options)
    expected = tifffile.imread(path)
    if expected.ndim == 3:
        expected = np.moveaxis(expected, -1, 0)
    with serve(tmp_path) as served:
        array = anychunk.open_array(f"{served.url}/a.tif")
        for window in WINDOWS:
            np.testing.assert_array_equal(array[(..., *window)], expected[(..., *window)])
        assert not whole_decodes
        across = np.s_[..., 240:300, 100:300]
        np.testing.assert_array_equal(array[across], expected[across])


@pytest.mark.processes
def test_remote_parts_fetch_few_bytes(tmp_path):
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (2048, 2048), np.uint8)
    path = tmp_path / "a.tif"
    options = {"codecformat": "J2K", "level": 0, "reversible": True}
    tifffile.imwrite(
        path, image, tile=(2048, 2048), compression="jpeg2000", compressionargs=options
    )
    with serve(tmp_path) as served:
        array = anychunk.open_array(f"{served.url}/a.tif")
        np.testing.assert_array_equal(array[700:800, 900:1000], image[700:800, 900:1000])
        served.requests.clear()
        np.testing.assert_array_equal(array[1700:1800, 100:200], image[1700:1800, 100:200])
        # code-blocks of 64 x 64 at each level, and what lies between them
        assert fetched(served) < path.stat().st_size / 20
        assert len(served.requests) < 30


@pytest.mark.processes
def test_remote_tiles_of_unstated_length_are_read_whole(tmp_path, whole_decodes):
    def unstated(stream: bytes) -> bytes:
        at = read_main_header(stream).length
        return stream[: at + 6] + bytes(4) + stream[at + 10 :]

    image = noise((SIZE, SIZE), "u1")
    write(tmp_path / "a.tif", image, change=unstated, level=0, reversible=True)
    with serve(tmp_path) as served:
        array = anychunk.open_array(f"{served.url}/a.tif")
        np.testing.assert_array_equal(array[9:20, 3:30], image[9:20, 3:30])


@pytest.mark.processes
def test_damage_is_found_by_every_remote_part(tmp_path):
    write(tmp_path / "a.tif", noise((SIZE, SIZE), "u1"), change=cut, level=0, reversible=True)
    with serve(tmp_path) as served:
        array = anychunk.open_array(f"{served.url}/a.tif")
        for window in WINDOWS:
            with pytest.raises(AnychunkError):
                _ = array[window]
