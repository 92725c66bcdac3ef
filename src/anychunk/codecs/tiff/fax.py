"""CCITT facsimile (compressions 2, 3, 4 and 32771): decoded by libtiff, with its structure checked.

Spec: ITU-T T.4 (Group 3) and T.6 (Group 4); TIFF 6.0 sections 10 and 11.

libtiff returns pixels for damaged data too: it fills short rows and missing ones. So every chunk is
checked:

- each code is one of the tables, and the runs of each row add up to its width: libtiff warns;
- there are as many rows as announced. Group 4 and runs without end-of-line codes are asked for one
  row more, which must be the end of the data. In Group 3, end-of-line codes are counted;
- in Group 3, libtiff skips from the end of a row to the next end-of-line code: `fax_lines` checks
  that nothing but fill is skipped.

Group 4 data that are exactly as T.6 prescribes are decoded by the compiled module, where there is
one: straight to their place, without a TIFF file for libtiff around each strip.

A change of bits that turns codes into others of the same length, with which every row still adds
up, cannot be detected: the format has no checksum.
"""

import math
import re

import imagecodecs

from anychunk.codecs import _fax_lines as fax_lines
from anychunk.codecs.base import Bytes1D
from anychunk.codecs.tiff import libtiff_messages
from anychunk.codecs.tiff.tile import CCITT_RLE, CCITT_T4, CCITT_T6, Tile, synthetic_tiff
from anychunk.errors import ChunkDecodeError
from anychunk.model.grid import Array
from anychunk.native import loops

TWO_DIMENSIONAL = 1
"""Bit of T4Options."""
LINE = re.compile(r" at line (\d+) ")
AT_END = re.compile(r"Premature EO[LF] at line \d+ of .*\((?:got 0,|x 0\))")
"""A row that ends before its first pixel: end-of-block code, fill, or the end of the data."""
AS_WRITTEN = {CCITT_T6: ("CCITTFAX4", 3), CCITT_RLE: ("CCITTRLE", 0)}
"""Compressions that libtiff can write to compare with; bytes of the code at the end."""
NO_EOL = "Try to decode (read) fax Group 3 data without EOL at line 0 "


def decode(tile: Tile, data: Bytes1D, out: Bytes1D | None = None) -> Array:
    """Decode a chunk to (rows, columns, bands); raise `ChunkDecodeError` if it is damaged.

    Rows beyond those of the chunk are checked too, and left out: some writers state a height that
    is too small.

    Parameters:
        tile: The tags that describe the chunk.
        data: Its stored bytes.
        out: A buffer as large as the decoded chunk, which the result may be in.
    """
    if out is not None and decode_exact(tile, data, out):
        return out.view(bool).reshape(-1, tile.tile_width, 1)
    if tile.compression == CCITT_T4:
        bits = imagecodecs.bitorder_decode(data) if tile.fill_order == 2 else data
        is_two_dimensional = bool(tile.t4_options & TWO_DIMENSIONAL)
        lines = fax_lines.find_lines(bits, is_two_dimensional)
        if rows := len(lines.starts):
            kept = _checked_height(tile, rows)
            array = _decode_rows(tile, data, rows)
            pixels = array[..., 0]
            fax_lines.check(
                bits, lines, pixels, is_two_dimensional=is_two_dimensional, where="tiff-tile"
            )
            return array[:kept]
    return _decode_to_end(tile, data, tile.tile_height * tile.tile_depth + 1)


def decode_exact(tile: Tile, data: Bytes1D, target: Array) -> bool:
    """Decode a whole chunk to `target`, bytes or bools in order; return False if that fails.

    It does for other than Group 4 data, and for any that are not the usual codes of as many rows,
    with their end: `decode` reads them, or says what is wrong. `target` may have been written to.
    """
    if (
        loops is None
        or tile.compression != CCITT_T6
        or tile.samples_per_pixel != 1
        or tile.bits != 1
        or target.dtype.itemsize != 1
        or not target.flags.c_contiguous
        or target.size != tile.tile_height * tile.tile_depth * tile.tile_width
    ):
        return False
    pixels = target.reshape(-1, tile.tile_width)
    tables = fax_lines.compiled_tables()
    return loops.fax_rows(tables, data, pixels, tile.fill_order == 2, True)


def _decode_to_end(tile: Tile, data: Bytes1D, asked: int) -> Array:
    """Decode rows that no end-of-line codes separate, and check that the data end after them.

    The last of the rows that libtiff is asked for is the one that must be missing.
    """
    array, messages = _decode(tile, data, asked)
    if not messages:
        most = _most_rows(tile) + 1
        if asked == most:
            raise _damage(tile, f"more than {asked - 1} rows")
        return _decode_to_end(tile, data, most)
    line = LINE.search(messages[0])
    if line is None or not AT_END.match(messages[0]):
        raise _damage(tile, messages[0])
    rows = int(line[1])
    kept = _checked_height(tile, rows)
    # without an end-of-block code, libtiff returns nothing if the last row is missing
    whole = _decode_rows(tile, data, rows) if array is None else _shaped(tile, array[:rows], rows)
    if rows > kept and not _is_as_written(tile, data, whole):
        raise _damage(tile, f"{rows} rows, expected {kept}")
    return whole[:kept]


def _decode_rows(tile: Tile, data: Bytes1D, rows: int) -> Array:
    """Decode exactly as many rows."""
    array, messages = _decode(tile, data, rows)
    if messages or array is None:
        raise _damage(tile, messages[0])
    return _shaped(tile, array, rows)


def _decode(tile: Tile, data: Bytes1D, rows: int) -> tuple[Array | None, list[str]]:
    array, messages = libtiff_messages.decode(synthetic_tiff(tile, data, rows=rows))
    if messages and messages[0].startswith(NO_EOL):
        del messages[0]
    return array, messages


def _shaped(tile: Tile, array: Array, rows: int) -> Array:
    shape = (rows, tile.tile_width, tile.samples_per_pixel)
    if array.size != math.prod(shape):
        raise _damage(tile, f"decodes to shape {array.shape}, expected {shape}")
    return array.reshape(shape)


def _is_as_written(tile: Tile, data: Bytes1D, array: Array) -> bool:
    """Return whether data without end-of-line codes are what an encoder writes for these rows.

    Changed bits can shift the ends of rows, so that a row more is found. Rows that are really there
    are coded in the one way that T.6, or T.4 for runs in bytes, prescribes for encoders.
    """
    if tile.compression not in AS_WRITTEN:
        return False
    compression, end = AS_WRITTEN[tile.compression]
    ordered = imagecodecs.bitorder_decode(data) if tile.fill_order == 2 else data
    encoded = imagecodecs.tiff_encode(
        array.reshape(len(array), tile.tile_width), compression=compression, rowsperstrip=len(array)
    )
    codes = ordered.tobytes().rstrip(b"\0")
    return codes[: len(codes) - end] in encoded


def _most_rows(tile: Tile) -> int:
    """Return how many rows are decoded, to see whether the data are whole."""
    return 2 * tile.tile_height * tile.tile_depth + 64


def _checked_height(tile: Tile, rows: int) -> int:
    """Return how many of the coded rows belong to the chunk; raise if rows are missing."""
    whole = tile.tile_height * tile.tile_depth
    last = whole if tile.last_height is None or tile.tile_depth > 1 else tile.last_height
    if whole <= rows <= _most_rows(tile):
        return whole
    if rows == last + 1:  # scanners count the last row twice
        return last
    if rows == last or (tile.last_height is None and tile.tile_depth == 1 and 0 < rows < whole):
        return rows
    raise _damage(tile, f"{rows} rows, expected {whole}" + f" or {last}" * (last != whole))


def _damage(tile: Tile, what: str) -> ChunkDecodeError:
    return ChunkDecodeError(f"tiff-tile: CCITT data (compression {tile.compression}): {what}")
