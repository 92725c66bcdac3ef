"""OpenJPEG behind two functions: one JPEG 2000 stream in, its components out.

`decode_uniform` is imagecodecs' own decoder. It refuses components that differ from each other, and
takes three subsampled ones for sYCC and makes them RGB; so `decode_components` calls the OpenJPEG
library that imagecodecs brings, and gives every component as it is stored. Both are strict: a
stream that ends too early is an error. Both release the GIL.

The stream is a bare codestream, whose geometry the caller has checked against `limits`.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import Component
from anychunk.errors import ChunkDecodeError, UnsupportedError

THREADED_BYTES = 32 << 20
"""Streams that decode to more than this are decoded by a few threads."""


def threads(nbytes: int) -> int:
    return min(4, os.cpu_count() or 1) if nbytes >= THREADED_BYTES else 1


def decode_uniform(
    stream: bytes | bytearray, level: int, out: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Decode components of one depth, sign and size into `out`, shaped (components, y, x)."""
    target = out[0] if len(out) == 1 else out
    try:
        decoded = imagecodecs.jpeg2k_decode(
            stream, planar=True, skipres=level, numthreads=threads(out.nbytes), out=target
        )
    except Exception as e:
        raise ChunkDecodeError(f"OpenJPEG: {e or type(e).__name__}") from e
    if decoded is not target:
        target[...] = decoded
    return out


def decodes(stream: bytes | bytearray, level: int) -> bool:
    """Whether OpenJPEG takes this stream at this level."""
    try:
        imagecodecs.jpeg2k_decode(stream, planar=True, skipres=level, numthreads=1)
    except Exception:  # noqa: BLE001 - every failure is the answer
        return False
    return True


class _Comp(ctypes.Structure):
    """`opj_image_comp_t`."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("dx", "dy", "w", "h", "x0", "y0", "prec", "bpp")),
        *((name, ctypes.c_uint32) for name in ("sgnd", "resno_decoded", "factor")),
        ("data", ctypes.POINTER(ctypes.c_int32)),
        ("alpha", ctypes.c_uint16),
    )


class _Image(ctypes.Structure):
    """`opj_image_t`."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("x0", "y0", "x1", "y1", "numcomps")),
        ("color_space", ctypes.c_int),
        ("comps", ctypes.POINTER(_Comp)),
        ("icc_profile_buf", ctypes.c_void_p),
        ("icc_profile_len", ctypes.c_uint32),
    )


_READ = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_SKIP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_SEEK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
_MESSAGE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_END = ctypes.c_size_t(-1).value
_J2K = 0
"""`OPJ_CODEC_J2K`."""

_POINTER = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "opj_create_decompress": (_POINTER, (ctypes.c_int,)),
    "opj_set_default_decoder_parameters": (None, (_POINTER,)),
    "opj_setup_decoder": (ctypes.c_int, (_POINTER, _POINTER)),
    "opj_codec_set_threads": (ctypes.c_int, (_POINTER, ctypes.c_int)),
    "opj_read_header": (ctypes.c_int, (_POINTER, _POINTER, _POINTER)),
    "opj_set_decoded_resolution_factor": (ctypes.c_int, (_POINTER, ctypes.c_uint32)),
    "opj_decode": (ctypes.c_int, (_POINTER, _POINTER, _POINTER)),
    "opj_end_decompress": (ctypes.c_int, (_POINTER, _POINTER)),
    "opj_destroy_codec": (None, (_POINTER,)),
    "opj_image_destroy": (None, (_POINTER,)),
    "opj_stream_create": (_POINTER, (ctypes.c_size_t, ctypes.c_int)),
    "opj_stream_destroy": (None, (_POINTER,)),
    "opj_stream_set_read_function": (None, (_POINTER, _READ)),
    "opj_stream_set_skip_function": (None, (_POINTER, _SKIP)),
    "opj_stream_set_seek_function": (None, (_POINTER, _SEEK)),
    "opj_stream_set_user_data_length": (None, (_POINTER, ctypes.c_uint64)),
    "opj_set_error_handler": (ctypes.c_int, (_POINTER, _MESSAGE, _POINTER)),
}


@cache
def library() -> ctypes.CDLL:
    """Find OpenJPEG where imagecodecs' own module finds it: a symbol is looked up in what that
    module is linked with.
    """
    from imagecodecs import _jpeg2k

    try:
        found = ctypes.CDLL(_jpeg2k.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, OSError) as e:
        raise UnsupportedError(
            "components that differ in depth or sampling need an OpenJPEG library, which this "
            "build of imagecodecs has not; decoded: components of one depth and sampling"
        ) from e
    return found


class _Memory:
    """Bytes as an OpenJPEG stream; the callbacks live as long as this."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data, self._position = memoryview(data), 0
        self.length = len(data)
        self.read, self.skip, self.seek = _READ(self._read), _SKIP(self._skip), _SEEK(self._seek)

    def _read(self, buffer: int, length: int, _: object) -> int:
        piece = self._data[self._position : self._position + length]
        if not piece:
            return _END
        ctypes.memmove(buffer, bytes(piece), len(piece))
        self._position += len(piece)
        return len(piece)

    def _skip(self, length: int, _: object) -> int:
        before = self._position
        self._position = max(0, min(self.length, before + length))
        return self._position - before

    def _seek(self, position: int, _: object) -> int:
        self._position = max(0, min(self.length, position))
        return int(self._position == position)


def decode_components(
    stream: bytes | bytearray, level: int, components: Sequence[Component]
) -> list[npt.NDArray[np.int32]]:
    """Decode every component on its own grid, shaped (y, x)."""
    opj = library()
    memory, messages = _Memory(stream), list[str]()
    handler = _MESSAGE(lambda text, _: messages.append(text.decode("latin1").strip()))
    codec, source = opj.opj_create_decompress(_J2K), opj.opj_stream_create(1 << 20, 1)
    image = ctypes.POINTER(_Image)()
    try:
        opj.opj_stream_set_read_function(source, memory.read)
        opj.opj_stream_set_skip_function(source, memory.skip)
        opj.opj_stream_set_seek_function(source, memory.seek)
        opj.opj_stream_set_user_data_length(source, memory.length)
        opj.opj_set_error_handler(codec, handler, None)
        parameters = ctypes.create_string_buffer(16384)  # opj_dparameters_t is about 8300 bytes
        opj.opj_set_default_decoder_parameters(parameters)
        is_decoded = (
            opj.opj_setup_decoder(codec, parameters)
            and opj.opj_read_header(source, codec, ctypes.byref(image))
            and opj.opj_set_decoded_resolution_factor(codec, level)
            and opj.opj_decode(codec, source, image)
            and opj.opj_end_decompress(codec, source)
        )
        if not is_decoded:
            raise ChunkDecodeError(f"OpenJPEG: {messages[0] if messages else 'does not decode'}")
        return _planes(image.contents, components)
    finally:
        if image:
            opj.opj_image_destroy(image)
        opj.opj_stream_destroy(source)
        opj.opj_destroy_codec(codec)


def _planes(image: _Image, components: Sequence[Component]) -> list[npt.NDArray[np.int32]]:
    if image.numcomps != len(components):
        raise ChunkDecodeError(f"OpenJPEG: {image.numcomps} components, expected {len(components)}")
    planes = []
    for comp in image.comps[: image.numcomps]:
        if not comp.data:
            raise ChunkDecodeError("OpenJPEG: a component has no samples")
        planes.append(np.ctypeslib.as_array(comp.data, (comp.h, comp.w)).copy())
    return planes
