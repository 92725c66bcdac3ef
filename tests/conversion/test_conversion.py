"""Conversion to Zarr, checked against numpy, zarr and an independent mean."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
import zarr

import anychunk
from anychunk import conversion
from anychunk.conversion.tasks import Conversion
from anychunk.errors import (
    AnychunkError,
    FormatError,
    OptionError,
    TargetExistsError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.io.object_stores import object_store
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Level, Meaning
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex
from tests.cli.test_cli import run
from tests.support import processes
from tests.support.corpus import needs_corpus, samples
from tests.support.patience import PATIENCE_S


def volume(shape, dtype="uint16"):
    rng = np.random.default_rng(1)
    if np.dtype(dtype).kind == "f":
        return rng.normal(0, 100, shape).astype(dtype)
    return rng.integers(0, 200, shape).astype(dtype)


@pytest.fixture
def npy(tmp_path):
    data = volume((9, 130, 170))
    np.save(tmp_path / "a.npy", data)
    return tmp_path / "a.npy", data


def halved(array):
    """Return the mean of windows of two along every axis, computed another way than ours."""
    windows = [n // 2 * 2 for n in array.shape]
    cut = array[tuple(slice(n) for n in windows)].astype(np.float64)
    for axis in range(array.ndim):
        cut = np.moveaxis(cut, axis, 0)
        cut = np.moveaxis((cut[0::2] + cut[1::2]) / 2, 0, axis)
    return np.rint(cut).astype(array.dtype)


def image_index(file, shape, dtype, *, axes, scale=None, nodata=None, offset=128):
    """Return an index of one image whose only chunk is a NPY file's data."""
    array = ArrayIndex(
        shape=shape,
        chunk_shape=shape,
        data_type=dtype,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(
            offsets=np.full((1,) * len(shape), offset, np.uint64),
            lengths=np.full(
                (1,) * len(shape), np.prod(shape) * np.dtype(dtype).itemsize, np.uint64
            ),
            urls=(str(file),),
        ),
        dimension_names=tuple(axes),
    )
    steps = scale or (1.0,) * len(shape)
    named = tuple(
        Axis(name=a, scale=n, unit="micrometer" if a in "xyz" else None)
        for a, n in zip(axes, steps, strict=True)
    )
    meaning = Meaning(axes=named, name="cells", nodata=nodata)
    return root_group({"0": image_group(meaning, [Level(name="0", image=array)])})


def test_levels_and_metadata(npy, tmp_path):
    file, data = npy
    done = anychunk.convert(file, tmp_path / "b.zarr", axes="zyx", levels=3, verify=True)
    assert done.is_verified
    assert not done.notes
    group = zarr.open_group(tmp_path / "b.zarr", mode="r", zarr_format=3)
    level = data
    for number in range(3):
        array = group[f"{number}/image"]
        assert array.dtype == data.dtype
        assert array.metadata.dimension_names == ("z", "y", "x")
        np.testing.assert_array_equal(array[:], level)
        level = halved(level)
    image = group.attrs["ome"]["multiscales"][0]
    assert [axis["name"] for axis in image["axes"]] == ["z", "y", "x"]
    transformations = image["datasets"][2]["coordinateTransformations"]
    assert transformations[0] == {"type": "scale", "scale": [4.0, 4.0, 4.0]}
    assert transformations[1] == {"type": "translation", "translation": [1.5, 1.5, 1.5]}
    assert group.attrs["anychunk"]["converted_from"]["format"] == "npy"


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": (32, 32), "shard": (64, 96)},
        {"chunk": (5, 33, 47), "shard": False},
        {
            "chunk": (2, 33, 47),
            "shard": (4, 33, 94),
            "compression": "blosc+crc32c",
            "compression_level": 5,
        },
        {"compression": "none", "like": "archive"},
        {"compression": "gzip", "compression_level": 1, "like": "cloud"},
        {"compression": [{"name": "zstd", "configuration": {"level": 1, "checksum": True}}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(9, 130, 170), (1, 65, 257), (3, 64, 64)])
def test_chunk_and_shard_shapes(tmp_path, options, shape, monkeypatch):
    # small regions, so that levels are assembled from many of them
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 4096)
    data = volume(shape)
    np.save(tmp_path / "a.npy", data)
    anychunk.convert(
        tmp_path / "a.npy", tmp_path / "b.zarr", axes="zyx", levels=4, verify=True, **options
    )
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    level = data
    for number in range(4):
        array = group[f"{number}/image"]
        np.testing.assert_array_equal(array[:], level)
        ratio = [2 if n > 1 else 1 for n in level.shape]
        windows = level[tuple(slice(n // r * r) for n, r in zip(level.shape, ratio, strict=True))]
        pairs = windows.reshape(
            [k for n, r in zip(windows.shape, ratio, strict=True) for k in (n // r, r)]
        )
        level = np.rint(pairs.mean(axis=(1, 3, 5))).astype(data.dtype)
    if "chunk" in options:
        given = options["chunk"]
        wanted = tuple(min(c, n) for c, n in zip((1, *given)[-3:], shape, strict=True))
        assert group["0/image"].chunks == wanted
    assert (group["0/image"].shards is None) == (
        options.get("shard") is False
    ) or "shard" not in options


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64"])
def test_types(tmp_path, dtype):
    data = volume((40, 50), "uint8").astype(dtype)
    np.save(tmp_path / "a.npy", data)
    anychunk.convert(tmp_path / "a.npy", tmp_path / "b.zarr", axes="yx", levels=2, verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0/image"][:], data)
    assert group["1/image"].shape == (20, 25)


def test_axes_come_in_the_order_of_ome(tmp_path):
    data = volume((20, 30, 4))
    np.save(tmp_path / "a.npy", data)
    array = image_index(tmp_path / "a.npy", (20, 30, 4), "uint16", axes="xyz")["0/0/image"]
    described = {
        "axes": [{"name": n, "type": "space", "unit": "micrometer"} for n in "xyz"],
        "datasets": [
            {
                "path": "full",
                "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.5, 2.0]}],
            }
        ],
        "name": "cells",
    }
    index = GroupIndex(
        members={"full": array}, attributes={"ome": {"version": "0.5", "multiscales": [described]}}
    )
    anychunk.convert(index, tmp_path / "b.zarr", levels=3, verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0/image"][:], data.transpose(2, 1, 0))
    image = group.attrs["ome"]["multiscales"][0]
    assert image["axes"][0] == {"name": "z", "type": "space", "unit": "micrometer"}
    assert image["name"] == "cells"
    scales = [d["coordinateTransformations"][0]["scale"] for d in image["datasets"]]
    # slices lie far apart: they are halved only when pixels have become as long
    assert scales == [[2.0, 0.5, 0.5], [2.0, 1.0, 1.0], [2.0, 2.0, 2.0]]


def test_nodata_is_excluded_from_means(tmp_path):
    data = np.array([[10, 20, -9999, -9999], [30, -9999, -9999, -9999]], "int16")
    np.save(tmp_path / "a.npy", data)
    index = image_index(tmp_path / "a.npy", (2, 4), "int16", axes="yx", nodata=-9999)
    anychunk.convert(index, tmp_path / "b.zarr", levels=2)
    assert zarr.open_group(tmp_path / "b.zarr", mode="r")["1/image"][:].tolist() == [[20, -9999]]


def test_nan_nodata_is_excluded_from_means(tmp_path):
    data = np.array([[1, 2, np.nan, np.nan], [3, np.nan, np.nan, np.nan]], "float32")
    np.save(tmp_path / "a.npy", data)
    index = image_index(tmp_path / "a.npy", (2, 4), "float32", axes="yx", nodata=math.nan)
    anychunk.convert(index, tmp_path / "b.zarr", levels=2, verify=True)
    read = zarr.open_group(tmp_path / "b.zarr", mode="r")["1/image"][:]
    np.testing.assert_array_equal(read, [[2, np.nan]])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_zero_is_excluded_only_if_the_file_declares_it_nodata(tmp_path):
    data = np.array([[[4, 8, 0, 0], [0, 0, 0, 0]]], "uint8")
    for nodata, expected in ((0, 6), (None, 3)):
        profile = {"driver": "GTiff", "width": 4, "height": 2, "count": 1, "dtype": "uint8"}
        with rasterio.open(tmp_path / "a.tif", "w", nodata=nodata, **profile) as out:
            out.write(data)
        anychunk.convert(tmp_path / "a.tif", tmp_path / "b.zarr", levels=2, overwrite=True)
        assert zarr.open_group(tmp_path / "b.zarr", mode="r")["1/image"][:].tolist() == [
            [expected, 0]
        ]


def test_levels_of_a_palette_hold_its_own_values(tmp_path):
    """The mean of two colours' numbers is the number of a third."""
    data = np.full((64, 64), 10, "uint8")
    data[:, 1::4] = 200
    colours = np.zeros((3, 256), "uint16")
    tifffile.imwrite(tmp_path / "a.tif", data, colormap=colours, photometric="palette")
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.zarr", levels=3)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    assert all(set(np.unique(group[f"{level}/image"][:])) <= {10, 200} for level in "012")


@pytest.mark.parametrize(("method", "expected"), [("max", 7), ("min", 1), ("mode", 1)])
def test_methods(tmp_path, method, expected):
    np.save(tmp_path / "a.npy", np.array([[1, 1], [3, 7]], "uint8"))
    anychunk.convert(
        tmp_path / "a.npy", tmp_path / "b.zarr", axes="yx", levels=2, method=method, verify=True
    )
    assert zarr.open_group(tmp_path / "b.zarr", mode="r")["1/image"][:].tolist() == [[expected]]


def test_several_files_become_images_of_one_group(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.full((3, 4), ord(name), "uint8"))
    anychunk.convert([tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "c.zarr", axes="yx")
    group = zarr.open_group(tmp_path / "c.zarr", mode="r")
    assert group.attrs["ome"]["bioformats2raw.layout"] == 3
    assert (group["0/0/image"][0, 0], group["1/0/image"][0, 0]) == (ord("a"), ord("b"))
    assert group["1"].attrs["ome"]["multiscales"][0]["datasets"][0]["path"] == "0/image"


def test_unnamed_axes_get_no_ome_attribute(tmp_path):
    np.save(tmp_path / "a.npy", volume((2, 3, 4, 5)))
    done = anychunk.convert(tmp_path / "a.npy", tmp_path / "b.zarr")
    assert "dim_0" in done.losses[0]
    assert "ome" not in zarr.open_group(tmp_path / "b.zarr", mode="r").attrs


def test_fill_is_not_stored(tmp_path):
    data = np.zeros((64, 64), "float32")
    data[40:, :30] = -0.0
    np.save(tmp_path / "a.npy", data)
    index = image_index(tmp_path / "a.npy", (64, 64), "float32", axes="yx", nodata=0)
    anychunk.convert(index, tmp_path / "b.zarr", chunk=(32, 32), shard=False, levels=1)
    stored = sorted(p.name for p in (tmp_path / "b.zarr/0/image/c").rglob("*") if p.is_file())
    assert stored == ["0"]
    read = zarr.open_group(tmp_path / "b.zarr", mode="r")["0/image"][:]
    assert np.array_equal(np.signbit(read), np.signbit(data))


def test_remote_target(npy):
    target = "memory://convert-target/deep/b.zarr"
    anychunk.convert(npy[0], target, axes="zyx", levels=2, verify=True)
    from zarr.storage import ObjectStore

    from anychunk.io.object_stores import memory_store

    group = zarr.open_group(
        ObjectStore(memory_store("convert-target")), path="deep/b.zarr", mode="r"
    )
    np.testing.assert_array_equal(group["0/image"][:], npy[1])
    keys = [str(o["path"]) for batch in memory_store("convert-target").list() for o in batch]
    assert not [key for key in keys if "journal" in key]
    with pytest.raises(FileExistsError, match="deep/b.zarr: .*overwrite"):
        anychunk.convert(npy[0], target, axes="zyx", levels=3)


def test_a_failed_conversion_is_resumed(npy, tmp_path, monkeypatch):
    file, data = npy
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 4096)
    options = {"axes": "zyx", "levels": 3, "chunk": (32, 32), "shard": False, "workers": 2}
    real, calls = Conversion.write, []

    def failing(self, task):
        calls.append(task)
        if len(calls) == 5:
            raise AnychunkError("the disk is full")
        return real(self, task)

    monkeypatch.setattr(Conversion, "write", failing)
    with pytest.raises(AnychunkError, match="disk is full"):
        anychunk.convert(file, tmp_path / "b.zarr", **options)
    assert not (tmp_path / "b.zarr").exists()
    monkeypatch.setattr(Conversion, "write", real)
    # an object that was damaged after it was written is written again
    written = next(p for p in (tmp_path / ".b.zarr.part/0").rglob("*") if p.is_file())
    written.write_bytes(b"broken")
    done = anychunk.convert(file, tmp_path / "b.zarr", verify=True, **options)
    assert 0 < done.skipped_bytes < done.nbytes
    np.testing.assert_array_equal(
        zarr.open_group(tmp_path / "b.zarr", mode="r")["0/image"][:], data
    )
    assert not (tmp_path / ".b.zarr.part").exists()
    with pytest.raises(TargetExistsError):
        anychunk.convert(file, tmp_path / "b.zarr", **options)


def test_another_source_is_not_mixed_in(npy, tmp_path, monkeypatch):
    file, _ = npy
    monkeypatch.setattr(Conversion, "write", lambda self, task: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        anychunk.convert(file, tmp_path / "b.zarr", axes="zyx")
    monkeypatch.undo()
    with pytest.raises(FileExistsError, match=r"\.b\.zarr\.part.*overwrite"):
        anychunk.convert(file, tmp_path / "b.zarr", axes="tyx")
    anychunk.convert(file, tmp_path / "b.zarr", axes="tyx", overwrite=True)
    with pytest.raises(FileExistsError, match=r"/b\.zarr: .*overwrite"):
        anychunk.convert(file, tmp_path / "b.zarr", axes="zyx")
    anychunk.convert(file, tmp_path / "b.zarr", axes="zyx", overwrite=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    assert group["0/image"].metadata.dimension_names == ("z", "y", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.zarr"]


def test_verify_finds_a_wrong_pixel(npy, tmp_path, monkeypatch):
    file, data = npy
    right = int(data[4, 5, 6])
    compare = conversion.compare_all
    options = {"axes": "zyx", "levels": 2, "chunk": data.shape, "shard": False}

    def damaged(written, *args):
        first, changed = written.plan.arrays[0], data.copy()
        changed[4, 5, 6] += 1
        chunk = Path(written.target) / "0/image/c/0/0/0"
        chunk.write_bytes(written.encoder(first).encode(changed).tobytes())
        return compare(written, *args)

    monkeypatch.setattr(conversion, "compare_all", damaged)
    with pytest.raises(FormatError, match=rf"0/image \(4, 5, 6\): \D*{right + 1}\D*{right}\D*1 "):
        anychunk.convert(file, tmp_path / "b.zarr", verify=True, **options)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"like": "fast"}, ["'fast'", "ome-zarr cloud archive"]),
        ({"compression": "zip"}, ["'zip'", "zstd gzip blosc crc32c"]),
        ({"compression": "[{"}, ["'[{'"]),
        ({"chunk": (1, 1, 1, 1)}, ["(1, 1, 1, 1)", "3 axes"]),
        ({"chunk": (64, 64), "shard": (100, 100)}, ["(1, 100, 100)", "(1, 64, 64)"]),
        ({"axes": "yx"}, ["y x", " 3 "]),
        ({"levels": 2, "method": "sharpest"}, ["'sharpest'", "average max min mode"]),
    ],
)
def test_unsupported_options_write_nothing(npy, tmp_path, options, values):
    with pytest.raises(OptionError) as caught:
        anychunk.convert(npy[0], tmp_path / "b.zarr", **options)
    assert all(value in str(caught.value) for value in values), str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


def test_no_such_image(npy, tmp_path):
    with pytest.raises(KeyError, match=r"image 3\b.* 1\b"):
        anychunk.convert(npy[0], tmp_path / "b.zarr", image=3)


SMALL_REGIONS = "from anychunk.conversion import levels\nlevels.REGION_BYTES = 1 << 19\n"
STOPS = """
import os, signal, threading
from anychunk.conversion.staging import Journal
def add_and_stop(self, *task, add=Journal.add):
    add(self, *task)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
Journal.add = add_and_stop
"""
"""The command is interrupted after its first task; its threads do not begin another."""


@pytest.mark.processes
def test_an_interrupted_command_is_resumed(tmp_path):
    """Ctrl-C in the middle, then the same command again."""
    data = volume((32, 256, 256))
    np.save(tmp_path / "a.npy", data)
    command = ["convert", "a.npy", "b.zarr", "--axes", "zyx", "--levels", "3"]
    command += [
        "--chunk",
        "8x128x128",
        "--compression",
        "zstd",
        "--compression-level",
        "5",
        "--workers",
        "2",
    ]
    ended = processes.run(SMALL_REGIONS + STOPS + processes.COMMAND, command, cwd=tmp_path)
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.startswith("anychunk: interrupted; ")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "b.zarr").exists()
    done = processes.run(SMALL_REGIONS + processes.COMMAND, [*command, "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["skipped_bytes"] < data.nbytes
    np.testing.assert_array_equal(
        zarr.open_group(tmp_path / "b.zarr", mode="r")["0/image"][:], data
    )


@pytest.mark.processes
def test_on_a_dask_cluster(npy, tmp_path):
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        anychunk.convert(
            npy[0],
            tmp_path / "b.zarr",
            axes="zyx",
            levels=2,
            executor=cluster.scheduler_address,
            verify=True,
        )
    np.testing.assert_array_equal(
        zarr.open_group(tmp_path / "b.zarr", mode="r")["0/image"][:], npy[1]
    )


def test_command(capsys, npy, tmp_path):
    file, _ = npy
    target = str(tmp_path / "b.zarr")
    options = ["--axes", "zyx", "--levels", "2", "--chunk", "64x64", "--shard", "none", "--verify"]
    code, out, err = run(capsys, "convert", str(file), target, *options)
    assert (code, err) == (0, "")
    assert out.startswith(f"{target}: 2 arrays")
    assert "verified" in out
    assert zarr.open_group(target, mode="r")["0/image"].chunks == (1, 64, 64)
    code, out, err = run(capsys, "convert", str(file), str(tmp_path / "b.xyz"))
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read there")
def test_stays_in_memory_bounds(tmp_path):
    """A file larger than what the process may take."""
    file = tmp_path / "a.npy"
    big = np.lib.format.open_memmap(file, mode="w+", dtype="uint16", shape=(300, 1024, 1024))
    big[:] = volume((1024, 1024))
    del big
    script = (
        "import re, anychunk\n"
        "from pathlib import Path\n"
        f"anychunk.convert({str(file)!r}, {str(tmp_path / 'b.zarr')!r}, axes='zyx', levels=3,"
        " compression='zstd', compression_level=1)\n"
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024)\n"
    )
    # what is freed is given back at once: how much glibc would keep depends on how threads interleave
    held = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | held,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert int(done.stdout) < 512, f"{done.stdout} MiB"
    assert Path(tmp_path / "b.zarr/2/image/zarr.json").exists()


def test_levels_with_other_axes_are_left_out(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(24, dtype="uint8"))
    index = image_index(tmp_path / "a.npy", (1, 4, 6), "uint8", axes="zyx")
    flat = image_index(tmp_path / "a.npy", (2, 3), "uint8", axes="yx")["0/0/image"]
    half = image_index(tmp_path / "a.npy", (1, 2, 3), "uint8", axes="zyx")["0/0/image"]
    members = {"0": index["0/0/image"], "1": flat, "2": half}
    sizes = [[1.0, 1.0, 1.0], [2.0, 2.0], [1.0, 2.0, 2.0]]
    datasets = [
        {"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": scale}]}
        for i, scale in enumerate(sizes)
    ]
    described = {"axes": [{"name": n, "type": "space"} for n in "zyx"], "datasets": datasets}
    attributes = {"ome": {"version": "0.5", "multiscales": [described]}}
    group = GroupIndex(members={"0": GroupIndex(members=members, attributes=attributes)})
    anychunk.convert(group, tmp_path / "b.zarr", like="archive")
    made = zarr.open_group(tmp_path / "b.zarr", mode="r", zarr_format=3)
    datasets = made.attrs["ome"]["multiscales"][0]["datasets"]
    assert [made[d["path"]].shape for d in datasets] == [(1, 4, 6), (1, 2, 3)]
    assert datasets[1]["coordinateTransformations"][0]["scale"] == [1.0, 2.0, 2.0]


def test_nothing_of_an_overwritten_remote_target_is_left(tmp_path):
    np.save(tmp_path / "a.npy", np.full((40, 40), 7, "uint8"))
    np.save(tmp_path / "b.npy", np.eye(40, dtype="uint8"))
    options = {"axes": "yx", "chunk": (8, 8), "shard": False}
    url = "memory://overwritten/c.zarr"
    anychunk.convert(tmp_path / "a.npy", url, levels=3, **options)
    anychunk.convert(tmp_path / "b.npy", url, levels=1, overwrite=True, **options)
    store, path = object_store(url)
    group = zarr.open_group(zarr.storage.ObjectStore(store), path=path, mode="r", zarr_format=3)
    np.testing.assert_array_equal(group["0/image"][:], np.eye(40))
    assert set(group) == {"0"}


@pytest.mark.parametrize("target", ["{}/c.zarr", "memory://other-journal/c.zarr"])
def test_the_journal_of_another_conversion_is_ignored(tmp_path, monkeypatch, target):
    target = target.format(tmp_path)
    np.save(tmp_path / "a.npy", np.zeros((40, 40), "uint8"))
    np.save(tmp_path / "b.npy", np.ones((40, 40), "uint8"))
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 64)
    options = {"axes": "yx", "levels": 1, "chunk": (8, 8), "shard": False, "workers": 1}
    real, calls = Conversion.write, []

    def write(self, task):
        calls.append(task)
        if len(calls) > 5:
            raise FormatError("power cut")
        return real(self, task)

    with monkeypatch.context() as broken:
        broken.setattr(Conversion, "write", write)
        with pytest.raises(FormatError, match="power cut"):
            anychunk.convert(tmp_path / "a.npy", target, **options)
    done = anychunk.convert(tmp_path / "b.npy", target, overwrite=True, verify=True, **options)
    assert done.skipped_bytes == 0


def test_an_array_beside_the_levels_with_the_name_of_one(tmp_path):
    data = np.random.default_rng(2).integers(0, 200, (4, 6), "uint8")
    np.save(tmp_path / "a.npy", data)
    index = image_index(tmp_path / "a.npy", (4, 6), "uint8", axes="yx")
    image = index.members["0"]
    beside = {"1": image["0/image"], **image.members}
    group = GroupIndex(members=beside, attributes=image.attributes)
    anychunk.convert(group, tmp_path / "b.zarr", levels=2, verify=True)
    made = zarr.open_group(tmp_path / "b.zarr", mode="r", zarr_format=3)
    np.testing.assert_array_equal(made["0/image"][:], data)
    np.testing.assert_array_equal(made["1/image"][:], halved(data))
    np.testing.assert_array_equal(made["1_"][:], data)  # beside the level groups


def test_levels_of_an_array_without_elements(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 0), "uint8"))
    anychunk.convert(tmp_path / "a.npy", tmp_path / "b.zarr", axes="cyx", levels=2, verify=True)
    made = zarr.open_group(tmp_path / "b.zarr", mode="r", zarr_format=3)
    assert [made[f"{name}/image"].shape for name in "01"] == [(3, 8, 0), (3, 4, 0)]


@pytest.mark.parametrize("compression", ["zstd:9", "nope", '[{"name": "nope"}]', "[7]"])
def test_unknown_compression(npy, tmp_path, compression):
    with pytest.raises((OptionError, UnsupportedError), match=r"convert: "):
        anychunk.convert(npy[0], tmp_path / "b.zarr", compression=compression)
    assert not (tmp_path / "b.zarr").exists()


def test_levels_of_the_source_are_copied(cog, tmp_path):
    file, data = cog
    anychunk.convert(file, tmp_path / "b.zarr", verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0/image"][:], data)
    with rasterio.open(file, overview_level=0) as overview:
        np.testing.assert_array_equal(group["1/image"][:], overview.read())
    assert group.attrs["proj:code"] == "EPSG:32611"
    assert group.attrs["tiff"]["compression"]


def test_levels_that_are_made_have_their_own_georeference(cog, tmp_path):
    file, _ = cog
    anychunk.convert(file, tmp_path / "b.zarr", levels=3, verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    for number, size in enumerate((10, 20, 40)):
        attributes = group[str(number)].attrs
        assert attributes["spatial:transform"] == [size, 0, 440720, 0, -size, 3751320]
        assert tuple(attributes["spatial:shape"]) == group[f"{number}/image"].shape[1:]
        assert attributes["proj:code"] == "EPSG:32611"
    scale = group.attrs["ome"]["multiscales"][0]["datasets"][2]["coordinateTransformations"][0]
    assert scale["scale"] == [1.0, 40.0, 40.0]


def test_an_axis_of_one_band_is_left_out_beside_channels(tmp_path):
    data = np.arange(2 * 3 * 40 * 50, dtype="uint16").reshape(2, 3, 40, 50)
    tifffile.imwrite(
        tmp_path / "a.ome.tif", data, tile=(16, 16), metadata={"axes": "CZYX", "PhysicalSizeX": 0.5}
    )
    anychunk.convert(tmp_path / "a.ome.tif", tmp_path / "b.zarr", verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0/image"][:], data)
    assert group["0/image"].metadata.dimension_names == ("c", "z", "y", "x")


def test_a_mask_goes_along(tmp_path):
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            tmp_path / "a.tif",
            "w",
            driver="GTiff",
            width=64,
            height=64,
            count=1,
            dtype="uint8",
            transform=rasterio.transform.from_origin(0, 64, 1, 1),
        ) as out,
    ):
        out.write(np.ones((1, 64, 64), "uint8"))
        out.write_mask(np.eye(64, dtype="uint8") * 255)
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.zarr", verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0/mask"][:] != 0, np.eye(64, dtype=bool))


REFUSED = {
    # one file of a set whose others are not in the corpus
    "ome-tiff/tlnagy+exampletiffs/multiples_master/multifile-Z1.ome.tiff": TruncatedError,
    "ome-tiff/tlnagy+exampletiffs/multiples_multi_image_node/"
    "TSeries-camp-005_Cycle00001_Ch1_000001.ome.tif": TruncatedError,
    # damaged: the file ends before its second image, or bytes follow the last packet
    "tiff/OSGeo+gdal/second_image_width_above_32bit.tif": TruncatedError,
    "jpeg2000/python-pillow+Pillow/00r0_gray_l.jp2": FormatError,
    # its only image uses a compression that is not supported
    "nitf/OSGeo+gdal/ns3114a.nsf": FormatError,
    # crafted: one breaks its own rules, the other uses a feature that is not supported
    "jpeg2000/osamu620+OpenHTJ2K/security_marker_com_underflow.j2k": FormatError,
    "jpeg2000/osamu620+OpenHTJ2K/security_line_decode_dfs_vert.j2k": UnsupportedError,
}
"""Files that cannot be converted, and the error that each raises; all others must convert."""
GOOD = [s for s in samples() if "/" in s.path and not s.path.startswith("malformed")]


@needs_corpus
@pytest.mark.parametrize("sample", GOOD, ids=lambda sample: sample.path)
def test_real_files_convert_and_verify(sample, tmp_path):
    if sample.path in REFUSED:
        with pytest.raises(anychunk.AnychunkError) as caught:
            anychunk.convert(sample.file, tmp_path / "b.zarr")
        assert type(caught.value) is REFUSED[sample.path]
        assert not (tmp_path / "b.zarr").exists()
        return
    report = anychunk.convert(sample.file, tmp_path / "b.zarr", verify=True)
    assert report.is_verified
    assert report.arrays > 0
