"""Find the tile-parts of a JPEG 2000 codestream: from TLM, or else by following SOT markers.

Spec: ITU-T T.800 A.4.2 (SOT), A.7.1 (TLM).

Packets themselves are never needed: TLM lists the length of every tile-part in the main
header, and without it the 12 bytes of each SOT lead to the next. TLM is optional and sometimes
wrong, so it is checked against the stream as far as that is cheap, and ignored if it contradicts
the stream.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codestream.jpeg2000 import (
    END,
    SOD,
    SOT,
    SOT_BYTES,
    MainHeader,
    NeedsMoreError,
    Siz,
    find_end,
    read_main_header,
    segments,
)
from anychunk.errors import AnychunkError, FormatError, TruncatedError
from anychunk.native import loops

type Uint64 = npt.NDArray[np.uint64]

HEAD = 16 * limits.KIB
"""Bytes of the first read; most main headers are shorter."""
WINDOW = 16 * limits.MIB
"""Most bytes per read if tile-parts are not skipped."""
FIRST, GROWTH = 32, 8
"""How many tile-parts the first such read covers, and how much longer each following one is."""
SMALLEST = SOT_BYTES + 2
"""Bytes of an empty tile-part: SOT and SOD."""
MOST_TILES = 1 << 16
"""T.800 A.4.2: the number of a tile has 16 bits."""


class Readable(Protocol):
    """The part of `io.Source` that is needed; `codestream` does not import `io`."""

    @property
    def url(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> npt.NDArray[np.uint8]: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Codestream:
    """A codestream in a source: its main header, and the byte ranges of every tile."""

    header: MainHeader
    offset: int
    length: int
    """From SOC up to and including EOC, or to the announced end without one."""
    starts: Uint64
    """Tile `i` has the ranges from `starts[i]` to `starts[i + 1]`, in the order of the file."""
    offsets: Uint64
    lengths: Uint64
    has_tlm: bool = False
    """Whether the ranges come from TLM."""

    @property
    def order(self) -> list[int]:
        """The tile of each tile-part, in the order of the file."""
        at = np.argsort(self.offsets)
        tiles: list[int] = (np.searchsorted(self.starts, at, "right") - 1).tolist()
        return tiles


@dataclass(eq=False)
class _Parts:
    """Tile-parts in the order of the file."""

    tiles: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    @property
    def end(self) -> int:
        """Position after the last tile-part; they follow each other without gaps."""
        return int(self.offsets[-1] + self.lengths[-1]) if len(self.offsets) else 0


def index_tiles(
    source: Readable,
    offset: int,
    length: int,
    *,
    is_announced: bool = False,
    header: MainHeader | None = None,
) -> Codestream:
    """Find the byte ranges of every tile of a codestream.

    EOC must follow the last tile-part (T.800 A.4.4). It is the only proof that no bytes were lost
    or inserted inside that tile-part: its length would then lead elsewhere, but the lengths in its
    packet headers would still add up, and it would decode to wrong pixels.

    Parameters:
        source: Where to read.
        offset: Position of SOC in the source.
        length: Maximum length of the codestream; bytes after EOC are ignored.
        is_announced: Whether the container states `length`. Then the last tile-part may end there
            without EOC: the two lengths prove each other. Some satellite images lack EOC.
        header: The main header, if it is known already.

    Raises:
        TruncatedError: A tile has no tile-part, a tile-part ends outside the range, or there is no
            EOC.
        FormatError: A header breaks the rules.
    """
    try:
        return _index_tiles(source, offset, length, is_announced=is_announced, header=header)
    except NeedsMoreError as e:
        raise TruncatedError(f"{source.url} codestream @{offset}: {e}") from e
    except AnychunkError as e:
        raise type(e)(f"{source.url} codestream @{offset}: {e}") from e


def _index_tiles(
    source: Readable, offset: int, length: int, *, is_announced: bool, header: MainHeader | None
) -> Codestream:
    if offset + length > source.size():
        raise TruncatedError(
            f"{length} bytes announced at byte {offset}, the object ends after {source.size()}"
        )
    header = read_header(source, offset, length) if header is None else header
    first, end = offset + header.length, offset + length
    parts = tlm_parts(source, header, first, end) if header.tlm else None
    has_tlm = parts is not None and _has_end(source, parts.end, end, is_announced=is_announced)
    if parts is None or not has_tlm:
        parts = sot_parts(source, header.siz, first, end)
    order = np.argsort(parts.tiles, kind="stable")
    counts = np.bincount(parts.tiles, minlength=header.siz.tiles)
    missing = np.flatnonzero(counts == 0)
    # a tile without samples has no packets; some encoders leave out its tile-part as well
    missing = missing[header.siz.holds_samples(missing)] if len(missing) else missing
    if len(missing):
        raise TruncatedError(
            f"{len(missing)} of {header.siz.tiles} tiles are missing, the first is "
            f"tile {missing[0]}"
        )
    last = parts.end
    if not has_tlm and not _has_end(source, last, end, is_announced=is_announced):
        found = source.read(last, min(2, end - last)).tobytes().hex() or "nothing"
        raise TruncatedError(
            f"@{last}: expected EOC (ffd9) after the last tile-part, found {found}; bytes of the "
            "codestream were lost or inserted"
        )
    starts = np.zeros(header.siz.tiles + 1, np.uint64)
    np.cumsum(counts, out=starts[1:].view(np.int64))
    return Codestream(
        header=header,
        offset=offset,
        length=min(last + 2, end) - offset,
        starts=starts,
        offsets=parts.offsets[order].astype(np.uint64),
        lengths=parts.lengths[order].astype(np.uint64),
        has_tlm=has_tlm,
    )


def read_header(source: Readable, offset: int, length: int) -> MainHeader:
    """Read the main header, in one or a few requests."""
    needed = HEAD
    while True:
        limits.check_header(needed, where="main header")
        taken = min(needed, length)
        try:
            return read_main_header(source.read(offset, taken).tobytes())
        except NeedsMoreError as e:
            if taken == length:
                raise
            needed = max(e.needed, 16 * needed)


def sot_parts(source: Readable, siz: Siz, first: int, end: int) -> _Parts:
    """Collect tile-parts by following SOT markers; small remote ones are read, not skipped.

    Ends at the first marker that is not SOT, usually EOC.
    """
    single = _single_parts(source, siz, first, end)
    if single is not None:
        return single
    tiles, offsets, lengths = [], [], []
    seen: dict[int, int] = {}
    announced: dict[int, int] = {}
    count = siz.tiles
    at = _reader(source, first, end)
    position = first
    while position + SOT_BYTES <= end:
        marker, lsot, tile, length, number, total = struct.unpack(">HHHIBB", at(position))
        if marker != SOT:
            break
        expected = seen.get(tile, 0)
        if lsot != 10 or tile >= count or number != expected:
            raise FormatError(
                f"@{position}: SOT of {lsot} bytes for tile {tile} part {number}, expected 10 "
                f"bytes, a tile below {count}, part {expected}"
            )
        if length == 0:
            length = _last_length(source, position, end)
        if length < SMALLEST or position + length > end:
            raise TruncatedError(
                f"@{position}: tile {tile} part {number} has {length} bytes, expected {SMALLEST} "
                f"to {end - position}"
            )
        seen[tile] = number + 1
        if total and announced.setdefault(tile, total) != total:
            raise FormatError(
                f"@{position}: tile {tile} announces {total} parts (TNsot), expected "
                f"{announced[tile]} as in its earlier parts"
            )
        tiles.append(tile)
        offsets.append(position)
        lengths.append(length)
        position += length
    # more parts than announced are accepted: some encoders write one too few as TNsot
    short = next((t for t, n in announced.items() if seen[t] < n), None)
    if short is not None:
        raise TruncatedError(
            f"tile {short} has {seen[short]} parts, expected {announced[short]} (TNsot)"
        )
    return _Parts(
        np.array(tiles, np.int64), np.array(offsets, np.int64), np.array(lengths, np.int64)
    )


def _single_parts(source: Readable, siz: Siz, first: int, end: int) -> _Parts | None:
    """Do that with the compiled loop; None if a tile has several parts, or anything is unusual."""
    if loops is None or not source.is_local or not 1 < siz.tiles <= MOST_TILES or first > end:
        return None
    found = np.empty((siz.tiles, 3), np.int64)
    count = loops.tile_parts(source.read(first, end - first), found)
    if count < 0:
        return None
    tiles, offsets, lengths = found[:count].T
    return _Parts(tiles, offsets + first, lengths)


def _has_end(source: Readable, position: int, end: int, *, is_announced: bool) -> bool:
    """Return whether the codestream ends at `position`: with EOC, or where it is announced to.

    A remote file that has exactly two more bytes is not asked for them, which would cost a
    request: if bytes had been lost or inserted, its length would not agree.
    """
    if position == end:
        return is_announced
    if not source.is_local and position == end - 2 == source.size() - 2:
        return True
    return position + 2 <= end and source.read(position, 2).tobytes() == END


def _last_length(source: Readable, position: int, end: int) -> int:
    """Return the length of a last tile-part whose SOT says 0: up to EOC (T.800 A.4.2).

    Up to `end` if there is no EOC. Padding may follow EOC, so it is searched for if it is not at
    the very end.
    """
    if end - position >= SMALLEST + 2 and source.read(end - 2, 2).tobytes() == END:
        return end - 2 - position
    begin, window = position, source.read(position, min(WINDOW, end - position)).tobytes()
    *_, (_, sod, _) = segments(window, SOT_BYTES, SOD)
    at = find_end(window, sod + 2)
    while at is None and begin + len(window) < end:
        # the overlap holds an EOC that straddles windows, and the SOP before what is no EOC
        begin += len(window) - 6
        window = source.read(begin, min(WINDOW, end - begin)).tobytes()
        at = find_end(window, 5)
    return (end if at is None else begin + at) - position


def _reader(source: Readable, first: int, end: int) -> Callable[[int], memoryview]:
    """Return a function that reads the 12 bytes of SOT at a position; positions must increase."""
    if not source.is_local:
        return _ReadAhead(source, first, end)
    view = _view(source, first, end - first)
    return lambda position: view[position - first : position - first + SOT_BYTES]


def _view(source: Readable, offset: int, length: int) -> memoryview:
    return memoryview(source.read(offset, length))


class _ReadAhead:
    """Reads successive SOT of a remote source, and no byte twice.

    Tile-parts are skipped, unless they are so short that a request costs more than reading them:
    the rule by which ranges of chunks are coalesced.
    """

    def __init__(self, source: Readable, first: int, end: int) -> None:
        self._source, self._first, self._end = source, first, end
        self._window, self._start = memoryview(b""), first
        self._count = 0
        self._length = 0

    def __call__(self, position: int) -> memoryview:
        if position + SOT_BYTES > self._start + len(self._window):
            # the mean length so far is the best estimate for the next tile-parts
            mean = (position - self._first) // self._count if self._count else self._end
            is_short = mean <= limits.get().coalesce_gap
            self._length = max(FIRST * mean, GROWTH * self._length) if is_short else 0
            length = min(self._length, WINDOW) or SOT_BYTES
            self._window = _view(self._source, position, min(length, self._end - position))
            self._start = position
        self._count += 1
        return self._window[position - self._start : position - self._start + SOT_BYTES]


def tlm_parts(source: Readable, header: MainHeader, first: int, end: int) -> _Parts | None:
    """Return the tile-parts that TLM lists, or None if TLM contradicts the stream."""
    entries = [_tlm_entries(body) for _, body in sorted(header.tlm)]
    if any(entry is None for entry in entries):
        return None
    lengths = np.concatenate([entry[1] for entry in entries if entry is not None])
    given = [entry[0] for entry in entries if entry is not None]
    if all(numbers is None for numbers in given):
        tiles = np.arange(len(lengths))  # T.800 table A.34: one tile-part per tile, in order
    elif any(numbers is None for numbers in given):
        return None
    else:
        tiles = np.concatenate([numbers for numbers in given if numbers is not None])
    if not len(tiles) or tiles.max() >= header.siz.tiles or lengths.min() < SMALLEST:
        return None
    ends = first + np.cumsum(lengths)
    offsets = ends - lengths
    parts = _Parts(tiles, offsets, lengths)
    return parts if _fits(source, parts, end) else None


def _tlm_entries(
    body: bytes,
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]] | None:
    """Return tile numbers (None if not given) and lengths of one TLM; None if it is malformed.

    T.800 table A.33, Stlm: the number of bytes per tile number (0, 1, 2) and per length (2, 4).
    """
    if not body:
        return None
    number_size, length_size = body[0] >> 4 & 3, 4 if body[0] & 0x40 else 2
    size = number_size + length_size
    if number_size == 3 or (len(body) - 1) % size:
        return None
    table = np.frombuffer(body, np.uint8, offset=1).reshape(-1, size).astype(np.int64)
    weights = 256 ** np.arange(length_size - 1, -1, -1)
    lengths = table[:, number_size:] @ weights
    if number_size == 0:
        return None, lengths
    return table[:, :number_size] @ 256 ** np.arange(number_size - 1, -1, -1), lengths


def _fits(source: Readable, parts: _Parts, end: int) -> bool:
    """Return whether TLM agrees with the stream.

    In a local source, every SOT is compared. In a remote one, the SOT of every chunk is checked
    against its length when the chunk is decoded.
    """
    if parts.end > end:
        return False
    if not source.is_local:
        return True
    view = source.read(0, end)
    heads = view[parts.offsets[:, None] + np.arange(SOT_BYTES)]
    words = heads.astype(np.int64)
    lengths = words[:, 6] << 24 | words[:, 7] << 16 | words[:, 8] << 8 | words[:, 9]
    lengths[-1] = lengths[-1] or parts.lengths[-1]
    return bool(
        (words[:, :4] == (0xFF, 0x90, 0, 10)).all()
        and (words[:, 4] << 8 | words[:, 5] == parts.tiles).all()
        and (lengths == parts.lengths).all()
    )
