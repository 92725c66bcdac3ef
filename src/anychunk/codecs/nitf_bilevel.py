"""`anychunk.nitf-bilevel`, bytes to bytes: one bi-level block of a NITF image (IC C1, M1).

Spec:     ITU-T T.4, Group 3 facsimile, one- and two-dimensional, each line after an end-of-line
          code; MIL-STD-188-196 for NITF.
JSON:     {"name": "anychunk.nitf-bilevel", "configuration": {"block_height": 512,
          "block_width": 512, "mode": "1D"}}
Lossless: yes; decoding only.

Decoded bytes are one uint8 per pixel, 1 for black. The decoder fills missing lines with white. So
lines are counted before decoding; and in mode 1D, the number of bits between end-of-line codes is
compared with the number that the runs of the decoded line take.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs._nitf_block import check_positive
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

type Ints = npt.NDArray[np.int64]

# T.4 tables 2 and 3: bits per code. Terminating codes are for runs of 0 to 63 pixels, make-up codes
# for multiples of 64 (index 0: no make-up code); from 1792 on, both colours share make-up codes
_WHITE = [8, 6, *[4] * 6, *[5] * 4, *[6] * 6, *[7] * 11, *[8] * 35]
_BLACK = [10, 3, 2, 2, 3, 4, 4, 5, 6, 6, 7, 7, 7, 8, 8, 9, *[10] * 3, *[11] * 7, *[12] * 38]
_MORE = [11] * 3 + [12] * 10
_WHITE_MAKEUP = [0, 5, 5, 6, 7, *[8] * 6, *[9] * 15, 6, 9, *_MORE]
_BLACK_MAKEUP = [0, 10, *[12] * 6, *[13] * 20, *_MORE]
LONGEST = 2560
"""The longest run that a single make-up code covers; longer runs take several."""


def run_bits(runs: Ints, is_black: npt.NDArray[np.bool_]) -> Ints:
    """Return the number of bits that each run is coded with."""
    makeup = np.where(is_black[:, None], _BLACK_MAKEUP, _WHITE_MAKEUP)
    terminating = np.where(is_black[:, None], _BLACK, _WHITE)
    at = np.arange(len(runs))
    # as many codes for LONGEST as fit, at most one other make-up code, one terminating code
    big = runs // LONGEST
    rest = runs - big * LONGEST
    bits = big * 12 + makeup[at, rest // 64] + terminating[at, rest % 64]
    return np.asarray(bits, np.int64)


def line_bits(pixels: npt.NDArray[np.uint8]) -> Ints:
    """Return the number of bits that each line takes in mode 1D."""
    height, width = pixels.shape
    # T.4 4.1.1: a line begins with a white run, which may be empty. A white column before it and a
    # change of colour after it make every run end at a change, the last one too
    framed = np.zeros((height, width + 2), np.uint8)
    framed[:, 1:-1] = pixels
    framed[:, -1] = pixels[:, -1] ^ 1
    lines, ends = np.nonzero(framed[:, 1:] != framed[:, :-1])
    is_first = np.r_[True, lines[1:] != lines[:-1]]
    starts = np.where(is_first, 0, np.r_[0, ends[:-1]])
    is_black = framed[lines, ends].astype(bool)
    return np.bincount(lines, run_bits(ends - starts, is_black), height).astype(np.int64)


@dataclass(frozen=True)
class Lines:
    """Positions of lines in a stream, in bits."""

    starts: Ints
    """The first bit after each end-of-line code."""
    ends: Ints
    """The first bit of the next end-of-line code, or the end of the stream."""
    fill: Ints
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


@dataclass(frozen=True, kw_only=True)
class NitfBilevel(BytesToBytes):
    """Black and white pixels, coded as facsimile."""

    name: ClassVar[str] = "anychunk.nitf-bilevel"

    block_height: int
    block_width: int
    mode: Literal["1D", "2D"]

    def __post_init__(self) -> None:
        check_positive(self, "block_height", "block_width")
        if self.mode not in ("1D", "2D"):
            raise CodecConfigError(f"{self.name}: mode is {self.mode!r}, expected 1D or 2D")

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        import imagecodecs

        height, width = self.block_height, self.block_width
        limits.check_chunk(height * width, where=self.name, stored=len(data))
        lines = find_lines(data, self.mode == "2D")
        if len(lines.starts) != height:
            raise ChunkDecodeError(f"{self.name}: {len(lines.starts)} lines, expected {height}")
        try:
            # fill bits may align the end of every end-of-line code to a byte (T4Options bit 2)
            is_aligned = bool((lines.starts % 8 == 0).all())
            options = (1 if self.mode == "2D" else 0) | (4 if is_aligned else 0)
            pixels = imagecodecs.ccittfax3_decode(data, height, width, t4options=options)
        except Exception as e:
            raise ChunkDecodeError(f"{self.name}: {str(e) or type(e).__name__}") from e
        if self.mode == "1D":
            self._check_lines(lines, pixels)
        return np.ascontiguousarray(pixels).reshape(-1)

    def _check_lines(self, lines: Lines, pixels: npt.NDArray[np.uint8]) -> None:
        """Raise if a line has more or fewer bits than its pixels take, not counting fill."""
        surplus = lines.ends - lines.starts - line_bits(pixels)
        wrong = np.flatnonzero((surplus < 0) | (surplus > lines.fill))
        if len(wrong):
            line = int(wrong[0])
            bits = int(lines.ends[line] - lines.starts[line])
            raise ChunkDecodeError(
                f"{self.name}: line {line} has {bits} bits, its pixels need {bits - surplus[line]}"
            )

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        raise ChunkEncodeError(f"{self.name}: encoding is not supported, only decoding")
