"""Formats: modules that turn bytes into an index, and the registry that finds them.

A format is a module that has the functions of `Format` (one object per file) or `FolderFormat` (a
directory or an object-store prefix), and those of `WritableFormat` if it also writes. It is found
through the entry-point group `anychunk.formats`, ours and third-party ones alike, and recognised
by content. docs/howto/own-format.md has a complete example.

A module may list the extensions of its files in `EXTENSIONS`, for example `(".tif", ".tiff")`: by
these, xarray chooses the engine for remote urls, which it must not read for that.

A plug-in cannot break other formats: one that fails to import, or lacks the required functions, is
skipped with a warning, and raises `MissingDependencyError` only when it is requested by name.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from anychunk import options
from anychunk._outline import Outline, outline
from anychunk.errors import AnychunkError, FormatError, MissingDependencyError, UnsupportedError
from anychunk.io.opening import Folder
from anychunk.io.source import Source
from anychunk.model.index import Node

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "anychunk.formats"
OWN = {
    name: f"anychunk.formats.{name}"
    for name in ("dted", "jnrrd", "jpeg2000", "n5", "nifti", "nitf", "npy", "tiff", "zarr")
}
"""Modules of the formats of this package, which pyproject.toml lists as well."""
FOLDERS = ("n5", "zarr")
"""Those whose files are folders."""
FIRST_BYTES: dict[str, tuple[bytes, ...]] = {
    "dted": (b"UHL", b"VOL", b"HDR"),
    "jnrrd": (b"{", b" ", b"\t", b"\n", b"\v", b"\f", b"\r", b"NRRD"),  # JSON after white space
    "jpeg2000": (b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  "),
    "nifti": (
        *(b"\x5c\x01\0\0", b"\0\0\x01\x5c"),  # the size of the header, in either byte order
        *(b"\x1c\x02\0\0", b"\0\0\x02\x1c"),
        b"\x1f\x8b",  # gzip
    ),
    "nitf": (b"NITF", b"NSIF"),
    "npy": (b"\x93NUMPY", b"\x1f\x8b"),
    "tiff": (b"II", b"MM"),
}
"""What every file of a format begins with, so that only one that may be right is imported."""
HEAD = 4096
"""The number of bytes from the start of a file that are passed to `sniff`."""


@runtime_checkable
class Format(Protocol):
    """A format whose files are single objects: functions of a module."""

    def sniff(self, head: bytes) -> bool:
        """Return whether a file has this format.

        Called for every file that is opened without `format=`, so it must be fast and must not
        raise. Check a signature that no other format shares.

        Parameters:
            head: The first `HEAD` bytes, fewer if the file is shorter, none if it is empty.
        """
        ...

    def parse(self, source: Source, **options: Any) -> Node:
        """Return the index of a file: Zarr metadata, and where the bytes of every chunk are.

        Reads structure, never samples. The file is untrusted: check every offset, length and count
        against `source.size()` and `anychunk.limits` before anything is allocated from it.

        Parameters:
            source: Read it with `source.read(offset, length)`, which returns uint8 and raises
                `TruncatedError` beyond the end.
            options: Further options of `anychunk.open`. Declare yours as keyword-only
                parameters; unknown ones are refused before `parse` is called.

        Returns:
            A `GroupIndex` with a group per image, as `metadata.hierarchy.image_group` makes it from
            the levels and a `Meaning`; or an `ArrayIndex` if the file is always one array. Pins,
            which detect a changed file, are added for `source`; add those of other files yourself.

        Raises:
            FormatError: The file breaks the rules of its format; `TruncatedError` if it ends early.
            UnsupportedError: The file is valid, but uses what this module does not open.
        """
        ...


@runtime_checkable
class FolderFormat(Protocol):
    """A format whose "files" are folders: directories, or prefixes of an object store."""

    def sniff_folder(self, folder: Folder) -> bool:
        """Return whether a folder has this format, by its name or by a file that it must have."""
        ...

    def parse_folder(self, folder: Folder, **options: Any) -> Node:
        """Return the index of a folder; rules and errors are those of `Format.parse`."""
        ...


@runtime_checkable
class WritableFormat(Protocol):
    """A format that arrays can be written to."""

    def claims(self, url: str) -> bool:
        """Return whether `url`, by its extension, names a file of this format. Reads nothing."""
        ...

    def write(self, array: Any, url: str, **options: Any) -> None:
        """Write an array to `url`.

        Parameters:
            array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing. It
                may be larger than memory: read it in pieces.
            url: The target, a path or a remote url. Write through `anychunk.io.sink`.
            options: Further options of `anychunk.write`.
        """
        ...


type Module = Format | FolderFormat


@dataclass(frozen=True)
class Broken:
    """A registered format that cannot be used."""

    name: str
    distribution: str
    """The package that registers it, with its version."""
    cause: BaseException

    def __str__(self) -> str:
        return (
            f"format {self.name!r} of the package {self.distribution} cannot be loaded: "
            f"{type(self.cause).__name__}: {self.cause}"
        )


@cache
def _plugins() -> dict[str, list["EntryPoint"]]:
    """Return the entry points of formats of other packages by name, without importing them."""
    from importlib.metadata import entry_points  # slow, and not needed for a file of ours

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        # no plug-in can take over the files or names of ours
        if entry.name not in OWN and not _is_ours(entry.value):
            found.setdefault(entry.name, []).append(entry)
    return found


@cache
def _loaded(name: str) -> Module | Broken:
    """Import a format; warn about one that cannot be used."""
    if name in OWN:
        return cast("Module", import_module(OWN[name]))
    broken = []
    for entry in _plugins()[name]:
        try:
            return _load(entry)
        except (Exception, SystemExit) as e:  # noqa: BLE001 - any code may run at import
            broken.append(Broken(name, _distribution(entry), e))
            warnings.warn(f"{broken[-1]}; it is skipped", UserWarning, stacklevel=2)
    return broken[-1]


def _load(entry: "EntryPoint") -> Module:
    module = entry.load()
    if not isinstance(module, Format | FolderFormat):
        raise TypeError(
            f"{entry.value} has neither sniff and parse nor sniff_folder and parse_folder"
        )
    listed = getattr(module, "EXTENSIONS", ())
    if not isinstance(listed, tuple) or not all(isinstance(name, str) for name in listed):
        raise TypeError(f"{entry.value}: EXTENSIONS is {listed!r:.100}, expected a tuple of str")
    return module


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "anychunk"


def _distribution(entry: "EntryPoint") -> str:
    """Return the name and version of the package that an entry point belongs to."""
    metadata = entry.dist.metadata if entry.dist is not None else None
    # a damaged installation may lack its metadata; the module's name is always known
    name = metadata["Name"] if metadata is not None and "Name" in metadata else entry.value
    version = metadata["Version"] if metadata is not None and "Version" in metadata else ""
    return f"{name} {version}".strip()


def table() -> dict[str, Module]:
    """Return every usable format by name, ours first. The first call imports them all."""
    found = {name: _loaded(name) for name in names()}
    return {name: module for name, module in found.items() if not isinstance(module, Broken)}


def names() -> tuple[str, ...]:
    """Return the names of all registered formats, including those that cannot be loaded."""
    return (*OWN, *_plugins())


def outlines() -> dict[str, Outline]:
    """Return what every usable format says of itself; only those of other packages are imported."""
    found = {name: outline(module) for name, module in OWN.items()}
    for name in _plugins():
        module = _loaded(name)
        if not isinstance(module, Broken):
            found[name] = Outline(module.__doc__, frozenset(dir(module)))
    return found


def options_of_others() -> set[str] | None:
    """Return the names of the options that formats of other packages take; None: any."""
    modules = [module for name in _plugins() if not isinstance(module := _loaded(name), Broken)]
    listed = [getattr(m, f, None) for m in modules for f in ("parse", "parse_folder", "write")]
    functions = [f for f in listed if callable(f)]
    if any(map(options.takes_any, functions)):
        return None
    return {name for f in functions for name in options.names(f)}


@cache
def extensions() -> tuple[str, ...]:
    """Return the extensions that the usable formats list, in lower case."""
    listed = [getattr(module, "EXTENSIONS", ()) for module in table().values()]
    return tuple(name.lower() for names in listed for name in names)


def of_kind(kind: type) -> dict[str, Any]:
    """Return the formats of one kind. The first call imports all formats."""
    return dict(_of_kind(names(), kind))


@cache
def as_kind(name: str, kind: type) -> Any:
    """Return the format of this name; None if it cannot be used, or is of another kind.

    Cached, because checking a module against a protocol costs more than sniffing.
    """
    module = _loaded(name)
    return module if isinstance(module, kind) else None


def _of_kind(listed: Iterable[str], kind: type) -> Iterator[tuple[str, Any]]:
    for name in listed:
        module = as_kind(name, kind)
        if module is not None:
            yield name, module


def _candidates(head: bytes) -> Iterator[str]:
    """Yield the names of formats that a file may have, lazily: most files are ours."""
    for name in OWN:
        if name not in FOLDERS and head.startswith(FIRST_BYTES.get(name, b"")):
            yield name
    yield from _plugins()


def _folder_candidates() -> Iterator[str]:
    yield from FOLDERS
    yield from _plugins()


def sniff(head: bytes, url: str) -> tuple[str, Format]:
    """Return the name and the module of the format of a file, recognised by its first bytes.

    Parameters:
        head: The first `HEAD` bytes of the file.
        url: Names the file in messages.

    Raises:
        FormatError: The file is empty.
        UnsupportedError: No format recognises it.
    """
    for name, module in _of_kind(_candidates(head), Format):
        if _asked(name, module.sniff, head):
            return name, module
    if not head:
        raise FormatError(f"{url}: the file is empty; write or download it again")
    raise UnsupportedError(
        f"{url}: begins with {head[:8]!r}, which no format recognises; supported: {_listed()}"
    )


def sniff_folder(folder: Folder) -> tuple[str, FolderFormat]:
    """Return the name and the module of the format of a folder, recognised by its contents.

    Raises:
        UnsupportedError: No format recognises it.
    """
    for name, module in _of_kind(_folder_candidates(), FolderFormat):
        if _asked(name, module.sniff_folder, folder):
            return name, module
    raise UnsupportedError(
        f"{folder.path}: no format recognises this folder; supported: {_listed()}; "
        "pass one or more of its files instead"
    )


def _asked[T](name: str, question: Callable[[T], bool], about: T) -> bool:
    """Return a format's answer; a plug-in that raises does not recognise the file."""
    try:
        return question(about)
    except (AnychunkError, OSError):
        raise  # the file or the network, as of a folder that cannot be listed
    except Exception as e:
        if name in OWN:
            raise
        _warn_once(f"format {name!r}: {question.__name__} failed: {type(e).__name__}: {e}")
        return False


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


def _listed() -> str:
    working = table()
    broken = [name for name in names() if name not in working]
    skipped = f" (not loaded: {' '.join(broken)})" if broken else ""
    return f"{' '.join(working)}{skipped}; run `anychunk formats` for a description"


def by_name(name: str) -> Module:
    """Return the format that the caller names.

    Raises:
        MissingDependencyError: It is registered, but cannot be loaded.
        UnsupportedError: No format has this name.
    """
    if name not in OWN and name not in _plugins():
        raise UnsupportedError(f"format {name!r} is not registered; registered: {_listed()}")
    found = _loaded(name)
    if isinstance(found, Broken):
        raise MissingDependencyError(f"{found}; repair or uninstall the package") from found.cause
    return found


def writer(url: str) -> WritableFormat:
    """Return the format that writes `url`, by its extension.

    Raises:
        UnsupportedError: No format writes this extension.
    """
    writers: dict[str, WritableFormat] = of_kind(WritableFormat)
    for name, module in writers.items():
        if _asked(name, module.claims, url):
            return module
    raise UnsupportedError(
        f"{url}: no format writes this extension; supported: {' '.join(writers)}"
    )
