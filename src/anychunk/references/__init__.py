"""Saved indexes: kerchunk JSON and parquet, Icechunk repositories, and VirtualiZarr manifests."""

from collections.abc import Iterable
from typing import Any, Literal, cast

from anychunk.errors import UnsupportedError
from anychunk.io import Folder, Source
from anychunk.model.index import Node, register_saving
from anychunk.references import icechunk, kerchunk, parquet
from anychunk.references.virtualizarr import to_virtualizarr

type IndexFormat = Literal["kerchunk", "parquet", "icechunk"]

INDEX_FORMATS = {"kerchunk": kerchunk, "parquet": parquet, "icechunk": icechunk}
SUFFIXES = {
    ".json": "kerchunk",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".icechunk": "icechunk",
    ".ice": "icechunk",
}


def index_format(target: str, format: str | None = None) -> str:
    """Return the index format of a target: `format` if given, else inferred from the extension."""
    if format is not None:
        if format not in INDEX_FORMATS:
            raise UnsupportedError(
                f"{target}: unknown index format {format!r}; known: {' '.join(INDEX_FORMATS)}"
            )
        return format
    name = target.rstrip("/").rpartition("/")[2]
    found = SUFFIXES.get(name[name.rfind(".") :] if "." in name else "")
    if found is None:
        raise UnsupportedError(
            f"{target}: cannot infer the index format from this extension; "
            f"use one of {' '.join(SUFFIXES)}, or pass format= one of: {' '.join(INDEX_FORMATS)}"
        )
    return found


def save(node: Node, target: str, *, format: str | None = None, **options: Any) -> None:
    """Save an index.

    Parameters:
        node: The index.
        target: A path or url.
        format: "kerchunk", "parquet" or "icechunk"; inferred from the extension by default.
        options: Those of the index format's own `save`.

    Raises:
        UnsupportedError: If the format cannot express the index; nothing is written then.
    """
    INDEX_FORMATS[index_format(target, format)].save(node, target, **options)


def sniff(head: bytes) -> bool:
    """Return whether a file with this head is a saved index."""
    return kerchunk.sniff(head)


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Load an index that is one object."""
    return kerchunk.load(source, allow=allow)


def sniff_folder(folder: Folder) -> str | None:
    """Return the index format of a folder, or None if it is not a saved index."""
    for name in ("parquet", "icechunk"):
        if INDEX_FORMATS[name].sniff_folder(folder):
            return name
    return None


def load_folder(folder: Folder, name: str, *, allow: Iterable[str] = (), **options: Any) -> Node:
    """Load an index that is a folder, in the index format `name`."""
    return cast("Node", INDEX_FORMATS[name].load(folder, allow=allow, **options))


# `index.save()` and `index.to_virtualizarr()`: the model layer cannot import this one
register_saving(save=save, to_virtualizarr=to_virtualizarr)
