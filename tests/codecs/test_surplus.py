"""Bytes behind the end of a stream: an error in an object of its own, ignored in a larger file.

The rule is in docs/correctness.md. Every compression is tried in every place where it is found.
"""

import bz2
import gzip
import lzma
import zlib

import imagecodecs
import numpy as np
import pytest
import tensorstore
import tifffile
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import BZ2, LZMA, Zlib

import anychunk
from anychunk.codecs import stream
from anychunk.codecs.tiff.tile import Tile, synthetic_tiff
from anychunk.errors import ChunkDecodeError
from tests.support.jnrrd_tiles import ENCODE, GRID, cut, external
from tests.support.n5_blocks import field, write_dataset
from tests.support.naive_jnrrd import tiled

SURPLUS = {
    "zero": b"\0",
    "zeros": bytes(7),
    "others": b"\x12\x34\xff\x81" * 3,
    "the decoded size, as at the end of gzip": (256).to_bytes(4, "little"),
}
BLOCK = field((16, 8))

N5 = {
    "raw": ({"type": "raw"}, bytes),
    "gzip": ({"type": "gzip", "level": 5}, gzip.compress),
    "zlib": ({"type": "gzip", "level": 5, "useZlib": True}, zlib.compress),
    "bzip2": ({"type": "bzip2", "blockSize": 9}, bz2.compress),
    "xz": ({"type": "xz", "preset": 6}, lzma.compress),
    "zstd": ({"type": "zstd", "level": 3}, imagecodecs.zstd_encode),
    "blosc": (
        {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
        imagecodecs.blosc_encode,
    ),
    "lz4 of Java": (
        {"type": "lz4", "blockSize": 65536},
        lambda data: stream.encode(np.frombuffer(data, np.uint8), 65536),
    ),
    "lz4 frame": ({"type": "lz4", "blockSize": 65536}, imagecodecs.lz4f_encode),
    "lz4 block": ({"type": "lz4", "blockSize": 65536}, imagecodecs.lz4_encode),
}
STRICT_THERE = ("gzip", "zstd", "bzip2", "xz")
"""Surplus behind these is refused by tensorstore, too; it ignores that behind the others it reads."""


def by_tensorstore(folder):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return np.asarray(tensorstore.open(spec).result().read().result())


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("name", N5)
def test_an_n5_block(tmp_path, name, surplus):
    compression, compress = N5[name]
    for folder, more in (("good", b""), ("bad", SURPLUS[surplus])):
        write_dataset(
            tmp_path / folder, BLOCK, BLOCK.shape, compression=compression,
            compress=lambda data, more=more: bytes(compress(data)) + more,
        )  # fmt: skip
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "good", axes="xyz")[...], BLOCK)
    with pytest.raises(ChunkDecodeError):
        anychunk.open_array(tmp_path / "bad", axes="xyz")[...]
    if name in STRICT_THERE:
        np.testing.assert_array_equal(by_tensorstore(tmp_path / "good"), BLOCK)
        with pytest.raises(ValueError, match="FAILED_PRECONDITION|DATA_LOSS|INVALID_ARGUMENT"):
            by_tensorstore(tmp_path / "bad")


def test_padding_that_belongs_to_xz(tmp_path):
    """The .xz file format, section 2.2: zeros behind a stream, a multiple of four."""
    for count in (4, 8, 6):
        write_dataset(
            tmp_path / str(count), BLOCK, BLOCK.shape, compression=N5["xz"][0],
            compress=lambda data, count=count: lzma.compress(data) + bytes(count),
        )  # fmt: skip
        array = anychunk.open_array(tmp_path / str(count), axes="xyz")
        if count == 6:
            with pytest.raises(ChunkDecodeError):
                array[...]
        else:
            np.testing.assert_array_equal(array[...], BLOCK)


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_further_members_are_no_surplus(tmp_path, name):
    """Not even empty ones, as bgzip writes them."""
    compression, compress = N5[name]
    write_dataset(
        tmp_path, BLOCK, BLOCK.shape, compression=compression,
        compress=lambda data: bytes(compress(data)) + bytes(compress(b"")),
    )  # fmt: skip
    np.testing.assert_array_equal(anychunk.open_array(tmp_path, axes="xyz")[...], BLOCK)


ZARR = {
    "gzip": GzipCodec(),
    "zstd": ZstdCodec(),
    "blosc": BloscCodec(typesize=2),
    "zlib": Zlib(level=1),
    "bz2": BZ2(level=1),
    "lzma": LZMA(format=1),
}


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("name", ZARR)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_a_zarr_chunk(tmp_path, name, surplus):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=BLOCK.shape, chunks=BLOCK.shape, dtype=BLOCK.dtype,
        serializer=BytesCodec(), compressors=[ZARR[name]],
    )  # fmt: skip
    array[...] = BLOCK
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr")[...], BLOCK)
    chunk = tmp_path / "a.zarr" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes() + SURPLUS[surplus])
    with pytest.raises(ChunkDecodeError):
        anychunk.open_array(tmp_path / "a.zarr")[...]


ROWS = (np.arange(64 * 64) % 251).astype(np.uint8).reshape(64, 64)
TIFF = {
    5: imagecodecs.lzw_encode,
    8: zlib.compress,
    32773: imagecodecs.packbits_encode,
    34925: lzma.compress,
    50000: imagecodecs.zstd_encode,
}


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize(
    ("compression", "predictor"),
    # libtiff applies no predictor to PackBits
    [(c, p) for c in TIFF for p in (1, 2) if (c, p) != (32773, 2)],
)
def test_a_tiff_tile(tmp_path, compression, predictor, surplus):
    """Ignored, as by libtiff; in a saved index as well."""
    rows = ROWS if predictor == 1 else imagecodecs.delta_encode(ROWS, axis=-1)
    stored = bytes(TIFF[compression](np.ascontiguousarray(rows).tobytes())) + SURPLUS[surplus]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        options = {"shape": (64, 64), "dtype": "uint8", "tile": (64, 64)}
        if predictor == 2:
            options["predictor"] = 2
        file.write(iter([stored]), compression=compression, **options)
    tile = Tile(tile_width=64, tile_height=64, compression=compression, predictor=predictor)
    made = synthetic_tiff(tile, np.frombuffer(stored, np.uint8), rows=64)
    np.testing.assert_array_equal(imagecodecs.tiff_decode(made).reshape(64, 64), ROWS)
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "a.json")
    for name in ("a.tif", "a.json"):
        np.testing.assert_array_equal(anychunk.open_array(tmp_path / name)[...], ROWS)


@pytest.mark.parametrize("predictor", [1, 2])
@pytest.mark.parametrize("compression", [8, 34925, 50000])
def test_more_rows_than_a_tiff_tile(tmp_path, compression, predictor):
    """Not behind the stream, but in it: its end does not confirm the rows before."""
    rows = np.vstack([ROWS, ROWS[:3]])
    if predictor == 2:
        rows = imagecodecs.delta_encode(rows, axis=-1)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        options = {"shape": (64, 64), "dtype": "uint8", "tile": (64, 64)}
        if predictor == 2:
            options["predictor"] = 2
        stored = bytes(TIFF[compression](np.ascontiguousarray(rows).tobytes()))
        file.write(iter([stored]), compression=compression, **options)
    with pytest.raises(ChunkDecodeError):
        anychunk.open_array(tmp_path / "a.tif")[...]


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("halo", [0, 1])
@pytest.mark.parametrize("name", [name for name in ENCODE if name != "raw"])
def test_a_jnrrd_tile(tmp_path, name, halo, surplus):
    """Ignored inside of the file; an error in a file of its own."""
    tiles = [ENCODE[name](tile) + SURPLUS[surplus] for tile in cut(GRID, (3, 4), halo=(halo, halo))]
    more = {"compression": name} | ({"overlap": [halo, halo]} if halo else {})
    for sized in ({"size_table": [len(tile) for tile in tiles]}, {}):
        tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], tiles, **more, **sized)
        np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd")[...], GRID)
    external(tmp_path / "b.jnrrd", [9, 7], [4, 3], pattern="t{x}{y}", **more)
    for number, tile in enumerate(tiles):
        (tmp_path / f"t{number % 3}{number // 3}").write_bytes(tile)
    with pytest.raises(ChunkDecodeError):
        anychunk.open_array(tmp_path / "b.jnrrd")[...]
