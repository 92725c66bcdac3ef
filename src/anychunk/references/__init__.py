"""Saved indexes: kerchunk JSON and parquet, Icechunk repositories, and VirtualiZarr manifests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Unpack, cast

from anychunk.errors import OptionError, SourceChangedError, UnsupportedError, untrusted
from anychunk.io import sink
from anychunk.io.forking import Lock
from anychunk.io.held import HeldPin, with_source
from anychunk.io.opening import Folder, open_source
from anychunk.io.source import Source, Storage, as_url, with_signed
from anychunk.model.index import GroupIndex, Node, Saved, saved_at, with_saved
from anychunk.options import Copy, SaveOptions, check, checked, names
from anychunk.references import icechunk, kerchunk, parquet
from anychunk.references.seek_points import with_points
from anychunk.references.virtualizarr import to_virtualizarr as to_virtualizarr
from anychunk.references.whole_strips import with_whole_strips

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
            raise OptionError(
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


@checked()
def save(
    node: Node,
    target: str | Path,
    *,
    format: str | None = None,
    copy: Copy = "never",
    overwrite: bool = False,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Unpack[SaveOptions],
) -> None:
    """Save an index, so that it can be opened again without parsing the file.

    Long compressed streams that are cut into chunks are read once, to find their seek points.

    Parameters:
        node: What `anychunk.index` returned.
        target: A path or url: `.json` kerchunk, `.parquet`, or an `.icechunk` repository.
        format: "kerchunk", "parquet" or "icechunk", instead of the target's extension.
        copy: `"needed"` copies chunks that the format cannot refer to; `"never"` refuses them.
        overwrite: Replace an existing target; of an Icechunk repository, what its branch shows.
        storage: Of the sources, as in `anychunk.index`.
        target_storage: Of the target.
        **options: `relative=False` writes urls that do not move with the index. For JSON also
            `zarr_format=2` and `layout="osml"`, for Icechunk `message`.

    Raises:
        OptionError: There is no such option, or the format does not have it.
        TargetExistsError: There is something at the target; also a `FileExistsError`.
        UnsupportedError: If the format cannot express the index; nothing is written then.
    """
    target = as_url(target)
    kind = index_format(target, format)
    chosen = INDEX_FORMATS[kind]
    check(f"{target}: {kind}", options, names(chosen.save))
    sink.check_free(target, overwrite=overwrite, storage=target_storage)
    held = [url for url, pin in node.pins.items() if isinstance(pin, HeldPin)]
    if held:
        raise UnsupportedError(
            f"{target}: refers to {held[0]}, which was passed as bytes or as an open file and has "
            "no address; index it by its path or url, or convert it"
        )
    if options.get("layout") == "osml":
        node = with_whole_strips(node)
    given = {"copy": copy, "storage": storage, "target_storage": target_storage, **options}
    chosen.save(with_points(node, storage=storage), target, **given)


@contextmanager
def adding(
    target: str, urls: Sequence[str], *, format: str, **options: Any
) -> Iterator[Callable[[GroupIndex], None]]:
    """Save the group of very many files as kerchunk JSON or parquet, piece by piece.

    Yield a function that adds the index of some files, which is not kept in memory. What is at
    `target` is replaced when the block succeeds.

    Parameters:
        target: A path or url.
        urls: All files.
        format: "kerchunk" or "parquet".
        options: Those of the index format's own `save`, but for layouts.
    """
    storage = options.get("storage")
    chosen = (
        kerchunk.adding(target, urls, **options)
        if format == "kerchunk"
        else parquet.adding(target, **options)
    )
    with chosen as add:
        yield lambda node: add(with_points(node, storage=storage))


def sniff(head: bytes) -> bool:
    """Return whether a file with this head is a saved index."""
    return kerchunk.sniff(head)


def load(source: Source, *, allow: Iterable[str] = ()) -> Node:
    """Load an index that is one object."""
    with untrusted(source.url):
        node = kerchunk.load(source, allow=allow)
    options = {"allow": tuple(allow)}
    return with_saved(
        node, Saved(url=source.url, format="kerchunk", options=options, pin=with_source(source))
    )


def sniff_folder(folder: Folder) -> str | None:
    """Return the index format of a folder, or None if it is not a saved index."""
    for name in ("parquet", "icechunk"):
        if INDEX_FORMATS[name].sniff_folder(folder):
            return name
    return None


def load_folder(folder: Folder, name: str, *, allow: Iterable[str] = (), **options: Any) -> Node:
    """Load an index that is a folder, in the index format `name`."""
    allow = tuple(allow)
    with untrusted(folder.path):
        if name == "icechunk":
            return icechunk.load(folder, allow=allow, **options)
        pin = folder.source(parquet.V2_METADATA).pin()
        node = cast("Node", INDEX_FORMATS[name].load(folder, allow=allow, **options))
    return with_saved(
        node, Saved(url=folder.path, format=name, options={"allow": allow, **options}, pin=pin)
    )


MOST_LOADED = 4
"""How many indexes are kept that pickled arrays refer to."""
_loaded: dict[str, Node] = {}
_loading = Lock()


def load_saved(saved: Saved, storage: Storage | None) -> Node:
    """Load the same version of a saved index again, once per process.

    Raises:
        SourceChangedError: Another index was saved there in the meantime.
    """
    key = repr((saved, storage))
    with _loading:
        found = _loaded.pop(key, None)
        if found is None:
            found = _load_again(saved, storage)
        _loaded[key] = found
        while len(_loaded) > MOST_LOADED:
            del _loaded[next(iter(_loaded))]
    return found


def _load_again(saved: Saved, storage: Storage | None) -> Node:
    if saved.format == "kerchunk":
        signed = with_signed(storage, saved.pin.signed if saved.pin else None)
        node = load(open_source(saved.url, storage=signed), **saved.options)
    else:
        node = load_folder(Folder(saved.url, storage=storage), saved.format, **saved.options)
    now = saved_at(node)
    pins = (saved.pin, None if now is None else now.pin)
    if pins[0] is not None and pins[1] is not None and (change := pins[0].differs(pins[1])):
        raise SourceChangedError(f"{saved.url}: {change}; open the index again")
    return node
