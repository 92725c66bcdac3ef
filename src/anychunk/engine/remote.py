"""Read chunks of remote files: windows, rows or parts of chunks where those are less, or all."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from anychunk.decode.boxes import located
from anychunk.decode.chunks import Stored
from anychunk.decode.rows import Rows, raw_layout
from anychunk.engine.local import Taken
from anychunk.engine.request import Request
from anychunk.errors import ChunkDecodeError, LimitError

if TYPE_CHECKING:
    from anychunk.decode.tile_streams import TilePiece

LEAST_ROWS = 64 << 10
"""Shorter uncompressed chunks of remote arrays are fetched whole: one request costs more."""


async def read_remote(request: Request) -> None:
    """Fetch what a selection needs of its chunks, and decode it."""
    try:
        if request.reader.windows is not None:
            from anychunk.engine.tiles import fetch_windows  # with all of JPEG 2000

            if await fetch_windows(request):
                return
        rows = selected_rows(request)
        if rows:
            await fetch_rows(request, rows)
        parts = await asyncio.to_thread(selected_parts, request)
        if parts:
            parts = await fetch_parts(request, parts)
        done = rows.keys() | parts.keys()
        rest = [position for position in range(len(request)) if position not in done]
        taken = Taken(request)

        def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
            taken.chunks([rest[position] for position in positions], chunks)

        if rest:
            await request.reader.fetch_many(request.numbers[rest], deliver)
    except BaseExceptionGroup as group:
        # the caller can act on one failure; the others follow from it
        raise group.exceptions[0] from None


def selected_rows(request: Request) -> dict[int, Rows]:
    """Return, by position, what is selected of chunks of which only some rows are to be fetched."""
    reader = request.reader
    layout = raw_layout(reader.index, request.decode.dtype)
    found: dict[int, Rows] = {}
    if layout is None:
        return found
    for position, (source, _) in enumerate(request.places(range(len(request)))):
        number = int(request.numbers[position])
        length = reader.ranges(number)[0][2]
        if length > LEAST_ROWS:
            rows = layout.rows(reader.front(number), length, source)
            if rows is not None:
                found[position] = rows
    return found


async def fetch_rows(request: Request, rows: Mapping[int, Rows]) -> None:
    """Fetch some rows of remote chunks, given by position."""
    ranges = []
    for position, one in rows.items():
        url, offset, _ = request.reader.ranges(int(request.numbers[position]))[0]
        ranges.append([(url, offset + start, one.length) for start in one.starts])

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, data in zip(positions, chunks, strict=True):
            _, target = request.place_of(position)
            if data is not None:
                request.place(target, rows[position].array(data))

    await request.reader.fetch_rows(list(rows), ranges, deliver)


def selected_parts(request: Request) -> dict[int, "TilePiece"]:
    """Return, by position, the parts of JPEG 2000 tiles of TIFF that are fetched instead of all."""
    found: dict[int, TilePiece] = {}
    if not request.decode.has_parts:
        return found
    reader = request.reader
    from anychunk.decode.tile_streams import plan_piece, stream_codec  # with decoders of TIFF

    codec = stream_codec(reader.index)
    if codec is None:
        return found
    reading = reader.begin()
    for position, (source, _) in enumerate(request.places(range(len(request)))):
        number = int(request.numbers[position])
        url, offset, length = reader.ranges(number)[0]
        if length > LEAST_ROWS:
            with located(partial(reader.describe, number)):
                file = reading.source(url)
                piece = plan_piece(codec, file, (offset, length), reader.index.chunk_shape, source)
            if piece is not None:
                found[position] = piece
    return found


async def fetch_parts(request: Request, parts: Mapping[int, "TilePiece"]) -> dict[int, "TilePiece"]:
    """Fetch planned parts, given by position; return those that decoded."""
    ranges = []
    for position, part in parts.items():
        url = request.reader.ranges(int(request.numbers[position]))[0][0]
        ranges.append([(url, offset, length) for offset, length in part.planned.ranges])
    done: dict[int, TilePiece] = {}

    def deliver(positions: Sequence[int], chunks: list[Stored]) -> None:
        for position, data in zip(positions, chunks, strict=True):
            _, target = request.place_of(position)
            try:
                array = parts[position].array(np.empty(0, np.uint8) if data is None else data)
            except (ChunkDecodeError, LimitError):
                continue  # some streams decode only as a whole, such as samples of 30 bits
            request.place(target, array)
            done[position] = parts[position]

    await request.reader.fetch_rows(list(parts), ranges, deliver)
    return done
