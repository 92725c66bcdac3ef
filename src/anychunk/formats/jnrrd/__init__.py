"""JNRRD and NRRD: an n-dimensional volume with a text header, whole or in tiles.

Spec:    JNRRD 1.0.0 ("0004"), Tiling Extension 1.0.0; NRRD0001 to NRRD0005 (Teem).
Axes:    those of the header reversed, slowest first; named by their labels, or else by their kinds.
Opened:  every type; raw, ascii, hex, gzip, bzip2, zstd and LZ4 frame; attached and detached data;
         internal and external tiles, padded, cropped or overlapping; levels, stored and virtual.
Refused: references outside the folder of the file (unless allowed); tables that contradict it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from anychunk.errors import OptionError
from anychunk.formats.jnrrd import nrrd
from anychunk.formats.jnrrd.header import MAGIC, Header, Line, read_header
from anychunk.formats.jnrrd.parse import parse as parse_jnrrd
from anychunk.formats.jnrrd.tile_reader import TileReader, read_tile, tile_of_voxel
from anychunk.formats.jnrrd.tiling_fields import Finding
from anychunk.formats.jnrrd.validate import check_header, validate
from anychunk.formats.jnrrd.write import write_tiled
from anychunk.formats.jnrrd.write_untiled import is_detached, is_nrrd, write_plain
from anychunk.io.source import Source
from anychunk.model.index import GroupIndex
from anychunk.options import JnrrdOptions, check_for

__all__ = [
    "EXTENSIONS",
    "Finding",
    "Header",
    "Line",
    "TileReader",
    "check_header",
    "claims",
    "parse",
    "read_header",
    "read_tile",
    "sniff",
    "tile_of_voxel",
    "validate",
    "write",
    "writes_beside",
]

EXTENSIONS = (".jnrrd", ".nrrd", ".nhdr")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a JNRRD or NRRD file."""
    return MAGIC.match(head) is not None or nrrd.sniff(head)


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index a file; `allow` lists further folders that may hold its tiles or data files."""
    if nrrd.sniff(source.read(0, min(16, source.size())).tobytes()):
        return nrrd.parse(source, allow=allow)
    return parse_jnrrd(source, allow=allow)


def claims(url: str) -> bool:
    """Return whether `url` names a JNRRD or NRRD file."""
    return url.lower().endswith(EXTENSIONS)


def writes_beside(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether writing `url` with these options makes files beside it that it names."""
    if is_plain(url, options):
        return is_detached(url, **options)
    return bool(options.get("external"))


def is_plain(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether a file has no tiles: every NRRD file, and JNRRD with `chunked=False`."""
    return is_nrrd(url) or options.get("chunked") is False


def write(array: Any, url: str, **options: Unpack[JnrrdOptions]) -> None:
    """Write an array as tiled JNRRD, or without tiles as NRRD or JNRRD.

    Sizes and axes are in numpy's order, slowest first. docs/formats/jnrrd.md describes the options.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing.
        url: The file to write; `.nrrd` and `.nhdr` are NRRD, `.jnrrd` is JNRRD.
        **options: Those of `write_tiled` or `write_plain`.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        UnsupportedError: The format cannot hold the array.
    """
    given: dict[str, Any] = {**options}
    chunked = given.pop("chunked", None)
    if not is_plain(url, {"chunked": chunked}):
        check_for(write_tiled, f"{url}: with tiles", given)
        write_tiled(array, url, **given)
        return
    if chunked:
        raise OptionError(f"{url}: NRRD has no tiles; write .jnrrd, or leave out chunked")
    if given.pop("checkpoints", None) is not None:  # a target that nobody sees yet
        given["overwrite"] = True
    check_for(write_plain, f"{url}: without tiles", given)
    write_plain(array, url, **given)
