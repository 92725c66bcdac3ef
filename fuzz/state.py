"""What was run, kept outside the repository and summed over runs."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

BAD = (
    "foreign",
    "inconsistent",
    "death",
    "memory",
    "time",
    "hang",
    "differs",
    "ours alone",
    "vanished",
)
"""Outcomes that are findings, unless they are explained."""


def default_folder() -> Path:
    """Return the folder of the state: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "anychunk-fuzz"


class Run:
    """One run: a file of its own, so that several may run at once."""

    def __init__(self, folder: Path, **about: Any) -> None:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%S")
        self.path = folder / "runs" / f"{stamp}-{os.getpid()}.json"
        self.about = {"started": stamp, **about}
        self.counts: dict[str, Counter[str]] = {}
        self.start = time.monotonic()
        self.written = 0.0

    def add(self, format: str, outcome: str) -> None:
        """Count one input."""
        self.counts.setdefault(format, Counter())[outcome] += 1

    def inputs(self) -> int:
        return sum(sum(counts.values()) for counts in self.counts.values())

    def save(self, *, following: int, cpu_s: float, workers: int) -> None:
        """Write the file, whole or not at all."""
        elapsed = time.monotonic() - self.start
        data = self.about | {
            "next": following,
            "inputs": self.inputs(),
            "core_seconds": round(cpu_s, 1),
            "worker_seconds": round(elapsed * workers, 1),
            "outcomes": self.counts,
        }
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(data, indent=1))
        beside.replace(self.path)
        self.written = time.monotonic()


def runs(folder: Path) -> list[dict[str, Any]]:
    """Return all runs so far."""
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]


def following(folder: Path, seed: int) -> int:
    """Return the number of the first case of a seed that was not run."""
    return max((run["next"] for run in runs(folder) if run["seed"] == seed), default=0)


def summary(every: list[dict[str, Any]]) -> str:
    """Return a table: a line per format, a column per outcome."""
    total: dict[str, Counter[str]] = {}
    for run in every:
        for name, counts in run["outcomes"].items():
            total.setdefault(name, Counter()).update(counts)
    names = sorted({name for counts in total.values() for name in counts})
    rows = [["format", "inputs", *names]]
    for row in sorted(total):
        counts = total[row]
        rows.append([row, str(sum(counts.values())), *(str(counts[n]) for n in names)])
    sums = sum(total.values(), Counter())
    rows.append(["all", str(sum(sums.values())), *(str(sums[n]) for n in names)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    core = sum(run["core_seconds"] for run in every) / 3600
    worker = sum(run["worker_seconds"] for run in every) / 3600
    lines.append(
        f"{len(every)} runs, {core:.2f} core-hours of processor time, {worker:.2f} worker-hours"
    )
    return "\n".join(lines)
