"""`specs/vectors/plain.py`: three codecs in 40 statements, by the pages alone, pass the vectors."""

import ast
import base64
import importlib.util
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[2] / "specs" / "vectors"
FILE = VECTORS / "plain.py"


@pytest.fixture(scope="module")
def plain():
    spec = importlib.util.spec_from_file_location("plain", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(name):
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))


def result(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except (ValueError, TypeError):
        return None


def is_expected(found, expected):
    """Compare a value with its JSON, as `specs/vectors/README.md` says."""
    if isinstance(expected, list):
        return any(is_expected(found, one) for one in expected)
    if expected is None or found is None:
        return found is expected
    if isinstance(found, str) or found != found:
        return expected == "NaN"
    if isinstance(expected, str):
        return found == float(expected)
    if expected == 0 and math.copysign(1, expected) < 0:
        return isinstance(found, float) and found == 0
    return found == Fraction(expected)


def test_it_is_short_and_needs_nothing():
    tree = ast.parse(FILE.read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {"base64", "math", "fractions"}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [n for f in functions for n in ast.walk(f) if isinstance(n, ast.stmt)]
    is_docstring = [isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in found]
    assert len(found) - sum(is_docstring) <= 40


def test_cast_value(plain):
    vectors, count, wrong = load("cast_value"), 0, []
    for group in vectors["groups"]:
        pairs = group.get("scalar_map", ())
        for numbers, out in group["out"]:
            for number, (one, expected) in itertools.product(
                numbers, zip(group["in"], out, strict=True)
            ):
                options = vectors["configurations"][number]
                found = result(
                    plain.cast_value, plain.value(one), group["target"], scalar_map=pairs, **options
                )
                count += 1
                if not is_expected(found, expected):
                    wrong.append((group["source"], group["target"], options, one, expected, found))
    assert wrong == []
    assert count == vectors["cases"] > 30_000


def test_scale_offset(plain):
    vectors, count, wrong = load("scale_offset"), 0, []
    for group in vectors["groups"]:
        options = {key: group[key] for key in ("offset", "scale") if key in group}
        for way in ("encode", "decode"):
            for one, expected in zip(group[way]["in"], group[way]["out"], strict=True):
                given = plain.value(one), way, group["data_type"]
                found = result(plain.scale_offset, *given, **options)
                count += 1
                if not is_expected(found, expected):
                    wrong.append((*given, options, expected, found))
    assert wrong == []
    assert count == vectors["cases"]


def test_pad(plain):
    vectors = load("pad")
    for case in vectors["cases"]:
        options = case["configuration"]
        decoded, encoded = (base64.b64decode(case[key]) for key in ("decoded", "encoded"))
        assert plain.pad(decoded, "encode", **options) == encoded
        assert plain.pad(encoded, "decode", **options) == decoded
        if "too_short" in case:
            short = base64.b64decode(case["too_short"])
            assert result(plain.pad, short, "decode", **options) is None
    assert [
        c for c in vectors["refused"] if result(plain.pad, b"", "encode", **c) is not None
    ] == []
