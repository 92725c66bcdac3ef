"""Run benchmarks: `python -m bench [--quick] [--publish] [NAME …]`.

Results go to `bench/results`; a full run, or `--publish`, also updates docs/performance.md.
"""

import argparse
import importlib
import time
from pathlib import Path

from bench import report


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--quick", action="store_true", help="smaller data, fewer rounds")
    parser.add_argument(
        "--publish", action="store_true", help="only put the last results into the docs"
    )
    parser.add_argument("names", nargs="*", help="which benches; all by default")
    arguments = parser.parse_args()
    if not arguments.publish:
        path = run(arguments.names, quick=arguments.quick)
    else:
        path = max(p for p in report.RESULTS.glob("*.json") if not p.stem.endswith("-quick"))
    if not arguments.quick:
        report.publish(path)
        print(f"published {path.name}")


def run(names: list[str], *, quick: bool) -> Path:
    found = sorted(
        path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
    )
    path = report.RESULTS
    print(f"{'case':58} {'measured':>9}  target")
    for name in names or found:
        rows, start = [], time.perf_counter()
        for row in importlib.import_module(f"bench.bench_{name}").run(quick=quick):
            rows.append(row)
            print(f"{row.case:58} {row.ratio:9.3g}  {row.target:24} {row.detail}", flush=True)
            for peer, what in row.wrong.items():
                print(f"{'':70} {peer}: {what}")
        path = report.save({name: rows}, quick=quick)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return path


if __name__ == "__main__":
    main()
