"""Check the FlexBuffers in a repository's `repo` file before Icechunk follows their offsets.

Icechunk verifies the FlatBuffers of the file, but not the FlexBuffers inside: its configuration
and the metadata of snapshots. Their reader follows every offset. One to itself overflows the stack,
which ends the process; so does deep nesting. Vectors that share their elements take exponential
time. Here values are counted: each takes at least one byte, so more values than bytes are no tree.

Specifications: Icechunk 2, `repo.fbs`; FlatBuffers and FlexBuffers internals.
"""

import struct
from collections.abc import Iterator

import imagecodecs
import numpy as np

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError
from anychunk.io.opening import Folder

HEADER = 39
"""Magic bytes, name of the writer, version, kind of file, compression."""
ZSTD = 1
WITH_FLEXBUFFERS = 2
"""The first version of the format that has them."""
SNAPSHOTS, METADATA, CONFIG = 4, 6, 9
"""Fields of `Repo`."""
SNAPSHOT_METADATA = 4
"""Field of `SnapshotInfo`."""
VALUE = 1
"""Field of `MetadataItem`."""
MAP, VECTOR = 9, 10
"""Types of FlexBuffers that contain values of any type."""
MOST_LEVELS = 64
"""How deep values may be nested; Icechunk's configuration has 6 levels."""
WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def check_repo_file(folder: Folder) -> None:
    """Raise `FormatError` if Icechunk would not come back from reading the `repo` file.

    Anything else that is wrong with it is left to Icechunk, which reports it.
    """
    try:
        data = folder.read("repo")
    except (AnychunkError, OSError):
        return
    if data is None or len(data) <= HEADER or data[HEADER - 3] < WITH_FLEXBUFFERS:
        return
    plain = data[HEADER:]
    if data[HEADER - 1] == ZSTD:
        most = np.empty(limits.get().header_bytes, np.uint8)
        try:
            plain = bytes(imagecodecs.zstd_decode(plain, out=most))
        except Exception:  # noqa: BLE001 - damaged, or too long for what follows
            return
    try:
        found = list(_flexbuffers(plain))
    except (struct.error, IndexError, ValueError):
        return
    for name, value in found:
        if not is_tree(value):
            raise FormatError(
                f"{folder.path}/repo: {name} refers to itself, or to the same values over and over"
            )


def _flexbuffers(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the FlexBuffers in a repo file."""
    root = _target(data, 0)
    yield from ((f"metadata {i}", v) for i, v in enumerate(_values(data, root, METADATA)))
    for number, snapshot in enumerate(_tables(data, root, SNAPSHOTS)):
        for value in _values(data, snapshot, SNAPSHOT_METADATA):
            yield f"the metadata of snapshot {number}", value
    config = _field(data, root, CONFIG)
    if config:
        yield "the configuration", _bytes(data, config)


def _values(data: bytes, table: int, field: int) -> Iterator[bytes]:
    """Yield the values of a vector of `MetadataItem`."""
    for item in _tables(data, table, field):
        place = _field(data, item, VALUE)
        if place:
            yield _bytes(data, place)


def _tables(data: bytes, table: int, field: int) -> Iterator[int]:
    """Yield the positions of the tables in a vector; nothing if the field is absent."""
    place = _field(data, table, field)
    if place:
        start = _target(data, place)
        (count,) = struct.unpack_from("<I", data, start)
        if 4 * count > len(data):
            raise ValueError("longer than the file")
        for i in range(count):
            yield _target(data, start + 4 + 4 * i)


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table; 0 if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise ValueError("before the file")
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + int(offset) if offset else 0


def _target(data: bytes, place: int) -> int:
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)


def _bytes(data: bytes, place: int) -> bytes:
    start = _target(data, place)
    (count,) = struct.unpack_from("<I", data, start)
    return data[start + 4 : start + 4 + count]


def is_tree(data: bytes) -> bool:
    """Return whether following the offsets of a FlexBuffer reaches no more values than it has."""
    if len(data) < 3:
        return True
    width, left = data[-1], len(data)
    # (position, width of what is stored there, packed type) of the values of one level
    level = [(len(data) - 2 - width, width, data[-2])]
    for _ in range(MOST_LEVELS):
        following = []
        for value in level:
            inner = _inner(data, *value, left)
            if inner is None:
                return False
            left -= len(inner)
            following += inner
        level = following
    return not level


def _inner(
    data: bytes, place: int, width: int, packed: int, most: int
) -> list[tuple[int, int, int]] | None:
    """Return the values inside a value; None if they are more than `most`."""
    if packed >> 2 not in (MAP, VECTOR):
        return []
    start = place - _unsigned(data, place, width)
    own = 1 << (packed & 3)
    count = _unsigned(data, start - own, own)
    if start < own or start + count * (own + 1) > len(data):
        return []  # Icechunk reports what is beyond the end
    if count > most:
        return None
    types = data[start + count * own : start + count * (own + 1)]
    return [(start + i * own, own, kind) for i, kind in enumerate(types)]


def _unsigned(data: bytes, place: int, width: int) -> int:
    """Return an integer; 0 if it is outside the data."""
    if width not in WIDTHS or not 0 <= place <= len(data) - width:
        return 0
    (number,) = struct.unpack_from(WIDTHS[width], data, place)
    return int(number)
