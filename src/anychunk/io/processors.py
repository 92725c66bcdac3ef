"""How many processors this process may use: those of the machine, less what it is kept from.

A process can be bound to some of the processors (affinity: `taskset`, batch systems), and a
container can have a share of their time (the quota of a control group). More threads than that only
wait for each other.
"""

import math
import os
from functools import cache
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")
"""Where Linux describes the control groups of a process."""


def processors() -> int:
    """Return the number of threads that keep busy what this process may use; at least one.

    The affinity is asked for each time, because it may change; the quota is read once.
    """
    quota = _own_quota()
    allowed = _by_affinity()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


@cache
def _own_quota() -> float | None:
    return cgroup_quota()


def _by_affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS and Windows lack it
        return os.cpu_count() or 1


def cgroup_quota(proc: Path | None = None) -> float | None:
    """Return the processors' worth of time of this process's control groups; None if unlimited.

    The strictest of a group and its parents applies, in both versions of control groups.

    Parameters:
        proc: The folder that describes the process; for tests.
    """
    found = [_quota(folder) for folder in _folders(PROC if proc is None else proc)]
    return min((quota for quota in found if quota is not None), default=None)


def _folders(proc: Path) -> list[Path]:
    """Return the folders of the control groups that limit processor time, and of their parents."""
    try:
        groups = (proc / "cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (proc / "mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:  # not Linux, or hidden
        return []
    # "4:cpu,cpuacct:/a/b" in version 1, "0::/a/b" in version 2
    paths = {}
    for line in groups:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "cpu" in controllers.split(",") or (number == "0" and not controllers):
            paths["cgroup" if controllers else "cgroup2"] = path
    found = []
    for line in mounts:
        # proc(5): "36 35 98:0 /root /mount/point options … - type source super,options"
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in paths:
            continue
        if kind[0] == "cgroup" and "cpu" not in kind[2].split(","):
            continue
        root, point, own = fields[3], Path(fields[4]), PurePosixPath(paths[kind[0]])
        # inside a container, the mount shows the group itself, and its path may be that outside
        inside = own.relative_to(root) if own.is_relative_to(root) else PurePosixPath()
        found += [point / inside, *(point / parent for parent in inside.parents)]
    return found


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():  # version 2: "max 100000" or "150000 100000"
            quota, period = (folder / "cpu.max").read_text("utf-8").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text("utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text("utf-8").strip()
        microseconds, per = int(quota), int(period)
    except (OSError, ValueError):  # absent, or "max"
        return None
    return microseconds / per if microseconds > 0 and per > 0 else None
