import base64
import io
import json
import struct

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image
from zarr.codecs import ZstdCodec

from anychunk.codecs import Offset, Pad
from anychunk.errors import (
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    LimitError,
    UnsupportedError,
)
from anychunk.zarr import headers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "i1", "i2", "i4", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize(
    ("shape", "interleave"),
    [((7, 9), "pixel"), ((7, 9, 2), "pixel"), ((7, 9, 3), "pixel"), ((5, 7, 9), "band")],
)
def test_tiff_reads_in_tifffile(dtype, shape, interleave):
    array = RNG.integers(0, 100, shape).astype(dtype)
    header = headers.tiff(shape, dtype, interleave=interleave)
    made = header(array.tobytes())
    assert len(made) == header.nbytes
    found = tifffile.imread(io.BytesIO(made + array.tobytes()))
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("samples", [1, 3, 4])
def test_tiff_reads_in_pillow(samples):
    shape = (7, 9, samples) if samples > 1 else (7, 9)
    array = RNG.integers(0, 255, shape, dtype=np.uint8)
    data = headers.tiff(shape, "u1")(array.tobytes()) + array.tobytes()
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), array)


def test_compressed_bands_apart_are_refused():
    with pytest.raises(CodecConfigError, match='interleave="pixel"'):
        headers.tiff((3, 8, 8), "u1", interleave="band", compression="zstd")


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "u1"), ((2, 2, 2, 2), "u1"), ((2, 2), "M8[s]")]
)
def test_not_an_image(shape, dtype):
    with pytest.raises(CodecConfigError, match="tiff header"):
        headers.tiff(shape, dtype)


def test_chunk_of_another_length():
    with pytest.raises(ChunkEncodeError, match="3 bytes.* 4"):
        headers.tiff((2, 2), "u1")(b"abc")


def test_n5():
    assert headers.n5((64, 32))(b"anything") == struct.pack(">HHII", 0, 2, 64, 32)


@pytest.mark.parametrize("dtype", ["<u2", ">f4", "|b1", "<c16"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_npy(shape, dtype):
    array = RNG.integers(0, 2, shape).astype(dtype)
    header = headers.npy(shape, dtype)
    found = np.load(io.BytesIO(header(array.tobytes()) + array.tobytes()))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


# -- declared in the attributes

IMAGE = RNG.integers(0, 4000, (500, 300)).astype("uint16")


def create(store, *codecs, attributes, **options):
    array = zarr.create_array(
        store, shape=IMAGE.shape, chunks=(256, 256), dtype="uint16", compressors=[ZstdCodec(), *codecs],
        attributes=attributes, **options,
    )  # fmt: skip
    array[...] = IMAGE
    return array


def assert_chunks_are_tiffs(folder, image):
    for row in range(2):
        for column in range(2):
            found = tifffile.imread(folder / f"c/{row}/{column}")
            part = image[256 * row :, 256 * column :][:256, :256]
            np.testing.assert_array_equal(found[: part.shape[0], : part.shape[1]], part)


@pytest.mark.parametrize("kind", ["pad", "offset"])
def test_an_array_with_a_declared_header_is_written_again(tmp_path, kind):
    header = headers.tiff((256, 256), "uint16", compression="zstd")
    codec = {
        "pad": headers.pad(header),
        "offset": Offset(offset=header.nbytes, prefix_func=header),
    }[kind]
    create(tmp_path / "a.zarr", codec, attributes=header.attributes())
    reopened = zarr.open_array(tmp_path / "a.zarr", mode="r+")
    assert headers.declared(reopened) == header
    with pytest.raises(ChunkEncodeError, match="headers.writable"):
        reopened[...] = 7
    changed = IMAGE + 1
    headers.writable(reopened)[...] = changed
    assert_chunks_are_tiffs(tmp_path / "a.zarr", changed)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], changed)


def fill_as_the_page_says(declared, nbytes, shape, coordinates):
    """A writer that has only the JSON and the text of the attribute."""
    made = bytearray(base64.b64decode(declared["template"]))
    for field in declared.get("fields", []):
        number = {"nbytes": [nbytes], "shape": shape, "coordinate": coordinates}[field["value"]]
        number = number[field.get("axis", 0)] * field.get("times", 1) + field.get("plus", 0)
        size = int(field["type"].removeprefix("uint")) // 8
        made[field["at"] : field["at"] + size] = number.to_bytes(size, field["endian"])
    return bytes(made)


def test_a_writer_without_our_code_makes_the_same_tiffs(tmp_path):
    header = headers.tiff((256, 256), "uint16", compression="zstd")
    create(tmp_path / "a.zarr", headers.pad(header), attributes=header.attributes())
    declared = json.loads((tmp_path / "a.zarr/zarr.json").read_text())["attributes"][
        "anychunk.header"
    ]
    for file in tmp_path.glob("a.zarr/c/*/*"):
        stored = file.read_bytes()
        length = len(base64.b64decode(declared["template"]))
        payload = stored[length:]
        assert fill_as_the_page_says(declared, len(payload), [256, 256], [0, 0]) == stored[:length]


def test_headers_of_other_writers_are_rebuilt(tmp_path):
    """They write what `padding` says; here zeros."""
    header = headers.tiff((256, 256), "uint16", compression="zstd")
    plain = Pad(location="start", nbytes=header.nbytes)
    array = create(tmp_path / "a.zarr", plain, attributes=header.attributes())
    with pytest.raises(tifffile.TiffFileError):
        tifffile.imread(tmp_path / "a.zarr/c/0/0")
    assert headers.rebuild(array) == 4
    assert_chunks_are_tiffs(tmp_path / "a.zarr", IMAGE)
    assert headers.rebuild(array) == 0
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], IMAGE)
    (tmp_path / "a.zarr/c/0/1").write_bytes(b"short")
    with pytest.raises(ChunkDecodeError, match="5 bytes"):
        headers.rebuild(array)


def test_coordinates_are_written_when_the_chunks_exist(tmp_path):
    fields = [
        headers.Field(value="coordinate", axis=axis, at=4 * axis, endian="big") for axis in (0, 1)
    ]
    header = headers.Header(b"........", tuple(fields), location="end")
    with pytest.raises(ChunkEncodeError, match="coordinate 0 .*rebuild"):
        create(tmp_path / "b.zarr", headers.pad(header), attributes={})
    plain = Pad(location="end", nbytes=8)
    array = create(tmp_path / "a.zarr", plain, attributes=header.attributes())
    headers.rebuild(array)
    for file in tmp_path.glob("a.zarr/c/*/*"):
        assert struct.unpack(">II", file.read_bytes()[-8:]) == (
            int(file.parent.name),
            int(file.name),
        )
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], IMAGE)


def test_the_shape_is_that_of_the_chunk(tmp_path):
    fields = [headers.Field(value="shape", axis=axis, at=4 * axis) for axis in (0, 1)]
    header = headers.Header(bytes(8), tuple(fields))
    create(tmp_path / "a.zarr", headers.pad(header), attributes=header.attributes())
    assert struct.unpack("<II", (tmp_path / "a.zarr/c/1/1").read_bytes()[:8]) == (256, 256)


def test_a_constant_header_is_in_the_codec(tmp_path):
    """So every implementation writes it; nothing needs to be declared."""
    header = headers.npy((256, 256), "<u2")
    codec = headers.pad(header).to_dict()["configuration"]
    assert base64.b64decode(codec["padding"]) == header.constant == header(bytes(131072))
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=IMAGE.shape, chunks=(256, 256), dtype="uint16", compressors=[headers.pad(header)]
    )  # fmt: skip
    array[...] = IMAGE
    zarr.open_array(tmp_path / "a.zarr", mode="r+")[...] = IMAGE + 1
    np.testing.assert_array_equal(np.load(tmp_path / "a.zarr/c/0/0"), IMAGE[:256, :256] + 1)


@pytest.mark.parametrize(
    ("codecs", "attributes", "error"),
    [
        ([Pad(location="start", nbytes=4)], {}, CodecConfigError),
        ([Pad(location="start", nbytes=4)], {"anychunk.header": 5}, CodecConfigError),
        (
            [Pad(location="start", nbytes=4)],
            headers.Header(bytes(5)).attributes(),
            CodecConfigError,
        ),
        ([Pad(location="end", nbytes=4)], headers.Header(bytes(4)).attributes(), CodecConfigError),
        ([], headers.Header(bytes(4)).attributes(), UnsupportedError),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(codecs, attributes, error):
    array = create({}, *codecs, attributes=attributes)
    with pytest.raises(error):
        headers.writable(array)


def test_a_number_that_does_not_fit_its_field():
    header = headers.Header(bytes(2), (headers.Field(value="nbytes", at=0, type="uint8", plus=-1),))
    assert header(bytes(256)) == b"\xff\0"
    for length in (0, 257):
        with pytest.raises(ChunkEncodeError, match="does not fit uint8"):
            header(bytes(length))


# -- the configuration of both codecs


def test_bytes_become_base64():
    expected = {"offset": 3, "prefix": "YWJj"}
    assert Offset(offset=3, prefix=b"abc").to_dict()["configuration"] == expected
    codec = Pad(location="end", nbytes=3, padding=bytearray(b"abc"))
    assert codec.to_dict()["configuration"]["padding"] == "YWJj"
    with pytest.raises(CodecConfigError, match="2 bytes"):
        Offset(offset=3, prefix=b"ab")


@pytest.mark.parametrize("codec", [Offset(offset=2**40), Pad(location="end", nbytes=2**40)])
def test_a_header_of_a_terabyte_is_refused(codec):
    with pytest.raises(LimitError, match="1099511627"):
        codec.encode_bytes(np.zeros(4, np.uint8), None)
    with pytest.raises(ChunkDecodeError, match="4 bytes, expected at least 1099511627776"):
        codec.decode_bytes(np.zeros(4, np.uint8), None)
