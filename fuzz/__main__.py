"""`python -m fuzz`: run the fuzzer, show the sum of all runs, or replay findings."""

import argparse
import hashlib
import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import cases, explained, mutations, seeds, state, tables
from fuzz.cases import Case, Seed
from fuzz.minimise import minimise, signature
from fuzz.pool import ROOT, Pool

SAVE_S = 10.0
KEPT = 100
"""Findings of one run that are minimised."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument(
        "--start",
        type=int,
        help="the first case; by default where the last run with this seed ended",
    )
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="stop after as many cases")
    parser.add_argument("--formats", default=",".join(seeds.FORMATS), help="separated by commas")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--state", type=Path, default=state.default_folder())
    parser.add_argument(
        "--summary", action="store_true", help="print the sum of all runs, and stop"
    )
    parser.add_argument(
        "--tables", type=int, metavar="STEP",
        help="run the tables of single edits for all seeds, with every STEP-th byte, and stop",
    )  # fmt: skip
    parser.add_argument("--real", type=Path, help="a folder of real files that are seeds, too")
    parser.add_argument("--corpus", type=Path, help="write the seeds of single files, and stop")
    parser.add_argument("--replay", nargs="+", type=Path, help="run findings again, and stop")
    return parser.parse_args()


def generated(names: list[str], seed: int, start: int) -> Iterator[tuple[Any, Case]]:
    """Yield ((number, seed file), case) without end; the same for the same arguments."""
    for number in itertools.count(start):
        rng = np.random.default_rng([seed, number])
        some = seeds.of_format(names[number % len(names)])
        chosen = some[int(rng.integers(len(some)))]
        case = cases.make(chosen, mutations.edits(rng, chosen), int(rng.integers(64)))
        if case is not None:
            yield (number, chosen), case


def commit() -> str:
    """Return the commit that is tested: that of the installed package."""
    import anychunk

    where = Path(anychunk.__file__).parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or anychunk.__version__


def fuzz(options: argparse.Namespace) -> int:
    """Run until the time is over; return the number of findings."""
    names = options.formats.split(",")
    seeds.REAL += [options.real] if options.real else []
    for name in names:
        seeds.of_format(name)
    start = state.following(options.state, options.seed) if options.start is None else options.start
    run = state.Run(options.state, seed=options.seed, first=start, formats=names, commit=commit())
    end = time.monotonic() + 60 * options.minutes
    found: dict[tuple[str, ...], tuple[int, Seed, Case, dict[str, Any]]] = {}
    last = start
    with Pool(options.workers) as pool:
        stream = itertools.islice(generated(names, options.seed, start), options.inputs)
        for (number, seed), case, outcome in pool.run(stream, until=lambda: time.monotonic() > end):
            last = max(last, number + 1)
            name = outcome["outcome"]
            if name in state.BAD and explained.reason(case, outcome):
                name = "explained"
            run.add(case.format, name)
            if name in state.BAD:
                key = signature(case, outcome)
                if key not in found:
                    found[key] = number, seed, case, outcome
                    print(f"{number} (input {run.inputs()}): {' | '.join(key)}", flush=True)
            if time.monotonic() - run.written > SAVE_S:
                run.save(following=last, cpu_s=pool.spent(), workers=options.workers)
        run.save(following=last, cpu_s=pool.spent(), workers=options.workers)
        kept = minimised(pool, list(found.values())[:KEPT], options.state)
        run.save(following=last, cpu_s=pool.spent(), workers=options.workers)
    print(state.summary([json.loads(run.path.read_text())]))
    return kept


def minimised(pool: Pool, found: list[tuple[int, Seed, Case, dict[str, Any]]], folder: Path) -> int:
    """Minimise findings and write each kind once; return how many are not explained."""
    seen: set[tuple[str, ...]] = set()
    for number, seed, case, outcome in found:
        small, small_outcome = minimise(pool, seed, case, outcome)
        key = signature(small, small_outcome)
        if key in seen or explained.reason(small, small_outcome):
            continue
        seen.add(key)
        path = write(folder / "findings", small, small_outcome, number=number)
        print(f"{path.name}: {' | '.join(key)}\n  {json.dumps(small_outcome, default=str)[:700]}")
    return len(seen)


def without_folders(outcome: Any) -> Any:
    """Remove folders from all messages: they are those of one run on one machine."""
    if isinstance(outcome, dict):
        return {key: without_folders(value) for key, value in outcome.items()}
    if isinstance(outcome, str):
        return re.sub(r"(?<![\w/:.])/(?:[^\s/:'\"]+/)+", "", outcome)
    return outcome


def write(folder: Path, case: Case, outcome: dict[str, Any], **about: Any) -> Path:
    """Write a finding as a file that `--replay` and the tests run again."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "outcome": outcome["outcome"],
        **about,
        "found": without_folders(outcome),
        "case": case.to_json(),
    }
    digest = hashlib.sha256(repr(signature(case, outcome)).encode()).hexdigest()[:8]
    name = f"{outcome['outcome'].replace(' ', '-')}-{case.seed.replace('/', '-')}-{digest}.json"
    (folder / name).write_text(json.dumps(data, indent=1) + "\n")
    return folder / name


def replay(paths: list[Path]) -> int:
    """Run findings again; return how many are still findings."""
    every = [
        p for path in paths for p in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    bad = 0
    with Pool(2) as pool:
        stream = ((p, Case.from_json(json.loads(p.read_text())["case"])) for p in every)
        for path, case, outcome in pool.run(stream):
            is_bad = outcome["outcome"] in state.BAD and not explained.reason(case, outcome)
            bad += is_bad
            told = json.dumps(outcome, default=str)[:500]
            print(f"{'BAD ' if is_bad else 'ok  '} {path.name}: {told}")
    print(f"{bad} of {len(every)} are still findings")
    return bad


def write_corpus(folder: Path) -> None:
    """Write the seeds that are one file, a folder per format, for `fuzz.guided`."""
    for name in ("tiff", "nitf", "jpeg2000", "jnrrd", "npy"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed in seeds.of_format(name):
            path = folder / name / seed.name.replace("/", "-")
            path.write_bytes(seed.files[seed.entry])


def run_tables(step: int, workers: int) -> int:
    """Run the tables of single edits; return the number of findings."""
    names = {f: [s.name for s in seeds.of_format(f)] for f in ("tiff", "jpeg2000")}
    stream = itertools.chain(
        tables.tiff_entries(names["tiff"]), tables.codestream_bytes(names["jpeg2000"], step=step)
    )
    counts: Counter[str] = Counter()
    bad = 0
    with Pool(workers) as pool:
        for label, case, outcome in pool.run(stream):
            reason = explained.reason(case, outcome) if outcome["outcome"] in state.BAD else None
            counts["explained" if reason else outcome["outcome"]] += 1
            if outcome["outcome"] in state.BAD and not reason:
                bad += 1
                told = {k: outcome.get(k) for k in ("class", "message", "opinions", "ours")}
                print(f"{outcome['outcome']}: {label}: {json.dumps(told, default=str)[:400]}")
    print(dict(counts))
    return bad


def main() -> int:
    """Run the command."""
    options = arguments()
    sys.path.insert(0, str(ROOT))
    if options.summary:
        print(state.summary(state.runs(options.state)))
        return 0
    if options.corpus:
        write_corpus(options.corpus)
        return 0
    if options.tables:
        return int(run_tables(options.tables, options.workers) > 0)
    if options.replay:
        return int(replay(options.replay) > 0)
    return int(fuzz(options) > 0)


if __name__ == "__main__":
    sys.exit(main())
