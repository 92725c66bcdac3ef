"""Some rows of a long JPEG picture, as a smaller stream that decodes to exactly these rows.

Spec: ITU-T T.81 annexes A, B and E.

A decoder stops where the frame header says that the picture ends. So a smaller height there gives
the upper rows of a picture for a part of the work. Restart markers end the dependence of what
follows on what precedes: with them, decoding may also begin later. They are numbered modulo eight,
and must be renumbered. Where chroma is subsampled, a decoder interpolates between rows, so one row
of MCUs is added on both sides.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg import FRAMES, SOS, Frame, markers, read_header, unit_size
from anychunk.errors import FormatError

type Bytes1D = npt.NDArray[np.uint8]

BASELINE, EXTENDED = 0, 1
RESTART = 0xD0
END = np.array([0xFF, 0xD9], np.uint8)
"""The marker after the last byte of a picture."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A stream that holds some rows of a picture."""

    data: Bytes1D
    first: int
    """The row of the picture that is its first."""
    height: int


def rows_stream(data: Bytes1D, first: int, stop: int) -> Rows | None:
    """Return a stream that holds rows `first` to `stop` of a picture, and as few more as possible.

    None if the whole picture is to be decoded: it has several scans, or unusual codes.

    Raises:
        FormatError: The header is damaged.
    """
    view = memoryview(data)
    header = read_header(view)
    frame, place, scan = header.frame, 0, None
    for marker, start, end in markers(view):
        if marker in FRAMES:
            place = start + 1
        elif marker == SOS:
            scan = (start, end)
    if frame is None or scan is None or frame.process not in (BASELINE, EXTENDED):
        return None
    if data[scan[0]] != len(frame.components) or not 0 <= first < stop <= frame.height:
        return None  # one scan per component: others follow
    _, high = unit_size(frame)
    top, bottom = _rows_of_units(frame, first, stop)
    height = min(frame.height, bottom * high)
    if header.restart_interval and top:
        found = _between_restarts(
            data, scan[1], frame, header.restart_interval, top=top, bottom=bottom
        )
        if found is not None:
            begin, body = found
            height -= begin * high
            parts = [_with_height(data[: scan[1]], place, height), body, END]
            return Rows(np.concatenate(parts), begin * high, height)
    if 2 * stop > frame.height + frame.height // 2:
        return None  # most of it is decoded anyway
    return Rows(_with_height(data, place, height), 0, height)


def _rows_of_units(frame: Frame, first: int, stop: int) -> tuple[int, int]:
    """Return the first row of MCUs that rows of pixels need, and the one after the last."""
    _, high = unit_size(frame)
    return max(0, first // high - 1), min(-(-frame.height // high), -(-stop // high) + 1)


def _with_height(data: Bytes1D, place: int, height: int) -> Bytes1D:
    changed = data.copy()
    changed[place : place + 2] = height >> 8, height & 255
    return changed


def _between_restarts(
    data: Bytes1D, start: int, frame: Frame, interval: int, *, top: int, bottom: int
) -> tuple[int, Bytes1D] | None:
    """Return the data of the rows of MCUs from `top` or before to `bottom`, and the first of them.

    None if restart markers are not where rows begin, or not as many as there should be.
    """
    wide, high = unit_size(frame)
    across, down = -(-frame.width // wide), -(-frame.height // high)
    while top and top * across % interval:
        top -= 1
    while bottom < down and bottom * across % interval:
        bottom += 1
    if not top:
        return None
    ff = np.flatnonzero(data[start:-1] == 0xFF) + start
    places = ff[(data[ff + 1] & 0xF8) == RESTART]
    count = -(-across * down // interval) - 1
    if len(places) != count or ((data[places + 1] & 7) != np.arange(count) % 8).any():
        raise FormatError(
            f"JPEG: {len(places)} restart markers, expected {count} in the order of their numbers"
        )
    first, last = top * across // interval, bottom * across // interval
    end = len(data) if bottom >= down else int(places[last - 1])
    begin = int(places[first - 1]) + 2
    body = data[begin:end].copy()
    inner = places[first : last - 1 if bottom < down else None]
    body[inner + 1 - begin] = RESTART | (np.arange(len(inner)) % 8).astype(np.uint8)
    return top, body
