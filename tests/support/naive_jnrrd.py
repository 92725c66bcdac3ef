"""A reader of tiled JNRRD as short as it can be, to compare ours with: nothing is shared with it."""

import bz2
import gzip
import itertools
import json
import math
from pathlib import Path

import numpy as np


def decompress(data, name):
    import imagecodecs

    others = {"zstd": imagecodecs.zstd_decode, "lz4": imagecodecs.lz4f_decode}
    own = {"raw": bytes, "gzip": gzip.decompress, "bzip2": bz2.decompress}
    return (own | others)[name](data)


def read(path, level=0):
    """Read one stored level, tile by tile."""
    raw = Path(path).read_bytes()
    lines = raw.split(b"\n\n", 1)[0].split(b"\n")
    h = {k: v for line in lines for k, v in json.loads(line.decode()).items()}
    dims, n = h["tile:dimensions"], h["dimension"]
    stored = h.get("tile:levels_stored", list(range(h.get("tile:levels", 1))))
    dtype = np.dtype(h["type"]).newbyteorder("<" if h.get("endian") != "big" else ">")
    table = 0
    for number in stored:
        scale = h.get("tile:level_scales", [1])[number]
        scale = scale if isinstance(scale, list) else [scale] * len(dims)
        tile = (
            h["tile:level_tile_sizes"][number] if "tile:level_tile_sizes" in h else h["tile:sizes"]
        )
        sizes, tiles, halo = list(h["sizes"]), list(h["sizes"]), [0] * n
        for d, s, t, o in zip(
            dims, scale, tile, h.get("tile:overlap", [0] * len(dims)), strict=True
        ):
            sizes[d], tiles[d], halo[d] = max(1, h["sizes"][d] // s), t, o
        grid = [math.ceil(sizes[d] / tiles[d]) for d in dims]
        if number != level:
            table += math.prod(grid)
            continue
        out = np.empty(sizes[::-1], dtype)
        for index in itertools.product(*map(range, reversed(grid))):
            at = [0] * n
            for d, i in zip(dims, reversed(index), strict=True):
                at[d] = i * tiles[d]
            lo, hi = (
                [a - o for a, o in zip(at, halo, strict=True)],
                [a + t + o for a, t, o in zip(at, tiles, halo, strict=True)],
            )
            if h.get("tile:edge_handling", "pad") == "variable":
                lo, hi = (
                    [max(0, a) for a in lo],
                    [min(a, s) for a, s in zip(hi, sizes, strict=True)],
                )
            data = tile_bytes(path, raw, h, table, list(reversed(index)), level)
            table += 1
            values = np.frombuffer(decompress(data, h.get("tile:compression", "raw")), dtype)
            values = values.reshape([b - a for a, b in zip(lo, hi, strict=True)][::-1])
            end = [min(a + t, s) for a, t, s in zip(at, tiles, sizes, strict=True)]
            out[tuple(slice(a, b) for a, b in zip(at, end, strict=True))[::-1]] = values[
                tuple(slice(a - b, e - b) for a, e, b in zip(at, end, lo, strict=True))[::-1]
            ]
        return out.astype(dtype.newbyteorder("="))
    raise LookupError(level)


def tile_bytes(path, raw, h, number, index, level):
    if h["tile:storage"] == "internal":
        start = h["tile:offset_table"][number]
        size = (
            h["tile:size_table"][number]
            if "tile:size_table" in h
            else math.prod(h["tile:sizes"])
            * np.dtype(h["type"]).itemsize
            * math.prod(s for d, s in enumerate(h["sizes"]) if d not in h["tile:dimensions"])
        )
        return raw[start : start + size]
    if "tile:files" in h:
        (name,) = [
            f["file"]
            for f in h["tile:files"]
            if f["indices"] == index and f.get("level", 0) == level
        ]
    else:
        name = h["tile:pattern"].replace("{l}", str(level)).replace("{i}", str(number))
        for key, i in [
            *zip("xyz", index, strict=False),
            *((f"d{k}", i) for k, i in enumerate(index)),
        ]:
            name = name.replace(f"{{{key}}}", str(i))
    return (Path(path).parent / h.get("tile:base_dir", "") / name).read_bytes()


def write(path, fields, data=b"", *, blank=True, end="\n"):
    """Write a header of any fields, and any data after it."""
    pairs = fields.items() if isinstance(fields, dict) else fields
    text = "".join(json.dumps({k: v}) + end for k, v in pairs) + (end if blank else "")
    Path(path).write_bytes(text.encode() + data)
    return path


URI = "https://jnrrd.org/extensions/tile/v1.0.0"


def core(sizes, kind="uint8", **more):
    return {
        "jnrrd": "0004",
        "type": kind,
        "dimension": len(sizes),
        "sizes": sizes,
        "endian": "little",
        "encoding": "raw",
        **more,
    }


def tiled(path, shape, tile, tiles, kind="uint8", start=4096, **more):
    """Write a file with internal tiles at given bytes, one after the other from `start` on."""
    offsets = [start + sum(map(len, tiles[:i])) for i in range(len(tiles))]
    fields = core(shape, kind, extensions={"tile": URI})
    ext = {
        "enabled": True,
        "dimensions": list(range(len(tile))),
        "sizes": tile,
        "storage": "internal",
        "offset_table": offsets,
        **more,
    }
    for key, value in ext.items():
        if value is not None:
            fields[key if ":" in key else f"tile:{key}"] = value
    write(path, {k: v for k, v in fields.items() if v is not None})
    head = path.read_bytes()
    assert len(head) <= start, len(head)
    path.write_bytes(head + bytes(start - len(head)) + b"".join(tiles))
    return path
