"""N5's compressions: as Zarr codecs, and as the complete JSON that N5 readers expect."""

from collections.abc import Callable
from typing import Any

from anychunk.codecs import streams
from anychunk.errors import CodecConfigError, FormatError, UnsupportedError
from anychunk.model.index import Json

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
