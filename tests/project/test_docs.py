"""Generated pages match the code, every page is in the navigation, and documents say what is true."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import anychunk
from anychunk import codecs
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
DIRECTIVE = re.compile(r"^::: (\S+)", re.MULTILINE)


def text(path):
    return (ROOT / path).read_text("utf-8")


@pytest.mark.processes
def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/generate-docs", "--check"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": (\S+\.md)", text("mkdocs.yml")))
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert pages == listed


def test_every_public_name_is_in_the_reference():
    page = text("docs/reference/python.md")
    documented = {name.removeprefix("anychunk.") for name in DIRECTIVE.findall(page)}
    assert documented | {"__version__"} >= set(anychunk.__all__)
    assert "anychunk.__version__" in page


def test_every_codec_class_is_in_the_reference():
    documented = set(DIRECTIVE.findall(text("docs/reference/codecs.md")))
    classes = [codecs.codec_class(name) for name in codecs.table()]
    assert documented >= {f"{c.__module__}.{c.__qualname__}" for c in classes if c is not None}


def test_every_name_in_the_reference_exists():
    names = [
        n for page in REFERENCE.glob("*.md") for n in DIRECTIVE.findall(page.read_text("utf-8"))
    ]
    assert names
    for name in names:
        assert resolve(name) is not None, name


def resolve(name):
    """Import the longest module that `name` begins with, and look up the rest in it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    return None


@pytest.mark.parametrize("name", ["packages", "layers"])
def test_architecture_has_the_layers_that_are_checked(name):
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (checked,) = [c["layers"] for c in contracts if c["name"] == name]
    block = re.search(rf"```{name}\n(.*?)```", text("ARCHITECTURE.md"), re.DOTALL)[1]
    # a line is the layer, then two or more spaces, then what it is for
    assert [re.split(r"\s{2,}", line)[0] for line in block.splitlines()] == checked
    assert len(checked) <= 12
