"""OpenJPEG's own functions, by ctypes, in the library that imagecodecs is linked with.

imagecodecs does not promise that this library exists, nor which version it is, and a structure that
is laid out differently would crash the process. So `load` returns the library only if

- OpenJPEG's version was tested (`OPENJPEG_VERSIONS`), and is the one that imagecodecs reports;
- all functions exist;
- the default decoder parameters have the size and values that they should have; and
- a small image decodes, and every field of its structures has the expected value. Pointers are
  followed only after the fields in front of them.

The compiled module calls the same functions for ordinary streams (`addresses`).

If not, `openjpeg` decodes the same streams in another way, to the same samples but slower. There is
nothing that a user could do about it, so it is no warning, but one line of the log at level INFO.
After a change of OpenJPEG: run the tests with the new version, and add it here.
"""

import ctypes
import logging
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg2000 import Rect
from anychunk.errors import ChunkDecodeError

type Planes = list[npt.NDArray[np.int32]]

OPENJPEG_VERSIONS = ("2.5",)
"""First two parts of OpenJPEG's tested versions; its structures change only with these."""

log = logging.getLogger(__name__)


class UnknownLibraryError(Exception):
    """The library is missing, or is not one that was tested."""


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
    "opj_version": (ctypes.c_char_p, ()),
    "opj_create_decompress": (_POINTER, (ctypes.c_int,)),
    "opj_set_default_decoder_parameters": (None, (_POINTER,)),
    "opj_setup_decoder": (ctypes.c_int, (_POINTER, _POINTER)),
    "opj_codec_set_threads": (ctypes.c_int, (_POINTER, ctypes.c_int)),
    "opj_read_header": (ctypes.c_int, (_POINTER, _POINTER, _POINTER)),
    "opj_set_decoded_resolution_factor": (ctypes.c_int, (_POINTER, ctypes.c_uint32)),
    "opj_set_decode_area": (ctypes.c_int, (_POINTER, _POINTER, *(ctypes.c_int32,) * 4)),
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
    "opj_set_info_handler": (ctypes.c_int, (_POINTER, _MESSAGE, _POINTER)),
    "opj_set_warning_handler": (ctypes.c_int, (_POINTER, _MESSAGE, _POINTER)),
    "opj_stream_set_user_data": (None, (_POINTER, _POINTER, _POINTER)),
}
DIRECT = (
    "opj_create_decompress",
    "opj_set_default_decoder_parameters",
    "opj_setup_decoder",
    "opj_codec_set_threads",
    "opj_read_header",
    "opj_set_decoded_resolution_factor",
    "opj_decode",
    "opj_end_decompress",
    "opj_destroy_codec",
    "opj_image_destroy",
    "opj_stream_create",
    "opj_stream_destroy",
    "opj_stream_set_read_function",
    "opj_stream_set_skip_function",
    "opj_stream_set_seek_function",
    "opj_stream_set_user_data",
    "opj_stream_set_user_data_length",
    "opj_set_info_handler",
    "opj_set_warning_handler",
    "opj_set_error_handler",
)
"""The functions that `native/openjpeg.c` calls, in its order."""


_PARAMETERS_ROOM = 16384
_PARAMETERS_BYTES = 8252
"""Size of `opj_dparameters_t`."""
_FORMATS = 8200
"""Offset of its fields `decod_format` and `cod_format`: -1 by default, all other fields are 0."""

_PROBE = bytes.fromhex(
    "ff4fff51002c000000000009000000070000000300000002000000090000000700000000000000000002070101870202"
    "ff52000c00000001000004040001ff5c00044040ff90000a0000000000380001ff93cfb46810dbafe7f92fa7d62e75cd"
    "ef8f4207b86ca3965b4a3eaa0fa8e4df80501497c89995877082cbf4ffd9"
)
"""Two components that differ in sign and sampling, in an image area from (3, 2) to (9, 7)."""
_PROBE_IMAGE = {"x0": 3, "y0": 2, "x1": 9, "y1": 7, "numcomps": 2}
_PROBE_COMPS = (
    {"dx": 1, "dy": 1, "w": 6, "h": 5, "x0": 3, "y0": 2, "prec": 8, "sgnd": 0, "factor": 0},
    {"dx": 2, "dy": 2, "w": 3, "h": 3, "x0": 2, "y0": 1, "prec": 8, "sgnd": 1, "factor": 0},
)
_PROBE_SAMPLES = (tuple(range(7, 240, 8)), (-78, -58, -38, -18, 2, 22, 42, -128, -128))


def load() -> ctypes.CDLL:
    """Return the OpenJPEG library that imagecodecs uses, if it is one that was tested.

    Raises:
        UnknownLibraryError: It is not, or there is none.
    """
    found = _load()
    if isinstance(found, str):
        raise UnknownLibraryError(found)
    return found


@cache
def _load() -> ctypes.CDLL | str:
    """Return the library, or why it is not used. Cached: the checks are needed once."""
    try:
        library = _linked()
        _check_version(library)
        _check_parameters(library)
        _check_structures(library)
    except UnknownLibraryError as e:
        log.info("JPEG 2000 is decoded by imagecodecs' functions only, which is slower: %s", e)
        return str(e)
    return library


def addresses() -> bytes | None:
    """Return where the functions of `DIRECT` are, for the compiled module; None if not known."""
    found = _load()
    return None if isinstance(found, str) else _addresses(found)


@cache
def _addresses(library: ctypes.CDLL) -> bytes:
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in DIRECT]
    return struct.pack(f"={len(found)}{'Q' if ctypes.sizeof(_POINTER) == 8 else 'I'}", *found)


def _linked() -> ctypes.CDLL:
    """Return the library through imagecodecs' extension module, because its own path is unknown.

    The symbols of a library can be looked up through a module that is linked with it.
    """
    try:
        from imagecodecs import _jpeg2k

        found = ctypes.CDLL(_jpeg2k.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, ImportError, OSError) as e:
        raise UnknownLibraryError(f"imagecodecs has no OpenJPEG library to call ({e})") from e
    return found


def _check_version(library: ctypes.CDLL) -> None:
    version = library.opj_version().decode("ascii", "replace")
    if ".".join(version.split(".")[:2]) not in OPENJPEG_VERSIONS:
        raise UnknownLibraryError(f"OpenJPEG {version}, tested with {', '.join(OPENJPEG_VERSIONS)}")
    reported = imagecodecs.jpeg2k_version()
    if reported != f"openjpeg {version}":
        # the functions are from another library that this process has loaded
        raise UnknownLibraryError(f"OpenJPEG {version}, but imagecodecs reports {reported}")


def _check_parameters(library: ctypes.CDLL) -> None:
    """Check what OpenJPEG writes as default parameters; the buffer has room for twice as much."""
    unwritten = b"\xaa"
    buffer = ctypes.create_string_buffer(unwritten * _PARAMETERS_ROOM, _PARAMETERS_ROOM)
    library.opj_set_default_decoder_parameters(buffer)
    found = buffer.raw.rstrip(unwritten)
    expected = bytearray(_PARAMETERS_BYTES)
    expected[_FORMATS : _FORMATS + 8] = b"\xff" * 8
    if found != expected:
        raise UnknownLibraryError(
            f"opj_dparameters_t has {len(found)} bytes or unknown values, expected "
            f"{_PARAMETERS_BYTES} bytes"
        )


def _check_structures(library: ctypes.CDLL) -> None:
    """Decode a known image, and check every field before a pointer behind it is followed."""
    try:
        with _Decoded(library, _PROBE, 0) as image:
            _check_fields(image, _PROBE_IMAGE)
            for number, (fields, samples) in enumerate(
                zip(_PROBE_COMPS, _PROBE_SAMPLES, strict=True)
            ):
                comp = image.comps[number]
                _check_fields(comp, fields)
                if not comp.data or tuple(comp.data[: len(samples)]) != samples:
                    raise UnknownLibraryError(f"component {number} has other samples")
    except ChunkDecodeError as e:
        raise UnknownLibraryError(f"a known image does not decode: {e}") from e


def _check_fields(structure: ctypes.Structure, expected: dict[str, int]) -> None:
    found = {name: getattr(structure, name) for name in expected}
    if found != expected:
        raise UnknownLibraryError(f"{type(structure).__doc__} has {found}, expected {expected}")


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


class _Decoded:
    """A stream decoded by OpenJPEG; the image exists until the context ends."""

    def __init__(
        self,
        library: ctypes.CDLL,
        stream: bytes | bytearray,
        level: int,
        area: Rect | None = None,
        threads: int = 1,
    ) -> None:
        self._opj, self._level, self._area, self._threads = library, level, area, threads
        # `_memory` and `_handler` must stay alive until OpenJPEG is done: it holds pointers to them
        self._memory, self._messages = _Memory(stream), list[str]()
        self._handler = _MESSAGE(self._add_message)
        self._codec = library.opj_create_decompress(_J2K)
        self._source = library.opj_stream_create(1 << 20, 1)
        self._image = ctypes.POINTER(_Image)()

    def _add_message(self, text: bytes, _: object) -> None:
        self._messages.append(text.decode("latin1").strip())

    def __enter__(self) -> _Image:
        try:
            self._decode()
        except BaseException:
            self.__exit__()
            raise
        return self._image.contents

    def _decode(self) -> None:
        opj, codec, source, memory = self._opj, self._codec, self._source, self._memory
        opj.opj_stream_set_read_function(source, memory.read)
        opj.opj_stream_set_skip_function(source, memory.skip)
        opj.opj_stream_set_seek_function(source, memory.seek)
        opj.opj_stream_set_user_data_length(source, memory.length)
        opj.opj_set_error_handler(codec, self._handler, None)
        parameters = ctypes.create_string_buffer(_PARAMETERS_ROOM)
        opj.opj_set_default_decoder_parameters(parameters)
        is_decoded = (
            opj.opj_setup_decoder(codec, parameters)
            and (self._threads < 2 or opj.opj_codec_set_threads(codec, self._threads))
            and opj.opj_read_header(source, codec, ctypes.byref(self._image))
            and opj.opj_set_decoded_resolution_factor(codec, self._level)
            and self._set_area()
            and opj.opj_decode(codec, source, self._image)
            and opj.opj_end_decompress(codec, source)
        )
        if not is_decoded:
            problem = self._messages[0] if self._messages else "does not decode"
            raise ChunkDecodeError(f"OpenJPEG: {problem}")

    def _set_area(self) -> bool:
        area = self._area
        if area is None:
            return True
        corners = (area.x0, area.y0, area.x1, area.y1)
        return bool(self._opj.opj_set_decode_area(self._codec, self._image, *corners))

    def __exit__(self, *error: object) -> None:
        if self._image:
            self._opj.opj_image_destroy(self._image)
        self._opj.opj_stream_destroy(self._source)
        self._opj.opj_destroy_codec(self._codec)


def decode(
    library: ctypes.CDLL,
    stream: bytes | bytearray,
    level: int,
    shapes: Sequence[tuple[int, int]],
    *,
    area: Rect | None = None,
    threads: int = 1,
) -> Planes:
    """Decode every component on its own grid; `shapes` are their (y, x).

    Parameters:
        library: What `load` returned.
        stream: A codestream.
        level: Resolution level.
        shapes: The expected (y, x) of each component.
        area: Which part to decode, on the reference grid; None: all. OpenJPEG 2.5 decodes areas of
            9/7 streams inexactly near their edges, and areas of HTJ2K not at all: see `windows`.
        threads: How many threads decode.
    """
    with _Decoded(library, stream, level, area, threads) as image:
        if image.numcomps != len(shapes):
            raise ChunkDecodeError(f"OpenJPEG: {image.numcomps} components, expected {len(shapes)}")
        planes = []
        for comp, shape in zip(image.comps[: len(shapes)], shapes, strict=True):
            if not comp.data:
                raise ChunkDecodeError("OpenJPEG: a component has no samples")
            # before its memory is read
            if (comp.h, comp.w) != shape:
                raise ChunkDecodeError(
                    f"OpenJPEG: a component has {(comp.h, comp.w)}, expected {shape}"
                )
            planes.append(np.ctypeslib.as_array(comp.data, shape).copy())
        return planes
