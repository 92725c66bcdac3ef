"""Every format in every index format: opened in another process, by zarr without us, and changed."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tensorstore
import tifffile

import anychunk
from anychunk import references
from anychunk.errors import SourceChangedError, UnsupportedError
from anychunk.model.index import ArrayIndex, walk
from anychunk.references import kerchunk
from anychunk.references.chunk_references import chunk_references
from tests.support import processes
from tests.support.patience import PATIENCE_S
from tests.support.s3 import needs_s3, serve_s3

pytestmark = pytest.mark.filterwarnings("ignore")

FORMS = {
    "v3": ("json", {}),
    "v2": ("json", {"zarr_format": 2}),
    "osml": ("json", {"layout": "osml"}),
    "parquet": ("parquet", {}),
    "osml-parquet": ("parquet", {"layout": "osml"}),
    "icechunk": ("icechunk", {}),
}
REFUSED = {
    ("n5", "v2"): "array a/0/image: codec 'anychunk.n5' has no Zarr v2 form",
    ("n5", "osml-parquet"): "array 0/data: codec 'anychunk.n5' has no Zarr v2 form",
}
"""What is refused even with copy="needed", and the message."""
DEFLATED = ["v3", "v2", "parquet", "icechunk"]
"""Forms in which deflate without a predictor needs no codec of ours; osml has its own."""
RANDOM = np.random.default_rng(11)
GREY = RANDOM.integers(0, 4000, (70, 90), dtype="uint16")
COLOUR = RANDOM.integers(0, 255, (70, 90, 3), dtype="uint8")


def write_raster(path, driver, **options):
    with rasterio.open(
        path, "w", driver=driver, height=70, width=90, count=1, dtype="uint16", **options
    ) as file:
        file.write(GREY, 1)


def write_n5(path):
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(path / "a")},
        "metadata": {
            "dimensions": [90, 70],
            "blockSize": [32, 32],
            "dataType": "uint16",
            "compression": {"type": "gzip"},
        },
        "create": True,
    }
    tensorstore.open(spec).result()[...].write(GREY.T).result()
    (path / "attributes.json").write_text('{"n5": "2.0.0"}')


def write_jnrrd(path, **options):
    anychunk.write(GREY, path, chunk=(32, 32), **options)


WRITERS = {
    "tiff": lambda f: tifffile.imwrite(f / "a.tif", GREY, tile=(32, 32), compression="zlib"),
    "tiff-plain": lambda f: tifffile.imwrite(f / "a.tif", GREY, tile=(32, 32)),
    "tiff-rgb": lambda f: tifffile.imwrite(f / "a.tif", COLOUR, tile=(32, 32)),
    "nitf": lambda f: write_raster(f / "a.ntf", "NITF", BLOCKXSIZE=32, BLOCKYSIZE=32),
    "jpeg2000": lambda f: write_raster(
        f / "a.jp2", "JP2OpenJPEG", BLOCKXSIZE=64, BLOCKYSIZE=64, QUALITY=100, REVERSIBLE="YES"
    ),
    "npy": lambda f: np.save(f / "a.npy", GREY),
    "jnrrd": lambda f: write_jnrrd(f / "a.jnrrd", compression="zstd"),
    "jnrrd-external": lambda f: write_jnrrd(
        f / "a.jnrrd", compression="gzip", external=True, pattern="t_{x}_{y}.bin"
    ),
    "n5": lambda f: write_n5(f / "a.n5"),
}
"""Written by other tools wherever they can."""


def entry(folder):
    """The file, or folder, to open."""
    (found,) = [p for p in folder.iterdir() if p.name.startswith("a.") and p.suffix != ".xml"]
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A bucket with one folder per format."""
    root = tmp_path_factory.mktemp("matrix")
    for name, write in WRITERS.items():
        folder = root / "bucket" / name
        folder.mkdir(parents=True)
        (folder / "a.n5").mkdir() if name == "n5" else None
        write(folder)
    return root


def first_array(node):
    """The path of the first array, which is the full resolution."""
    return next(path for path, found in walk(node) if isinstance(found, ArrayIndex))


def truth_of(name):
    if name == "tiff-rgb":
        return COLOUR.transpose(2, 0, 1)
    return GREY


def saved(node, name, form, url, storage=None):
    """Save in one format; return (target, path of the array), or None if it is refused."""
    suffix, settings = FORMS[form]
    target = f"{url}/{form}.{suffix}"
    both = {"storage": storage, "target_storage": storage}
    if (name, form) in REFUSED:
        with pytest.raises(UnsupportedError, match=REFUSED[name, form]):
            references.save(node, target, copy="needed", overwrite=True, **settings, **both)
        return None
    references.save(node, target, copy="needed", overwrite=True, **settings, **both)
    path = first_array(node)
    return target, "0/data" if form.startswith("osml") else path


READ = """
import json, sys
import numpy as np
import anychunk
jobs, storage = json.load(open(sys.argv[1])), json.loads(sys.argv[2])
for target, path, out in jobs:
    np.save(out, anychunk.open(target, storage=storage)[path][...])
"""


def check(jobs, folder, script, *, storage=None):
    """Run `script` on all jobs in one process that has not seen them, and compare what it read."""
    work, arguments = prepared(jobs, folder, storage)
    done = processes.run(script, arguments, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    compare(jobs, work)


def check_without_us(jobs, folder, script):
    """Run `script` on all jobs in an interpreter without anychunk, and compare what it read."""
    work, arguments = prepared(jobs, folder, None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-S", "-E", "-c", processes.RESTS + script, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    compare(jobs, work)


def prepared(jobs, folder, storage):
    """Return what to read and where to put it, and the arguments of a script that does."""
    work = [[target, path, str(folder / f"{i}.npy")] for i, (_, target, path) in enumerate(jobs)]
    (folder / "jobs.json").write_text(json.dumps(work))
    return work, [str(folder / "jobs.json"), json.dumps(storage)]


def compare(jobs, work):
    for (name, target, _), (_, _, out) in zip(jobs, work, strict=True):
        found = np.load(out)
        np.testing.assert_array_equal(
            found.reshape(truth_of(name).shape), truth_of(name), f"{name} {target}"
        )


def test_every_format_in_every_form_in_another_process(data, tmp_path):
    jobs = []
    for name in WRITERS:
        folder = data / "bucket" / name
        node = anychunk.index(entry(folder))
        jobs += [(name, *s) for form in FORMS if (s := saved(node, name, form, folder))]
    assert len(jobs) == len(WRITERS) * len(FORMS) - len(REFUSED)
    check(jobs, tmp_path, READ)


@needs_s3
def test_every_format_in_every_form_on_s3(data, tmp_path):
    jobs = []
    with serve_s3(data) as storage:
        for name in WRITERS:
            url = f"s3://bucket/{name}"
            node = anychunk.index(f"{url}/{entry(data / 'bucket' / name).name}", storage=storage)
            jobs += [
                (name, *s) for form in FORMS if (s := saved(node, name, form, url, storage=storage))
            ]
        check(jobs, tmp_path, READ, storage=storage)


FOREIGN = """
import json, sys
try:
    import anychunk
except ImportError:
    pass
else:
    raise SystemExit("anychunk is here")
import fsspec, icechunk, numpy as np, zarr
from zarr.storage import FsspecStore
icechunk.set_logs_filter("error")
def store_of(target):
    if target.endswith("icechunk"):
        place = icechunk.local_filesystem_storage(target)
        known = icechunk.Repository.fetch_config(place).virtual_chunk_containers
        access = icechunk.containers_credentials(
            {prefix: icechunk.Credentials.LocalFileSystemAccess() for prefix in known})
        repository = icechunk.Repository.open(place, authorize_virtual_chunk_access=access)
        return repository.readonly_session("main").store
    options = {"remote_protocol": "file"} if target.endswith("parquet") else {}
    return FsspecStore(fsspec.filesystem("reference", fo=target, asynchronous=True, **options),
                       read_only=True, path="")
for target, path, out in json.load(open(sys.argv[1])):
    is_v2 = target.endswith(("parquet", "v2.json"))
    array = zarr.open_array(store_of(target), path=path, mode="r", zarr_format=2 if is_v2 else 3)
    np.save(out, array[...])
"""


@pytest.fixture(scope="module")
def without_us(tmp_path_factory):
    """A folder to import from, with all packages installed here except anychunk."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "anychunk" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


def test_portable_codecs_are_read_by_zarr_without_us(data, tmp_path, without_us):
    """Fsspec's reference filesystem and Icechunk itself, in a process without anychunk."""
    jobs = []
    for name in ("tiff", "tiff-plain", "tiff-rgb", "nitf", "npy", "jnrrd"):
        folder = tmp_path / name
        node = anychunk.index(entry(data / "bucket" / name))
        forms = {"tiff": DEFLATED, "tiff-rgb": ["v3", "osml", "icechunk"]}.get(name, FORMS)
        jobs += [(name, *saved(node, name, form, folder)) for form in forms]
    script = f"import sys; sys.path.insert(0, {str(without_us)!r})\n{FOREIGN}"
    check_without_us(jobs, tmp_path, script)


def test_every_format_by_virtualizarr_in_another_process(data, tmp_path):
    script = """
import json, sys
import numpy as np
import zarr
import anychunk
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
registry = ObjectStoreRegistry({"file://": LocalStore()})
for target, path, out in json.load(open(sys.argv[1])):
    parser = anychunk.VirtualParser(copy="needed")
    store = parser(f"file://{target}", registry)
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    np.save(out, group["image"][...])
    virtual = open_virtual_dataset(f"file://{target}", registry=registry, parser=parser)
    again = anychunk.open(anychunk.from_virtualizarr(virtual))["image"]
    assert np.array_equal(again[...], group["image"][...])
"""
    jobs = []
    for name in WRITERS:
        file = entry(data / "bucket" / name)
        jobs.append((name, str(file), first_array(anychunk.index(file))))
    check(jobs, tmp_path, script)


@pytest.mark.parametrize("name", WRITERS)
def test_a_change_is_noticed_in_every_form(name, tmp_path):
    """Every file that holds chunks is rewritten with one byte changed and the same length."""
    (tmp_path / "a.n5").mkdir() if name == "n5" else None
    WRITERS[name](tmp_path)
    node = anychunk.index(entry(tmp_path))
    forms = [s for form in FORMS if (s := saved(node, name, form, tmp_path))]
    virtual = node.to_virtualizarr(copy="needed")
    found = chunk_references(node, kerchunk.CAPABILITIES, copy="needed", storage=None)
    chunks = {Path(url) for _, table in found.values() for url in table.urls if url}
    assert chunks
    for file in chunks:
        kept = bytearray(file.read_bytes())
        kept[-1] ^= 1
        file.write_bytes(kept)
        os.utime(file, ns=(5_000_000_000, 5_000_000_000))
    for target, path in forms:
        with pytest.raises(SourceChangedError, match="index it again"):
            anychunk.open(target)[path][...]
    again = anychunk.from_virtualizarr(virtual)
    with pytest.raises(SourceChangedError, match="index it again"):
        anychunk.open(again)[first_array(again)][...]
