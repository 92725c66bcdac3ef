"""Fuzz the compiled module under AddressSanitizer: `python -m fuzz.native [--minutes M]`.

Builds it with the sanitizers of the C compiler, loads that build in a child process, walks damaged
tiles and parameters, follows damaged tile-parts, decodes damaged facsimile, LZW and
PackBits, decodes many chunks of every kind together and JPEG 2000 by OpenJPEG, narrows samples, and
copies bands and rows of arrays of any shape and strides. A finding is a report of the sanitizer, or
an answer that differs from that of the Python code.
"""

import argparse
import gzip
import importlib.machinery
import importlib.util
import io
import lzma
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile

from anychunk.codecs.jpeg2000 import tiny_tiles

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src/anychunk/native").glob("*.c"))
BUILT = "ANYCHUNK_SANITIZED"


def build(folder: Path) -> Path:
    """Compile the module with sanitizers."""
    target = folder / "_loops.abi3.so"
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"]
    include = sysconfig.get_path("include")
    command = ["cc", *flags, "-fPIC", "-shared", "-DPy_LIMITED_API=0x030C0000", f"-I{include}"]
    subprocess.run([*command, *SOURCES, "-o", target], check=True)
    return target


def run_child(arguments: list[str]) -> int:
    """Run this module again, with the sanitizer's library loaded before Python."""
    found = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    )
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            BUILT: str(build(Path(folder))),
            "LD_PRELOAD": found.stdout.strip(),
            # Python itself does not free everything at its end
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        }
        command = [sys.executable, "-m", "fuzz.native", *arguments]
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


def load(path: str):
    loader = importlib.machinery.ExtensionFileLoader("_loops", path)
    spec = importlib.util.spec_from_loader("_loops", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def streams():
    """Return small codestreams of several styles."""
    image = np.random.default_rng(0).integers(0, 256, (70, 90), "u1")
    rgb = np.dstack([image] * 3)
    made = [
        imagecodecs.jpeg2k_encode(image, level=0, codecformat="J2K", reversible=True),
        imagecodecs.jpeg2k_encode(rgb, level=35, codecformat="J2K", resolutions=3),
        imagecodecs.htj2k_encode(image, reversible=True),
    ]
    return [bytes(stream) for stream in made]


def separate(loops, rng) -> None:
    """Copy random arrays, most of them with interleaved bands."""
    bands, size = int(rng.integers(1, 7)), rng.choice(["u1", "<u2", ">u2", "<u4"])
    shape = (*rng.integers(1, 4, int(rng.integers(0, 4))), int(rng.integers(1, 130)), bands)
    # memory of exactly this size, so that the sanitizer sees what lies beside it
    array = rng.integers(0, 255, shape).astype(size)
    order = rng.permutation(array.ndim) if rng.integers(4) == 0 else [-1, *range(array.ndim - 1)]
    source = array.transpose(order)
    if rng.integers(3) == 0:
        source = source[tuple(slice(*sorted(rng.integers(0, n + 1, 2))) for n in source.shape)]
    out = np.zeros(source.shape, source.dtype.newbyteorder("="))
    if rng.integers(4) == 0:
        out = np.zeros(source.shape[::-1], out.dtype).T
    is_swapped = not source.dtype.isnative
    if loops.separate_bands(source, out, is_swapped, int(rng.integers(-1, 5))):
        assert np.array_equal(out, source), (source.shape, source.strides, out.strides)


def facsimile(loops, rng) -> None:
    """Decode damaged Group 4 data, some of them with damaged tables of codes."""
    from anychunk.codecs._fax_lines import compiled_tables

    shape = int(rng.integers(1, 20)), int(rng.choice([1, 2, 7, 64, 65, 300, 2700]))
    pixels = np.cumsum(rng.random(shape) > rng.random(), axis=1, dtype=np.uint8) % 2
    page = imagecodecs.tiff_encode(
        pixels.astype(bool), compression="CCITTFAX4", rowsperstrip=len(pixels)
    )
    with tifffile.TiffFile(io.BytesIO(page)) as tif:
        start, count = tif.pages[0].dataoffsets[0], tif.pages[0].databytecounts[0]
    data, tables = bytearray(page[start : start + count]), compiled_tables().copy()
    out = np.zeros(shape, np.uint8)
    assert loops.fax_rows(tables, bytes(data), out, False, True)
    assert np.array_equal(out, pixels)
    for place in rng.integers(0, len(data), int(rng.integers(1, 6))).tolist():
        data[place] = int(rng.integers(256))
    if rng.integers(3) == 0:
        places = rng.integers(0, len(tables), 400)
        tables[places] = rng.integers(0, 1 << 16, len(places))
    is_reversed = bool(rng.integers(4) == 0)
    loops.fax_rows(tables, bytes(data[: int(rng.integers(len(data) + 1))]), out, is_reversed, True)


def place_tile(loops, rng) -> None:
    """Place predicted rows of random tiles, in arrays that are as large, smaller or do not fit."""
    from tests.codecs.tiff.test_rows import predicted

    rows, columns, bands = (int(n) for n in rng.integers(1, (6, 90, 7)))
    size, predictor = int(rng.choice([1, 2, 4, 8])), int(rng.integers(1, 4))
    is_swapped = bool(rng.integers(2))
    pixels = rng.integers(0, 256, (rows, columns, bands * size), "u1").view(f"u{size}")
    if predictor == 3 and size == 1:
        predictor = 2
    stored = predicted(pixels, predictor, is_swapped=is_swapped).copy()
    # memory of exactly this size, as above; some of it is one row or column too large
    high, wide = (int(rng.integers(1, n + 2)) for n in (rows, columns))
    shape = (bands, high, wide) if bands > 1 or rng.integers(2) else (high, wide)
    out = np.zeros(shape, pixels.dtype)
    is_hostile = rng.integers(8) == 0
    numbers = [rows, columns, bands]
    if is_hostile:
        numbers[int(rng.integers(3))] = int(rng.choice([-1, 0, 1, 1 << 31, 1 << 62]))
    best = int(rng.integers(-1, 5))
    is_done = loops.place_rows(stored, out, tuple(numbers), size, predictor, is_swapped, best)
    packed = np.frombuffer(imagecodecs.packbits_encode(stored.tobytes()), "u1").copy()
    also = np.zeros_like(out)
    arguments = (also, tuple(numbers), size, predictor, is_swapped, best)
    assert is_hostile or loops.place_packbits(packed, *arguments) == is_done
    assert is_hostile or np.array_equal(out, also)
    for place in rng.integers(0, len(packed), int(rng.integers(1, 4))).tolist():
        packed[place] = int(rng.integers(256))
    loops.place_packbits(packed[: int(rng.integers(len(packed) + 1))].copy(), *arguments)
    is_fit = high <= rows and wide <= columns
    assert is_hostile or is_done == is_fit, (numbers, out.shape)
    if is_done:
        expected = np.moveaxis(pixels, -1, 0)[:, :high, :wide].reshape(shape)
        assert np.array_equal(out, expected), (numbers, size, predictor, is_swapped, out.shape)


def stream(loops, rng) -> None:
    """Decode LZW and PackBits, whole and damaged, to memory of any size."""
    from anychunk.codecs.tiff import decoders

    data = rng.integers(0, int(rng.choice([1, 3, 256])), int(rng.integers(1, 9000))).astype("u1")
    for name, decode in (("lzw", decoders.decode_lzw), ("packbits", decoders.decode_packbits)):
        stored = np.frombuffer(getattr(imagecodecs, f"{name}_encode")(data), "u1").copy()
        out = np.zeros(len(data), "u1")
        assert getattr(loops, f"{name}_bytes")(stored, out) == len(data)
        assert np.array_equal(out, data)
        for place in rng.integers(0, len(stored), int(rng.integers(1, 4))).tolist():
            stored[place] = int(rng.integers(256))
        stored = stored[: int(rng.integers(len(stored) + 1))].copy()
        room = int(rng.integers(1, 2 * len(data) + 2))
        out, same = np.zeros(room, "u1"), np.zeros(room, "u1")
        found = getattr(loops, f"{name}_bytes")(stored, out)
        decoders.loops = None
        if found >= 0:
            assert np.array_equal(decode(stored, same), out[:found]), (name, found, room)


def many(loops, rng) -> None:
    """Decode chunks of every kind together, some damaged or misplaced, to one array."""
    from anychunk.codecs import libraries
    from anychunk.codecs._fax_lines import compiled_tables

    kind = int(rng.integers(12))
    rows, columns, count = (int(n) for n in rng.integers(1, (9, 70, 6)))
    bands = 3 if kind == libraries.WEBP else 1
    options = {
        libraries.LERC: libraries.lerc_options("u1"),
        libraries.FAX: libraries.fax_options(compiled_tables().tobytes(), is_reversed=False),
        libraries.JPEG: libraries.jpeg_options(),
    }.get(kind, b"")
    top = 2 if kind == libraries.FAX else int(rng.choice([2, 256]))
    tiles = rng.integers(0, top, (count, rows, columns, bands), "u1")
    stored = [bytearray(encoded(kind, tile)) for tile in tiles]
    is_damaged = rng.integers(3, size=count) == 0
    for data, flag in zip(stored, is_damaged, strict=True):
        for place in rng.integers(0, len(data), 2 * int(flag)).tolist():
            data[place] = int(rng.integers(256))
    lengths = np.array([len(data) for data in stored], np.uint64)
    offsets = np.cumsum(lengths) - lengths
    # chunks below each other, in memory of exactly this size
    out = np.zeros((bands, count * rows, columns), "u1")
    starts = np.arange(count) * rows * columns
    sides = (rows, columns, bands)
    firsts = rng.integers(0, sides, (count, 3))
    boxes = np.stack([firsts, rng.integers(1, np.array(sides) - firsts + 1)], -1)
    functions = libraries.functions(kind)
    numbers, strides = [rows, columns, bands], [columns, 1, out.strides[0]]
    is_hostile = rng.integers(3) == 0
    if is_hostile:
        table = [offsets, lengths, starts, boxes.reshape(-1), numbers, strides]
        target = table[int(rng.integers(len(table)))]
        place = int(rng.integers(len(target)))
        value = int(rng.choice([-1, 0, 1, 7, len(target), 1 << 31, 1 << 62]))
        target[place] = value if target is numbers or target is strides or value >= 0 else 0
    done = np.zeros(count, "u1")
    scratch = np.empty(rows * columns * bands + int(rng.integers(2)), "u1")
    joined = np.frombuffer(b"".join(stored), "u1").copy()
    best = int(rng.integers(-1, 5))
    is_begun = loops.place_chunks(
        kind, functions, options, joined, offsets, lengths, out, starts, boxes, b"", done, scratch,
        np.array(numbers, np.int64), np.array(strides, np.int64), 1, 1, False, 0, best,
    )  # fmt: skip
    if is_hostile:
        return
    assert is_begun == (len(scratch) > tiles[0].nbytes or kind in SCRATCHLESS), kind
    for number in np.flatnonzero(~is_damaged) if is_begun else ():
        found = out[:, number * rows : (number + 1) * rows].transpose(1, 2, 0)
        y, x, band = (slice(first, first + n) for first, n in boxes[number].tolist())
        assert done[number], kind
        expected = tiles[number]
        if kind == libraries.JPEG:
            expected = imagecodecs.jpeg8_decode(bytes(stored[number])).reshape(expected.shape)
        place = tuple(slice(n) for n in boxes[number, :, 1].tolist())
        assert np.array_equal(found[place], expected[y, x, band]), (kind, number)
        assert found.sum() == found[place].sum(), "something was written beside the place"


SCRATCHLESS = (0, 1, 9)
"""Kinds that are placed a few rows at a time."""


def encoded(kind, tile):
    """Return a tile (rows, columns, bands) as a chunk."""
    data = tile.tobytes()
    match kind:
        case 1:
            return imagecodecs.packbits_encode(data)
        case 2:
            return imagecodecs.lzw_encode(data)
        case 3:
            return imagecodecs.zlib_encode(data)
        case 4:
            return imagecodecs.zstd_encode(data)
        case 5:
            return lzma.compress(data, preset=0)
        case 6:
            return imagecodecs.lerc_encode(tile[..., 0])
        case 7:
            return imagecodecs.webp_encode(tile, lossless=True)
        case 8:
            bits = tile[..., 0].astype(bool)
            page = imagecodecs.tiff_encode(bits, compression="CCITTFAX4", rowsperstrip=len(tile))
            with tifffile.TiffFile(io.BytesIO(page)) as tif:
                start, count = tif.pages[0].dataoffsets[0], tif.pages[0].databytecounts[0]
            return page[start : start + count]
        case 9:
            return imagecodecs.jpeg8_encode(tile[..., 0].copy(), level=90)
        case 10:
            return gzip.compress(data)
        case 11:
            return imagecodecs.blosc_encode(data)
    return data


def codestream(loops, rng) -> None:
    """Decode JPEG 2000 by OpenJPEG, whole, damaged, and with hostile arguments."""
    from anychunk.codecs.jpeg2000 import openjpeg_library

    tiny_tiles.loops = loops
    depth = int(rng.choice([1, 5, 8, 12, 16]))
    # the encoder fails with some small images, and with three bands of one bit
    bands = int(rng.choice([1, 3])) if depth > 1 else 1
    shape = (*rng.integers(16, 80, 2).tolist(), bands)
    image = rng.integers(0, 1 << depth, shape).astype("u1" if depth <= 8 else "u2")
    image = image if bands > 1 else image[..., 0]
    options = {"bitspersample": depth, "resolutions": int(rng.integers(1, 5))}
    encoded = imagecodecs.jpeg2k_encode(
        image, level=0, codecformat="J2K", reversible=True, **options
    )
    stored = np.frombuffer(encoded, "u1").copy()
    # memory of exactly this size, as above
    out = np.zeros((bands, *image.shape[:2]), image.dtype)
    found = tiny_tiles.decode(stored, out)
    if found is None:
        raise AssertionError("OpenJPEG was not found, or refused a whole stream")
    assert found.is_exact
    assert np.array_equal(out.transpose(1, 2, 0).reshape(image.shape), image)
    start = bytes(stored).index(b"\xff\x93")
    for place in rng.integers(start, len(stored), int(rng.integers(1, 6))).tolist():
        stored[place] = int(rng.integers(256))
    stored = stored[: int(rng.integers(start, len(stored) + 1))].copy()
    tiny_tiles.decode(stored, out)
    other = np.zeros(rng.integers(1, 90, 3), rng.choice(["u1", "u2", "i4"]))
    numbers = [int(rng.choice([-1, 0, 1, 8, 16, 33])) for _ in range(2)]
    parameters, place = (rng.integers(0, 256, int(rng.integers(0, 400)), "u1") for _ in range(2))
    with suppress(ValueError):
        loops.openjpeg_decode(
            openjpeg_library.addresses(), stored, other if rng.integers(2) else out, numbers[0], 1,
            numbers[1] if rng.integers(2) else depth, bool(rng.integers(2)),
            parameters.tobytes(), place.tobytes(),
        )  # fmt: skip


def narrow(loops, rng) -> None:
    """Narrow random integers, most of them in the range of their depth, and hostile arguments."""
    from anychunk.codecs.jpeg2000.openjph import _narrow

    large, small = int(rng.choice([2, 4])), int(rng.choice([1, 2]))
    depth, is_signed = int(rng.integers(1, 8 * small + 1)), bool(rng.integers(2))
    half = 1 << (depth - 1)
    shape = (int(rng.integers(1, 90)), int(rng.integers(1, 300)))
    top = np.iinfo(f"i{large}")
    samples = rng.integers(max(-half, top.min), min(half, top.max + 1), shape).astype(f"i{large}")
    if rng.integers(2):
        samples[tuple(int(rng.integers(n)) for n in shape)] = rng.integers(top.min, top.max)
    found, expected = (np.zeros(shape, f"{'iu'[not is_signed]}{small}") for _ in range(2))
    is_good = loops.narrow_samples(samples, found, depth, is_signed, int(rng.integers(-1, 5)))
    assert is_good == _narrow(samples.copy(), expected, depth, is_signed=is_signed)
    assert not is_good or np.array_equal(found, expected), (large, small, depth, is_signed)
    with suppress(ValueError):
        loops.narrow_samples(samples[: len(samples) // 2], found, int(rng.integers(-2, 40)), True)


def tile_parts(loops, rng) -> None:
    """Follow the SOT markers of damaged codestreams, and compare with the Python code."""
    from anychunk.codestream import tiles
    from anychunk.codestream.jpeg2000 import read_main_header
    from anychunk.errors import AnychunkError
    from anychunk.io.buffers import MemorySource
    from tests.codestream.test_tiles import stream

    data = bytearray(stream(int(rng.integers(1, 40)), int(rng.integers(14, 40))))
    header = read_main_header(bytes(data))
    for place in rng.integers(header.length, len(data), int(rng.integers(4))).tolist():
        data[place] = int(rng.choice([0, 1, 0x90, 0xFF, int(rng.integers(256))]))
    end = int(rng.integers(header.length, len(data) + 1)) if rng.integers(2) else len(data)
    found = []
    for module in (loops, None):
        tiles.loops = module
        try:
            parts = tiles.sot_parts(MemorySource(bytes(data)), header.siz, header.length, end)
            found.append([a.tolist() for a in (parts.tiles, parts.offsets, parts.lengths)])
        except AnychunkError as e:
            found.append([type(e), str(e)])
    assert found[0] == found[1], found
    room = np.zeros((int(rng.integers(0, 50)), 3), rng.choice(["i8", "i4", "u1"]))
    loops.tile_parts(bytes(data[header.length : end]), room)


def xz(loops, rng) -> None:
    """Look for the only block of damaged .xz streams, and compare with the Python code."""
    from anychunk.codecs import streams as codecs

    plain = rng.integers(0, int(rng.choice([1, 3, 256])), int(rng.integers(0, 3000))).astype("u1")
    check = int(rng.choice([lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_SHA256]))
    stored = np.frombuffer(lzma.compress(plain.tobytes(), check=check, preset=0), "u1").copy()
    whole = len(plain) if len(plain) > 2 else -1  # shorter ones are left to the standard library
    assert loops.xz_block(stored, codecs.XZ_MEMORY) == whole
    # most of what is looked at is near both ends
    places = rng.integers(-30, 30, int(rng.integers(1, 5)))
    stored[places] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))], len(places))
    stored = stored[: int(rng.integers(len(stored) + 1)) if rng.integers(3) == 0 else None].copy()
    expected = codecs._one_xz_block(stored)
    found = loops.xz_block(stored, codecs.XZ_MEMORY)
    assert found == (-1 if expected is None else expected), stored.tobytes().hex()


def fuzz(minutes: float, seed: int) -> int:
    from anychunk.codestream import blocks
    from anychunk.codestream.packet_walk import DONE, MORE, Walk
    from tests.codestream.test_blocks import opened

    loops = load(os.environ[BUILT])
    blocks.loops = loops
    rng = np.random.default_rng(seed)
    tiles = [opened(stream) for stream in streams()]
    end, count = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        separate(loops, rng)
        facsimile(loops, rng)
        stream(loops, rng)
        place_tile(loops, rng)
        narrow(loops, rng)
        many(loops, rng)
        codestream(loops, rng)
        tile_parts(loops, rng)
        xz(loops, rng)
        header, layout, read = tiles[int(rng.integers(len(tiles)))]
        body = bytearray(read(0, layout.total))
        for place in rng.integers(0, len(body), int(rng.integers(1, 6))).tolist():
            body[place] = int(rng.integers(256))
        data = bytes(body[: int(rng.integers(1, len(body) + 1))])
        numbers = np.frombuffer(blocks.walk_parameters(header, layout), np.int64).copy()
        is_hostile = bool(rng.integers(2))
        if is_hostile:
            for place in rng.integers(0, len(numbers), 3).tolist():
                numbers[place] = rng.choice([-1, 0, 1, 2, 15, 33, 255, 65535, 1 << 31, 1 << 62])
        try:
            walk = loops.walk_begin(numbers.tobytes())
        except (ValueError, MemoryError):
            continue
        answer = loops.walk_resume(walk, data, 0, layout.tile.headers or b"")
        if answer[0] == MORE:
            answer = loops.walk_resume(walk, bytes(body), 0, b"")
        loops.walk_finish(walk)
        rect = header.siz.tile(layout.number)
        tile = [rect.x0, rect.y0, rect.x1, rect.y1, 0, len(data)]
        if is_hostile:
            tile[int(rng.integers(6))] = int(rng.choice([-1, 0, 3, 1 << 31, 1 << 62]))
        exact = loops.walk_all(numbers.tobytes(), data, np.array([tile, tile], np.int64))
        if not is_hostile and len(data) == len(body):
            is_exact = answer[0] == DONE and not any(data[answer[1] :])
            assert exact == 2 * is_exact, (exact, answer, seed, count)
        if not is_hostile and len(data) == len(body):
            same = Walk(header, layout).resume(memoryview(data), 0)
            assert tuple(same)[:3] == answer[:3], (same, answer, seed, count)
        count += 1
    print(f"native: {count} inputs, no finding")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="fuzz.native")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if BUILT in os.environ:
        sys.exit(fuzz(options.minutes, options.seed))
    sys.exit(run_child(sys.argv[1:]))
