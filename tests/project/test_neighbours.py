"""What stays as it is for other users of zarr in a process that has anychunk, enabled or not.

`make test-in ENV=neighbours` runs the tests of zarr and VirtualiZarr with and without anychunk.
"""

import copy

import pytest
import zarr
from zarr.codecs.cast_value import CastValue as ZarrCastValue

import anychunk
from anychunk import codecs
from anychunk.zarr import core as zarr_core
from anychunk.zarr import pipeline


@pytest.fixture
def restored():
    """Leave zarr's configuration as the other tests expect it."""
    yield
    anychunk.disable()
    zarr.config.reset()


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("undo", [zarr.config.reset, anychunk.disable])
def test_nothing_of_ours_is_chosen_after(undo, recwarn):
    zarr.config.reset()
    everything = copy.deepcopy(zarr.config.config)
    names = codecs.table().keys() - {"n5_default"}  # which no package provides here
    claimed = {name for name in names if not is_ours(zarr.registry.get_codec_class(name))}
    assert claimed == {"cast_value", "scale_offset"}
    anychunk.enable()
    assert all(is_ours(zarr.registry.get_codec_class(name)) for name in claimed)
    undo()
    assert zarr.config.config == everything
    assert not any(is_ours(zarr.registry.get_codec_class(name)) for name in claimed)
    assert zarr.registry.get_codec_class("cast_value") is ZarrCastValue
    assert not is_ours(zarr.registry.get_pipeline_class())
    assert not recwarn.list  # zarr warns if it finds two classes and no choice


def is_ours(cls):
    return cls.__module__.startswith("anychunk.")


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("times", [1, 2])
def test_disable_leaves_what_was_set_since(times):
    zarr.config.reset()
    zarr.config.update({"codecs": {"cast_value": "theirs.Cast"}})
    for _ in range(times):
        anychunk.enable()
    zarr.config.update({"codecs": {"zstd": "theirs.Zstd", "offset": "theirs.Offset"}})
    anychunk.disable()
    chosen = zarr.config.get("codecs")
    assert chosen["zstd"] == "theirs.Zstd"
    assert chosen["offset"] == "theirs.Offset"
    assert chosen["cast_value"] == "theirs.Cast"
    assert "scale_offset" not in chosen


@pytest.mark.usefixtures("restored")
def test_enable_after_reset_is_undone_by_disable():
    zarr.config.reset()
    anychunk.enable()
    zarr.config.reset()
    zarr.config.update({"codecs": {"cast_value": "theirs.Cast"}})
    anychunk.enable()
    assert zarr.registry.get_codec_class("cast_value") is codecs.CastValue
    anychunk.disable()
    assert zarr.config.get("codecs")["cast_value"] == "theirs.Cast"
    assert zarr.config.get(pipeline.PATH) != pipeline.NAME


@pytest.mark.usefixtures("restored")
def test_a_codec_that_is_registered_while_ours_is_chosen():
    anychunk.enable()

    class Theirs(ZarrCastValue):
        pass

    zarr.registry.register_codec("cast_value", Theirs, qualname="theirs.Cast")
    try:
        assert zarr.registry.get_codec_class("cast_value") is codecs.CastValue
        anychunk.disable()
        with zarr.config.set({"codecs": {"cast_value": "theirs.Cast"}}):
            assert zarr.registry.get_codec_class("cast_value") is Theirs
    finally:
        zarr_core.codec_registries["cast_value"].pop("theirs.Cast")
