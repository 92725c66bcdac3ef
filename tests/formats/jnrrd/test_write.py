"""What is written reads back: here, through a reader that shares nothing, and tile by tile."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import anychunk
from anychunk.errors import AnychunkError, LimitError, OptionError, UnsupportedError
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import write_levels
from anychunk.io.object_stores import memory_store
from anychunk.io.opening import open_source
from tests.support import naive_jnrrd as naive
from tests.support import processes

KINDS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


def values(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        return rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
    made = rng.normal(size=shape) * 100
    return (made + 1j * made[::-1] if kind.kind == "c" else made).astype(kind)


def header(path):
    return jnrrd.read_header(open_source(str(path))).fields


@st.composite
def cases(draw):
    """Any type, shape, tile, storage, compression, edges, overlap and levels together."""
    ndim = draw(st.integers(1, 5))
    shape = tuple(draw(st.integers(1, 13 if ndim < 4 else 5)) for _ in range(ndim))
    axes = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    each = st.integers(1, 7 if ndim < 4 else 4)
    options = {
        "chunk": [draw(each) for _ in axes],
        "chunk_axes": axes,
        "compression": draw(st.sampled_from(["raw", "gzip", "bzip2", "zstd", "lz4"])),
        "edges": draw(st.sampled_from(["padded", "cropped"])),
        "padding_value": draw(st.sampled_from([0, 7])),
        "halo": draw(st.one_of(st.none(), st.just([draw(st.integers(0, 3)) for _ in axes]))),
        "chunk_metadata": draw(st.booleans()),
        "quality": draw(st.booleans()),
        "endian": draw(st.sampled_from(["little", "big"])),
        "method": draw(st.sampled_from(["average", "max", "min", "mode", "gaussian", "lanczos"])),
    }
    if draw(st.booleans()):
        options |= {"external": True, "files": draw(st.booleans())}
    else:
        options["chunk_order"] = draw(st.sampled_from(["contiguous", "chunked"]))
    scales = draw(
        st.lists(
            st.one_of(st.integers(1, 4), st.just([draw(st.integers(1, 3)) for _ in axes])),
            max_size=2,
        )
    )
    if scales:
        grown = np.maximum.accumulate([np.broadcast_to(s, len(axes)) for s in scales])
        options["level_scales"] = [1, *[[int(n) for n in row] for row in grown]]
        if draw(st.booleans()):
            options["levels_virtual"] = [draw(st.integers(1, len(scales)))]
        if draw(st.booleans()):
            options["level_chunks"] = [
                options["chunk"],
                *[[draw(each) for _ in axes] for _ in scales],
            ]
    return draw(st.sampled_from(KINDS)), shape, options


@given(case=cases())
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(case=("i1", (2,), {"chunk": [4], "halo": [3], "edges": "cropped"}))
@example(case=("u2", (3, 4), {"chunk": [2, 3], "halo": [9, 9], "edges": "cropped"}))
@example(
    case=(
        "u1",
        (5,),
        {"chunk": [7], "edges": "cropped", "level_scales": [1, 9], "compression": "gzip"},
    )
)
@example(case=("u8", (9, 9), {"chunk": [4, 4], "level_scales": [1, 2, 4], "method": "average"}))
def test_anything_round_trips(tmp_path, case):
    dtype, shape, options = case
    array = values(dtype, shape)
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "a.jnrrd"
    anychunk.write(array, path, workers=2, **options)
    group = anychunk.open(path)["0"]
    assert group["0/image"].dtype == array.dtype
    np.testing.assert_array_equal(group["0/image"][...], array)
    found = header(path)
    for level in found.get("tile:levels_stored", range(found.get("tile:levels", 1))):
        np.testing.assert_array_equal(naive.read(path, level), group[f"{level}/image"][...])
    tiles = jnrrd.TileReader(path)
    for level in range(found.get("tile:levels", 1)):
        whole = group[f"{level}/image"]
        levels_array = whole[...]
        chunk = whole.chunks
        for coords in np.ndindex(*(-(-n // c) for n, c in zip(whole.shape, chunk, strict=True))):
            box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, chunk, strict=True))
            np.testing.assert_array_equal(tiles.read(coords, level), levels_array[box])
    assert [f for f in jnrrd.validate(path) if f.severity == "error"] == []


def test_every_field_is_written_and_read(tmp_path):
    array = values("u2", (8, 20, 30))
    options = {
        "chunk": (4, 8, 8),
        "compression": "gzip",
        "compression_level": 3,
        "edges": "padded",
        "padding_value": 5,
        "halo": (0, 1, 2),
        "level_scales": [1, (1, 2, 2), 4],
        "level_chunks": [(4, 8, 8), (2, 4, 4), (2, 2, 2)],
        "levels_virtual": [2],
        "method": "max",
        "quality": True,
        "chunk_metadata": True,
    }
    anychunk.write(array, tmp_path / "in.jnrrd", **options)
    anychunk.write(array, tmp_path / "ex.jnrrd", external=True, base_dir="tiles", **options)
    anychunk.write(array, tmp_path / "li.jnrrd", external=True, files=True, **options)
    written = set()
    for name in ("in", "ex", "li"):
        np.testing.assert_array_equal(anychunk.open_array(tmp_path / f"{name}.jnrrd")[...], array)
        assert jnrrd.validate(tmp_path / f"{name}.jnrrd") == []
        written |= {
            k.removeprefix("tile:")
            for k in header(tmp_path / f"{name}.jnrrd")
            if k.startswith("tile:")
        }
    other = {"sparse", "data_pattern", "zarr_compatible"}  # tests/formats/jnrrd/test_upstream.py
    assert written == set(jnrrd.tiling_fields.schema()["properties"]) - other
    assert header(tmp_path / "ex.jnrrd")["tile:base_dir"] == "tiles"
    assert (tmp_path / "tiles/level_1/0_0_0.raw.gz").exists()


def test_arguments_are_in_numpy_order_and_the_header_in_file_order(tmp_path):
    anychunk.write(
        np.zeros((2, 30, 40), "u1"),
        tmp_path / "a.jnrrd",
        chunk=(16, 8),
        chunk_axes=(1, 2),
        halo=(1, 2),
    )
    found = header(tmp_path / "a.jnrrd")
    assert found["sizes"] == [40, 30, 2]
    assert found["tile:dimensions"] == [0, 1]
    assert found["tile:sizes"] == [8, 16]
    assert found["tile:overlap"] == [2, 1]
    assert anychunk.open_array(tmp_path / "a.jnrrd").chunks == (2, 16, 8)
    assert jnrrd.read_tile(tmp_path / "a.jnrrd", (0, 1, 2)).shape == (2, 14, 8)
    assert jnrrd.read_tile(tmp_path / "a.jnrrd", (1, 2)).shape == (2, 14, 8)


@pytest.mark.parametrize("kind", ["zarr", "dask", "view"])
def test_sources(tmp_path, kind):
    array = values("i4", (20, 33, 17))
    source = array
    if kind == "zarr":
        source = zarr.create_array({}, data=array, chunks=(7, 10, 17))
    elif kind == "dask":
        import dask.array

        source = dask.array.from_array(array, chunks=(7, 10, 17))
    else:
        source = np.asfortranarray(array).astype(">i4")
    anychunk.write(
        source, tmp_path / "a.jnrrd", chunk=(6, 8, 9), levels=3, compression="zstd", workers=2
    )
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd")[...], array)
    expected = anychunk.resample.downsample(array, (4, 4, 4))
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd", level=2)[...], expected)


def test_default_tile_and_one_level(tmp_path):
    array = values("u1", (2, 70, 300, 260))
    anychunk.write(array, tmp_path / "a.jnrrd")
    assert header(tmp_path / "a.jnrrd")["tile:sizes"] == [256, 256, 64, 1]
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd")[...], array)
    anychunk.write(array, tmp_path / "a.jnrrd", levels=1, overwrite=True)
    assert header(tmp_path / "a.jnrrd")["tile:level_scales"] == [1]
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd")[...], array)


def test_progress_is_told(tmp_path):
    told = []
    anychunk.write(
        values("u1", (8, 8)),
        tmp_path / "a.jnrrd",
        chunk=(4, 4),
        levels=2,
        progress=lambda *x: told.append(x),
    )
    assert told == [(n, 5) for n in range(1, 6)]


def test_remote_targets():
    array = values("u2", (20, 30))
    for name, options in (("in", {}), ("ex", {"external": True, "levels": 2})):
        url = f"memory://jnrrd-write/{name}.jnrrd"
        anychunk.write(array, url, chunk=(8, 8), compression="zstd", **options)
        np.testing.assert_array_equal(anychunk.open_array(url)[...], array)
        assert jnrrd.validate(url) == []
    assert memory_store("jnrrd-write") is not None


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"chunk": (1, 2, 3)}, OptionError, "chunk has 3 entries, expected 2"),
        ({"chunk": (0, 1)}, OptionError, "minimum"),
        ({"chunk_axes": (0, 5)}, OptionError, r"chunk_axes \[0, 5\].* 1"),
        ({"chunk_axes": (0, 0)}, OptionError, r"tile:dimensions: \[1, 1\]"),
        ({"compression": "rar"}, OptionError, "compression"),
        ({"chunk_order": "cloud"}, OptionError, "chunk_order"),
        ({"edges": "wrap"}, OptionError, "edges"),
        ({"method": "median", "levels": 2}, OptionError, "'median'.*average gaussian"),
        ({"padding_value": 300}, AnychunkError, "padding_value"),
        ({"level_scales": [2, 4]}, OptionError, "level 0"),
        ({"levels": 3, "level_scales": [1, 2]}, OptionError, "2 level_scales, expected 3"),
        ({"pattern": "{x}"}, OptionError, "pattern.*external"),
        ({"external": True, "pattern": "{x}"}, AnychunkError, "'{x}'.*{d1}"),
        ({"external": True, "pattern": "../{x}_{y}"}, AnychunkError, "leads outside"),
        (
            {"external": True, "files": ["a", "a", "b", "c"]},
            OptionError,
            "3 distinct files, expected 4",
        ),
        (
            {"external": True, "pattern": "{x}_{y}", "files": ["a"] * 4},
            OptionError,
            "pattern and .*files",
        ),
        ({"endian": "middle"}, OptionError, "endian"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, error, match):
    with pytest.raises(error, match=match):
        anychunk.write(np.zeros((8, 8), "u1"), tmp_path / "a.jnrrd", **{"chunk": (4, 4), **options})
    assert list(tmp_path.rglob("*.jnrrd")) == []


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2), "?"),
        np.zeros((), "u1"),
        np.zeros((0, 3), "u1"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "U4"),
        np.zeros(3, np.longdouble),
    ],
)
def test_arrays_that_are_not_written(tmp_path, array):
    with pytest.raises(UnsupportedError):
        anychunk.write(array, tmp_path / "a.jnrrd")


def test_header_that_no_reader_would_take_is_not_written(tmp_path):
    with (
        anychunk.limits.override(header_bytes=2048),
        pytest.raises(LimitError, match="use larger tiles"),
    ):
        anychunk.write(np.zeros(2000, "u1"), tmp_path / "a.jnrrd", chunk=(1,))
    assert list(tmp_path.iterdir()) == []


def test_own_lines_and_prefix(tmp_path):
    lines = {
        "extensions": {"tile": "https://example.org/other"},
        "tile:colour": "red",
        "space_origin": [1.5, 2.5],
        "labels": ["a", "b"],
    }
    anychunk.write(np.zeros((4, 4), "u1"), tmp_path / "a.jnrrd", chunk=(2, 2), header=lines)
    found = header(tmp_path / "a.jnrrd")
    assert found["tile:colour"] == "red"
    assert found["tiling:sizes"] == [2, 2]
    assert found["space_origin"] == [1.5, 2.5]
    assert anychunk.open_array(tmp_path / "a.jnrrd").metadata.dimension_names == ("y", "x")
    assert anychunk.open(tmp_path / "a.jnrrd")["0"].attrs["jnrrd"]["labels"] == ["a", "b"]


def test_failing_source_leaves_the_old_file(tmp_path):
    class Broken:
        shape, dtype = (64, 64), np.dtype("u1")

        def __getitem__(self, where):
            if where[0].start >= 32:
                raise OSError("the disk is gone")
            return np.zeros([s.stop - s.start for s in where], "u1")

    path = tmp_path / "a.jnrrd"
    anychunk.write(np.ones((4, 4), "u1"), path, chunk=(2, 2))
    before = path.read_bytes()
    with pytest.raises(OSError, match="the disk is gone"):
        anychunk.write(Broken(), path, chunk=(8, 8), levels=2, overwrite=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


WRITER = r"""
import os, sys, threading, numpy as np, anychunk
class Stops:
    shape, dtype = (64, 64, 64), np.dtype("u2")
    tiles = 0
    def __getitem__(self, where):
        Stops.tiles += 1
        os.write(1, b"tile\n")
        if Stops.tiles >= 60:
            threading.Event().wait()  # until the process is killed
        return np.full([s.stop - s.start for s in where], 7, "u2")
anychunk.write(Stops(), sys.argv[1], chunk=(8, 8, 8), external=bool(sys.argv[2]), overwrite=True, levels=2, compression="zstd")
"""


@pytest.mark.processes
@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("has_old", [True, False])
def test_killed_writer_leaves_the_old_file_or_none(tmp_path, tmp_path_factory, external, has_old):
    path = tmp_path / "a.jnrrd"
    old = np.ones((64, 64, 64), "u2")
    if has_old:
        anychunk.write(old, path, chunk=(8, 8, 8), external=external, levels=2, compression="zstd")
    printed = tmp_path_factory.mktemp("printed")
    process = processes.Process(WRITER, [path, "yes" if external else ""], printed, cwd=tmp_path)
    try:
        assert process.wait_for_lines(60)[:60] == ["tile"] * 60, process.texts()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if path.exists():
        assert not external
        np.testing.assert_array_equal(anychunk.open_array(path)[...], old)
    else:
        assert external or not has_old


@pytest.mark.processes
def test_memory_is_bounded(tmp_path):
    """A volume of 128 MiB that exists only slice by slice, in a process that counts its memory."""
    code = (
        "from bench.bench_jnrrd import Synthesised, TILE; import anychunk, sys, pathlib\n"
        "def peak(): return int(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]) / 1024\n"
        "anychunk.write(Synthesised((32, 64, 64)), sys.argv[1], chunk=TILE, levels=4, workers=2, overwrite=True)\n"
        "before = peak()\n"
        "anychunk.write(Synthesised((256, 512, 512)), sys.argv[1], chunk=TILE, levels=4, workers=2, overwrite=True)\n"
        "print(peak() - before)\n"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to count memory")
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.jnrrd")],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    # a tile is 4 MiB; sums and copies of those under way, not the volume
    assert float(done.stdout) < 80


def test_parts_of_a_pyramid_are_what_the_whole_gives():
    array = values("u2", (24, 40), seed=3)
    targets = [
        write_levels.Target(n, tuple(max(1, size // 2**n) for size in array.shape), (2**n, 2**n))
        for n in (1, 2, 3)
    ]

    def read(start, stop):
        return array[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]

    for method in ("average", "max", "min", "mode"):
        with write_levels.Pyramid(
            read, array.shape, (8, 16), array.dtype, targets, method=method, folder=None
        ) as made:
            for y, x in np.ndindex(3, 3):
                made.put((y, x), array[8 * y : 8 * y + 8, 16 * x : 16 * x + 16])
            for target in targets:
                expected = anychunk.resample.downsample(array, target.scale, method)
                np.testing.assert_array_equal(
                    made.read(target.number, (0, 0), target.shape), expected
                )


@pytest.mark.parametrize("endian", ["little", "big"])
def test_bfloat16(tmp_path, endian):
    import ml_dtypes

    array = (np.arange(60).reshape(3, 4, 5) / 7).astype(ml_dtypes.bfloat16)
    path = tmp_path / "a.jnrrd"
    anychunk.write(array, path, chunk=(2, 3, 4), levels=2, chunk_metadata=True, endian=endian)
    found = anychunk.open_array(path)[...]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.view("u2"), array.view("u2"))
    mean = anychunk.open_array(path, level=1)[...].astype(float)
    np.testing.assert_allclose(mean[0, 0, 0], array[:2, :2, :2].astype(float).mean(), rtol=2**-8)
    assert jnrrd.validate(path) == []


@pytest.mark.parametrize("pattern", [None, "t/{i}", "t/{x}"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("compression", ["raw", "zstd"])
def test_overlapping_tiles_named_by_a_pattern(tmp_path, pattern, size, compression):
    data = np.arange(size, dtype="i1")
    options = {} if pattern is None else {"pattern": pattern}
    options |= {"edges": "cropped", "compression": compression, "external": True}
    anychunk.write(data, tmp_path / "a.jnrrd", chunk=[2], halo=[1], **options)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.jnrrd")[...], data)
