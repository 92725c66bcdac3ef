"""Windows of single compressed streams, compared with readers that seek or read everything."""

import gzip
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import nibabel
import nrrd
import numpy as np
import rasterio
import tifffile
from rasterio.windows import Window

import anychunk
from anychunk import limits
from anychunk.codecs.seek import deflate
from bench.measure import OURS, Row, best_of

SLICES = 20
"""Random slices or windows per measurement."""


def volume(shape):
    """Make a smooth field with noise, deterministic."""
    rng = np.random.default_rng(3)
    z, y, x = (np.linspace(0, 6, n, dtype=np.float32) for n in shape)
    plane = np.sin(y)[:, None] * np.cos(x)[None]
    noise = rng.normal(0, 6, shape[1:]).astype(np.float32)
    out = np.empty(shape, np.int16)
    for i, depth in enumerate(z):
        out[i] = plane * np.cos(depth) * 900 + 1000 + np.roll(noise, i * 131)
    return out


def run(quick: bool) -> list[Row]:
    shape, side, rounds = ((64, 512, 512), 2048, 2) if quick else ((256, 512, 512), 8192, 3)
    with tempfile.TemporaryDirectory() as folder, limits.override(recent_bytes=0):
        rows = slices(volume(shape), folder, rounds)
        plane = volume((1, side, side))[0]
        for name in ("lzw", "deflate", "jpeg"):
            rows += windows(plane, name, folder, rounds)
    return rows


@contextmanager
def only_zlib(is_wanted):
    """Hide zlib-ng and isal."""
    real = deflate.backend
    if is_wanted:
        deflate.backend = lambda *, has_copy: (zlib, (zlib.error,))
    try:
        yield
    finally:
        deflate.backend = real


def slices(data, folder, rounds):
    """Read slices of a gzip volume: by a saved index, after a walk, and the first of all."""
    head = f"NRRD0004\ntype: short\ndimension: 3\nsizes: {' '.join(map(str, data.shape[::-1]))}\n"
    path, nifti = f"{folder}/a.nrrd", f"{folder}/a.nii.gz"
    with Path(path).open("wb") as file:
        stream = gzip.compress(data.tobytes(), 6)
        file.write(f"{head}endian: little\nencoding: gzip\n\n".encode() + stream)
    nibabel.save(nibabel.Nifti1Image(data.transpose(), np.eye(4)), nifti)
    opened = nibabel.load(nifti, keep_file_open=True)
    _ = np.asarray(opened.dataobj[..., -1])  # indexed_gzip has then seen everything
    anychunk.index(path).save(f"{folder}/a.json")
    numbers = np.random.default_rng(1).integers(0, len(data), SLICES).tolist()

    def theirs():
        for number in numbers:
            assert opened.dataobj[..., number].shape == data.shape[:0:-1]

    def ours(array):
        for number in numbers:
            assert array[number].shape == data.shape[1:]

    rows = []
    for is_plain, target in ((True, 1.5), (False, 3)):
        with only_zlib(is_plain):
            saved = anychunk.open_array(f"{folder}/a.json")
            assert np.array_equal(saved[numbers[0]], data[numbers[0]])
            calls = {OURS: lambda saved=saved: ours(saved), "nibabel + indexed_gzip": theirs}
            times = best_of(calls, rounds=rounds)
            name = "zlib" if is_plain else "isal or zlib-ng"
            case = f"gzip NRRD, {SLICES} slices, saved index, {name}"
            rows.append(row(case, times, "nibabel + indexed_gzip", target))
    with only_zlib(True):
        walked = anychunk.open_array(path)
        assert np.array_equal(walked[len(data) - 1], data[-1])
        calls = {OURS: lambda: ours(walked), "nibabel + indexed_gzip": theirs}
        times = best_of(calls, rounds=rounds)
        case = f"gzip NRRD, {SLICES} slices, without an index, after a walk"
        rows.append(row(case, times, "nibabel + indexed_gzip", 1))
        first = {
            OURS: lambda: anychunk.open_array(path)[0],
            "pynrrd": lambda: nrrd.read(path)[0][..., 0],
        }
        times = best_of(first, rounds=rounds)
        rows.append(row("gzip NRRD, first slice, opened anew", times, "pynrrd", 2))
    return rows


def windows(plane, name, folder, rounds):
    """Read windows of 64 rows from the middle of a page that is one strip."""
    path = f"{folder}/{name}.tif"
    samples = (plane // 8).astype(np.uint8)
    options = {"subsampling": (1, 1)} if name == "jpeg" else {}
    tifffile.imwrite(path, samples, compression=name, rowsperstrip=len(samples), **options)
    array = anychunk.open_array(path)
    places = np.random.default_rng(2).integers(len(plane) // 3, 2 * len(plane) // 3, 8).tolist()
    middle = len(plane) // 2

    def theirs(rows):
        with rasterio.open(path) as opened:
            for first in rows:
                opened.read(window=Window(0, first, len(plane), 64))

    def ours(array, rows):
        for first in rows:
            assert array[..., first : first + 64, :].shape[-2] == 64

    with rasterio.open(path) as opened:
        expected = opened.read(window=Window(0, middle, len(plane), 64))
    assert np.array_equal(array[..., middle : middle + 64, :].reshape(expected.shape), expected)

    once = {
        OURS: lambda: ours(anychunk.open_array(path), [middle]),
        "rasterio": lambda: theirs([middle]),
    }
    later = {OURS: lambda: ours(array, places), "rasterio": lambda: theirs(places)}
    target = 0.5 if name == "jpeg" else 10  # without restart markers, from the first row
    return [
        row(f"{name} TIFF of one strip, first window", best_of(once, rounds=rounds), "rasterio", 1),
        row(
            f"{name} TIFF of one strip, later windows",
            best_of(later, rounds=rounds),
            "rasterio",
            target,
        ),
    ]


def row(case, times, peer, target):
    """Return a line of the report: how many times as fast as the peer we are."""
    detail = f"{times[OURS] * 1e3:.0f} ms, {peer} {times[peer] * 1e3:.0f} ms"
    return Row(case, times[peer] / times[OURS], f">= {target}", detail, times)
