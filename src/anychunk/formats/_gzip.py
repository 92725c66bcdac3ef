"""Headers inside gzip streams of one or more members: `.npy.gz`, `.nii.gz`."""

from anychunk.codecs.seek.deflate import Inflating
from anychunk.codecs.seek.walk import Stream, stream_of
from anychunk.errors import ChunkDecodeError, FormatError, TruncatedError
from anychunk.io.source import Source

MAGIC = b"\x1f\x8b"


def head_of(data: bytes, most: int) -> bytes:
    """Return the first decoded bytes of a stream of which `data` is the start; none if it is not.

    For `sniff`, which must not raise.
    """
    if not data.startswith(MAGIC):
        return b""
    return _first(Inflating(stream_of(data), "gzip"), most)[0]


def read_head(source: Source, nbytes: int) -> bytes:
    """Return the first `nbytes` decoded bytes of a gzip file.

    Raises:
        FormatError: The stream is damaged; `TruncatedError` if it ends early.
    """
    state = Inflating(Stream(source.read, source.size()), "gzip")
    found, damage = _first(state, nbytes)
    if len(found) == nbytes:
        return found
    if damage is not None and state.at < source.size():
        raise FormatError(f"{source.url}: the gzip stream is damaged: {damage}") from damage
    raise TruncatedError(
        f"{source.url}: the gzip stream decodes to {len(found)} bytes, expected {nbytes}"
    )


def _first(state: Inflating, nbytes: int) -> tuple[bytes, ChunkDecodeError | None]:
    """Return the first decoded bytes, fewer if the stream ends or is damaged, and the damage."""
    found = b""
    try:
        while len(found) < nbytes and (piece := state.advance(nbytes - len(found))):
            found += piece
    except ChunkDecodeError as e:
        return found, e
    return found, None
