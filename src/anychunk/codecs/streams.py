"""Compressed streams: one function per compression and direction, strict about the decoded size.

Every format and codec compresses and decompresses through this module.

Decoders take the stream, the exact decoded size, and optionally a buffer of that size to decode
into. A stream that is truncated, too long, damaged or followed by other bytes raises
`ChunkDecodeError`; `leading_streams` decodes streams that other bytes may follow. Some decoders of
imagecodecs silently truncate or pad (LZ4 frames, bzip2, xz), ignore what follows a stream (gzip,
zlib) or trust sizes in it (Blosc), so these are guarded here or replaced by the standard library.

Encoders take a level, or None for the default of the compression, and raise `CodecConfigError` for
a level out of range.
"""

import bz2
import lzma
import struct
import zlib
from collections.abc import Buffer as BytesLike
from collections.abc import Callable
from typing import Any, Protocol

import imagecodecs
import numpy as np

from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError, CodecConfigError, OptionError
from anychunk.io.buffers import borrowed
from anychunk.native import loops

DAMAGED = (RuntimeError, ValueError)
"""Exceptions of imagecodecs for streams that it cannot decode."""

type Decode = Callable[[Bytes1D, int, Bytes1D | None], Bytes1D]
type DecodeBounded = Callable[[Bytes1D, int], Bytes1D]
type Encode = Callable[[Bytes1D, int | None], BytesLike]


def _sized(data: Any, nbytes: int, name: str) -> Bytes1D:
    """Return the decoded bytes, after checking that there are `nbytes`."""
    view = as_bytes(data)
    if len(view) != nbytes:
        raise ChunkDecodeError(f"{name}: decodes to {len(view)} bytes, expected {nbytes}")
    return view


def _target(nbytes: int, out: Bytes1D | None) -> Bytes1D:
    """Return `out` if it has the right size, else a new buffer."""
    return out if out is not None and len(out) == nbytes else np.empty(nbytes, np.uint8)


def decode_raw(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _sized(data, nbytes, "raw")


def _decoded(
    decode: Callable[..., Any], data: Bytes1D, target: Bytes1D, name: str, **options: Any
) -> Bytes1D:
    """Decode with a function of imagecodecs into `target`, which it must fill."""
    try:
        found = decode(data, out=target, **options)
    except DAMAGED as e:
        raise ChunkDecodeError(f"{name}: {e}, expected {len(target)} decoded bytes") from e
    return _sized(found, len(target), name)


def decode_zstd(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _decoded(imagecodecs.zstd_decode, data, _target(nbytes, out), "zstd")


def decode_gzip(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Decode one or more gzip members.

    libdeflate is the fastest, but stops after the first member and ignores what follows. Whatever
    it cannot decode to the full size, or does not end with the checksum and that size (RFC 1952
    section 2.3.1), is decoded again by zlib, which says what is wrong with the stream.
    """
    target = _target(nbytes, out)
    try:
        first = as_bytes(imagecodecs.gzip_decode(data, out=target))
    except DAMAGED:
        return _inflate(data, nbytes, "gzip", wbits=31)
    if len(first) == nbytes:
        end = struct.pack("<II", imagecodecs.deflate_crc32(first), nbytes & 0xFFFFFFFF)
        if data[-8:].tobytes() == end:
            return first
    return _inflate(data, nbytes, "gzip", wbits=31)


def decode_zlib(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Decode one zlib stream.

    libdeflate ignores what follows a stream, which ends with a checksum of the decoded bytes (RFC
    1950 section 2.2); if the data does not, zlib says what is wrong.
    """
    try:
        found = _sized(imagecodecs.deflate_decode(data, out=_target(nbytes, out)), nbytes, "zlib")
    except DAMAGED:
        return _inflate(data, nbytes, "zlib", wbits=15)
    if data[-4:].tobytes() != struct.pack(">I", imagecodecs.deflate_adler32(found)):
        return _inflate(data, nbytes, "zlib", wbits=15)
    return found


def _inflate(data: Bytes1D, nbytes: int, name: str, *, wbits: int) -> Bytes1D:
    """Decode with zlib; `wbits` selects the container, gzip (31) or zlib (15)."""

    def make() -> Any:
        return zlib.decompressobj(wbits=wbits)

    # a zlib stream is one: RFC 1950 knows no members
    return _streamed(data, nbytes, name, make, (zlib.error,), is_one=wbits == 15)


def _streamed(
    data: Bytes1D,
    nbytes: int,
    name: str,
    make: Callable[[], Any],
    errors: tuple[type[Exception], ...],
    **options: Any,
) -> Bytes1D:
    """Decode all members of a stream of known decoded size, as `_members` does."""
    return _sized(_members(data, nbytes, name, make, errors, **options), nbytes, name)


STARTS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")
"""The first bytes of members of gzip, bzip2 and xz."""


def _members(
    data: Bytes1D,
    most: int,
    name: str,
    make: Callable[[], Any],
    errors: tuple[type[Exception], ...],
    *,
    padding: int = 0,
    is_one: bool = False,
) -> Bytes1D:
    """Decode all members of a stream with decoders of the standard library.

    Parameters:
        data: the stream.
        most: the largest decoded size.
        name: the compression, for messages.
        make: returns a decoder for one member.
        errors: what that decoder raises for damaged data.
        padding: after each member, as many zero bytes may follow, or a multiple; 0 for none.
        is_one: whether there is only one member.
    """
    pieces: list[bytes] = []
    rest, left = data.tobytes(), most
    while rest:
        stream = make()
        try:
            # one byte more than expected: enough to notice a stream that is too long, and no more
            piece = stream.decompress(rest, max_length=left + 1)
        except errors as e:
            raise ChunkDecodeError(f"{name}: {e}") from e
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise ChunkDecodeError(f"{name}: decodes to more than {most} bytes")
        if not stream.eof:
            raise ChunkDecodeError(
                f"{name}: truncated after {most - left} decoded bytes, expected {most}"
            )
        rest = stream.unused_data
        zeros = len(rest) - len(rest.lstrip(b"\0")) if padding else 0
        rest = rest[zeros - zeros % padding :] if zeros else rest
        if rest and (is_one or not rest.startswith(STARTS)):
            raise ChunkDecodeError(f"{name}: {len(rest)} bytes follow the end of the stream")
    return as_bytes(b"".join(pieces))


def decode_bzip2(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _streamed(data, nbytes, "bzip2", bz2.BZ2Decompressor, (OSError, ValueError, EOFError))


XZ_MEMORY = 256 << 20
"""The most memory of a decoder: a header may ask for 4 GiB, the highest preset needs 65 MiB."""
XZ_PADDING = 4
"""The .xz file format, section 2.2: zero bytes after a stream, a multiple of four, belong to it."""


XZ_START, XZ_END = b"\xfd7zXZ\0", b"YZ"
XZ_HEADER = 12
"""Bytes of the header and of the footer of a stream."""
XZ_LZMA2 = 0x21
XZ_CHECKS = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
"""Bytes of the check of a block, by its number in the flags of the stream."""


def decode_one_xz(data: Bytes1D, out: Bytes1D) -> Bytes1D | None:
    """Decode a stream of one block that fills `data`, faster than the standard library does.

    imagecodecs has a newer liblzma, but returns what it has of a truncated stream. A stream whose
    parts follow each other without a gap to the end of `data` is not truncated; and if there is
    room for another byte, liblzma goes on to the end, and compares the check of the block, the
    sizes in the index and the footer.

    Returns:
        the decoded bytes, in `out`; None if they are more than that, or the standard library has to
        decide what the stream is.
    """
    nbytes = one_xz_block(data)
    if nbytes is None or nbytes > len(out):
        return None
    with borrowed("xz", nbytes + 1) as room:
        try:
            found = imagecodecs.lzma_decode(data, out=room)
        except DAMAGED:
            return None
        if len(found) != nbytes:
            return None
        out[:nbytes] = found
    return out[:nbytes]


def one_xz_block(data: Bytes1D) -> int | None:
    """Return the decoded size of an .xz stream, if its parts fill `data` without a gap.

    None if it has not one block of LZMA2 alone, or the block asks for more memory than `XZ_MEMORY`.
    The .xz file format, sections 2 to 4.
    """
    if loops is None:
        return _one_xz_block(data)
    found = loops.xz_block(data, XZ_MEMORY)
    return None if found < 0 else found


def _one_xz_block(data: Bytes1D) -> int | None:
    """Do the same without the compiled module."""
    if len(data) < 3 * XZ_HEADER:
        return None
    stored = memoryview(data)
    tail = bytes(stored[-XZ_HEADER:])
    size = 4 * (int.from_bytes(tail[4:8], "little") + 1)
    start = len(data) - XZ_HEADER - size
    if start < 2 * XZ_HEADER or bytes(stored[: len(XZ_START)]) != XZ_START or tail[-2:] != XZ_END:
        return None
    # the index: its marker, the number of records, two sizes, padding and a checksum
    index = bytes(stored[start:-XZ_HEADER])
    unpadded, at = _xz_integer(index, 2)
    nbytes, at = _xz_integer(index, at)
    if index[:2] != b"\0\1" or not 4 <= size - at < 8 or stored[7] >= len(XZ_CHECKS):
        return None
    end = XZ_HEADER + unpadded - XZ_CHECKS[stored[7]]
    if XZ_HEADER + -(-unpadded // 4) * 4 != start or end <= 2 * XZ_HEADER:
        return None
    # the header of the block: its size, no flags, and the only filter with its dictionary
    flags, *only_filter, exponent = stored[XZ_HEADER + 1 : XZ_HEADER + 5]
    memory = (2 | exponent & 1) << (exponent // 2 + 11)
    if flags or only_filter != [XZ_LZMA2, 1] or memory > XZ_MEMORY:
        return None
    first = XZ_HEADER + 4 * (stored[XZ_HEADER] + 1)
    return nbytes if _lzma2_bytes(stored, first, end - 1) == nbytes else None


def _lzma2_bytes(stored: memoryview, at: int, last: int) -> int | None:
    """Return what the chunks of LZMA2 decode to, by their headers.

    None if they do not end in an end marker at `last`, or one of them is too short to read more
    than its header.
    """
    total = 0
    while at < last - 5:
        control = stored[at]
        decoded = 1 + (stored[at + 1] << 8 | stored[at + 2])
        if control >= 0x80:  # compressed; from 0xC0 on with properties
            total += decoded + ((control & 0x1F) << 16)
            at += 1 + (stored[at + 3] << 8 | stored[at + 4]) + (6 if control >= 0xC0 else 5)
        elif control in (1, 2):  # not compressed
            total += decoded
            at += 3 + decoded
        else:
            return None
    return total if at == last and not stored[last] else None


def _xz_integer(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of seven bits per byte, and where it ends."""
    value = shift = 0
    for byte in data[at : at + 9]:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def decode_xz(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    found = decode_one_xz(data, _target(nbytes, out))
    if found is not None and len(found) == nbytes:
        return found

    def make() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    return _streamed(data, nbytes, "xz", make, (lzma.LZMAError, EOFError), padding=XZ_PADDING)


def decode_lz4_frame(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    """Decode one or more concatenated LZ4 frames; skippable frames are skipped."""
    target = _target(nbytes, out)
    stop, is_skipped = lz4_frame_end(data, 0)
    # one frame with the expected content size: the decoder can fill the target directly
    if stop == len(data) and not is_skipped and lz4_content_size(data) == nbytes:
        return _sized(_lz4_frame(data, target), nbytes, "lz4 frame")
    start = filled = 0
    while start < len(data):
        stop, is_skipped = lz4_frame_end(data, start)
        if not is_skipped:
            # one byte more than expected: the decoder stops silently at the end of its target
            piece = _lz4_frame(data[start:stop], np.empty(nbytes - filled + 1, np.uint8))
            if filled + len(piece) > nbytes:
                raise ChunkDecodeError(f"lz4 frame: decodes to more than {nbytes} bytes")
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
    """Return the content size in the header of a frame, or None if it has none."""
    head = data[:14].tobytes()
    has_size = len(head) == 14 and head[:4] == LZ4_FRAME and head[4] & 0x08
    return int.from_bytes(head[6:14], "little") if has_size else None


LZ4_FRAME = b"\x04\x22\x4d\x18"


def lz4_frame_end(data: Bytes1D, start: int) -> tuple[int, bool]:
    """Return where the frame at `start` ends, and whether it is a skippable frame.

    LZ4 frame format 1.6: magic (4), FLG, BD, content size (8, if FLG bit 3), dictionary id (4, if
    bit 0), header checksum (1); blocks of a 4-byte size (bit 31 set: uncompressed), the data,
    and a checksum (4, if bit 4); a size of zero; content checksum (4, if bit 2). A skippable
    frame is magic 184D2A5x, a size, and that many bytes.
    """
    head = data[start : start + 8].tobytes()
    if len(head) == 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        stop = start + 8 + int.from_bytes(head[4:8], "little")
    elif head[:4] != LZ4_FRAME or len(head) < 7:
        raise ChunkDecodeError(f"lz4 frame: starts with {head[:4].hex()}, expected 04224d18")
    else:
        flags = head[4]
        stop = start + 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        checksum = 4 if flags & 0x10 else 0
        while block := int.from_bytes(data[stop : stop + 4].tobytes(), "little") & 0x7FFFFFFF:
            stop += 4 + block + checksum
        stop += 8 if flags & 0x04 else 4
    if stop > len(data):
        raise ChunkDecodeError(f"lz4 frame: truncated after {len(data) - start} bytes")
    return stop, head[:4] != LZ4_FRAME


def decode_lz4_block(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    return _decoded(imagecodecs.lz4_decode, data, _target(nbytes, out), "lz4 block")


def decode_blosc(data: Bytes1D, nbytes: int, out: Bytes1D | None = None) -> Bytes1D:
    # the decoder trusts the header and would read past the end of the stream: check it first
    if len(data) < 16:
        raise ChunkDecodeError(f"blosc: {len(data)} bytes, expected at least the header of 16")
    decoded, _, stored = struct.unpack("<III", data[4:16])
    if decoded != nbytes:
        raise ChunkDecodeError(f"blosc: decodes to {decoded} bytes, expected {nbytes}")
    # a byte too many may be one that was inserted: without compression nothing else would tell
    if stored != len(data):
        raise ChunkDecodeError(f"blosc: the header says {stored} stored bytes, found {len(data)}")
    target = _target(nbytes, out)
    return _decoded(imagecodecs.blosc_decode, data, target, "blosc", numthreads=1)


def decode_zstd_bounded(data: Bytes1D, most: int) -> Bytes1D:
    """Decode to at most `most` bytes; memory that is not filled is never touched."""
    try:
        return as_bytes(imagecodecs.zstd_decode(data, out=np.empty(most, np.uint8)))
    except DAMAGED as e:
        raise ChunkDecodeError(f"zstd: {e}, expected at most {most} decoded bytes") from e


def decode_gzip_bounded(data: Bytes1D, most: int) -> Bytes1D:
    return _members(data, most, "gzip", lambda: zlib.decompressobj(wbits=31), (zlib.error,))


def _first(
    data: Bytes1D,
    most: int,
    name: str,
    stream: Any,
    errors: tuple[type[Exception], ...],
    *,
    is_leading: bool,
) -> Bytes1D:
    """Decode the first member of a stream with a decoder of the standard library."""
    try:
        found = stream.decompress(data.tobytes(), max_length=most + 1)
    except errors as e:
        raise ChunkDecodeError(f"{name}: {e}") from e
    if len(found) > most:
        raise ChunkDecodeError(f"{name}: decodes to more than {most} bytes")
    if not stream.eof:
        raise ChunkDecodeError(f"{name}: truncated after {len(found)} decoded bytes")
    if stream.unused_data and not is_leading:
        follow = len(stream.unused_data)
        raise ChunkDecodeError(f"{name}: {follow} bytes follow the end of the stream")
    return as_bytes(found)


def decode_zlib_bounded(data: Bytes1D, most: int, *, is_leading: bool = False) -> Bytes1D:
    """Decode one stream; other bytes may follow if it `is_leading`."""
    return _first(data, most, "zlib", zlib.decompressobj(), (zlib.error,), is_leading=is_leading)


def decode_lzma_bounded(
    data: Bytes1D,
    most: int,
    *,
    is_leading: bool = False,
    format: int = lzma.FORMAT_XZ,
    filters: Any = None,
) -> Bytes1D:
    """Decode one stream.

    Parameters:
        data: the stream.
        most: the largest decoded size.
        is_leading: whether other bytes may follow the stream.
        format: one of the constants `lzma.FORMAT_…`.
        filters: of `lzma.FORMAT_RAW`.
    """
    is_raw = format == lzma.FORMAT_RAW
    try:
        if is_raw and any(f.get("dict_size", 0) > XZ_MEMORY for f in filters or ()):
            raise CodecConfigError(f"lzma: a dictionary of more than {XZ_MEMORY} bytes")
        stream = lzma.LZMADecompressor(format, None if is_raw else XZ_MEMORY, filters)
    except (lzma.LZMAError, ValueError, TypeError, AttributeError, OverflowError) as e:
        raise CodecConfigError(f"lzma: format {format!r} with filters {filters!r:.80}: {e}") from e
    errors = (lzma.LZMAError, EOFError)
    return _first(data, most, "lzma", stream, errors, is_leading=is_leading)


def decode_bzip2_bounded(data: Bytes1D, most: int) -> Bytes1D:
    return _members(data, most, "bzip2", bz2.BZ2Decompressor, (OSError, ValueError, EOFError))


def decode_blosc_bounded(data: Bytes1D, most: int) -> Bytes1D:
    announced = int.from_bytes(data[4:8].tobytes(), "little")
    return decode_blosc(data, _at_most(announced, most, "blosc"))


def decode_lz4_bounded(data: Bytes1D, most: int) -> Bytes1D:
    """Decode the LZ4 of numcodecs: the decoded size as a little-endian uint32, then one block."""
    announced = int.from_bytes(data[:4].tobytes(), "little")
    return decode_lz4_block(data[4:], _at_most(announced, most, "lz4"))


def _at_most(announced: int, most: int, name: str) -> int:
    if announced > most:
        raise ChunkDecodeError(f"{name}: decodes to {announced} bytes, expected at most {most}")
    return announced


DECODE: dict[str, Decode] = {
    "raw": decode_raw,
    "gzip": decode_gzip,
    "zlib": decode_zlib,
    "bzip2": decode_bzip2,
    "xz": decode_xz,
    "zstd": decode_zstd,
    "lz4": decode_lz4_frame,
    "lz4_block": decode_lz4_block,
    "blosc": decode_blosc,
}


LEVELS = {
    "gzip": (6, 0, 9),
    "zlib": (6, 0, 9),
    "bzip2": (9, 1, 9),
    "xz": (6, 0, 9),
    "zstd": (3, -(1 << 17), 22),
    "lz4": (0, 0, 12),
    "lz4_block": (0, 0, 12),
    "blosc": (5, 0, 9),
}
"""Default, lowest and highest level of each compression."""


def check_level(name: str, level: int | None) -> int:
    """Return `level`, or the default of the compression for None."""
    usual, lowest, highest = LEVELS[name]
    if level is None:
        return usual
    if type(level) is not int or not lowest <= level <= highest:
        raise CodecConfigError(f"{name}: level {level!r} is outside {lowest} to {highest}")
    return level


def check_option(name: str, level: Any, where: str) -> None:
    """Refuse a caller's level of a compression that has levels."""
    try:
        if name in LEVELS:
            check_level(name, level)
    except CodecConfigError as e:
        raise OptionError(f"{where}: compression_level: {e}") from None


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
    """Encode to one frame with its content size."""
    level = check_level("zstd", level)
    return bytes(imagecodecs.zstd_encode(data, level=level, numthreads=1))


def encode_lz4_frame(data: Bytes1D, level: int | None = None) -> BytesLike:
    """Encode to one frame with its content size and checksum."""
    level = check_level("lz4", level)
    return bytes(imagecodecs.lz4f_encode(data, level=level, contentsize=True, contentchecksum=True))


def encode_lz4_block(data: Bytes1D, level: int | None = None) -> BytesLike:
    """Encode to one bare block; level 0 is the fast encoder, the others are LZ4 HC."""
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
    """Encode to one Blosc 1 chunk.

    Parameters:
        data: the bytes to encode.
        level: 0 to 9; None for the default.
        compressor: one of `BLOSC_COMPRESSORS`.
        shuffle: 0 for none, 1 for bytes, 2 for bits.
        typesize: the size of an element, for shuffling.
        blocksize: block size in bytes; 0 lets Blosc choose.
    """
    if compressor not in BLOSC_COMPRESSORS:
        raise CodecConfigError(
            f"blosc: compressor {compressor!r}, expected one of {' '.join(BLOSC_COMPRESSORS)}"
        )
    if shuffle not in (0, 1, 2):
        raise CodecConfigError(f"blosc: shuffle {shuffle!r}, expected 0, 1 or 2")
    if typesize > 1 and len(data) % typesize == 0:
        # imagecodecs takes the element size from the dtype of its input and ignores `typesize`
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
    "lz4": encode_lz4_frame,
    "lz4_block": encode_lz4_block,
    "blosc": encode_blosc,
}


class Incremental(Protocol):
    """Encodes a stream piece by piece."""

    def compress(self, data: BytesLike, /) -> BytesLike:
        """Take the next piece; return what is encoded so far."""
        ...

    def flush(self) -> BytesLike:
        """Return the rest of the stream."""
        ...


class _Whole:
    """An encoder that gets everything at once: raw bytes pass, frames are made at the end."""

    def __init__(self, encode: Encode | None, level: int | None) -> None:
        self._encode, self._level = encode, level
        self._pieces: list[BytesLike] = []

    def compress(self, data: BytesLike, /) -> BytesLike:
        if self._encode is None:
            return data
        self._pieces.append(data)
        return b""

    def flush(self) -> BytesLike:
        if self._encode is None:
            return b""
        return self._encode(as_bytes(b"".join(self._pieces)), self._level)


def incremental_encoder(name: str, level: int | None = None) -> Incremental:
    """Return an encoder of one stream of raw, gzip, bzip2, zstd or lz4 (frame).

    Only the first three need no more memory than a piece.
    """
    if name == "gzip":
        # 31: with the header of gzip; no time in it, so equal samples give equal files
        return zlib.compressobj(check_level("gzip", level), wbits=31)
    if name == "bzip2":
        return bz2.BZ2Compressor(check_level("bzip2", level))
    if name == "raw":
        return _Whole(None, None)
    return _Whole(ENCODE[name], level)


FRONT = struct.Struct("<BI")
"""In front of a payload: whether its checksum is known, and its CRC-32 (ISO 3309)."""


def front(checksum: int | None) -> bytes:
    """Return the bytes in front of a payload; None means an unknown checksum."""
    return FRONT.pack(0, 0) if checksum is None else FRONT.pack(1, checksum)


def with_checksum(payload: Bytes1D) -> Bytes1D:
    """Return a payload after its checksum."""
    return np.concatenate([as_bytes(front(zlib.crc32(payload))), payload])


def without_checksum(data: Bytes1D) -> Bytes1D:
    """Return the payload after a checksum; raise `ChunkDecodeError` if they do not agree."""
    if len(data) < FRONT.size:
        raise ChunkDecodeError(f"crc32: {len(data)} bytes, expected at least {FRONT.size}")
    is_known, expected = FRONT.unpack(data[: FRONT.size])
    payload = data[FRONT.size :]
    found = zlib.crc32(payload) if is_known else expected
    if found != expected:
        raise ChunkDecodeError(
            f"crc32: the checksum of the {len(payload)} stored bytes is {found:08x}, "
            f"expected {expected:08x}"
        )
    return payload
