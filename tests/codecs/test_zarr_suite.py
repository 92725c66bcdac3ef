"""zarr's own tests of `scale_offset` and `cast_value`, run with our classes.

They are in zarr's source distribution alone, which is downloaded once per environment;
ANYCHUNK_ZARR_SDIST names the folder of an unpacked one.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zarr

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.processes


NAME = f"zarr-{zarr.__version__}"
FILES = ("tests/test_codecs/test_cast_value.py", "tests/test_codecs/test_scale_offset.py")

STRICT = "'Validation checks' of cast_value: the float cannot represent every such integer"
PRIVATE = "tests a private function of zarr's module, not the codec"
EXCEPTIONS = {
    "test_validation_accepts_wrap_with_integer_target[float32-int32]": STRICT,
    "test_validation_accepts_wrap_with_integer_target[float64-int64]": STRICT,
    "test_encode_rejects_outdated_backend": "we have no separate backend",
    "test_check_backend_version": PRIVATE,
    "test_check_backend_version_allows_missing_metadata": PRIVATE,
    "test_min_version_matches_pyproject": "compares zarr's module with zarr's pyproject",
    "test_parse_scalar_map": PRIVATE,
    "test_float_nan_inf_preserved": PRIVATE,
    "test_float32_dtype_preserved": PRIVATE,
    "test_float_encode_rejects_wider_scalar": PRIVATE,
    "test_float_decode_rejects_wider_scalar": PRIVATE,
    "test_decode_fits_natively_negative_scale": PRIVATE,
}


def source(folder):
    """Return the folder of zarr's source, of the version that is installed."""
    if named := os.environ.get("ANYCHUNK_ZARR_SDIST"):
        return named
    unpacked = Path(sys.prefix) / "peers" / NAME
    if not unpacked.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "zarr",
        ]
        done = subprocess.run(
            [*command, "--dest", folder, f"zarr=={zarr.__version__}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            pytest.skip(
                f"pip cannot download the source of {NAME}; set ANYCHUNK_ZARR_SDIST to its folder: "
                f"{done.stderr.strip()[-200:]}"
            )
        with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        unpacked.parent.mkdir(exist_ok=True)
        shutil.move(folder / NAME, unpacked)
    return unpacked


def test_zarrs_own_tests_pass(tmp_path):
    support = Path(__file__).parents[1] / "support"
    deselected = [f"--deselect={file}::{name}" for file in FILES for name in EXCEPTIONS]
    # plug-ins by name: pytest would compile all of zarr, which has one
    plugins = ["asyncio", "hypothesispytest", "zarr", "zarr_suite", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"]
    command += [part for name in plugins for part in ("-p", name)]
    done = subprocess.run(
        [*command, "-o", "addopts=", *deselected, *FILES],
        cwd=source(tmp_path),
        env=os.environ | {"PYTHONPATH": str(support), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
