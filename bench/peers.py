"""Peers in separate environments, made by `.ci/environment make peers`; one process of each."""

import atexit
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Elsewhere
from bench.worker import checksum

ROOT = Path(__file__).parents[1]
PLACES = {
    "virtual-tiff": ".venv-peers",
    "zarr-n5": ".venv-peers",
    "async-geotiff": ".venv-peers",
    "osml-imagery-io": ".venv-osml",
}


@cache
def process(place: str) -> subprocess.Popen[str]:
    python = ROOT / place / "bin" / "python"
    started = subprocess.Popen(
        [python, "-W", "ignore", ROOT / "bench" / "worker.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(started.kill)
    return started


def ask(peer: str, path: str, window: Any = None, *, checks: bool = False) -> dict[str, Any]:
    worker = process(PLACES[peer])
    request = {"peer": peer, "path": path, "window": window, "checks": checks}
    worker.stdin.write(json.dumps(request) + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline() or '{"error": "its process ended"}')


def calls(
    names: tuple[str, ...], path: str, truth: np.ndarray, wrong: dict[str, str], window: Any = None
) -> dict[str, Callable[[], Elsewhere]]:
    """Return a call for each peer that reads this file correctly; record the others in `wrong`."""
    found = {}
    expected = checksum(truth)
    for name in names:
        if not (ROOT / PLACES[name] / "ready").exists():
            print(f"{name} is not measured: run `.ci/environment make peers`", file=sys.stderr)
            continue
        answer = ask(name, path, window, checks=True)
        if "error" in answer:
            wrong[name] = answer["error"]
        elif answer["checksum"] != expected:
            wrong[name] = "other pixels"
        else:
            found[name] = lambda name=name: Elsewhere(ask(name, path, window)["seconds"])
    return found
