import base64
import io
import json

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image
from zarr.codecs import GzipCodec, ZstdCodec
from zarr.codecs.cast_value import CastValue as ZarrCastValue
from zarr.codecs.numcodecs import Zlib

from anychunk.codecs import Offset, _affix
from anychunk.codecs.base import schema
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing.codecs import CodecContract, chunks_only
from anychunk.zarr import filters, headers

# example 1 of the proposal: the header of a 256 x 256 uint16 TIFF
TIFF_PREFIX = (
    "SUkqAAgAAAAIAAABAwABAAAAAAEAAAEBAwABAAAAAAEAAAIBAwABAAAAEAAAAAMBAwABAAAAAQAAAAYBAwABAAAAAQAAABEB"
    "BAABAAAAbgAAABYBAwABAAAAAAEAABcBBAABAAAAAAACAAAAAAA="
)
IMAGE = np.random.default_rng(1).integers(0, 60000, (300, 500), dtype=np.uint16)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class TestOffset(CodecContract):
    codecs = (Offset(offset=0), Offset(offset=5), Offset(offset=3, prefix=text(b"abc")))
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.linspace(0, 1, 7, dtype="float64"),
        np.arange(24, dtype="uint8").reshape(2, 3, 4),
    )


def test_example_1_every_chunk_is_a_tiff():
    store = {}
    array = zarr.create_array(
        store,
        shape=IMAGE.shape,
        chunks=(256, 256),
        dtype="uint16",
        fill_value=9,
        compressors=[{"name": "offset", "configuration": {"offset": 110, "prefix": TIFF_PREFIX}}],
    )
    array[...] = IMAGE
    assert_chunks_are_images(store, (256, 256))
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], IMAGE)


def assert_chunks_are_images(store, chunk):
    padded = np.full((512, 512), 9, IMAGE.dtype)
    padded[:300, :500] = IMAGE
    chunks = chunks_only(store)
    assert len(chunks) == 4
    for key, data in chunks.items():
        row, column = (int(part) for part in key.split("/")[1:])
        expected = padded[row * 256 : row * 256 + 256, column * 256 : column * 256 + 256]
        np.testing.assert_array_equal(tifffile.imread(io.BytesIO(data)), expected)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), expected)


@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        ("none", ()),
        ("zstd", (ZstdCodec(),)),
        pytest.param(
            "deflate",
            (Zlib(),),
            marks=pytest.mark.filterwarnings(
                "ignore:Numcodecs codecs are not in the Zarr version 3"
            ),
        ),
    ],
)
def test_dynamic_tiff_header(compression, codec):
    header = headers.tiff((256, 256), "uint16", compression=compression)
    store = {}
    array = zarr.create_array(
        store,
        shape=IMAGE.shape,
        chunks=(256, 256),
        dtype="uint16",
        fill_value=9,
        compressors=[*codec, Offset(offset=header.nbytes, prefix_func=header)],
    )
    array[...] = IMAGE
    assert_chunks_are_images(store, (256, 256))
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], IMAGE)


def test_example_2_custom_header():
    # the document forgets the array -> bytes codec and gzip's configuration
    store = {}
    prefix = {"offset": 16, "prefix": "TVlfQ1VTVE9NX0hFQURFUg=="}
    array = zarr.create_array(
        store,
        shape=(100,),
        chunks=(40,),
        dtype="int32",
        compressors=[GzipCodec(level=5), {"name": "offset", "configuration": prefix}],
    )
    array[...] = np.arange(100)
    import gzip

    for data in chunks_only(store).values():
        assert data[:16] == b"MY_CUSTOM_HEADER"
        assert len(gzip.decompress(data[16:])) == 160
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], np.arange(100))


def n5_block(array: np.ndarray) -> bytes:
    """Write a block as the N5 text says: big-endian header, dimension 0 fastest."""
    import imagecodecs

    header = (0).to_bytes(2, "big") + array.ndim.to_bytes(2, "big")
    header += b"".join(n.to_bytes(4, "big") for n in array.shape)
    payload = array.astype(">u2").tobytes(order="F")
    return header + imagecodecs.zstd_encode(payload)


def n5_codecs(*, corrected: bool):
    transpose = [{"name": "transpose", "configuration": {"order": [1, 0]}}] if corrected else []
    return [
        *transpose,
        {"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
        {"name": "offset", "configuration": {"offset": 12, "prefix": "AAAAAgAAAEAAAABA"}},
    ]


@pytest.mark.parametrize("corrected", [False, True])
def test_example_3_reads_n5_only_with_a_transpose(tmp_path, corrected):
    data = np.random.default_rng(0).integers(0, 9999, (128, 128)).astype("uint16")
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [128, 128],
        "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "codecs": n5_codecs(corrected=corrected),
        "fill_value": 0,
    }
    (tmp_path / "zarr.json").write_text(json.dumps(metadata))
    for i in range(2):
        for j in range(2):
            block = tmp_path / str(i) / str(j)
            block.parent.mkdir(exist_ok=True)
            block.write_bytes(n5_block(data[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64]))
    found = zarr.open_array(tmp_path, mode="r")[...]
    assert np.array_equal(found, data) == corrected  # as printed, every block comes out transposed


@pytest.mark.parametrize("offset", [-1, 1.5, 16.0, True, "4", None])
def test_bad_offset(offset):
    with pytest.raises(CodecConfigError, match="offset: offset is"):
        Offset(offset=offset)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("!!!!", "prefix .*base64"),
        ("QUJ", "prefix .*base64"),
        ("QUJD\n", "prefix .*base64"),
        ("QUJ=", "prefix .*canonical"),
        ("QUJDRA==", "4 bytes.* 3$"),
        (5, "prefix is 5"),
    ],
)
def test_bad_prefix(prefix, message):
    with pytest.raises(CodecConfigError, match=message):
        Offset(offset=3, prefix=prefix)


@pytest.mark.parametrize(
    "configuration", [{}, {"offset": 1, "pre": "x"}, {"offset": 1, "verify": True}]
)
def test_strict_configuration(configuration):
    with pytest.raises(CodecConfigError):
        Offset.from_dict({"name": "offset", "configuration": configuration})


def test_short_chunk_is_an_error():
    with pytest.raises(ChunkDecodeError, match="offset: .*3 bytes.* 4"):
        Offset(offset=4).decode_bytes(np.zeros(3, np.uint8), None)


def test_decoding_is_a_view():
    data = np.zeros(100, np.uint8)
    assert np.shares_memory(Offset(offset=10).decode_bytes(data, None), data)


def test_the_codecs_of_others_get_aligned_chunks():
    """Zarr's own cast_value panics on floats that begin at an odd address."""
    store = zarr.storage.MemoryStore()
    values = np.arange(40, dtype="f8").reshape(5, 8)
    made = zarr.create_array(
        store, shape=values.shape, chunks=(2, 3), dtype="f8", compressors=[Offset(offset=3)],
        filters=[ZarrCastValue(data_type="float32")],
    )  # fmt: skip
    made[...] = values
    np.testing.assert_array_equal(made[...], values)


def test_verify():
    good = np.frombuffer(b"abcdata", np.uint8)
    codec = Offset(offset=3, prefix=text(b"abc"), verify=True)
    assert bytes(codec.decode_bytes(good, None)) == b"data"
    with pytest.raises(ChunkDecodeError, match="byte 0 .*88.* 97"):
        codec.decode_bytes(np.frombuffer(b"Xbcdata", np.uint8), None)
    assert "verify" not in json.dumps(codec.to_dict())


def test_function_of_wrong_length_writes_nothing():
    store = {}
    array = zarr.create_array(
        store,
        shape=(4,),
        chunks=(4,),
        dtype="uint8",
        compressors=[Offset(offset=8, prefix_func=lambda chunk: b"short")],
    )
    with pytest.raises(ChunkEncodeError, match="offset: .*5 bytes.* 8"):
        array[...] = 1
    assert not chunks_only(store)


@pytest.mark.parametrize("offset", [1, 5, 110])
def test_reopened_array_asks_for_the_function(offset):
    store = {}
    array = zarr.create_array(
        store,
        shape=(4,),
        chunks=(2,),
        dtype="uint8",
        compressors=[Offset(offset=offset, prefix_func=lambda chunk: bytes(offset))],
    )
    array[...] = [1, 2, 3, 4]
    reopened = zarr.open_array(store, mode="r+")
    np.testing.assert_array_equal(reopened[...], [1, 2, 3, 4])
    before = chunks_only(store)
    with pytest.raises(ChunkEncodeError, match="offset: .*function"):
        reopened[...] = 9
    assert chunks_only(store) == before


def test_zeros_are_the_default():
    data = Offset(offset=4).encode_bytes(np.frombuffer(b"xy", np.uint8), None)
    assert bytes(data) == b"\0\0\0\0xy"


def test_prefix_and_function_exclude_each_other():
    with pytest.raises(CodecConfigError, match="prefix and prefix_func"):
        Offset(offset=1, prefix="AA==", prefix_func=lambda chunk: b"x")


def test_zarr_v2():
    store = {}
    array = zarr.create_array(
        store,
        shape=(10,),
        chunks=(4,),
        dtype="<u2",
        zarr_format=2,
        filters=[filters.Offset(offset=3, prefix=text(b"abc"))],
        compressors=None,
    )
    array[...] = np.arange(10)
    assert json.loads(store[".zarray"].to_bytes())["filters"] == [
        {"id": "offset", "offset": 3, "prefix": text(b"abc")}
    ]
    assert store["0"].to_bytes()[:3] == b"abc"
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], np.arange(10))


def test_schema_is_used_and_valid():
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema("offset"))
    for codec in TestOffset.codecs:
        jsonschema.validate(codec.to_dict(), schema("offset"))


def test_placeholder_has_the_right_length():
    for length in (0, 1, 20, 21, 500):
        assert len(_affix.placeholder(length)) == length
