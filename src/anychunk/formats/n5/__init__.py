"""N5: a folder of groups and datasets; each block of a dataset is a file.

Spec:    N5 file-system specification, versions 1 to 4, as the Java, C++ (z5), Rust and tensorstore
         implementations read and write it.
Axes:    those of `attributes.json` reversed, (z, y, x), without moving data; further ones by their
         names, a single unnamed one is t. `axes="xyz"`: as in `attributes.json`, dimension 0 first.
Opened:  a container, a group or a dataset; every data type; raw, gzip, zlib, bzip2, xz, zstd, blosc
         and the three dialects of lz4; blocks cropped, padded, absent or empty. Strings as Zarr
         strings; objects, and with `content="bytes"` every block, as bytes.
Refused: varlength blocks of numbers, and object blocks, unless opened as bytes; other compressions.
"""

import re
from collections.abc import Sequence
from typing import Literal

from anychunk.errors import MissingFileError
from anychunk.formats.n5.attributes import NAME, is_dataset
from anychunk.formats.n5.hierarchy import Options, is_folder, lone_array, node, read_folder
from anychunk.formats.n5.write import write
from anychunk.io.opening import Folder
from anychunk.model.index import Node

__all__ = ["EXTENSIONS", "claims", "parse_folder", "sniff_folder", "write"]

EXTENSIONS = (".n5",)


def claims(url: str) -> bool:
    """Return whether a url names an N5 container, or something in one."""
    return re.search(r"[^/\\]\.n5(?:[/\\]|$)", url, re.IGNORECASE) is not None


def sniff_folder(folder: Folder) -> bool:
    """Return whether a folder is N5: by its name, or by its attributes."""
    return claims(folder.path) or folder.read(NAME) is not None


def parse_folder(
    folder: Folder,
    *,
    axes: Sequence[str] = "zyx",
    content: Literal["samples", "bytes"] = "samples",
) -> Node:
    """Index a container, a group or a dataset; the options are explained by `Options`."""
    attributes = read_folder(folder)
    if attributes is None and not is_folder(folder):
        raise MissingFileError(f"{folder.path}: no such N5 container, group or dataset")
    options = Options(axes="".join(axes), content=content)
    if attributes is not None and is_dataset(attributes):
        return lone_array(folder, attributes, options)
    return node(folder, attributes or {}, options, {})
