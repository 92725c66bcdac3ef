"""What tests of several codecs need."""

import pytest

import anychunk


@pytest.fixture
def enabled():
    """Put our pipeline in place of zarr's for one test."""
    anychunk.enable()
    yield
    anychunk.disable()
