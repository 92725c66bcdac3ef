"""Indexes made by hand, of every kind of chunk table, over small files."""

import numpy as np

from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, GroupIndex, Objects, Parts
from anychunk.model.pin import Pin


def array(shape, chunk, chunks, **changes):
    made = {
        "shape": shape,
        "chunk_shape": chunk,
        "data_type": "uint8",
        "codecs": ({"name": "bytes"},),
        "chunks": chunks,
        "fill_value": 9,
        "dimension_names": ("y", "x", "z")[: len(shape)],
    }
    return ArrayIndex(**{**made, **changes})


def pin_of(path):
    stat = path.stat()
    return Pin(size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def uint64(values, shape=None):
    found = np.array(values, np.uint64)
    return found if shape is None else found.reshape(shape)


def plain(folder, name="a b.bin"):
    """Two files, one absent chunk, one chunk that is a whole file."""
    a, b = folder / name, folder / "sub" / "b.bin"
    b.parent.mkdir(exist_ok=True)
    a.write_bytes(bytes(range(40)))
    b.write_bytes(bytes([200, 201, 202, 203]))
    chunks = ByteRanges(
        offsets=uint64([4, 0, 20, 0], (2, 2)),
        lengths=uint64([4, 0, 4, WHOLE], (2, 2)),
        urls=(str(a), str(b)),
        url_ids=np.array([[0, 0], [0, 1]], np.uint8),
    )
    image = GroupIndex(members={"0": array((4, 4), (2, 2), chunks)}, attributes={"kind": "plain"})
    truth = np.array([[4, 5, 9, 9], [6, 7, 9, 9], [20, 21, 200, 201], [22, 23, 202, 203]], np.uint8)
    pins = {str(a): pin_of(a), str(b): pin_of(b)}
    return GroupIndex(members={"0": image}, attributes={"title": "é"}, pins=pins), truth


def parted(folder):
    """One chunk in three ranges, one in one."""
    a = folder / "parts.bin"
    a.write_bytes(bytes(range(40)))
    chunks = ByteRanges(
        offsets=uint64([30, 8]),
        lengths=uint64([2, 4]),
        urls=(str(a),),
        parts=Parts(starts=uint64([0, 2, 2]), offsets=uint64([2, 20]), lengths=uint64([1, 1])),
    )
    truth = np.array([30, 31, 2, 20, 8, 9, 10, 11], np.uint8)
    return GroupIndex(members={"p": array((8,), (4,), chunks)}, pins={str(a): pin_of(a)}), truth


def fronted(folder):
    """Chunks whose first byte only the index knows."""
    a = folder / "fronts.bin"
    a.write_bytes(bytes(range(40)))
    chunks = ByteRanges(
        offsets=uint64([10, 20, 0]),
        lengths=uint64([3, 3, 0]),
        urls=(str(a),),
        fronts=(b"\x63", b"\x64"),
        front_ids=np.array([0, 1, 0], np.uint8),
    )
    truth = np.array([99, 10, 11, 12, 100, 20, 21, 22, 9, 9, 9, 9], np.uint8)
    return GroupIndex(members={"f": array((12,), (4,), chunks)}, pins={str(a): pin_of(a)}), truth


def objects(folder):
    """One file a chunk, one of them missing."""
    base = folder / "tiles"
    base.mkdir()
    (base / "t0_0").write_bytes(b"\1\2")
    (base / "t1_0").write_bytes(b"\3\4")
    chunks = Objects(base=str(base), pattern="t{0}_{1}", grid=(3, 1))
    truth = np.array([[1, 2], [3, 4], [9, 9]], np.uint8)
    return GroupIndex(members={"o": array((3, 2), (1, 2), chunks)}), truth


def scalar(folder):
    a = folder / "scalar.bin"
    a.write_bytes(b"\0\7")
    chunks = ByteRanges(offsets=uint64(1), lengths=uint64(1), urls=(str(a),))
    return GroupIndex(members={"s": array((), (), chunks)}, pins={str(a): pin_of(a)}), np.uint8(7)


MADE = {"plain": plain, "parted": parted, "fronted": fronted, "objects": objects, "scalar": scalar}
PATHS = {"plain": "0/0", "parted": "p", "fronted": "f", "objects": "o", "scalar": "s"}
