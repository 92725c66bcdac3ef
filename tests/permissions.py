"""Processes that may not read a file, whoever runs the tests."""

import os
import shutil

import pytest


def unprivileged() -> list[str]:
    """Return what to put before a command; root may read everything unless it drops that right."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and setpriv is not here: apt-get install util-linux")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
