"""Processes that may not read a file, whoever runs the tests."""

import ctypes
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


def give_up_rights() -> None:
    """Drop all capabilities of this process: root may read everything as long as it has them."""
    none = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def unprivileged() -> str:
    """Return code that a process runs before it opens a file that it may not read."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return ""
    if not hasattr(ctypes.CDLL(None), "capset"):
        pytest.skip("root may read everything, and can give that up on Linux only")
    return f"import sys\nsys.path.append({str(ROOT)!r})\nfrom {__name__} import give_up_rights\ngive_up_rights()\n"
