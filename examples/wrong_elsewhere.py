"""What others read wrong without a word, and what anychunk makes of the same bytes.

Each case is made here, read by somebody else and by anychunk, and held against what was written.
Needs the tools of the tests (`make setup`); those that are missing are passed over, saying so.
"""

import json
import os
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
import zarr

import anychunk
from anychunk.model.index import GroupIndex

type Array = np.ndarray
type Reading = tuple[str, Array | str, Array | str]
"""Who reads otherwise, what they read, and what anychunk reads; text where it is an error."""

PIXELS = np.random.default_rng(0).integers(0, 4000, (300, 400), dtype="uint16")


def n5_by_offset(_: Path) -> tuple[Array, list[Reading]]:
    """Example 3 of the offset and pad documents: the header skipped, nothing turned."""
    data = PIXELS[:64, :64]
    Path("a.n5/0").mkdir(parents=True)
    block = struct.pack(">HHII", 0, 2, 64, 64) + data.astype(">u2").tobytes(order="F")
    Path("a.n5/0/0").write_bytes(block)
    about = {"dimensions": [64, 64], "blockSize": [64, 64], "dataType": "uint16"}
    Path("a.n5/attributes.json").write_text(json.dumps(about | {"compression": {"type": "raw"}}))
    offset = {"name": "offset", "configuration": {"offset": 12}}
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [64, 64],
        "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, offset],
        "fill_value": 0,
    }
    Path("a.n5/zarr.json").write_text(json.dumps(metadata))
    by_example = zarr.open_array("a.n5", mode="r")[...]
    Path("a.n5/zarr.json").unlink()
    ours = np.asarray(anychunk.open("a.n5", axes="xyz")[...])  # as the example orders axes
    return data, [("zarr, by that example", by_example, ours)]


def jpeg2000_at_the_origin(_: Path) -> tuple[Array, list[Reading]]:
    """Tiles of 192, each decoded as if it lay at (0, 0), as the text on codestreams has it."""
    import rasterio  # its wheels contain OpenJPEG; imagecodecs cannot write tiles

    tiles = {
        "tiled": True,
        "BLOCKXSIZE": 192,
        "BLOCKYSIZE": 192,
        "REVERSIBLE": "YES",
        "QUALITY": 100,
    }
    options = {"driver": "JP2OpenJPEG", "CODEC": "J2K", **tiles}
    with rasterio.open(
        "a.j2k", "w", width=400, height=300, count=1, dtype="uint16", **options
    ) as out:
        out.write(PIXELS, 1)
    stream = Path("a.j2k").read_bytes()
    begin = stream.index(b"\xff\x90")  # SOT, ISO 15444-1 A.4.2
    header = bytearray(stream[:begin])
    found = np.zeros_like(PIXELS)
    at = begin
    while stream[at : at + 2] == b"\xff\x90":
        number, length = struct.unpack(">HI", stream[at + 4 : at + 10])
        row, column = divmod(number, 3)
        top, left = row * 192, column * 192
        high, wide = min(192, 300 - top), min(192, 400 - left)
        # SIZ, A.5.1: Xsiz Ysiz XOsiz YOsiz XTsiz YTsiz XTOsiz YTOsiz
        header[8:40] = struct.pack(">8I", wide, high, 0, 0, wide, high, 0, 0)
        part = bytearray(stream[at : at + length])
        part[4:6] = b"\0\0"
        tile = imagecodecs.jpeg2k_decode(bytes(header) + bytes(part) + b"\xff\xd9")
        found[top : top + high, left : left + wide] = tile
        at += length
    ours = np.asarray(anychunk.open_array("a.j2k")[...])
    return PIXELS, [("OpenJPEG, tiles moved to the origin", found, ours)]


def htj2k_area(_: Path) -> tuple[Array, list[Reading]]:
    """HTJ2K larger than 1024: GDAL reads it by areas, which OpenJPEG 2.5 leaves mid-grey."""
    import rasterio

    noise = np.random.default_rng(0).integers(0, 256, (1100, 1100), dtype="uint8")
    Path("h.j2c").write_bytes(imagecodecs.htj2k_encode(noise, reversible=True))
    with rasterio.open("h.j2c") as opened:
        theirs = opened.read(1)
    return noise, [("rasterio", theirs, np.asarray(anychunk.open_array("h.j2c")[...]))]


def irreversible_area(_: Path) -> tuple[Array, list[Reading]]:
    """Areas of a 9/7 image, against the whole of it: OpenJPEG's margin is too small."""
    import glymur

    if glymur.version.openjpeg_version == "0.0.0":
        raise ImportError("glymur finds no OpenJPEG: apt-get install libopenjp2-7")
    noise = np.random.default_rng(5).integers(0, 256, (500, 613), dtype="uint8")
    opened = glymur.Jp2k(
        "n.j2k", data=noise, irreversible=True, cbsize=(4, 4), numres=6, cratios=[2]
    )
    whole, ours = opened[:], anychunk.open_array("n.j2k")
    corners = np.random.default_rng(1).integers(40, 400, (30, 2)).tolist()
    boxes = [(slice(y, y + 50), slice(x, x + 50)) for x, y in corners]
    truth = np.stack([whole[box] for box in boxes])
    theirs = np.stack([opened[box] for box in boxes])
    return truth, [("OpenJPEG, by areas", theirs, np.stack([ours[box] for box in boxes]))]


def big_endian_tiff(_: Path) -> tuple[Array, list[Reading]]:
    """`tiff-tile` as osml-imagery-io has it: no key says the byte order."""
    tifffile.imwrite("b.tif", PIXELS, tile=(128, 128), compression="zlib", byteorder=">")
    index = anychunk.index("b.tif")
    array = index["0/0/image"]
    codec = {k: v for k, v in array.codecs[-1]["configuration"].items() if k != "byte_order"}
    without = (*array.codecs[:-1], {**array.codecs[-1], "configuration": codec})
    theirs = anychunk.open(GroupIndex(members={"a": replace(array, codecs=without)}))["a"][...]
    return PIXELS, [
        ("tiff-tile without byte_order", theirs, anychunk.open(index)["0/0/image"][...])
    ]


def by_fsspec(name: str) -> Array:
    """Read a kerchunk index by fsspec and zarr."""
    import fsspec
    from zarr.storage import FsspecStore

    files = fsspec.filesystem("reference", fo=name, asynchronous=True, skip_instance_cache=True)
    store = FsspecStore(files, read_only=True, path="")
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    return np.asarray(group["0/0/image"][...])


def ours_or_error(name: str) -> Array | str:
    try:
        return np.asarray(anychunk.open(name)["0/0/image"][...])
    except anychunk.AnychunkError as e:
        return f"{type(e).__name__}: {str(e).rpartition('/')[2]}"


def changed_file(_: Path) -> tuple[None, list[Reading]]:
    """A file that an index refers to is written anew, in another type."""
    np.save("d.npy", PIXELS)
    anychunk.index("d.npy").save("d.json")
    np.save("d.npy", PIXELS.astype("float16"))
    os.utime("d.npy", ns=(1, 1))
    return None, [("fsspec and zarr", by_fsspec("d.json"), ours_or_error("d.json"))]


def written_by_zarr(values: Array, codec: dict[str, object], stored: str) -> list[Array | str]:
    """Encode by zarr's codec and by ours; give what both have stored, read without the codec."""
    found = []
    for number, is_ours in enumerate((False, True)):
        (anychunk.enable if is_ours else anychunk.disable)()
        place = f"{stored}-{number}.zarr"
        metadata = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(values.shape),
            "data_type": values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(values.shape)}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [codec, {"name": "bytes", "configuration": {"endian": "little"}}],
            "fill_value": 0,
        }
        Path(place).mkdir()
        Path(place, "zarr.json").write_text(json.dumps(metadata))
        try:
            zarr.open_array(place, mode="r+")[...] = values
            found.append(np.frombuffer(Path(place, "c/0").read_bytes(), stored))
        except (anychunk.AnychunkError, ValueError) as e:
            found.append(str(e))
    anychunk.disable()
    return found


def rounded_twice(_: Path) -> tuple[Array, list[Reading]]:
    """float64 to float16: just above the middle of two, which float32 does not tell from it."""
    values = np.array([1 + 2.0**-11 + 2.0**-40])
    codec = {"name": "cast_value", "configuration": {"data_type": "float16"}}
    theirs, ours = written_by_zarr(values, codec, "float16")
    return values.astype(np.float16), [("zarr with cast-value-rs", theirs, ours)]


def integers_that_wrap(_: Path) -> tuple[None, list[Reading]]:
    """An int64 times a scale, beyond 64 bits."""
    codec = {"name": "scale_offset", "configuration": {"offset": 0, "scale": 4}}
    theirs, ours = written_by_zarr(np.array([2**62 + 1]), codec, "int64")
    return None, [("zarr", theirs, ours)]


CASES: dict[str, Callable[[Path], tuple[Array | None, list[Reading]]]] = {
    "an N5 block by offset alone": n5_by_offset,
    "JPEG 2000 in tiles of 192": jpeg2000_at_the_origin,
    "HTJ2K larger than 1024 x 1024": htj2k_area,
    "areas of a 9/7 JPEG 2000 image": irreversible_area,
    "a big-endian TIFF": big_endian_tiff,
    "a changed file under its index": changed_file,
    "float64 stored as float16": rounded_twice,
    "int64 scaled beyond 64 bits": integers_that_wrap,
}
"""The truth is None where only an error is right."""


def wrong(found: Array | str, truth: Array | None) -> str:
    """Say how much of a reading is wrong."""
    if isinstance(found, str):
        return "an error" if truth is None else f"fails: {found}"
    if truth is None:
        return "values that nobody wrote, silently"
    share = float(np.mean(found != truth))
    return (
        f"{share:.2g} of the values wrong, silently"
        if 0 < share < 0.01
        else (f"{share:.0%} of the values wrong, silently" if share else "right")
    )


def main() -> Iterator[str]:
    for case, make in CASES.items():
        try:
            truth, readings = make(Path())
        except ImportError as e:
            yield f"{case}: passed over, {e}"
            continue
        for who, theirs, ours in readings:
            verdict = wrong(ours, truth)
            yield f"{case}\n    {who}: {wrong(theirs, truth)}\n    anychunk: {verdict}"
            if verdict not in ("right", "an error"):
                sys.exit(f"{case}: anychunk is wrong")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for line in main():
            print(line)
        os.chdir("/")
