"""Bytes of JPEG 2000 files deleted, inserted and changed, one or two at a time.

An edited file is refused, or shows the pixels of the whole file, or shows what OpenJPEG shows in
strict mode. What OpenJPEG refuses never shows other pixels.

`ANYCHUNK_EDITS=all` edits every byte of every seed, which takes half an hour; a number edits as many
places of each.
"""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache

import imagecodecs
import numpy as np
import pytest
import tifffile
from rasterio.io import MemoryFile

import anychunk
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import AnychunkError
from tests.formats.jpeg2000.test_jpeg2000 import box, jp2
from tests.support.j2k_streams import (
    compress,
    decompress,
    field,
    interleaved,
    needs_openjpeg,
    with_packed_headers,
)
from tests.support.nitf_writer import Image, nitf, text_segment

PLACES = os.environ.get("ANYCHUNK_EDITS", "8")
GREY, RGB = field((48, 40)), field((36, 32), bands=3)

SEEDS = {
    "one tile": lambda: compress(list(GREY)),
    **{
        f"{order}, layers, tiles": lambda order=order: compress(
            list(RGB), "-p", order, "-r", "20,5,1", "-t", "20,20", "-n", "3"
        )
        for order in ("LRCP", "RLCP", "RPCL", "PCRL", "CPRL")
    },
    "tile-parts, TLM, PLT": lambda: compress(list(RGB), "-TP", "R", "-TLM", "-PLT", "-n", "3"),
    "tiles, tile-parts, TLM": lambda: compress(
        list(RGB), "-TP", "R", "-TLM", "-t", "20,20", "-n", "3"
    ),
    "interleaved": lambda: interleaved(compress(list(RGB), "-TP", "R", "-t", "20,20", "-n", "3")),
    "SOP, EPH, layers": lambda: compress(list(RGB), "-SOP", "-EPH", "-n", "3", "-r", "10,1"),
    "SOP": lambda: compress(list(RGB), "-SOP", "-n", "3"),
    "PPT": lambda: with_packed_headers(compress(list(RGB), "-SOP", "-EPH", "-n", "3")),
    "POC": lambda: compress(list(RGB), "-POC", "T1=0,0,1,3,3,RLCP/T1=3,0,1,6,3,CPRL"),
    "9/7": lambda: compress(list(GREY), "-I", "-r", "4", "-n", "3"),
    "precincts, PLT": lambda: compress(list(GREY), "-c", "[32,32]", "-n", "3", "-PLT"),
    "bypass": lambda: compress(list(GREY), "-M", "1", "-n", "3"),
    "terminate all": lambda: compress(list(GREY), "-M", "4", "-n", "3"),
    "segmentation symbols": lambda: compress(list(GREY), "-M", "32", "-n", "3"),
    "region of interest": lambda: compress(list(GREY), "-ROI", "c=0,U=5", "-n", "3"),
    "HTJ2K": lambda: imagecodecs.htj2k_encode(GREY[0], tile=(32, 32)),
}


def edits(data: bytes, rng, places: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield (kind, position, edited data)."""
    count = len(data) - 1
    for kind in ("delete", "insert", "flip", "set", "swap"):
        few = count if places == "all" else min(count, int(places))
        chosen = rng.choice(count, few, replace=False)
        for at in map(int, chosen):
            length = int(rng.integers(1, 3))
            old = data[at : at + length]
            new = {
                "delete": b"",
                "insert": rng.bytes(length) + old,
                "flip": bytes(byte ^ 1 << int(rng.integers(8)) for byte in old),
                "set": rng.bytes(length),
                "swap": old[::-1],
            }[kind]
            if new != old:
                yield kind, at, data[:at] + new + data[at + length :]


def shown(file, data: bytes) -> np.ndarray | None:
    """Return the pixels that are shown, with an axis of bands, or None if the file is refused."""
    file.write_bytes(data)
    try:
        found = anychunk.open_array(file)[...]
        return found if found.ndim == 3 else found[None]
    except AnychunkError:
        return None


def openjpeg(stream: bytes) -> np.ndarray | None:
    """Return what OpenJPEG shows in strict mode, or None if it refuses the stream."""
    try:
        found = imagecodecs.jpeg2k_decode(stream, planar=True)
    except imagecodecs.Jpeg2kError:
        return None
    except (ValueError, NotImplementedError):  # imagecodecs takes only components that are alike
        return opj_decompress(stream)
    return found if found.ndim == 3 else found[None]


def opj_decompress(stream: bytes) -> np.ndarray | None:
    """Return what OpenJPEG's command shows, with the samples of coarser components repeated."""
    try:
        planes = decompress(stream)
    except (subprocess.CalledProcessError, ValueError):
        return None
    siz = read_main_header(stream).siz
    x, y = siz.subsampling
    image = siz.image.scaled(x, y)
    columns, rows = np.arange(image.x0, image.x1), np.arange(image.y0, image.y1)
    shown = []
    for plane, component in zip(planes, siz.components, strict=True):
        dx, dy = component.dx // x, component.dy // y
        at_x = np.clip(columns // dx - -(-image.x0 // dx), 0, plane.shape[1] - 1)
        at_y = np.clip(rows // dy - -(-image.y0 // dy), 0, plane.shape[0] - 1)
        shown.append(plane[at_y[:, None], at_x].astype(np.int64))
    return np.stack(shown)


def outcome(found: np.ndarray | None, original: np.ndarray, other) -> str:
    if found is None:
        return "refused"
    if np.array_equal(found, original):
        return "as before"
    seen = other()
    if seen is None:
        return "shown, OpenJPEG refuses"
    return "not detectable" if np.array_equal(found, seen) else "shown, OpenJPEG differs"


@needs_openjpeg
@pytest.mark.parametrize("name", SEEDS)
def test_edited_streams(tmp_path, record_property, name):
    data = SEEDS[name]()
    original = shown(tmp_path / "a.j2k", data)
    np.testing.assert_array_equal(original, openjpeg(data))
    counts, bad = Counter(), []
    for kind, at, edited in edits(data, np.random.default_rng(len(data)), PLACES):
        found = shown(tmp_path / "a.j2k", edited)
        result = outcome(found, original, lambda edited=edited: openjpeg(edited))
        counts[kind, result] += 1
        if result.startswith("shown"):
            bad.append((kind, at, result))
    record_property("counts", {" ".join(key): n for key, n in sorted(counts.items())})
    assert not bad
    # what is lost or added is always seen behind the main header, whose comments are not checked
    assert counts["delete", "not detectable"] + counts["insert", "not detectable"] == 0
    assert counts["delete", "refused"] > 0
    assert counts["insert", "refused"] > 0


@cache
def stream() -> bytes:
    return compress(list(GREY), "-t", "32,32", "-n", "3")


def in_nitf(data: bytes, ic: str = "C8") -> bytes:
    """Put a codestream into a NITF file, between its subheader and a text segment."""
    block = (32, 32)
    # JBP 5.4.3.2: an offset of 10, no tables, no pad pixel
    mask = bytes.fromhex("0000000a000000000000") if ic == "M8" else b""
    image = Image(GREY, ic=ic, comrat="N012", block=block, payload=mask + data)
    return nitf([image], texts=[text_segment(b"behind the image")])


CONTAINERS = {
    "a.j2k": lambda data: data,
    "b.jp2": jp2,
    "box behind.jp2": lambda data: jp2(data) + box(b"xml ", b"<a/>" * 9),
    "c8.ntf": in_nitf,
    "m8.ntf": lambda data: in_nitf(data, "M8"),
}


@needs_openjpeg
@pytest.mark.parametrize("name", CONTAINERS)
def test_bytes_lost_and_inserted_in_containers(tmp_path, name):
    """Lengths in the container stay as they were, and other bytes follow the codestream."""
    whole = CONTAINERS[name](stream())
    np.testing.assert_array_equal(shown(tmp_path / name, whole), GREY)
    begin = whole.index(stream()[:40]) + read_main_header(stream()).length
    last = whole.rindex(b"\xff\x90\x00\x0a") + 14  # the packets of the last tile-part
    end = whole.index(b"\xff\xd9", last)
    rng = np.random.default_rng(3)
    places = [*rng.integers(begin, end, 12), *rng.integers(last, end, 30), end - 2]
    for at in map(int, places):
        for edited in (
            whole[:at] + whole[at + 1 :],
            whole[:at] + whole[at + 2 :],
            whole[:at] + b"\x5a" + whole[at:],
            whole[:at] + b"\x5a\x00" + whole[at:],
        ):
            assert shown(tmp_path / name, edited) is None, at


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@needs_openjpeg
@pytest.mark.parametrize("padding", [0, 1, 700])
def test_no_length_of_the_last_tile_part(tmp_path, padding):
    """T.800 A.4.2: Psot = 0, up to EOC, with padding in the box or segment behind it."""
    data = bytearray(stream())
    psot = data.rindex(b"\xff\x90\x00\x0a") + 6
    data[psot : psot + 4] = bytes(4)
    padded = bytes(data) + bytes(padding)
    np.testing.assert_array_equal(openjpeg(padded), GREY)
    for name, make in CONTAINERS.items():
        made = make(padded)
        np.testing.assert_array_equal(shown(tmp_path / name, made), GREY)
        if name == "c8.ntf":
            with MemoryFile(made) as memory, memory.open() as opened:
                np.testing.assert_array_equal(opened.read(), GREY)


@needs_openjpeg
def test_no_end_marker(tmp_path):
    """T.800 A.4.4 requires EOC. A box or segment that ends with the last tile-part is as good."""
    bare = stream()[:-2]
    for name in ("box behind.jp2", "b.jp2", "c8.ntf", "m8.ntf"):
        np.testing.assert_array_equal(shown(tmp_path / name, CONTAINERS[name](bare)), GREY)
    assert openjpeg(bare) is None
    assert shown(tmp_path / "a.j2k", bare) is None
    to_the_end = jp2(bare).replace((len(bare) + 8).to_bytes(4, "big") + b"jp2c", bytes(4) + b"jp2c")
    assert shown(tmp_path / "b.jp2", to_the_end) is None, "the box does not state its length"
    assert shown(tmp_path / "b.jp2", jp2(bare)[:-2]) is None


@needs_openjpeg
@pytest.mark.parametrize("is_boxed", [False, True])
def test_edited_tiles_of_tiff(tmp_path, is_boxed):
    """OpenJPEG itself decodes a tile whose packets end early; its pixels would be wrong."""
    image = field((64, 48))[0]
    tifffile.imwrite(
        tmp_path / "a.tif", image, tile=(32, 48), compression="jpeg2000",
        compressionargs={"reversible": True, "level": 0, "codecformat": "jp2" if is_boxed else "j2k"},
    )  # fmt: skip
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        offsets, counts = tiff.pages[0].dataoffsets, tiff.pages[0].databytecounts
    data = (tmp_path / "a.tif").read_bytes()
    original = shown(tmp_path / "a.tif", data)
    np.testing.assert_array_equal(np.squeeze(original), image)
    begin, end = offsets[1], offsets[1] + counts[1]
    tile = data[begin:end]
    rng = np.random.default_rng(5)
    results = Counter()
    for kind, at, edited in edits(tile, rng, "20"):
        stored = (edited + bytes(4))[: len(tile)]
        found = shown(tmp_path / "a.tif", data[:begin] + stored + data[end:])
        result = outcome(
            None if found is None else np.squeeze(found)[None, 32:],
            image[None, 32:],
            lambda stored=stored: openjpeg(stored),
        )
        results[result] += 1
        assert not result.startswith("shown"), (kind, at)
    assert results["refused"] >= 40


@needs_openjpeg
def test_a_tile_of_tiff_that_lacks_packets(tmp_path):
    """The lengths are right, and EOC is there: only the packets tell."""
    image = field((64, 48))
    part = compress(list(image), "-SOP")
    start = part.rindex(b"\xff\x91\0\4")
    sot = part.index(b"\xff\x90\x00\x0a")
    cut = bytearray(part[:start] + b"\xff\xd9")
    cut[sot + 6 : sot + 10] = (start - sot).to_bytes(4, "big")
    assert openjpeg(bytes(cut)) is not None
    made = {"whole": part, "cut": bytes(cut) + bytes(len(part) - len(cut))}
    for name, data in made.items():
        tifffile.imwrite(
            tmp_path / name, iter([data]), shape=(64, 48), dtype="uint8", tile=(64, 48),
            compression="jpeg2000", photometric="minisblack",
        )  # fmt: skip
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "whole")[...].squeeze(), image[0])
    with pytest.raises(AnychunkError, match="packet 5 of 6"):
        anychunk.open_array(tmp_path / "cut")[...]
