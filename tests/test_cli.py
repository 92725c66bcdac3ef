import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.cli import main


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4), "uint16"))
    return str(tmp_path / "a.npy")


def run(capsys, *arguments):
    """Run the command line; give (exit code, stdout, stderr)."""
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


def test_module_runs(file):
    done = subprocess.run(
        [sys.executable, "-m", "anychunk", "info", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "0/0" in done.stdout


@pytest.mark.parametrize("command", ["info", "convert", "verify", "thumb"])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{tmp}/none.tif", "no such file"),
        ("{tmp}", "a folder of none of the formats"),
        ("{tmp}/empty", "empty"),
        ("{tmp}/text", "begins with"),
        ("{tmp}/locked.tif", "Permission denied"),
        ("http://127.0.0.1:9/a.tif", "127.0.0.1"),
        ("gopher://host/a.tif", "gopher"),
    ],
)
def test_every_command_fails_on_one_line(capsys, tmp_path, monkeypatch, command, target, words):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello\nworld")
    locked = tmp_path / "locked.tif"
    locked.write_bytes(b"II*\0")
    if words == "Permission denied":
        # root may read everything, so the system's answer is put in its mouth
        real = Path.open

        def denied(self, *arguments, **options):
            if self.name == "locked.tif":
                raise PermissionError(13, "Permission denied", str(self))
            return real(self, *arguments, **options)

        monkeypatch.setattr(Path, "open", denied)
    out = [str(tmp_path / "out.zarr")] if command == "convert" else []
    with limits.override(retries=0, retry_s=0.1):
        code, printed, err = run(capsys, command, target.format(tmp=tmp_path), *out)
    assert (code, printed) == (2, "")
    assert err.count("\n") == 1
    assert words in err
    assert not (tmp_path / "out.zarr").exists()


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
