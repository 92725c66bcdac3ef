"""JNRRD and NRRD: an n-dimensional volume with a text header, whole or in tiles.

Spec:    JNRRD 1.0.0 ("0004"), Tiling Extension 1.0.0; NRRD0001 to NRRD0005 (Teem).
Axes:    those of the header reversed, slowest first; named by their labels, or else by their kinds.
Opened:  every type; raw, ascii, hex, gzip, bzip2, zstd and LZ4 frame; attached and detached data;
         internal and external tiles, padded, cropped or overlapping; levels, stored and virtual.
Refused: references outside the folder of the file (unless allowed); tables that contradict it.
"""

from collections.abc import Iterable

from anychunk.formats.jnrrd import nrrd
from anychunk.formats.jnrrd.header import MAGIC, Header, Line, read_header
from anychunk.formats.jnrrd.parse import parse as parse_jnrrd
from anychunk.formats.jnrrd.tile_reader import TileReader, read_tile, tile_of_voxel
from anychunk.formats.jnrrd.tiling_fields import Finding
from anychunk.formats.jnrrd.validate import validate
from anychunk.formats.jnrrd.write import claims, write
from anychunk.io import Source
from anychunk.model.index import GroupIndex

__all__ = [
    "EXTENSIONS",
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

EXTENSIONS = (".jnrrd", ".nrrd")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a JNRRD or NRRD file."""
    return MAGIC.match(head) is not None or nrrd.sniff(head)


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index a file; `allow` lists further folders that may hold its tiles or data files."""
    if nrrd.sniff(source.read(0, min(16, source.size())).tobytes()):
        return nrrd.parse(source, allow=allow)
    return parse_jnrrd(source, allow=allow)
