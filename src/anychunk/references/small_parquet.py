"""Parquet files of a few references to one source, written without pyarrow.

Spec: https://parquet.apache.org/docs/file-format; the metadata is Thrift's compact protocol.

A group of many files has several tables per file, most of them of a few rows. pyarrow takes 0.3 ms
to set up a writer, several times what everything else about such a table costs.

Pages are not compressed, which would gain nothing. No page is empty: fastparquet, which fsspec
uses, takes a page of 0 bytes for all that follows, and fails; fsspec takes that for absent chunks,
which read as fill values. pyarrow writes such a page for an uncompressed dictionary of no entries.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from anychunk.model.index import Uint64

MAGIC = b"PAR1"
INT64, BYTE_ARRAY = 2, 6
REQUIRED, OPTIONAL = 0, 1
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
# types of Thrift's compact protocol
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def write_references(
    url: str | None,
    offsets: Uint64,
    lengths: Uint64,
    is_present: Sequence[bool],
    raws: Sequence[bytes | None] | None,
) -> bytes:
    """Return a parquet file of path, offset, size and, if needed, raw.

    Parameters:
        url: The source of all chunks that are present; None: there are none.
        offsets: Of each row.
        lengths: Of each row.
        is_present: Whether a row has a path.
        raws: Bytes of the rows that were copied; None: the column is left out.
    """
    columns = [
        _paths(url, is_present),
        _integers("offset", offsets),
        _integers("size", lengths),
    ]
    if raws is not None:
        columns.append(_column("raw", _texts_page(raws, [raw is not None for raw in raws])))
    pieces, place, chunks = [MAGIC], len(MAGIC), []
    for name, pages, first_data in columns:
        chunks.append(_chunk(name, len(offsets), place, len(pages), first_data))
        pieces.append(pages)
        place += len(pages)
    footer = _footer(chunks, len(offsets), place - len(MAGIC), has_raw=raws is not None)
    return b"".join([*pieces, footer, struct.pack("<I", len(footer)), MAGIC])


type Column = tuple[str, bytes, int]
"""Name, pages, and where among them the first page of data is."""


def _paths(url: str | None, is_present: Sequence[bool]) -> Column:
    """Return the column of urls: its only one as a dictionary, and a run of references to that."""
    if url is None:
        return _column("path", _texts_page([None] * len(is_present), is_present))
    text = url.encode()
    dictionary = struct.pack("<I", len(text)) + text
    header = _struct((1, I32, DICTIONARY_PAGE), (2, I32, len(dictionary)),
                     (3, I32, len(dictionary)),
                     (7, STRUCT, _struct((1, I32, 1), (2, I32, PLAIN))))  # fmt: skip
    count = sum(is_present)
    # indices of one bit each; all are 0
    body = _levels(is_present) + b"\x01" + _varint(count << 1) + b"\x00"
    first = header + dictionary
    return "path", first + _page(body, len(is_present), RLE_DICTIONARY), len(first)


def _integers(name: str, values: Uint64) -> Column:
    return _column(name, _page(values.astype("<i8").tobytes(), len(values), PLAIN))


def _column(name: str, page: bytes) -> Column:
    return name, page, 0


def _texts_page(texts: Sequence[bytes | None], is_present: Sequence[bool]) -> bytes:
    body = [_levels(is_present)]
    for text in texts:
        if text is not None:
            body += (struct.pack("<I", len(text)), text)
    return _page(b"".join(body), len(texts), PLAIN)


def _levels(is_present: Sequence[bool]) -> bytes:
    """Return which rows are not null, as one run of equal bits or as the bits themselves."""
    count = len(is_present)
    if all(is_present) or not any(is_present):
        run = _varint(count << 1) + bytes([is_present[0]])
    else:
        bits = np.packbits(np.array(is_present, bool), bitorder="little").tobytes()
        run = _varint(len(bits) << 1 | 1) + bits
    return struct.pack("<I", len(run)) + run


def _page(body: bytes, rows: int, encoding: int) -> bytes:
    about = _struct((1, I32, rows), (2, I32, encoding), (3, I32, RLE), (4, I32, RLE))
    size = len(body)
    fields = (1, I32, DATA_PAGE), (2, I32, size), (3, I32, size), (5, STRUCT, about)
    return _struct(*fields) + body


def _chunk(name: str, rows: int, place: int, size: int, first_data: int) -> bytes:
    """Return the metadata of a column."""
    kind = INT64 if name in ("offset", "size") else BYTE_ARRAY
    encodings = [PLAIN, RLE, RLE_DICTIONARY] if first_data else [PLAIN, RLE]
    fields: list[Field] = [
        (1, I32, kind),
        (2, LIST, _list(I32, [_zigzag(n) for n in encodings])),
        (3, LIST, _list(BINARY, [_binary(name.encode())])),
        (4, I32, 0),
        (5, I64, rows),
        (6, I64, size),
        (7, I64, size),
        (9, I64, place + first_data),
    ]
    if first_data:
        fields.append((11, I64, place))
    if kind == INT64:  # fastparquet reads integers as floats unless it knows that none is null
        fields.append((12, STRUCT, _struct((3, I64, 0))))
    return _struct((2, I64, place), (3, STRUCT, _struct(*fields)))


def _footer(chunks: Sequence[bytes], rows: int, size: int, *, has_raw: bool) -> bytes:
    group = _struct((1, LIST, _list(STRUCT, chunks)), (2, I64, size), (3, I64, rows))
    return _struct(
        (1, I32, 1),
        (2, LIST, _schema(has_raw=has_raw)),
        (3, I64, rows),
        (4, LIST, _list(STRUCT, [group])),
        (6, BINARY, _binary(b"anychunk")),
    )


@cache
def _schema(*, has_raw: bool) -> bytes:
    text = (6, I32, 0), (10, STRUCT, _struct((1, STRUCT, _struct())))
    columns = [
        _struct((1, I32, BYTE_ARRAY), (3, I32, OPTIONAL), (4, BINARY, _binary(b"path")), *text),
        _struct((1, I32, INT64), (3, I32, REQUIRED), (4, BINARY, _binary(b"offset"))),
        _struct((1, I32, INT64), (3, I32, REQUIRED), (4, BINARY, _binary(b"size"))),
    ]
    if has_raw:
        columns.append(
            _struct((1, I32, BYTE_ARRAY), (3, I32, OPTIONAL), (4, BINARY, _binary(b"raw")))
        )
    root = _struct((4, BINARY, _binary(b"schema")), (5, I32, len(columns)))
    return _list(STRUCT, [root, *columns])


type Field = tuple[int, int, int | bytes]
"""Number, type and value."""


def _struct(*fields: Field) -> bytes:
    """Return a struct of fields in rising order, whose numbers differ by at most 15."""
    found, last = bytearray(), 0
    for number, kind, value in fields:
        found.append((number - last) << 4 | kind)
        found += _zigzag(value) if isinstance(value, int) else value
        last = number
    found.append(0)
    return bytes(found)


def _list(kind: int, values: Iterable[bytes]) -> bytes:
    found = list(values)  # fewer than 15
    return bytes([len(found) << 4 | kind]) + b"".join(found)


def _binary(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _zigzag(value: int) -> bytes:
    return _varint(value << 1)  # none is negative


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
