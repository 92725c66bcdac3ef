"""Other operating systems, simulated: child processes that lack what macOS and Windows lack."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import served_files as files
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.processes


FILES = ["uint16.npy", "uint16.tif", "uint16.ntf", "uint16.jp2", "uint16.n5", "uint16.jnrrd"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of every format with known pixels."""
    place = tmp_path_factory.mktemp("systems")
    for name in FILES:
        files.make(place, name)
        pixels = files.values("uint16")
        np.save(place / f"{name}.expected.npy", pixels[0] if name.endswith(".jp2") else pixels)
    return place


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_everything_works_without(system, folder, tmp_path):
    """Each format is read, indexed, served and converted, and every pixel is compared."""
    place = shutil.copytree(folder, tmp_path / "files")
    command = [
        sys.executable,
        "-X",
        "warn_default_encoding",
        "-m",
        "tests.support.without_system_calls",
    ]
    done = subprocess.run(
        [*command, system, place],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        f"{name} read saved served .zarr .n5 .jnrrd" for name in sorted(FILES)
    ]
