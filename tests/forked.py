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

from tests.patience import PATIENCE_S

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


CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods()


class Forked:
    """A process that runs code, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        code: str,
        arguments: Sequence[object],
        folder: Path,
        *,
        cwd: Path,
        environment: Mapping[str, str],
        before: Callable[[], None] | None = None,
    ):
        """Do what `python -c CODE ARGUMENTS` does, and keep its output in files of `folder`."""
        self.words = [str(argument) for argument in arguments]
        self.outputs = [folder / "stdout", folder / "stderr"]
        file = folder / "code.py"
        file.write_text(code, "utf-8")
        self._process = server().Process(
            target=as_script,
            args=(file, self.words, cwd, {**os.environ, **environment}, self.outputs, before),
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, limit: float) -> int:
        self._process.join(limit)
        assert self.poll() is not None, "waited in vain"
        return self.poll()

    def texts(self) -> list[str]:
        """Return what was printed so far, to stdout and to stderr."""
        return [path.read_text("utf-8") if path.exists() else "" for path in self.outputs]


def run(
    code: str,
    arguments: Sequence[object] = (),
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Do what `python -c CODE ARGUMENTS` does, and return its exit code and output.

    `before`, a function of a module, is called first.
    """
    environment = environment or {}
    if not CAN_FORK:
        return subprocess.run(
            [sys.executable, "-W", "ignore::UserWarning", "-c", code, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    with TemporaryDirectory() as folder:
        process = Forked(
            code, arguments, Path(folder), cwd=cwd, environment=environment, before=before
        )
        exit_code = process.wait(PATIENCE_S)
        return subprocess.CompletedProcess(process.words, exit_code, *process.texts())


def as_script(file, words, cwd, environment, outputs, before):
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
    warnings.simplefilter("ignore", UserWarning)
    if before:
        before()
    runpy.run_path(str(file), run_name="__main__")


def measure():
    """Record which lines run, where the environment says so: for others, coverage does it when they start."""
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup()
