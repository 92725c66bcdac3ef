"""Write the sample files of the tiling extension 1.1 and `expected.json`.

Needs numpy only, and no reader or writer of JNRRD: files are put together as the text says. Run it
in this folder to make the samples again; the result is the same, byte for byte.
"""

import gzip
import hashlib
import json
import zlib
from itertools import product
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "samples"
URI = "https://jnrrd.org/extensions/tile/v1.1.0"
# numpy's order, slowest axis first: sizes of the header are [7, 6, 5]
VOLUME = (np.arange(5 * 6 * 7).reshape(5, 6, 7) * 7 % 251).astype("<u2")
TILE = (2, 3, 4)
CORE = {"jnrrd": "0004", "type": "uint16", "dimension": 3, "sizes": [7, 6, 5], "endian": "little"}
TILING = {"enabled": True, "dimensions": [0, 1, 2], "sizes": [4, 3, 2]}


def header(tiling, length=1024, **core):
    """Lines of the header; spaces after the last one let the data begin at `length`."""
    fields = {**CORE, "encoding": "raw", **core, "extensions": {"tile": URI}}
    fields |= {f"tile:{key}": value for key, value in tiling.items()}
    text = "".join(json.dumps({key: value}) + "\n" for key, value in fields.items())
    return text[:-1].ljust(length - 2).encode() + b"\n\n"


def tiles(volume, tile=TILE, *, halo=(0, 0, 0), pad=None):
    """The tiles of a volume in table order, dimension 0 (the last axis of numpy) fastest."""
    counts = [-(-n // t) for n, t in zip(volume.shape, tile, strict=True)]
    for index in product(*map(range, counts)):
        low = [i * t - h for i, t, h in zip(index, tile, halo, strict=True)]
        high = [i * t + t + h for i, t, h in zip(index, tile, halo, strict=True)]
        inside = tuple(
            slice(max(0, a), min(n, b)) for a, b, n in zip(low, high, volume.shape, strict=True)
        )
        if pad is None:
            yield volume[inside]
            continue
        full = np.full([b - a for a, b in zip(low, high, strict=True)], pad, volume.dtype)
        at = tuple(slice(s.start - a, s.stop - a) for s, a in zip(inside, low, strict=True))
        full[at] = volume[inside]
        yield full


def offsets(parts, start=1024):
    sizes = [len(part) for part in parts]
    return [start + sum(sizes[:n]) for n in range(len(sizes))], sizes


def gz(data):
    return gzip.compress(data, mtime=0)


def internal(name, parts, *, length=1024, **tiling):
    begin, sizes = offsets(parts, length)
    more = {"storage": "internal", "format": "contiguous", **tiling}
    if more.pop("sized", True):
        more["size_table"] = sizes
    text = header({**TILING, **more, "offset_table": begin}, length)
    (HERE / name).write_bytes(text + b"".join(parts))


def expected(*levels):
    return [
        {"shape": list(a.shape), "sha256": hashlib.sha256(a.tobytes()).hexdigest()} for a in levels
    ]


def main():
    HERE.mkdir(exist_ok=True)
    found = {}
    padded = [t.tobytes() for t in tiles(VOLUME, pad=0)]
    internal("padded.jnrrd", padded, sized=False)
    found["padded.jnrrd"] = expected(VOLUME)

    cropped = [gz(t.tobytes()) for t in tiles(VOLUME)]
    sums = [{"checksum": f"{zlib.crc32(p):08x}", "checksum_algorithm": "crc32"} for p in cropped]
    internal(
        "cropped-gzip.jnrrd", cropped, length=3072, edge_handling="variable", compression="gzip",
        metadata=sums,
    )  # fmt: skip
    found["cropped-gzip.jnrrd"] = expected(VOLUME)

    halo = [t.tobytes() for t in tiles(VOLUME, halo=(0, 1, 2), pad=9)]
    internal("halo.jnrrd", halo, overlap=[2, 1, 0], edge_handling="pad", padding_value=9)
    found["halo.jnrrd"] = expected(VOLUME)

    # level 1: x and y halved, z kept; the mean, rounded half to even
    means = VOLUME[:, :6, :6].reshape(5, 3, 2, 3, 2).mean((2, 4))
    coarse = np.rint(means).astype("<u2")
    second = [t.tobytes() for t in tiles(coarse, pad=0)]
    internal(
        "levels.jnrrd", padded + second, sized=False, levels=2,
        level_scales=[[1, 1, 1], [2, 2, 1]], level_offsets=[1024, 1024 + sum(map(len, padded))],
        downsample_method="average",
    )  # fmt: skip
    found["levels.jnrrd"] = expected(VOLUME, coarse)

    sparse = np.where((VOLUME > 200) & (np.indices(VOLUME.shape)[0] < 2), VOLUME, 5).astype("<u2")
    parts = [t.tobytes() for t in tiles(sparse, pad=5)]
    empty = np.full(TILE, 5, "<u2").tobytes()
    internal(
        "sparse.jnrrd", [b"" if p == empty else p for p in parts], sparse=True, padding_value=5,
        edge_handling="pad",
    )  # fmt: skip
    found["sparse.jnrrd"] = expected(sparse)

    # the second tile is listed, as if it were cached; the pattern names the others
    (HERE / "external").mkdir(exist_ok=True)
    for number, part in enumerate(padded):
        z, rest = divmod(number, 4)
        y, x = divmod(rest, 2)
        name = "cached.raw" if number == 1 else f"{z}_{y}_{x}.raw"
        (HERE / "external" / name).write_bytes(part)
    more = {"storage": "external", "base_dir": "external", "pattern": "{z}_{y}_{x}.raw"}
    listed = [{"indices": [1, 0, 0], "file": "cached.raw"}]
    (HERE / "external.jnrrd").write_bytes(header({**TILING, **more, "files": listed}))
    found["external.jnrrd"] = expected(VOLUME)

    pairs = {**TILING, "storage": "internal", "offset_table": offsets(padded)[0]}
    lines = ["NRRD0005", "type: unsigned short", "dimension: 3", "sizes: 7 6 5", "endian: little"]
    lines += ["encoding: raw", "extensions:=" + json.dumps({"tile": URI})]
    lines += [f"tile:{key}:={json.dumps(value)}" for key, value in pairs.items()]
    text = "".join(f"{line}\n" for line in lines).encode() + b"\n"
    (HERE / "tiled.nrrd").write_bytes(text.ljust(1024, b"\0") + b"".join(padded))
    found["tiled.nrrd"] = expected(VOLUME)
    (HERE.parent / "expected.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
