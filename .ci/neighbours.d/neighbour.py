"""A pytest plug-in for neighbours: with NEIGHBOUR_MODE=enabled, each case enables anychunk.

Not once for all, because fixtures reset zarr's configuration; nor before collection: cases are made
of zarr's list of data types, which has ours, too, while anychunk is enabled.
"""

import os
from collections.abc import Iterator

import hypothesis
import pytest

if ENABLED := os.environ["NEIGHBOUR_MODE"] == "enabled":
    import anychunk

# replaces the profile of the suite: a few examples, the same in each run
PROFILE = {"derandomize": True, "max_examples": 20, "deadline": None}


def pytest_collection() -> None:
    PROFILE["suppress_health_check"] = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile("neighbours", **PROFILE)
    hypothesis.settings.load_profile("neighbours")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    if ENABLED:
        anychunk.enable()
    return (yield)
