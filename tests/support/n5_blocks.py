"""N5 containers written by hand, by struct and json alone."""

import gzip
import itertools
import json
import struct

import numpy as np


def block_bytes(array, *, compress=bytes):
    """One block of mode 0, its samples in Fortran order."""
    head = struct.pack(f">HH{array.ndim}I", 0, array.ndim, *array.shape)
    return head + compress(array.astype(array.dtype.newbyteorder(">")).tobytes(order="F"))


def write_dataset(folder, array, block, *, compression=None, compress=bytes, **extra):
    """A dataset with cropped edges."""
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {
        "dimensions": list(array.shape),
        "blockSize": list(block),
        "dataType": array.dtype.name,
        "compression": compression or {"type": "raw"},
        **extra,
    }
    (folder / "attributes.json").write_text(json.dumps(attributes))
    grid = [range(-(-n // b)) for n, b in zip(array.shape, block, strict=True)]
    for coords in itertools.product(*grid):
        place = tuple(slice(c * b, (c + 1) * b) for c, b in zip(coords, block, strict=True))
        file = folder.joinpath(*map(str, coords))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(block_bytes(array[place], compress=compress))
    return folder


def gzipped(folder, array, block, **extra):
    compression = {"type": "gzip", "level": 5}
    return write_dataset(
        folder, array, block, compression=compression, compress=gzip.compress, **extra
    )


def field(shape, dtype="uint16"):
    count = int(np.prod(shape))
    return (np.arange(count) * 7919 % 65521).astype(dtype).reshape(shape)
