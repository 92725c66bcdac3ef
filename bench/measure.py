"""Measure calls against each other: interleaved in one run, so that noise hits all alike."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Row:
    """One line of the report."""

    case: str
    ratio: float
    """How many times faster than the reference, unless `detail` says otherwise."""
    target: str
    detail: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


def best_of(calls: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Give the best time of each call in seconds, calls interleaved, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def medians(calls: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def cores() -> int:
    return os.cpu_count() or 1
