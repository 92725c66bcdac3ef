"""Where the rows of a JPEG picture begin: some rows as a smaller stream, without restart markers.

Spec: ITU-T T.81 annexes B, C, E and F.

Two things tie the entropy-coded data of a row to what precedes it: that it begins at any bit, and
that the DC coefficient of a block is coded as the difference to that of the block before it. A walk
over the codes, which is done once and only as far as needed, finds both for each row of MCUs. From
there a stream is made that begins with this row: its bits moved to the beginning of a byte, and the
first difference of each component replaced by the coefficient itself. The code for that may be
missing in the stream's table; then it is added at the end, where it changes no other code.
"""

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from anychunk.codestream.jpeg import (
    DHT,
    FRAMES,
    SOS,
    Frame,
    markers,
    read_header,
    unit_size,
)
from anychunk.codestream.jpeg_rows import BASELINE, END, EXTENDED, Rows, rows_of_units
from anychunk.errors import FormatError
from anychunk.native import loops

type Bytes1D = npt.NDArray[np.uint8]

# a record of the walk, as in native/jpeg_rows.c
BYTE, BIT, PREDICTIONS, FIRST, RECORD = 0, 1, 2, 6, 18
MOST_BLOCKS = 10
"""In an MCU (T.81 B.2.3)."""
SYMBOLS = 256
LONGEST = 16
"""Of Huffman codes, in bits."""


@dataclass(frozen=True)
class Huffman:
    """A Huffman table (T.81 B.2.4.2)."""

    counts: tuple[int, ...]
    """Codes of 1 to 16 bits."""
    symbols: bytes

    def packed(self) -> bytes:
        return bytes(self.counts) + self.symbols.ljust(SYMBOLS, b"\0")

    def segment(self, slot: int) -> bytes:
        """Return the marker segment that defines it as DC table `slot`."""
        body = bytes([slot, *self.counts]) + self.symbols
        return bytes([0xFF, DHT]) + (len(body) + 2).to_bytes(2, "big") + body

    def with_symbol(self, symbol: int) -> "Huffman | None":
        """Return the table with a symbol; all other codes stay. None if there is no code left."""
        if symbol in self.symbols:
            return self
        used = sum(n << (LONGEST - length) for length, n in enumerate(self.counts, 1))
        # the code of ones only is reserved (T.81 C)
        if used >= (1 << LONGEST) - 1 or self.counts[-1] == 255:
            return None
        return Huffman((*self.counts[:-1], self.counts[-1] + 1), self.symbols + bytes([symbol]))

    def code(self, symbol: int) -> str:
        """Return the bits of a symbol's code (T.81 C.2)."""
        code = number = 0
        for length, count in enumerate(self.counts, 1):
            for _ in range(count):
                if self.symbols[number] == symbol:
                    return f"{code:0{length}b}"
                code, number = code + 1, number + 1
            code <<= 1
        raise KeyError(symbol)


@dataclass(eq=False)
class Scan:
    """The only scan of a picture, with what the walk over it has found so far."""

    frame: Frame
    height_at: int
    """Where the frame header says the height."""
    start: int
    """Of the marker that begins the scan."""
    data_at: int
    """Of its entropy-coded data."""
    dc: tuple[int, ...]
    """The DC table of each component."""
    tables: dict[int, Huffman]
    """By class and slot, as in the marker segment."""
    layout: npt.NDArray[np.int64]
    packed: bytes
    records: npt.NDArray[np.int64]
    known: int = 0
    """The last row of MCUs of which is known where it begins."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def nbytes(self) -> int:
        return self.records.nbytes

    def walk(self, data: Bytes1D, row: int) -> bool:
        """Walk to where a row of MCUs begins; return whether it was reached."""
        assert loops is not None
        with self.lock:
            if row > self.known:
                entropy = data[self.data_at :]
                rows = self.records[: row + 1]
                self.known = loops.jpeg_walk(entropy, self.packed, self.layout, rows, self.known)
            return row <= self.known


def read_scan(stream: Bytes1D, tables: bytes | None) -> Scan | None:
    """Return the scan of a picture that can be walked, or None.

    Parameters:
        stream: The picture.
        tables: A stream of tables that precedes it.

    Raises:
        FormatError: The header is damaged.
    """
    headers = [read_header(memoryview(part)) for part in (tables, stream) if part is not None]
    frame = headers[-1].frame
    if loops is None or frame is None or frame.process not in (BASELINE, EXTENDED):
        return None
    if any(header.restart_interval for header in headers):
        return None
    huffman: dict[int, Huffman] = {}
    height_at, begin, end = 0, 0, 0
    for part in (tables, stream) if tables is not None else (stream,):
        view = memoryview(part)
        for marker, start, stop in markers(view):
            if marker == DHT:
                huffman |= read_tables(bytes(view[start:stop]))
            elif marker in FRAMES:
                height_at = start + 1
            elif marker == SOS:
                begin, end = start - 4, stop
    slots = scan_slots(frame, stream[begin + 4 : end].tobytes())
    names = sorted({name for pair in slots for name in pair})
    layout = unit_layout(frame, slots, names)
    # one scan per component: others follow
    is_whole = len(slots) == len(frame.components) and len(layout) <= 1 + 3 * MOST_BLOCKS
    if not is_whole or not all(name in huffman for name in names):
        return None
    _, high = unit_size(frame)
    return Scan(
        frame=frame, height_at=height_at, start=begin, data_at=end, tables=huffman,
        dc=tuple(dc for dc, _ in slots), layout=np.array(layout, np.int64),
        packed=b"".join(huffman[name].packed() for name in names),
        records=np.zeros((-(-frame.height // high) + 1, RECORD), np.int64),
    )  # fmt: skip


def scan_slots(frame: Frame, body: bytes) -> list[tuple[int, int]]:
    """Return the DC and AC table of each component in a scan header (T.81 B.2.3).

    Nothing for a scan of other components than those of the frame.
    """
    count = len(frame.components)
    expected = bytes([count, *(c[0] for c in frame.components)])
    if (
        count > 4
        or len(body) != 4 + 2 * count
        or body[:1] + body[1 : 1 + 2 * count : 2] != expected
    ):
        return []
    return [(slot >> 4, 0x10 | slot & 15) for slot in body[2 : 2 + 2 * count : 2]]


def unit_layout(frame: Frame, slots: list[tuple[int, int]], names: list[int]) -> list[int]:
    """Return how many MCUs a row has, then component, DC and AC table of each block of an MCU."""
    wide, _ = unit_size(frame)
    layout = [-(-frame.width // wide)]
    for number, ((_, across, down), (dc, ac)) in enumerate(
        zip(frame.components, slots, strict=False)
    ):
        blocks = 1 if len(frame.components) == 1 else across * down
        layout += [number, names.index(dc), names.index(ac)] * blocks
    return layout


def read_tables(body: bytes) -> dict[int, Huffman]:
    """Return the Huffman tables of a marker segment, by class and slot."""
    found, at = {}, 0
    while at < len(body):
        counts = tuple(body[at + 1 : at + 17])
        symbols = body[at + 17 : at + 17 + sum(counts)]
        if len(counts) != LONGEST or len(symbols) != sum(counts) or len(symbols) > SYMBOLS:
            raise FormatError(f"JPEG: a Huffman table is cut after {len(body)} bytes")
        used = sum(n << (LONGEST - length) for length, n in enumerate(counts, 1))
        if used > 1 << LONGEST:
            raise FormatError("JPEG: a Huffman table has more codes than fit in 16 bits")
        found[body[at]] = Huffman(counts, symbols)
        at += 17 + len(symbols)
    return found


def stream_of_rows(data: Bytes1D, scan: Scan, first: int, stop: int) -> Rows | None:
    """Return a stream that holds rows `first` to `stop` of a picture, and as few more as possible.

    None if the walk does not get there: the data is damaged, or cannot be walked.
    """
    frame = scan.frame
    if not 0 <= first < stop <= frame.height:
        return None
    _, high = unit_size(frame)
    top, bottom = rows_of_units(frame, first, stop)
    if not scan.walk(data, bottom):
        return None
    height = min(frame.height, bottom * high) - top * high
    tables, codes = _first_codes(scan, scan.records[top])
    if tables is None:
        return None
    body = _bits_between(data[scan.data_at :], scan.records[top], scan.records[bottom], codes)
    head = data[: scan.start].copy()
    head[scan.height_at : scan.height_at + 2] = height >> 8, height & 255
    segments = b"".join(
        table.segment(slot) for slot, table in tables.items() if table != scan.tables[slot]
    )
    parts = [
        head,
        np.frombuffer(segments, np.uint8),
        data[scan.start : scan.data_at],
        stuffed(body),
        END,
    ]
    return Rows(np.concatenate(parts), top * high, height)


type Code = tuple[int, int, str]
"""The first bit and the number of bits that are replaced, counted from the row; other bits."""


def _first_codes(
    scan: Scan, record: npt.NDArray[np.int64]
) -> tuple[dict[int, Huffman] | None, list[Code]]:
    """Return the DC tables, and the bits of each component's first coefficient in a row."""
    places = record[FIRST:].reshape(-1, 3)[: len(scan.dc)].tolist()
    tables = {slot: scan.tables[slot] for slot in scan.dc}
    for slot, (_, _, value) in zip(scan.dc, places, strict=True):
        extended = tables[slot].with_symbol(abs(value).bit_length())
        if extended is None or abs(value).bit_length() > 15:
            return None, []
        tables[slot] = extended
    codes = []
    for slot, (start, count, value) in zip(scan.dc, places, strict=True):
        size = abs(value).bit_length()
        # T.81 F.1.2.1.1: a negative value less one, of which the low bits are appended
        rest = value if value >= 0 else value + (1 << size) - 1
        bits = tables[slot].code(size) + (f"{rest:0{size}b}" if size else "")
        codes.append((start, count, bits))
    return tables, codes


def _bits_between(
    entropy: Bytes1D, top: npt.NDArray[np.int64], bottom: npt.NDArray[np.int64], codes: list[Code]
) -> Bytes1D:
    """Return the bits between two records from the beginning of a byte on, with codes replaced."""
    start, stop, last = int(top[BYTE]), int(bottom[BYTE]), int(bottom[BIT])
    plain = unstuffed(entropy[start:stop])
    end = 8 * len(plain) + last
    # a byte more for the bits of the last row in it, and another so that each byte has a next one
    rest = entropy[stop : stop + 1] if last else entropy[:0]
    plain = np.concatenate([plain, rest, np.zeros(2, np.uint8)])
    at, new = int(top[BIT]), ""
    begin = at
    reach = begin + max(place + count for place, count, _ in codes) + 16
    bits = "".join(f"{byte:08b}" for byte in plain[: -(-reach // 8)].tolist())
    for place, count, code in sorted(codes):
        new += bits[at : begin + place] + code
        at = begin + place + count
    # further bits up to a whole byte, so that all others are moved by the same number
    fill = min(-len(new) % 8, end - at)
    new, at = new + bits[at : at + fill], at + fill
    if at == end:
        new += "1" * (-len(new) % 8)
    head = np.array([int(new[i : i + 8], 2) for i in range(0, len(new), 8)], np.uint8)
    shift, count = at % 8, -(-(end - at) // 8)
    tail = plain[at // 8 : at // 8 + count]
    if shift:
        following = plain[at // 8 + 1 : at // 8 + 1 + count]
        tail = np.bitwise_or(tail << shift, following >> (8 - shift), dtype=np.uint8)
    else:
        tail = tail.copy()
    if count:
        # T.81 F.1.2.3: the last byte is filled up with ones
        tail[-1] |= (1 << (-(end - at) % 8)) - 1
    return np.concatenate([head, tail])


def unstuffed(entropy: Bytes1D) -> Bytes1D:
    """Return entropy-coded data without the zeros that follow bytes of 0xFF (T.81 B.1.1.5)."""
    return np.delete(entropy, np.flatnonzero(entropy[:-1] == 0xFF) + 1)


def stuffed(data: Bytes1D) -> Bytes1D:
    """Return entropy-coded data with these zeros."""
    return np.insert(data, np.flatnonzero(data == 0xFF) + 1, 0)
