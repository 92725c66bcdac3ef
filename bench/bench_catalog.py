"""A folder of 10,000 files: time of the list and of searches, and memory of the server.

Run it by itself: `python -m bench.bench_catalog [COUNT]`.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

SEARCHES = ("00123", "dtype%3Auint16", "format%3Anpy+size%3A%3E1kB", "date%3A%3E2020+-broken")


def make(folder: Path, count: int) -> None:
    """Write small files, every 50th of them broken, 100 per folder."""
    for number in range(count):
        below = folder / f"{number // 100:03}"
        below.mkdir(exist_ok=True)
        path = below / f"{number:05}.npy"
        if number % 50 == 0:
            path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
        else:
            np.save(path, np.zeros((number % 30 + 1, 20), ("uint8", "uint16")[number % 2]))


def timed(url: str, repeats: int = 5) -> tuple[float, dict[str, object]]:
    """Return the best time of a request in milliseconds, and its answer."""
    best = float("inf")
    answer: dict[str, object] = {}
    for _ in range(repeats):
        start = time.perf_counter()
        with urllib.request.urlopen(url, timeout=600) as response:
            answer = json.loads(response.read())
        best = min(best, (time.perf_counter() - start) * 1000)
    return best, answer


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        make(Path(made), count)
        start = time.perf_counter()
        command = [sys.executable, "-m", "anychunk", "serve", made, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            found = re.match(r"(http://\S+?)/\s", server.stdout.readline())
            assert found is not None
            print(f"until it listens: {time.perf_counter() - start:.1f} s")
            first, _ = timed(f"{found[1]}/api/files?limit=200", repeats=1)
            print(f"first list: {first:.0f} ms")
            while timed(f"{found[1]}/api/files?limit=200", repeats=1)[1]["pending"]:
                time.sleep(0.5)
            print(f"all records after {time.perf_counter() - start:.1f} s")
            print(f"list of 200: {timed(f'{found[1]}/api/files?limit=200')[0]:.0f} ms")
            print(f"list of 2000: {timed(f'{found[1]}/api/files?limit=2000')[0]:.0f} ms")
            for search in SEARCHES:
                took, answer = timed(f"{found[1]}/api/files?limit=200&search={search}")
                print(f"search {search}: {took:.0f} ms, {answer['matching']} files")
            status = Path(f"/proc/{server.pid}/status").read_text()
            for name in ("VmRSS", "VmHWM"):
                print(name, int(re.findall(rf"{name}:\s*(\d+)", status)[0]) // 1024, "MiB")
            server.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
