import io
import json
import subprocess
import sys

import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.cli import commands, main
from tests.support import processes
from tests.support.patience import PATIENCE_S
from tests.support.permissions import unprivileged


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4), "uint16"))
    return str(tmp_path / "a.npy")


def run(capsys, *arguments):
    """Run the command line; return (exit code, stdout, stderr)."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code or 0
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_info(capsys, file):
    code, out, err = run(capsys, "info", file)
    assert (code, err) == (0, "")
    for word in ("npy", "0/0", "3 x 4", "uint16"):
        assert word in out


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_names_that_the_terminal_cannot_show(tmp_path, capsys, monkeypatch, encoding):
    """Output to a pipe is in the code page on Windows, which has few of all characters."""
    np.save(tmp_path / "日本.npy", np.zeros((3, 4), "uint16"))
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding))
    with pytest.raises(SystemExit) as caught:
        main(["info", str(tmp_path / "日本.npy")])
    sys.stdout.flush()
    assert not caught.value.code
    assert b"\\u65e5\\u672c.npy" in b"".join(pipe.getvalue().split())


def test_info_json(capsys, file):
    code, out, _ = run(capsys, "info", file, "--json")
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(anychunk.describe(file)))


@pytest.mark.parametrize("command", ["formats", "codecs"])
def test_tables(capsys, command):
    code, out, _ = run(capsys, command, "--json")
    assert code == 0
    rows = json.loads(out)
    assert {"formats": "npy", "codecs": "offset"}[command] in [row["name"] for row in rows]
    assert all(row["about"] for row in rows)
    code, out, _ = run(capsys, command)
    assert all(row["name"].rsplit("/", 1)[-1] in out for row in rows)


@pytest.mark.parametrize("target", ["{tmp}/none", "{tmp}", "{tmp}/empty", "{tmp}/text"])
def test_errors_are_one_line(capsys, tmp_path, target):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello\nworld")
    code, out, err = run(capsys, "info", target.format(tmp=tmp_path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("anychunk: ")


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["--debug", "info", str(tmp_path / "none")])


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert (code, out.strip()) == (0, anychunk.__version__)


@pytest.mark.parametrize(
    "command", ["info", "index", "convert", "verify", "thumb", "formats", "codecs"]
)
def test_help_has_an_example(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Example" in out


@pytest.mark.processes
def test_module_runs(file):
    done = subprocess.run(
        [sys.executable, "-m", "anychunk", "info", file],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "0/0" in done.stdout


@pytest.mark.parametrize("command", ["info", "convert", "verify", "thumb", "index"])
@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("{tmp}/none.tif", ["{tmp}/none.tif: no such file"]),
        ("{tmp}", ["{tmp}: ", "jnrrd jpeg2000 n5"]),
        ("{tmp}/empty", ["{tmp}/empty: ", "empty; "]),
        ("{tmp}/text", ["{tmp}/text", "hello", "anychunk formats"]),
        ("http://127.0.0.1:9/a.tif", ["http://127.0.0.1:9/a.tif: ", "network"]),
        ("gopher://host/a.tif", ["gopher", "s3 gs az http https"]),
    ],
)
def test_every_command_fails_on_one_line(capsys, tmp_path, command, target, values):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello\nworld")
    made = {"convert": [str(tmp_path / "out.zarr")], "index": ["-o", str(tmp_path / "out.json")]}
    out = made.get(command, [])
    with limits.override(retries=0, retry_s=0.1):
        code, printed, err = run(capsys, command, target.format(tmp=tmp_path), *out)
    assert (code, printed) == (2, "")
    assert err.count("\n") == 1
    assert all(value.format(tmp=tmp_path) in err for value in values), err
    assert ";" in err, "it says what to do"
    assert not list(tmp_path.glob("*out.*"))


@pytest.mark.processes
@pytest.mark.parametrize("command", ["info", "convert", "verify", "thumb"])
def test_a_file_without_permission(tmp_path, command):
    locked = tmp_path / "locked.tif"
    locked.write_bytes(b"II*\0")
    locked.chmod(0)
    out = ["out.zarr"] if command == "convert" else []
    arguments = [command, "locked.tif", *out]
    done = processes.run(unprivileged() + processes.COMMAND, arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("anychunk: locked.tif: Permission denied; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["nonsense"], ["'nonsense'", "see anychunk --help"]),
        (["info"], ["see anychunk info --help"]),
        (["info", "a", "--nope"], ["--nope", "see anychunk info --help"]),
        (["convert", "a.tif"], ["target", "see anychunk convert --help"]),
        (["convert", "{file}", "x.zarr", "--chunk", "8by8"], ["'8by8'", "512x512"]),
        (["convert", "{file}", "x.n5", "--option", "block"], ["'block'", "NAME=VALUE"]),
        (["index", "a.tif"], ["'--output'", "see anychunk index --help"]),
        (["index", "a.tif", "-o", "x.json", "--append"], ["--append", "kerchunk", ".icechunk"]),
        (["index", "a.tif", "-o", "x.json", "--combine", "pile"], ["'pile'", "stack concat"]),
        (["index", "a.tif", "-o", "x.json", "--copy", "all"], ["'all'", "never or needed"]),
        (["index", "{file}", "-o", "x.icechunk", "--layout", "osml"], ["--layout", "kerchunk"]),
        (["thumb", "{file}", "--at", "q=1"], ["'q'"]),
        (["thumb", "{file}", "--at", "z:1"], ["'z:1'", "AXIS=INDEX"]),
        (["thumb", "{file}", "--image", "7"], ["image 7", "1"]),
        (["convert", "{file}", "x.xyz"], ["x.xyz", ".zarr .tif .ome.tif .n5 .jnrrd"]),
        (["convert", "{file}", "x.n5", "--shard", "8x8"], ["x.n5", "shard"]),
    ],
)
def test_wrong_usage_is_one_line(capsys, file, arguments, values):
    code, out, err = run(capsys, *(a.format(file=file) for a in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("anychunk: ")
    assert all(value in err for value in values), err


def test_without_arguments_the_help_is_shown(capsys):
    code, out, err = run(capsys)
    assert code == 2
    assert "Usage" in out + err


def test_an_index_that_refers_elsewhere(capsys, tmp_path, file):
    (tmp_path / "kept").mkdir()
    kept = str(tmp_path / "kept" / "a.json")
    code, out, _ = run(capsys, "index", file, "-o", kept, "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary == {
        "index": kept, "files": 1, "arrays": 1, "chunks": 1, "stored_bytes": 24, "failures": {},
    }  # fmt: skip
    code, _, err = run(capsys, "info", kept)
    assert code == 2
    assert "--allow" in err
    grant = ["--allow", str(tmp_path)]
    for command, *more in (
        ("info",),
        ("verify",),
        ("thumb", "-o", str(tmp_path / "a.png")),
        ("convert", str(tmp_path / "a.zarr")),
        ("index", "-o", str(tmp_path / "again.icechunk")),
    ):
        code, _, err = run(capsys, command, kept, *more, *grant)
        assert code == 0, err


def test_deep_shows_attributes(capsys, file):
    code, out, _ = run(capsys, "info", file, "--deep")
    assert code == 0
    assert "fortran_order" in out


def test_completion_is_offered(capsys, monkeypatch):
    monkeypatch.setenv("_ANYCHUNK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "anychunk ver")
    monkeypatch.setenv("COMP_CWORD", "1")
    code, out, _ = run(capsys)
    assert code == 0
    assert out.split() == ["verify"]


@pytest.mark.parametrize(
    "arguments", [["serve"], ["serve", "a.tif", "--port", "3"], ["serve", "--help"]]
)
def test_a_package_that_is_not_installed(capsys, monkeypatch, arguments):
    monkeypatch.setattr(commands, "entry_points", lambda **_: ())
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert 'pip install "anychunk[serve]"' in err
    _, out, _ = run(capsys, "--help")
    assert "\n  serve " in out


def test_a_command_of_another_package(capsys, monkeypatch):
    def count(words: list[str], most: int = 3) -> int:
        """Count words.

        With --most, to a limit.
        """
        print(min(len(words), most))  # noqa: T201

    class Point:
        name = "count"

        def load(self):
            return count

    def points(group, name="count"):
        return [Point()] if (group, name) == ("anychunk.commands", "count") else []

    monkeypatch.setattr(commands, "entry_points", points)
    assert run(capsys, "count", "a", "b", "-q") == (0, "2\n", "")
    assert run(capsys, "count", "a", "b", "--most", "1")[:2] == (0, "1\n")
    code, _, err = run(capsys, "count")
    assert code == 2
    assert err.startswith("anychunk: missing argument")
    assert "anychunk count --help" in err
    assert "Count words." in run(capsys, "--help")[1]
    assert "Exit codes: 0 done; 1 " in run(capsys, "count", "--help")[1]
    assert run(capsys, "tally")[0] == 2
