"""What stays as it is for other users of zarr in a process that has anychunk, enabled or not.

`make test-neighbours` runs the tests of zarr and VirtualiZarr with and without anychunk.
"""

import copy
import subprocess
import sys

import pytest
import zarr
from packaging.version import Version
from zarr.codecs.cast_value import CastValue as ZarrCastValue

import anychunk
from anychunk import codecs
from anychunk.codecs import zarr_core
from anychunk.codecs.cast import small_types, type_registry
from anychunk.read import pipeline
from tests.patience import PATIENCE_S

LOADS_TYPES = pytest.mark.skipif(
    Version(zarr.__version__) < Version("3.4.1"),
    reason="loads entry points of data types: pip install 'zarr>=3.4.1'",
)
BEFORE = {
    "installed": "",
    "imported": "import anychunk",
    "enabled": "import anychunk\nanychunk.enable()",
}


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def restored():
    """Leave zarr's configuration as the other tests expect it."""
    yield
    anychunk.disable()
    zarr.config.reset()
    pipeline.Dispatcher.previous = pipeline.DEFAULT_PIPELINE
    pipeline.install()


@pytest.mark.parametrize(
    "before", [pytest.param("installed", marks=LOADS_TYPES), "imported", "enabled"]
)
def test_types_can_be_resolved_in_a_loop_over_the_registry(before):
    """As zarr's own tests do; resolving the first one loads our entry point."""
    found = run(f"""
import numpy as np
from zarr.core.dtype import ANY_DTYPE, data_type_registry, parse_dtype
{BEFORE[before]}
seen = []
for cls in data_type_registry.contents.values():
    parse_dtype(np.dtype("f4"), zarr_format=3)
    seen.append(cls)
parse_dtype("bfloat16", zarr_format=3)
assert seen == list(data_type_registry.contents.values()), seen
assert set(seen) == set(ANY_DTYPE), set(seen) ^ set(ANY_DTYPE)
print(parse_dtype("bfloat16", zarr_format=3).to_native_dtype(), data_type_registry.get("int4").__name__)
""")
    assert found == ["bfloat16", "Int4"]


@LOADS_TYPES
def test_installed_types_cost_nothing_until_they_are_used():
    found = run("""
import sys, numpy as np, zarr
zarr.create_array({}, shape=(1,), dtype="f4")[...]
print("ml_dtypes" in sys.modules, "anychunk.codecs.cast.small_types" in sys.modules)
zarr.create_array({}, shape=(1,), dtype="int2")[...]
print("ml_dtypes" in sys.modules)
""")
    assert found == ["False", "False", "True"]


def test_a_type_of_another_package_goes_before_ours():
    found = run("""
import anychunk
from anychunk.codecs.cast.small_types import Int2
from zarr.core.dtype import data_type_registry, parse_dtype
class Theirs(Int2):
    _zarr_v3_name = "int2"
assert type(parse_dtype("int2", zarr_format=3)) is Int2
data_type_registry.register("int2", Theirs)
print(type(parse_dtype("int2", zarr_format=3)).__name__, data_type_registry.get("int2").__name__)
print(type(parse_dtype(Int2().to_native_dtype(), zarr_format=3)).__name__)
data_type_registry.unregister("int2")
print(type(parse_dtype("int2", zarr_format=3)).__name__)
""")
    assert found == ["Theirs", "Theirs", "Theirs", "Int2"]


def test_the_names_are_those_of_the_types():
    assert set(small_types.TYPES) == type_registry.NAMES


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("undo", [zarr.config.reset, anychunk.disable])
def test_nothing_of_ours_is_chosen_after(undo, recwarn):
    pipeline.uninstall()
    zarr.config.reset()
    everything = copy.deepcopy(zarr.config.config)
    claimed = {name for name in codecs.table() if not is_ours(zarr.registry.get_codec_class(name))}
    assert claimed >= {"cast_value", "scale_offset"}
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
    assert zarr.registry.get_codec_class("cast_value") is codecs.codec_class("cast_value")
    anychunk.disable()
    assert zarr.config.get("codecs")["cast_value"] == "theirs.Cast"
    assert zarr.config.get(pipeline.PATH) == pipeline.DEFAULT_PIPELINE


@pytest.mark.usefixtures("restored")
def test_a_codec_that_is_registered_while_ours_is_chosen():
    anychunk.enable()

    class Theirs(ZarrCastValue):
        pass

    zarr.registry.register_codec("cast_value", Theirs, qualname="theirs.Cast")
    try:
        assert zarr.registry.get_codec_class("cast_value") is codecs.codec_class("cast_value")
        anychunk.disable()
        with zarr.config.set({"codecs": {"cast_value": "theirs.Cast"}}):
            assert zarr.registry.get_codec_class("cast_value") is Theirs
    finally:
        zarr_core.codec_registries["cast_value"].pop("theirs.Cast")
