"""Chunks of every codec that claim too much, or that end too early; decoded in a child process.

Run as a module, it decodes every case with little memory to spare, and prints the outcomes as JSON:
for each name the class of the exception, its message, and by how many bytes memory grew.
"""

import base64
import bz2
import json
import lzma
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from anychunk import codecs
from anychunk.codecs import data_types
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.chain import Decoder
from anychunk.codecs.n5_block import write_header
from anychunk.codecs.stream import encode as encode_lz4_java
from anychunk.codecs.window import front
from anychunk.decode.boxes import located
from anychunk.errors import AnychunkError, InternalError
from anychunk.zarr.data_types import data_type

URL = "https://awslabs.github.io/osml-imagery-io/codecs"
SIDE = 64
BOMB = 96 << 20
"""What streams decode to that are too long for their chunk."""
WIDE = 46341
"""Side of chunks that announce 2 GiB."""
SPARE = 1 << 30
"""Address space that a case may reserve; whatever is reserved beyond fails."""

type Stored = bytes | Callable[[], bytes]
"""Stored bytes, or what makes them where that takes long: to name the cases takes no time."""
type Case = tuple[list[Any], str, tuple[int, ...], Stored]
"""(JSON of the codecs, data type, shape of the chunk, stored bytes)."""

SAMPLES = np.arange(SIDE * SIDE, dtype="u1").reshape(SIDE, SIDE)
RGB = np.repeat(SAMPLES[..., None], 3, axis=2)
BYTES = {"name": "bytes"}


def tile(
    compression: int, *, side: int = SIDE, bands: int = 1, **more: Any
) -> tuple[list[Any], tuple[int, ...]]:
    configuration = {
        "compression": compression,
        "tile_width": side,
        "tile_height": side,
        "last_height": side,
        "last_width": side,
        "samples_per_pixel": bands,
        "photometric": 2 if bands == 3 else 1,
        **more,
    }
    return [BYTES, {"name": f"{URL}/tiff-tile", "configuration": configuration}], (
        bands,
        side,
        side,
    )


# pictures: a stream of 64 x 64 pixels, and the same stream with a larger size in its header


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def large_jpeg(data: bytes) -> bytes:
    at = max(data.find(bytes([0xFF, frame])) for frame in (0xC0, 0xC3))  # baseline, lossless
    return patched(data, at + 5, struct.pack(">HH", 65500, 65500))


def large_jpeg2000(data: bytes) -> bytes:
    at = data.index(b"\xff\x4f\xff\x51") + 8
    return patched(data, at, struct.pack(">8I", 60000, 60000, 0, 0, 60000, 60000, 0, 0))


def large_png(data: bytes) -> bytes:
    header = patched(data[12:29], 4, struct.pack(">II", 60000, 60000))
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def large_webp(data: bytes) -> bytes:
    if data[12:16] == b"VP8 ":
        return patched(data, 26, struct.pack("<HH", 16383, 16383))
    (bits,) = struct.unpack_from("<I", data, 21)
    return patched(data, 21, struct.pack("<I", bits | 0x0FFFFFFF))


def large_jpeg_xr(data: bytes) -> bytes:
    for tag in (0xBC80, 0xBC81):
        at = data.index(struct.pack("<HHI", tag, 4, 1)) + 8
        data = patched(data, at, struct.pack("<I", 60000))
    return data


def large_jpeg_xr_stream(data: bytes) -> bytes:
    """Change the size in the codestream, not the one in the container."""
    at = data.index(b"WMPHOTO\0")
    return patched(
        data, at + 12, struct.pack(">HH" if data[at + 10] & 0x80 else ">II", 60000, 60000)
    )


@cache
def large_lerc(_: bytes) -> bytes:
    return bytes(imagecodecs.lerc_encode(np.zeros((8000, 8000), "u1")))  # 70 bytes


def deep_lerc(data: bytes) -> bytes:
    return patched(data, 22, struct.pack("<i", 1 << 20))


def jpeg_xl(rows: int, columns: int, **options: Any) -> bytes:
    zeros = np.zeros((rows, columns), "u1")
    return bytes(imagecodecs.jpegxl_encode(zeros, effort=1, **options))


def webp(level: int | None) -> bytes:
    return bytes(imagecodecs.webp_encode(RGB, level=level, lossless=level is None))


JPEG = bytes(imagecodecs.jpeg8_encode(SAMPLES))
LERC = bytes(imagecodecs.lerc_encode(SAMPLES))
PICTURES: dict[str, tuple[int, int, bytes, Callable[[bytes], bytes]]] = {
    "jpeg": (7, 1, JPEG, large_jpeg),
    "jpeg of bands": (7, 3, bytes(imagecodecs.jpeg8_encode(RGB)), large_jpeg),
    "lossless jpeg": (7, 1, bytes(imagecodecs.ljpeg_encode(SAMPLES)), large_jpeg),
    "old jpeg": (6, 1, JPEG[:-2], large_jpeg),
    "jpeg 2000": (
        34712,
        1,
        bytes(imagecodecs.jpeg2k_encode(SAMPLES, codecformat="J2K")),
        large_jpeg2000,
    ),
    "jp2": (34712, 1, bytes(imagecodecs.jpeg2k_encode(SAMPLES, codecformat="JP2")), large_jpeg2000),
    "jpeg xr": (34934, 1, bytes(imagecodecs.jpegxr_encode(SAMPLES)), large_jpeg_xr),
    "jpeg xr stream": (34934, 1, bytes(imagecodecs.jpegxr_encode(SAMPLES)), large_jpeg_xr_stream),
    "jpeg xl": (50002, 1, jpeg_xl(SIDE, SIDE), lambda _: jpeg_xl(9000, 4000)),
    "jpeg xl in a container": (
        50002,
        1,
        jpeg_xl(SIDE, SIDE, usecontainer=True),
        lambda _: jpeg_xl(4000, 9000, usecontainer=True),
    ),
    "webp": (50001, 3, webp(None), large_webp),
    "lossy webp": (50001, 3, webp(50), large_webp),
    "png": (34933, 1, bytes(imagecodecs.png_encode(SAMPLES)), large_png),
    "lerc": (34887, 1, LERC, large_lerc),
    "lerc of many bands": (34887, 1, LERC, deep_lerc),
    "lerc in deflate": (34887, 1, LERC, lambda data: zlib.compress(large_lerc(data))),
    "lerc in zstd": (34887, 1, LERC, lambda data: bytes(imagecodecs.zstd_encode(large_lerc(data)))),
}


def pictures() -> Iterator[tuple[str, Case]]:
    for name, (compression, bands, stored, enlarge) in PICTURES.items():
        chain, shape = tile(compression, bands=bands)
        yield f"{name}: larger", (chain, "uint8", shape, partial(enlarge, stored))
        yield f"{name}: truncated", (chain, "uint8", shape, stored[: len(stored) // 2])
        chain, shape = tile(compression, bands=bands, side=WIDE)
        yield f"{name}: expanding", (chain, "uint8", shape, stored)


# streams: 96 MiB of zeros for a chunk of 4 KiB


def zlib_bomb(wbits: int) -> bytes:
    """A stream without its end: the decoder must stop long before."""
    stream = zlib.compressobj(9, wbits=wbits)
    head = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    return head + again * (BOMB >> 20)


def zstd_bomb(*, is_sized: bool = False) -> bytes:
    """RFC 8878: blocks of 128 KiB of one repeated byte, with or without the content size."""
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    count = BOMB // (128 << 10)
    last = (128 << 10 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    head = b"\x80\x38" + struct.pack("<I", BOMB) if is_sized else b"\x00\x38"
    return b"\x28\xb5\x2f\xfd" + head + block * (count - 1) + last


def lz4_block_bomb() -> bytes:
    """One literal, then a match that goes on: every byte 255 adds 255."""
    return b"\x1f\x00\x01\x00" + b"\xff" * (BOMB // 255) + b"\x00\x50" + bytes(5)


def lz4_frame_bomb() -> bytes:
    whole = bytes(imagecodecs.lz4f_encode(bytes(4 << 20), blocksizeid=7))
    return whole[:-4] + whole[7:-4] * (BOMB >> 22) + whole[-4:]


def blosc_bomb() -> bytes:
    data = bytes(imagecodecs.blosc_encode(bytes(SIDE * SIDE), numthreads=1))
    return patched(data, 4, struct.pack("<I", BOMB))


def packbits_bomb() -> bytes:
    return b"\x81\x00" * (BOMB // 128)


@cache
def bzip2_bomb() -> bytes:
    return bz2.compress(bytes(BOMB), 1)


@cache
def xz_bomb() -> bytes:
    return lzma.compress(bytes(BOMB), preset=0)


def raw_lzma(data: bytes) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0}]
    return lzma.compress(data, lzma.FORMAT_RAW, filters=filters)


RAW = SAMPLES.tobytes()
STREAMS: dict[str, tuple[bytes, Stored]] = {
    "raw": (RAW, RAW * 2),
    "gzip": (bytes(imagecodecs.gzip_encode(RAW)), zlib_bomb(31)),
    "zlib": (zlib.compress(RAW), zlib_bomb(15)),
    "bzip2": (bz2.compress(RAW), bzip2_bomb),
    "xz": (lzma.compress(RAW), xz_bomb),
    "raw lzma": (raw_lzma(RAW), lambda: raw_lzma(bytes(BOMB))),
    "zstd": (bytes(imagecodecs.zstd_encode(RAW)), zstd_bomb()),
    "sized zstd": (bytes(imagecodecs.zstd_encode(RAW)), zstd_bomb(is_sized=True)),
    "lz4 block": (bytes(imagecodecs.lz4_encode(RAW)), lz4_block_bomb()),
    "sized lz4 block": (
        struct.pack("<I", len(RAW)) + bytes(imagecodecs.lz4_encode(RAW)),
        struct.pack("<I", BOMB) + lz4_block_bomb(),
    ),
    "lz4 frame": (bytes(imagecodecs.lz4f_encode(RAW)), lz4_frame_bomb()),
    "blosc": (bytes(imagecodecs.blosc_encode(RAW, numthreads=1)), blosc_bomb()),
}
"""By compression: the chunk, and a stream that decodes to far more."""


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


BLOSC = codec("blosc", cname="lz4", clevel=5, shuffle="noshuffle", typesize=1, blocksize=0)
COMPRESSORS: dict[str, tuple[dict[str, Any], str]] = {
    "zarr zstd": (codec("zstd", level=3, checksum=False), "zstd"),
    "zarr sized zstd": (codec("zstd", level=3, checksum=False), "sized zstd"),
    "zarr gzip": (codec("gzip", level=5), "gzip"),
    "zarr blosc": (BLOSC, "blosc"),
    "numcodecs bz2": (codec("numcodecs.bz2", level=1), "bzip2"),
    "numcodecs blosc": (codec("numcodecs.blosc", clevel=1), "blosc"),
    "numcodecs gzip": (codec("numcodecs.gzip", level=1), "gzip"),
    "numcodecs lz4": (codec("numcodecs.lz4"), "sized lz4 block"),
    "numcodecs lzma": (codec("numcodecs.lzma"), "xz"),
    "numcodecs raw lzma": (codec("numcodecs.lzma", format=3, filters=[{"id": 33}]), "raw lzma"),
    "numcodecs zlib": (codec("numcodecs.zlib", level=1), "zlib"),
    "numcodecs zstd": (codec("numcodecs.zstd", level=1), "sized zstd"),
    "anychunk zlib": (codec("anychunk.stream", compression="zlib"), "zlib"),
    "anychunk bzip2": (codec("anychunk.stream", compression="bzip2"), "bzip2"),
    "anychunk xz": (codec("anychunk.stream", compression="xz"), "xz"),
    "anychunk lz4 frame": (codec("anychunk.stream", compression="lz4"), "lz4 frame"),
    "lz4 java, frame": (codec("anychunk.stream", compression="lz4_java"), "lz4 frame"),
    "lz4 java, block": (codec("anychunk.stream", compression="lz4_java"), "lz4 block"),
    **{
        f"leading {name}": (codec("anychunk.stream", compression=name, leading=True), stream)
        for name, stream in {
            "gzip": "gzip", "bzip2": "bzip2", "zstd": "zstd", "lz4": "lz4 frame"
        }.items()
    },
}  # fmt: skip
SHUFFLE = codec("numcodecs.shuffle", elementsize=1)
OUTER: dict[str, tuple[dict[str, Any], str]] = {
    "outer zstd": (codec("zstd", level=3, checksum=False), "zstd"),
    "outer sized zstd": (codec("zstd", level=3, checksum=False), "sized zstd"),
    "outer gzip": (codec("gzip", level=5), "gzip"),
    "outer blosc": (BLOSC, "blosc"),
    "outer numcodecs bz2": (codec("numcodecs.bz2", level=1), "bzip2"),
    "outer numcodecs lzma": (codec("numcodecs.lzma"), "xz"),
    "outer numcodecs zlib": (codec("numcodecs.zlib", level=1), "zlib"),
    "outer numcodecs zstd": (codec("numcodecs.zstd", level=1), "sized zstd"),
}
"""Compressors behind a filter: the size of what they decode to is not known."""
TIFF_STREAMS = {
    "tiff zstd": (50000, *STREAMS["zstd"]),
    "tiff sized zstd": (50000, *STREAMS["sized zstd"]),
    "tiff deflate": (8, *STREAMS["zlib"]),
    "tiff lzma": (34925, *STREAMS["xz"]),
    "tiff lzw": (5, bytes(imagecodecs.lzw_encode(RAW)), b""),
    "tiff packbits": (32773, bytes(imagecodecs.packbits_encode(RAW)), packbits_bomb()),
    "tiff ccitt": (4, b"\x00\x10\x01", b""),
}
"""Compression, chunk, bomb. PackBits may go on after the last row, so its bomb reads as its start."""


def streams() -> Iterator[tuple[str, Case]]:
    small, large = (SIDE, SIDE), (WIDE, WIDE)
    for name, (json_, stream) in COMPRESSORS.items():
        stored, bomb = STREAMS[stream]
        if "leading" not in name or "gzip" not in name:
            yield f"{name}: larger", ([BYTES, json_], "uint8", small, bomb)
        yield f"{name}: truncated", ([BYTES, json_], "uint8", small, stored[: len(stored) // 2])
        yield f"{name}: expanding", ([BYTES, json_], "uint8", large, stored)
    for name, (json_, stream) in OUTER.items():
        stored, bomb = STREAMS[stream]
        chain = [BYTES, SHUFFLE, json_]
        yield f"{name}: larger", (chain, "uint8", small, bomb)
        yield f"{name}: truncated", (chain, "uint8", small, stored[: len(stored) // 2])
        yield f"{name}: expanding", (chain, "uint8", large, stored)
    for name, (compression, stored, bomb) in TIFF_STREAMS.items():
        bits = {"bits_per_sample": 1} if compression == 4 else {}
        chain, shape = tile(compression, **bits)
        dtype = "bool" if bits else "uint8"
        if bomb:
            yield f"{name}: larger", (chain, dtype, shape, bomb)
        yield f"{name}: truncated", (chain, dtype, shape, stored[: len(stored) // 2])
        chain, shape = tile(compression, side=WIDE, **bits)
        yield f"{name}: expanding", (chain, dtype, shape, stored)


# codecs with a header of their own


def headed() -> Iterator[tuple[str, Case]]:
    small, large = (SIDE, SIDE), (WIDE, WIDE)
    zstd = codec("zstd", level=3, checksum=False)
    stored = STREAMS["zstd"][0]
    n5 = codec("n5_default", codecs=[BYTES, zstd])
    huge = write_header(large) + stored
    yield "n5 block: larger", ([n5], "uint8", small, huge)
    yield "n5 block: expanding", ([n5], "uint8", large, huge)
    yield "n5 block: truncated", ([n5], "uint8", small, write_header(small) + stored[:9])
    yield "n5 block: bomb", ([n5], "uint8", small, write_header(small) + zstd_bomb())
    cropped = codec("anychunk.n5", codecs=[BYTES, zstd], block_shape=list(large))
    yield "n5 cropped: larger", ([cropped], "uint8", small, huge)
    n5_bytes = codec("anychunk.n5", codecs=[BYTES, zstd], content="bytes")
    head = write_header((), mode=2, elements=2 << 30)
    yield "n5 bytes: larger", ([n5_bytes], "variable_length_bytes", (1,), head + stored)
    window = codec("anychunk.window", codecs=[BYTES, zstd])
    yield "window: larger", ([window], "uint8", small, front(large, (0, 0), small) + stored)
    yield "window: expanding", ([window], "uint8", large, front(small) + stored)
    yield "window: truncated", ([window], "uint8", small, front(small) + stored[:9])
    choice = codec("anychunk.choice", choices=[[BYTES], [BYTES, zstd]])
    yield "choice: expanding", ([choice], "uint8", large, b"\1" + stored)
    yield "choice: bomb", ([choice], "uint8", small, b"\1" + zstd_bomb())
    yield "choice: truncated", ([choice], "uint8", small, b"\1" + stored[:9])
    yield "choice: absent chain", ([choice], "uint8", small, b"\2" + stored)
    java = encode_lz4_java(np.frombuffer(RAW, "u1"), 1024)
    lz4 = codec("anychunk.stream", compression="lz4_java")
    yield "lz4 java: larger", ([BYTES, lz4], "uint8", (8,), java)
    yield "lz4 java: larger block", (
        [BYTES, lz4], "uint8", small, patched(java, 13, struct.pack("<i", BOMB))
    )  # fmt: skip
    yield "lz4 java: truncated", ([BYTES, lz4], "uint8", small, java[:500])
    yield "lz4 java: expanding", ([BYTES, lz4], "uint8", large, java)
    inner = {"chunk_shape": [8, 8], "codecs": [BYTES, zstd], "index_codecs": [BYTES]}
    shard = codec("sharding_indexed", **inner)
    entries = struct.pack("<QQ", 0, len(stored)) * 64
    yield "shard: larger", ([shard], "uint8", small, zstd_bomb() + entries)
    yield "shard: expanding", ([shard], "uint8", small, struct.pack("<QQ", 8, 1 << 40) * 64)
    yield "shard: truncated", ([shard], "uint8", small, entries[:100])
    skip = codec("anychunk.stream", compression="gzip", leading=True, skip=1 << 40)
    yield "leading stream: skip", ([BYTES, skip], "uint8", small, STREAMS["gzip"][0])
    yield "text: expanding", ([codec("anychunk.text")], "uint8", large, b"1 2 3")
    block = {"block_width": SIDE, "block_height": SIDE}
    wide = {"block_width": WIDE, "block_height": WIDE}
    band = {"bits_per_pixel": 8, "num_bands": 1, "imode": "B", "color_space": "MONO"}
    jpeg = codec(f"{URL}/jpeg", **band, **block)
    yield "nitf jpeg: larger", ([BYTES, jpeg], "uint8", (1, *small), large_jpeg(JPEG))
    yield "nitf jpeg: truncated", ([BYTES, jpeg], "uint8", (1, *small), JPEG[:300])
    jpeg = codec(f"{URL}/jpeg", **band, **wide)
    yield "nitf jpeg: expanding", ([BYTES, jpeg], "uint8", (1, *large), JPEG)
    jbp = {"num_bands": 1, "nbpp": 8, "imode": "B", "pvtype": "INT"}
    raw = codec(f"{URL}/jbp-block", **jbp, **block)
    yield "nitf block: truncated", ([BYTES, raw], "uint8", (1, *small), RAW[:99])
    raw = codec(f"{URL}/jbp-block", **jbp, **wide)
    yield "nitf block: expanding", ([BYTES, raw], "uint8", (1, *large), RAW)
    bit = {"num_bands": 1, "nbpp": 1, "imode": "B", "pvtype": "B"}
    fax = codec("anychunk.jbp-block", compression="fax-1d", **bit, **wide)
    yield "nitf bi-level: expanding", ([BYTES, fax], "uint8", (1, *large), bytes(99))
    table = codec(
        "anychunk.jbp-block", compression="vq", **jbp, block_height=46344, block_width=46344
    )
    yield "nitf vq: expanding", ([BYTES, table], "uint8", (1, 46344, 46344), bytes(99))
    stream = PICTURES["jpeg 2000"][2]
    whole = codec(f"{URL}/jpeg2000", main_header=None, resolution_level=0)
    yield "jpeg2000: larger", ([BYTES, whole], "uint8", (1, *small), large_jpeg2000(stream))
    yield "jpeg2000: truncated", ([BYTES, whole], "uint8", (1, *small), stored[:99])
    yield "jpeg2000: expanding", ([BYTES, whole], "uint8", (1, *large), stream)
    first = stream.index(b"\xff\x90")
    huge_tile = large_jpeg2000(stream)[:first]
    tiled = codec(
        f"{URL}/jpeg2000", main_header=base64.b64encode(huge_tile).decode(), resolution_level=0
    )
    yield "jpeg2000 tile: larger", ([BYTES, tiled], "uint8", (1, *small), stream[first:-2])


def cases() -> dict[str, Case]:
    return dict([*pictures(), *streams(), *headed()])


def decode(case: Case) -> npt.NDArray[Any]:
    chain, dtype, shape, stored = case
    assert isinstance(stored, bytes)
    kind = data_types.native(dtype)
    spec = ChunkSpec(shape, kind, data_type(dtype).default_scalar(), dtype)
    with located(lambda: "chunk"):
        return Decoder([codecs.from_json(c) for c in chain], spec)(np.frombuffer(stored, np.uint8))


def status(key: str) -> int:
    """Return a value of this process in bytes, from the kernel's table."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def outcome(case: Case) -> tuple[str, str, int]:
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    try:
        array = decode(case)
        found = "decoded", f"{array.shape} {array.max()}"
    except InternalError as e:
        found = "InternalError", str(e)
    except AnychunkError as e:
        found = "AnychunkError", str(e)
    except BaseException as e:
        found = type(e).__name__, str(e)
    return *found, status("VmHWM") - before


def main() -> None:
    chosen = {
        name: (*about, stored if isinstance(stored, bytes) else stored())
        for name, (*about, stored) in cases().items()
    }
    outcome(chosen["png: truncated"])  # what is loaded on first use
    most = status("VmSize") + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.stdout.write(json.dumps({name: outcome(case) for name, case in chosen.items()}))


if __name__ == "__main__":
    main()
