"""The lines of Group 3 facsimile between end-of-line codes: are they exactly what was decoded?

Spec: ITU-T T.4 tables 2 to 4 for the codes of runs and of two-dimensional lines.

A decoder stops when a row is complete and continues at the next end-of-line code. If the row is
complete too early, because a bit has changed, it skips the rest of the codes silently. Here, all
codes of a line are read, and compared with the decoded row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.base import Bytes1D
from anychunk.errors import ChunkDecodeError
from anychunk.model.grid import Numbers

# T.4 tables 2 and 3, in the order of run lengths: 0 to 63, then 64, 128 ... 1728
WHITE = """
00110101 000111 0111 1000 1011 1100 1110 1111 10011 10100 00111 01000 001000 000011 110100 110101
101010 101011 0100111 0001100 0001000 0010111 0000011 0000100 0101000 0101011 0010011 0100100
0011000 00000010 00000011 00011010 00011011 00010010 00010011 00010100 00010101 00010110 00010111
00101000 00101001 00101010 00101011 00101100 00101101 00000100 00000101 00001010 00001011 01010010
01010011 01010100 01010101 00100100 00100101 01011000 01011001 01011010 01011011 01001010 01001011
00110010 00110011 00110100
11011 10010 010111 0110111 00110110 00110111 01100100 01100101 01101000 01100111 011001100
011001101 011010010 011010011 011010100 011010101 011010110 011010111 011011000 011011001
011011010 011011011 010011000 010011001 010011010 011000 010011011
"""
BLACK = """
0000110111 010 11 10 011 0011 0010 00011 000101 000100 0000100 0000101 0000111 00000100 00000111
000011000 0000010111 0000011000 0000001000 00001100111 00001101000 00001101100 00000110111
00000101000 00000010111 00000011000 000011001010 000011001011 000011001100 000011001101
000001101000 000001101001 000001101010 000001101011 000011010010 000011010011 000011010100
000011010101 000011010110 000011010111 000001101100 000001101101 000011011010 000011011011
000001010100 000001010101 000001010110 000001010111 000001100100 000001100101 000001010010
000001010011 000000100100 000000110111 000000111000 000000100111 000000101000 000001011000
000001011001 000000101011 000000101100 000001011010 000001100110 000001100111
0000001111 000011001000 000011001001 000001011011 000000110011 000000110100 000000110101
0000001101100 0000001101101 0000001001010 0000001001011 0000001001100 0000001001101 0000001110010
0000001110011 0000001110100 0000001110101 0000001110110 0000001110111 0000001010010 0000001010011
0000001010100 0000001010101 0000001011010 0000001011011 0000001100100 0000001100101
"""
LONGER = """
00000001000 00000001100 00000001101 000000010010 000000010011 000000010100 000000010101
000000010110 000000010111 000000011100 000000011101 000000011110 000000011111
"""
"""Runs of 1792, 1856 ... 2560 pixels of either colour."""
PASS, HORIZONTAL, VERTICAL = 1, 2, 3
# T.4 table 4
DISTANCES = {
    "1": 0,
    "011": 1,
    "000011": 2,
    "0000011": 3,
    "010": -1,
    "000010": -2,
    "0000010": -3,
}
"""Codes of vertical mode: how far to the right of the change above a change of colour is."""
MODES = {"0001": PASS, "001": HORIZONTAL, **dict.fromkeys(DISTANCES, VERTICAL)}
WIDTH, MODE_WIDTH = 13, 7
"""Bits of the longest code of a run, and of a mode."""
BLOCK = 1 << 13
"""Bytes of which windows are computed at a time."""
SLACK = 1 << 14
"""Bits at the end of a block in which no code of a line begins: enough for two very long runs."""
LONGEST = 2560
"""The longest run that a single make-up code covers; longer runs take several."""
_CODE_BITS = np.array([[len(code) for code in (c + LONGER).split()] for c in (WHITE, BLACK)])
_BITS, _MAKEUP_BITS = _CODE_BITS[:, :64], np.insert(_CODE_BITS[:, 64:], 0, 0, axis=1)
"""Bits of terminating codes, for 0 to 63 pixels, and of make-up codes, for multiples of 64."""


def run_bits(runs: Numbers, is_black: npt.NDArray[np.bool_]) -> Numbers:
    """Return the number of bits that each run is coded with."""
    color = is_black.view(np.uint8)
    # as many codes for LONGEST as fit, at most one other make-up code, one terminating code
    big = runs // LONGEST
    rest = runs - big * LONGEST
    bits: Numbers = big * 12 + _MAKEUP_BITS[color, rest >> 6] + _BITS[color, rest & 63]
    return bits


def line_bits(pixels: npt.NDArray[np.uint8]) -> Numbers:
    """Return the number of bits that each line takes in mode 1D."""
    height, width = pixels.shape
    # T.4 4.1.1: a line begins with a white run, which may be empty. A white column before it and a
    # change of colour after it make every run end at a change, the last one too
    is_end = np.empty((height, width + 1), bool)
    is_end[:, 0] = pixels[:, 0]
    np.not_equal(pixels[:, 1:], pixels[:, :-1], out=is_end[:, 1:-1])
    is_end[:, -1] = True
    positions = np.flatnonzero(is_end)
    lines = positions // (width + 1)
    ends = positions - lines * (width + 1)
    runs = np.diff(ends, prepend=0)
    firsts = np.flatnonzero(np.diff(lines, prepend=-1))
    runs[firsts] = ends[firsts]
    # colours alternate, from white at the first run of a line
    counts = np.diff(firsts, append=len(lines))
    is_black = ((np.arange(len(lines)) - np.repeat(firsts, counts)) & 1).astype(bool)
    return np.add.reduceat(run_bits(runs, is_black), firsts)


@dataclass(frozen=True)
class Lines:
    """Positions of lines in a stream, in bits."""

    starts: Numbers
    """The first bit after each end-of-line code."""
    ends: Numbers
    """The first bit of the next end-of-line code, or the end of the stream."""
    fill: Numbers
    """Zero bits before that position: fill bits, or the end of the line's last code."""


def find_lines(data: Bytes1D, is_two_dimensional: bool) -> Lines:
    """Find the lines between end-of-line codes.

    An end-of-line code is 11 zeros and a one, which no valid sequence of other codes contains; more
    zeros before it are fill (T.4 4.1.2, 4.1.3).
    """
    ones = np.flatnonzero(np.unpackbits(data))
    zeros = np.diff(ones, prepend=-1) - 1
    is_code = zeros >= 11
    codes, before = ones[is_code], zeros[is_code]
    size = 8 * len(data)
    step = 13 if is_two_dimensional else 12
    count = len(codes)
    # T.4 4.1.4: six end-of-line codes in a row (RTC) end the page. In mode 2D each is followed by
    # one more bit, the tag that says how the next line is coded
    while count > 1 and codes[count - 1] - codes[count - 2] == step:
        count -= 1
    if count < len(codes):
        count -= 1
        starts = codes[:count] + 1
        return Lines(starts, codes[1 : count + 1] - 11, before[1 : count + 1] - 11)
    tail = size - 1 - (int(ones[-1]) if len(ones) else 0)
    ends = np.r_[codes[1:] - 11, size]
    return Lines(codes + 1, ends, np.r_[before[1:] - 11, tail])


def check(
    data: Bytes1D,
    lines: Lines,
    pixels: npt.NDArray[np.bool_ | np.uint8],
    *,
    is_two_dimensional: bool,
    where: str,
) -> None:
    """Raise `ChunkDecodeError` if a line holds other codes than those of its row.

    Parameters:
        data: The stream, most significant bit first.
        lines: Its lines, one per row.
        pixels: The rows, as a decoder returned them; it has checked that runs add up.
        is_two_dimensional: Whether a tag bit precedes each line, 1 for one-dimensional coding.
        where: Names the codec in messages.
    """
    starts = lines.starts + is_two_dimensional
    is_plain = np.ones(len(starts), bool)
    if is_two_dimensional:
        tags = data[np.minimum(lines.starts >> 3, len(data) - 1)]
        is_plain = (tags >> (7 - (lines.starts & 7)).astype(np.uint8)) & 1 == 1
    # the usual codes of a row take a known number of bits; other ways to code it are read
    surplus = lines.ends - starts - line_bits(pixels.view(np.uint8))
    suspects = ~is_plain | (surplus < 0) | (surplus > lines.fill)
    reader = Reader(data)
    for number in np.flatnonzero(suspects).tolist():
        start, end = int(starts[number]), int(lines.ends[number] - lines.fill[number])
        if is_plain[number]:
            is_good = reader.runs_add_up(start, end, pixels.shape[1])
        else:
            row = pixels[number]
            changes = np.count_nonzero(row[1:] != row[:-1]) + int(row[0])
            is_good = reader.has_changes(start, end, int(changes))
        if not is_good:
            raise ChunkDecodeError(
                f"{where}: the codes of row {number}, bits {start} to {end}, are not those of its "
                f"{pixels.shape[1]} pixels"
            )


class Reader:
    """Reads codes at bit positions of a stream, a block of it at a time."""

    def __init__(self, data: Bytes1D) -> None:
        self._data = data
        self._first = 0
        self._windows: list[int] = []

    def at(self, position: int) -> tuple[list[int], int, int]:
        """Return the next `WIDTH` bits at each position of a block, and where it begins and ends.

        The block contains `position` and reaches `SLACK` bits beyond its end; behind the stream are
        zeros.
        """
        if not self._first <= position < self._first + len(self._windows) - SLACK:
            byte = position >> 3
            stored = self._data[byte : byte + BLOCK + SLACK // 8 + 2]
            part = np.zeros(min(len(stored), BLOCK) + SLACK // 8 + 3, np.uint32)
            part[: len(stored)] = stored[: len(part)]
            triples = part[:-2] << 16 | part[1:-1] << 8 | part[2:]
            shifts = 24 - WIDTH - np.arange(8, dtype=np.uint32)
            found = (triples[:, None] >> shifts) & ((1 << WIDTH) - 1)
            self._windows, self._first = found.reshape(-1).tolist(), 8 * byte
        return self._windows, self._first, self._first + len(self._windows) - SLACK

    def runs_add_up(self, position: int, end: int, width: int) -> bool:
        """Return whether a line is runs of alternating colour that add up to `width`."""
        total, is_black, stop = 0, False, 0
        while position < end:
            if position >= stop:
                windows, first, stop = self.at(position)
            length, after = read_run(windows, position - first, is_black)
            position, total, is_black = after + first, total + length, not is_black
            if length < 0 or total > width:
                return False
        return total == width

    def has_changes(self, position: int, end: int, changes: int) -> bool:
        """Return whether a two-dimensional line has as many changes of colour as its row.

        `changes` counts those inside the row. The end of the row is one more, and an empty run may
        follow it. An empty run elsewhere, which joins two runs of one colour, adds two.
        """
        table, start, stop = mode_table(), position, 0
        count, is_empty = 0, False
        while position < end and count <= changes + 2:
            if position >= stop:
                windows, first, stop = self.at(position)
            bits, vertical, is_horizontal = table[windows[position - first]]
            if bits:
                position += bits
                count += vertical
                is_empty = False
            elif is_horizontal:
                is_black = bool(count & 1)
                one, after = read_run(windows, position - first + 3, is_black)
                other, after = read_run(windows, after, not is_black)
                if one < 0 or other < 0:
                    return False
                after += first
                is_empty = other == 0
                changes += 2 * (is_empty and after < end) + 2 * (one == 0 and position != start)
                position, count = after, count + 2
            else:
                return False
        return position >= end and count == changes + 1 + is_empty


def read_run(windows: list[int], position: int, is_black: bool) -> tuple[int, int]:
    """Return the length of the run at `position`, -1 if it is no run, and its end."""
    table, total = run_table(is_black), 0
    while position < len(windows):
        length, bits = table[windows[position]]
        position += bits
        if length < 0:
            break
        total += length
        if length < 64:
            return total, position
    return -1, position


@cache
def mode_table() -> list[tuple[int, int, bool]]:
    """Return what to do with the next 13 bits of a two-dimensional line.

    That is the number of bits of the vertical and pass codes that they begin with, how many of
    these codes are vertical ones, and, if there are none, whether a horizontal code is next.
    """
    single = _table(MODES.items(), MODE_WIDTH)
    found = []
    for word in range(1 << WIDTH):
        used = vertical = 0
        while True:
            mode, bits = single[(word << used >> (WIDTH - MODE_WIDTH)) & ((1 << MODE_WIDTH) - 1)]
            if mode not in (VERTICAL, PASS) or used + bits > WIDTH:
                break
            used, vertical = used + bits, vertical + (mode == VERTICAL)
        found.append((used, vertical, mode == HORIZONTAL))
    return found


@cache
def run_table(is_black: bool) -> list[tuple[int, int]]:
    """Return the run of a code, -1 for none, and its number of bits, by the next 13 bits."""
    codes = (BLACK if is_black else WHITE).split()
    runs = [*range(64), *range(64, 1729, 64)]
    more = zip(LONGER.split(), range(1792, 2561, 64), strict=True)
    return _table([*zip(codes, runs, strict=True), *more], WIDTH)


@cache
def compiled_tables() -> npt.NDArray[np.uint16]:
    """Return the tables of `native.loops.fax_rows`: white runs, black runs, modes.

    An entry is the value of a code, times 16, plus its number of bits; no code has the value 4095.
    The values of modes are 0 for pass, 1 for horizontal, 5 and the distance for vertical.
    """
    modes = {"0001": 0, "001": 1} | {code: 5 + distance for code, distance in DISTANCES.items()}
    tables = [run_table(False), run_table(True), _table(modes.items(), MODE_WIDTH)]
    entries = [(value & 0xFFF) << 4 | bits for table in tables for value, bits in table]
    return np.array(entries, np.uint16)


def _table(codes: Iterable[tuple[str, int]], width: int) -> list[tuple[int, int]]:
    found = [(-1, 1)] * (1 << width)
    for code, value in codes:
        first = int(code, 2) << (width - len(code))
        for word in range(first, first + (1 << (width - len(code)))):
            found[word] = (value, len(code))
    return found


def decode(
    data: Bytes1D, height: int, width: int, *, is_two_dimensional: bool, where: str
) -> npt.NDArray[np.uint8]:
    """Return the pixels of a block whose lines each follow an end-of-line code, 1 for black.

    The decoder fills missing lines with white. So lines are counted before decoding.
    """
    import imagecodecs

    limits.check_chunk(height * width, where=where, stored=len(data))
    lines = find_lines(data, is_two_dimensional)
    if len(lines.starts) != height:
        raise ChunkDecodeError(f"{where}: {len(lines.starts)} lines, expected {height}")
    try:
        # Bit 2 makes the decoder skip fill before end-of-line codes. Fill may have any length
        # (T.4 4.1.3), and need not align codes to bytes; `check` reads what is skipped
        options = 4 | is_two_dimensional
        pixels = imagecodecs.ccittfax3_decode(data, height, width, t4options=options)
    except Exception as e:
        raise ChunkDecodeError(f"{where}: {str(e) or type(e).__name__}") from e
    check(data, lines, pixels, is_two_dimensional=is_two_dimensional, where=where)
    return np.ascontiguousarray(pixels)
