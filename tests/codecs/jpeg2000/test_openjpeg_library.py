"""Components that differ: by OpenJPEG's own functions, and without them, to the same samples."""

import ctypes
import logging
import struct

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.jpeg2000 import openjpeg, openjpeg_library
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import ChunkDecodeError, UnsupportedError
from tests.support.j2k_streams import (
    compress,
    decompress,
    field,
    needs_openjpeg,
    with_packed_headers,
)


@pytest.fixture(autouse=True)
def fresh():
    """Check the library anew in every test, and afterwards."""
    openjpeg_library._load.cache_clear()
    yield
    openjpeg_library._load.cache_clear()


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setattr(openjpeg_library, "OPENJPEG_VERSIONS", ())
    yield
    assert isinstance(openjpeg_library._load(), str)


def whole(stream: bytes, level: int = 0) -> list[np.ndarray]:
    siz = read_main_header(stream).siz
    return list(openjpeg.components(stream, siz, siz.image, level))


def reason() -> str:
    with pytest.raises(openjpeg_library.UnknownLibraryError) as caught:
        openjpeg_library.load()
    return str(caught.value)


def test_the_installed_library_is_known():
    """If this fails with a new OpenJPEG: run all tests with it, then add its version."""
    assert openjpeg_library.load().opj_version().startswith(b"2.")


@needs_openjpeg
def test_the_known_image_is_what_openjpeg_says():
    planes = decompress(openjpeg_library._PROBE)
    assert [tuple(plane.ravel().tolist()) for plane in planes] == list(
        openjpeg_library._PROBE_SAMPLES
    )


SAMPLING = "@1x1:2x2:2x1:1x1"
STREAMS = {
    "plain": ("-n", "4"),
    "irreversible": ("-I", "-r", "12", "-n", "5"),
    "layers": ("-r", "20,8,1", "-n", "3"),
    "tiles": ("-t", "32,40", "-n", "3"),
    "offset": ("-d", "5,3", "-T", "1,2", "-t", "37,29", "-n", "3"),
    "precincts": ("-c", "[32,32],[16,16],[8,8]", "-n", "3", "-b", "16,16"),
    "markers": ("-SOP", "-EPH", "-n", "3", "-r", "9,1"),
    "bypass": ("-M", "61", "-n", "3"),
    "region": ("-ROI", "c=1,U=7", "-n", "3"),
    "progressions": ("-POC", "T1=0,0,1,2,4,LRCP/T1=2,0,1,4,4,RLCP", "-n", "4"),
    **{name: ("-p", name, "-n", "3", "-r", "9,1", "-TP", "R") for name in ("RPCL", "PCRL", "CPRL")},
}


def subsampled(*options: str) -> bytes:
    """Encode four components; opj_decompress would convert three to RGB."""
    luma, chroma = field((75, 90))[0], field((38, 45), depth=7)[0]
    wide = field((75, 45), depth=6)[0]
    return compress(
        [luma, chroma, wide, luma[::-1].copy()], "-mct", "0", *options, sampling=SAMPLING
    )


@needs_openjpeg
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_same_samples_without_the_library(options, level, without_library):
    stream = subsampled(*options)
    for found, expected in zip(whole(stream, level), decompress(stream, level=level), strict=True):
        np.testing.assert_array_equal(found, expected)


@needs_openjpeg
def test_same_samples_of_packed_headers(without_library):
    """PPT: headers are stored apart from the bodies."""
    stream = subsampled("-SOP", "-EPH", "-n", "3", "-t", "50,50")
    for found, expected in zip(whole(with_packed_headers(stream)), decompress(stream), strict=True):
        np.testing.assert_array_equal(found, expected)


def with_depths(stream: bytes, *depths: int) -> bytes:
    """Declare other depths; the samples that OpenJPEG decodes change with them."""
    patched = bytearray(stream)
    for number, depth in enumerate(depths):
        patched[42 + 3 * number] = depth - 1
    return bytes(patched)


@needs_openjpeg
@pytest.mark.parametrize("mct", ["0", "1"])
def test_same_samples_of_other_depths(mct, without_library):
    """A fourth component of another depth; three may be mixed by a colour transform."""
    stream = compress(list(field((40, 50), bands=4)), "-mct", mct, "-n", "3")
    stream = with_depths(stream, 8, 8, 8, 5)
    for found, expected in zip(whole(stream, 1), decompress(stream, level=1), strict=True):
        np.testing.assert_array_equal(found, expected)


@needs_openjpeg
@pytest.mark.parametrize("level", [1, 2, 3])
def test_same_samples_of_levels_that_imagecodecs_measures_wrongly(level, without_library):
    """T.800 B-15: the size of a level depends on the position of the image."""
    stream = compress(list(field((61, 77), bands=3)), "-d", "7,5", "-n", "4")
    for found, expected in zip(whole(stream, level), decompress(stream, level=level), strict=True):
        np.testing.assert_array_equal(found, expected)


@needs_openjpeg
def test_damage_is_an_error_without_the_library(without_library):
    stream = subsampled("-n", "3")
    at = stream.index(b"\xff\x90")
    short = bytearray(stream[:-40])
    struct.pack_into(">I", short, at + 6, len(short) - at)
    with pytest.raises(ChunkDecodeError):
        whole(bytes(short))


@needs_openjpeg
def test_packets_that_cannot_be_told_apart_are_refused(without_library, monkeypatch):
    monkeypatch.setattr("anychunk.codestream.packets.MAX_PACKETS", 3)
    with pytest.raises(UnsupportedError, match="packets"):
        whole(subsampled("-n", "3"))


def test_unknown_openjpeg(monkeypatch):
    monkeypatch.setattr(openjpeg_library, "OPENJPEG_VERSIONS", ("1.5",))
    assert "tested with 1.5" in reason()


def test_functions_of_another_library(monkeypatch):
    monkeypatch.setattr(imagecodecs, "jpeg2k_version", lambda: "openjpeg 2.5.99")
    assert "openjpeg 2.5.99" in reason()


def test_missing_function(monkeypatch):
    monkeypatch.setitem(openjpeg_library._FUNCTIONS, "opj_not_there", (None, ()))
    assert "opj_not_there" in reason()


def test_no_library(monkeypatch):
    def refuse(path):
        raise OSError("cannot be loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert "cannot be loaded" in reason()


def test_other_parameters(monkeypatch):
    monkeypatch.setattr(openjpeg_library, "_PARAMETERS_BYTES", 8256)
    assert "8252 bytes" in reason()


def test_other_image(monkeypatch):
    class Image(ctypes.Structure):
        """`opj_image_t` with a field more."""

        _fields_ = (("added", ctypes.c_uint32), *openjpeg_library._Image._fields_)

    monkeypatch.setattr(openjpeg_library, "_Image", Image)
    assert "'numcomps'" in reason()


def test_other_component(monkeypatch):
    expected = openjpeg_library._PROBE_COMPS[1] | {"prec": 9}
    monkeypatch.setattr(
        openjpeg_library, "_PROBE_COMPS", (openjpeg_library._PROBE_COMPS[0], expected)
    )
    assert "'prec': 8" in reason()


def test_other_samples(monkeypatch):
    first, second = openjpeg_library._PROBE_SAMPLES
    monkeypatch.setattr(openjpeg_library, "_PROBE_SAMPLES", (first, (0, *second[1:])))
    assert "component 1" in reason()


def test_known_image_that_does_not_decode(monkeypatch):
    monkeypatch.setattr(openjpeg_library, "_PROBE", openjpeg_library._PROBE[:-60])
    assert "does not decode" in reason()


def test_one_line_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(imagecodecs, "jpeg2k_version", lambda: "openjpeg 2.5.99")
    with caplog.at_level(logging.INFO, "anychunk"):
        reason()
        reason()
    (record,) = caplog.records
    assert "openjpeg 2.5.99" in record.getMessage()
