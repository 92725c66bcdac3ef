"""What commands print: JSON by documented schemas, tables, `-q` and `-v`, and completions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import demo
from anychunk.cli import main
from anychunk.cli.commands import NOT_HERE, app
from tests.project.test_import import SLOW
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    file.name.partition(".")[0]: json.loads(file.read_text("utf-8"))
    for file in (ROOT / "specs/commands").glob("*.schema.json")
}


def run(capsys, *arguments):
    """Run the command line; return (exit code, stdout, stderr)."""
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return caught.value.code or 0, printed.out, printed.err


@pytest.fixture
def files(tmp_path):
    values = np.arange(3 * 64 * 80, dtype="uint16").reshape(3, 64, 80)
    tifffile.imwrite(
        tmp_path / "a.ome.tif", values, tile=(32, 32), photometric="minisblack",
        metadata={"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP", "RFP"]},
                  "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 1.0,
                  "PhysicalSizeYUnit": "µm"},
    )  # fmt: skip
    with tifffile.TiffWriter(tmp_path / "p.tif") as file:
        file.write(values[0], tile=(32, 32), subifds=1)
        file.write(values[0, ::2, ::2], tile=(32, 32), subfiletype=1)
        file.write(values[1, :32, :48], tile=(32, 32))
    np.save(tmp_path / "b.npy", values)
    (tmp_path / "bad.tif").write_bytes(b"II*\0")
    return tmp_path


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("flags", "is_shown"), [((), True), (("-q",), False)])
def test_warnings_are_one_line(tmp_path, monkeypatch, capsys, flags, is_shown):
    monkeypatch.setattr("anychunk.archive.LARGE_GROUP", 1)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.zeros((4, 4)))
    target = tmp_path / "c.icechunk"
    code, _, err = run(
        capsys, *flags, "index", f"{tmp_path}/*.npy", "-o", target, "--combine", "group"
    )
    assert code == 0, err
    lines = [line for line in err.splitlines() if "warning" in line.lower()]
    assert len(lines) == is_shown
    assert all(line.startswith("anychunk: warning: ") for line in lines)


def test_there_is_a_schema_for_every_command():
    names = {command.callback.__name__ for command in app.registered_commands}
    assert set(SCHEMAS) == {*names, *NOT_HERE}
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [
        ("info", ["{}/a.ome.tif"], 0),
        ("info", ["{}/a.ome.tif", "{}/b.npy"], 0),
        ("info", ["{}/a.ome.tif", "{}/bad.tif"], 1),
        ("info", ["{}/a.ome.tif", "{}/b.npy", "--deep"], 0),
        ("index", ["{}/p.tif", "-o", "{}/p.json"], 0),
        ("index", ["{}/p.tif", "{}/bad.tif", "-o", "{}/q.json", "--keep-going"], 1),
        ("convert", ["{}/p.tif", "{}/p.zarr", "--verify"], 0),
        ("convert", ["{}/b.npy", "{}/p.ome.tif", "--axes", "zyx"], 0),
        ("convert", ["{}/b.npy", "{}/b.n5"], 0),
        ("verify", ["{}/p.tif", "--against", "tifffile"], 0),
        ("verify", ["{}/p.tif", "{}/bad.tif"], 1),
        ("thumb", ["{}/p.tif", "-o", "{}/p.png"], 0),
        ("thumb", ["{}/a.ome.tif", "-o", "{}/p.png", "--window", "0:32,:40", "--level", "0"], 0),
        ("thumb", ["{}/a.ome.tif", "-o", "{}/p.png", "--bands", "GFP,0"], 0),
        ("demo", ["{}/demo"], 0),
        ("formats", [], 0),
        ("codecs", [], 0),
    ],
)
def test_json_has_the_form_that_is_documented(capsys, files, command, arguments, code):
    given = [a.format(files) for a in arguments]
    found, out, _ = run(capsys, command, *given, "--json")
    assert found == code
    # one document, in strict JSON
    document = json.loads(out, parse_constant=pytest.fail)
    jsonschema.validate(document, SCHEMAS[command])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("text", SCHEMAS[command])


@pytest.mark.parametrize(("name", "arrays"), [("scene.tif", 3), ("cells.ome.tif", 1)])
def test_counts_are_those_that_the_schemas_describe(capsys, tmp_path, name, arrays):
    """Coordinates are not counted by `index`, `verify` or `convert`."""
    list(demo.write(tmp_path))
    file = tmp_path / name
    _, out, _ = run(capsys, "index", file, "-o", tmp_path / "a.json", "--json")
    assert json.loads(out)["arrays"] == arrays
    assert SCHEMAS["index"]["properties"]["arrays"]["description"].endswith("without coordinates.")
    _, out, _ = run(capsys, "verify", file, "--json")
    assert json.loads(out)["arrays"] == arrays
    _, out, _ = run(capsys, "convert", file, tmp_path / "a.zarr", "--json")
    assert json.loads(out)["arrays"] == arrays


def test_several_files_are_a_table(capsys, files):
    code, out, err = run(capsys, "info", files / "a.ome.tif", files / "b.npy", files / "p.tif")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if str(files) in line]
    assert len(rows) == 3
    assert "tiff" in rows[0]
    assert "micrometer" in rows[0]
    assert "npy" in rows[1]
    head = out.split("\n")[1].split()
    assert head[:4] == ["file", "format", "size", "images"]
    assert rows[2][rows[2].index("tiff") + 3] == "2", "two images"


def test_a_pattern_is_expanded(capsys, files):
    code, out, _ = run(capsys, "info", f"{files}/[ab].*", "--json")
    assert code == 0
    assert [Path(one["source"]).name for one in json.loads(out)] == ["a.ome.tif", "b.npy"]
    code, out, _ = run(capsys, "info", f"{files}/b.*", "--json")
    assert json.loads(out)["format"] == "npy"
    code, _, err = run(capsys, "info", f"{files}/none.*")
    assert code == 2
    assert err.count("\n") == 1


def test_a_file_that_does_not_open_does_not_stop_the_others(capsys, files):
    code, out, err = run(capsys, "info", files / "bad.tif", files / "b.npy")
    assert code == 1
    assert "does not open" in out
    assert "npy" in out
    assert err.startswith("anychunk: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["info", "convert", "verify", "thumb", "index"])
def test_help_has_exit_codes_and_no_types_of_flags(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Exit codes: 0 done; 1 " in out
    assert "-q" in out
    assert "<bool>" not in out
    assert "--verify / --no-verify" in out or command != "convert"


@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet(capsys, files, flag):
    for arguments in (
        ["convert", files / "p.tif", files / "out.zarr", "--overwrite"],
        ["verify", files / "p.tif"],
        ["thumb", files / "p.tif", "-o", files / "p.png", "--overwrite"],
        ["index", files / "p.tif", "-o", files / "p.json", "--overwrite"],
    ):
        assert run(capsys, flag, *arguments) == (0, "", "")
        assert run(capsys, *arguments, "--json", flag)[1]
    code, out, _ = run(capsys, "verify", files / "bad.tif", files / "p.tif", flag)
    assert code == 1
    assert "bad.tif" in out
    assert "p.tif: good" not in out


def test_verbose(capsys, files):
    code, _, err = run(capsys, "verify", files / "p.tif", "-v")
    assert code == 0
    assert "processor time" in err
    code, _, err = run(capsys, "convert", files / "p.tif", files / "v.zarr", "-v", "--image", "0")
    assert code == 0
    assert "0/image: 64 x 80 uint16" in err
    _, _, plain = run(capsys, "info", files / "bad.tif")
    code, _, err = run(capsys, "info", files / "bad.tif", "--verbose")
    assert code == 2
    assert err.startswith(plain)


def test_flags_after_two_dashes_are_names_of_files(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("-v", np.zeros((2, 2)))
    Path("-v.npy").rename("-v")
    code, out, _ = run(capsys, "info", "--json", "--", "-v")
    assert code == 0
    assert json.loads(out)["format"] == "npy"


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        (["--window", "10:40,:50"], (3, 30, 50)),
        (["--bands", "GFP,0"], (2, 64, 80)),
        (["--bands", "1:3"], (2, 64, 80)),
        (["--bands", "RFP", "--window", "1:,2:"], (63, 78)),
        (["--bbox", "-5,-5,4.75,9.5"], (3, 10, 10)),
        (["--level", "-1"], (3, 64, 80)),
    ],
)
def test_parts_by_the_command_line(capsys, files, arguments, shape):
    target = files / "part.zarr"
    code, _, err = run(capsys, "convert", files / "a.ome.tif", target, "--verify", *arguments)
    assert (code, err) == (0, "")
    assert anychunk.open_array(target).shape == shape


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bbox", "1,2,3"], ["'1,2,3'", "XMIN,YMIN,XMAX,YMAX"]),
        (["--bbox", "a,b,c,d"], ["XMIN,YMIN,XMAX,YMAX"]),
        (["--window", "1,2"], ["'1,2'", "Y0:Y1,X0:X1"]),
        (["--window", "900:901,0:1"], ["64 x 80"]),
        (["--bands", "CY5"], ["'CY5'", "0 DAPI, 1 GFP, 2 RFP"]),
        (["--time", "2026"], ["axis t"]),
        (["--level", "7"], ["level 7"]),
    ],
)
@pytest.mark.parametrize("command", ["convert", "thumb", "verify"])
def test_selections_that_fail_are_one_line(capsys, files, command, arguments, words):
    target = {"convert": [files / "x.tif"], "thumb": ["-o", files / "x.png"], "verify": []}
    code, out, err = run(capsys, command, files / "a.ome.tif", *target[command], *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not list(files.glob("*x.*"))


SHELLS = {
    "bash": lambda words: {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
    "zsh": lambda words: {"_TYPER_COMPLETE_ARGS": " ".join(words)},
    "fish": lambda words: {
        "_TYPER_COMPLETE_ARGS": " ".join(words),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}
"""How each shell passes the words before the cursor."""


@pytest.fixture
def complete(capsys, monkeypatch):
    """Return a function that asks for completions of the last word, as a shell does."""

    def ask(shell, *words):
        for name, value in SHELLS[shell](["anychunk", *words]).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("_ANYCHUNK_COMPLETE", f"complete_{shell}")
        return run(capsys)[1]

    return ask


def offered(shell, out):
    """Return the words among completions, without explanations."""
    if shell == "zsh":
        lines = out.replace("_arguments '*: :((", "").splitlines()
        return {line.split(":")[0].strip(" \"'()") for line in lines}
    return {line.split("\t")[0].strip() for line in out.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected", "absent"),
    [
        (["thumb", "{}/p.tif", "--image", ""], ["0", "1"], ["2"]),
        (["thumb", "{}/p.tif", "--level", ""], ["0", "1"], ["2"]),
        (["convert", "{}/p.tif", "--image", "1", "--level", ""], ["0"], ["1", "2"]),
        (["verify", "{}/a.ome.tif", "--bands", "G"], ["GFP"], ["DAPI", "0"]),
        (["verify", "{}/a.ome.tif", "--bands", "GFP,D"], ["GFP,DAPI"], []),
        (["thumb", "{}/bad.tif", "--image", ""], [], ["0"]),
        (["thumb", "{}/none.tif", "--image", ""], [], ["0"]),
        (["thumb", "http://127.0.0.1:9/a.tif", "--image", ""], [], ["0"]),
        (["convert", "--like", "ome"], ["ome-zarr"], ["cloud"]),
        (["verify", "--against", "ti"], ["tifffile"], ["rasterio"]),
    ],
)
def test_completions(files, complete, shell, words, expected, absent):
    found = offered(shell, complete(shell, *(w.format(files) for w in words)))
    assert set(expected) <= found
    assert not set(absent) & found


@pytest.mark.processes
def test_completing_does_not_load_zarr(files):
    """The shell waits: nothing is loaded but what reads the structure of the file."""
    code = """
import sys
from anychunk.cli import main
try:
    main([])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
    words = SHELLS["bash"](["anychunk", "thumb", str(files / "b.npy"), "--image", ""])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words, "_ANYCHUNK_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == ["0"]
    loaded = set(done.stderr.splitlines()[-1].split())
    assert not loaded & (SLOW - {"typer", "pydantic", "rich", "imagecodecs", "importlib.metadata"})


COMMANDS = ("info", "index", "convert", "verify", "thumb", "formats", "codecs")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_types_of_python(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0
    assert not re.search(r"<(str|int|list|float|bool)|\{", printed), printed


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGPIPE")
def test_a_reader_that_has_seen_enough(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((40, 40), "uint8"))
    names = ["a.tif"] * 200
    process = subprocess.Popen(
        [sys.executable, "-m", "anychunk", "info", "--deep", "--json", *names],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.read(1) == b"["
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE_S) == 141


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_an_index_does_not_replace_a_pipe(tmp_path, capsys):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((40, 40), "uint8"))
    os.mkfifo(tmp_path / "pipe")
    code, _, err = run(
        capsys, "index", str(tmp_path / "a.tif"), "-o", str(tmp_path / "pipe"), "--format",
        "kerchunk", "--overwrite",
    )  # fmt: skip
    assert (code, "not a regular file" in err) == (2, True)
    assert (tmp_path / "pipe").is_fifo()


def test_one_is_singular(tmp_path, capsys):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((40, 40), "uint8"))
    source = str(tmp_path / "a.tif")
    assert ": 1 array, " in run(capsys, "convert", source, str(tmp_path / "b.tif"))[1]
    assert "; 1 array, 1 chunk (" in run(capsys, "verify", source)[1]
    shown = run(capsys, "index", source, "-o", str(tmp_path / "a.json"))[1]
    assert shown.startswith("1 file, 1 array, 1 chunk, ")


def test_extensions_of_targets_are_named(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.zeros((8, 8)))
    _, _, err = run(capsys, "convert", str(tmp_path / "a.npy"), str(tmp_path / "a.xyz"))
    assert ".zarr .tif .ome.tif .n5" in err
