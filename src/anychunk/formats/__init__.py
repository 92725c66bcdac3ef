"""Formats: modules that turn bytes into an index, found by entry points and told by content.

A format is a module, listed under `anychunk.formats` in the packaging metadata, that has what
`Format` (one object) or `FolderFormat` (a directory or prefix) asks for.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast, runtime_checkable

from anychunk.errors import FormatError, UnsupportedError
from anychunk.io import Folder, Source
from anychunk.model.index import Node

HEAD = 4096
"""How many bytes `sniff` is shown."""


@runtime_checkable
class Format(Protocol):
    """A format whose files are one object."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with `head` is of this format."""
        ...

    def parse(self, source: Source, **options: Any) -> Node:
        """Read structure, never samples."""
        ...


@runtime_checkable
class FolderFormat(Protocol):
    """A format whose files are folders."""

    def sniff_folder(self, folder: Folder) -> bool: ...
    def parse_folder(self, folder: Folder, **options: Any) -> Node: ...


@runtime_checkable
class WritableFormat(Protocol):
    """A format that arrays can be written to."""

    def claims(self, url: str) -> bool:
        """Whether an array written to `url` is meant for this format, by its name."""
        ...

    def write(self, array: Any, url: str, **options: Any) -> None: ...


@cache
def table() -> dict[str, Format | FolderFormat]:
    """Import every format, by name."""
    found = sorted(entry_points(group="anychunk.formats"), key=lambda entry: entry.name)
    return {entry.name: cast("Format | FolderFormat", entry.load()) for entry in found}


@cache
def of_kind[Kind](kind: type[Kind]) -> dict[str, Kind]:
    """Give the formats of one kind; asking what a protocol has costs more than sniffing."""
    return {name: module for name, module in table().items() if isinstance(module, kind)}


def sniff(head: bytes, url: str) -> tuple[str, Format]:
    """Find the format of a file by its first bytes."""
    for name, module in of_kind(Format).items():
        if module.sniff(head):
            return name, module
    if not head:
        raise FormatError(f"{url}: the file is empty; write or fetch it again")
    raise UnsupportedError(
        f"{url}: begins with {head[:8]!r}, which is none of the formats opened here: "
        f"{' '.join(table())}; `anychunk formats` says what each is"
    )


def sniff_folder(folder: Folder) -> tuple[str, FolderFormat]:
    """Find the format of a folder by what lies in it."""
    for name, module in of_kind(FolderFormat).items():
        if module.sniff_folder(folder):
            return name, module
    raise UnsupportedError(
        f"{folder.path}: a folder of none of the formats opened here: {' '.join(table())}; "
        "give a file in it, or several"
    )


def by_name(name: str) -> Format | FolderFormat:
    """Give a format that the caller names."""
    found = table().get(name)
    if found is None:
        raise UnsupportedError(f"{name}: no such format; opened: {' '.join(table())}")
    return found


def writer(url: str) -> WritableFormat:
    """Find the format to write by the name of the target."""
    writers = {n: m for n, m in table().items() if isinstance(m, WritableFormat)}
    for module in writers.values():
        if module.claims(url):
            return module
    raise UnsupportedError(
        f"{url}: its name tells no format to write; written: {' '.join(writers)}"
    )
