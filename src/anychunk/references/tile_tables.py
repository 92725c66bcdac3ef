"""Tables of the code-blocks of large JPEG 2000 tiles, in saved indexes.

In a saved index, the chunks of every array are whole tiles, which other software reads. The tables,
under `anychunk` in the root's attributes, let anychunk read windows without walking the tiles
again. Their presence also says that large tiles are to be divided into chunks when it is loaded.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import replace

from anychunk.codestream.block_table import pack
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats._jpeg2000 import divided, is_divided, whole_tree
from anychunk.io.open_sources import Sources
from anychunk.io.source import Storage
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, walk

KEY = "tables"
LARGE = 2048 * 2048
"""Tiles of fewer pixels have no saved table: walking them takes no longer than loading it."""

type Tables = dict[tuple[str, int], bytes]


def saved_form[N: Node](node: N, storage: Storage | None, *, has_tables: bool = True) -> N:
    """Return an index as it is saved: chunks are whole tiles, and large ones have tables.

    Parameters:
        node: The index.
        storage: Options for reading the tiles, whose packets are walked.
        has_tables: Whether tables are saved.
    """
    is_needed = any(isinstance(n, ArrayIndex) and is_divided(n) for _, n in walk(node))
    if not is_needed:
        return node
    tables = _make_tables(node, storage) if has_tables else {}
    made = _with_tables(whole_tree(node), tables)
    if has_tables:
        about = {**(node.attributes.get("anychunk") or {}), KEY: {}}
        made = replace(made, attributes={**made.attributes, "anychunk": about})
    return made  # type: ignore[return-value]


def _make_tables(node: Node, storage: Storage | None) -> Tables:
    found: Tables = {}
    sources = Sources(node.pins, storage=storage, roots=node.roots)
    for path, array in walk(node):
        if not isinstance(array, ArrayIndex) or not is_divided(array):
            continue
        reader = ChunkReader(array, sources, where=path)
        assert isinstance(array.chunks, ByteRanges)
        for number in range(array.chunks.offsets.size):
            _add_table(reader, array.chunks.tables, number, found)
    return found


def _add_table(
    reader: ChunkReader, known: Mapping[tuple[str, int], bytes], number: int, found: Tables
) -> None:
    """Add the table of the tile that a chunk is in, unless it is there or the tile is small."""
    if reader.is_absent(number):
        return
    url, offset, _ = reader.ranges(number)[0]
    key = (url, offset)
    if key in found:
        return
    if key in known:
        found[key] = known[key]
        return
    assert reader.windows is not None
    header = reader.windows.codec.header
    if header.siz.tile_width * header.siz.tile_height < LARGE:
        return
    ranges = [(start, length) for _, start, length in reader.ranges(number)]
    try:
        tile = reader.windows.walked(reader.sources.verify(url), ranges)
    except AnychunkError:
        return  # a damaged tile is reported when it is read
    if tile.layout is not None and tile.table is not None:
        found[key] = pack(tile.layout, tile.table)


def _with_tables(node: Node, tables: Mapping[tuple[str, int], bytes]) -> Node:
    """Return an index whose arrays have the tables of their tiles."""
    if isinstance(node, GroupIndex):
        members = {name: _with_tables(member, tables) for name, member in node.members.items()}
        return replace(node, members=members)
    chunks = node.chunks
    if not isinstance(chunks, ByteRanges):
        return node
    mine = {key: value for key, value in tables.items() if key[0] in chunks.urls}
    return replace(node, chunks=replace(chunks, tables=mine)) if mine or chunks.tables else node


def write_tables(node: Node, written: Callable[[str], str]) -> Json:
    """Return the tables of all arrays as JSON.

    Parameters:
        node: The index.
        written: Returns how a url is written.
    """
    found: dict[str, dict[str, str]] = {}
    for _, array in walk(node):
        if isinstance(array, ArrayIndex) and isinstance(array.chunks, ByteRanges):
            for (url, offset), table in array.chunks.tables.items():
                found.setdefault(written(url), {})[str(offset)] = base64.b64encode(table).decode()
    return found


def load_tables(node: Node, saved: Json, resolve: Callable[[str], str], where: str) -> Node:
    """Return a loaded index with its tables, and the chunks of large tiles divided."""
    tables: Tables = {}
    try:
        for url, entries in saved.items():
            for offset, text in entries.items():
                tables[resolve(url), int(offset)] = base64.b64decode(text, validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error) as e:
        if isinstance(e, AnychunkError):
            raise
        raise FormatError(
            f"{where}: {KEY} are malformed ({e}), expected base64 text by url and offset"
        ) from e
    return _divided(_with_tables(node, tables))


def _divided(node: Node) -> Node:
    if isinstance(node, ArrayIndex):
        return divided(node)
    members = {name: _divided(member) for name, member in node.members.items()}
    return replace(node, members=members)
