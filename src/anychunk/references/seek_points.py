"""Seek points: before an index is saved, pieces of streams become ranges that decode on their own.

The streams are walked once, which reads all of their bytes. What is needed to decode each range is
stored in the configuration of `anychunk.piece`, so that plain zarr with that codec reads the saved
index, in any order and in any process.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np

from anychunk.codecs.piece import pack_points, range_key
from anychunk.codecs.seek.points import Record, find_records
from anychunk.codecs.seek.walk import Stream
from anychunk.decode.boxes import located
from anychunk.decode.chunks import ChunkReader, Reading
from anychunk.decode.pieces import Key, Pieces, compression_of, stream_in
from anychunk.errors import UnsupportedError
from anychunk.io.source import Storage
from anychunk.io.threads import cores, in_order
from anychunk.model.index import PIECE, ArrayIndex, ByteRanges, GroupIndex, Json, Node, walk
from anychunk.zarr.store import IndexStore


def with_points[N: Node](node: N, *, storage: Storage | None = None) -> N:
    """Return the index with seek points for every array that is cut from streams."""
    found = _cut_arrays(node)
    if not found:
        return node
    store = IndexStore(node, storage=storage)
    changed = {path: _pointed(path, array, store) for path, array in found.items()}
    return _replaced(node, "", changed)  # type: ignore[return-value]


def has_streams(node: Node) -> bool:
    """Return whether arrays of an index are cut from streams."""
    return bool(_cut_arrays(node))


def _cut_arrays(node: Node) -> dict[str, ArrayIndex]:
    return {
        path: array
        for path, array in walk(node)
        if isinstance(array, ArrayIndex) and compression_of(array) is not None
    }


def _replaced(node: Node, path: str, changed: Mapping[str, ArrayIndex]) -> Node:
    if isinstance(node, ArrayIndex):
        return changed.get(path, node)
    members = {
        name: _replaced(member, f"{path}/{name}" if path else name, changed)
        for name, member in node.members.items()
    }
    return replace(node, members=members) if isinstance(node, GroupIndex) else node


def _pointed(path: str, array: ArrayIndex, store: IndexStore) -> ArrayIndex:
    """Return an array whose chunks are ranges with seek points."""
    reader = ChunkReader(array, store.sources, where=store.where(path))
    pieces, reading, table = reader.pieces, reader.begin(), reader.chunks
    if pieces is None or not isinstance(table, ByteRanges):
        raise TypeError(f"{path}: its chunks are not pieces of streams")
    numbers: dict[Key, list[int]] = {}
    for number in np.flatnonzero(table.lengths.reshape(-1)).tolist():
        numbers.setdefault(pieces.place(number, reading)[0], []).append(number)
    offsets, lengths = table.offsets.reshape(-1).copy(), table.lengths.reshape(-1).copy()
    rows: dict[tuple[bytes, int], tuple[bytes, int, Record]] = {}

    def walked(key: Key) -> list[tuple[int, Record]]:
        return _records(pieces, reading, reader, numbers[key])

    with ThreadPoolExecutor(cores(), thread_name_prefix="anychunk-points") as pool:
        for key, records in zip(
            numbers, in_order(walked, list(numbers), executor=pool, ahead=cores()), strict=True
        ):
            _, source = pieces.place(numbers[key][0], reading)
            stream = stream_in(source, key)
            for number, record in records:
                size = pieces.front(number).size
                name, placed = _named(stream, record, size, rows, reader.describe(number))
                rows[name, placed.length] = (name, size, placed)
                offsets[number], lengths[number] = key[1] + placed.at, placed.length
    chunks = replace(
        table,
        offsets=offsets.reshape(table.grid),
        lengths=lengths.reshape(table.grid),
        fronts=(),
        front_ids=None,
    )
    points = pack_points(list(rows.values()))
    codecs = tuple(_with_points(codec, points) for codec in array.codecs)
    return replace(array, codecs=codecs, chunks=chunks)


def _records(
    pieces: Pieces, reading: Reading, reader: ChunkReader, numbers: list[int]
) -> list[tuple[int, Record]]:
    """Walk one stream and return the record of each of its chunks."""
    key, source = pieces.place(numbers[0], reading)
    fronts = [pieces.front(number) for number in numbers]
    cuts = sorted({f.start for f in fronts} | {f.start + f.nbytes for f in fronts})
    with located(lambda: reader.describe(numbers[0])):
        records = find_records(
            stream_in(source, key),
            pieces.compression,
            cuts,
            padding=pieces.padding(fronts[0].stop),
        )
    found = dict(zip(pairwise(cuts), records, strict=True))
    spans = [(f.start, f.start + f.nbytes) for f in fronts]
    return [(number, found[span]) for number, span in zip(numbers, spans, strict=True)]


def _named(
    stream: Stream,
    record: Record,
    size: int,
    rows: Mapping[tuple[bytes, int], tuple[bytes, int, Record]],
    where: str,
) -> tuple[bytes, Record]:
    """Return the key of a range, made longer until no other range has the same."""
    name = range_key(stream.read(record.at, 8))
    while record.at + record.length <= stream.length:
        other = rows.get((name, record.length))
        if other is None or other[1:] == (size, replace(record, at=other[2].at)):
            return name, record
        record = replace(record, length=record.length + 1)
    raise UnsupportedError(
        f"{where}: its bytes cannot be told from those of another chunk, so no seek points are "
        "saved"
    )


def _with_points(codec: Json, points: str) -> Json:
    if not isinstance(codec, dict) or codec.get("name") != PIECE:
        return codec
    return {**codec, "configuration": {**codec["configuration"], "points": points}}
