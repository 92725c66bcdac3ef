"""Chunks that a layout is for are read by it: none is left over to be decoded by itself.

A kernel that refuses everything gives the right pixels, too. `read_stats` counts what was left.
"""

import bz2
import gzip
import itertools
import struct
import zlib

import numpy as np
import pytest
import tifffile
import zarr
from numcodecs import GZip, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec

import anychunk
from tests.support import n5_blocks, nitf_writer
from tests.support.compiled import needs_compiled

pytestmark = needs_compiled

y, x = np.mgrid[0:61, 0:99]
VALUES = (1000 + 40 * np.sin(x / 9) * np.cos(y / 7) + (x * y) % 3).astype("u2")
CUBE = np.stack([VALUES + 100 * i for i in range(5)]).astype("u2")


def assert_none_left(array, expected, boxes):
    for box in boxes:
        with anychunk.read_stats() as found:
            np.testing.assert_array_equal(array[box], expected[box])
        assert found.leftover_chunks == 0, box
        assert found.chunks + found.cache_hits > 0


PLANE = ((...,), (slice(3, 52), slice(1, 98)), (slice(60, 61), slice(98, 99)))
SPACE = ((...,), (slice(1, 4), slice(3, 52), slice(1, 98)), (slice(2, 3), slice(60, 61), slice(98, 99)))  # fmt: skip

TIFF = list(
    itertools.product(
        (None, "packbits", "lzw", "zlib", "zstd", "lzma"),
        ({"tile": (16, 32)}, {"tile": (128, 112)}, {"rowsperstrip": 1}, {"rowsperstrip": 16}),
    )
)


@pytest.mark.parametrize(("compression", "layout"), TIFF)
def test_tiff(tmp_path, compression, layout):
    predictors = (False, True) if compression in ("lzw", "zlib", "zstd") else (False,)
    for predictor, order, dtype in itertools.product(predictors, "<>", ("u2", "u1")):
        path, values = tmp_path / "a.tif", VALUES.astype(dtype)
        tifffile.imwrite(
            path, values, byteorder=order, compression=compression, predictor=predictor,
            metadata=None, **layout,
        )  # fmt: skip
        assert_none_left(anychunk.open_array(path), values, PLANE)


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "zstd"])
def test_tiles_in_one_column_are_not_strips(tmp_path, compression):
    """Of a tile as wide as the image, the last is whole, unlike the last strip."""
    values = np.pad(VALUES, ((0, 0), (0, 13)))
    assert values.shape == (61, 112)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, values, tile=(32, 112), compression=compression, metadata=None)
    assert_none_left(anychunk.open_array(path), values, PLANE)


ZARR = {
    "raw": None,
    "zstd": [ZstdCodec()],
    "zstd with checksum": [ZstdCodec(checksum=True)],
    "gzip": [GzipCodec()],
    "blosc": [BloscCodec(cname="zstd", shuffle="bitshuffle")],
    "blosc lz4": [BloscCodec(cname="lz4", shuffle="shuffle")],
}


@pytest.mark.parametrize("name", ZARR)
@pytest.mark.parametrize("has_shards", [False, True], ids=["chunks", "shards"])
@pytest.mark.parametrize("order", ["C", "big endian", "transposed"])
def test_zarr(tmp_path, name, has_shards, order):
    options = {"compressors": ZARR[name]}
    if order == "big endian":
        options["serializer"] = BytesCodec(endian="big")
    elif order == "transposed":
        options["filters"] = [TransposeCodec(order=(1, 0, 2))]
    path = tmp_path / "a.zarr"
    shards = {"shards": (2, 32, 64)} if has_shards else {}
    made = zarr.create_array(
        path, shape=CUBE.shape, dtype=CUBE.dtype, chunks=(1, 16, 32), **shards, **options
    )
    made[...] = CUBE
    assert_none_left(anychunk.open_array(path), CUBE, SPACE)


@pytest.mark.parametrize("compressor", [None, Zstd(), GZip(), Zlib()])
def test_zarr_v2(tmp_path, compressor):
    path = tmp_path / "a.zarr"
    made = zarr.create_array(
        path, shape=CUBE.shape, dtype=">u2", chunks=(2, 16, 32), zarr_format=2,
        compressors=compressor,
    )  # fmt: skip
    made[...] = CUBE
    assert_none_left(anychunk.open_array(path), CUBE, SPACE)


@pytest.mark.parametrize("name", ["raw", "gzip", "zlib", "zstd"])
def test_n5(tmp_path, name):
    compress = {
        "raw": bytes, "gzip": gzip.compress, "zlib": zlib.compress,
        "zstd": lambda data: Zstd().encode(data),
    }[name]  # fmt: skip
    compression = {"type": "gzip", "useZlib": True} if name == "zlib" else {"type": name}
    # N5 lists the fastest axis first
    n5_blocks.write_dataset(
        tmp_path / "a.n5", CUBE.T, (32, 16, 2), compression=compression, compress=compress
    )
    assert_none_left(anychunk.open_array(tmp_path / "a.n5"), CUBE, SPACE)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<f4"])
def test_npy(tmp_path, order, dtype):
    values = np.asarray(CUBE.astype(dtype), order=order)
    np.save(tmp_path / "a.npy", values)
    assert_none_left(anychunk.open_array(tmp_path / "a.npy"), values, SPACE)


def nrrd(path, values, encoding, data):
    sizes = " ".join(str(n) for n in values.shape[::-1])
    text = (
        f"NRRD0004\ntype: uint16\ndimension: 3\nsizes: {sizes}\nendian: little\n"
        f"encoding: {encoding}\n\n"
    )
    path.write_bytes(text.encode() + data)


@pytest.mark.parametrize("encoding", ["raw", "gzip", "bzip2"])
def test_nrrd(tmp_path, encoding):
    compress = {"raw": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}[encoding]
    path = tmp_path / "a.nrrd"
    nrrd(path, CUBE, encoding, compress(CUBE.tobytes()))
    assert_none_left(anychunk.open_array(path), CUBE, SPACE)


@pytest.mark.parametrize("imode", "BPRS")
def test_nitf(tmp_path, imode):
    values = CUBE[:3]
    image = nitf_writer.Image(values, imode=imode, block=(32, 48))
    (tmp_path / "a.ntf").write_bytes(nitf_writer.nitf([image]))
    assert_none_left(anychunk.open_array(tmp_path / "a.ntf"), values, SPACE)


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_nifti(tmp_path, is_compressed, order):
    head = bytearray(348)
    struct.pack_into(f"{order}i", head, 0, 348)
    struct.pack_into(f"{order}8h", head, 40, 3, *CUBE.shape[::-1], 1, 1, 1, 1)
    struct.pack_into(f"{order}2h", head, 70, 512, 16)
    struct.pack_into(f"{order}8f", head, 76, *(1,) * 8)
    struct.pack_into(f"{order}f", head, 108, 352)
    head[344:348] = b"n+1\0"
    data = bytes(head) + bytes(4) + CUBE.astype(f"{order}u2").tobytes()
    path = tmp_path / ("a.nii.gz" if is_compressed else "a.nii")
    path.write_bytes(gzip.compress(data) if is_compressed else data)
    array = anychunk.open_array(path)
    assert array.shape == CUBE.shape
    assert_none_left(array, CUBE, SPACE)


def test_arrays_after_enable(tmp_path):
    """Those that zarr opens are read by the loop, too."""
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=CUBE.shape, dtype="u2", chunks=(1, 16, 32))[...] = CUBE
    anychunk.enable()
    try:
        array = zarr.open_array(path, mode="r")
        with anychunk.read_stats() as found:
            np.testing.assert_array_equal(array[...], CUBE)
        assert (found.chunks, found.leftover_chunks) == (5 * 4 * 4, 0)
    finally:
        anychunk.disable()


def test_what_is_damaged_is_left_over_and_reported(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=CUBE.shape, dtype="u2", chunks=(1, 16, 32))[...] = CUBE
    (path / "c/2/1/1").write_bytes(b"damaged")
    with anychunk.read_stats() as found, pytest.raises(anychunk.errors.ChunkDecodeError):
        anychunk.open_array(path)[...]
    assert found.leftover_chunks == 1
