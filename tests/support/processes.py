"""Python code and the command in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.patience import wait_until

COMMAND = "import sys\nfrom anychunk.cli import main\nsys.exit(main())\n"
"""What `anychunk` runs."""
# a shell starts what runs in the background with SIGINT ignored, and its children inherit that
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
# as in the command line: threads of Icechunk abort a process that ends right after a read
RESTS = 'import atexit, sys, time\natexit.register(lambda: "icechunk" in sys.modules and time.sleep(0.5))\n'


class Process:
    """A process that runs `python -c`, and keeps what it prints in files of `folder`."""

    def __init__(
        self,
        code: str,
        arguments: Sequence[object],
        folder: Path,
        *,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ):
        self.words = [str(argument) for argument in arguments]
        self.outputs = [folder / "stdout", folder / "stderr"]
        with self.outputs[0].open("w") as out, self.outputs[1].open("w") as err:
            self._popen = subprocess.Popen(
                [sys.executable, *options, "-c", INTERRUPTIBLE + RESTS + code, *self.words],
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                stdout=out,
                stderr=err,
            )
        self.pid = self._popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        try:
            wait_until(lambda: self.poll() is not None)
        finally:
            if self.poll() is None:
                self._popen.kill()
                self._popen.wait()
        return self.poll()

    def texts(self) -> list[str]:
        """Return what was printed so far, to stdout and to stderr."""
        return [path.read_text("utf-8") for path in self.outputs]

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
) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE ARGUMENTS`, and return its exit code and output."""
    with TemporaryDirectory() as folder:
        process = Process(
            code,
            arguments,
            Path(folder),
            cwd=cwd,
            environment=environment,
            options=["-W", "ignore::UserWarning"],
        )
        exit_code = process.wait()
        return subprocess.CompletedProcess(process.words, exit_code, *process.texts())
