"""Processes that may not read a file, whoever runs the tests."""

import ctypes
import os
from collections.abc import Callable

import pytest

_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


def give_up_rights() -> None:
    """Drop all capabilities of this process: root may read everything as long as it has them."""
    none = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def unprivileged() -> Callable[[], None] | None:
    """Return what a process calls before it opens a file that it may not read."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    if not hasattr(ctypes.CDLL(None), "capset"):
        pytest.skip("root may read everything, and can give that up on Linux only")
    return give_up_rights
