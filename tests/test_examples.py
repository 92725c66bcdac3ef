"""The examples, the README and the documentation's Python run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks():
    for page in PAGES:
        for number, code in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        ):
            yield pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")


def run(arguments, folder):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::UserWarning", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example(example, tmp_path):
    assert run([example], tmp_path)


@pytest.mark.parametrize("code", list(blocks()))
def test_block(code, tmp_path):
    run(["-c", code], tmp_path)
