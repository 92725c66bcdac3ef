"""NRRD by pynrrd, JNRRD with tiles by our own bytes."""

import bz2
import gzip
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np

from fuzz.cases import Field, Files, Seed
from fuzz.seeds.pictures import field

WORDS = (
    b"uint8", b"int16", b"double", b"block", b"raw", b"gzip", b"bzip2", b"ascii", b"hex", b"zrl",
    b"big", b"little", b"-1", b"sizes", b"dimension", b"encoding", b"data file", b"LIST", b"../x",
    b"NRRD0001", b"byte skip", b"line skip", b"a%03d.raw",
)  # fmt: skip
BLANKS = 24
"""Blanks behind every line of a header, to be used up by longer values."""
URI = "https://jnrrd.org/extensions/tile/v1.0.0"


def seeds() -> Iterator[Seed]:
    """Yield NRRD files, attached and detached."""
    import nrrd

    array = field((6, 20, 14), "u2")
    for name, encoding, detached in (
        ("raw", "raw", False), ("gzip", "gzip", False), ("bzip2", "bzip2", False),
        ("ascii", "ascii", False), ("detached", "raw", True), ("detached-gzip", "gzip", True),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            entry = "a.nhdr" if detached else "a.nrrd"
            header = {
                "encoding": encoding,
                "space directions": np.eye(3),
                "space origin": [1, 2, 3],
            }
            header |= {"space dimension": 3, "kinds": ["domain"] * 3}
            nrrd.write(str(Path(folder, entry)), array[:2] if name == "ascii" else array, header)
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        # a comment tells the time of writing
        files[entry] = re.sub(rb"(?m)^# (This NRRD file|on 2).*\n", b"", files[entry])
        yield Seed(
            name=f"nrrd/{name}", format="nrrd", files=files, entry=entry,
            fields=tuple(line_fields(files, entry, "line")), peers=("pynrrd",),
        )  # fmt: skip


def line_fields(files: Files, entry: str, kind: str, **more: Any) -> Iterator[Field]:
    """Map the lines of a header, and what is behind them or in other files."""
    data = files[entry]
    end = data.find(b"\n\n")
    at, stop = 0, len(data) if end < 0 else end + 1
    while at < stop:
        length = data.index(b"\n", at) + 1 - at
        here = data[at : at + 20].decode("latin-1").partition(":")[0]
        is_magic = kind == "jsonline" and at < 0
        yield Field(
            file=entry, kind="line" if is_magic else kind, label=here, offset=at, length=length,
            more={"only": WORDS, **more},
        )  # fmt: skip
        at += length
    if end >= 0 and stop + 1 < len(data):
        yield Field(
            file=entry, kind="data", label="data", offset=stop + 1, length=len(data) - stop - 1,
            weight=3,
        )  # fmt: skip
    for name in files:
        if name != entry:
            yield Field(file=name, kind="data", label=name, length=len(files[name]))


ENCODE: dict[str, Callable[[bytes], Any]] = {
    "raw": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "zstd": imagecodecs.zstd_encode,
    "lz4": imagecodecs.lz4f_encode,
}
JSON_WORDS = {
    "type": ["uint8", "int16", "float64", "block", "uint64"],
    "encoding": ["raw", "gzip", "bzip2", "ascii", "hex", "zstd"],
    "endian": ["big", "little", "middle"],
    "tile:compression": ["raw", "gzip", "bzip2", "zstd", "lz4", "nope"],
    "tile:storage": ["internal", "external", "nope"],
    "tile:edge_handling": ["pad", "variable", "nope"],
    "tile:pattern": ["{x}_{y}", "../{x}", "{i}", "{z}", "{x}", "{x:03d}-{y}"],
    "sizes": [[2**31, 2**30], [3000, 3000], [9, 7, 3], [0, 7], [1, 1], [100000, 100000]],
    "tile:sizes": [[1, 1], [2**31, 4], [9, 7], [0, 1], [4, 3, 2]],
    "tile:levels": [2, 3, 2**31],
}


def header(fields: dict[str, Any]) -> bytes:
    """Return a header: one JSON object per line, then an empty line."""
    lines = [json.dumps({key: value}).encode() + b" " * BLANKS for key, value in fields.items()]
    return b"\n".join(lines) + b"\n\n"


def core(shape: tuple[int, ...], dtype: str, **more: Any) -> dict[str, Any]:
    """Return the fields that every file has; axes are fastest first."""
    return {
        "jnrrd": "0004", "type": np.dtype(dtype).name, "dimension": len(shape),
        "sizes": list(shape[::-1]), "encoding": "raw", "endian": "little", **more,
    }  # fmt: skip


def cut(array: np.ndarray, tile: tuple[int, int]) -> list[bytes]:
    """Return padded tiles, x fastest."""
    rows, columns = array.shape
    wide = np.pad(array, [(0, -rows % tile[0]), (0, -columns % tile[1])])
    spots = itertools.product(range(0, rows, tile[0]), range(0, columns, tile[1]))
    return [wide[y : y + tile[0], x : x + tile[1]].tobytes() for y, x in spots]


def jnrrd_seeds() -> Iterator[Seed]:
    """Yield JNRRD files: plain, and tiled inside or outside."""
    array = field((14, 18), "u2")
    made: dict[str, Files] = {}
    made["plain"] = {"a.jnrrd": header(core(array.shape, "u2")) + array.tobytes()}
    stored = gzip.compress(array.tobytes(), mtime=0)
    made["plain-gzip"] = {"a.jnrrd": header(core(array.shape, "u2", encoding="gzip")) + stored}
    tiling = {
        "extensions": {"tile": URI}, "tile:enabled": True, "tile:dimensions": [0, 1],
        "tile:sizes": [8, 6],
    }  # fmt: skip
    for codec, encode in ENCODE.items():
        tiles = [bytes(encode(tile)) for tile in cut(array, (6, 8))]
        inside = {"tile:compression": codec, "tile:storage": "internal"}
        starts = np.cumsum([10000, *map(len, tiles)])[:-1]  # as wide as they will be
        sizes = {"tile:size_table": [len(t) for t in tiles]}
        fields = core(array.shape, "u2", **tiling, **sizes, **inside)
        fields["tile:offset_table"] = starts.tolist()
        first = 10000 + -len(header(fields)) % 10000
        fields["tile:offset_table"] = (starts + first - 10000).tolist()
        made[codec] = {"a.jnrrd": header(fields).ljust(first, b"\0") + b"".join(tiles)}
    outside = core(array.shape, "u2", **tiling, **{"tile:storage": "external"})
    outside["tile:pattern"] = "tiles/{x}_{y}.raw"
    spots = itertools.product(range(3), range(3))
    tiles = cut(array, (6, 8))
    named = {f"tiles/{x}_{y}.raw": tile for (y, x), tile in zip(spots, tiles, strict=True)}
    made["external"] = {"a.jnrrd": header(outside), **named}
    for name, files in made.items():
        lines = line_fields(files, "a.jnrrd", "jsonline")
        fields = tuple(
            Field(**{**spot.__dict__, "more": {"only": JSON_WORDS}})
            if spot.kind == "jsonline" else spot
            for spot in lines
        )  # fmt: skip
        if name in ("gzip", "bzip2", "zstd", "lz4"):
            data = files["a.jnrrd"]
            start = data.index(b"\n\n") + 2
            fields += (
                Field(file="a.jnrrd", kind="bomb", label="bomb", offset=start,
                      length=len(data) - start, more={"codec": name}, weight=0.3),
            )  # fmt: skip
        yield Seed(
            name=f"jnrrd/{name}", format="jnrrd", files=files, entry="a.jnrrd", fields=fields
        )
