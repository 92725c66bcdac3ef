"""Compressed streams with a known decoded size: one function a compression, strict about that size.

Every format and codec decompresses through here. A stream that ends early, goes on too long or is
damaged raises `ChunkDecodeError`; imagecodecs' own decoders silently cut or pad some of them (LZ4
frames, bzip2, xz, blosc), so those are guarded or read by the standard library.
"""

import bz2
import lzma
import zlib
from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np

from anychunk.codecs._base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError

DAMAGED = (RuntimeError, ValueError)
"""What imagecodecs raises for a stream that it cannot read."""

type Decode = Callable[[Bytes1D, int, Bytes1D | None], Bytes1D]
type Encode = Callable[[Bytes1D, int | None], BytesLike]


def _sized(data: Any, nbytes: int, name: str) -> Bytes1D:
    view = as_bytes(data)
    if len(view) != nbytes:
        raise ChunkDecodeError(f"{name}: decodes to {len(view)} bytes, expected {nbytes}")
    return view


def _target(nbytes: int, out: Bytes1D | None) -> Bytes1D:
    return out if out is not None and len(out) == nbytes else np.empty(nbytes, np.uint8)


def decode_raw(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _sized(data, nbytes, "raw")


def decode_zstd(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    try:
        return _sized(imagecodecs.zstd_decode(data, out=_target(nbytes, out)), nbytes, "zstd")
    except DAMAGED as e:
        raise ChunkDecodeError(f"zstd: {e}, expected {nbytes} decoded bytes") from e


def decode_gzip(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Read one or several gzip members; libdeflate knows the first only."""
    target = _target(nbytes, out)
    try:
        first = as_bytes(imagecodecs.gzip_decode(data, out=target))
    except DAMAGED:
        return _inflate(data, nbytes, "gzip", wbits=31)
    return first if len(first) == nbytes else _inflate(data, nbytes, "gzip", wbits=31)


def decode_zlib(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    try:
        return _sized(imagecodecs.deflate_decode(data, out=_target(nbytes, out)), nbytes, "zlib")
    except DAMAGED:
        return _inflate(data, nbytes, "zlib", wbits=15)


def _inflate(data: Bytes1D, nbytes: int, name: str, *, wbits: int) -> Bytes1D:
    """Inflate member by member with zlib, and say what is wrong with the stream."""
    pieces: list[bytes] = []
    rest, left = data.tobytes(), nbytes
    try:
        while rest and (not pieces or rest.strip(b"\0")):
            stream = zlib.decompressobj(wbits=wbits)
            piece = stream.decompress(rest, left + 1)
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise ChunkDecodeError(f"{name}: decodes to more than the expected {nbytes} bytes")
            if not stream.eof:
                raise ChunkDecodeError(f"{name}: ends early, {left} of {nbytes} bytes are missing")
            rest = stream.unused_data
    except zlib.error as e:
        raise ChunkDecodeError(f"{name}: {e}") from e
    return _sized(b"".join(pieces), nbytes, name)


def _streamed(
    data: Bytes1D,
    nbytes: int,
    name: str,
    make: Callable[[], Any],
    errors: tuple[type[Exception], ...],
) -> Bytes1D:
    pieces: list[bytes] = []
    rest, left = data.tobytes(), nbytes
    try:
        while rest:
            stream = make()
            piece = stream.decompress(rest, max_length=left + 1)
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise ChunkDecodeError(f"{name}: decodes to more than the expected {nbytes} bytes")
            if not stream.eof:
                raise ChunkDecodeError(f"{name}: ends early, {left} of {nbytes} bytes are missing")
            rest = stream.unused_data.lstrip(b"\0")
    except errors as e:
        raise ChunkDecodeError(f"{name}: {e}") from e
    return _sized(b"".join(pieces), nbytes, name)


def decode_bzip2(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _streamed(data, nbytes, "bzip2", bz2.BZ2Decompressor, (OSError, ValueError, EOFError))


def decode_xz(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _streamed(data, nbytes, "xz", lzma.LZMADecompressor, (lzma.LZMAError, EOFError))


def decode_lz4_frame(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    # one byte more than wanted: the decoder stops silently at the end of its target
    target = np.empty(nbytes + 1, np.uint8)
    try:
        return _sized(imagecodecs.lz4f_decode(data, out=target), nbytes, "lz4 frame")
    except DAMAGED as e:
        raise ChunkDecodeError(f"lz4 frame: {e}") from e


def decode_lz4_block(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    try:
        return _sized(imagecodecs.lz4_decode(data, out=_target(nbytes, out)), nbytes, "lz4 block")
    except DAMAGED as e:
        raise ChunkDecodeError(f"lz4 block: {e}, expected {nbytes} decoded bytes") from e


def decode_blosc(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    # c-blosc reads as many bytes as its header says, also beyond the buffer that it is given
    announced = int.from_bytes(data[12:16], "little")
    if len(data) < 16 or announced != len(data):
        raise ChunkDecodeError(f"blosc: {len(data)} bytes, its header announces {announced}")
    try:
        return _sized(imagecodecs.blosc_decode(data, out=_target(nbytes, out)), nbytes, "blosc")
    except DAMAGED as e:
        raise ChunkDecodeError(f"blosc: {e}, expected {nbytes} decoded bytes") from e


DECODE: dict[str, Decode] = {
    "raw": decode_raw,
    "gzip": decode_gzip,
    "zlib": decode_zlib,
    "bzip2": decode_bzip2,
    "xz": decode_xz,
    "zstd": decode_zstd,
    "lz4_frame": decode_lz4_frame,
    "lz4_block": decode_lz4_block,
    "blosc": decode_blosc,
}
