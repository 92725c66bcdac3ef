"""Compare the times of calls, interleaved in one run so that noise affects all alike."""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

OURS, BARE = "anychunk", "bare decoder"
ZARR_WORLD = ("virtual-tiff", "osml-imagery-io", "ManifestStore", "zarr-n5", "tifffile.aszarr")
"""Peers that also read through zarr; the targets against them are higher."""


class Times(dict[str, float]):
    """Best seconds by name, and the medians of the same rounds."""

    def __init__(self, rounds: Mapping[str, list[float]]) -> None:
        self.rounds = rounds
        super().__init__({name: min(values) for name, values in rounds.items()})
        self.medians = {name: statistics.median(values) for name, values in rounds.items()}


@dataclass
class Row:
    """One line of the report."""

    case: str
    ratio: float
    """The ratio to the reference, unless `detail` says otherwise."""
    target: str
    detail: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    medians: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    """Peers that do not run here or read other pixels, with the reason."""

    def __post_init__(self) -> None:
        if isinstance(self.seconds, Times):
            self.medians, self.seconds = self.seconds.medians, dict(self.seconds)

    def peers(self) -> dict[str, float]:
        return {name: s for name, s in self.seconds.items() if name not in (OURS, BARE)}

    def against(self, name: str) -> float:
        """Return how many times as fast as `name` we are; NaN if it was not measured."""
        return self.seconds.get(name, math.nan) / self.seconds.get(OURS, math.nan)


def best_of(calls: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> Times:
    """Time calls, interleaved, after one warm-up; every round begins with another call.

    What one leaves behind, in caches and free memory, is so not always the same one's to find.
    A call that runs in a separate process returns `Elsewhere`, the seconds that it took there.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    if hasattr(os, "sync"):
        os.sync()  # so that new files are not written back while others are read
    for call in calls.values():
        call()
    order = list(calls.items())
    for number in range(rounds):
        first = number % len(order)
        for name, call in order[first:] + order[:first]:
            start = time.perf_counter()
            found = call()
            spent = time.perf_counter() - start
            times[name].append(found.seconds if isinstance(found, Elsewhere) else spent)
            del found  # freed now, not during the next call
    return Times(times)


@dataclass
class Elsewhere:
    """Return the seconds that a call in another process took."""

    seconds: float


def compare(
    case: str,
    calls: Mapping[str, Callable[[], object]],
    target: float,
    *,
    rounds: int,
    wrong: dict[str, str] | None = None,
) -> Row:
    """Return a row that compares our time with the best peer's."""
    seconds = best_of(calls, rounds=rounds)
    row = Row(case, math.nan, f">= {target}", seconds=seconds, wrong=wrong or {})
    peers = row.peers()
    best = min(peers, key=lambda name: peers[name])
    row.ratio = row.against(best)
    row.detail = f"best peer {best}: " + milliseconds(seconds)
    return row


def milliseconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in seconds.items())


def cores() -> int:
    return os.cpu_count() or 1
