from dataclasses import replace

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.codecs import streams
from anychunk.codecs.tiff import decoders, encoders, tile
from anychunk.codecs.tiff.tile import PICTURES, Tile
from anychunk.errors import AnychunkError, ChunkDecodeError


def test_every_picture_has_a_decoder():
    assert set(decoders.PICTURE_DECODERS) == PICTURES
    assert not PICTURES & set(decoders.STREAM_DECODERS)


def test_what_is_encoded_is_decoded():
    assert encoders.ENCODED <= decoders.KNOWN


ROWS = (np.arange(64 * 64) % 251).astype(np.uint8)
STREAMS = {
    5: imagecodecs.lzw_encode(ROWS),
    8: imagecodecs.deflate_encode(ROWS),
    32773: imagecodecs.packbits_encode(ROWS),
    34925: imagecodecs.lzma_encode(ROWS),
    50000: imagecodecs.zstd_encode(ROWS),
}


@pytest.mark.parametrize("surplus", [b"\0", b"\0\0\0", b"\x12\x34\xff\x81" * 9])
@pytest.mark.parametrize("compression", STREAMS)
@pytest.mark.parametrize("rows", [64, 50])
def test_surplus_is_ignored_as_in_libtiff(compression, surplus, rows):
    """Bytes behind the stream, and rows behind the last of streams that do not state their length."""
    stored = np.frombuffer(bytes(STREAMS[compression]) + surplus, np.uint8)
    plain = Tile(tile_width=64, tile_height=rows)
    described = replace(plain, compression=compression)
    if compression in (8, 34925, 50000) and rows == 50:
        # without the end of the stream, nothing says that the rows are right; libtiff's
        # libdeflate and tifffile refuse such Deflate streams, too
        with pytest.raises((ChunkDecodeError, *streams.DAMAGED)):
            decoders.decode(described, stored, np.empty(64 * rows, np.uint8))
        return
    expected = imagecodecs.tiff_decode(tile.synthetic_tiff(described, stored, rows=rows))
    np.testing.assert_array_equal(expected.reshape(-1), ROWS[: 64 * rows])
    found = decoders.decode(described, stored, np.empty(64 * rows, np.uint8))
    np.testing.assert_array_equal(found.reshape(-1), ROWS[: 64 * rows])


@pytest.mark.parametrize("compression", [8, 32773, 34925, 50000])
def test_surplus_does_not_hide_missing_rows(compression):
    whole = bytes(STREAMS[compression])
    stored = np.frombuffer(whole[: len(whole) // 2] + bytes(9), np.uint8)
    tile = Tile(tile_width=64, tile_height=64, last_height=64, compression=compression)
    with pytest.raises((AnychunkError, *streams.DAMAGED)):
        decoders.decode(tile, stored, np.empty(64 * 64, np.uint8))


def stored_tile(path, compression, stream):
    with tifffile.TiffWriter(path) as file:
        tile = {"shape": (64, 64), "dtype": "uint8", "tile": (64, 64)}
        file.write(iter([stream]), compression=compression, **tile)


@pytest.mark.parametrize("lost", [1, 4, 5, 20])
@pytest.mark.parametrize("compression", [8, 34925, 50000])
def test_streams_without_their_end_are_errors(tmp_path, compression, lost):
    """All rows may be there, but the checksum that confirms them is not."""
    stored_tile(tmp_path / "a.tif", compression, bytes(STREAMS[compression])[:-lost])
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "a.json")
    for name in ("a.tif", "a.json"):
        with pytest.raises(ChunkDecodeError):
            anychunk.open_array(tmp_path / name)[...]


@pytest.mark.parametrize("compression", STREAMS)
def test_the_last_strip_may_have_all_rows(tmp_path, compression):
    """Some writers pad it."""
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        strips = iter([bytes(STREAMS[compression])] * 2)
        options = {"shape": (100, 64), "dtype": "uint8", "rowsperstrip": 64}
        file.write(strips, compression=compression, **options)
    expected = np.tile(ROWS, 2).reshape(128, 64)[:100]
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], expected)
