"""The tests of zarr and of cast-value for `scale_offset` and `cast_value`, run with our classes.

They are in source distributions alone, which are downloaded once per environment; ANYCHUNK_ZARR_SDIST
and ANYCHUNK_CAST_VALUE_SDIST name the folders of unpacked ones.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zarr

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.processes


STRICT = "'Validation checks' of cast_value: the float cannot represent every such integer"
PRIVATE = "tests a private function of zarr's module, not the codec"
WORDING = "compares the wording of an error"
ZARR = {
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

CAST_VALUE = {
    "test_resolve_metadata[float64-to-int32-fill-1p5-rounds]": "a fill value must survive",
    "test_init_with_zdtype": "compares the identity of an object",
    "test_parse_map_entries": "tests a private function, not the codec",
    "test_validate_fail[wrap-on-float-target]": "refused by the class itself, before `validate`",
    "test_cast_array_int_to_int_fail[narrow-out-of-range-error]": WORDING,
    "test_cast_array_int_to_int_fail[negative-for-unsigned-error]": WORDING,
    "test_cast_array_float_to_int_fail[nan-no-map]": WORDING,
    "test_cast_array_float_to_int_fail[inf-no-map]": WORDING,
    "test_cast_array_float_to_int_fail[neg-inf-no-map]": WORDING,
    "test_cast_array_float_to_int_fail[nan-remains-after-partial-map]": WORDING,
    "test_cast_array_float_to_int_fail[oor-after-rounding]": WORDING,
    "test_cast_array_float_to_int_fail[float32-nan-no-map]": WORDING,
}
SUITES = {
    "zarr": (
        zarr.__version__,
        ["test_codecs/test_cast_value.py", "test_codecs/test_scale_offset.py"],
        ZARR,
        60,
    ),
    "cast-value": (
        "0.2.1",
        ["zarr_compat/v1/test_base.py", "zarr_compat/v1/test_numpy_codec.py", "test_core.py"],
        CAST_VALUE,
        60,
    ),
}
"""Version, files in `tests`, what fails in them and why, and at least how many pass."""


def source(name, version, folder):
    """Return the folder of the source of a package."""
    variable = f"ANYCHUNK_{name.replace('-', '_').upper()}_SDIST"
    if named := os.environ.get(variable):
        return Path(named)
    full = f"{name.replace('-', '_')}-{version}"
    unpacked = Path(sys.prefix) / "peers" / full
    if not unpacked.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name]
        done = subprocess.run(
            [*command, "--dest", folder, f"{name}=={version}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            pytest.skip(
                f"pip cannot download the source of {full}; set {variable} to its folder: "
                f"{done.stderr.strip()[-200:]}"
            )
        with tarfile.open(folder / f"{full}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        unpacked.parent.mkdir(exist_ok=True)
        shutil.move(folder / full, unpacked)
    return unpacked


@pytest.mark.parametrize("name", SUITES)
def test_their_own_tests_pass(name, tmp_path):
    version, files, exceptions, least = SUITES[name]
    folder = source(name, version, tmp_path)
    files = [f"tests/{file}" for file in files]
    deselected = [f"--deselect={file}::{case}" for file in files for case in exceptions]
    if name == "cast-value":  # of its functions, only `cast_array` is a codec
        deselected += ["-k", "not test_core or cast_array"]
    support = Path(__file__).parents[1] / "support"
    paths = os.pathsep.join(map(str, (support, folder / "src", folder / "tests")))
    # plug-ins by name: pytest would compile all of zarr, which has one
    plugins = ["asyncio", "hypothesispytest", "zarr"] if name == "zarr" else []
    plugins += [f"{name.replace('-', '_')}_suite", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"]
    command += [part for plugin in plugins for part in ("-p", plugin)]
    done = subprocess.run(
        [*command, "-o", "addopts=", *deselected, *files],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= least, done.stdout[-300:]
