"""JNRRD: an n-dimensional volume behind a header of JSON lines, whole or in tiles.

Spec:    JNRRD 1.0.0 ("0004"), Tiling Extension 1.0.0; DECISIONS F and G for what they leave open.
Axes:    the header's reversed, so slowest first; named by their labels, else by their kinds.
Opened:  every type; raw, ascii, hex, gzip, bzip2, zstd and LZ4 frame; attached and detached data;
         internal and external tiles, padded, cropped or overlapping; levels, stored and virtual.
Refused: references that leave the folder of the file (unless allowed), tables that do not fit.
"""

from anychunk.formats.jnrrd.header import MAGIC, Header, Line, read_header
from anychunk.formats.jnrrd.parse import parse
from anychunk.formats.jnrrd.tiles import TileReader, read_tile, tile_of_voxel
from anychunk.formats.jnrrd.tiling import Finding
from anychunk.formats.jnrrd.validate import validate
from anychunk.formats.jnrrd.write import claims, write

__all__ = [
    "Finding",
    "Header",
    "Line",
    "TileReader",
    "claims",
    "parse",
    "read_header",
    "read_tile",
    "sniff",
    "tile_of_voxel",
    "validate",
    "write",
]


def sniff(head: bytes) -> bool:
    return MAGIC.match(head) is not None
