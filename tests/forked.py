"""Python code in a process of its own, forked from one that has already imported the slow packages.

Starting an interpreter and importing zarr and xarray takes longer than most tests. Where there is no
fork, an interpreter is started.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.patience import wait_until

COMMAND = "import sys\nfrom anychunk.cli import main\nsys.exit(main())\n"
"""What `anychunk` runs."""
PRELOADED = ["tests.preloaded"]


@cache
def server() -> multiprocessing.context.ForkServerContext:
    """Start the process that the others are forked from, without coverage: it would not see them."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    measured = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        forkserver.ensure_running()
    finally:
        if measured is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = measured
    return processes


class Process:
    """A process that runs code, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        code: str,
        arguments: Sequence[object],
        folder: Path,
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        is_fresh: bool = False,
        ignored: type[Warning] | None = None,
    ):
        """Do what `python -c CODE ARGUMENTS` does, and keep its output in files of `folder`.

        Args:
            code: What it runs.
            arguments: What it finds in `sys.argv`.
            folder: An empty one, for the code and what it prints.
            cwd: Where it runs.
            environment: Variables besides those of this process.
            before: A function of a module that is called first, not where there is no fork.
            is_fresh: Whether to start an interpreter even where there is fork.
            ignored: Warnings that are not printed.
        """
        self.words = [str(argument) for argument in arguments]
        self.outputs = [folder / "stdout", folder / "stderr"]
        environment = {**os.environ, **(environment or {})}
        self._popen = self._forked = None
        if is_fresh or "forkserver" not in multiprocessing.get_all_start_methods():
            options = ["-W", f"ignore::{ignored.__name__}"] if ignored else []
            with self.outputs[0].open("w") as out, self.outputs[1].open("w") as err:
                self._popen = subprocess.Popen(
                    [sys.executable, *options, "-c", code, *self.words],
                    cwd=cwd,
                    env=environment,
                    stdout=out,
                    stderr=err,
                )
            self.pid = self._popen.pid
        else:
            file = folder / "code.py"
            file.write_text(code, "utf-8")
            given = (file, self.words, cwd, environment, self.outputs, before, ignored)
            self._forked = server().Process(target=as_script, args=given)
            self._forked.start()
            self.pid = self._forked.pid

    def poll(self) -> int | None:
        return self._popen.poll() if self._popen else self._forked.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        try:
            wait_until(lambda: self.poll() is not None)
        finally:
            if self.poll() is None:
                (self._popen or self._forked).kill()
        return self.poll()

    def texts(self) -> list[str]:
        """Return what was printed so far, to stdout and to stderr."""
        return [path.read_text("utf-8") if path.exists() else "" for path in self.outputs]

    def wait_for_lines(self, count: int) -> list[str]:
        """Wait until it has printed so many lines, or has ended; return them."""
        wait_until(lambda: self.poll() is not None or self.texts()[0].count("\n") >= count)
        return self.texts()[0].splitlines()


def run(
    code: str,
    arguments: Sequence[object] = (),
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Do what `python -c CODE ARGUMENTS` does, and return its exit code and output."""
    with TemporaryDirectory() as folder:
        process = Process(
            code,
            arguments,
            Path(folder),
            cwd=cwd,
            environment=environment,
            before=before,
            ignored=UserWarning,
        )
        exit_code = process.wait()
        return subprocess.CompletedProcess(process.words, exit_code, *process.texts())


def as_script(file, words, cwd, environment, outputs, before, ignored):
    """Do in this process what `python FILE WORDS` does in another."""
    for number, path in zip((1, 2), outputs, strict=True):
        with path.open("w", encoding="utf-8") as sink:
            os.dup2(sink.fileno(), number)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", buffering=1) for number in (1, 2)
    )
    # a shell starts what runs in the background with SIGINT ignored, and its children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    measure()
    os.chdir(cwd)
    sys.path.insert(0, "")
    sys.argv = ["anychunk", *words]
    if ignored:
        warnings.simplefilter("ignore", ignored)
    if before:
        before()
    runpy.run_path(str(file), run_name="__main__")


def measure():
    """Record which lines run, where the environment says so: for others, coverage does it when they start."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup()
