import io
import json

import numpy as np
import pytest
import tifffile
import zarr
from zarr.codecs import GzipCodec

from anychunk.codecs import Pad
from anychunk.codecs.base import schema
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract, chunks_only
from anychunk.zarr import filters, headers
from tests.codecs.test_offset import TIFF_PREFIX, n5_block, text


class TestPad(CodecContract):
    codecs = (
        Pad(location="start", nbytes=0),
        Pad(location="start", nbytes=3, padding=text(b"abc")),
        Pad(location="end", nbytes=7),
    )
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.linspace(0, 1, 7, dtype="float64"),
    )


def test_example_1_every_chunk_is_a_tiff():
    image = np.random.default_rng(1).integers(0, 60000, (256, 512), dtype=np.uint16)
    store = {}
    configuration = {"location": "start", "nbytes": 110, "padding": TIFF_PREFIX}
    array = zarr.create_array(
        store,
        shape=image.shape,
        chunks=(256, 256),
        dtype="uint16",
        compressors=[{"name": "pad", "configuration": configuration}],
    )
    array[...] = image
    found = tifffile.imread(io.BytesIO(chunks_only(store)["c/0/1"]))
    np.testing.assert_array_equal(found, image[:, 256:])


def test_example_2_prefix_and_suffix():
    import gzip

    store = {}
    array = zarr.create_array(
        store,
        shape=(100,),
        chunks=(40,),
        dtype="int32",
        compressors=[
            GzipCodec(level=5),
            Pad(location="start", nbytes=16, padding="TVlfQ1VTVE9NX0hFQURFUg=="),
            Pad(location="end", nbytes=3, padding=text(b"end")),
        ],
    )
    array[...] = np.arange(100)
    for data in chunks_only(store).values():
        assert (data[:16], data[-3:]) == (b"MY_CUSTOM_HEADER", b"end")
        assert len(gzip.decompress(data[16:-3])) == 160
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], np.arange(100))


def test_example_3_reads_n5_with_a_transpose():
    data = np.random.default_rng(0).integers(0, 9999, (64, 64)).astype("uint16")
    store = {}
    zarr.create_array(
        store,
        shape=(64, 64),
        chunks=(64, 64),
        dtype="uint16",
        chunk_key_encoding={"name": "v2", "separator": "/"},
        filters=[{"name": "transpose", "configuration": {"order": [1, 0]}}],
        serializer={"name": "bytes", "configuration": {"endian": "big"}},
        compressors=[
            {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
            {"name": "pad", "configuration": {"location": "start", "nbytes": 12}},
        ],
    )
    store["0/0"] = type(store["zarr.json"]).from_bytes(n5_block(data))
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], data)


def test_chunks_that_numpy_loads():
    values = np.random.default_rng(0).normal(size=(50, 30)).astype("float32")
    header = headers.npy((20, 20), "<f4")
    store = {}
    array = zarr.create_array(
        store,
        shape=values.shape,
        chunks=(20, 20),
        dtype="float32",
        compressors=[Pad(location="start", nbytes=header.nbytes, padding_func=header)],
    )
    array[...] = values
    for key, data in chunks_only(store).items():
        row, column = (20 * int(part) for part in key.split("/")[1:])
        expected = np.zeros((20, 20), "float32")
        piece = values[row : row + 20, column : column + 20]
        expected[: piece.shape[0], : piece.shape[1]] = piece
        np.testing.assert_array_equal(np.load(io.BytesIO(data)), expected)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values)


@pytest.mark.parametrize(
    "options",
    [
        {"location": "middle", "nbytes": 1},
        {"location": "start", "nbytes": -1},
        {"location": "start", "nbytes": 2.0},
        {"location": "start", "nbytes": False},
        {"location": "start", "nbytes": 2, "padding": "AA=="},
        {"location": "end", "nbytes": 1, "padding": "AA==", "padding_func": bytes},
    ],
)
def test_bad_configuration(options):
    with pytest.raises(CodecConfigError, match="pad: "):
        Pad(**options)


@pytest.mark.parametrize(
    "configuration", [{"nbytes": 3}, {"location": "end"}, {"location": "end", "nbytes": 1, "x": 1}]
)
def test_strict_configuration(configuration):
    with pytest.raises(CodecConfigError, match="pad: "):
        Pad.from_dict({"name": "pad", "configuration": configuration})


def test_short_chunk_is_an_error():
    with pytest.raises(ChunkDecodeError, match="pad: .*3 bytes.* 4"):
        Pad(location="end", nbytes=4).decode_bytes(np.zeros(3, np.uint8), None)


@pytest.mark.parametrize(("location", "expected"), [("start", b"data12"), ("end", b"12data")])
def test_decoding_is_a_view(location, expected):
    data = np.frombuffer(b"12data12", np.uint8)
    found = Pad(location=location, nbytes=2).decode_bytes(data, None)
    assert bytes(found) == expected
    assert np.shares_memory(found, data)


def test_verify():
    codec = Pad(location="end", nbytes=1, padding=text(b"!"), verify=True)
    assert bytes(codec.decode_bytes(np.frombuffer(b"ab!", np.uint8), None)) == b"ab"
    with pytest.raises(ChunkDecodeError, match="pad: byte 0"):
        codec.decode_bytes(np.frombuffer(b"ab?", np.uint8), None)


def test_reopened_array_asks_for_the_function():
    store = {}
    array = zarr.create_array(
        store,
        shape=(4,),
        chunks=(2,),
        dtype="uint8",
        compressors=[Pad(location="end", nbytes=2, padding_func=lambda chunk: chunk[:2])],
    )
    array[...] = [1, 2, 3, 4]
    assert chunks_only(store)["c/1"] == bytes([3, 4, 3, 4])
    reopened = zarr.open_array(store, mode="r+")
    np.testing.assert_array_equal(reopened[...], [1, 2, 3, 4])
    with pytest.raises(ChunkEncodeError, match="pad: .*function"):
        reopened[...] = 9


def test_zarr_v2():
    store = {}
    array = zarr.create_array(
        store,
        shape=(10,),
        chunks=(4,),
        dtype="<u2",
        zarr_format=2,
        filters=[filters.Pad(location="end", nbytes=3, padding=text(b"abc"))],
        compressors=None,
    )
    array[...] = np.arange(10)
    assert json.loads(store[".zarray"].to_bytes())["filters"] == [
        {"id": "pad", "location": "end", "nbytes": 3, "padding": text(b"abc")}
    ]
    assert store["0"].to_bytes()[-3:] == b"abc"
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], np.arange(10))


def test_schema_is_used_and_valid():
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema("pad"))
    for codec in TestPad.codecs:
        jsonschema.validate(codec.to_dict(), schema("pad"))
