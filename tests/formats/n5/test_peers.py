"""Others read what we write, and we read what they write."""

import itertools
import json

import numpy as np
import pytest
import tensorstore
import z5py

import anychunk
from anychunk.codecs.n5_default import DATA_TYPES
from tests.support import peers
from tests.support.n5_blocks import field

SHAPES = {
    "1d": ((17,), (5,)),
    "2d": ((7, 9), (3, 4)),
    "3d": ((7, 5, 4), (3, 2, 3)),
    "4d": ((3, 4, 5, 2), (2, 2, 2, 2)),
    "5d": ((2, 3, 2, 3, 2), (2, 2, 1, 2, 2)),
    "even": ((8, 6), (4, 3)),
    "single": ((3, 4), (8, 8)),
}
COMPRESSIONS = {
    "raw": {"type": "raw"},
    "gzip": {"type": "gzip", "level": 5},
    "zlib": {"type": "gzip", "level": 5, "useZlib": True},
    "bzip2": {"type": "bzip2", "blockSize": 3},
    "xz": {"type": "xz", "preset": 1},
    "zstd": {"type": "zstd", "level": 3},
    "blosc": {"type": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2},
    "lz4": {"type": "lz4", "blockSize": 1024},
}
# every type x every compression on one shape, every shape x every compression in one type
CASES = sorted(
    {(dtype, kind, "3d") for dtype in DATA_TYPES for kind in COMPRESSIONS}
    | {("uint16", kind, shape) for kind in COMPRESSIONS for shape in SHAPES}
)


def value(dtype, shape):
    array = field(SHAPES[shape][0], dtype)
    return array / 7 if array.dtype.kind == "f" else array


def name_of(case, edges):
    return "-".join([*case, edges])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """All cases in one container, cropped and padded."""
    root = tmp_path_factory.mktemp("ours") / "all.n5"
    for case, edges in itertools.product(CASES, ("cropped", "padded")):
        dtype, kind, shape = case
        anychunk.write(
            value(dtype, shape).astype(np.dtype(dtype).newbyteorder(">")),
            root / name_of(case, edges),
            chunk=SHAPES[shape][1],
            compression=COMPRESSIONS[kind],
            edges=edges,
            axes="xyz",
        )
    return root


def spec(path):
    return {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_ours_by_us(written, kind):
    group, plain = anychunk.open(written), anychunk.open(written, axes="xyz")
    for case, edges in itertools.product(CASES, ("cropped", "padded")):
        if case[1] == kind:
            found, turned = (g[f"{name_of(case, edges)}/0/image"][...] for g in (plain, group))
            np.testing.assert_array_equal(found, value(case[0], case[2]))
            np.testing.assert_array_equal(turned, value(case[0], case[2]).T)
            assert found.dtype == turned.dtype == case[0]


@pytest.mark.parametrize("kind", [k for k in COMPRESSIONS if k != "lz4"])
def test_ours_by_tensorstore(written, kind):
    for case, edges in itertools.product(CASES, ("cropped", "padded")):
        if case[1] == kind:
            found = tensorstore.open(spec(written / name_of(case, edges))).result().read().result()
            np.testing.assert_array_equal(found, value(case[0], case[2]))


@pytest.mark.parametrize("kind", [k for k in COMPRESSIONS if k != "lz4"])
def test_ours_by_z5py(written, kind):
    with z5py.File(str(written), "r") as file:
        for case, edges in itertools.product(CASES, ("cropped", "padded")):
            if case[1] == kind:
                found = file[name_of(case, edges)][...]
                np.testing.assert_array_equal(found.T, value(case[0], case[2]))


def test_ours_by_zarr_n5(written, tmp_path):
    cases = [case for case in CASES if case[1] in ("raw", "gzip", "zstd", "blosc")]
    named = {name_of(c, e): c for c, e in itertools.product(cases, ("cropped", "padded"))}
    found = peers.read_by_zarr_n5(written, list(named), tmp_path)
    for name, case in named.items():
        np.testing.assert_array_equal(found[name], value(case[0], case[2]))


def test_attributes_are_complete_and_plain(written):
    names = {kind: written / f"uint16-{kind}-3d-cropped" for kind in COMPRESSIONS}
    for kind, folder in names.items():
        found = json.loads((folder / "attributes.json").read_text())
        assert set(found) == {"dimensions", "blockSize", "dataType", "compression"}
        assert set(COMPRESSIONS[kind]) <= set(found["compression"])
    assert json.loads((written / "attributes.json").read_text()) == {"n5": "2.5.1"}
    blosc = json.loads((names["blosc"] / "attributes.json").read_text())["compression"]
    assert set(blosc) == {"type", "cname", "clevel", "shuffle", "blocksize"}


@pytest.mark.parametrize("kind", [k for k in COMPRESSIONS if k != "lz4"])
def test_tensorstore_by_us(tmp_path, kind):
    for number, (dtype, _, shape) in enumerate(c for c in CASES if c[1] == kind):
        array, block = value(dtype, shape), SHAPES[shape][1]
        metadata = {
            "dimensions": array.shape,
            "blockSize": block,
            "dataType": dtype,
            "compression": COMPRESSIONS[kind],
        }
        made = {**spec(tmp_path / f"{number}.n5"), "metadata": metadata}
        tensorstore.open(made, create=True).result().write(array).result()
        np.testing.assert_array_equal(anychunk.open(tmp_path / f"{number}.n5")[...], array.T)


@pytest.mark.parametrize("kind", ["raw", "gzip", "bzip2", "xz", "zstd", "lz4", "blosc"])
def test_z5py_by_us(tmp_path, kind):
    cases = [c for c in CASES if c[1] == kind]
    with z5py.File(str(tmp_path / "a.n5"), "a", use_zarr_format=False) as file:
        for dtype, _, shape in cases:
            array, block = value(dtype, shape), SHAPES[shape][1]
            dataset = file.create_dataset(
                f"{dtype}-{shape}",
                shape=array.shape[::-1],
                chunks=tuple(min(a, b) for a, b in zip(array.shape, block, strict=True))[::-1],
                dtype=dtype,
                compression=kind,
            )
            dataset[...] = np.ascontiguousarray(array.T)
    group = anychunk.open(tmp_path / "a.n5", axes="xyz")
    turned = anychunk.open(tmp_path / "a.n5")
    for dtype, _, shape in cases:
        path = f"{dtype}-{shape}/0/image"
        np.testing.assert_array_equal(group[path][...], value(dtype, shape))
        np.testing.assert_array_equal(turned[path][...], value(dtype, shape).T)


BESIDE = """
import sys, warnings
warnings.simplefilter("ignore")
import anychunk, numpy as np
group = anychunk.open(sys.argv[1])
for name in sys.argv[2:]:
    print(name, int(np.asarray(group[name + "/0/image"][...]).sum(dtype=np.int64)))
"""


def test_we_read_beside_an_installed_zarr_n5(written):
    names = [f"uint16-{kind}-3d-cropped" for kind in COMPRESSIONS]
    expected = value("uint16", "3d").sum(dtype=np.int64)
    lines = peers.run(BESIDE, written, *names).splitlines()
    assert lines == [f"{name} {expected}" for name in names]
