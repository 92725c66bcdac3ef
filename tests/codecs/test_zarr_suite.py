"""zarr's own tests of `scale_offset` and `cast_value`, run with our classes.

They are not installed with zarr, but are part of its source distribution. `make zarr-suite`
downloads that of the installed version to `.venv/zarr-source` and runs this file; `make check` does
so too, and afterwards every test run includes it. ANYCHUNK_ZARR_SDIST names another folder.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

DEFAULT = Path(__file__).parents[2] / f".venv/zarr-source/zarr-{zarr.__version__}"
SDIST = Path(os.environ.get("ANYCHUNK_ZARR_SDIST") or DEFAULT)
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


@pytest.mark.skipif(not SDIST.is_dir(), reason=f"no {SDIST}; run: make zarr-suite")
def test_zarrs_own_tests_pass():
    here = Path(__file__).parent
    deselected = [f"--deselect={file}::{name}" for file in FILES for name in EXCEPTIONS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "zarr_suite", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-o", "addopts=", *deselected, *FILES],
        cwd=SDIST,
        env=os.environ | {"PYTHONPATH": str(here)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
