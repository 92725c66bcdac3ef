"""Child processes that run cases: restarted when they die, stopped when they take too much."""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fuzz.cases import Case

ROOT = Path(__file__).parents[1]
MEMORY = 3 << 29
"""Bytes that one input may take: 1.5 GiB."""
CPU_S = 20.0
"""Processor time that one input may take; unlike the clock, it does not pass while others run."""
WALL_S = 90.0
"""Time without a thread that could run, after which an input hangs."""
RECYCLE = 3000
"""Inputs after which a process is replaced, so that what libraries leak does not add up."""
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Child:
    """A process and the case that it works on."""

    process: subprocess.Popen[bytes]
    requests: int
    answers: int
    folder: Path
    buffer: bytes = b""
    ready: bool = False
    case: Case | None = None
    tag: Any = None
    phase: str = "start"
    ours: dict[str, Any] | None = None
    start: float = 0.0
    cpu: float = 0.0
    base: int = 0
    done: int = 0
    alive: float = 0.0
    """When it was last seen to run, or to wait for a processor."""

    def rss(self) -> int:
        """Return resident bytes; 0 if it has ended."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE
        except (OSError, IndexError):
            return 0

    def is_runnable(self) -> bool:
        """Return whether any of its threads runs, or would if others left it a processor."""
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                if (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def cpu_s(self) -> float:
        """Return the processor time of its life."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(text[11]) + int(text[12])) / TICK
        except (OSError, IndexError):
            return self.cpu


class Pool:
    """`run` yields an outcome for every case."""

    def __init__(self, workers: int = 2, *, module: str = "fuzz.worker") -> None:
        self.workers, self.module = workers, module
        self.selector = selectors.DefaultSelector()
        self.children: list[Child] = []
        memory = Path("/dev/shm")
        self.folder = Path(
            tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="fuzz-")
        )
        self.cpu_s = 0.0
        """Processor time of children that have ended."""

    def __enter__(self) -> Self:
        self.children = [self._start() for _ in range(self.workers)]
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            self._stop(child)
        shutil.rmtree(self.folder, ignore_errors=True)

    def spent(self) -> float:
        """Return the processor time of all children, in seconds."""
        return self.cpu_s + sum(child.cpu_s() for child in self.children)

    def _start(self) -> Child:
        mine, theirs = os.pipe(), os.pipe()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        # behind ours, so that the package is the one that this process imports
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        with (folder / "stderr").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(mine[0]), str(theirs[1]), str(folder)],
                pass_fds=(mine[0], theirs[1]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        os.close(mine[0])
        os.close(theirs[1])
        child = Child(process, mine[1], theirs[0], folder, start=time.monotonic())
        self.selector.register(child.answers, selectors.EVENT_READ, child)
        return child

    def _stop(self, child: Child) -> None:
        child.cpu = child.cpu_s()
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(child.answers)
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        self.cpu_s += child.cpu
        os.close(child.answers)
        with contextlib.suppress(OSError):
            os.close(child.requests)
        shutil.rmtree(child.folder, ignore_errors=True)

    def _replace(self, child: Child) -> None:
        self._stop(child)
        self.children[self.children.index(child)] = self._start()

    def run(
        self, cases: Iterator[tuple[Any, Case]], *, until: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Any, Case, dict[str, Any]]]:
        """Run cases until there are no more, or `until()`; yield (tag, case, outcome)."""
        ended = False
        while True:
            for child in self.children:
                if child.ready and child.case is None and not ended:
                    following = None if until() else next(cases, None)
                    if following is None:
                        ended = True
                    else:
                        self._send(child, *following)
            if ended and all(child.case is None for child in self.children):
                return
            for key, _ in self.selector.select(0.03):
                yield from self._receive(key.data)
            for child in list(self.children):
                yield from self._watch(child)

    def one(self, case: Case) -> dict[str, Any]:
        """Run one case."""
        ((_, _, outcome),) = self.run(iter([(None, case)]))
        return outcome

    def _send(self, child: Child, tag: Any, case: Case) -> None:
        child.case, child.tag, child.phase, child.ours = case, tag, "start", None
        child.start, child.cpu, child.base = time.monotonic(), child.cpu_s(), child.rss()
        data = json.dumps(case.to_json()).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # the death is noticed when its answer is read
            while data:
                data = data[os.write(child.requests, data) :]

    def _receive(self, child: Child) -> Iterator[tuple[Any, Case, dict[str, Any]]]:
        data = os.read(child.answers, 1 << 20)
        if not data:
            yield from self._end(child, None)
            return
        child.buffer += data
        *lines, child.buffer = child.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                child.ready = True
            elif "phase" in message:
                child.phase, child.ours = message["phase"], message.get("ours", child.ours)
                child.start, child.cpu = time.monotonic(), child.cpu_s()
            elif child.case is not None:
                outcome, case, tag = message["done"], child.case, child.tag
                child.case, child.done = None, child.done + 1
                yield tag, case, judged(outcome)
                if child.done >= RECYCLE or child.rss() > MEMORY:
                    self._replace(child)

    def _watch(self, child: Child) -> Iterator[tuple[Any, Case, dict[str, Any]]]:
        if child.case is None:
            return
        cpu, now = child.cpu_s() - child.cpu, time.monotonic()
        if now - child.alive > 1 and (child.alive < child.start or child.is_runnable()):
            child.alive = now
        if child.rss() - child.base > MEMORY:
            yield from self._end(child, "memory")
        elif cpu > CPU_S:
            yield from self._end(child, "time")
        elif now - max(child.alive, child.start) > WALL_S:
            yield from self._end(child, "hang")

    def _end(self, child: Child, why: str | None) -> Iterator[tuple[Any, Case, dict[str, Any]]]:
        """Replace a child; blame it on us or on another reader, by what it was doing."""
        case, tag, phase, ours = child.case, child.tag, child.phase, child.ours
        stack = stacks(child) if why in ("time", "hang") and phase == "ours" else ""
        if why is None:
            child.process.wait()
        code = child.process.returncode
        error = (child.folder / "stderr").read_bytes()[-1500:].decode("utf-8", "replace")
        self._replace(child)
        if case is None:
            if not child.ready:
                raise RuntimeError(f"a worker does not start: {error}")
            return
        if phase in ("ours", "start"):
            about = {"where": stack, "message": error[-400:], "code": code}
            yield tag, case, {"outcome": why or "death", **about}
        else:
            outcome = (ours or {}) | {"peer": f"{phase} {why or 'death'}"}
            yield tag, case, judged(outcome | {"outcome": outcome_without_peers(outcome)})


def outcome_without_peers(outcome: dict[str, Any]) -> str:
    """Return the outcome of a case whose other reader died."""
    found = outcome.get("outcome", "error")
    return "peer died" if found == "pixels" else str(found)


def judged(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome with the limits applied to what it took."""
    if outcome.get("bytes", 0) > MEMORY:
        return outcome | {"was": outcome["outcome"], "outcome": "memory"}
    if outcome.get("cpu_s", 0) > CPU_S:
        return outcome | {"was": outcome["outcome"], "outcome": "time"}
    return outcome


def stacks(child: Child) -> str:
    """Return where the threads of a process are, as far as the system tells without a debugger."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{child.process.pid}/wchan").read_text()
    return ""
