"""A case: the files of a seed, and edits of their fields.

Every edit refers to the unedited seed, so that each can be dropped without changing the others.
"""

import base64
import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable  # noqa: TC003 - the annotation is evaluated
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

type Files = dict[str, bytes]
type Edit = dict[str, Any]
"""JSON: `kind` and the arguments of the function below of that name, `file` and `label`."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A piece of a file that has a meaning, and so can be given another."""

    file: str
    kind: str
    """Selects the function of `fuzz.mutations` that edits it."""
    label: str
    offset: int = 0
    length: int = 0
    more: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Seed:
    """A valid file, or folder of files."""

    name: str
    format: str
    files: Files
    entry: str
    """The file that is opened; empty for the folder itself."""
    fields: tuple[Field, ...]
    peers: tuple[str, ...] = ()
    """Other readers that read it, names of `fuzz.peers.READERS`."""
    tolerance: float = 0
    """Largest difference from peers, where decoders may differ."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input."""

    seed: str
    format: str
    files: Files
    """Those of the seed, without the edits."""
    entry: str
    edits: tuple[Edit, ...] = ()
    peers: tuple[str, ...] = ()
    tolerance: float = 0
    choice: int = 0
    """Decides what is done besides reading: verify, thumbnail, save."""

    def edited(self) -> Files:
        """Return the files that are tried."""
        edited = apply(self.files, self.edits) if self.edits else None
        return self.files if edited is None else edited

    def to_json(self) -> dict[str, Any]:
        """Return plain data; files are compressed."""
        files = {name: packed(data) for name, data in self.files.items()}
        return {
            "seed": self.seed,
            "format": self.format,
            "entry": self.entry,
            "edits": list(self.edits),
            "peers": list(self.peers),
            "tolerance": self.tolerance,
            "choice": self.choice,
            "files": files,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Case":
        """Return what `to_json` was called on."""
        files = {n: zlib.decompress(base64.b64decode(d)) for n, d in data["files"].items()}
        tuples = {"edits": tuple(data["edits"]), "peers": tuple(data["peers"])}
        known = ("seed", "format", "entry", "tolerance", "choice")
        return cls(files=files, **tuples, **{name: data[name] for name in known})


@lru_cache(4096)
def packed(data: bytes) -> str:
    """Return bytes, compressed, as text; kept, because thousands of cases have the same seed."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def make(seed: Seed, edits: tuple[Edit, ...], choice: int) -> Case | None:
    """Return a seed with edits applied; None if they cannot be."""
    if apply(seed.files, edits) is None:
        return None
    return Case(
        seed=seed.name,
        format=seed.format,
        files=seed.files,
        entry=seed.entry,
        edits=edits,
        peers=seed.peers,
        tolerance=seed.tolerance,
        choice=choice,
    )


def apply(files: Files, edits: tuple[Edit, ...]) -> Files | None:
    """Return edited files; None if an edit does not apply."""
    found = dict(files)
    splices: dict[str, list[tuple[int, int, bytes]]] = {}
    pads: dict[tuple[str, int], int] = {}
    for edit in edits:
        name = edit["file"]
        if edit["kind"] in ("put", "fit", "bomb"):
            new = replacement(edit)
            splices.setdefault(name, []).append((edit["offset"], edit["length"], new))
            if edit["kind"] == "fit":
                key = name, edit["end"]
                pads[key] = pads.get(key, 0) + edit["length"] - len(new)
        elif edit["kind"] == "drop":
            found.pop(name, None)
        else:
            try:
                found[name] = WHOLE[edit["kind"]](found[name], edit)
            except Exception:  # a writer refuses what another edit made of the file
                return None
    for (name, end), change in pads.items():
        pad = (end, 0, b" " * change) if change > 0 else (end + change, -change, b"")
        splices[name].append(pad)
    for name, parts in splices.items():
        if name in found:
            found[name] = spliced(found[name], parts)
    return None if found == files else found


def spliced(data: bytes, parts: list[tuple[int, int, bytes]]) -> bytes:
    """Replace ranges, the last first; of two that overlap, the later one wins."""
    limit = len(data) + 1
    for offset, length, new in sorted(parts, key=lambda part: part[0], reverse=True):
        if offset + length <= limit and offset <= len(data):
            data = data[:offset] + new + data[offset + length :]
            limit = offset if length else offset + 1
    return data


def replacement(edit: Edit) -> bytes:
    """Return the new bytes of an edit."""
    if edit["kind"] == "bomb":
        return bomb(edit["codec"], edit["size"])
    return bytes.fromhex(edit["hex"])


@cache
def bomb(codec: str, size: int) -> bytes:
    """Return a short stream that decodes to about `size` bytes."""
    import imagecodecs as ic

    side = int(size**0.5)
    plane = np.zeros((side, side), np.uint8)
    streams: dict[str, Callable[[], Any]] = {
        "zlib": lambda: zlib.compress(bytes(size), 9),
        "gzip": lambda: gzip.compress(bytes(size), 9, mtime=0),
        "bzip2": lambda: bz2.compress(bytes(size)),
        "xz": lambda: lzma.compress(bytes(size)),
        "zstd": lambda: ic.zstd_encode(bytes(size)),
        "lz4": lambda: ic.lz4f_encode(bytes(size)),
        "lzw": lambda: ic.lzw_encode(bytes(size)),
        "packbits": lambda: b"\x81\0" * (size // 128),
        "blosc": lambda: ic.blosc_encode(bytes(size), compressor="zstd"),
        "jpeg": lambda: ic.jpeg8_encode(plane),
        "jpegxl": lambda: ic.jpegxl_encode(plane, effort=1),
        "webp": lambda: ic.webp_encode(np.zeros((min(side, 16000),) * 2 + (3,), np.uint8)),
        "lerc": lambda: ic.lerc_encode(plane),
        "png": lambda: ic.png_encode(plane),
        "jpeg2k": lambda: ic.jpeg2k_encode(plane, level=0, codecformat="J2K"),
    }
    return bytes(streams[codec]())


def set_json(data: bytes, edit: Edit) -> bytes:
    """Set, add or remove a value; a step into a text is one into the JSON that it holds."""
    return json.dumps(changed(json.loads(data), edit["path"], edit)).encode()


def changed(value: Any, path: list[Any], edit: Edit) -> Any:
    if isinstance(value, str) and path:
        return json.dumps(changed(json.loads(value), path, edit))
    if not path:
        return edit["value"]
    step, rest = path[0], path[1:]
    value = list(value) if isinstance(value, list) else dict(value)
    if not rest and edit.get("remove"):
        del value[step]
    elif not rest and isinstance(value, dict) and step not in value:
        value[step] = edit["value"]
    else:
        value[step] = changed(value[step], rest, edit)
    return value


def set_cell(data: bytes, edit: Edit) -> bytes:
    """Set a cell of a parquet file; a value of another type changes the type of the column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    number = table.schema.get_field_index(edit["column"])
    column = table.column(number)
    if edit.get("remove"):
        table = table.remove_column(number)
    elif edit.get("type"):
        values = [None if v is None else edit["value"] for v in column.to_pylist()]
        made = pa.array(values, getattr(pa, edit["type"])())
        table = table.set_column(number, edit["column"], made)
    else:
        values = column.to_pylist()
        values[edit["row"]] = edit["value"]
        table = table.set_column(number, edit["column"], pa.array(values, column.type))
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def set_zstd(data: bytes, edit: Edit) -> bytes:
    """Change bytes of what a zstd frame behind a header holds, as in Icechunk's files."""
    import imagecodecs

    start = data.index(bytes.fromhex("28b52ffd"))
    plain = bytearray(imagecodecs.zstd_decode(data[start:]))
    new = bytes.fromhex(edit["hex"])
    at = edit["at"] % max(1, len(plain) - len(new))
    plain[at : at + len(new)] = new
    return data[:start] + bytes(imagecodecs.zstd_encode(bytes(plain)))


WHOLE = {"json": set_json, "cell": set_cell, "zstd": set_zstd}
"""Edits that rewrite a file."""
