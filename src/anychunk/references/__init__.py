"""Indexes kept and shared: kerchunk JSON and parquet, Icechunk, VirtualiZarr."""

from collections.abc import Iterable
from typing import Any, Literal, cast

from anychunk.errors import UnsupportedError
from anychunk.io import Folder, Source
from anychunk.model.index import Node
from anychunk.references import icechunk, kerchunk, parquet

type Kind = Literal["kerchunk", "parquet", "icechunk"]

FORMS = {"kerchunk": kerchunk, "parquet": parquet, "icechunk": icechunk}
SUFFIXES = {
    ".json": "kerchunk",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".icechunk": "icechunk",
    ".ice": "icechunk",
}


def form_of(target: str, format: str | None = None) -> str:
    """Give the kind of index that a target is, by the caller's word or by its name."""
    if format is not None:
        if format not in FORMS:
            raise UnsupportedError(f"{target}: no index {format!r}; there are: {' '.join(FORMS)}")
        return format
    name = target.rstrip("/").rpartition("/")[2]
    found = SUFFIXES.get(name[name.rfind(".") :] if "." in name else "")
    if found is None:
        raise UnsupportedError(
            f"{target}: its name tells no kind of index; end it with {' '.join(SUFFIXES)}, "
            f"or give format= one of: {' '.join(FORMS)}"
        )
    return found


def save(node: Node, target: str, *, format: str | None = None, **options: Any) -> None:
    """Write an index; options are those of the form's own `save`."""
    FORMS[form_of(target, format)].save(node, target, **options)


def sniff(head: bytes) -> bool:
    """Whether a file with this head is a saved index."""
    return kerchunk.sniff(head)


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Read an index that is one object."""
    return kerchunk.load(source, allow=allow)


def sniff_folder(folder: Folder) -> str | None:
    """Name the kind of saved index that a folder is, or give None."""
    for name in ("parquet", "icechunk"):
        if FORMS[name].sniff_folder(folder):
            return name
    return None


def load_folder(folder: Folder, name: str, *, allow: Iterable[str] = (), **options: Any) -> Node:
    """Read an index that is a folder."""
    return cast("Node", FORMS[name].load(folder, allow=allow, **options))
