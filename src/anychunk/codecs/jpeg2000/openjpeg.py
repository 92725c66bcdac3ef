"""OpenJPEG as a decoder: one JPEG 2000 codestream in, its components out.

The rest of the package needs two functions. `decode` decodes a stream. `is_exact` says whether a
stream that decodes consists of exactly the packets that it must have.

There are two ways to call OpenJPEG. imagecodecs' own binding (`_decode_uniform`) is fast, but
refuses components that differ from each other, converts three subsampled components to RGB, and
computes other sizes for some levels. For those, `_decode_components` calls the OpenJPEG library
that imagecodecs is linked with, by ctypes, and returns every component as stored. Both are
strict: a stream that ends inside a packet is an error. Both release the GIL.

Streams are bare codestreams, whose geometry the caller has checked against `limits`.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import (
    COM,
    PLT,
    SOD,
    SOT_BYTES,
    Component,
    MainHeader,
    Rect,
    Siz,
    TilePart,
    guarded,
    segments,
    shortened,
)
from anychunk.errors import ChunkDecodeError, UnsupportedError
from anychunk.io.threads import cores

type Array = npt.NDArray[Any]

THREADED_BYTES = 32 << 20
"""Streams that decode to more than this are decoded by several threads."""


def decode(
    stream: bytes | bytearray, siz: Siz, rect: Rect, level: int, out: Array | None = None
) -> Sequence[Array]:
    """Decode a stream; return its components, each on its own grid.

    Parameters:
        stream: A codestream of this part of the image.
        siz: The components. Tiles and image area may be those of a larger stream.
        rect: The part, on the reference grid.
        level: Resolution level.
        out: Shaped (components, y, x); used if all components have the same type and grid.

    Raises:
        ChunkDecodeError: The stream does not decode, or decodes to another shape.
        UnsupportedError: A component has no samples at this level, or OpenJPEG cannot be called.
    """
    if siz.is_uniform and _has_right_shape(siz, rect, level):
        if out is None:
            here = rect.scaled(1 << level, 1 << level)
            out = np.empty((len(siz.components), here.height, here.width), siz.dtype)
        return _decode_uniform(stream, level, out)  # type: ignore[return-value]
    rects = [rect.scaled(c.dx << level, c.dy << level) for c in siz.components]
    shapes = [(r.height, r.width) for r in rects]
    if min(min(shape) for shape in shapes) < 1:
        raise UnsupportedError(
            "a tile in which a component has no samples is not supported; component shapes at "
            f"resolution level {level}: {shapes}"
        )
    planes = _decode_components(stream, level, siz.components)
    for plane, shape in zip(planes, shapes, strict=True):
        if plane.shape != shape:
            raise ChunkDecodeError(f"OpenJPEG: a component has {plane.shape}, expected {shape}")
    return planes


def _has_right_shape(siz: Siz, rect: Rect, level: int) -> bool:
    """Return whether imagecodecs computes the right shape of a level.

    It assumes that the width is ceil(width / 2**level). By T.800 B-15 it is the difference of the
    edges, each divided and rounded up, which depends on where the tile lies.
    """
    first, step = siz.components[0], 1 << level
    return (
        first.dx == first.dy == 1
        and -rect.x0 // step - -rect.x1 // step == -(-rect.width // step)
        and -rect.y0 // step - -rect.y1 // step == -(-rect.height // step)
    )


def is_exact(
    stream: bytearray,
    header: MainHeader,
    rect: Rect,
    data: memoryview,
    parts: Sequence[TilePart],
) -> bool:
    """Return True if a tile that decodes is exactly its packets; False if that is unknown.

    OpenJPEG treats packets that are missing at the end as empty, and ignores trailing bytes: even
    random bytes decode. So the tile is decoded twice more, at its lowest resolution,
    where hardly anything but packet headers costs time.

    1. With bytes appended that cannot be a packet. If a packet were missing, they would be read as
       its header, and decoding would fail. So nothing is missing.
    2. Without its last byte. If bytes were left over, decoding would still succeed. So nothing is
       left over.

    Parameters:
        stream: The tile as a codestream.
        header: Main header of the codestream that the tile is from.
        rect: Position of the tile on the reference grid.
        data: Bytes that contain the tile-parts.
        parts: The tile-parts that `stream` was made from.
    """
    siz, last = header.siz, parts[-1]
    level = header.levels
    while level and not _has_right_shape(siz, rect, level):
        level -= 1
    payload = 0
    for part in parts:
        for marker, start, _ in segments(data[part.offset :], SOT_BYTES, SOD):
            # other markers may change what the packets are
            if marker not in (SOD, PLT, COM):
                return False
            payload = part.length - start - 2
    if not siz.is_uniform or not _has_right_shape(siz, rect, level):
        return False
    # this also proves that the stream decodes at this level, so that only the missing byte can
    # make the second attempt fail
    if not _decodes(guarded(stream, last), level):
        return False
    cut = shortened(stream, last, payload)
    if cut is None:
        return len(parts) == 1  # only empty packets, none of them missing
    return not _decodes(cut, level)


def _threads(nbytes: int) -> int:
    return min(4, cores()) if nbytes >= THREADED_BYTES else 1


def _decode_uniform(stream: bytes | bytearray, level: int, out: Array) -> Array:
    """Decode components of one depth, sign and size into `out`, shaped (components, y, x)."""
    target = out[0] if len(out) == 1 else out
    try:
        decoded = imagecodecs.jpeg2k_decode(
            stream, planar=True, skipres=level, numthreads=_threads(out.nbytes), out=target
        )
    except Exception as e:
        raise ChunkDecodeError(f"OpenJPEG: {str(e) or type(e).__name__}") from e
    if decoded is not target:
        target[...] = decoded
    return out


def _decodes(stream: bytes | bytearray, level: int) -> bool:
    """Return whether OpenJPEG accepts a stream at a level."""
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
    """Return the OpenJPEG library that imagecodecs uses.

    The path of its file is unknown. But the symbols of a library can be looked up through a module
    that is linked with it, so the extension module of imagecodecs is loaded instead.
    """
    from imagecodecs import _jpeg2k

    try:
        found = ctypes.CDLL(_jpeg2k.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, OSError) as e:
        raise UnsupportedError(
            "components that differ in depth or sampling are not supported, because this build of "
            f"imagecodecs has no OpenJPEG library to call ({e}); "
            "supported: components of one depth "
            "and sampling"
        ) from e
    return found


class _Memory:
    """Bytes as an OpenJPEG stream. Keep it referenced: OpenJPEG calls its callbacks."""

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


def _decode_components(
    stream: bytes | bytearray, level: int, components: Sequence[Component]
) -> list[npt.NDArray[np.int32]]:
    """Decode every component on its own grid, shaped (y, x)."""
    opj = library()
    # `memory` and `handler` must stay alive until OpenJPEG is done: it holds pointers to them
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
    """Copy the components out of the memory of OpenJPEG."""
    if image.numcomps != len(components):
        raise ChunkDecodeError(f"OpenJPEG: {image.numcomps} components, expected {len(components)}")
    planes = []
    for comp in image.comps[: image.numcomps]:
        if not comp.data:
            raise ChunkDecodeError("OpenJPEG: a component has no samples")
        planes.append(np.ctypeslib.as_array(comp.data, (comp.h, comp.w)).copy())
    return planes
