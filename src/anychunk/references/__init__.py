"""Saved indexes: kerchunk JSON and parquet, Icechunk repositories, and VirtualiZarr manifests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import numpy as np

from anychunk.codecs import from_json, to_json
from anychunk.codecs.tiff import samples
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.decode.pieces import compression_of
from anychunk.errors import OptionError, SourceChangedError, UnsupportedError, untrusted
from anychunk.io import sink
from anychunk.io.forking import Lock
from anychunk.io.held import HeldPin, with_source
from anychunk.io.opening import Folder, open_source
from anychunk.io.source import Source, Storage, as_url, with_signed
from anychunk.model.fronts import read_front
from anychunk.model.grid import grid_shape
from anychunk.model.index import (
    PIECE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Json,
    Node,
    Saved,
    saved_at,
    with_saved,
)
from anychunk.options import Copy, SaveOptions, check, checked, names
from anychunk.references import icechunk, kerchunk, parquet
from anychunk.references.seek_points import with_points
from anychunk.references.virtualizarr import to_virtualizarr as to_virtualizarr

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
        **options: `relative=False` writes urls that do not move with the index. For JSON and
            parquet also `layout="osml"`, for JSON `zarr_format=2`, for Icechunk `message`.

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


# TIFF strips that are cut into pieces, as whole strips again, for software without our codecs.

COMPRESSIONS = {"zlib": 8, "lzw": 5}
"""What TIFF calls the streams that strips are cut from."""
FORMATS = {"u": 1, "b": 1, "i": 2, "f": 3, "c": 6}
"""SampleFormat of numpy's kinds of numbers."""


def with_whole_strips[N: Node](node: N) -> N:
    """Return an index in which the chunks of TIFF strips are whole strips."""
    if isinstance(node, ArrayIndex):
        return cast("N", whole_strips(node))
    members = {name: with_whole_strips(member) for name, member in node.members.items()}
    return replace(node, members=members)


def whole_strips(array: ArrayIndex) -> ArrayIndex:
    """Return an array whose chunks are whole strips; another array unchanged."""
    compression = COMPRESSIONS.get(compression_of(array) or "")
    chunks = array.chunks
    if compression is None or not isinstance(chunks, ByteRanges) or chunks.parts is not None:
        return array
    piece = _piece_tile(array)
    if piece is None:
        return array
    first = 0 if chunks.front_ids is None else int(chunks.front_ids.flat[0])
    row_bytes = samples.row_bytes(piece.tile_width, piece.samples_per_pixel, piece.bits)
    rows, rest = divmod(read_front(chunks.fronts[first]).stop, row_bytes)
    height, per_strip = array.shape[-2], -(-rows // array.chunk_shape[-2])
    shape = (*array.chunk_shape[:-2], rows, array.chunk_shape[-1])
    if rest or chunks.offsets[..., ::per_strip, :].shape != grid_shape(array.shape, shape):
        return array
    tile = replace(
        piece, compression=compression, tile_height=rows, last_height=height % rows or rows
    )
    tables: dict[str, Any] = {
        name: np.ascontiguousarray(table[..., ::per_strip, :])
        for name in ("offsets", "lengths", "url_ids")
        if (table := getattr(chunks, name)) is not None
    }
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    return replace(
        array,
        chunk_shape=shape,
        codecs=(little, to_json(tile)),
        chunks=replace(chunks, **tables, fronts=(), front_ids=None),
    )


def _piece_tile(array: ArrayIndex) -> TiffTile | None:
    """Return the codec of a piece without its compression; None if it is not of a TIFF strip."""
    *inner, outer = array.codecs
    if not _is(outer, PIECE):
        return None
    if len(inner) == 2 and _is(inner[1], TiffTile.name):
        tile = from_json(inner[1])
        return tile if isinstance(tile, TiffTile) else None
    bands = int(np.prod(array.chunk_shape[:-2]))
    transposition = inner[0] if _is(inner[0], "transpose") else None
    serializer = inner[-1]
    if not _is(serializer, "bytes") or len(inner) != 1 + (transposition is not None):
        return None
    dtype = np.dtype(str(array.data_type))
    if dtype.kind not in FORMATS or (bands > 1 and transposition is None):
        return None
    endian = cast("dict[str, Any]", serializer).get("configuration", {}).get("endian", "little")
    return TiffTile(
        compression=1,
        bits_per_sample=8 * dtype.itemsize,
        samples_per_pixel=bands,
        photometric=2 if bands >= 3 else 1,
        planar_config=1,
        predictor=1,
        tile_width=array.chunk_shape[-1],
        tile_height=array.chunk_shape[-2],
        sample_format=FORMATS[dtype.kind],
        byte_order=endian,
        last_width=array.shape[-1],
    )


def _is(codec: Json, name: str) -> bool:
    return isinstance(codec, dict) and codec.get("name") == name
