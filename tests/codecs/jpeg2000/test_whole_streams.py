"""The compiled binding of OpenJPEG gives what imagecodecs' gives; streams decoded and checked as a whole."""

import contextlib

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.jpeg2000 import openjpeg, openjpeg_library, tiles, tiny_tiles
from anychunk.codecs.tiff import decoders
from anychunk.codecs.tiff.tile import Tile
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import AnychunkError
from anychunk.native import loops
from tests.support.compiled import needs_compiled
from tests.support.j2k_streams import (
    compress,
    decompress,
    field,
    needs_openjpeg,
    with_packed_headers,
)

pytestmark = [
    needs_openjpeg,
    needs_compiled,
    pytest.mark.skipif(
        openjpeg_library.addresses() is None,
        reason="no tested OpenJPEG library in imagecodecs: install the one of constraints.txt",
    ),
]
SHAPE = (45, 70)
SAMPLES = {
    "8 bits": (8, False, 1),
    "signed": (8, True, 1),
    "12 bits": (12, False, 1),
    "16 bits": (16, False, 1),
    "signed 16 bits": (16, True, 2),
    "5 bits": (5, False, 3),
    "three bands": (8, False, 3),
    "five bands": (16, False, 5),
}
CODINGS = {
    "plain": ("-n", "4"),
    "irreversible": ("-I", "-r", "12", "-mct", "0"),
    "layers": ("-r", "20,8,1", "-SOP", "-EPH"),
    "offset": ("-d", "5,3", "-n", "3"),
    "small blocks": ("-b", "4,4"),
}
OTHER_CODINGS = {
    "tiles": ("-t", "32,40", "-n", "3"),
    "tile-parts": ("-TP", "R", "-n", "3"),
}


def made(sample="8 bits", options=("-n", "4")) -> bytes:
    depth, is_signed, bands = SAMPLES[sample]
    planes = list(field(SHAPE, bands=bands, depth=depth, is_signed=is_signed))
    return compress(planes, *options, depth=depth)


def peer(stream: bytes, shape, level: int = 0):
    """Return what imagecodecs decodes; None if it refuses the stream."""
    try:
        decoded = imagecodecs.jpeg2k_decode(stream, planar=True, skipres=level, numthreads=1)
    except Exception:
        return None
    return decoded.reshape(shape)


@pytest.mark.parametrize("options", [*CODINGS.values(), *OTHER_CODINGS.values()])
@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_are_those_of_openjpeg(sample, options):
    stream = made(sample, options)
    siz = read_main_header(stream).siz
    bands = len(siz.components)
    for level in (0, 1):
        here = siz.image.scaled(1 << level, 1 << level)
        shape = (bands, here.height, here.width)
        apart = np.zeros(shape, siz.dtype)
        together = np.moveaxis(np.zeros((*shape[1:], bands), siz.dtype), -1, 0)
        for out in (apart, together):
            assert openjpeg.decode_into(stream, siz.components[0], level, out)
        np.testing.assert_array_equal(apart, np.stack(decompress(stream, level=level)))
        np.testing.assert_array_equal(apart, together)


def test_threads_and_a_long_stream():
    image = np.tile(field((128, 128))[0], (8, 8))
    stream = bytes(imagecodecs.jpeg2k_encode(image, level=0, codecformat="J2K", reversible=True))
    out = np.empty((1, *image.shape), "u1")
    assert openjpeg.decode_into(
        stream, read_main_header(stream).siz.components[0], 0, out, threads=2
    )
    np.testing.assert_array_equal(out[0], image)


def test_another_shape_or_type_is_left_to_imagecodecs():
    stream = made()
    component = read_main_header(stream).siz.components[0]
    for shape in ((1, 45, 71), (1, 44, 70), (2, 45, 70)):
        assert not openjpeg.decode_into(stream, component, 0, np.empty(shape, "u1"))
    for dtype in ("u2", "f4", "i4"):
        assert not openjpeg.decode_into(stream, component, 0, np.empty((1, *SHAPE), dtype))
    other = read_main_header(made("5 bits")).siz.components[0]
    assert not openjpeg.decode_into(stream, other, 0, np.empty((1, *SHAPE), "u1"))


def test_arrays_and_functions_that_cannot_be_used():
    stream, functions = made(), openjpeg_library.addresses()
    for out in (np.empty(SHAPE, "u1"), np.empty((1, *SHAPE), "u2")):
        with pytest.raises(ValueError, match="cannot be used"):
            loops.openjpeg_decode(functions, stream, out, 0, 1, 8, False)
    with pytest.raises(ValueError, match="cannot be used"):
        loops.openjpeg_decode(functions[8:], stream, np.empty((1, *SHAPE), "u1"), 0, 1, 8, False)


def damaged(stream: bytes, rng) -> bytes:
    data = bytearray(stream)
    match int(rng.integers(3)):
        case 0:
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        case 1:
            del data[int(rng.integers(len(data))) :]
        case _:
            at = int(rng.integers(len(data)))
            data[at : at + 8] = rng.bytes(8)
    return bytes(data)


@pytest.mark.parametrize("sample", ["8 bits", "signed 16 bits", "three bands"])
def test_damage_is_found_as_by_imagecodecs(sample):
    """The binding decodes exactly the streams that imagecodecs decodes, to the same samples."""
    rng, decoded = np.random.default_rng(3), 0
    for _ in range(1200):
        options = (*CODINGS.values(), *OTHER_CODINGS.values())[int(rng.integers(6))]
        stream = damaged(made(sample, options), rng)
        with contextlib.suppress(AnychunkError):
            siz = read_main_header(stream).siz
            rect, first = siz.image, siz.components[0]
            if max(rect.width, rect.height) > 1000 or siz.tiles > 100 or not siz.is_uniform:
                continue
            if (first.dx, first.dy) != (1, 1) or first.depth > openjpeg.MAX_DEPTH:
                continue
            out = np.empty((len(siz.components), rect.height, rect.width), siz.dtype)
            is_decoded = openjpeg.decode_into(stream, first, 0, out)
            expected = peer(stream, out.shape)
            assert is_decoded == (expected is not None)
            if is_decoded:
                decoded += 1
                np.testing.assert_array_equal(out, expected)
    assert decoded


@pytest.mark.parametrize("options", CODINGS.values(), ids=CODINGS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_ordinary_streams_are_checked_at_once(sample, options):
    stream = made(sample, options)
    siz = read_main_header(stream).siz
    out = np.empty(
        (len(siz.components), siz.image.height, siz.image.width), f"u{siz.dtype.itemsize}"
    )
    found = tiny_tiles.decode(np.frombuffer(stream, np.uint8), out)
    assert found.is_exact
    assert found.samples.dtype == siz.dtype
    assert np.shares_memory(found.samples, out)
    np.testing.assert_array_equal(found.samples, np.stack(decompress(stream)))


def test_other_streams_are_checked_later_or_left_to_imagecodecs():
    out = np.empty((1, *SHAPE), "u1")
    for stream in (
        made(options=OTHER_CODINGS["tile-parts"]),
        with_packed_headers(made(options=("-SOP", "-EPH"))),
        made() + bytes(7),  # padding
    ):
        found = tiny_tiles.decode(np.frombuffer(stream, np.uint8), out)
        assert not found.is_exact
        np.testing.assert_array_equal(found.samples[0], field(SHAPE)[0])
    jp2 = bytes(imagecodecs.jpeg2k_encode(field(SHAPE)[0], level=0, reversible=True))
    tiles = made(options=OTHER_CODINGS["tiles"])
    for stream in (jp2, tiles, made("12 bits"), made("three bands"), b"", made()[:50]):
        assert tiny_tiles.decode(np.frombuffer(stream, np.uint8), out) is None


def chunk(sample: str) -> Tile:
    depth, _, bands = SAMPLES[sample]
    height, width = SHAPE
    bits = 8 if depth <= 8 else 16
    options = {"samples_per_pixel": bands, "bits_per_sample": bits, "photometric": 1}
    return Tile(compression=34712, tile_width=width, tile_height=height, **options)


def in_tiff(sample: str, stream: bytes, *, is_direct: bool):
    """Decode a stream as a tile of TIFF; the error's type if it is refused."""
    tile, (_, _, bands) = chunk(sample), SAMPLES[sample]
    out = np.zeros((*SHAPE, bands) if bands > 1 else SHAPE, tile.dtype)
    data = np.frombuffer(stream, np.uint8)
    try:
        return decoders.decode_jpeg2000(tile, data, out if is_direct else None)
    except (AnychunkError, imagecodecs.Jpeg2kError, ValueError, NotImplementedError) as e:
        return type(e)


@pytest.mark.parametrize("sample", ["8 bits", "12 bits", "signed", "three bands"])
def test_tiles_of_tiff_are_decoded_and_refused_as_by_imagecodecs(sample):
    """Cut, damaged, with missing packets: the same samples, or the same error."""
    rng, whole = np.random.default_rng(5), made(sample)
    streams = [whole, whole + b"\0", whole[:-2], whole[:-30] + b"\xff\xd9"]
    streams += [damaged(whole, rng) for _ in range(640)]
    refused = 0
    for stream in streams:
        direct, other = (
            in_tiff(sample, stream, is_direct=is_direct) for is_direct in (True, False)
        )
        if isinstance(other, type):
            refused += 1
            assert direct is other
        else:
            assert direct.dtype == other.dtype
            np.testing.assert_array_equal(direct, other)
    assert refused


def test_a_stream_without_its_last_packets_is_refused():
    """OpenJPEG decodes it, as if these packets were empty."""
    stream = made(options=("-n", "4", "-c", "[32,32]"))
    header = read_main_header(stream)
    cut = bytearray(stream[: header.length + 14 + 200])
    cut[header.length + 6 : header.length + 10] = (len(cut) - header.length).to_bytes(4, "big")
    short = np.frombuffer(bytes(cut) + b"\xff\xd9", np.uint8)
    out = np.empty((1, *SHAPE), "u1")
    found = tiny_tiles.decode(short, out)
    assert found is None or not found.is_exact
    with pytest.raises(AnychunkError):
        tiles.check_stream(short)
