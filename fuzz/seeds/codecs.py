"""Every registered codec: an array that zarr writes with it, behind a kerchunk index."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzz.cases import Field, Seed
from fuzz.seeds.pictures import field

TIFF_TILE = "anychunk.tiff-tile"
JBP = "anychunk.jbp-block"
JPEG = "anychunk.jpeg"
J2K = "anychunk.jpeg2000"


def _named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


LITTLE = _named("bytes", endian="little")


def chains() -> Iterator[tuple[str, np.ndarray, list[dict[str, Any]]]]:
    """Yield (name, one chunk, codecs)."""
    flat, plane = field((12, 10), "u2"), field((16, 16))
    yield "offset", flat, [LITTLE, _named("offset", offset=4, prefix="AAAAAA==")]
    yield "pad", flat, [LITTLE, _named("pad", location="end", nbytes=300)]
    for name in ("zlib", "xz", "bzip2", "lz4", "lz4_java"):
        yield name, flat, [LITTLE, _named("anychunk.stream", compression=name)]
    yield "crc32", flat, [LITTLE, _named("anychunk.stream", compression="raw", checksum=True)]
    for name in ("gzip", "zstd", "blosc", "crc32c", "numcodecs.zlib"):
        extra: dict[str, Any] = {"level": 1} if name in ("gzip", "zstd", "numcodecs.zlib") else {}
        if name == "blosc":
            extra = {
                "cname": "zstd",
                "clevel": 3,
                "shuffle": "shuffle",
                "typesize": 2,
                "blocksize": 0,
            }
        yield name, flat, [LITTLE, _named(name, **extra)]
    yield "transpose", flat, [_named("transpose", order=[1, 0]), LITTLE]
    inner = [LITTLE, _named("gzip", level=1)]
    index = [LITTLE, _named("crc32c")]
    shards = _named("sharding_indexed", chunk_shape=[6, 5], codecs=inner, index_codecs=index)
    yield "sharding", flat, [shards]
    yield "scale_offset", flat.astype("f8"), [_named("scale_offset", scale=2.0, offset=1.0), LITTLE]
    cast = _named("cast_value", data_type="int32", rounding="nearest-even")
    yield "cast_value", flat.astype("f8"), [cast, LITTLE]
    big = [_named("bytes", endian="big")]
    yield "window", flat, [_named("anychunk.window", codecs=[LITTLE])]
    yield "choice", flat, [_named("anychunk.choice", choices=[inner, [LITTLE]])]
    yield "n5_default", flat, [_named("n5_default", codecs=big)]
    yield "n5_cropped", flat, [_named("anychunk.n5", codecs=big, block_shape=[20, 20])]
    yield "n5_reversed", flat, [_named("anychunk.n5", codecs=big, reversed=True)]
    yield (
        "leading",
        flat,
        [LITTLE, _named("anychunk.stream", compression="gzip", leading=True, skip=16)],
    )
    yield "piece", flat, [LITTLE, _named("anychunk.piece", compression="gzip")]
    yield "piece-bzip2", flat, [LITTLE, _named("anychunk.piece", compression="bzip2")]
    yield "text", flat, [_named("anychunk.text", style="hex", endian="little")]
    yield "text-ascii", flat, [_named("anychunk.text", style="ascii", endian="little")]
    tile = {"bits_per_sample": 8, "tile_width": 16, "tile_height": 16}
    for compression in (1, 5, 7, 8, 32773, 34712, 34887, 34925, 50000, 50001, 50002):
        if compression != 50001:
            yield (
                f"tiff-tile-{compression}",
                plane[None],
                [_named("bytes"), _named(TIFF_TILE, compression=compression, **tile)],
            )
    size = {"block_width": 16, "block_height": 16}
    jpeg = _named(JPEG, bits_per_pixel=8, num_bands=1, imode="B", color_space="MONO", **size)
    yield "jpeg", plane[None], [_named("bytes"), jpeg]
    yield (
        "jpeg2000",
        plane[None],
        [_named("bytes"), _named(J2K, main_header=None, resolution_level=0)],
    )
    block = _named(JBP, num_bands=1, nbpp=8, imode="B", pvtype="INT", **size)
    yield "jbp-block", plane[None], [_named("bytes"), block]


def encoded(array: np.ndarray, codecs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return kerchunk references of one array, its chunk in another file; None if not written."""
    import zarr

    import anychunk

    anychunk.enable()
    store: dict[str, Any] = {}
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": _named("regular", chunk_shape=list(array.shape)),
        "chunk_key_encoding": _named("default", separator="/"),
        "fill_value": 0,
        "codecs": codecs,
        "attributes": {},
    }
    try:
        text = zarr.core.buffer.cpu.Buffer.from_bytes(json.dumps(metadata).encode())
        store["zarr.json"] = text
        zarr.open_array(store, mode="r+")[...] = array
    except Exception as e:  # reported by the caller
        return {"error": f"{type(e).__name__}: {e}"}
    finally:
        anychunk.disable()
    chunks = {k: v.to_bytes() for k, v in store.items() if k != "zarr.json"}
    return {"metadata": metadata, "chunks": chunks}


MISSING: dict[str, str] = {}
"""Codecs of which no seed could be made, with the reason."""


def seeds() -> Iterator[Seed]:
    """Yield an array per codec: its metadata in the index, its chunk in `chunk.bin` or inline."""
    for name, array, codecs in chains():
        made = encoded(array, codecs)
        if made is None or "error" in made or not made["chunks"]:
            MISSING[name] = str((made or {}).get("error", "no chunk"))
            continue
        ((key, data),) = made["chunks"].items()
        refs = {"zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {}}}
        refs |= {"a/zarr.json": made["metadata"], f"a/{key}": ["chunk.bin", 0, len(data)]}
        if name in ("zlib", "crc32"):
            refs[f"a/{key}"] = "base64:" + base64.b64encode(data).decode()
        files = {"i.json": json.dumps({"version": 1, "refs": refs}).encode(), "chunk.bin": data}
        fields = (
            Field(
                file="i.json", kind="json", label="codecs", weight=6, more={"inside": ("codecs",)}
            ),
            Field(file="i.json", kind="json", label="metadata", weight=3),
            Field(file="chunk.bin", kind="data", label="chunk", length=len(data), weight=4),
        )
        yield Seed(
            name=f"codecs/{name}", format="codecs", files=files, entry="i.json", fields=fields
        )
