"""Affinity and control groups: with the real calls, and with files as Linux shows them."""

import os
import subprocess
import sys

import pytest

from anychunk.io import threads
from anychunk.io.threads import cgroup_quota

V2 = "0::/system.slice/job\n"
V1 = "5:cpuset:/\n4:cpu,cpuacct:/batch/job\n1:name=systemd:/\n"


def fake(folder, cgroup, mount, files):
    """Write the files of a process and of its control groups; return the folder of the process."""
    (folder / "proc").mkdir()
    (folder / "proc/cgroup").write_text(cgroup)
    root, kind, options = mount
    line = f"30 23 0:26 {root} {folder}/cg rw,nosuid shared:4 - {kind} cgroup {options}\n"
    other = f"31 23 0:27 / {folder}/none rw - tmpfs tmpfs rw\n"
    (folder / "proc/mountinfo").write_text(other + line)
    for name, text in files.items():
        path = folder / "cg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "proc"


def v1(quota, period=100000, folder=""):
    return {f"{folder}cpu.cfs_quota_us": f"{quota}\n", f"{folder}cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("cgroup", "mount", "files", "quota"),
    [
        (V2, ("/", "cgroup2", "rw"), {"system.slice/job/cpu.max": "150000 100000\n"}, 1.5),
        (V2, ("/", "cgroup2", "rw"), {"system.slice/job/cpu.max": "max 100000\n"}, None),
        (
            V2,
            ("/", "cgroup2", "rw"),
            {"system.slice/job/cpu.max": "max 100000\n", "system.slice/cpu.max": "50000 100000\n"},
            0.5,
        ),
        (V2, ("/", "cgroup2", "rw"), {}, None),
        # a container whose own group is mounted, while its path is the one outside
        (V2, ("/system.slice/job", "cgroup2", "rw"), {"cpu.max": "300000 100000"}, 3),
        (V2, ("/../other", "cgroup2", "rw"), {"cpu.max": "200000 100000"}, 2),
        (V1, ("/", "cgroup", "rw,cpu,cpuacct"), v1(200000, folder="batch/job/"), 2),
        (V1, ("/", "cgroup", "rw,cpu,cpuacct"), v1(-1, folder="batch/job/"), None),
        (V1, ("/batch/job", "cgroup", "rw,cpu,cpuacct"), v1(25000), 0.25),
        (V1, ("/", "cgroup", "rw,memory"), v1(200000, folder="batch/job/"), None),
        (V1, ("/", "cgroup", "rw,cpu"), v1("many", folder="batch/job/"), None),
        ("nonsense", ("/", "cgroup2", "rw"), {"cpu.max": "100000 100000"}, None),
    ],
)
def test_quota(tmp_path, cgroup, mount, files, quota):
    assert cgroup_quota(fake(tmp_path, cgroup, mount, files)) == quota


def test_no_control_groups(tmp_path):
    assert cgroup_quota(tmp_path / "none") is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.2, 1), (1.5, 2), (3.0, 3), (64, 8)])
def test_the_smaller_of_both_counts(monkeypatch, quota, expected):
    monkeypatch.setattr(threads, "_own_quota", lambda: quota)
    monkeypatch.setattr(threads, "_by_affinity", lambda: 8)
    assert threads.processors() == expected


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs os.sched_setaffinity")
def test_a_process_that_is_bound_to_one_processor():
    code = """
import os
from anychunk.io.threads import cores
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(cores())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_systems_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert threads._by_affinity() == (os.cpu_count() or 1)
