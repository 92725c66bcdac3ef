"""Functions of the compression libraries that imagecodecs is linked with, for the compiled loop.

The loop decodes many chunks in one call (`native/chunks.c`), without Python between them, so it
needs functions of C. imagecodecs does not promise that its libraries can be called: it may contain
them, or hide their names, as on Windows. Only public functions are called, whose interfaces these
libraries keep stable, and only if all of them are there and a known chunk decodes. If not,
imagecodecs decodes the chunks, one by one.
"""

import ctypes
import importlib
import logging
import struct
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np

from anychunk.native import loops

NONE, PACKBITS, LZW, DEFLATE, ZSTD, XZ, LERC, WEBP, FAX, JPEG, GZIP, BLOSC = range(12)
"""Kinds of chunks, as `native/streams.h` numbers them. `LIBRARIES` has those of libraries."""

LERC_TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")
"""Types of samples in the order of LERC's numbers."""

log = logging.getLogger(__name__)


def lerc_options(dtype: str) -> bytes:
    """Return the number of a type of samples, such as `u1`, as LERC has it."""
    return struct.pack("=i", LERC_TYPES.index(dtype))


def strict_options(*, is_strict: bool) -> bytes:
    """Return whether nothing may follow a stream of deflate or gzip."""
    return struct.pack("=i", is_strict)


def fax_options(tables: bytes, *, is_reversed: bool) -> bytes:
    """Return the tables of codes, and whether the bits of each byte are reversed."""
    return struct.pack("=i", is_reversed) + tables


def jpeg_options(
    plain: tuple[int | None, int | None] = (None, None),
    jfif: tuple[int | None, int | None] = (None, None),
    tables: bytes = b"",
) -> bytes:
    """Return how pictures are decoded.

    Parameters:
        plain: The colour spaces of the stream and of the result, by libjpeg's numbers; None leaves
            it to libjpeg.
        jfif: The same for streams with a JFIF marker.
        tables: A stream of tables that is read before each picture.
    """
    return struct.pack("=4i", *(-1 if n is None else n for n in (*plain, *jfif))) + tables


@dataclass(frozen=True)
class Library:
    """Where the functions of a kind are, and what shows that they do what they should."""

    module: str
    """Of imagecodecs, linked with the library: names can be looked up through it."""
    names: tuple[str, ...]
    """The functions, in the order in which `native/streams.c` uses them."""
    known: str
    """A chunk of 3 rows, 4 columns and `bands` bands, in hexadecimal: 0, 1, 2 …"""
    bands: int = 1
    options: bytes = b""


LIBRARIES = {
    DEFLATE: Library(
        "_deflate",
        (
            "libdeflate_alloc_decompressor",
            "libdeflate_zlib_decompress_ex",
            "libdeflate_free_decompressor",
        ),
        "78da6360646266616563e7e0e4e20600012a0043",
    ),
    GZIP: Library(
        "_deflate",
        (
            "libdeflate_alloc_decompressor",
            "libdeflate_gzip_decompress_ex",
            "libdeflate_free_decompressor",
        ),
        "1f8b08000000000002036360646266616563e7e0e4e2060065c970920c000000",
    ),
    BLOSC: Library(
        "_blosc",
        ("blosc_cbuffer_validate", "blosc_decompress_ctx"),
        "020113010c0000000c0000001c000000000102030405060708090a0b",
    ),
    ZSTD: Library(
        "_zstd",
        ("ZSTD_createDCtx", "ZSTD_decompressDCtx", "ZSTD_freeDCtx"),
        "28b52ffd200c610000000102030405060708090a0b",
    ),
    XZ: Library(
        "_lzma",
        ("lzma_stream_decoder", "lzma_code", "lzma_end"),
        "fd377a585a0000016922de36020021010c0000008f98419c01000b000102030405060708090a0b0065c97092"
        "0001200ca2ddb4bc9042990d010000000001595a",
    ),
    LERC: Library(
        "_lerc",
        ("lerc_getBlobInfo", "lerc_decode"),
        "4c657263322004000000faf9c7550300000004000000010000000c000000080000005400000001000000000000"
        "000000e03f0000000000000000000000000000264000000000000b00000100840c1032547698ba",
        options=lerc_options("u1"),
    ),
    WEBP: Library(
        "_webp",
        ("WebPGetFeaturesInternal", "WebPDecodeRGBInto", "WebPDecodeRGBAInto"),
        "524946463c000000574542505650384c2f0000002f038000005f40906db3edfeda67500820000a1a850002a0a0"
        "99ff94ee3d10049028c412cb2cb3cc326944ff03d31d00",
        bands=3,
    ),
    JPEG: Library(
        "_jpeg8",
        (
            "jpeg_std_error",
            "jpeg_CreateDecompress",
            "jpeg_mem_src",
            "jpeg_read_header",
            "jpeg_start_decompress",
            "jpeg_read_scanlines",
            "jpeg_destroy_decompress",
        ),
        "ffd8ffe000104a46494600010100000100010000ffdb004300010101010101010101010101010101010101"
        "01010101010101010101010101010101010101010101010101010101010101010101010101010101010101"
        "010101ffc0000b080003000401011100ffc4001400010000000000000000000000000000000affc4001d10"
        "0000050500000000000000000000000000010203610405132491ffda0008010100003f0008ac5be8b1275d"
        "be1c48ffd9",
        options=jpeg_options(),
    ),
}


@cache
def functions(kind: int) -> bytes | None:
    """Return the addresses of the functions that decode chunks of a kind.

    They are what `loops.place_chunks` takes; None if the kind is to be decoded by imagecodecs.
    """
    if loops is None or sys.byteorder != "little":
        return None
    library = LIBRARIES.get(kind)
    if library is None:
        return b""
    try:
        module = importlib.import_module(f"imagecodecs.{library.module}")
        linked = ctypes.CDLL(module.__file__)
        found = [
            ctypes.cast(getattr(linked, name), ctypes.c_void_p).value for name in library.names
        ]
    except (AttributeError, ImportError, OSError) as e:
        log.info("chunks are decoded one by one, which is slower: imagecodecs: %s", e)
        return None
    addresses = struct.pack(f"{len(found)}N", *found)
    if not is_right(kind, addresses, library):
        log.info(
            "chunks are decoded one by one: imagecodecs.%s has other functions", library.module
        )
        return None
    return addresses


def is_right(kind: int, addresses: bytes, library: Library) -> bool:
    """Return whether the known chunk decodes to what it is."""
    assert loops is not None
    bands, data = library.bands, bytes.fromhex(library.known)
    out = np.zeros((bands, 3, 4), np.uint8)
    done = np.zeros(1, np.uint8)
    is_begun = loops.place_chunks(
        kind,
        addresses,
        library.options,
        data,
        np.array([0], np.uint64),
        np.array([len(data)], np.uint64),
        out,
        np.array([0], np.int64),
        np.array([0, 3, 0, 4, 0, bands], np.int64),
        b"",
        done,
        np.empty(out.nbytes + 1, np.uint8),
        np.array([3, 4, bands], np.int64),
        np.array([4, 1, 12], np.int64),
        1,
        1,
        False,
        0,
    )
    expected = np.arange(out.size, dtype=np.uint8).reshape(3, 4, bands).transpose(2, 0, 1)
    return bool(is_begun and done[0] == 1 and np.array_equal(out, expected))
