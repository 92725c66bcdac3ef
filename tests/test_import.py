"""What `import anychunk` gives, and what it does not yet load."""

import os
import re
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
import zarr
from packaging.version import Version

import anychunk
from anychunk.cli import convert as cli_convert
from anychunk.cli import verify as cli_verify
from anychunk.conversion.presets import PRESETS
from anychunk.verification.peers import READERS
from tests.formats.nitf_writer import Image, nitf
from tests.thorough import sample

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
    if Version(zarr.__version__) >= Version("3.4.1"):  # loads entry points of data types
        before.append("import zarr; zarr.create_array({}, shape=(1,), dtype='int4')")
    before = sample(before, of=4)
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


def test_zarr_finds_our_codecs_whoever_imports_it_first():
    check = """
import numcodecs, zarr
from anychunk.codecs import n5_default, offset
assert zarr.registry.get_codec_class("n5_default") is n5_default.N5Default
assert issubclass(n5_default.N5Default, zarr.abc.codec.ArrayBytesCodec)
assert issubclass(offset.Offset, zarr.abc.codec.BytesBytesCodec)
assert issubclass(offset.OffsetV2, numcodecs.abc.Codec)
assert zarr.dtype.parse_data_type("int4", zarr_format=3).to_json(zarr_format=3) == "int4"
assert type(zarr.__spec__.loader).__module__.startswith(("importlib", "_frozen"))
"""
    before = [
        "import zarr, anychunk",
        "import anychunk, zarr",
        "import anychunk.codecs.base, zarr",
        "import anychunk.codecs.zarr_core",
        "import anychunk.codecs.zarr_registry",
        "import anychunk.codecs.cast.type_registry",
        "import anychunk.codecs.chain",
        "import anychunk, numcodecs, zarr",
        "import anychunk.api",
    ]
    before = sample(before, of=3)
    found, errors = exit_codes([f"{first}\n{check}" for first in before])
    assert dict(zip(before, found, strict=True)) == dict.fromkeys(before, 0), errors


def test_lists_in_the_command_line_are_those_of_the_modules():
    assert tuple(PRESETS) == cli_convert.PRESETS
    assert tuple(READERS) == cli_verify.READERS


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        anychunk.opne  # noqa: B018
    assert set(dir(anychunk)) == set(anychunk.__all__)


def test_private_parts_of_zarr_are_imported_in_two_modules():
    """So that a new zarr breaks in one place; the rest of `zarr` is public."""
    src = Path(anychunk.__file__).parent
    found = {
        path.relative_to(src).as_posix()
        for path in src.rglob("*.py")
        if re.search(
            r"(?:from|import) zarr\.core|from zarr\.registry import .*\b_", path.read_text()
        )
    }
    assert found == {"codecs/zarr_core.py", "read/zarr_core.py"}
