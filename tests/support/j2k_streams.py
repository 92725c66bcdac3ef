"""JPEG 2000 streams made by OpenJPEG's own command line, and what it says they hold."""

import itertools
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import anychunk
from anychunk.codestream.jpeg2000 import read_main_header, tile_parts
from tests.support.patience import PATIENCE_S

COMPRESS, DECOMPRESS = shutil.which("opj_compress"), shutil.which("opj_decompress")
needs_openjpeg = pytest.mark.skipif(
    COMPRESS is None or DECOMPRESS is None,
    reason="opj_compress and opj_decompress are not here: apt-get install libopenjp2-tools",
)


def field(
    shape: tuple[int, int], *, bands: int = 1, depth: int = 8, is_signed: bool = False
) -> np.ndarray:
    """Make a smooth field with noise, (bands, y, x), that uses the whole range of values."""
    height, width = shape
    rng = np.random.default_rng(depth * 100 + bands)
    y, x = np.mgrid[:height, :width]
    half = 2.0 ** (depth - 1)
    planes = []
    for band in range(bands):
        wave = np.sin(x / (9.0 + band)) + np.cos(y / (13.0 - band)) + rng.normal(0, 0.08, shape)
        planes.append(np.clip(np.rint(half + half * wave / 2), 0, 2 * half - 1))
    values = np.stack(planes) - (half if is_signed else 0)
    size = 1 if depth <= 8 else 2
    return values.astype(f"{'i' if is_signed else 'u'}{size}")


def compress(
    planes: list[np.ndarray],
    *options: str,
    depth: int = 8,
    sampling: str = "",
    size: tuple[int, int] | None = None,
) -> bytes:
    """Encode planes, each on its own grid, as a raw codestream; `size` is that of the full grid."""
    height, width = size or planes[0].shape
    sign = "s" if planes[0].dtype.kind == "i" else "u"
    raw = b"".join(p.astype(p.dtype.newbyteorder("<")).tobytes() for p in planes)
    characteristics = f"{width},{height},{len(planes)},{depth},{sign}{sampling}"
    return _compress(raw, characteristics, options)


@cache
def _compress(raw: bytes, characteristics: str, options: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.rawl"), Path(folder, "out.j2k")
        source.write_bytes(raw)
        command = [COMPRESS, "-i", source, "-o", target, "-F", characteristics, *options]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        return target.read_bytes()


def decompress(stream: bytes, *, level: int = 0) -> list[np.ndarray]:
    """Decode the whole stream with opj_decompress: every component on its own grid."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.j2k")
        source.write_bytes(stream)
        command = [DECOMPRESS, "-i", source, "-o", Path(folder, "out.pgx"), "-r", str(level)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        files = sorted(Path(folder).glob("out*.pgx"), key=lambda p: int(p.stem.split("_")[-1]))
        return [read_pgx(file.read_bytes()) for file in files]


def read_pgx(data: bytes) -> np.ndarray:
    """Read OpenJPEG's PGX: `PG ML + 8 width height`, then big-endian samples."""
    header, _, body = data.partition(b"\n")
    fields = header.replace(b"+", b" u ").replace(b"-", b" i ").split()
    kind, depth, width, height = fields[2].decode(), *(int(n) for n in fields[3:])
    size = 1 if depth <= 8 else 2 if depth <= 16 else 4
    return np.frombuffer(body, f">{kind}{size}").reshape(height, width).astype(f"{kind}{size}")


def interleaved(stream: bytes) -> bytes:
    """Order tile-parts by their number: first parts of all tiles, then second parts …"""
    length = read_main_header(stream).length
    body = stream[length:-2]
    parts = sorted(tile_parts(body), key=lambda part: (part.number, -part.tile))
    return (
        stream[:length]
        + b"".join(body[p.offset : p.offset + p.length] for p in parts)
        + stream[-2:]
    )


def with_packed_headers(stream: bytes, *, in_main: int = 0) -> bytes:
    """Move the packet headers of each tile-part to two PPT; SOP and EPH tell where they are.

    To as many PPM of the main header, if `in_main` is not 0; the last of them comes first.
    """
    length = read_main_header(stream).length
    body, made, main = stream[length:-2], [], b""
    for part in tile_parts(body):
        head, _, data = body[part.offset : part.offset + part.length].partition(b"\xff\x93")
        packets = [packet.partition(b"\xff\x92") for packet in data.split(b"\xff\x91\0\4")[1:]]
        headers = b"".join(packet[2:] + end for packet, end, _ in packets)
        bodies = b"".join(b"\xff\x91\0\4" + packet[:2] + rest for packet, _, rest in packets)
        # numbered in each tile-part anew, and the second before the first
        halves = [(0, headers[:1]), (1, headers[1:])][::-1]
        ppts = b"".join(struct.pack(">HHB", 0xFF61, 3 + len(h), i) + h for i, h in halves)
        if in_main:
            main, ppts = main + struct.pack(">I", len(headers)) + headers, b""
        whole = bytearray(head + ppts + b"\xff\x93" + bodies)
        struct.pack_into(">I", whole, 6, len(whole))
        made.append(bytes(whole))
    cuts = [len(main) * i // in_main for i in range(in_main + 1)] if in_main else []
    ppms = [
        struct.pack(">HHB", 0xFF60, 3 + end - begin, number) + main[begin:end]
        for number, (begin, end) in enumerate(itertools.pairwise(cuts))
    ]
    return stream[:length] + b"".join(ppms[::-1]) + b"".join(made) + stream[-2:]


def with_length(stream: bytes, part: bytes) -> bytes:
    """Set the length of a tile-part that was changed, and put it behind the main header."""
    patched = bytearray(part)
    struct.pack_into(">I", patched, 6, len(part))
    return stream[: read_main_header(stream).length] + bytes(patched) + b"\xff\xd9"


def opened(path, data: bytes):
    path.write_bytes(data)
    return anychunk.open(path)
