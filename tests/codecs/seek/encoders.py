"""Encoders of other projects, and the volume that they encode."""

import bz2
import gzip
import io
import zlib

import imagecodecs
import numpy as np
import tifffile
from isal import isal_zlib
from PIL import Image
from zlib_ng import zlib_ng


def volume() -> bytes:
    """Return 2 MB with smooth, empty and random parts."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(0, 3, (13, 250, 300)), axis=2) + 1000
    found = walk.astype(np.int16)
    found[5] = 0
    found[6] = rng.integers(-30000, 30000, found[6].shape)
    return found.tobytes()


RAW = volume()


def _strategy(data, strategy):
    encoder = zlib.compressobj(6, 8, 31, 8, strategy)
    return encoder.compress(data) + encoder.flush()


def _flushed(data):
    encoder = zlib.compressobj(6, 8, 31)
    parts = [
        encoder.compress(data[i : i + 100_007]) + encoder.flush(zlib.Z_FULL_FLUSH)
        for i in range(0, len(data), 100_007)
    ]
    return b"".join([*parts, encoder.flush()])


def _members(data, size):
    return b"".join(gzip.compress(data[i : i + size]) for i in range(0, len(data), size))


GZIP = {
    **{f"zlib {n}": lambda data, n=n: zlib.compress(data, n, 31) for n in (0, 1, 4, 6, 9)},
    "filtered": lambda data: _strategy(data, zlib.Z_FILTERED),
    "huffman only": lambda data: _strategy(data, zlib.Z_HUFFMAN_ONLY),
    "run lengths": lambda data: _strategy(data, zlib.Z_RLE),
    "fixed": lambda data: _strategy(data, zlib.Z_FIXED),
    "flushed": _flushed,
    **{f"zlib-ng {n}": lambda data, n=n: zlib_ng.compress(data, n, 31) for n in (1, 6, 9)},
    **{f"isal {n}": lambda data, n=n: isal_zlib.compress(data, n, wbits=31) for n in range(4)},
    **{
        f"libdeflate {n}": lambda data, n=n: bytes(imagecodecs.gzip_encode(data, level=n))
        for n in (1, 6, 12)
    },
    "members": lambda data: _members(data, 300_001),
    "small members": lambda data: _members(data, 20_280),
}
"""Those with fixed codes only (`fixed`, `isal 0`, `zlib-ng 1`) have no points that can be found."""


def libtiff_lzw(data: bytes) -> bytes:
    """Return a strip that libtiff has written."""
    file = io.BytesIO()
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1000)
    Image.fromarray(rows).save(file, "TIFF", compression="tiff_lzw", tiffinfo={278: len(rows)})
    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        page = tiff.pages[0]
        (offset,), (length,) = page.dataoffsets, page.databytecounts
    return file.getvalue()[offset : offset + length]


BZIP2 = {
    "bzip2 9": lambda data: bz2.compress(data, 9),
    "bzip2 1": lambda data: bz2.compress(data, 1),
    "streams": lambda data: bz2.compress(data[:500_001], 2) + bz2.compress(data[500_001:], 2),
}
LZW = {"imagecodecs": lambda data: bytes(imagecodecs.lzw_encode(data)), "libtiff": libtiff_lzw}
ZLIB = {"zlib": zlib.compress, "level 1": lambda data: zlib.compress(data, 1)}

CASES = [
    (compression, name, encode)
    for compression, encoders in (("gzip", GZIP), ("zlib", ZLIB), ("bzip2", BZIP2), ("lzw", LZW))
    for name, encode in encoders.items()
]
