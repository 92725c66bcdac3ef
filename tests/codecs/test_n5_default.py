import numpy as np
import pytest
import zarr
from zarr.codecs.cast_value import CastValue as ZarrCastValue

from anychunk.codecs import N5Default
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_block import OBJECT, VARLENGTH, read_header, write_header
from anychunk.errors import ChunkDecodeError, CodecConfigError, LimitError, UnsupportedError
from anychunk.testing.codecs import CodecContract, write

BYTES = {"name": "bytes", "configuration": {"endian": "big"}}
GZIP = {"name": "gzip", "configuration": {"level": 5}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def stream(compression, **options):
    return {"name": "anychunk.stream", "configuration": {"compression": compression, **options}}


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


# N5 specification, README of saalfeldlab/n5: a raw uint16 block of 1 x 2 x 3, values 1 to 6
README = bytes.fromhex("0000 0003 00000001 00000002 00000003 0001 0002 0003 0004 0005 0006")


@pytest.fixture(autouse=True)
def _registered():
    import anychunk

    anychunk.enable()
    yield
    anychunk.disable()


class TestN5Default(CodecContract):
    codecs = (N5Default(codecs=[transpose(1, 0), BYTES]),)
    arrays = (
        np.arange(60, dtype="uint16").reshape(5, 12),
        np.linspace(0, 1, 21, dtype="float64").reshape(3, 7),
    )
    takes_any_shape = False


class TestN5DefaultCompressed(CodecContract):
    codecs = (
        N5Default(codecs=[BYTES, GZIP]),
        N5Default(codecs=[BYTES, ZSTD]),
        N5Default(codecs=[BYTES, stream("lz4_java")]),
        N5Default(codecs=[BYTES, stream("bzip2")]),
        N5Default(codecs=[BYTES, stream("xz", level=1)]),
        N5Default(codecs=[BYTES, stream("zlib")]),
    )
    arrays = (np.arange(50, dtype="int32"),)
    takes_any_shape = False  # an N5 block has at least one element


@pytest.mark.parametrize("codec", TestN5DefaultCompressed.codecs)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_empty_and_0d_arrays(codec, shape):
    array = np.full(shape, 7, "int32")
    store = write(codec, array, chunks=tuple(max(n, 1) for n in shape))
    found = zarr.open_array(store, mode="r")[...]
    assert (found.shape, found.tolist()) == (shape, array.tolist())


def spec(shape, dtype="uint16", fill=0):
    return ChunkSpec(shape, np.dtype(dtype), np.dtype(dtype).type(fill))


def buffer(data):
    return np.frombuffer(data, np.uint8)


def test_the_block_of_the_specification():
    codec = N5Default(codecs=[transpose(2, 1, 0), BYTES])
    array = np.arange(1, 7, dtype="uint16").reshape(3, 2, 1).T
    assert bytes(codec.encode_chunk(array, spec((1, 2, 3)))) == README
    np.testing.assert_array_equal(codec.decode_chunk(buffer(README), spec((1, 2, 3))), array)


def test_cropped_blocks_are_padded_with_fill():
    codec = N5Default(codecs=[transpose(2, 1, 0), BYTES])
    found = codec.decode_chunk(buffer(README), spec((2, 2, 4), fill=9))
    assert found.shape == (2, 2, 4)
    np.testing.assert_array_equal(found[:1, :, :3], np.arange(1, 7).reshape(3, 2, 1).T)
    assert (found[1:] == 9).all()
    assert (found[..., 3:] == 9).all()


def test_an_array_smaller_than_the_chunk_is_a_cropped_block():
    codec = N5Default(codecs=[transpose(1, 0), BYTES])
    block = bytes(codec.encode_chunk(np.ones((2, 3), "uint16"), spec((4, 4))))
    assert read_header(buffer(block)).shape == (2, 3)


def test_a_block_of_no_bytes_is_fill():
    codec = N5Default(codecs=[transpose(1, 0), BYTES])
    assert (codec.decode_chunk(buffer(b""), spec((2, 2), fill=7)) == 7).all()


def test_varlength_with_as_many_elements_as_the_shape_is_samples():
    codec = N5Default(codecs=[transpose(2, 1, 0), BYTES])
    block = write_header((1, 2, 3), mode=VARLENGTH, elements=6) + README[16:]
    expected = codec.decode_chunk(buffer(README), spec((1, 2, 3)))
    np.testing.assert_array_equal(codec.decode_chunk(buffer(block), spec((1, 2, 3))), expected)


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        (b"\0", ChunkDecodeError, r"1 bytes.* 4$"),
        (README[:10], ChunkDecodeError, r"10 bytes.* 16$"),
        (README[:-1], ChunkDecodeError, r"11 bytes.* 12 "),
        (README + b"\0", ChunkDecodeError, r"13 bytes.* 12 "),
        (b"\0\7" + README[2:], ChunkDecodeError, "mode 7"),
        (write_header((2, 3)) + README[16:], ChunkDecodeError, r"2 dimensions.* 3$"),
        (write_header((1, 2, 4)) + bytes(16), ChunkDecodeError, r"\(1, 2, 4\).*\(1, 2, 3\)"),
        (write_header((1, 0, 3)), ChunkDecodeError, r"\(1, 0, 3\).*\(1, 2, 3\)"),
        (write_header((2**32 - 1,) * 3), ChunkDecodeError, r"4294967295.*\(1, 2, 3\)"),
        (b"\0\0\xff\xff", ChunkDecodeError, "262144"),
        (
            write_header((1, 2, 3), mode=VARLENGTH, elements=7) + bytes(14),
            UnsupportedError,
            r"mode 1.* 7 .* 6 ",
        ),
        (write_header((), mode=OBJECT, elements=5) + b"hello", UnsupportedError, "mode 2"),
    ],
)
def test_what_is_no_block_of_samples(block, error, message):
    codec = N5Default(codecs=[transpose(2, 1, 0), BYTES])
    with pytest.raises(error, match=message):
        codec.decode_chunk(buffer(block), spec((1, 2, 3)))


def test_a_small_block_does_not_make_a_huge_chunk():
    codec = N5Default(codecs=[BYTES])
    block = write_header((1,)) + b"\0\1"
    with pytest.raises(LimitError, match=r"\b10\b.*536870912"):
        codec.decode_chunk(buffer(block), spec((1 << 28,)))


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex64"])
def test_types_that_n5_does_not_have(dtype):
    import zarr

    with pytest.raises(CodecConfigError, match=f"n5_default: .*{dtype}"):
        zarr.create_array(
            {}, shape=(4,), dtype=dtype, serializer=N5Default(codecs=[BYTES]), compressors=None
        )


def test_the_codecs_of_others_get_native_samples():
    """Zarr's own cast_value takes no array of the other byte order."""
    codecs = (
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
    )
    values = np.arange(40, dtype="f8").reshape(5, 8)
    made = zarr.create_array(
        zarr.storage.MemoryStore(), shape=values.shape, chunks=(2, 3), dtype="f8",
        filters=[ZarrCastValue(data_type="float32")], serializer=N5Default(codecs=codecs),
        compressors=None,
    )  # fmt: skip
    made[...] = values
    np.testing.assert_array_equal(made[...], values)
