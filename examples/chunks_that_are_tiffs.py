"""A Zarr array whose chunk files are TIFFs that other tools open.

Once uncompressed with the static header of the pad document, once compressed with a header that is
made for each chunk. Edge chunks are whole TIFFs too, padded with the fill value.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tifffile
import zarr
from PIL import Image
from zarr.codecs import ZstdCodec

from anychunk.codecs import Pad
from anychunk.zarr import headers

STATIC = (
    "SUkqAAgAAAAIAAABAwABAAAAAAEAAAEBAwABAAAAAAEAAAIBAwABAAAAEAAAAAMBAwABAAAAAQAAAAYBAwABAAAA"
    "AQAAABEBBAABAAAAbgAAABYBAwABAAAAAAEAABcBBAABAAAAAAACAAAAAAA="
)


def main(folder: Path) -> None:
    y, x = np.mgrid[0:600, 0:700]
    image = ((np.sin(x / 40) * np.cos(y / 25) + 1) * 30000).astype("uint16")
    made = headers.tiff((256, 256), "uint16", compression="zstd")
    arrays = {
        "static": [Pad(location="start", nbytes=110, padding=STATIC)],
        "dynamic": [ZstdCodec(level=3), headers.pad(made)],
    }
    for name, codecs in arrays.items():
        array = zarr.create_array(
            folder / f"{name}.zarr",
            shape=image.shape,
            chunks=(256, 256),
            dtype="uint16",
            compressors=codecs,
        )
        array[...] = image
        file = folder / f"{name}.zarr" / "c" / "2" / "2"  # an edge chunk
        expected = image[512:, 512:]
        for reader, found in {
            "tifffile": tifffile.imread(file),
            "Pillow": np.asarray(Image.open(file)),
        }.items():
            if not np.array_equal(found[: expected.shape[0], : expected.shape[1]], expected):
                sys.exit(f"{file}: {reader} reads other pixels")
            print(f"{name}: {reader} reads {file.relative_to(folder)}, {found.shape} {found.dtype}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
