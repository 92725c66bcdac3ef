"""N5 containers by our own bytes, as its specification has them."""

import bz2
import gzip
import itertools
import json
import lzma
import struct
from collections.abc import Callable, Iterator
from typing import Any

import imagecodecs
import numpy as np

from fuzz.cases import Field, Files, Seed
from fuzz.seeds.pictures import field

BLOSC = {"type": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1, "blocksize": 0}
CODECS: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
    "raw": ({"type": "raw"}, bytes),
    "gzip": ({"type": "gzip", "level": 5}, lambda data: gzip.compress(data, mtime=0)),
    "zlib": ({"type": "gzip", "useZlib": True}, imagecodecs.zlib_encode),
    "bzip2": ({"type": "bzip2", "blockSize": 9}, bz2.compress),
    "xz": ({"type": "xz", "preset": 6}, lzma.compress),
    "zstd": ({"type": "zstd", "level": 3}, imagecodecs.zstd_encode),
    "blosc": (BLOSC, lambda data: imagecodecs.blosc_encode(data, compressor="zstd", typesize=2)),
}
WORDS = {
    "dataType": ["uint8", "uint16", "int64", "float32", "float64", "string", "object", "bool"],
    "type": ["raw", "gzip", "bzip2", "xz", "lz4", "blosc", "zstd", "jpeg", "nope"],
    "cname": ["lz4", "zstd", "zlib", "snappy", "nope", 1],
}
PEERS = {"raw", "gzip", "bzip2", "xz", "blosc", "zstd"}


def dataset(
    path: str, array: np.ndarray, block: tuple[int, ...], codec: str, **extra: Any
) -> tuple[Files, list[Field]]:
    """Return the files of a dataset with cropped edges, and their fields."""
    compression, encode = CODECS[codec]
    attributes = {
        "dimensions": list(array.shape),
        "blockSize": list(block),
        "dataType": array.dtype.name,
        "compression": compression,
        **extra,
    }
    place = f"{path}/" if path else ""
    files = {f"{place}attributes.json": json.dumps(attributes).encode()}
    fields = [
        Field(file=f"{place}attributes.json", kind="json", label="attributes", weight=8,
              more={"only": WORDS})
    ]  # fmt: skip
    grid = [range(-(-n // b)) for n, b in zip(array.shape, block, strict=True)]
    for coords in itertools.product(*grid):
        part = array[tuple(slice(c * b, (c + 1) * b) for c, b in zip(coords, block, strict=True))]
        head = struct.pack(f">HH{array.ndim}I", 0, array.ndim, *part.shape)
        stored = bytes(encode(part.astype(part.dtype.newbyteorder(">")).tobytes(order="F")))
        name = place + "/".join(map(str, coords))
        files[name] = head + stored
        spots = [(0, 2), (2, 2), *((4 + 4 * i, 4) for i in range(array.ndim))]
        fields += [
            Field(file=name, kind="uint", label="block header", offset=at, length=width, weight=0.4)
            for at, width in spots
        ]
        data = {"file": name, "offset": len(head), "length": len(stored)}
        fields.append(Field(kind="data", label="block data", **data))
        if codec != "raw":
            bomb = {"codec": codec}
            fields.append(Field(kind="bomb", label="block bomb", more=bomb, weight=0.2, **data))
    return files, fields


def seeds() -> Iterator[Seed]:
    """Yield datasets and containers."""
    array = field((20, 14), "u2")
    for codec in CODECS:
        files, fields = dataset("", array, (8, 8), codec)
        files["attributes.json"] = files["attributes.json"][:-1] + b', "n5": "2.5.1"}'
        peers = ("tensorstore",) if codec in PEERS else ()
        yield Seed(
            name=f"n5/{codec}", format="n5", files={f"a.n5/{n}": d for n, d in files.items()},
            entry="a.n5", fields=moved(fields), peers=peers,
        )  # fmt: skip
    files, fields = {"attributes.json": b'{"n5": "2.5.1"}'}, []
    for level, data in enumerate((field((10, 12, 6)), field((5, 6, 3)))):
        some, more = dataset(
            f"s{level}", data, (4, 4, 4), "gzip", downsamplingFactors=[1 + level] * 3
        )
        files |= some
        fields += more
    root = {
        "n5": "2.5.1",
        "multiScale": True,
        "resolution": [1.0, 1.0, 2.0],
        "axes": ["x", "y", "z"],
    }
    files["attributes.json"] = json.dumps(root).encode()
    fields.append(Field(file="attributes.json", kind="json", label="root", weight=8))
    yield Seed(
        name="n5/levels", format="n5", files={f"a.n5/{n}": d for n, d in files.items()},
        entry="a.n5", fields=moved(fields),
    )  # fmt: skip


def moved(fields: list[Field]) -> tuple[Field, ...]:
    """Return the fields with files inside the container's folder."""
    return tuple(Field(**{**spot.__dict__, "file": f"a.n5/{spot.file}"}) for spot in fields)
