"""Files so long that their streams are read in pieces or windows, for `bench.differential`.

The fuzzer does not edit them: each takes a second to decode.
"""

import bz2
import gzip
import io
from collections.abc import Iterator

import imagecodecs
import numpy as np
import tifffile

from fuzz.cases import Seed
from fuzz.seeds.pictures import field

TIFF = ("zlib", "lzw", "zstd", "lzma", "packbits", "jpeg", "none")
HEADER = "NRRD0004\ntype: uint16\ndimension: 3\nsizes: 500 600 16\nendian: little\nencoding: "


def seeds() -> Iterator[Seed]:
    """Yield one strip of TIFF for each compression, volumes, and one tile of JPEG 2000."""
    picture = field((2400, 2000), "u2")
    volume = np.stack([np.roll(picture[:600, :500], n, 0) for n in range(16)])
    made = {"tile.jp2": bytes(imagecodecs.jpeg2k_encode(picture, level=0, codecformat="JP2"))}
    for name in TIFF:
        plane = (picture >> 8).astype("u1") if name == "jpeg" else picture
        tifffile.imwrite(out := io.BytesIO(), plane, compression=name, rowsperstrip=len(plane))
        made[f"{name}.tif"] = out.getvalue()
    np.save(out := io.BytesIO(), volume)
    made["volume.npy"] = out.getvalue()
    data = volume.astype("<u2").tobytes()
    made["gzip.nrrd"] = f"{HEADER}gzip\n\n".encode() + gzip.compress(data, 6, mtime=0)
    made["bzip2.nrrd"] = f"{HEADER}bzip2\n\n".encode() + bz2.compress(data)
    for name, stored in made.items():
        yield Seed(
            name=f"streams/{name}", format="streams", files={name: stored}, entry=name, fields=()
        )
