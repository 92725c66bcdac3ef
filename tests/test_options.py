"""One name and one type per concept; a wrong option is one error everywhere."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

import anychunk
from anychunk import options
from anychunk.errors import OptionError, TargetExistsError
from anychunk.xarray_engine import DECODERS
from tests.support import public_options

ROOT = Path(__file__).parents[1]
FUNCTIONS = public_options.functions() | public_options.for_authors()
OF_OBJECTS = {
    "anychunk.Group.image": "anychunk.open_group(anything).image",
    "anychunk.GroupIndex.save": "anychunk.index(anything).save",
    "anychunk.GroupIndex.to_virtualizarr": "anychunk.index(anything).to_virtualizarr",
    "anychunk.VirtualParser": "anychunk.VirtualParser",
}
"""How callers write what has a parameter `self`."""
NAMES = {
    *("chunk", "shard", "compression", "compression_level", "levels", "method", "overwrite"),
    *("workers", "executor", "progress", "storage", "target_storage", "like", "image", "level"),
    *("bbox", "window", "bands", "time"),
}
RETIRED = {
    *("block", "blocks", "tile", "tiled", "tile_dimensions", "downsample", "scheduler", "client"),
    *("preset", "band", "to", "compression_levels", "edge_handling", "tile_metadata", "threads"),
    *("block_size", "chunks", "shards", "num_workers", "resampling", "callback"),
}


def test_every_concept_has_one_name():
    listed = public_options.types().keys()
    assert listed >= NAMES
    assert not listed & RETIRED
    for command, known in public_options.commands().items():
        assert not known.keys() & RETIRED, command
        for parameter in known.values():
            assert len([name for name in parameter.opts if name.startswith("--")]) == 1, command


@pytest.mark.parametrize("name", public_options.types())
def test_every_option_has_one_type(name):
    assert len(set(public_options.types()[name].values())) == 1, public_options.types()[name]


def test_commands_have_the_names_of_python():
    """Options of commands that are not of Python are about the command itself."""
    own = {
        *("output", "as_json", "deep", "append", "keep_going", "option", "strict", "size", "at"),
        *("low", "high", "host", "port", "token", "memory", "allow_host", "origin", "open_browser"),
        *("allow_redirects", "open", "open_page", "verbose"),
    }
    known = {*public_options.types(), *own}
    for command, listed in public_options.commands().items():
        assert not listed.keys() - known, command


def positional(function):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]


def misspelt(function):
    """Return an option of a function, and the same with a letter missing."""
    own = set(options.names(function)) - {*DECODERS, "checkpoints"}
    name = max(sorted(own), key=len)
    return name, name[:-2] + name[-1]


def test_every_function_of_the_reference_is_here():
    here = FUNCTIONS.values()
    missing = [name for name, function in public_options.documented() if function not in here]
    assert not missing
    assert options.names(anychunk.GroupIndex.save).keys() == options.names(anychunk.save).keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_misspelt_option_is_an_error(name, tmp_path):
    """Before anything is read or written, with a suggestion."""
    function = FUNCTIONS[name]
    right, wrong = misspelt(function)
    if name.startswith("xarray"):
        np.save(tmp_path / "a.npy", np.zeros((2, 2)))
        with pytest.raises(OptionError, match=rf"'{wrong}'; did you mean '{right}'"):
            xarray.open_dataset(tmp_path / "a.npy", engine="anychunk", **{wrong: 1})
        return
    given = [None for p in positional(function) if p.default is p.empty]
    with pytest.raises(OptionError, match=rf"'{wrong}'; did you mean '{right}'") as caught:
        function(*given, **{wrong: 1})
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


MODULES = (
    *("anychunk", "anychunk.zarr.headers", "anychunk.formats.jnrrd", "anychunk.io.opening"),
    *("anychunk.limits", "anychunk.references.icechunk"),
)


def calls() -> dict[str, str]:
    """Return a call with a misspelt option for every function, by its name."""
    found = {}
    for name, function in FUNCTIONS.items():
        if name.startswith("xarray"):
            continue  # xarray's own signature takes any option
        count = len([p for p in positional(function) if p.default is p.empty])
        given = ["anything"] * (count - (name in OF_OBJECTS)) + [
            f"{misspelt(function)[1]}=anything"
        ]
        found[name] = f"{OF_OBJECTS.get(name, name)}({', '.join(given)})"
    return found


@pytest.fixture
def program(tmp_path):
    """A program of which every line but the first three has a misspelt option."""
    lines = ["from typing import Any", f"import {', '.join(MODULES)}", "anything: Any"]
    path = tmp_path / "program.py"
    path.write_text("\n".join([*lines, *calls().values(), ""]))
    return path, set(range(len(lines) + 1, len(lines) + 1 + len(calls())))


@pytest.mark.processes
def test_mypy_sees_misspelt_options(program):
    path, expected = program
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {
        int(n) for n in re.findall(r"program\.py:(\d+): error: Unexpected keyword", done.stdout)
    }
    assert found == expected, done.stdout + done.stderr


@pytest.mark.processes
def test_pyright_sees_misspelt_options(program):
    path, expected = program
    pyright = ROOT / "packages/anychunk-serve/viewer/node_modules/.bin/pyright"
    if not pyright.exists() or shutil.which("node") is None:
        pytest.skip("pyright is not installed; .ci/install-tools installs it with npm")
    command = [str(pyright), "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    problems = json.loads(done.stdout)["generalDiagnostics"]
    found = {
        p["range"]["start"]["line"] + 1 for p in problems if p.get("rule") == "reportCallIssue"
    }
    assert found == expected, done.stdout


def test_completion_sees_every_option():
    for name, function in FUNCTIONS.items():
        if hasattr(function, "__wrapped__"):
            shown = inspect.signature(function).parameters
            assert options.names(function).keys() <= shown.keys(), name
            assert all(p.kind is not p.VAR_KEYWORD for p in shown.values()), name


WRONG = {
    "a.zarr": {"shard": "no", "predictor": "none", "edges": "cropped", "external": True},
    "a.tif": {"shard": (8, 8), "edges": "cropped", "external": True, "also_zarr": True},
    "a.n5": {"shard": (8, 8), "predictor": "none", "like": "cloud", "progress": print},
    "a.jnrrd": {"shard": (8, 8), "target_storage": {}, "slices": True, "also_zarr": True},
    "a.nrrd": {"shard": (8, 8), "chunk": (8, 8), "levels": 2, "external": True},
}


@pytest.mark.parametrize(
    ("target", "name"), [(target, name) for target, given in WRONG.items() for name in given]
)
def test_an_option_that_a_target_does_not_have_is_refused_by_name(tmp_path, target, name):
    if (target, name) == ("a.zarr", "shard"):
        pytest.skip("a value: the test below")
    with pytest.raises(OptionError, match=f"'{name}'"):
        anychunk.write(np.zeros((8, 8), "u1"), tmp_path / target, **{name: WRONG[target][name]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["a.zarr", "a.tif", "a.n5", "a.jnrrd", "a.nrrd"])
@pytest.mark.parametrize(
    "wrong", [{"compression": "nope"}, {"compression": "gzip", "compression_level": 99}], ids=str
)
def test_a_wrong_value_is_refused_before_anything_is_written(tmp_path, target, wrong):
    with pytest.raises(OptionError, match=r"compression|level"):
        anychunk.write(np.zeros((8, 8), "u1"), tmp_path / target, **wrong)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("target", ["a.zarr", "a.tif", "a.ome.tif", "a.n5", "a.jnrrd", "a.nrrd"])
def test_no_file_is_replaced_without_overwrite(tmp_path, target):
    before, after = np.zeros((8, 8), "u1"), np.ones((8, 8), "u1")
    anychunk.write(before, tmp_path / target)
    with pytest.raises(TargetExistsError, match="overwrite") as caught:
        anychunk.write(after, tmp_path / target)
    assert isinstance(caught.value, FileExistsError)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / target)[...], before)
    anychunk.write(after, tmp_path / target, overwrite=True)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / target)[...], after)


@pytest.mark.parametrize("target", ["a.zarr", "a.tif", "a.ome.tif", "a.n5", "a.jnrrd", "a.nrrd"])
@pytest.mark.parametrize("kind", ["file", "link"])
@pytest.mark.parametrize("how", ["write", "convert"])
def test_nothing_else_is_replaced_either(tmp_path, target, kind, how):
    """A file that is not of the format, or a symbolic link to nothing."""
    path, values = tmp_path / "out" / target, np.ones((8, 8), "u1")
    path.parent.mkdir()
    np.save(tmp_path / "source.npy", values)
    path.write_bytes(b"junk") if kind == "file" else path.symlink_to("nowhere")

    def call(**given):
        if how == "write":
            anychunk.write(values, path, **given)
        else:
            anychunk.convert(tmp_path / "source.npy", path, **given)

    with pytest.raises(TargetExistsError):
        call()
    assert [*path.parent.glob(f"{target}*")] == [path]
    assert path.read_bytes() == b"junk" if kind == "file" else path.is_symlink()
    call(overwrite=True)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], values)


def test_a_group_with_datasets_does_not_become_one(tmp_path):
    anychunk.write(np.zeros((8, 8), "u1"), tmp_path / "a.n5/first")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(TargetExistsError):
        anychunk.write(np.ones((8, 8), "u1"), tmp_path / "a.n5")
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    anychunk.write(np.ones((8, 8), "u1"), tmp_path / "a.n5/second")  # a container holds several


@pytest.mark.parametrize("target", ["a.json", "a.parquet", "a.icechunk"])
def test_no_index_is_replaced_without_overwrite(tmp_path, target):
    for n in (1, 2):
        np.save(tmp_path / f"{n}.npy", np.full((2, 2), n))
    node = anychunk.index(tmp_path / "1.npy")
    node.save(tmp_path / target)
    other = [tmp_path / "2.npy"]
    for save in (
        lambda **given: anychunk.index(tmp_path / "2.npy").save(tmp_path / target, **given),
        lambda **given: anychunk.index_to(other, tmp_path / target, combine="group", **given),
    ):
        with pytest.raises(FileExistsError, match="overwrite"):
            save()
        save(overwrite=True)
    (path,) = (i.levels[0] for i in anychunk.model.images.images(anychunk.index(tmp_path / target)))
    assert anychunk.open(tmp_path / target)[path][0, 0] == 2


def test_the_page_of_options_has_all():
    page = (ROOT / "docs/reference/options.md").read_text("utf-8")
    assert public_options.table() in page
