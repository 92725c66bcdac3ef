"""What one commit to an archive on S3 requests, as it grows: `python -m bench.archive_on_s3`.

Files are local and the repository is on `rclone serve s3`, so that all that is counted is the
repository's. Counts do not depend on the load of the machine, as times do.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.bench_archive import ALONG, COMMIT, files_of, make_files


@contextmanager
def counted(storage: dict, log: Path):
    """Stand in front of a server with a process that writes a line per request to `log`."""
    server = urlsplit(storage["endpoint"])
    command = [
        sys.executable,
        "-m",
        "tests.support.proxy",
        server.hostname,
        str(server.port),
        str(log),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield {**storage, "endpoint": process.stdout.readline().strip()}
        finally:
            process.stdin.close()


def spent(log: Path, start: int) -> dict:
    """Return the number of requests by method, and the bytes in both directions."""
    lines = [json.loads(line) for line in log.read_text().splitlines()[start:]]
    return {
        **Counter(line["method"] for line in lines),
        "KB_up": round(sum(line["up"] for line in lines) / 1000),
        "KB_down": round(sum(line["down"] for line in lines) / 1000),
    }


def measure(how: str, counts: list[int]) -> None:
    """Append files to an archive; print what a commit takes at each number of files."""
    import anychunk
    from anychunk.references.icechunk import Archive
    from tests.support.s3 import serve_s3

    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "requests"
        (folder / "server/bucket").mkdir(parents=True)
        log.touch()
        make_files(folder, counts[-1] + COMMIT)
        with serve_s3(folder / "server") as plain, counted(plain, log) as storage:
            target, there = "s3://bucket/archive.icechunk", 0
            for count in counts:
                files = files_of(name, there, count)
                anychunk.append(files, target, combine=how, along=ALONG[how], storage=storage)
                files = files_of(name, count, count + COMMIT)
                node = anychunk.index(files, combine=how, along=ALONG[how])
                before, start = len(log.read_text().splitlines()), time.process_time()
                axis = "t" if how == "stack" else ALONG[how]
                Archive(target, storage=storage).append(node, along=axis)
                took = time.process_time() - start
                found = {"how": how, "there": count, **spent(log, before)}
                print(json.dumps({**found, "processor_s": round(took, 2)}), flush=True)
                there = count + COMMIT


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", nargs="*", default=["stack", "group"])
    parser.add_argument("--counts", nargs="+", type=int, default=[1000, 5000])
    arguments = parser.parse_args()
    for chosen in arguments.how:
        measure(chosen, arguments.counts)
