"""What `import anychunk` gives, and what it does not yet load."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import zarr
from packaging.version import Version

import anychunk


@pytest.mark.parametrize(
    "before",
    [
        "import anychunk",
        "import anychunk.model.index",
        "from anychunk.model.index import find",
        "from anychunk import *",
        "import anychunk.api",
        "import anychunk.conversion, anychunk.verification, anychunk.cli",
        pytest.param(
            "import zarr; zarr.create_array({}, shape=(1,), dtype='int4')",
            marks=pytest.mark.skipif(
                Version(zarr.__version__) < Version("3.4.1"),
                reason="loads entry points of data types: pip install 'zarr>=3.4.1'",
            ),
        ),
    ],
)
def test_every_name_is_what_it_says_whatever_was_imported_before(before):
    code = f"""
{before}
import anychunk
from types import FunctionType
for name in anychunk.__all__:
    found = getattr(anychunk, name)
    kind = str if name == "__version__" else type if name[0].isupper() else FunctionType
    assert isinstance(found, kind), (name, found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_heavy_modules_wait_for_their_first_use():
    code = "import sys, anychunk; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"tifffile", "imagecodecs", "obstore", "jsonschema", "typer", "rich", "xarray", "dask"}
    ours = {"anychunk.references", "anychunk.conversion", "anychunk.read.pipeline"}
    assert not (heavy | ours) & set(loaded.stdout.split())


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
