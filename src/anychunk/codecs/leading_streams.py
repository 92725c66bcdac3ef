"""Compressed streams at the start of a range: the bytes after their end are ignored.

For files that record where a stream begins but not where it ends, and for files whose payload has a
header inside the compressed stream.
"""

import zlib
from bz2 import BZ2Decompressor
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError

COMPRESSIONS = ("raw", "gzip", "bzip2", "zstd", "lz4")
BLOCK = 64 << 10
PIECE = 1 << 20
"""Decoded bytes at a time, if most of them are not kept."""
TAILED: dict[str, tuple[bytes, Callable[[], Any]]] = {
    "gzip": (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    "bzip2": (b"BZh", BZ2Decompressor),
}
"""Compressions whose last bytes can be decoded: how a member begins, and a decoder for one."""
ZSTD_FRAME = b"\x28\xb5\x2f\xfd"


def members(data: Bytes1D, nbytes: int, name: str, make: Callable[[], Any]) -> Bytes1D:
    """Decode members until there are `nbytes`, and the last of them to its end.

    The end of a member is where its checksum is verified. `make` returns a decoder for one member.
    """
    out = np.empty(nbytes, np.uint8)
    filled = start = 0
    while filled < nbytes or start == 0:
        length, start = member(data, start, out[filled:], name, make())
        filled += length
    return out


def member(data: Bytes1D, start: int, out: Bytes1D, name: str, decoder: Any) -> tuple[int, int]:
    """Decode the member at `start` into `out`; return its decoded length and where it ends."""
    filled = 0
    while not decoder.eof:
        # in blocks, because the decoder copies its unread input at the end of each member: a stream
        # of many small members would take quadratic time
        block = data[start : start + BLOCK] if getattr(decoder, "needs_input", True) else data[:0]
        try:
            piece = decoder.decompress(block, len(out) - filled + 1)
        except (zlib.error, OSError, ValueError, EOFError) as e:
            raise ChunkDecodeError(f"{name}: {e}") from e
        if filled + len(piece) > len(out):
            raise ChunkDecodeError(f"{name}: decodes to more than the remaining {len(out)} bytes")
        out[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
        unread = len(decoder.unused_data) + len(getattr(decoder, "unconsumed_tail", b""))
        if not piece and not len(block) and not decoder.eof:
            raise ChunkDecodeError(
                f"{name}: truncated, {len(out) - filled} decoded bytes are missing"
            )
        start += len(block) - unread
    return filled, start


def last_bytes(data: Bytes1D, nbytes: int, compression: str) -> Bytes1D:
    """Decode all members, however long they are; return the last `nbytes` decoded bytes.

    Not many more bytes are kept at a time. The total is checked against `limits`.
    """
    kept, length, total = deque[bytes](), 0, 0
    for piece in pieces(data, compression):
        total, length = total + len(piece), length + len(piece)
        limits.check_chunk(total, where="anychunk.stream", stored=len(data))
        kept.append(piece)
        while length - len(kept[0]) >= nbytes and len(kept) > 1:
            length -= len(kept.popleft())
    if total < nbytes:
        raise ChunkDecodeError(f"{compression}: {total} decoded bytes, expected at least {nbytes}")
    return as_bytes(b"".join(kept))[length - nbytes :]


def pieces(data: Bytes1D, compression: str) -> Iterator[bytes]:
    """Yield the decoded bytes of all members, `PIECE` at a time; what follows them is ignored."""
    magic, make = TAILED[compression]
    start = 0
    while start == 0 or data[start : start + len(magic)].tobytes() == magic:
        decoder = make()
        while not decoder.eof:
            needs_input = getattr(decoder, "needs_input", True)
            block = data[start : start + BLOCK] if needs_input else data[:0]
            try:
                piece = decoder.decompress(block, PIECE)
            except (zlib.error, OSError, ValueError, EOFError) as e:
                raise ChunkDecodeError(f"{compression}: {e}") from e
            if not piece and not len(block) and not decoder.eof:
                raise ChunkDecodeError(f"{compression}: truncated after {start} bytes")
            # at the end of a member, zlib repeats the unused data as its unconsumed tail
            tail = b"" if decoder.eof else getattr(decoder, "unconsumed_tail", b"")
            start += len(block) - len(decoder.unused_data) - len(tail)
            yield piece


def gzip(data: Bytes1D, nbytes: int) -> Bytes1D:
    """Decode gzip members; usually there is only one.

    libdeflate decodes one member and ignores the rest; if more members are needed, zlib starts
    over.
    """
    import imagecodecs

    try:
        first = as_bytes(imagecodecs.gzip_decode(data, out=np.empty(nbytes, np.uint8)))
    except streams.DAMAGED:
        first = data[:0]
    if nbytes and len(first) == nbytes:
        return first
    return members(data, nbytes, "gzip", lambda: zlib.decompressobj(wbits=31))


def zstd_frame_end(data: Bytes1D, start: int) -> tuple[int, bool]:
    """Return where the zstd frame at `start` ends, and whether it is a skippable frame.

    RFC 8878 section 3.1.1: magic (4), descriptor (1), window (1, unless single segment), dictionary
    id, content size; blocks of a 3-byte header with `last` (1 bit), type (2), size (21); checksum
    (4, if descriptor bit 2). A block of type 1 (RLE) stores one byte, whatever its size.
    """
    head = data[start : start + 18].tobytes()
    if len(head) >= 8 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18":
        stop = start + 8 + int.from_bytes(head[4:8], "little")
        is_skipped = True
    elif head[:4] != ZSTD_FRAME or len(head) < 6:
        raise ChunkDecodeError(f"zstd: starts with {head[:4].hex()}, expected 28b52ffd")
    else:
        flags, is_skipped = head[4], False
        is_single = bool(flags & 0x20)
        dictionary = (0, 1, 2, 4)[flags & 3]
        content = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
        stop = start + 5 + (0 if is_single else 1) + dictionary + content
        is_last = False
        while not is_last and stop + 3 <= len(data):
            block = int.from_bytes(data[stop : stop + 3].tobytes(), "little")
            is_last = bool(block & 1)
            stop += 3 + (1 if (block >> 1) & 3 == 1 else block >> 3)
        stop += 4 if flags & 0x04 else 0
        if not is_last:
            stop = len(data) + 1  # the blocks run past the data: report as truncated
    if stop > len(data):
        raise ChunkDecodeError(f"zstd: truncated after {len(data) - start} bytes")
    return stop, is_skipped


def frames(
    data: Bytes1D,
    nbytes: int,
    frame_end: Callable[[Bytes1D, int], tuple[int, bool]],
    decode: streams.Decode,
    decode_frame: Callable[[Bytes1D, int], Bytes1D],
) -> Bytes1D:
    """Decode as many whole frames as it takes to get `nbytes`.

    Parameters:
        data: frames, followed by anything.
        nbytes: the decoded size of all frames together.
        frame_end: returns where a frame ends, and whether it is a skippable frame.
        decode: decodes a stream of known decoded size.
        decode_frame: decodes one frame, to at most the given number of bytes.
    """
    stop = 0
    first = True
    have = np.empty(0, np.uint8)
    while first or len(have) < nbytes:
        start = stop
        stop, is_skipped = frame_end(data, start)
        if is_skipped:
            continue
        if first and stop == len(data):
            return decode(data, nbytes, None)
        piece = decode_frame(data[start:stop], nbytes - len(have))
        have = piece if first else np.concatenate([have, piece])
        first = False
    return have


def _zstd_frame(frame: Bytes1D, most: int) -> Bytes1D:
    import imagecodecs

    try:
        return as_bytes(imagecodecs.zstd_decode(frame, out=np.empty(most, np.uint8)))
    except streams.DAMAGED as e:
        raise ChunkDecodeError(f"zstd: {e}, expected at most {most} decoded bytes") from e


def _lz4_frame(frame: Bytes1D, most: int) -> Bytes1D:
    import imagecodecs

    try:
        # one byte more than expected: the decoder stops silently at the end of its target
        piece = as_bytes(imagecodecs.lz4f_decode(frame, out=np.empty(most + 1, np.uint8)))
    except streams.DAMAGED as e:
        raise ChunkDecodeError(f"lz4 frame: {e}") from e
    if len(piece) > most:
        raise ChunkDecodeError(f"lz4 frame: decodes to more than {most} bytes")
    return piece


def decode(compression: str, data: Bytes1D, nbytes: int) -> Bytes1D:
    """Decode the stream at the start of `data` to exactly `nbytes`; what follows it is ignored."""
    match compression:
        case "raw":
            if len(data) < nbytes:
                raise ChunkDecodeError(f"raw: {len(data)} bytes, expected at least {nbytes}")
            return data[:nbytes]
        case "gzip":
            return gzip(data, nbytes)
        case "bzip2":
            return members(data, nbytes, "bzip2", BZ2Decompressor)
        case "zstd":
            return frames(data, nbytes, zstd_frame_end, streams.decode_zstd, _zstd_frame)
        case _:
            return frames(data, nbytes, streams.lz4_frame_end, streams.decode_lz4_frame, _lz4_frame)
