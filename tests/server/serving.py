"""`anychunk serve` as a subprocess on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S, wait_until


@dataclass
class Running:
    url: str
    process: subprocess.Popen

    def get(self, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Request a path; return status, body and headers."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.read(), dict(e.headers)

    def json(self, path: str):
        return json.loads(self.get(path)[1])

    def files(self) -> dict[str, dict]:
        """Return the record of every file; one that was `pending` in the list is asked for alone."""
        wait_until(lambda: self.json("/api/files")["listed"])
        records = self.json("/api/files")["files"]
        return {
            record["name"]: self.json(f"/api/files/{urllib.parse.quote(record['name'], safe='')}")
            if record.get("pending")
            else record
            for record in records
        }

    @property
    def memory(self) -> int:
        """Peak memory of the process, in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+)", text)[1]) * 1024


PATIENT = """
import runpy
from anychunk.server import connection, run
connection.HEAD_S = connection.STALL_S = run.GRACE_S = 1e6
runpy.run_module("anychunk", run_name="__main__", alter_sys=True)
"""
"""The command without the server's own timeouts: what waits for another client waits forever."""


@contextmanager
def running(*arguments: str | Path, is_patient: bool = False):
    """Run the command until the block ends; it must end cleanly on Ctrl-C."""
    start = ["-c", PATIENT] if is_patient else ["-m", "anychunk"]
    command = [sys.executable, *start, "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    lines: list[str] = []
    drain = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
    drain.start()
    try:
        line = process.stdout.readline()
        match = re.match(r"(http://\S+?)/(\?\S+)?\s", line)
        assert match, line + process.stdout.read()
        yield Running(match[1], process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        drain.join(PATIENCE_S)
        process.stdout.close()
        process.stderr.close()
    assert process.returncode == 0, (process.returncode, lines)
    assert not lines, lines
