"""`specs/CLAUSES.md`: the tests that it names exist, and rulings give a reason."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in (ROOT / "specs/CLAUSES.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| clause")
]


def functions_of(file):
    """Return the names of the functions of a file."""
    tree = ast.parse(file.read_text("utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_there_are_all_five_documents():
    assert len(ROWS) > 100
    text = (ROOT / "specs/CLAUSES.md").read_text("utf-8")
    assert re.findall(r"^## (\d)", text, re.MULTILINE) == list("12345")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_the_named_test_exists(row):
    clause, here, named = row
    path, _, test = named.strip("` |").partition("::")
    file = ROOT / "tests" / path
    assert clause
    assert file.exists(), path
    assert test in functions_of(file), named
    if "**ruling**" in here:
        assert len(here.split("**ruling**: ")[1]) > 10
