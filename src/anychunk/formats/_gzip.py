"""Headers inside gzip streams: `.npy.gz`, `.nii.gz`."""

import zlib

from anychunk.errors import FormatError, TruncatedError
from anychunk.io import Source

MAGIC = b"\x1f\x8b"
STEP = 16 << 10
"""Stored bytes that are read at a time."""


def head_of(data: bytes, most: int) -> bytes:
    """Return the first decoded bytes of a stream of which `data` is the start; none if it is not.

    For `sniff`, which must not raise.
    """
    if not data.startswith(MAGIC):
        return b""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, most)
    except zlib.error:
        return b""


def read_head(source: Source, nbytes: int) -> bytes:
    """Return the first `nbytes` decoded bytes of a gzip file.

    Raises:
        FormatError: The stream is damaged; `TruncatedError` if it ends early.
    """
    decoder, found, at = zlib.decompressobj(wbits=31), b"", 0
    while len(found) < nbytes:
        block = source.read(at, min(STEP, source.size() - at)).tobytes()
        try:
            found += decoder.decompress(decoder.unconsumed_tail + block, nbytes - len(found))
        except zlib.error as e:
            raise FormatError(f"{source.url}: the gzip stream is damaged: {e}") from e
        at += len(block)
        if decoder.eof or (not block and len(found) < nbytes):
            break
    if len(found) < nbytes:
        raise TruncatedError(
            f"{source.url}: the gzip stream decodes to {len(found)} bytes, expected {nbytes}"
        )
    return found
