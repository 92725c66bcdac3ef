"""Tests wait for conditions, not for times: a busy machine may be slow anywhere."""

import ast
from pathlib import Path

import pytest

from tests.support.patience import wait_until

ROOT = Path(__file__).parents[2]
TESTS = [ROOT / "tests", *ROOT.glob("packages/*/tests")]
WAITS = {"wait", "join", "result", "communicate", "settimeout", "timeout", "set_default_timeout"}
"""Functions whose first argument limits a wait, or does nothing else but wait."""
CLOCKS = {"time", "monotonic", "perf_counter", "perf_counter_ns", "monotonic_ns", "sleep"}
PAGE_CLOCKS = {"wait_for_timeout"}
ALLOWED = {
    "patience.py": "the one place that polls",
    "http_server.py": "latency of a server that a benchmark asks for",
    "proxy.py": "the same",
}


def number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def breaches(tree: ast.AST) -> list[str]:
    """Return the places where a test reads a clock, sleeps, or limits a wait by a number."""
    found = []
    nodes = list(ast.walk(tree))
    yields = {
        node.func
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and ast.unparse(node) == "asyncio.sleep(0)"
    }
    for node in nodes:
        if node in yields:
            continue
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS | PAGE_CLOCKS:
            is_time = isinstance(node.value, ast.Name) and node.value.id in ("time", "asyncio")
            if is_time or node.attr in PAGE_CLOCKS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        limits = [k.value for k in node.keywords if k.arg == "timeout"]
        limits += node.args[:1] if name in WAITS else []
        if any(number(limit) for limit in limits):
            found.append(f"line {node.lineno}: {ast.unparse(node)[:80]}")
    return found


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1)",
        "await asyncio.sleep(0.1)",
        "start = time.perf_counter()",
        "process.wait(10)",
        "subprocess.run(command, timeout=60)",
        "pytest.mark.timeout(20)",
        "page.wait_for_timeout(100)",
    ],
)
def test_breaches_are_found(code):
    assert breaches(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "process.wait(PATIENCE_S)",
        "await asyncio.sleep(0)",
        "'/'.join(parts)",
        "time.process_time()",
    ],
)
def test_other_code_is_not(code):
    assert not breaches(ast.parse(code))


def test_waits_are_for_conditions():
    found = {
        path.relative_to(ROOT).as_posix(): breaches(ast.parse(path.read_text("utf-8")))
        for folder in TESTS
        for path in folder.rglob("*.py")
        if path.name not in ALLOWED
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_wait_ends_with_its_condition():
    calls = iter([False, 0, "yes"])
    wait_until(lambda: next(calls))
    assert next(calls, None) is None


def test_a_wait_in_vain_fails(monkeypatch):
    monkeypatch.setattr("tests.support.patience.PATIENCE_S", 0)
    with pytest.raises(AssertionError):
        wait_until(lambda: False)
