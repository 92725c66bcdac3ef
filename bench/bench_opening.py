"""Opening: tables of ten million tiles, and chains of directories over HTTP."""

import json
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import anychunk
from bench.measure import Row

PLANES = 200
SIDE = 192


def write_bigtiff(path: Path, side: int) -> None:
    """Write a BigTIFF of side x side tiles of 16 x 16 zeros, which take no space on disk."""
    count, header, entries = side * side, 16, 10
    table = header + 8 + 20 * entries + 8
    data = table + 16 * count
    tags = [
        (256, 4, 1, 16 * side), (257, 4, 1, 16 * side), (258, 3, 1, 8), (259, 3, 1, 1),
        (262, 3, 1, 1), (277, 3, 1, 1), (322, 4, 1, 16), (323, 4, 1, 16),
        (324, 16, count, table), (325, 16, count, table + 8 * count),
    ]  # fmt: skip
    with path.open("wb") as file:
        file.write(struct.pack("<4sHHQQ", b"II+\0", 8, 0, 16, entries))
        file.write(b"".join(struct.pack("<HHQQ", *tag) for tag in tags) + bytes(8))
        (np.arange(count, dtype="<u8") * 256 + data).tofile(file)
        np.full(count, 256, "<u8").tofile(file)
        file.truncate(data + 256 * count)


def open_file(path: str) -> None:
    """Run in a separate process, so that the peak memory is that of one file only."""
    small = Path(path).with_name("small.tif")
    write_bigtiff(small, 2)
    anychunk.open_array(small)[:]  # imports what the first use imports
    start, cpu = time.perf_counter(), time.process_time()
    array = anychunk.open_array(path)
    corner = array[-16:, -16:]
    spent = time.perf_counter() - start, time.process_time() - cpu
    assert not corner.any()
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    print(json.dumps([*spent, peak / 1024]))


def tables(quick: bool) -> list[Row]:
    side, rounds = (400, 1) if quick else (3163, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tif"
        write_bigtiff(path, side)
        code = f"from bench.bench_opening import open_file; open_file({str(path)!r})"
        found = []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, cpu, peak = (min(values) for values in zip(*found, strict=True))
    name = f"BigTIFF of {side * side:,} tiles: open and read a tile"
    return [
        Row(f"{name}, seconds", seconds, "<= 1", f"{cpu:.2f} s of processor time"),
        Row(f"{name}, peak MiB", peak, "<= 400"),
    ]


def chains(quick: bool) -> list[Row]:
    """Requests and bytes to open an OME-TIFF whose planes lie between its directories, or not."""
    import tifffile

    from tests.support.http_server import serve

    planes = np.random.default_rng(0).integers(0, 4000, (PLANES, SIDE, SIDE), np.uint16)
    rows = []
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as served:
        for name, options in {
            "compressed": {"compression": "zlib"},
            "compressed tiles": {"compression": "zlib", "tile": (64, 64)},
            "contiguous": {},
        }.items():
            path = Path(folder) / "a.ome.tif"
            tifffile.imwrite(path, planes, metadata={"axes": "ZYX"}, **options)
            size = path.stat().st_size
            served.requests.clear()
            anychunk.index(f"{served.url}/a.ome.tif")
            spans = [map(int, r.removeprefix("bytes=").split("-")) for _, r in served.requests]
            fetched = sum(min(last, size - 1) - first + 1 for first, last in spans)
            case = f"OME-TIFF of {PLANES} planes over HTTP, {name}: requests"
            detail = f"{fetched / 1e6:.2f} of {size / 1e6:.1f} MB"
            rows.append(Row(case, len(served.requests), "<= 6", detail))
    return rows


def tile_parts(quick: bool) -> list[Row]:
    """Bytes to open JPEG 2000 without TLM, as a part of the file."""
    from tests.support.http_server import serve

    rows = []
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as served:
        for length in (20_000, 400_000):
            count = 64
            size = struct.pack(">H8IH3B", 0, count, 1, 0, 0, 1, 1, 0, 0, 1, 7, 1, 1)
            data = b"\xff\x4f\xff\x51" + struct.pack(">H", 41) + size
            data += bytes.fromhex("ff52000c00000001000004040001ff5c00044040")
            for tile in range(count):
                told = length + 37 * (tile * tile % 91)
                data += b"\xff\x90\x00\x0a" + struct.pack(">HIBB", tile, told, 0, 1) + b"\xff\x93"
                data += bytes(told - 14)
            (Path(folder) / "a.j2k").write_bytes(data + b"\xff\xd9")
            served.requests.clear()
            anychunk.index(f"{served.url}/a.j2k")
            spans = [map(int, r.removeprefix("bytes=").split("-")) for _, r in served.requests]
            fetched = sum(min(last, len(data) + 1) - first + 1 for first, last in spans)
            case = f"JPEG 2000, {count} tile-parts of {length // 1000} kB, no TLM: bytes / file"
            detail = f"{len(served.requests)} requests"
            rows.append(Row(case, fetched / (len(data) + 2), "<= 1", detail))
    return rows


def run(quick: bool) -> list[Row]:
    return [*tables(quick), *chains(quick), *tile_parts(quick)]
