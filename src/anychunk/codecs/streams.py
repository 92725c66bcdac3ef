"""Compressed streams: one function a compression and direction, strict about the decoded size.

Every format and codec compresses and decompresses through here. A stream that ends early, goes on
too long or is damaged raises `ChunkDecodeError`; imagecodecs' own decoders silently cut or pad some
(LZ4 frames, bzip2, xz) or believe their header (Blosc), so those are guarded or read by the
standard library. An encoder takes a level, or None for the usual one of its compression, and raises
`CodecConfigError` for one that it lacks.
"""

import bz2
import lzma
import struct
import zlib
from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np

from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError, CodecConfigError

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


def _decoded(
    decode: Callable[..., Any], data: Bytes1D, target: Bytes1D, name: str, **options: Any
) -> Bytes1D:
    """Decode by imagecodecs into `target`, which it must fill."""
    try:
        found = decode(data, out=target, **options)
    except DAMAGED as e:
        raise ChunkDecodeError(f"{name}: {e}, expected {len(target)} decoded bytes") from e
    return _sized(found, len(target), name)


def decode_zstd(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _decoded(imagecodecs.zstd_decode, data, _target(nbytes, out), "zstd")


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
    def make() -> Any:
        return zlib.decompressobj(wbits=wbits)

    return _streamed(data, nbytes, name, make, (zlib.error,), has_gaps=False)


def _streamed(
    data: Bytes1D,
    nbytes: int,
    name: str,
    make: Callable[[], Any],
    errors: tuple[type[Exception], ...],
    *,
    has_gaps: bool = True,
) -> Bytes1D:
    """Decode member by member with the standard library, and say what is wrong with the stream.

    Zeros may stand behind the last member; `has_gaps`: between two as well.
    """
    pieces: list[bytes] = []
    rest, left = data.tobytes(), nbytes
    while rest:
        stream = make()
        try:
            piece = stream.decompress(rest, max_length=left + 1)
        except errors as e:
            raise ChunkDecodeError(f"{name}: {e}") from e
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise ChunkDecodeError(f"{name}: decodes to more than the expected {nbytes} bytes")
        if not stream.eof:
            raise ChunkDecodeError(f"{name}: ends early, {left} of {nbytes} bytes are missing")
        behind = stream.unused_data.lstrip(b"\0")
        rest = behind if has_gaps or not behind else stream.unused_data
    return _sized(b"".join(pieces), nbytes, name)


def decode_bzip2(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _streamed(data, nbytes, "bzip2", bz2.BZ2Decompressor, (OSError, ValueError, EOFError))


def decode_xz(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    def make() -> lzma.LZMADecompressor:
        # a header may ask for a dictionary of 4 GiB; the strongest preset needs 65 MiB
        return lzma.LZMADecompressor(memlimit=256 << 20)

    return _streamed(data, nbytes, "xz", make, (lzma.LZMAError, EOFError))


def decode_lz4_frame(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Read one or several LZ4 frames, one after the other."""
    target = _target(nbytes, out)
    stop, is_skipped = lz4_frame_end(data, 0)
    if stop == len(data) and not is_skipped and lz4_content_size(data) == nbytes:
        return _sized(_lz4_frame(data, target), nbytes, "lz4 frame")
    start = filled = 0
    while start < len(data):
        stop, is_skipped = lz4_frame_end(data, start)
        if not is_skipped:
            # one byte more than wanted: the decoder stops silently at the end of its target
            piece = _lz4_frame(data[start:stop], np.empty(nbytes - filled + 1, np.uint8))
            if filled + len(piece) > nbytes:
                raise ChunkDecodeError(
                    f"lz4 frame: decodes to more than the expected {nbytes} bytes"
                )
            target[filled : filled + len(piece)] = piece
            filled += len(piece)
        start = stop
    return _sized(target[:filled], nbytes, "lz4 frame")


def _lz4_frame(data: Bytes1D, target: Bytes1D) -> Bytes1D:
    try:
        return as_bytes(imagecodecs.lz4f_decode(data, out=target))
    except DAMAGED as e:
        raise ChunkDecodeError(f"lz4 frame: {e}") from e


def lz4_content_size(data: Bytes1D) -> int | None:
    """Give the decoded size that a frame tells; its own checksum covers it."""
    head = data[:14].tobytes()
    has_size = len(head) == 14 and head[:4] == LZ4_FRAME and head[4] & 0x08
    return int.from_bytes(head[6:14], "little") if has_size else None


LZ4_FRAME = b"\x04\x22\x4d\x18"


def lz4_frame_end(data: Bytes1D, start: int) -> tuple[int, bool]:
    """Give where the frame at `start` ends, and whether it is one to skip (LZ4 frame format)."""
    head = data[start : start + 8].tobytes()
    if len(head) == 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        stop = start + 8 + int.from_bytes(head[4:8], "little")
    elif head[:4] != LZ4_FRAME or len(head) < 7:
        raise ChunkDecodeError(f"lz4 frame: begins with {head[:4].hex()}, expected 04224d18")
    else:
        flags = head[4]
        stop = start + 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        checksum = 4 if flags & 0x10 else 0
        while block := int.from_bytes(data[stop : stop + 4].tobytes(), "little") & 0x7FFFFFFF:
            stop += 4 + block + checksum
        stop += 8 if flags & 0x04 else 4
    if stop > len(data):
        raise ChunkDecodeError(f"lz4 frame: ends after {len(data) - start} bytes, before its end")
    return stop, head[:4] != LZ4_FRAME


def decode_lz4_block(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _decoded(imagecodecs.lz4_decode, data, _target(nbytes, out), "lz4 block")


def decode_blosc(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    # the decoder believes the header: held against the stream here, it cannot read beyond its end
    if len(data) < 16:
        raise ChunkDecodeError(f"blosc: {len(data)} bytes, expected a header of 16")
    decoded, _, stored = struct.unpack("<III", data[4:16])
    if decoded != nbytes:
        raise ChunkDecodeError(f"blosc: decodes to {decoded} bytes, expected {nbytes}")
    if not 16 <= stored <= len(data):
        raise ChunkDecodeError(f"blosc: announces {stored} stored bytes, there are {len(data)}")
    target = _target(nbytes, out)
    return _decoded(imagecodecs.blosc_decode, data, target, "blosc", numthreads=1)


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


LEVELS = {
    "gzip": (6, 0, 9),
    "zlib": (6, 0, 9),
    "bzip2": (9, 1, 9),
    "xz": (6, 0, 9),
    "zstd": (3, -(1 << 17), 22),
    "lz4_frame": (0, 0, 12),
    "lz4_block": (0, 0, 12),
    "blosc": (5, 0, 9),
}
"""The usual, the lowest and the highest level of each compression that has levels."""


def check_level(name: str, level: int | None) -> int:
    """Give `level`, or the usual one for None."""
    usual, lowest, highest = LEVELS[name]
    if level is None:
        return usual
    if type(level) is not int or not lowest <= level <= highest:
        raise CodecConfigError(f"{name}: level {level!r} is outside {lowest} to {highest}")
    return level


def encode_raw(data: Bytes1D, level: int | None = None) -> BytesLike:
    return data


def encode_gzip(data: Bytes1D, level: int | None = None) -> BytesLike:
    return bytes(imagecodecs.gzip_encode(data, level=check_level("gzip", level)))


def encode_zlib(data: Bytes1D, level: int | None = None) -> BytesLike:
    return bytes(imagecodecs.deflate_encode(data, level=check_level("zlib", level)))


def encode_bzip2(data: Bytes1D, level: int | None = None) -> BytesLike:
    return bz2.compress(data, check_level("bzip2", level))


def encode_xz(data: Bytes1D, level: int | None = None) -> BytesLike:
    return lzma.compress(data, preset=check_level("xz", level))


def encode_zstd(data: Bytes1D, level: int | None = None) -> BytesLike:
    """Write one frame that tells its decoded size."""
    level = check_level("zstd", level)
    return bytes(imagecodecs.zstd_encode(data, level=level, numthreads=1))


def encode_lz4_frame(data: Bytes1D, level: int | None = None) -> BytesLike:
    """Write one frame that tells its decoded size and a checksum of the content."""
    level = check_level("lz4_frame", level)
    return bytes(imagecodecs.lz4f_encode(data, level=level, contentsize=True, contentchecksum=True))


def encode_lz4_block(data: Bytes1D, level: int | None = None) -> BytesLike:
    """Write one bare block; level 0 is the fast encoder, the others the strong one."""
    level = check_level("lz4_block", level)
    if level == 0:
        return bytes(imagecodecs.lz4_encode(data))
    return bytes(imagecodecs.lz4_encode(data, level=level, hc=True))


BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


def encode_blosc(
    data: Bytes1D,
    level: int | None = None,
    *,
    compressor: str = "lz4",
    shuffle: int = 1,
    typesize: int = 1,
    blocksize: int = 0,
) -> BytesLike:
    """Write one Blosc 1 chunk; `shuffle` 0 none, 1 by bytes, 2 by bits."""
    if compressor not in BLOSC_COMPRESSORS:
        raise CodecConfigError(
            f"blosc: compressor {compressor!r}, known: {' '.join(BLOSC_COMPRESSORS)}"
        )
    if shuffle not in (0, 1, 2):
        raise CodecConfigError(f"blosc: shuffle {shuffle!r}, expected 0, 1 or 2")
    if typesize > 1 and len(data) % typesize == 0:
        # imagecodecs takes the size of an element from its input, whatever `typesize` says
        data = data.view(f"V{typesize}")
    return bytes(
        imagecodecs.blosc_encode(
            data,
            level=check_level("blosc", level),
            compressor=compressor,
            shuffle=shuffle,
            blocksize=blocksize,
            numthreads=1,
        )
    )


ENCODE: dict[str, Encode] = {
    "raw": encode_raw,
    "gzip": encode_gzip,
    "zlib": encode_zlib,
    "bzip2": encode_bzip2,
    "xz": encode_xz,
    "zstd": encode_zstd,
    "lz4_frame": encode_lz4_frame,
    "lz4_block": encode_lz4_block,
    "blosc": encode_blosc,
}
