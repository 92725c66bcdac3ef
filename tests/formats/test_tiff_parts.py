"""Parts of large JPEG 2000 tiles of TIFF: equal to the crop of the whole, without decoding it."""

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.codecs.tiff import decoders
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import AnychunkError
from anychunk.read import pipeline, window_reads

SIZE = 304
"""Of the image, which has one tile and a part of a second one in each direction."""
TILE = 256
WINDOWS = (np.s_[0:7, 0:9], np.s_[100:164, 30:90], np.s_[250:256, 200:256], np.s_[3:4, 255:256])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("anychunk.codecs.chain.LEAST_PART", 1 << 14)
    for cache in (window_reads.TOUCHED, pipeline.RECENT):
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


def test_damage_is_found_by_every_part(tmp_path):
    """Bytes that are lost anywhere in a tile make every part of it an error."""

    def cut(stream: bytes) -> bytes:
        header = read_main_header(stream)
        part = bytearray(stream[header.length : -1000])
        part[6:10] = len(part).to_bytes(4, "big")
        return stream[: header.length] + bytes(part) + b"\xff\xd9"

    image = noise((SIZE, SIZE), "u1")
    array = anychunk.open_array(
        write(tmp_path / "a.tif", image, change=cut, level=0, reversible=True)
    )
    for window in WINDOWS:
        with pytest.raises(AnychunkError):
            _ = array[window]
