"""Write `vectors`: small files by tifffile, GDAL, OpenJPEG and numpy, and an index of each.

    python specs/index/make_vectors.py

`expected.json` has the SHA-256 of the little-endian bytes of every array, in C order: of what was
written, or, where a stream is lossy, of what the software that wrote it reads.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import rasterio
import rasterio.shutil
import tensorstore
import tifffile

import anychunk

TARGET = Path(__file__).with_name("vectors")
BASE = "/data/vectors"
"""The folder that the indexes say they were saved in."""
DATE_NS = 1_700_000_000_000_000_000


def field(shape, dtype="uint16"):
    """Return smooth numbers that use a good part of their type."""
    y, x = np.mgrid[: shape[-2], : shape[-1]]
    planes = [500 + 300 * np.sin(x / 9 + n) + 190 * np.cos(y / 7) for n in range(shape[0])]
    values = np.stack(planes) if len(shape) == 3 else planes[0]
    return (values / 4 if np.dtype(dtype).itemsize == 1 else values).astype(dtype)


def tiff_files():
    """Yield name, file and arrays: by tag, what the codec `tiff-tile` has to undo."""
    gray, rgb = field((90, 130)), np.ascontiguousarray(np.moveaxis(field((3, 64, 96), "u1"), 0, -1))
    for name, options in {
        "lzw-big-endian": {"compression": "lzw", "predictor": 2, "byteorder": ">"},
        "deflate": {"compression": "zlib"},
        "zstd-float": {"compression": "zstd", "predictor": 3},
        "packbits": {"compression": "packbits"},
        "lerc": {"compression": "lerc"},
        "strips": {"compression": "lzma", "rowsperstrip": 32},
    }.items():
        data = gray.astype("f4") if "float" in name else gray
        tile = {} if "rowsperstrip" in options else {"tile": (32, 48)}
        file = TARGET / f"{name}.tif"
        tifffile.imwrite(file, data, metadata=None, datetime=False, **tile, **options)
        yield name, file, {"0/0/image": data}
    for name, options in {
        "jpeg": {"photometric": "ycbcr"},
        "webp": {"compressionargs": {"lossless": True}},
    }.items():
        file = TARGET / f"{name}.tif"
        more = {"photometric": "rgb", **options}
        tifffile.imwrite(file, rgb, tile=(32, 32), compression=name, metadata=None, **more)
        yield name, file, {"0/0/image": np.moveaxis(tifffile.imread(file), -1, 0)}
    with tifffile.TiffWriter(TARGET / "levels.tif") as writer:
        writer.write(gray, tile=(32, 48), subifds=1, metadata=None, compression="zlib")
        writer.write(gray[::2, ::2], tile=(32, 48), subfiletype=1, compression="zlib")
    yield "levels", TARGET / "levels.tif", {"0/0/image": gray, "0/1/image": gray[::2, ::2]}


def gdal_files():
    """Yield NITF files that GDAL wrote."""
    for name, bands, dtype, options in (
        ("nitf-block", 2, "uint16", {"BLOCKXSIZE": 32, "BLOCKYSIZE": 32}),
        ("nitf-jpeg", 1, "uint8", {"IC": "C3", "BLOCKXSIZE": 64, "BLOCKYSIZE": 64}),
    ):
        data, file = field((bands, 70, 100), dtype), TARGET / f"{name}.ntf"
        about = {"count": bands, "height": 70, "width": 100, "dtype": dtype}
        with rasterio.io.MemoryFile() as memory, memory.open(driver="GTiff", **about) as made:
            made.write(data)
            rasterio.shutil.copy(made, file, driver="NITF", FDT="20260101000000", **options)
        with rasterio.open(file) as source:
            found = source.read()
        yield name, file, {"0/0/image": found if bands > 1 else found[0]}


def other_files():
    """Yield JPEG 2000, N5, JNRRD and NPY."""
    data = field((75, 110))
    raw = TARGET / "pixels.rawl"
    raw.write_bytes(data.tobytes())
    for name, options in {"jpeg2000": ("-t", "32,32"), "jpeg2000-whole": ("-d", "3,5")}.items():
        file = TARGET / f"{name}.j2k"
        command = ["opj_compress", "-i", raw, "-o", file, "-F", "110,75,1,16,u", "-n", "4"]
        subprocess.run([*command, *options], check=True, capture_output=True)
        found = file.read_bytes()
        levels = {
            f"0/{level}/image": imagecodecs.jpeg2k_decode(found, skipres=level)
            for level in range(4 if options[0] == "-t" else 1)
        }
        yield name, file, levels
    raw.unlink()
    volume = field((5, 20, 30))
    for compression in ("gzip", "xz", "raw"):
        file = TARGET / f"blocks-{compression}.n5"
        about = {"dimensions": volume.shape[::-1], "blockSize": [16, 16, 2], "dataType": "uint16"}
        store = {"driver": "file", "path": str(file / "data")}
        spec = {"driver": "n5", "kvstore": store, "create": True}
        spec["metadata"] = {**about, "compression": {"type": compression}}
        tensorstore.open(spec).result()[...].write(volume.transpose()).result()
        yield file.stem, file, {None: volume}
    for name, options in {"volume": {}, "volume-gzip": {"compression": "gzip"}}.items():
        file = TARGET / f"{name}.jnrrd"
        anychunk.write(volume, file, **options)
        yield name, file, {None: volume}
    np.save(TARGET / "array.npy", volume.astype(">f8"))
    yield "array", TARGET / "array.npy", {None: volume.astype("f8")}


def main():
    """Write everything anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    expected = {}
    for make in (tiff_files, gdal_files, other_files):
        for name, file, arrays in make():
            for path in (file, *file.rglob("*")):
                os.utime(path, ns=(DATE_NS, DATE_NS))
            save(name, file)
            expected[f"{name}.json"] = {
                key: described(array) for key, array in with_names(name, arrays).items()
            }
    (TARGET / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def save(name, file):
    """Save an index, as if in the folder `BASE`."""
    target = TARGET / f"{name}.json"
    anychunk.save(anychunk.index(file), target)
    target.write_text(target.read_text().replace(str(TARGET), BASE))


def with_names(name, arrays):
    """Return arrays by the names in the index; the only array of a volume has any name."""
    if None not in arrays:
        return arrays
    found = json.loads((TARGET / f"{name}.json").read_text())["refs"]
    known = [k for k, v in found.items() if k.endswith("zarr.json") and '"node_type": "array"' in v]
    [only] = [k.rpartition("/")[0] for k in known if json.loads(found[k])["node_type"] == "array"]
    return {only: arrays[None]}


def described(array):
    """Return shape, type and hash of an array."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    hashed = hashlib.sha256(plain.tobytes()).hexdigest()
    return {"shape": list(array.shape), "dtype": plain.dtype.str, "sha256": hashed}


if __name__ == "__main__":
    sys.exit(main())
