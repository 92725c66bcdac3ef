"""What `import anychunk` gives, and what it does not yet load."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.cli import convert as cli_convert
from anychunk.cli import verify as cli_verify
from anychunk.conversion.presets import PRESETS
from anychunk.verification.peers import READERS
from tests.support.nitf_writer import Image, nitf

pytestmark = pytest.mark.processes


FORKS = """
import contextlib, os, sys
for name in ("asyncio", "dask.array", "donfig", "imagecodecs", "numpy", "rich.console", "typer", "xarray", "yaml"):
    with contextlib.suppress(ImportError):
        __import__(name)
assert not {"anychunk", "numcodecs", "zarr"} & set(sys.modules)

def run(code):
    if not hasattr(os, "fork"):
        import subprocess
        return subprocess.run([sys.executable, "-c", code]).returncode
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        exec(code, {"__name__": "__main__"})
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

print(*[run(code) for code in sys.argv[1:]])
"""
"""Runs each of its arguments in a process that has imported slow packages, but neither zarr nor anychunk."""


def exit_codes(codes):
    """Run each code in a process of its own that has not imported zarr or anychunk; return how it ended."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, *codes],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in done.stdout.splitlines()[-1].split()], done.stderr


def test_every_name_is_what_it_says_whatever_was_imported_before():
    check = """
import anychunk
from types import FunctionType
for name in anychunk.__all__:
    found = getattr(anychunk, name)
    kind = str if name == "__version__" else type if name[0].isupper() else FunctionType
    assert isinstance(found, kind), (name, found)
"""
    before = [
        "import anychunk",
        "import anychunk.model.index",
        "from anychunk.model.index import find",
        "from anychunk import *",
        "import anychunk.api",
        "import anychunk.conversion, anychunk.verification, anychunk.cli",
    ]
    before.append("import zarr; zarr.registry.get_codec_class('offset')")
    found, errors = exit_codes([f"{first}\n{check}" for first in before])
    assert dict(zip(before, found, strict=True)) == dict.fromkeys(before, 0), errors


SLOW = {
    *("zarr", "numcodecs", "xarray", "pandas", "dask", "pyproj", "pyarrow", "fsspec", "obstore"),
    *("tifffile", "imagecodecs", "jbpy", "jsonschema", "typer", "pydantic", "rich", "asyncio"),
    *("ssl", "http.client", "importlib.metadata", "ml_dtypes", "anychunk.decode.chunks"),
}
"""Packages and modules that take long to import: not before they are needed."""


def loaded(code, *arguments):
    """Run code in a new process; return the modules that it has loaded."""
    # not those of coverage, which otherwise starts in every child process
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_slow_modules_wait_for_their_first_use():
    assert not (SLOW | {"numpy", "anychunk.references"}) & loaded("import anychunk")


RUN = """
from anychunk.cli import main
try:
    main()
except SystemExit as e:
    assert not e.code
"""


@pytest.mark.parametrize(
    ("arguments", "most", "needed"),
    [
        (["--help"], 260, {"typer"}),
        (["info", "--help"], 550, {"typer", "pydantic"}),
        (["--version"], 550, {"typer", "pydantic"}),
        (["formats", "--json"], 340, set()),
        (["codecs", "--json"], 420, {"imagecodecs"}),
    ],
)
def test_a_command_loads_what_it_needs(arguments, most, needed):
    found = loaded(RUN, *arguments)
    assert SLOW & found <= needed | {"importlib.metadata"}
    assert len(found) < most


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    data = np.arange(64 * 64, dtype="uint8").reshape(64, 64)
    tifffile.imwrite(folder / "a.tif", data)
    np.save(folder / "a.npy", data)
    header = "NRRD0004\ntype: uint8\ndimension: 2\nsizes: 64 64\nencoding: raw\n\n"
    (folder / "a.nrrd").write_bytes(header.encode() + data.tobytes())
    anychunk.write(data, folder / "a.n5")
    anychunk.write(data, folder / "a.jnrrd")
    (folder / "a.j2k").write_bytes(imagecodecs.jpeg2k_encode(data, codecformat="j2k"))
    (folder / "a.ntf").write_bytes(nitf([Image(data[np.newaxis])]))
    return folder


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("a.tif", {"tifffile", "imagecodecs"}),
        ("a.npy", {"imagecodecs"}),
        ("a.nrrd", {"imagecodecs"}),
        ("a.jnrrd", {"imagecodecs", "jsonschema", "importlib.metadata"}),
        ("a.n5", {"imagecodecs"}),
        ("a.j2k", {"imagecodecs"}),
        ("a.ntf", {"imagecodecs"}),
    ],
)
def test_info_loads_the_format_of_the_file_and_no_other(files, name, needed):
    found = loaded(RUN, "info", files / name)
    if "ssl" in found and "jsonschema" in needed:
        found -= loaded("import jsonschema")  # older versions load modules for http
    assert SLOW & found <= needed | {"rich"}
    formats = {m.split(".")[2] for m in found if m.startswith("anychunk.formats.")}
    kind = {"tif": "tiff", "nrrd": "jnrrd", "j2k": "jpeg2000", "ntf": "nitf"}
    suffix = name.partition(".")[2]
    assert {f for f in formats if not f.startswith("_")} == {kind.get(suffix, suffix)}
    assert len(found) < 450


ELSEWHERE = {
    *("archive", "combine", "references", "selection", "conversion", "verification", "thumbnail"),
    *("xarray_engine", "integrations", "server", "cli", "testing"),
}
"""What one read of a file does not need."""
LATER = {
    *("anychunk.decode.windows", "anychunk.decode.pieces", "anychunk.decode.computed"),
    *("anychunk.codecs.jpeg2000", "anychunk.codecs.seek", "anychunk.codecs.cast_value"),
    *("pyproj", "pystac", "pyarrow", "xarray", "dask", "obstore", "icechunk", "jsonschema"),
}
"""Codecs and packages that a file of uncompressed or deflated tiles does not need."""


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory):
    """Return the path of a TIFF file with an image and its overview, as every COG has."""
    path = tmp_path_factory.mktemp("pyramid") / "x.tif"
    data = np.arange(65536, dtype="uint16").reshape(256, 256)
    with tifffile.TiffWriter(path) as file:
        options = {"tile": (64, 64), "compression": "zlib", "metadata": None}
        file.write(data, subfiletype=0, **options)
        file.write(data[::2, ::2], subfiletype=1, **options)
    return path


def sources(modules):
    """Return the Python source of each of our modules among these, by name."""
    root = Path(anychunk.__file__).parents[1]
    found = {}
    for name in (m for m in modules if m.partition(".")[0] == "anychunk"):
        path = root / name.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                found[name] = file.read_text(encoding="utf-8")
    return found


def test_one_read_loads_what_it_needs(pyramid):
    found = loaded("import anychunk; anychunk.open_array(sys.argv[1])[:10, :10]", pyramid)
    ours = sources(found)
    assert {name.split(".")[1] for name in ours if "." in name}.isdisjoint(ELSEWHERE)
    assert not found & LATER
    assert len(ours) <= 140
    assert sum(text.count("\n") for text in ours.values()) <= 30_000


@pytest.mark.parametrize("name", ["a.npy", "a.nrrd", "a.n5", "a.j2k", "a.ntf"])
def test_one_read_loads_the_format_of_the_file(files, name):
    opened = "open" if name == "a.n5" else "open_array"  # a dataset of N5 is itself one array
    code = f"import anychunk; anychunk.{opened}(sys.argv[1])[..., :2, :2]"
    ours = sources(loaded(code, files / name))
    assert {module.split(".")[1] for module in ours if "." in module}.isdisjoint(ELSEWHERE)
    formats = {m.split(".")[2] for m in ours if m.startswith("anychunk.formats.")}
    kind = {"nrrd": "jnrrd", "j2k": "jpeg2000", "ntf": "nitf"}
    suffix = name.partition(".")[2]
    assert {f for f in formats if not f.startswith("_")} == {kind.get(suffix, suffix)}


def test_zarr_finds_our_codecs_whoever_imports_it_first():
    check = """
import numcodecs, zarr
from anychunk import codecs
found = zarr.registry.get_codec_class("offset")
assert found is codecs.Offset
assert issubclass(found, zarr.abc.codec.BytesBytesCodec)
assert issubclass(found, codecs.codec_class("offset"))
found = numcodecs.get_codec({"id": "offset", "offset": 2})
from anychunk.zarr import filters
assert type(found) is filters.Offset
assert isinstance(found, numcodecs.abc.Codec)
"""
    before = [
        "import zarr, anychunk",
        "import anychunk, zarr",
        "import anychunk.codecs.base, zarr",
        "import anychunk.zarr.core",
        "import anychunk.zarr.choices",
        "import anychunk.zarr.codecs",
        "import anychunk.codecs.chain",
        "import anychunk, numcodecs, zarr",
        "import anychunk.api",
    ]
    found, errors = exit_codes([f"{first}\n{check}" for first in before])
    assert dict(zip(before, found, strict=True)) == dict.fromkeys(before, 0), errors


def test_lists_in_the_command_line_are_those_of_the_modules():
    assert tuple(PRESETS) == cli_convert.PRESETS
    assert tuple(READERS) == cli_verify.READERS


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        anychunk.opne  # noqa: B018
    assert set(dir(anychunk)) == set(anychunk.__all__)


def test_private_parts_of_zarr_are_imported_in_one_module():
    """So that a new zarr breaks in one place; the rest of `zarr` is public."""
    src = Path(anychunk.__file__).parent
    found = {
        path.relative_to(src).as_posix()
        for path in src.rglob("*.py")
        if re.search(
            r"(?:from|import) zarr\.core|from zarr\.registry import .*\b_", path.read_text()
        )
    }
    assert found == {"zarr/core.py"}


DOORS = {"anychunk", "anychunk.zarr.headers", "anychunk.formats.jnrrd"}
"""Modules that users import other modules' names from, as the documentation says."""


def test_names_are_imported_from_the_modules_that_define_them():
    """A module that passes names on is loaded, with all of its imports, for any of them."""
    src = Path(anychunk.__file__).parent
    trees = {}
    for path in src.rglob("*.py"):
        parts = path.relative_to(src.parent).with_suffix("").parts
        trees[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text("utf-8"))
    imports = {
        module: [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        for module, tree in trees.items()
    }
    passed = {
        (module, alias.asname or alias.name)
        for module, nodes in imports.items()
        if module not in DOORS
        for node in nodes
        for alias in node.names
        if (node.module or "").startswith("anychunk") and f"{module}.{alias.name}" not in trees
    }
    found = {
        (importer, node.module, alias.name)
        for importer, nodes in imports.items()
        for node in nodes
        for alias in node.names
        if (node.module, alias.name) in passed and importer != node.module
    }
    assert found == set()
