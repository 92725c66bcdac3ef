"""Run every bench: `python -m bench [--quick] [NAME …]`."""

import argparse
import importlib
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--quick", action="store_true", help="smaller data, fewer rounds")
    parser.add_argument("names", nargs="*", help="which benches; all by default")
    arguments = parser.parse_args()
    found = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    wanted = [f"bench_{name}" for name in arguments.names] or found
    print(f"{'case':58} {'measured':>9}  target")
    for name in wanted:
        for row in importlib.import_module(f"bench.{name}").run(quick=arguments.quick):
            print(f"{row.case:58} {row.ratio:9.3g}  {row.target:24} {row.detail}", flush=True)


if __name__ == "__main__":
    main()
