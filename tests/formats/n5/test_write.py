import json
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr

import anychunk
from anychunk.errors import FormatError, OptionError, TargetExistsError, UnsupportedError
from anychunk.formats.n5.write_input import Given, Regions
from tests.support import processes
from tests.support.n5_blocks import field

ARRAY = field((20, 13, 9))


def attributes(folder):
    return json.loads((folder / "attributes.json").read_text())


@pytest.mark.parametrize("kind", ["numpy", "fortran", "zarr", "dask", "read-only"])
@pytest.mark.parametrize("axes", ["xyz", "zyx"])
def test_arrays_of_every_kind(tmp_path, kind, axes):
    import dask.array

    given = {
        "numpy": lambda a: a,
        "fortran": np.asfortranarray,
        "dask": lambda a: dask.array.from_array(a, chunks=(7, 13, 5)[: a.ndim]),
    }.get(kind, lambda a: a)
    array = given(ARRAY)
    if kind == "zarr":
        array = zarr.create_array({}, shape=ARRAY.shape, chunks=(11, 5, 9), dtype="uint16")
        array[...] = ARRAY
    if kind == "read-only":
        array = ARRAY.copy()
        array.flags.writeable = False
    anychunk.write(array, tmp_path / "a.n5/v", chunk=(4, 5, 6), axes=axes, compression="zstd")
    found = attributes(tmp_path / "a.n5/v")
    expected = [20, 13, 9], [4, 5, 6]
    if axes == "zyx":
        expected = tuple(values[::-1] for values in expected)
    assert (found["dimensions"], found["blockSize"]) == expected
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.n5/v", axes=axes)[...], ARRAY)


def test_regions_cover_source_chunks_once():
    array = zarr.create_array({}, shape=(100, 100), chunks=(50, 30), dtype="uint16")
    regions = Regions.of(Given(array, is_reversed=False), (16, 16))
    assert regions.size == (64, 32)
    seen = np.zeros((100, 100), int)
    for number in range(len(regions)):
        seen[regions[number]] += 1
        for coords, place in regions.blocks(regions[number]):
            start = [c * 16 for c in coords]
            assert [r.start + p.start for r, p in zip(regions[number], place, strict=True)] == start
    assert (seen == 1).all()
    wide = zarr.create_array({}, shape=(1 << 20, 1 << 10), chunks=(1 << 20, 1 << 10), dtype="u8")
    large = Regions.of(Given(wide, is_reversed=False), (64, 64))
    assert np.prod(large.size) * 8 <= 64 << 20


def test_pyramid_of_n5_viewer(tmp_path):
    anychunk.write(
        ARRAY, tmp_path / "a.n5/v", chunk=(8, 8, 8), levels=3, resolution=(3, 2, 1), unit="um"
    )
    group = attributes(tmp_path / "a.n5/v")
    factors = [[1, 1, 1], [2, 2, 2], [4, 4, 4]]
    assert group["downsamplingFactors"] == group["scales"] == factors
    assert group["pixelResolution"] == {"dimensions": [1.0, 2.0, 3.0], "unit": "um"}
    opened = anychunk.open(tmp_path / "a.n5/v")
    expected = ARRAY
    for number in range(3):
        dataset = attributes(tmp_path / f"a.n5/v/s{number}")
        assert dataset["downsamplingFactors"] == factors[number]
        np.testing.assert_array_equal(opened[f"s{number}/image"][...], expected)
        even = expected[tuple(slice(n // 2 * 2) for n in expected.shape)].astype(float)
        a, b, c = (n // 2 for n in expected.shape)
        expected = np.rint(even.reshape(a, 2, b, 2, c, 2).mean((1, 3, 5))).astype("uint16")
    found = tensorstore.open(
        {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "a.n5/v/s1")}}
    )
    np.testing.assert_array_equal(found.result().read().result().T, opened["s1/image"][...])


@pytest.mark.parametrize("dtype", ["uint64", "int64", "int8", "uint32"])
def test_means_are_exact(tmp_path, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    array = rng.integers(info.min, info.max, (6, 8, 1), dtype=dtype, endpoint=True)
    array[0, 0, 0], array[0, 1, 0] = info.max, info.min
    anychunk.write(array, tmp_path / "a.n5", levels=2, chunk=(2, 2, 1))
    found = anychunk.open(tmp_path / "a.n5")["s1/image"][...]
    for i, j, _ in np.ndindex(3, 4, 1):
        window = array[2 * i : 2 * i + 2, 2 * j : 2 * j + 2, 0]
        quotient, rest = divmod(sum(int(n) for n in window.flat), 4)
        up = rest == 3 or (rest == 2 and quotient % 2)
        assert int(found[i, j, 0]) == quotient + up


@pytest.mark.parametrize("compression", ["raw", "gzip", "zstd", "blosc", "bzip2"])
@pytest.mark.parametrize("block", [(5, 13, 3), (4, 5, 6)], ids=["whole", "cropped"])
@pytest.mark.usefixtures("enabled")  # for n5_default
def test_zarr_reads_the_very_same_blocks(tmp_path, compression, block):
    anychunk.write(
        ARRAY,
        tmp_path / "a.n5/g/v",
        chunk=block,
        compression=compression,
        axes="xyz",
        also_zarr=True,
    )
    metadata = json.loads((tmp_path / "a.n5/g/v/zarr.json").read_text())
    names = [codec["name"] for codec in metadata["codecs"]]
    if block == (5, 13, 3):
        assert names[:2] == ["transpose", "bytes"]
        assert names[-1] == "pad"
    else:
        assert names == ["n5_default"]
    group = zarr.open_group(tmp_path / "a.n5", mode="r")
    np.testing.assert_array_equal(group["g/v"][...], ARRAY)
    np.testing.assert_array_equal(
        anychunk.open(tmp_path / "a.n5", format="n5")["g/v/0/image"][...], ARRAY.T
    )
    assert sorted(p.name for p in (tmp_path / "a.n5/g/v").iterdir() if p.is_file()) == [
        "attributes.json",
        "zarr.json",
    ]


def test_what_zarr_writes_into_a_twin_n5_readers_read(tmp_path):
    anychunk.write(
        np.zeros((8, 6), "uint16"), tmp_path / "a.n5/v", chunk=(4, 3), compression="zstd",
        axes="xyz", also_zarr=True,
    )  # fmt: skip
    twin = zarr.open_array(tmp_path / "a.n5/v", mode="r+")
    twin[...] = field((8, 6))
    found = anychunk.open(tmp_path / "a.n5/v", format="n5")
    np.testing.assert_array_equal(found[...], field((8, 6)).T)
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "a.n5/v")}}
    found = tensorstore.open(spec).result().read().result()
    np.testing.assert_array_equal(found, field((8, 6)))


@pytest.mark.usefixtures("enabled")
def test_multiscale_twin(tmp_path):
    anychunk.write(ARRAY, tmp_path / "a.n5/v", levels=2, chunk=(8, 8, 8), also_zarr=True)
    group = zarr.open_group(tmp_path / "a.n5/v", mode="r")
    assert [d["asset"] for d in group.attrs["multiscales"]["layout"]] == ["s0", "s1"]
    assert "ome" not in group.attrs  # keys follow the axes, which are in N5's order
    assert group["s0"].metadata.dimension_names == ("x", "y", "z")
    np.testing.assert_array_equal(group["s0"][...], ARRAY.T)


def test_a_dataset_that_is_the_container(tmp_path):
    anychunk.write(ARRAY, tmp_path / "a.n5", attributes={"note": 1})
    assert attributes(tmp_path / "a.n5")["n5"] == "2.5.1"
    found = anychunk.open(tmp_path / "a.n5")
    np.testing.assert_array_equal(found[...], ARRAY)
    assert found.attrs["n5"]["note"] == 1


def test_a_remote_container():
    anychunk.write(ARRAY, "memory://n5-write/a.n5/v", chunk=(8, 8, 8), levels=2)
    group = anychunk.open("memory://n5-write/a.n5")
    np.testing.assert_array_equal(group["v/s0/image"][...], ARRAY)


def test_nothing_is_written_over_or_into_a_dataset(tmp_path):
    anychunk.write(ARRAY, tmp_path / "a.n5/v")
    with pytest.raises(TargetExistsError, match=r"a\.n5/v: .*already"):
        anychunk.write(ARRAY, tmp_path / "a.n5/v")
    anychunk.write(ARRAY + 1, tmp_path / "a.n5/v", overwrite=True)
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.n5/v")[...], ARRAY + 1)
    anychunk.write(ARRAY, tmp_path / "a.n5/w", levels=2)
    with pytest.raises(FileExistsError, match=r"a\.n5/w/s0: .*already"):
        anychunk.write(ARRAY, tmp_path / "a.n5/w", levels=2)
    anychunk.write(ARRAY, tmp_path / "b.n5")
    with pytest.raises(FormatError, match=r"b\.n5: .*dataset"):
        anychunk.write(ARRAY, tmp_path / "b.n5/v")


def test_attributes_of_a_group_are_kept(tmp_path):
    (tmp_path / "a.n5").mkdir()
    (tmp_path / "a.n5/attributes.json").write_text('{"by": "me"}')
    anychunk.write(ARRAY, tmp_path / "a.n5/v")
    assert attributes(tmp_path / "a.n5") == {"n5": "2.5.1", "by": "me"}


@pytest.mark.parametrize(
    ("array", "options", "error", "message"),
    [
        (np.zeros(3, bool), {}, UnsupportedError, "data type bool.* uint8"),
        (np.zeros(3, "float16"), {}, UnsupportedError, "data type float16.* uint8"),
        (np.zeros(3, "complex64"), {}, UnsupportedError, "data type complex64.* uint8"),
        (np.uint8(3), {}, UnsupportedError, r"shape \(\)"),
        (ARRAY, {"chunk": (4, 4, 4, 4)}, OptionError, r"chunk \(4, 4, 4, 4\)"),
        (ARRAY, {"chunk": (4, 4, 0)}, OptionError, r"chunk \(4, 4, 0\)"),
        (ARRAY, {"chunk": (4096, 4096, 4096)}, OptionError, "2 GiB"),
        (ARRAY, {"compression": "jpeg"}, OptionError, "'jpeg'.* gzip"),
        (ARRAY, {"compression": "gzip", "compression_level": 33}, OptionError, "level"),
        (ARRAY, {"compression": "raw", "compression_level": 3}, OptionError, "'raw'.*level=3"),
        (ARRAY, {"compression": {"type": "gzip", "x": 1}}, OptionError, "'gzip'.* 'x'.*level"),
        (ARRAY, {"axes": "C"}, OptionError, "axes='C'"),
        (ARRAY, {"edges": "round"}, OptionError, "edges='round'"),
        (ARRAY, {"levels": 0}, OptionError, "levels=0"),
        (ARRAY, {"resolution": (1, 2)}, OptionError, "resolution"),
        (ARRAY, {"attributes": {"dimensions": 3}}, OptionError, "'dimensions'"),
    ],
)
def test_refused_before_anything_is_written(tmp_path, array, options, error, message):
    with pytest.raises(error, match=message):
        anychunk.write(array, tmp_path / "a.n5/v", **options)
    assert not list(tmp_path.rglob("*/0"))
    assert not (tmp_path / "a.n5/v/attributes.json").exists()


def test_empty_arrays(tmp_path):
    anychunk.write(np.zeros((0, 4), "uint8"), tmp_path / "a.n5/v")
    assert anychunk.open(tmp_path / "a.n5/v").shape == (0, 4)


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("compression", ["gzip", "zstd", "bzip2", "xz", "blosc"])
def test_levels_of_compression(tmp_path, compression, level):
    anychunk.write(ARRAY, tmp_path / "a.n5/v", compression=compression, compression_level=level)
    assert level in attributes(tmp_path / "a.n5/v")["compression"].values()
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.n5/v")[...], ARRAY)


def test_a_failure_in_the_middle_leaves_no_dataset(tmp_path):
    class Failing:
        shape, dtype = (64, 64), np.dtype("uint16")

        def __getitem__(self, at):
            if at[0].start >= 32:
                raise RuntimeError("the source broke off")
            return np.ones((8, 8), "uint16")

    with pytest.raises(RuntimeError, match="broke off"):
        anychunk.write(Failing(), tmp_path / "a.n5/v", chunk=(8, 8))
    assert not (tmp_path / "a.n5/v/attributes.json").exists()
    assert "v" in anychunk.open(tmp_path / "a.n5")  # a folder with blocks, but no dataset
    assert isinstance(anychunk.open(tmp_path / "a.n5")["v"], zarr.Group)


KILLED = """
import sys, os, threading
import numpy as np, anychunk
class Slow:
    shape, dtype = (4096, 4096), np.dtype("uint16")
    count = 0
    def __getitem__(self, at):
        Slow.count += 1
        if Slow.count == 200:
            os._exit(9)
        return np.full([s.stop - s.start for s in at], 7, "uint16")
anychunk.write(Slow(), sys.argv[1], chunk=(64, 64), compression="raw")
"""


@pytest.mark.processes
def test_a_crash_leaves_no_half_written_block(tmp_path):
    done = processes.run(KILLED, [tmp_path / "a.n5/v"], cwd=tmp_path)
    assert done.returncode == 9
    blocks = [p for p in (tmp_path / "a.n5/v").rglob("*") if p.is_file()]
    named = [p for p in blocks if p.name.isdigit()]
    assert len(named) > 100
    for path in named:
        data = path.read_bytes()
        assert len(data) == 12 + 64 * 64 * 2
        assert data[12:] == b"\0\7" * 64 * 64
    assert all(p.name.endswith(".part") for p in blocks if p not in named)


def test_names_that_are_claimed():
    from anychunk.formats import n5

    assert n5.claims("/a/b.n5")
    assert n5.claims("s3://bucket/b.n5/volume/s0")
    assert n5.claims("b.N5")
    assert not n5.claims("/a/b.zarr")
    assert not n5.claims("/a/xn5/y")
    assert not n5.claims("/a/.n5x")


def test_big_endian_and_default_blocks(tmp_path):
    for shape in ((5,), (600, 700), (70, 70, 70), (4, 5, 6, 7)):
        array = field(shape, ">i4")
        url = tmp_path / f"{len(shape)}.n5"
        anychunk.write(array, url)
        found = anychunk.open(url)
        np.testing.assert_array_equal(found[...], array)
        assert all(c <= n for c, n in zip(found.chunks, shape, strict=True))


def test_paths_are_strings_or_paths(tmp_path):
    anychunk.write(ARRAY, str(tmp_path / "a.n5" / "v"))
    assert Path(tmp_path / "a.n5/v/attributes.json").exists()
