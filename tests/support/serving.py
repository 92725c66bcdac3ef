"""`anychunk serve` as a subprocess on loopback."""

import io
import json
import re
import signal
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from tests.support import processes
from tests.support.patience import PATIENCE_S, wait_until


@dataclass
class Running:
    url: str
    process: processes.Process

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
from anychunk_serve import run
run.GRACE_S = 1e6
runpy.run_module("anychunk", run_name="__main__", alter_sys=True)
"""
"""The command without the server's own timeouts: what waits for another client waits forever."""


@contextmanager
def running(*arguments: str | Path, is_patient: bool = False):
    """Run the command until the block ends; it must end cleanly on Ctrl-C."""
    code = PATIENT if is_patient else processes.COMMAND
    words = ["serve", *arguments, "--port", "0"]
    with TemporaryDirectory() as folder:
        process = processes.Process(code, words, Path(folder), cwd=Path.cwd())
        try:
            lines = process.wait_for_lines(1)
            match = re.match(r"(http://\S+?)/(\?\S+)?\s", f"{lines[0]}\n" if lines else "")
            assert match, process.texts()
            yield Running(match[1], process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait()
        assert (process.poll(), process.texts()[1]) == (0, "")


def picture(client_of, path):
    """Return the thumbnail of a file as (y, x, 4), computed by the server and decoded by Pillow."""
    answer = client_of(path).get(f"/thumb/{path.name}/0.png")
    assert answer.status_code == 200, answer.text
    return np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGBA")).astype(int)
