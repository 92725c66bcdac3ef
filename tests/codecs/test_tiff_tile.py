"""tiff-tile compared with libtiff and the TIFF specification, and given damaged chunks."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import zarr

import anychunk
from anychunk import limits
from anychunk.codecs import TiffTile
from anychunk.codecs.base import as_bytes
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    CodecConfigError,
    LimitError,
    UnsupportedError,
)
from anychunk.model.index import ArrayIndex
from anychunk.testing.codecs import CodecContract
from anychunk.zarr import filters
from tests.support.corpus import needs_corpus, samples

RNG = np.random.default_rng(0)
KINDS = {
    (1, 1): "bool", (5, 1): "uint8", (8, 1): "uint8", (12, 1): "uint16", (16, 1): "uint16",
    (16, 2): "int16", (24, 1): "uint32", (32, 1): "uint32", (64, 2): "int64", (16, 3): "float16",
    (32, 3): "float32", (64, 3): "float64", (64, 6): "complex64",
}  # fmt: skip
STREAMS = {"none": 1, "lzw": 5, "deflate": 8, "packbits": 32773, "lzma": 34925, "zstd": 50000}


def decode(tile, data):
    return as_bytes(tile.decode_bytes(as_bytes(bytes(data)), None))


def values(dtype, shape, bits):
    if dtype == "bool":
        return RNG.random(shape) > 0.5
    return (RNG.random(shape) * (2 ** min(bits, 15) - 1)).astype(dtype)


def combinations():
    for (bits, kind), predictor in itertools.product(KINDS, (1, 2, 3)):
        if predictor == 3 and kind != 3:
            continue
        if predictor == 2 and (bits not in (8, 16, 32, 64) or kind == 6):
            continue
        yield bits, kind, predictor


SHAPE = {"bits_per_sample": 16, "samples_per_pixel": 2, "tile_width": 7, "tile_height": 5}


class TestTiffTile(CodecContract):
    codecs = (
        TiffTile(compression=8, predictor=2, **SHAPE),
        TiffTile(compression=5, byte_order="big", **SHAPE),
        TiffTile(compression=50000, fill_order=2, **SHAPE),
    )
    arrays = (np.arange(70, dtype="uint16").reshape(2, 5, 7),)
    chunks = (2, 5, 7)
    takes_any_shape = False


@pytest.mark.parametrize("compression", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize(("bits", "kind", "predictor"), list(combinations()))
def test_round_trip_and_libtiff(compression, bits, kind, predictor):
    for bands, order, fill in itertools.product((1, 3), ("little", "big"), (1, 2)):
        tile = TiffTile(
            compression=compression, bits_per_sample=bits, sample_format=kind, predictor=predictor,
            samples_per_pixel=bands, byte_order=order, fill_order=fill, tile_width=37,
            tile_height=21, photometric=2 if bands == 3 else 1,
        )  # fmt: skip
        array = values(KINDS[bits, kind], (bands, 21, 37), bits)
        stored = tile.encode_bytes(as_bytes(array.tobytes()), None)
        np.testing.assert_array_equal(decode(tile, stored), as_bytes(array))
        # libtiff applies predictors only to some compressions, and does not unpack 24 bits
        if bits != 24 and (predictor == 1 or compression not in (1, 32773)):
            other = TiffTile(**tile.configuration(), backend="libtiff")
            np.testing.assert_array_equal(decode(other, stored), as_bytes(array))


@pytest.mark.parametrize(
    ("compression", "tolerance"), [(7, 8), (34712, 0), (34887, 0), (34933, 0), (50002, 0)]
)
def test_pictures_round_trip(compression, tolerance):
    y, x = np.mgrid[0:32, 0:48]
    array = np.stack([y * 4, x * 4, y + x]).astype(np.uint8)
    photometric = 6 if compression == 7 else 2
    tile = TiffTile(
        compression=compression, samples_per_pixel=3, photometric=photometric, tile_width=48,
        tile_height=32, level=95 if compression == 7 else None,
    )  # fmt: skip
    found = decode(tile, tile.encode_bytes(as_bytes(array), None)).reshape(array.shape)
    assert np.abs(found.astype(int) - array).max() <= tolerance


def test_packbits_example_of_the_specification():
    # TIFF 6.0 section 9
    packed = bytes.fromhex("FEAA0280002AFDAA0380002A22F7AA")
    plain = bytes.fromhex("AAAAAA80002AAAAAAAAA80002A22AAAAAAAAAAAAAAAAAAAA")
    tile = TiffTile(compression=32773, tile_width=24, tile_height=1)
    assert decode(tile, packed).tobytes() == plain


def test_horizontal_differencing_as_specified():
    # TIFF 6.0 section 14: each sample minus the previous one of the same band and row
    tile = TiffTile(predictor=2, samples_per_pixel=3, photometric=2, tile_width=2, tile_height=2)
    stored = bytes([10, 20, 30, 1, 255, 0, 5, 5, 5, 1, 1, 1])
    found = decode(tile, stored).reshape(3, 2, 2)
    assert found.tolist() == [[[10, 11], [5, 6]], [[20, 19], [5, 6]], [[30, 30], [5, 6]]]


def test_only_the_last_strip_may_be_short():
    tile = TiffTile(tile_width=4, tile_height=3, last_height=2)
    assert decode(tile, bytes(range(8))).tolist() == [*range(8), 0, 0, 0, 0]
    with pytest.raises(ChunkDecodeError, match="4 bytes.*12.*8"):
        decode(tile, bytes(4))
    foreign = TiffTile(tile_width=4, tile_height=3)
    assert decode(foreign, bytes([1] * 4)).tolist() == [1] * 4 + [0] * 8
    with pytest.raises(ChunkDecodeError):
        decode(foreign, bytes(5))


@pytest.mark.parametrize("subsampling", [(2, 1), (1, 2), (2, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (3, 8), (1, 8), (1, 1), (3, 5), (4, 12)])
def test_ycbcr_units_extend_beyond_the_edge(subsampling, rows, columns):
    """TIFF 6.0 section 21: units are whole, so strips of different heights have equal lengths."""
    across, down = subsampling
    luma = np.arange(rows * columns, dtype=np.uint8).reshape(rows, columns)
    padded = np.pad(luma, ((0, -rows % down), (0, -columns % across)), constant_values=99)
    blocks = padded.reshape(len(padded) // down, down, -1, across).swapaxes(1, 2)
    flat = blocks.reshape(-1, down * across)
    stored = np.hstack([flat, np.full((len(flat), 2), 128, np.uint8)])
    tile = TiffTile(
        photometric=6, samples_per_pixel=3, subsampling=subsampling, tile_width=columns,
        tile_height=4, last_height=rows, last_width=columns,
    )  # fmt: skip
    found = decode(tile, stored.tobytes()).reshape(3, 4, columns)
    for band in found:
        np.testing.assert_array_equal(band[:rows], luma)  # chroma of 128 is grey


def test_webp_with_reversed_bits():
    """FillOrder 2, as libtiff applies it to WebP."""
    array = np.random.default_rng(1).integers(0, 255, (3, 16, 16)).astype(np.uint8)
    tile = TiffTile(
        compression=50001, samples_per_pixel=3, photometric=2, tile_width=16, tile_height=16
    )
    stored = bytes(tile.encode_bytes(as_bytes(array), None))
    turned = bytes(int(f"{byte:08b}"[::-1], 2) for byte in stored)
    np.testing.assert_array_equal(decode(tile, turned), decode(tile, stored))


def test_depth():
    tile = TiffTile(samples_per_pixel=2, tile_width=2, tile_height=1, tile_depth=2)
    assert decode(tile, bytes(range(8))).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize("compression", [5, 8, 34925, 50000, 7, 4, 34712, 34933, 50001, 34887])
def test_truncated_streams_are_errors(compression):
    array = RNG.integers(0, 255, (3, 64, 64)).astype(np.uint8)
    shape = {"samples_per_pixel": 3, "photometric": 2, "tile_width": 64, "tile_height": 64}
    if compression == 4:
        tile = TiffTile(compression=4, bits_per_sample=1, tile_width=64, tile_height=64)
        stored = bytes(40)
    else:
        tile = TiffTile(compression=compression, **shape)
        stored = bytes(tile.encode_bytes(as_bytes(array), None))
    strict = TiffTile(**tile.configuration(), last_height=64, last_width=64)
    for length in (0, 1, len(stored) // 3, len(stored) * 2 // 3):
        with pytest.raises(ChunkDecodeError):
            _decoded_or_mapped(strict, stored[:length])


def _decoded_or_mapped(tile, stored):
    """Decode, and map errors of other libraries as the codec base class does."""
    try:
        return decode(tile, stored)
    except AnychunkError:
        raise
    except (ValueError, RuntimeError) as e:  # imagecodecs' own are of these kinds
        raise ChunkDecodeError(str(e)) from e


def test_floats_that_lerc_would_lose_are_not_encoded():
    """In big-endian order LERC gets swapped numbers, and keeps none that is NaN."""
    tile = TiffTile(
        compression=34887, bits_per_sample=32, sample_format=3, byte_order="big",
        tile_width=2, tile_height=1,
    )  # fmt: skip
    kept, lost = (np.frombuffer(bytes.fromhex(f"3f8000000000f1{x}"), ">f4") for x in ("01", "7f"))
    stored = tile.encode_bytes(as_bytes(kept.astype("f4")), None)
    assert decode(tile, stored).tobytes() == kept.astype("f4").tobytes()
    with pytest.raises(UnsupportedError):
        tile.encode_bytes(as_bytes(lost.astype("f4")), None)


def test_damaged_deflate_is_an_error():
    tile = TiffTile(compression=8, tile_width=64, tile_height=64)
    stored = bytearray(tile.encode_bytes(RNG.integers(0, 9, 4096).astype(np.uint8), None))
    stored[len(stored) // 2] ^= 0x55
    with pytest.raises(ChunkDecodeError, match="deflate"):
        decode(tile, stored)


def test_jpeg_with_tables_in_the_configuration():
    import base64
    import io

    import tifffile

    array = RNG.integers(0, 255, (32, 32, 3)).astype(np.uint8)
    file = io.BytesIO()
    tifffile.imwrite(file, array, compression="jpeg", photometric="ycbcr", tile=(32, 32))
    file.seek(0)
    page = tifffile.TiffFile(file).pages[0]
    data = file.getvalue()[page.dataoffsets[0] :][: page.databytecounts[0]]
    tables = None if page.jpegtables is None else base64.b64encode(page.jpegtables).decode()
    tile = TiffTile(
        compression=7, samples_per_pixel=3, photometric=6, tile_width=32, tile_height=32,
        jpeg_tables=tables,
    )  # fmt: skip
    expected = np.moveaxis(page.asarray(), -1, 0)
    np.testing.assert_array_equal(decode(tile, data).reshape(3, 32, 32), expected)
    if tables:  # as in osml-imagery-io's first examples
        prefixed = replace(tile, jpeg_tables=f"base64:{tables}")
        np.testing.assert_array_equal(decode(prefixed, data).reshape(3, 32, 32), expected)


def eer(frame):
    """Encode electrons: 7 bits of pixels to skip (127: continued), 4 bits within the pixel."""
    text, last = "", -1
    for place in np.flatnonzero(frame):
        skip, last = place - last - 1, place
        while skip >= 127:
            text, skip = text + "1" * 7, skip - 127
        text += f"{skip:07b}"[::-1] + "0000"
    rest = frame.size - last - 1
    text += "1" * 7 * (rest // 127) + f"{rest % 127:07b}"[::-1]
    bits = np.array([int(bit) for bit in text], np.uint8)
    return np.packbits(bits, bitorder="little").tobytes()


@pytest.mark.parametrize(("seed", "is_odd"), [(0, 0), (1, 0), (2, 1), (5, 1)])
def test_eer(seed, is_odd):
    frame = np.zeros((64, 64), bool)
    rng = np.random.default_rng(seed)
    frame[rng.integers(0, 64, 50), rng.integers(0, 64, 50)] = True
    stored = eer(frame)
    assert len(stored) % 2 == is_odd
    tile = TiffTile(compression=65001, bits_per_sample=1, tile_width=64, tile_height=64)
    np.testing.assert_array_equal(decode(tile, stored), as_bytes(frame))


@pytest.mark.parametrize(
    "wrong",
    [
        {"tile_width": 0}, {"tile_height": -1}, {"planar_config": 3}, {"fill_order": 0},
        {"byte_order": "middle"}, {"jpeg_tables": "?"}, {"subsampling": (3, 1)},
        {"last_height": 300}, {"samples_per_pixel": 1.5}, {"bits_per_sample": "8"},
        {"reference_black_white": (1.0,)}, {"eer": (1, 2)},
    ],
)  # fmt: skip
def test_configuration_is_checked(wrong):
    with pytest.raises(CodecConfigError):
        TiffTile(**wrong)


@pytest.mark.parametrize(
    "unsupported",
    [{"compression": 34661}, {"predictor": 9, "compression": 8}, {"bits_per_sample": 65},
     {"sample_format": 3, "bits_per_sample": 8}, {"bits_per_sample": (8, 1), "samples_per_pixel": 2}],
)  # fmt: skip
def test_unsupported_values_are_named(unsupported):
    value = str(next(iter(unsupported.values())))
    with pytest.raises(UnsupportedError, match=re.escape(value)):
        TiffTile(**unsupported)


def test_limits_are_checked_before_allocation():
    tile = TiffTile(compression=8, tile_width=1 << 16, tile_height=1 << 14)
    with pytest.raises(LimitError):
        decode(tile, bytes(100))
    with limits.override(chunk_bytes=100), pytest.raises(LimitError):
        decode(TiffTile(), bytes(1 << 16))


def test_zarr_v2_filter():
    made = filters.TiffTile.from_config({"compression": 8, "tile_width": 8, "tile_height": 8})
    data = np.arange(64, dtype=np.uint8)
    np.testing.assert_array_equal(made.decode(made.encode(data)), data)
    assert made.get_config()["tile_width"] == 8


def test_written_chunks_are_tiles_of_a_tiff(tmp_path):
    """Chunks written by zarr, listed in a directory, are a TIFF that tifffile reads."""
    import struct

    import tifffile

    array = np.arange(64 * 96, dtype="uint16").reshape(1, 64, 96)
    tile = TiffTile(compression=8, predictor=2, bits_per_sample=16, tile_width=48, tile_height=32)
    anychunk.enable()
    try:
        store = {}
        made = zarr.create_array(
            store, shape=array.shape, chunks=(1, 32, 48), dtype="uint16", compressors=[tile]
        )
        made[...] = array
    finally:
        anychunk.disable()
    chunks = [store[f"c/0/{i}/{j}"].to_bytes() for i in range(2) for j in range(2)]
    body, offsets = b"", []
    for chunk in chunks:
        offsets.append(8 + len(body))
        body += chunk
    start = 8 + len(body)
    tables = struct.pack("<8I", *offsets, *map(len, chunks))
    tags = [(256, 4, 1, 96), (257, 4, 1, 64), (258, 3, 1, 16), (259, 3, 1, 8), (262, 3, 1, 1),
            (277, 3, 1, 1), (317, 3, 1, 2), (322, 4, 1, 48), (323, 4, 1, 32),
            (324, 4, 4, start), (325, 4, 4, start + 16)]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *t) for t in tags)
    head = struct.pack("<2sHI", b"II", 42, start + len(tables))
    (tmp_path / "a.tif").write_bytes(head + body + tables + directory + bytes(4))
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif"), array[0])
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.tif")[...], array[0])


LIBTIFF_DIFFERS = {
    "hpredict-1c-12b.tiff": "libtiff ignores a predictor without compression",
    "hpredict-packbits-1c-8b.tiff": "libtiff ignores a predictor with PackBits",
}
LIBTIFF_LACKS = (24, 6, 33003, 33004, 33005, 34712, 22610, 34934, 34933, 50002, 34887)


@needs_corpus
def test_both_backends_agree_on_the_corpus():
    """The direct decoders and libtiff return the same pixels, where libtiff decodes."""
    compared, failed = 0, []
    for sample in (*samples("tiff/"), *samples("ome-tiff/")):
        index = anychunk.index(sample.file)
        array = index["0/0/image"]
        assert isinstance(array, ArrayIndex)
        codec = array.codecs[-1]
        if (
            codec["name"] != TiffTile.name
            or array.chunks.fronts
            or sample.file.name in LIBTIFF_DIFFERS
        ):
            continue
        direct = TiffTile.from_dict(codec)
        if (
            direct.compression in LIBTIFF_LACKS
            or direct.bits in LIBTIFF_LACKS
            or direct.is_subsampled
        ):
            continue
        if isinstance(direct.bits, tuple) or direct.bits not in (1, 2, 4, 8, 16, 32, 64):
            continue
        other = TiffTile(**direct.configuration(), backend="libtiff")
        source = np.fromfile(sample.file, np.uint8)
        places = zip(array.chunks.offsets.flat, array.chunks.lengths.flat, strict=True)
        for offset, length in list(places)[:2]:
            if not length or offset + length > len(source):
                continue
            data = source[int(offset) : int(offset + length)]
            try:
                expected = decode(other, data)
            except ChunkDecodeError:
                continue  # the synthetic file has fewer tags: libtiff may refuse it, but never differ
            compared += 1
            if not np.array_equal(decode(direct, data), expected):
                failed.append(sample.path)
    assert not failed
    assert compared > 200
