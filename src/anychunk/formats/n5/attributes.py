"""`attributes.json` of an N5 group or dataset, in every version, as plain data."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anychunk import limits
from anychunk.codecs import streams
from anychunk.codecs.n5_default import DATA_TYPES
from anychunk.errors import CodecConfigError, FormatError, LimitError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.model.index import Json

NAME = "attributes.json"
TYPES = (*DATA_TYPES, "string", "object")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The attributes that describe a dataset, in N5 order: dimension 0 is the fastest."""

    dimensions: Shape
    block_size: Shape
    data_type: str
    compression: dict[str, Json]
    """N5's JSON; has at least a `type`."""


def read_attributes(data: bytes, where: str) -> dict[str, Json]:
    """Parse `attributes.json`; comments are allowed, because Gson, the parser of Java, allows them.

    Parameters:
        data: The content of the file.
        where: Names the file in messages.

    Raises:
        FormatError: It is not a JSON object in UTF-8.
        LimitError: It is longer than the limit `attributes_bytes`.
    """
    most = limits.get().attributes_bytes
    if len(data) > most:
        raise LimitError(
            f"{where}: {len(data)} bytes are over the limit of {most}; "
            f"{limits.how_to_raise('attributes_bytes')}"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise FormatError(f"{where}: not UTF-8 ({e})") from e
    try:
        found = _loads(text)
    except ValueError:
        try:
            found = _loads(without_comments(text))
        except ValueError as e:
            raise FormatError(f"{where}: not JSON ({e})") from e
    if found is None:  # Java writes nothing, or null, for a group without attributes
        return {}
    if not isinstance(found, dict):
        raise FormatError(f"{where}: holds a JSON {type(found).__name__}, expected an object")
    return found


def _loads(text: str) -> Json:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


# strings are matched as well, so that "https://…" is not taken for a comment
COMMENTS = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


def without_comments(text: str) -> str:
    """Return JSON text with its comments replaced by spaces."""
    return COMMENTS.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)


def is_dataset(attributes: dict[str, Json]) -> bool:
    """Return whether attributes are those of a dataset, by Java's rule.

    Both `dimensions` and `dataType` are needed; a group may have one of them.
    """
    return "dimensions" in attributes and "dataType" in attributes


def read_dataset(attributes: dict[str, Json], where: str) -> Dataset:
    """Check the attributes of a dataset, and return them as data."""
    dimensions = _sizes(attributes["dimensions"], "dimensions", where, least=0)
    block = attributes.get("blockSize")
    # without blockSize Java takes the whole dataset as one block
    sizes = tuple(max(n, 1) for n in dimensions)
    block_size = sizes if block is None else _sizes(block, "blockSize", where, least=1)
    if not dimensions or len(dimensions) != len(block_size):
        raise FormatError(
            f"{where}: dimensions {list(dimensions)} and blockSize {list(block_size)}, "
            "expected lists of the same length, not empty"
        )
    data_type = attributes["dataType"]
    if data_type not in TYPES:
        raise UnsupportedError(
            f"{where}: dataType {data_type!r} is not supported; supported: {' '.join(TYPES)}"
        )
    return Dataset(
        dimensions=dimensions,
        block_size=block_size,
        data_type=data_type,
        compression=_compression(attributes, where),
    )


def _sizes(value: Any, key: str, where: str, *, least: int) -> Shape:
    if not isinstance(value, list) or not all(_is_size(n, least) for n in value):
        raise FormatError(f"{where}: {key} is {value!r:.100}, expected integers >= {least}")
    if len(value) > 32:
        raise FormatError(f"{where}: {key} has {len(value)} entries, expected at most 32")
    return tuple(int(n) for n in value)


def _is_size(value: Any, least: int) -> bool:
    """Return whether a value is an integer; some writers write 64.0."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return is_whole and least <= value < 1 << 63


def _compression(attributes: dict[str, Json], where: str) -> dict[str, Json]:
    found = attributes.get("compression")
    # N5 version 1 and earlier
    if found is None and "compressionType" in attributes:
        found = {"type": attributes["compressionType"]}
    if isinstance(found, str):
        found = {"type": found}
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise FormatError(f"{where}: compression is {found!r:.100}, expected an object with a type")
    return found


# N5's compressions: as Zarr codecs, and as the complete JSON that N5 readers expect.

type Compression = dict[str, Json]
type ToCodec = Callable[[Compression, int], Json]

SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def _stream(compression: str, **options: Json) -> Json:
    return {"name": "anychunk.stream", "configuration": {"compression": compression, **options}}


def _raw(found: Compression, itemsize: int) -> Json:
    return None


def _gzip(found: Compression, itemsize: int) -> Json:
    level = found.get("level", -1)
    level = 6 if level == -1 else level  # -1 is zlib's default
    if found.get("useZlib", False):
        return _stream("zlib", level=level)
    return {"name": "gzip", "configuration": {"level": level}}


def _zlib(found: Compression, itemsize: int) -> Json:
    return _gzip({**found, "useZlib": True}, itemsize)


def _bzip2(found: Compression, itemsize: int) -> Json:
    return _stream("bzip2", level=found.get("blockSize", 9))


def _xz(found: Compression, itemsize: int) -> Json:
    return _stream("xz", level=found.get("preset", 6))


def _zstd(found: Compression, itemsize: int) -> Json:
    return {"name": "zstd", "configuration": {"level": found.get("level", 3), "checksum": False}}


def _lz4(found: Compression, itemsize: int) -> Json:
    # z5 writes the level into blockSize; blocks tell their size anyway
    size = found.get("blockSize", 65536)
    is_size = type(size) is int and 64 <= size <= 1 << 25
    return _stream("lz4_java", block_size=size if is_size else 65536)


def _blosc(found: Compression, itemsize: int) -> Json:
    shuffle = found.get("shuffle", 0)
    if shuffle == -1:  # c-blosc's "auto": bits of single bytes, bytes of larger types
        shuffle = 2 if itemsize == 1 else 1
    return {
        "name": "blosc",
        "configuration": {
            "cname": found.get("cname", "blosclz"),
            "clevel": found.get("clevel", 6),
            "shuffle": SHUFFLES[shuffle],
            "typesize": itemsize,
            "blocksize": found.get("blocksize", 0),
        },
    }


READ: dict[str, ToCodec] = {
    "raw": _raw,
    "gzip": _gzip,
    "zlib": _zlib,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstd": _zstd,
    "lz4": _lz4,
    "blosc": _blosc,
}


def to_codecs(found: Compression, itemsize: int, where: str) -> list[Json]:
    """Return the Zarr codecs that follow `bytes`: one, or none for raw.

    Parameters:
        found: N5's JSON.
        itemsize: Bytes per element.
        where: Names the file in messages.

    Raises:
        UnsupportedError: The compression is unknown.
        FormatError: Its parameters are wrong.
    """
    make = READ.get(found["type"])
    if make is None:
        raise UnsupportedError(
            f"{where}: compression {found['type']!r:.100} is not supported; "
            f"supported: {' '.join(READ)}"
        )
    try:
        codec = make(found, itemsize)
        _check(codec)
    except (CodecConfigError, LookupError, TypeError, ValueError) as e:
        raise FormatError(f"{where}: compression {found!r:.200} ({e})") from e
    return [] if codec is None else [codec]


def _check(codec: Json) -> None:
    """Refuse parameters out of range while indexing, not only when a block is read."""
    names = {"gzip": "gzip", "zstd": "zstd", "blosc": "blosc"}
    if codec is None or codec["name"] not in names:
        return
    configuration = codec["configuration"]
    streams.check_level(
        names[codec["name"]], configuration.get("level", configuration.get("clevel"))
    )
    if codec["name"] == "blosc" and configuration["cname"] not in streams.BLOSC_COMPRESSORS:
        raise CodecConfigError(
            f"blosc: cname {configuration['cname']!r}, "
            f"expected one of {' '.join(streams.BLOSC_COMPRESSORS)}"
        )


def complete(compression: str | Compression, level: int | None) -> Compression:
    """Return the JSON of a compression with every parameter: some readers require all of them.

    Parameters:
        compression: A name, or N5's JSON with some parameters.
        level: The compression level, if the caller gives one.
    """
    wanted: dict[str, Any] = (
        {"type": compression} if isinstance(compression, str) else dict(compression)
    )
    kind = wanted.get("type")
    defaults = DEFAULTS.get(str(kind))
    if defaults is None:
        raise UnsupportedError(
            f"N5: compression {kind!r} is not supported; supported: {' '.join(DEFAULTS)}"
        )
    if extra := sorted(set(wanted) - set(defaults) - {"type"}):
        raise CodecConfigError(
            f"N5: compression {kind!r} has no parameter {extra[0]!r}, expected {list(defaults)}"
        )
    key = LEVEL_KEYS.get(str(kind))
    if level is not None:
        if key is None:
            raise CodecConfigError(
                f"N5: compression {kind!r} takes no level; leave out level={level}"
            )
        wanted[key] = level
    made = {"type": kind, **defaults, **{k: v for k, v in wanted.items() if k != "type"}}
    to_codecs(made, 1, "N5")
    return made


DEFAULTS: dict[str, Compression] = {
    "raw": {},
    "gzip": {"level": -1, "useZlib": False},
    "bzip2": {"blockSize": 9},
    "xz": {"preset": 6},
    "zstd": {"level": 3},
    "lz4": {"blockSize": 65536},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
}
LEVEL_KEYS = {
    "gzip": "level",
    "bzip2": "blockSize",
    "xz": "preset",
    "zstd": "level",
    "blosc": "clevel",
}
