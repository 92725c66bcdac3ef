"""`anychunk.piece`, bytes to bytes: a piece of a long compressed stream.

Spec:     ours. Without `points`, the stored bytes begin with a front of 64 bytes: one byte, 1 if a
          whole stream follows and 0 if the decoded piece itself; seven zeros; four little-endian
          uint64: the decoded bytes of the stream that precede the piece, its length, the length of
          the chunk and the end of the last piece of the stream; zeros. A piece that is shorter than
          the chunk is padded with zeros. With `points`, the stored bytes are a range of the stream.
          `points` says how each of these ranges is decoded; it is found by the first eight bytes
          and the length of the range.
JSON:     {"name": "anychunk.piece", "configuration": {"compression": "gzip"}}
Lossless: yes; encoding stores the chunk as a stream of its own.

For files whose samples are one compressed stream. The index cuts such a stream into chunks, and
gives each the whole stream with a front. A reader that knows the codec keeps its place in the
stream between chunks (`anychunk.decode.pieces`), and passes decoded pieces. When an index is saved,
the stream is walked once, and the chunks become ranges of it.
"""

import base64
import binascii
import struct
from collections.abc import Buffer as BytesLike
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.codecs.seek import points as seek
from anychunk.codecs.seek.points import Record
from anychunk.codecs.seek.walk import fill, skip, stream_of
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.model.fronts import DECODED, FRONT, WHOLE, Front, read_front
from anychunk.model.index import PIECE

ROW = np.dtype(
    [
        ("key", "V8"),
        ("length", "<u8"),
        ("skip", "<u8"),
        ("stop", "<u8"),
        ("nbytes", "<u8"),
        ("size", "<u8"),
        ("checksum", "<u4"),
        ("window", "<u4"),
        ("bit", "u1"),
    ]
)
"""A record in `points`: fields of `Record`; the length of the chunk, and of the packed window."""

type Key = tuple[bytes, int]


def range_key(data: Bytes1D) -> bytes:
    """Return the first eight bytes of a range, with zeros if it is shorter."""
    return data[:8].tobytes().ljust(8, b"\0")


def pack_points(records: Sequence[tuple[bytes, int, Record]]) -> str:
    """Return the text of `points`, for (first eight bytes, length of the chunk, record)."""
    rows = np.zeros(len(records), ROW)
    for row, (key, size, record) in zip(rows, records, strict=True):
        row["key"] = np.void(key)
        for name in ("length", "skip", "stop", "nbytes", "checksum", "bit"):
            row[name] = getattr(record, name)
        row["size"], row["window"] = size, len(record.window)
    data = struct.pack("<I", len(rows)) + rows.tobytes()
    return base64.b64encode(data + b"".join(r.window for _, _, r in records)).decode()


def unpack_points(text: object) -> dict[Key, tuple[int, Record]]:
    """Return the length of the chunk and the record of each range, by its key."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError) as e:
        raise CodecConfigError("anychunk.piece: points is not base64") from e
    count = struct.unpack_from("<I", data)[0] if len(data) >= 4 else -1
    if not 0 <= count <= (len(data) - 4) // ROW.itemsize:
        raise CodecConfigError(f"anychunk.piece: points of {len(data)} bytes are cut")
    rows = np.frombuffer(data, ROW, count, 4)
    ends = 4 + rows.nbytes + np.cumsum(rows["window"].astype(np.int64))
    if count and int(ends[-1]) != len(data):
        raise CodecConfigError(f"anychunk.piece: points of {len(data)} bytes are cut")
    found: dict[Key, tuple[int, Record]] = {}
    for row, end in zip(rows, ends.tolist(), strict=True):
        numbers = {name: int(row[name]) for name in ROW.names or () if name not in ("key", "size")}
        window = data[end - numbers.pop("window") : end]
        record = Record(at=0, window=window, **numbers)
        size = int(row["size"])
        if record.nbytes > size:
            raise CodecConfigError(f"anychunk.piece: a piece of {record.nbytes} bytes in {size}")
        found[row["key"].tobytes(), record.length] = (size, record)
    return found


@dataclass(frozen=True, kw_only=True)
class Piece(BytesToBytes):
    """Decodes a piece of a long compressed stream."""

    name: ClassVar[str] = PIECE
    is_fixed_size = False

    compression: str
    """`gzip`, `zlib`, `bzip2` or `lzw` (of TIFF)."""
    points: str | None = field(default=None, repr=False)
    """Base64 of how the ranges of the stream are decoded."""

    def __post_init__(self) -> None:
        if not isinstance(self.compression, str) or self.compression not in seek.COMPRESSIONS:
            raise CodecConfigError(
                f"{self.name}: compression {self.compression!r}, expected: "
                f"{' '.join(seek.COMPRESSIONS)}"
            )
        if self.points is not None:
            _ = self.records

    @cached_property
    def records(self) -> dict[Key, tuple[int, Record]]:
        """How each range is decoded, by its first eight bytes and its length."""
        return unpack_points(self.points)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "records"}

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.points is not None or self.compression == "lzw":
            raise ChunkEncodeError(f"{self.name}: pieces of an existing stream cannot be written")
        stream = streams.ENCODE[self.compression](data, None)
        front = Front(WHOLE, 0, len(data), len(data), len(data))
        return np.frombuffer(front.pack() + bytes(stream), np.uint8)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if self.points is not None:
            return self._decode_range(data)
        front = read_front(data)
        payload = data[FRONT.size :]
        if front.kind == DECODED:
            if len(payload) != front.size:
                raise ChunkDecodeError(
                    f"{self.name}: {len(payload)} bytes follow the front, expected {front.size}"
                )
            return payload
        limits.check_chunk(front.size, where=self.name, stored=len(payload))
        target = np.zeros(front.size, np.uint8)
        state = seek.begin(stream_of(payload), self.compression, front.stop)
        skip(state, front.start)
        fill(state, target[: front.nbytes])
        skip(state, front.stop - front.start - front.nbytes)
        state.finish()  # where the checksum is
        return target

    def _decode_range(self, data: Bytes1D) -> BytesLike:
        found = self.records.get((range_key(data), len(data)))
        if found is None:
            raise ChunkDecodeError(
                f"{self.name}: no seek point for a range of {len(data)} bytes; the file has "
                "changed since it was indexed"
            )
        size, record = found
        limits.check_chunk(size, where=self.name, stored=len(data))
        target = np.empty(size, np.uint8)
        target[record.nbytes :] = 0
        seek.decode_record(data, record, self.compression, target[: record.nbytes])
        return target
