"""What anychunk changes in a process: nothing, until `anychunk.enable`."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import tifffile
from PIL import Image

import anychunk
from anychunk import demo
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.processes


SNAPSHOT = """
import atexit, copy, gc, importlib, locale, logging, logging.config, os, pickle, signal, socket, sys, threading, warnings
import asyncio, concurrent.futures.thread, multiprocessing, ssl  # they register what is called at the exit
import fsspec, imagecodecs, jbpy, jbpy.core, jsonschema, numcodecs, numcodecs.registry, numpy as np, obstore, tifffile, zarr, zarr.testing
import zarr.codecs.numcodecs

try:
    import pyproj, xarray, pandas, dask.array, dask.distributed, rasterio, rioxarray
except ImportError:  # extras, and what xarray loads with them
    pass

for name in ("tifffile", "imagecodecs", "jbpy.core"):
    logging.getLogger(name)  # as these packages do when they first have something to say

symbols = set()
def hook(event, arguments):
    if event == "ctypes.dlsym":
        symbols.add(arguments[1])
sys.addaudithook(hook)

def listed(registry):  # by the name that a class has or gets when zarr loads it
    lazy = [entry.value.replace(":", ".") for entry in registry.lazy_load_list]
    return sorted({*(f"{c.__module__}.{c.__qualname__}" for c in registry.values()), *lazy})

OTHERS = (
    "zarr", "numcodecs", "tifffile", "imagecodecs", "jbpy", "jsonschema", "obstore", "fsspec", "xarray", "numpy",
    "logging", "warnings", "builtins", "asyncio", "threading", "socket",
)
MODULES = {n: m for n, m in sys.modules.items() if n.split(".")[0] in OTHERS}
NAMES = {f"{n}.{k}": v for n, m in MODULES.items() for k, v in vars(m).items() if callable(v)}

def classes():
    return {
        f"{name}.{cls.__qualname__}": cls
        for name, module in MODULES.items()
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == name
    }

CLASSES = classes()

def snapshot():
    r = zarr.registry
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        "import hooks": ([repr(f) for f in sys.meta_path], [repr(f) for f in sys.path_hooks]),
        "configuration": copy.deepcopy(zarr.config.config),
        "codecs": {n: found for n, c in r._codec_registries.items() if (found := listed(c))},
        "pipelines": listed(r._pipeline_registry),
        "buffers": (listed(r._buffer_registry), listed(r._ndbuffer_registry)),
        "chunk keys": listed(r._chunk_key_encoding_registry),
        "data types": (type(zarr.dtype.data_type_registry.contents), *zarr.dtype.data_type_registry.contents.items()),
        "numcodecs": sorted(numcodecs.registry.entries),
        # pickle leaves __slotnames__ in every class
        "classes": {n: (c.__bases__, sorted(vars(c).keys() - {"__slotnames__"})) for n, c in CLASSES.items()},
        "methods": {n: [vars(c)[k] for k in sorted(vars(c)) if callable(vars(c)[k])] for n, c in CLASSES.items()},
        "logger class": (logging.getLoggerClass(), sorted(vars(logging.Logger))),
        "loggers": {
            n: (l.level, l.propagate, l.handlers[:], l.filters[:], [k for k, v in vars(l).items() if callable(v)])
            for n, l in loggers.items()
            if isinstance(l, logging.Logger) and not n.startswith("anychunk")
        },
        "exit": atexit._ncallbacks(),
        "malloc": sorted(symbols & {"mallopt", "malloc_trim", "mallinfo2"}),
        "warnings": ([str(f) for f in warnings.filters], warnings.showwarning),
        "names": [k for k, v in NAMES.items() if getattr(MODULES[k.rpartition(".")[0]], k.rpartition(".")[2], None) is not v],
        "file systems": sorted(fsspec.registry.items(), key=str),
        "environment": (dict(os.environ), os.getcwd(), sys.path[:], locale.setlocale(locale.LC_ALL)),
        "signals": [str(signal.getsignal(s)) for s in sorted(signal.valid_signals())],
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.getprofile()),
        "settings": (
            socket.getdefaulttimeout(), gc.get_threshold(), gc.isenabled(), sys.getrecursionlimit(), sys.getswitchinterval(),
            np.geterr(), np.get_printoptions(), multiprocessing.get_start_method(allow_none=True),
        ),
    }

def differences(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return {k: differences(a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)}
    return a, b

def check(before):
    after = snapshot()
    assert after == before, differences(before, after)

before = snapshot()
"""
STEPS = {
    "installed": """
zarr.dtype.parse_dtype("float32", zarr_format=3)
assert "anychunk" not in sys.modules
assert zarr.registry.get_codec_class("offset").__module__ == "anychunk.zarr.codecs"
assert numcodecs.get_codec({"id": "offset", "offset": 1}).get_config() == {"id": "offset", "offset": 1}
""",
    "import": """
import anychunk
""",
    "open": """
import anychunk
group = anychunk.open(sys.argv[1])
array = group["0/0/image"]
assert array[3:9, 5].sum() and array.oindex[[1, 2], [3]].size == 2 and array.attrs is not None
assert list(group.members(max_depth=None)) and "IndexPipeline" in str(type(array.async_array.codec_pipeline))
""",
    "read every format": """
import anychunk
from pathlib import Path
def arrays(group):
    return [member for _, member in group.members(max_depth=None) if hasattr(member, "dtype")]
for path in Path(sys.argv[4]).iterdir():
    found = arrays(anychunk.open(path))
    assert found and all(array[...].size for array in found), path
""",
    "read fax": """
import anychunk
for path in sys.argv[5:7]:
    assert anychunk.open_array(path)[...].any()
try:
    anychunk.open_array(sys.argv[7])[...]
except anychunk.errors.ChunkDecodeError:
    pass
else:
    raise AssertionError("damage was not noticed")
""",
    "save, load": """
import anychunk
anychunk.index(sys.argv[1]).save(sys.argv[8])
assert anychunk.open(sys.argv[8])["0/0/image"][...].any()
""",
    "info": """
from anychunk.cli import main
for options in ((), ("--deep", "--json")):
    try:
        main(["info", *options, sys.argv[1], *sys.argv[5:7]])
    except SystemExit as e:
        assert not e.code
""",
    "unpickle": """
with open(sys.argv[2], "rb") as file:
    array = pickle.load(file)
assert array[3:9, 5].sum() and array.oindex[[1, 2], [3]].size == 2
assert "IndexPipeline" in str(type(array.async_array.codec_pipeline))
""",
    "small types": """
import anychunk
from anychunk.model.index import ArrayIndex, ByteRanges
index = ArrayIndex(
    shape=(4,), chunk_shape=(4,), data_type="int4", codecs=({"name": "bytes"},), dimension_names=("x",), fill_value=0,
    chunks=ByteRanges(offsets=np.array([0], "u8"), lengths=np.array([4], "u8"), urls=(sys.argv[3],)),
)
array = anychunk.open(index)
for found in (array, pickle.loads(pickle.dumps(array))):
    assert found[...].astype(int).tolist() == [1, -8, 7, -1] and str(found.dtype) == "int4"
try:
    zarr.open_array(array.store)
except ValueError as e:
    assert "int4" in str(e)
else:
    raise AssertionError("zarr knows int4")
""",
    "enable, disable": """
import anychunk
anychunk.enable()
during = snapshot()
assert {k for k in before if before[k] != during[k]} == {"codecs", "configuration", "data types", "pipelines"}
anychunk.enable()
array = zarr.create_array({}, shape=(3,), dtype="int4", filters=[{"name": "scale_offset", "configuration": {"offset": 1}}])
assert "anychunk.zarr.codecs.ScaleOffset" in str(type(array.metadata.codecs[0]))
anychunk.disable()
""",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("effects")
    data = np.arange(64 * 64, dtype="uint16").reshape(64, 64)
    tifffile.imwrite(folder / "a.tif", data, tile=(16, 16), compression="zlib", predictor=True)
    array = anychunk.open_array(folder / "a.tif")
    (folder / "a.pickle").write_bytes(pickle.dumps(array))
    (folder / "small").write_bytes(bytes([1, 8, 7, 15]))
    anychunk.index(folder / "a.tif").save(folder / "a.json")
    list(demo.write(folder / "demo"))
    for kind in ("group3", "group4"):
        Image.fromarray(data % 7 > 2).save(folder / f"{kind}.tif", compression=kind)
    with tifffile.TiffFile(folder / "group3.tif") as tif:
        at = tif.pages[0].dataoffsets[0]
    damaged = bytearray((folder / "group3.tif").read_bytes())
    damaged[at + 20 : at + 40] = bytes(20)
    (folder / "damaged.tif").write_bytes(damaged)
    return folder


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("step", STEPS)
def test_nothing_in_the_process_changes(files, step):
    names = (
        "a.tif",
        "a.pickle",
        "small",
        "demo",
        "group3.tif",
        "group4.tif",
        "damaged.tif",
        "saved.json",
    )
    paths = [files / name for name in names]
    run(f"{SNAPSHOT}\n{STEPS[step]}\ncheck(before)", *paths)


def test_a_fresh_process_reads_the_arrays_of_a_saved_index_with_zarr_alone(files):
    """Their codecs are found by entry points."""
    code = """
import json, sys, zarr
from zarr.buffer import default_buffer_prototype
from zarr.storage import MemoryStore
from pathlib import Path
refs = json.loads(Path(sys.argv[1]).read_text())["refs"]
store = {}
buffer = default_buffer_prototype().buffer
for key, value in refs.items():
    if isinstance(value, list):
        url, offset, length = value
        data = Path(sys.argv[2]).read_bytes()[offset : offset + length]
    else:
        data = (value if isinstance(value, str) else json.dumps(value)).encode()
    store[key] = buffer.from_bytes(data)
array = zarr.open_array(MemoryStore(store), path="0/0/image", mode="r")
print(array.metadata.codecs[-1].__class__.__module__, int(array[...].sum()), "anychunk.zarr.store" in sys.modules)
"""
    expected = np.arange(64 * 64).sum()
    assert run(code, files / "a.json", files / "a.tif").split() == [
        "anychunk.zarr.codecs",
        str(expected),
        "False",
    ]
