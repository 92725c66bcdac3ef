"""Tiles for files of JNRRD that are made by hand."""

import bz2
import gzip

import imagecodecs
import numpy as np

import anychunk
from anychunk.formats import jnrrd
from anychunk.io.opening import open_source
from tests.support.naive_jnrrd import URI, core, write

GRID = np.arange(9 * 7, dtype=np.uint8).reshape(7, 9)
ENCODE = {
    "raw": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda data: bytes(imagecodecs.zstd_encode(data)),
    "lz4": lambda data: bytes(imagecodecs.lz4f_encode(data)),
}


def cut(array, tile, *, pad=0, halo=(0, 0), variable=False):
    """Cut a 2-D array into tiles in table order, x fastest."""
    rows, columns = array.shape
    wide = np.pad(
        array, [(halo[0], halo[0] + tile[0]), (halo[1], halo[1] + tile[1])], constant_values=pad
    )
    tiles = []
    for y in range(0, rows, tile[0]):
        for x in range(0, columns, tile[1]):
            if variable:
                part = array[
                    max(0, y - halo[0]) : y + tile[0] + halo[0],
                    max(0, x - halo[1]) : x + tile[1] + halo[1],
                ]
            else:
                part = wide[y : y + tile[0] + 2 * halo[0], x : x + tile[1] + 2 * halo[1]]
            tiles.append(part.tobytes())
    return tiles


def read(path, level=0, **options):
    return anychunk.open_array(path, level=level, **options)[...]


def header(path):
    return jnrrd.read_header(open_source(str(path))).fields


def external(path, sizes, tile, **more):
    fields = core(
        sizes, extensions={"tile": URI}, **{k: more.pop(k) for k in ("labels",) if k in more}
    )
    fields |= {
        "tile:enabled": True,
        "tile:dimensions": more.pop("dimensions", list(range(len(tile)))),
        "tile:sizes": tile,
        "tile:storage": "external",
    }
    return write(path, fields | {f"tile:{k}": v for k, v in more.items()})
