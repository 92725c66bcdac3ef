"""zarr-n5, which may not live beside us: zarr would load its codec for our arrays, and it warns."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

NAME = "zarr-n5==0.3.1"
FOLDER = Path(sys.prefix) / "peers" / NAME
READER = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, zarr
from zarr_n5 import N5WrapperStore
store = N5WrapperStore(zarr.storage.LocalStore(sys.argv[1], read_only=True))
found = {name: zarr.open_array(store, path=name, mode="r")[...] for name in sys.argv[3:]}
np.savez(sys.argv[2], **{name.replace("/", "|"): array for name, array in found.items()})
"""


@cache
def install():
    """Put zarr-n5 where only a process that is told sees it; give that folder."""
    if not FOLDER.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        done = subprocess.run(
            [*command, str(FOLDER), NAME], check=False, capture_output=True, timeout=PATIENCE_S
        )
        if done.returncode:
            pytest.skip(f"{NAME} cannot be installed: {done.stderr.decode()[-200:]}")
    return FOLDER


def run(script, *arguments):
    """Run a script in a process that sees zarr-n5."""
    environment = {"PYTHONPATH": str(install()), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=False,
        capture_output=True,
        env=environment,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.decode()


def read_by_zarr_n5(container, names, scratch):
    """Give the datasets of a container as zarr-n5 reads them."""
    import numpy as np

    run(READER, container, scratch / "found.npz", *names)
    with np.load(scratch / "found.npz") as found:
        return {name: found[name.replace("/", "|")] for name in names}
