"""A Zarr array whose chunk files `numpy.load` can read."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr

from anychunk.zarr import headers


def main(folder: Path) -> None:
    values = np.random.default_rng(0).normal(size=(100, 30)).astype("float32")
    header = headers.npy((40, 30), "<f4")
    array = zarr.create_array(
        folder / "a.zarr",
        shape=values.shape,
        chunks=(40, 30),
        dtype="float32",
        compressors=[headers.pad(header)],
    )
    array[...] = values
    loaded = np.load(folder / "a.zarr" / "c" / "1" / "0")
    if not np.array_equal(loaded, values[40:80]):
        sys.exit("numpy.load reads other values")
    print(f"numpy.load reads chunk c/1/0: {loaded.shape} {loaded.dtype}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
