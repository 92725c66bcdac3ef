import ast
import math
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk import limits
from anychunk.cli import main
from anychunk.errors import LimitError, OptionError


def test_override_is_undone():
    before = limits.get()
    with limits.override(chunk_bytes=5) as now:
        assert limits.get() is now
        assert now.chunk_bytes == 5
    assert limits.get() is before


def test_chunk_size():
    limits.check_chunk(limits.get().chunk_bytes, where="x")
    with pytest.raises(LimitError, match="x: a chunk of .* is over the limit"):
        limits.check_chunk(limits.get().chunk_bytes + 1, where="x")


def test_expansion():
    limits.check_chunk(limits.get().free_bytes, where="x", stored=1)
    limits.check_chunk(100 * limits.MIB, where="x", stored=limits.MIB)
    with pytest.raises(LimitError, match="x: 10 stored bytes announce a chunk"):
        limits.check_chunk(100 * limits.MIB, where="x", stored=10)


def test_header():
    with limits.override(header_bytes=10), pytest.raises(LimitError, match="11 bytes of header"):
        limits.check_header(11, where="x")


def test_values_are_numbers_with_units():
    for text, value in {
        "8GiB": 8 << 30, "512MiB": 512 << 20, "1e9": 10**9, "2k": 2000, "30": 30, "1.5 GB": 1.5e9,
    }.items():  # fmt: skip
        assert limits.parse("chunk_bytes", text, where="x") == ("chunk_bytes", value)
    assert limits.parse("retry_s", "2.5", where="x") == ("retry_s", 2.5)
    for name, text in [("chunk_bytes", "much"), ("chunk_bytes", "-1"), ("chunkbytes", "1")]:
        with pytest.raises(OptionError, match="x: .*(expected a number|there is no limit.*chunks)"):
            limits.parse(name, text, where="x")


def test_the_environment_sets_limits():
    found = limits.from_environment({"ANYCHUNK_LIMIT_CHUNKS": "2e9", "ANYCHUNK_DATA": "/x"})
    assert found == {"chunks": 2 * 10**9}
    with pytest.raises(OptionError, match="ANYCHUNK_LIMIT_CHUNK"):
        limits.from_environment({"ANYCHUNK_LIMIT_CHUNK": "1"})


def test_limits_are_read_from_the_environment_on_first_use(monkeypatch):
    monkeypatch.setattr(limits, "_current", None)
    monkeypatch.setenv("ANYCHUNK_LIMIT_RETRIES", "7")
    assert limits.get().retries == 7


@pytest.mark.parametrize("place", ["before", "after", "joined"])
def test_the_command_line_sets_limits(tmp_path, capsys, monkeypatch, place):
    monkeypatch.setattr(limits, "_current", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((64, 64), np.uint8), tile=(16, 16))
    command = ["info", str(tmp_path / "a.tif")]
    given = {
        "before": ["--limit", "chunks=3", *command],
        "after": [*command, "--limit", "chunks=3"],
        "joined": [*command, "--limit=chunks=3"],
    }[place]
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "--limit chunks=" in told
    assert "ANYCHUNK_LIMIT_CHUNKS=" in told
    with pytest.raises(SystemExit) as caught:
        main([*command, "--limit", "chunks=16"])
    assert not caught.value.code
    with pytest.raises(SystemExit) as caught:
        main([*command, "--limit", "chunks"])
    assert caught.value.code == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err


NAMES = [field.name for field in fields(limits.Limits)]


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_set_by_the_environment_and_by_an_option(name, monkeypatch):
    monkeypatch.setattr(limits, "_current", None)
    monkeypatch.setattr(os, "environ", {f"ANYCHUNK_LIMIT_{name.upper()}": "7"})
    assert getattr(limits.get(), name) == 7
    with pytest.raises(SystemExit) as caught:
        main(["formats", "--limit", f"{name}=9"])
    assert not caught.value.code
    assert getattr(limits.get(), name) == 9
    assert limits.from_environment(os.environ) == {name: 9}  # for processes that are started


@pytest.mark.parametrize(
    "given",
    ["nope=1", "=1", "header_bytes=-1", "header_bytes=abc", "header_bytes=", "header_bytes=1e999",
     "header_bytes=nan", "header_bytes=inf", "concurrency=0", "head_bytes=0", "concurrency=1e30",
     "head_bytes=1e30", "retries=1e30", "retry_s=1e30"],
)  # fmt: skip
def test_a_wrong_limit_is_one_line(given, capsys, monkeypatch):
    name, _, value = given.partition("=")
    variable = f"ANYCHUNK_LIMIT_{name.upper()}"
    for arguments, environment, where in (
        (["--limit", given], {}, f"--limit {given}"),
        ([], {variable: value}, variable),
    ):
        monkeypatch.setattr(limits, "_current", None)
        monkeypatch.setattr(os, "environ", environment)
        with pytest.raises(SystemExit) as caught:
            main(["formats", *arguments])
        assert caught.value.code == 2
        shown = capsys.readouterr()
        assert not shown.out
        (line,) = shown.err.splitlines()
        assert line.startswith(f"anychunk: {where}: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_value_is_refused_in_python(name):
    before = limits.get()
    for value in (-1, math.nan, "5", None, True):
        with pytest.raises(OptionError, match=name), limits.override(**{name: value}):
            pass
    assert limits.get() is before


def test_every_error_about_a_limit_says_how_to_raise_it():
    root = Path(__file__).parents[1]
    silent = []
    for path in (*root.glob("src/**/*.py"), *root.glob("packages/*/src/**/*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "LimitError":
                text = ast.unparse(call)
                if not any(word in text for word in ("how_to_raise", "advice", "too_long")):
                    silent.append(path.name)
    # limits of the server's memory and of dask, which are not among ours
    assert set(silent) <= {"box_reader.py", "lazy_arrays.py"}


def test_a_billion_chunks_that_are_objects_need_no_table(tmp_path):
    made = zarr.create_array(
        tmp_path / "z.zarr", shape=(256_000, 256_000), chunks=(8, 8), dtype="u1", fill_value=3
    )
    made[248_000:248_016, 80:90] = 7
    found = anychunk.open(tmp_path / "z.zarr")
    assert found.nchunks == 1_024_000_000
    np.testing.assert_array_equal(found[247_999:248_001, 78:82], [[3, 3, 3, 3], [3, 3, 7, 7]])
    with pytest.raises(LimitError, match="a list of its objects.*--limit chunks="):
        anychunk.index(tmp_path / "z.zarr").save(tmp_path / "z.json")
