"""Divide the chunks of a selection among threads, where several are faster than one."""

from collections.abc import Callable

from anychunk.codecs.chain import Decoder
from anychunk.io.threads import run_ranges

INLINE_BYTES = 256 << 10
"""To decode up to this much, only the caller's thread is used: starting others would cost more."""
INLINE_JOINT = 16 << 10
"""The same for small tiles of JPEG 2000, which take ten times as long for the same number."""
INLINE_COPY = 4 << 20
"""The same for uncompressed chunks, which are only copied; `_copies_inline` has more conditions."""
FRESH_MEMORY = 32 << 20
"""The C library takes memory above this from the system, page by page as it is written to."""
RUN, RUN_JOINT = 64, 1024
"""Maximum number of chunks that a thread takes at a time; of those that are decoded together."""


def in_threads(
    run: Callable[[range], None], count: int, decode: Decoder, *, threads: int, row: int = 1
) -> None:
    """Call `run` on ranges that cover `count` chunks, on several threads if that is faster.

    Parameters:
        run: Called with a range of positions.
        count: The number of chunks.
        decode: Their decoder.
        threads: How many to use at most.
        row: Ranges are rows of so many chunks, if those are decoded faster together.
    """
    threads = min(threads, count)
    nbytes = decode.nbytes
    if decode.is_view:
        inline = _copies_inline(count, nbytes)
    else:
        inline = count * nbytes <= (INLINE_JOINT if decode.takes_many else INLINE_BYTES)
    if threads == 1 or inline:
        run(range(count))
        return
    if not decode.takes_many or row == 1:
        run_ranges(run, count, threads=threads, most=RUN)
        return

    # few and long: each is a call of the decoder, which takes as long as several chunks
    rows = -(-count // row)
    some = row * max(1, min(RUN_JOINT // row, -(-rows // (2 * threads))))

    def run_rows(parts: range) -> None:
        for part in parts:
            run(range(part * some, min((part + 1) * some, count)))

    run_ranges(run_rows, -(-count // some), threads=threads, most=1)


def _copies_inline(count: int, nbytes: int) -> bool:
    """Return whether one thread copies chunks of uncompressed samples as fast as several.

    Small copies spend most of their time in the interpreter, one thread at a time. How small they
    are depends on the memory that they write to: that of a large result is slower at first.
    """
    total = count * nbytes
    return total <= INLINE_COPY or nbytes < (64 << 10 if total > FRESH_MEMORY else 512 << 10)
