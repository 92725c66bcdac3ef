"""Compare all that users see of two versions of anychunk, over many files. See CONTRIBUTING.md.

`record` saves the results of the installed version, `compare` runs another one against them, for
200 files and seeds (quick), all (data), or also conversions, damage and pure Python (full).
"""

import argparse
import ctypes
import hashlib
import importlib.metadata
import io
import itertools
import json
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tifffile
import zarr

import anychunk
from fuzz import pool, seeds
from fuzz.__main__ import generated
from fuzz.cases import Case
from fuzz.seeds import streams
from fuzz.seeds.indexes import write
from fuzz.worker import peak, reset_peak
from tests.support import corpus
from tests.support.http_server import serve

URI = "https://awslabs.github.io/osml-imagery-io/codecs/"
STREAMS = ("zlib", "bzip2", "xz", "lz4_frame", "lz4_java", "leading_stream", "crc32")
RENAMED = {
    **{URI + n: f"anychunk.{n}" for n in ("dted", "jbp-block", "jpeg", "jpeg2000", "tiff-tile")},
    **{f"anychunk.n5_{n}": "anychunk.n5" for n in ("bytes", "cropped", "reversed")},
    **{f"anychunk.nitf-{n}": "anychunk.jbp-block" for n in ("bilevel", "vq")},
    **{f"anychunk.{n}": "anychunk.stream" for n in STREAMS},
    "anychunk.jpeg2000_window": "anychunk.jpeg2000",
}
MERGED = [{"name": f"anychunk.{n}"} for n in ("n5", "jbp-block", "stream", "jpeg2000")]
"""Later names of codecs; those that were several, of which no configurations are compared."""
NAMES = re.compile(rf"({'|'.join(map(re.escape, RENAMED))})(?![\w-])")
CHANCE = re.compile(r"(?<=/chunks/)[0-9A-Z]{20}$|(?<=:uuid:)[-\da-f]+|(?<= 0x)[\da-f]+")  # random


class Version:
    """The public interface of the installed version: all that depends on the version is here."""

    def __init__(self) -> None:
        self.index, self.open, self.open_array = anychunk.index, anychunk.open, anychunk.open_array
        self.describe, self.save, self.convert = anychunk.describe, anychunk.save, anychunk.convert
        self.main = importlib.metadata.entry_points(group="console_scripts")["anychunk"].load()
        self.sources = sorted(Path(anychunk.__file__).parent.rglob("*.[ps][yo]"))

    def look(self, node: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the metadata of a node of an index, with its byte ranges, and its members."""
        ranges = {"chunks": node.chunks} if hasattr(node, "chunks") else {}
        return node.metadata() | ranges, dict(getattr(node, "members", {}))


MOST_BYTES, MOST_NODES, SELECTED = 64 << 20, 300, 6
"""Size of arrays that are read whole, members of a group, arrays of which parts are read."""
JSON, PARQUET, ICECHUNK = ((f"i.{form}", {}) for form in ("json", "parquet", "icechunk"))
SAVED = (("v2.json", {"zarr_format": 2}), ("osml.json", {"layout": "osml"}), PARQUET, ICECHUNK)
"""Forms of saved indexes: JSON and one of these for each item."""
TARGETS = ("zarr", "v2.zarr", "tif", "ome.tif", "n5", "nrrd", "jnrrd")
PIXELS, WRONG, GROWN = "pixels ", "WRONG PIXELS ", 'memory: N -> "grown: N"'


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def attempt(call: Callable[..., Any], *given: Any, **options: Any) -> Any:
    try:
        return call(*given, **options)
    except (Exception, SystemExit) as e:  # noqa: BLE001 - whatever it raises is a result
        return {"error": type(e).__name__, "text": str(e)[:2000]}


def failed(found: Any) -> bool:
    return isinstance(found, dict) and "error" in found


def pixels(found: Any) -> Any:
    """Return a hash of an array with its data type and shape; an error unchanged."""
    array = np.asarray(found)
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return found if failed(found) else f"{PIXELS}{digest(data)} {array.dtype.str} {array.shape}"


def brief(value: Any) -> Any:
    """Return plain data for JSON; of long texts and lists the beginning and a hash."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value) if f.compare}
    if isinstance(value, Mapping):
        return {str(k): brief(v) for k, v in value.items() if k not in ("mtime_ns", "conversion")}
    if isinstance(value, np.ndarray):
        value = value.astype(np.int64).ravel().tolist()
    if isinstance(value, list | tuple) and (len(value) <= 64 or isinstance(value[0], Mapping)):
        return [brief(inner) for inner in value]
    if isinstance(value, list | tuple | bytes) or len(str(value)) > 1000:
        return f"{str(value)[:200]}… {len(value)} {digest(CHANCE.sub('', repr(value)).encode())}"
    return value if isinstance(value, str | int | float | None) else str(value)


def tree(version: Version, node: Any, path: str = "/") -> dict[str, Any]:
    """Return the metadata of every node of an index by path."""
    about = attempt(version.look, node)
    about, members = (about, {}) if failed(about) else about
    found = {path: brief(about)}
    for name in sorted(members)[:MOST_NODES]:
        found |= tree(version, members[name], f"{path.rstrip('/')}/{name}")
    return found


def selections(array: Any, name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield reads of parts of an array by name; always the same for the same name and shape."""
    shape, rng = array.shape, np.random.default_rng([*name.encode(), *array.shape])
    for number in range(5):
        corners = [sorted(rng.integers(0, max(n, 1), 2).tolist()) for n in shape]
        box = tuple(slice(start, stop + 1) for start, stop in corners)
        yield f"box {number}", lambda box=box: array[box]
    lists, points = ([rng.integers(0, max(n, 1), k).tolist() for n in shape] for k in (4, 7))
    yield "integers", lambda: array[tuple(n // 2 for n in shape)]
    yield "last", lambda: array[..., -1]
    yield "beyond", lambda: array[tuple(shape)]
    yield "steps", lambda: array[tuple(slice(i % 2, None, 2 + i) for i in range(len(shape)))]
    yield "oindex", lambda: array.oindex[tuple(lists)]
    yield "mask", lambda: array.oindex[(np.arange(shape[0]) % 3 == 1, *lists[1:])]
    yield "vindex", lambda: array.vindex[tuple(points)]


def read(version: Version, node: Any, nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return hashes of every array of an index, and of parts of the first ones."""
    root, found = attempt(version.open, node), {}
    paths = [path for path, about in nodes.items() if about.get("node_type") == "array"]
    for number, path in enumerate(paths):
        array = root if path == "/" or failed(root) else attempt(root.__getitem__, path[1:])
        reads = {} if failed(array) or number >= SELECTED else dict(selections(array, path))
        if failed(array) or math.prod(array.shape) * array.dtype.itemsize <= MOST_BYTES:
            reads["whole"] = lambda array=array: array if failed(array) else array[...]
        found[path] = {name: pixels(attempt(call)) for name, call in reads.items()}
    return found


def command(version: Version, *given: str) -> dict[str, Any]:
    """Run the command line in this process; return its exit code, output and errors."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with patch.multiple(sys, argv=["", *given], stdout=out, stderr=err):
        code = attempt(version.main)
    text, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    printed = attempt(json.loads, text)
    return {"code": code, "out": brief(text if failed(printed) else printed), "stderr": told}


def remote(version: Version, path: Path) -> dict[str, Any]:
    """Open and read a file over HTTP; return the requests of each step, and the pixels."""
    found = {}
    with serve(path.parent) as served:

        def step(name: str, call: Callable[..., Any], *given: Any) -> Any:
            served.requests.clear()
            got = attempt(call, *given)
            spans = [list(map(int, re.findall(r"\d+", span or ""))) for _, span in served.requests]
            sent = {"requests": len(spans), "bytes": sum(b - a + 1 for a, b in filter(None, spans))}
            result = {} if name == "open" else {"result": pixels(got)}
            found[name] = got if failed(got) else sent | result  # before a failure, it is chance
            return got

        array = step("open", version.open_array, f"{served.url}/{path.name}")
        if not failed(array):
            step("box", array.__getitem__, tuple(slice(n // 3, n // 3 + 9) for n in array.shape))
            if math.prod(array.shape) * array.dtype.itemsize <= MOST_BYTES // 4:
                step("whole", array.__getitem__, ...)
        return json.loads(json.dumps(found).replace(served.url, "<server>"))


def observe(version: Version, path: Path, folder: Path, *, deep: bool, **given) -> dict[str, Any]:
    """Return all results of one file; only structure and pixels unless `deep`."""
    node, name = attempt(version.index, str(path), **given), str(path)
    nodes = {} if failed(node) else tree(version, node)
    found = {"tree": nodes, "read": read(version, node, nodes)} if nodes else dict(node)
    if deep:
        found["info"] = command(version, "info", "--json", name)
        found["verify"] = command(version, "verify", "--json", name)
        found["remote"] = remote(version, path) if path.is_file() else {}
        described = brief(attempt(version.describe, name))
        found["describe"] = "as info" if described == found["info"]["out"] else described
    for form, options in (JSON, SAVED[len(path.name) % len(SAVED)]) if deep and nodes else ():
        target = folder / f"saved-{form}"
        failure = attempt(version.save, node, str(target), **options)
        found[form] = again = failure or observe(version, target, folder, deep=False, allow=["*"])
        changes = differences(nodes, again.pop("tree", nodes))
        again["changes"] = {" ".join(place): pair for place, *pair in changes}
    return found


def converted(version: Version, path: Path, target: Path) -> dict[str, Any]:
    """Convert a file; return what we read of the result, and pixels as zarr and tifffile do."""
    options = {"like": "ome-zarr-0.4"} if target.name.endswith("v2.zarr") else {}
    report = attempt(version.convert, str(path), str(target), **options)
    if failed(report):
        return report
    found = observe(version, target, target.parent, deep=False) | {"report": str(report)}
    if target.suffix == ".zarr":
        every = zarr.open_group(target, mode="r").members(max_depth=None)
        found["zarr"] = {name: pixels(a[...]) for name, a in every if isinstance(a, zarr.Array)}
    elif target.suffix == ".tif":
        with tifffile.TiffFile(target) as tif:
            levels = [level for series in tif.series for level in series.levels]
            found["tifffile"] = {str(n): pixels(level.asarray()) for n, level in enumerate(levels)}
    return found


def run(version: Version, case: Case, base: str) -> dict[str, Any]:
    """Return the results of one case; its files are written to a folder of their own."""
    ctypes.CDLL(None).malloc_trim(0)
    with tempfile.TemporaryDirectory(dir=base) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder, before = Path(name), reset_peak()
        write(folder, case.edited())
        path = folder / case.entry  # which is absolute for real files
        if case.format in TARGETS:
            seen = attempt(converted, version, path, folder / f"converted.{case.format}")
        else:
            seen = attempt(observe, version, path, folder, deep=case.format == "deep")
    seen["input"] = digest(repr(sorted(case.edited().items())).encode())
    text = json.dumps(seen).replace(name, "<here>").replace(case.seed, "<data>")
    return {"outcome": "done", "seen": json.loads(text), "memory": peak() - before}


def work(requests: str, answers: str, base: str) -> None:
    """Serve the requests of `fuzz.pool` until the pipe is closed."""
    version = Version()
    for name, kind in itertools.zip_longest(FORMATS, TARGETS, fillvalue="deep"):
        seed = seeds.of_format(name)[0]  # loads what is loaded on demand: memory is measured
        run(version, Case(seed="\0", format=kind, files=seed.files, entry=seed.entry), base)
    with os.fdopen(int(requests)) as incoming, os.fdopen(int(answers), "w") as outgoing:
        print(json.dumps({"ready": os.getpid()}), file=outgoing, flush=True)
        for line in incoming:
            done = run(version, case := Case.from_json(json.loads(line)), base)
            if done["memory"] > MEMORY >> 1:  # of which buffers may be left by earlier items
                done["memory"] = min(done["memory"], run(version, case, base)["memory"])
            print(json.dumps({"done": done}), file=outgoing, flush=True)


QUICK, CONVERTED, MUTATIONS, SEED, ACCEPTED, CPU_S, MEMORY = 200, 40, 2000, 39, 25, 120.0, 32 << 20
FORMATS = [n for n in seeds.FORMATS if n not in ("kerchunk", "parquet", "icechunk", "codecs")]
"""Formats of seeds, without those that anychunk writes, in which names change."""


def spread(kinds: Mapping[str, str], count: int) -> list[str]:
    """Choose items of many formats and, among those, properties (`kinds`); always the same."""
    order = sorted(kinds, key=lambda name: digest(name.encode()))
    for kind in (lambda n: (n.split("/")[1], kinds[n]), lambda n: n.split("/")[1]):
        alike = [[*some] for _, some in itertools.groupby(sorted(order, key=kind), kind)]
        order = [name for row in itertools.zip_longest(*alike) for name in row if name]
    return order[:count]


def items(level: str) -> dict[str, Case]:
    """Return the cases of a level by name."""
    root = corpus.ROOT.resolve()
    made = [seed for name in FORMATS for seed in seeds.of_format(name)] + [*streams.seeds()]
    case = Case(seed=str(root), format="deep", files={}, entry="")
    cases = {f"made/{s.name}": replace(case, files=s.files, entry=s.entry) for s in made}
    kinds = {name: name for name in cases}
    kinds |= {f"real/{s.path}": s.properties.partition("WxH")[0][:60] for s in corpus.samples()}
    for path in sorted([*root.glob("n5-made/*/*.n5"), *root.glob("jnrrd-made/**/*.jnrrd")]):
        kinds[f"real/{path.relative_to(root)}"] = path.name
    cases |= {n: replace(case, entry=str(root / n[5:])) for n in kinds if n.startswith("real/")}
    quick = spread(kinds, QUICK)
    if level != "full":
        return {name: cases[name] for name in (quick if level == "quick" else cases)}
    chosen = spread({n: kind for n, kind in kinds.items() if "malformed" not in n}, CONVERTED)
    for target, name in itertools.product(TARGETS, chosen):
        cases[f"{target}/{name}"] = replace(cases[name], format=target)
    for (number, seed), one in itertools.islice(generated(FORMATS, SEED, 0), MUTATIONS):
        cases[f"mutated/{seed.name}/{number}"] = replace(one, format="brief", seed=str(root))
    return cases | {f"pure/{name}": replace(cases[name], format="brief") for name in quick}


UNLIKE = {
    rf'{PIXELS}[^"]*': PIXELS, r'[^"]*…[^"]*|[\w+/=]{40,}': "long", r"<(\w+)>[^\s:,'\"]*": r"<\1>",
    r"\b[0-9a-f]{20}\b|\d+(\.\d+)?": "N", r"N(, N)+": "N",
}  # fmt: skip
"""What differs from file to file, and what stands for it in the name of a group."""


def perform(cases: Mapping[str, Case], path: Path, code: str) -> dict[str, Any]:
    """Run what a file of results lacks, add it after each item, and return all results."""
    text = path.read_text("utf-8") if path.exists() else ""
    if not text.endswith("\n"):  # the last line was interrupted
        path.write_text(text := text[: text.rfind("\n") + 1], "utf-8")
    done = dict(map(json.loads, text.splitlines()))
    if done.setdefault("code", code) != code:
        raise SystemExit(f"{path}: has results of other code")
    pool.CPU_S = CPU_S
    with path.open("a", buffering=1, encoding="utf-8") as file:
        file.write("" if text else json.dumps(["code", code]) + "\n")
        for pure in ({}, {"ANYCHUNK_PURE": "1"}):
            left = [n for n in cases if n not in done and n.startswith("pure/") == bool(pure)]
            if not left:
                continue
            with patch.dict(os.environ, pure), pool.Pool(module="bench.differential") as workers:
                for name, _, found in workers.run((name, cases[name]) for name in left):
                    done[name] = found if "seen" in found else {"seen": found["outcome"]}
                    file.write(json.dumps([name, done[name]]) + "\n")
    return done


def normal(value: Any) -> Any:
    """Return a result with the later names of codecs, and merged codecs without configuration."""
    if isinstance(value, str):
        return CHANCE.sub("", NAMES.sub(lambda found: RENAMED[found[0]], value))
    if isinstance(value, list):
        made = [normal(inner) for inner in value]
        return [v for n, v in enumerate(made) if v not in MERGED or made[n - 1 : n] != [v]]
    if isinstance(value, dict):
        name = {"name": normal(value.get("name"))}
        return name if name in MERGED else {key: normal(inner) for key, inner in value.items()}
    return value


def differences(old: Any, new: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield (path, old, new) of the innermost values that differ."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = ({f"#{n}": value for n, value in enumerate(some)} for some in (old, new))
    if failed(old) != failed(new):
        yield path, *(value if failed(value) else "a result" for value in (old, new))
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from differences(old.get(key, "absent"), new.get(key, "absent"), *path, key)
    elif json.dumps(old) != json.dumps(new):
        yield path, old, new


def groups(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return {item: example} of all differences, by what they have in common."""
    found: dict[str, dict[str, str]] = {}
    for item, before in old.items():
        every = [*differences(normal(before["seen"]), normal(new[item]["seen"]))]
        small, large = (result.get("memory", 0) for result in (before, new[item]))
        if large > max(1.25 * small, small + MEMORY):
            every.append((("memory",), small, f"grown: {large}"))
        for path, *pair in every:
            texts = [json.dumps(value, ensure_ascii=False) for value in pair]
            example = f"{' '.join(path)}: {texts[0][:200]} -> {texts[1][:200]}"
            is_wrong = all(isinstance(v, str) and v.startswith(PIXELS) for v in pair)
            for pattern, name in UNLIKE.items():
                texts = [re.sub(pattern, name, text[:5000]) for text in texts]
            place = re.sub(r"\d+", "N", re.sub(r"\S*/\S*", "*", " ".join(path)))
            key = f"{WRONG * is_wrong}{place}: {texts[0][:160]} -> {texts[1][:160]}"
            found.setdefault(key, {}).setdefault(item, example)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.differential", description=__doc__)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("out", type=Path, help="the file of results")
    parser.add_argument("--level", choices=("quick", "data", "full"), default="data")
    parser.add_argument("--accept", type=Path, default=os.devnull, help="lines: group, reason")
    parser.add_argument("--only", default="", help="a part of the names of items")
    given = parser.parse_args()
    code = digest(b"".join(p.read_bytes() for p in [Path(__file__), *Version().sources]))
    cases = {name: case for name, case in items(given.level).items() if given.only in name}
    if given.command == "record":
        print(f"{given.out}: {len(perform(cases, given.out, code)) - 1} items")
        return 0
    recorded = map(json.loads, given.out.read_text("utf-8").rpartition("\n")[0].splitlines())
    old = {name: found for name, found in recorded if name in cases}
    new = perform({n: cases[n] for n in old}, given.out.with_suffix(f".{code}.jsonl"), code)
    found = groups(old, new)
    grown = {name: cases[name] for name in found.pop(GROWN, {})}  # which may be chance
    again = perform(grown, given.out.with_suffix(f".{code}.again.jsonl"), code)
    found |= {k: v for k, v in groups({n: old[n] for n in grown}, again).items() if k == GROWN}
    accepted = dict(line.split(maxsplit=1) for line in given.accept.read_text().splitlines())
    bad = len(accepted) > ACCEPTED or len(old) < len(cases)
    for key, examples in sorted(found.items(), key=lambda one: -len(one[1])):
        reason = accepted.get(name := digest(key.encode())[:8], "") * (not key.startswith(WRONG))
        bad |= not reason
        print(f"{name} {reason or 'DIFFERS'}: {len(examples)} items: {key}")
        print("    for example", *next(iter(examples.items())))
    print(f"{len(old)} of {len(cases)} items compared, {len(found)} groups")
    return int(bad)


if __name__ == "__main__":
    sys.exit(work(*sys.argv[1:]) if "".join(sys.argv[1:2]).isdecimal() else main())
