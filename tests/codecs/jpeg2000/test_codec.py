import base64
import struct

import imagecodecs
import numcodecs
import numpy as np
import pytest
import zarr

from anychunk.codecs import Jpeg2000
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.jpeg2000.tiles import place
from anychunk.codestream.jpeg2000 import read_main_header, tile_parts
from anychunk.errors import (
    AnychunkError,
    ChunkDecodeError,
    ChunkEncodeError,
    CodecConfigError,
    LimitError,
)
from anychunk.testing.codecs import CodecContract
from tests.support.j2k_streams import compress, decompress, field, needs_openjpeg


class TestJpeg2000(CodecContract):
    codecs = (Jpeg2000(),)
    arrays = (
        field((40, 30), bands=3),
        field((21, 34), bands=1, depth=16),
        field((16, 19), bands=5, depth=12, is_signed=True),
        field((16, 19), bands=2, depth=7, is_signed=True),
    )
    takes_any_shape = False


def text(stream: bytes) -> str:
    return base64.b64encode(read_main_header(stream).data).decode()


def chunks(stream: bytes) -> dict[int, np.ndarray]:
    """Return the bytes of every tile."""
    body = stream[read_main_header(stream).length : -2]
    found: dict[int, bytes] = {}
    for part in tile_parts(body):
        found[part.tile] = found.get(part.tile, b"") + body[part.offset : part.offset + part.length]
    return {tile: np.frombuffer(data, np.uint8) for tile, data in found.items()}


def decode(codec, data, shape, dtype="uint8", fill=0):
    spec = ChunkSpec(shape, np.dtype(dtype), fill)
    return np.asarray(codec.decode_bytes(data, spec)).view(dtype).reshape(shape)


@needs_openjpeg
@pytest.mark.parametrize("tile", [64, 96, 100])
def test_tile_is_padded_to_the_chunk(tile):
    image = field((150, 130))
    stream = compress(list(image), "-t", f"{tile},{tile}")
    codec = Jpeg2000(main_header=text(stream))
    columns = -(-130 // tile)
    for number, data in chunks(stream).items():
        row, column = divmod(number, columns)
        y, x = row * tile, column * tile
        piece = image[:, y : y + tile, x : x + tile]
        expected = np.full((1, tile, tile), 7, np.uint8)
        expected[:, : piece.shape[1], : piece.shape[2]] = piece
        found = decode(codec, data, (1, tile, tile), fill=7)
        np.testing.assert_array_equal(found, expected)


@needs_openjpeg
def test_zarr_v2_filter_returns_the_nominal_tile():
    image = field((150, 130), bands=3)
    stream = compress(list(image), "-t", "64,64")
    codec = numcodecs.get_codec(
        {"id": Jpeg2000.name, "main_header": text(stream), "resolution_level": 0}
    )
    decoded = codec.decode(chunks(stream)[0].tobytes())
    np.testing.assert_array_equal(decoded.reshape(3, 64, 64), image[:, :64, :64])
    assert codec.get_config() == {
        "id": Jpeg2000.name,
        "main_header": text(stream),
        "resolution_level": 0,
    }


@needs_openjpeg
def test_configuration_of_another_writer_decodes():
    """One tile per chunk of nominal size, also at lower resolutions, as in osml-imagery-io."""
    image = field((256, 192), depth=12)
    stream = compress(list(image), "-t", "64,64", depth=12)
    for level in (0, 1, 2):
        (expected,) = decompress(stream, level=level)
        size = 64 >> level
        configuration = {"main_header": text(stream), "resolution_level": level}
        codec = Jpeg2000.from_dict({"name": Jpeg2000.name, "configuration": configuration})
        for tile, data in chunks(stream).items():
            y, x = (n * size for n in divmod(tile, 3))
            found = decode(codec, data, (1, size, size), "uint16")
            np.testing.assert_array_equal(found[0], expected[y : y + size, x : x + size])


@needs_openjpeg
def test_several_tiles_fill_a_chunk():
    image = field((90, 120))
    stream = compress(list(image), "-t", "30,30", "-n", "3")
    data = chunks(stream)
    codec = Jpeg2000(main_header=text(stream))
    four = np.concatenate([data[n] for n in (5, 1, 0, 4)])
    np.testing.assert_array_equal(decode(codec, four, (1, 60, 60)), image[:, :60, :60])


@needs_openjpeg
@pytest.mark.parametrize(
    "tiles", [(0, 1), (0, 1, 4), (0, 2, 4, 6), (1, 2, 5, 6)], ids=["row", "three", "gap", "shifted"]
)
def test_tiles_that_do_not_fill_the_chunk(tiles):
    stream = compress(list(field((90, 120))), "-t", "30,30", "-n", "3")
    data = chunks(stream)
    codec = Jpeg2000(main_header=text(stream))
    with pytest.raises(ChunkDecodeError):
        decode(codec, np.concatenate([data[n] for n in tiles]), (1, 60, 60))


def test_place_of_a_window_between_tiles():
    """The image begins inside its first tile: a chunk is cropped from several tiles."""
    body = struct.pack(">H8IH3B", 0, 1000, 800, 100, 50, 256, 256, 0, 0, 1, 7, 1, 1)
    siz = read_main_header(
        b"\xff\x4f\xff\x51" + struct.pack(">H", 41) + body
        + b"\xff\x52\x00\x0c\x00\x00\x00\x01\x00\x00\x04\x04\x00\x01"
        + b"\xff\x5c\x00\x04\x40\x40\xff\x90"
    ).siz  # fmt: skip
    found = place(siz, 0, {5, 6, 9, 10}, 256, 256)
    assert (found.window.x0, found.window.x1) == (100 + 256, 100 + 512)
    assert (found.window.y0, found.window.y1) == (50 + 256, 50 + 512)


@needs_openjpeg
def test_components_that_differ():
    """OpenJPEG is called directly where imagecodecs refuses, or converts colours."""
    luma = field((64, 48))[0]
    chroma = field((32, 24), depth=7)[0]
    stream = compress([luma, chroma, chroma], "-mct", "0", sampling="@1x1:2x2:2x2")
    found = decode(Jpeg2000(main_header=text(stream)), chunks(stream)[0], (3, 64, 48))
    np.testing.assert_array_equal(found[0], luma)
    for band in found[1:]:
        np.testing.assert_array_equal(band, chroma.repeat(2, 0).repeat(2, 1))


def test_htj2k_lossless():
    image = field((200, 170), depth=12)
    stream = imagecodecs.htj2k_encode(image[0], tile=(64, 64))
    codec = Jpeg2000(main_header=text(stream))
    found = decode(codec, chunks(stream)[0], (1, 64, 64), "uint16")
    np.testing.assert_array_equal(found, image[:, :64, :64])


def test_whole_stream_smaller_than_the_chunk():
    image = field((20, 30), bands=2)
    stream = np.frombuffer(imagecodecs.jpeg2k_encode(image, level=0, codecformat="J2K", planar=True, reversible=True, mct=False), np.uint8)  # fmt: skip
    found = decode(Jpeg2000(), stream, (2, 32, 32), fill=9)
    np.testing.assert_array_equal(found[:, :20, :30], image)
    assert (found[:, 20:] == 9).all()
    assert (found[:, :, 30:] == 9).all()
    for shape in ((2, 16, 30), (1, 20, 30)):
        with pytest.raises(
            ChunkDecodeError, match=rf"\(2, 20, 30\).*\({shape[0]}, {shape[1]}, 30\)"
        ):
            decode(Jpeg2000(), stream, shape)


def test_a_type_that_cannot_hold_the_samples():
    image = field((20, 30), depth=12)
    stream = np.frombuffer(Jpeg2000().encode_bytes(image.view(np.uint8).reshape(-1), ChunkSpec(image.shape, image.dtype)), np.uint8)  # fmt: skip
    with pytest.raises(ChunkDecodeError, match="16.*uint16.*uint8"):
        decode(Jpeg2000(), stream, (1, 20, 30), "uint8")
    wide = decode(Jpeg2000(), stream, (1, 20, 30), "int32")
    np.testing.assert_array_equal(wide, image)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"main_header": "!!"}, "main_header.*base64"),
        ({"main_header": 5}, "main_header is 5"),
        ({"main_header": base64.b64encode(b"\xff\x4f").decode()}, "main_header.*SIZ"),
        ({"resolution_level": -1}, "-1, expected 0 to 32"),
        ({"resolution_level": True}, "True, expected 0 to 32"),
        ({"resolution_level": 1.0}, "1.0, expected 0 to 32"),
        ({"main_headers": None}, "'main_headers'"),
    ],
)
def test_bad_configuration(configuration, message):
    with pytest.raises(CodecConfigError, match=message):
        Jpeg2000.from_dict({"name": Jpeg2000.name, "configuration": configuration})


@needs_openjpeg
def test_level_beyond_those_of_the_stream():
    stream = compress(list(field((64, 64))), "-n", "3")
    Jpeg2000(main_header=text(stream), resolution_level=2)
    with pytest.raises(CodecConfigError, match="resolution_level is 3.* 2$"):
        Jpeg2000(main_header=text(stream), resolution_level=3)


@needs_openjpeg
def test_tiles_are_not_encoded():
    stream = compress(list(field((64, 64))))
    store = {}
    codec = Jpeg2000(main_header=text(stream))
    array = zarr.create_array(store, shape=(1, 64, 64), chunks=(1, 64, 64), dtype="uint8", compressors=[codec])  # fmt: skip
    with pytest.raises(ChunkEncodeError, match="main_header"):
        array[...] = 1


def test_floats_are_not_encoded():
    array = zarr.create_array({}, shape=(1, 8, 8), chunks=(1, 8, 8), dtype="float32", compressors=[Jpeg2000()])  # fmt: skip
    with pytest.raises(ChunkEncodeError, match="float32"):
        array[...] = 1


class Damage:
    """Damage for which OpenJPEG alone shows a picture."""

    @staticmethod
    def random_payload(data: bytes, rng) -> bytes:
        start = data.index(b"\xff\x93") + 2
        return data[:start] + rng.bytes(len(data) - start)

    @staticmethod
    def cut(data: bytes, rng) -> bytes:
        start = data.index(b"\xff\x93") + 2
        shorter = data[: rng.integers(start, len(data))]
        return shorter[:6] + struct.pack(">I", len(shorter)) + shorter[10:]

    @staticmethod
    def longer(data: bytes, rng) -> bytes:
        more = data + rng.bytes(int(rng.integers(1, 40))) + b"\1"
        return more[:6] + struct.pack(">I", len(more)) + more[10:]

    @staticmethod
    def no_payload(data: bytes, _rng) -> bytes:
        start = data.index(b"\xff\x93") + 2
        return data[:6] + struct.pack(">I", start) + data[10:start]


@needs_openjpeg
@pytest.mark.parametrize("kind", ["random_payload", "cut", "longer", "no_payload"])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize(
    "options",
    [(), ("-I", "-r", "8"), ("-r", "20,4,1"), ("-c", "[32,32]"), ("-SOP", "-EPH")],
    ids=["5/3", "9/7", "layers", "precincts", "markers"],
)
def test_damaged_tiles_are_errors(kind, level, options):
    image = field((128, 96), depth=12)
    stream = compress(list(image), *options, depth=12)
    (data,) = (d.tobytes() for d in chunks(stream).values())
    codec = Jpeg2000(main_header=text(stream), resolution_level=level)
    shape = (1, 128 >> level, 96 >> level)
    decode(codec, np.frombuffer(data, np.uint8), shape, "uint16")
    rng = np.random.default_rng(0)
    for _ in range(12):
        damaged = np.frombuffer(getattr(Damage, kind)(data, rng), np.uint8)
        with pytest.raises(AnychunkError):
            decode(codec, damaged, shape, "uint16")


@needs_openjpeg
@pytest.mark.parametrize("level", [0, 2])
def test_a_tile_that_ends_after_a_layer(level):
    """Kakadu writes such tiles, and decoders read them as if empty packets followed."""
    layers = [compress(list(field((128, 96))), "-r", rates) for rates in ("20,4", "20")]
    two, one = (chunks(stream)[0].tobytes() for stream in layers)
    # both have the same first layer, so `one` is `two` truncated after a layer
    assert len(one) < len(two)
    whole = layers[0][: read_main_header(layers[0]).length] + one + b"\xff\xd9"
    expected = np.stack(decompress(layers[1], level=level))
    np.testing.assert_array_equal(np.stack(decompress(whole, level=level)), expected)
    codec = Jpeg2000(main_header=text(layers[0]), resolution_level=level)
    found = decode(codec, np.frombuffer(one, np.uint8), expected.shape)
    np.testing.assert_array_equal(found, expected)


@needs_openjpeg
@pytest.mark.parametrize("progression", ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"])
def test_missing_packets_at_the_end(progression):
    """A decoder takes missing packets for empty if a tile is truncated between packets."""
    options = ("-r", "20,4", "-p", progression, "-SOP", "-n", "3", "-c", "[64,64]")
    stream = compress(list(field((128, 96))), *options)
    data = chunks(stream)[0].tobytes()
    codec = Jpeg2000(main_header=text(stream))
    # SOP tells where packets begin
    starts = [i for i in range(len(data)) if data.startswith(b"\xff\x91\0\4", i)]
    accepted = []
    for count, start in enumerate(starts):
        cut = data[:6] + struct.pack(">I", start) + data[10:start]
        whole = stream[: read_main_header(stream).length] + cut + b"\xff\xd9"
        if count:
            assert imagecodecs.jpeg2k_decode(whole).shape == (128, 96), "OpenJPEG shows a picture"
        try:
            decode(codec, np.frombuffer(cut, np.uint8), (1, 128, 96))
        except AnychunkError:
            continue
        accepted.append(count)
    assert accepted == ([len(starts) // 2] if progression == "LRCP" else [])


def test_a_whole_stream_without_end_marker():
    image = field((20, 30))
    stream = imagecodecs.jpeg2k_encode(image[0], level=0, codecformat="J2K", reversible=True)
    decode(Jpeg2000(), np.frombuffer(stream, np.uint8), (1, 20, 30))
    for damaged in (stream[:-2], stream[:-9] + stream[-8:], stream[:-9] + stream[-7:]):
        with pytest.raises(AnychunkError):
            decode(Jpeg2000(), np.frombuffer(damaged, np.uint8), (1, 20, 30))


@needs_openjpeg
def test_a_chunk_that_ends_in_the_end_marker():
    """As the last chunk of an index by osml-imagery-io."""
    stream = compress(list(field((64, 64))))
    data = np.append(chunks(stream)[0], np.array([0xFF, 0xD9], np.uint8))
    codec = Jpeg2000(main_header=text(stream))
    np.testing.assert_array_equal(decode(codec, data, (1, 64, 64)), field((64, 64)))
    lost = np.delete(data, 1500)  # the last tile-part reaches over half of EOC
    with pytest.raises(AnychunkError):
        decode(codec, lost, (1, 64, 64))


@needs_openjpeg
def test_a_huge_tile_in_few_bytes():
    header = bytearray(base64.b64decode(text(compress(list(field((64, 64)))))))
    struct.pack_into(">8I", header, 8, 60000, 60000, 0, 0, 60000, 60000, 0, 0)
    codec = Jpeg2000(main_header=base64.b64encode(header).decode())
    with pytest.raises(LimitError, match="announce"):
        decode(codec, np.zeros(100, np.uint8), (1, 60000, 60000))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\x90" + bytes(10), b"\xff\x4f\xff\x51", bytes(64)]
)
def test_bytes_that_are_not_a_codestream(data):
    with pytest.raises(AnychunkError):
        decode(Jpeg2000(), np.frombuffer(data, np.uint8), (1, 8, 8))
