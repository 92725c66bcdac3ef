"""A child process: does with each input what users do, then asks the other readers.

Requests arrive on one pipe and answers leave on another, one JSON object per line. The parent
watches time and memory, and learns from the last answer what the process was doing if it dies.
"""

import json
import math
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import peers
from fuzz.cases import Case
from fuzz.seeds.indexes import write

MOST = 1 << 22
"""Elements above which only corners of an array are read."""
ARRAYS = 12
NOTHING = 7
"""A choice of cases: nothing is done besides reading."""


class Foreign(Exception):  # noqa: N818 - an outcome
    """An exception that users should never see."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.report = {
            "stage": stage,
            "class": type(error).__name__,
            "message": str(error)[:300],
            "where": place(error),
        }


class Mismatch(Exception):  # noqa: N818 - an outcome
    """Two ways to read the same that differ."""


def place(error: BaseException) -> str:
    """Return the innermost function of ours in a traceback, and the innermost of all."""
    while type(error).__name__ == "InternalError" and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/anychunk/" in f.filename]
    chosen = ([ours[-1]] if ours else []) + ([frames[-1]] if frames else [])
    names = [f"{Path(f.filename).parent.name}/{Path(f.filename).name}:{f.name}" for f in chosen]
    return " > ".join(dict.fromkeys(names))


def attempt(stage: str, call: Any) -> Any:
    """Run a step; an error of ours passes, any other exception is a finding."""
    from anychunk.errors import AnychunkError

    try:
        return call()
    except AnychunkError as e:
        if type(e).__name__ == "InternalError":
            raise Foreign(stage, e) from None
        raise
    except (KeyboardInterrupt, Mismatch):
        raise
    except BaseException as e:  # panics of Rust are no Exception
        raise Foreign(stage, e) from None


def read_all(described: dict[str, Any], root: Any) -> tuple[dict[str, np.ndarray], bool, list[str]]:
    """Return the arrays by path, whether all were read whole, and the errors of the others."""
    from anychunk.errors import AnychunkError

    found, whole, errors = {}, True, []
    # in order: some indexes list their arrays in none
    paths = sorted(array["path"] for array in described["arrays"])
    whole = len(paths) <= ARRAYS
    for path in paths[:ARRAYS]:
        try:
            array = attempt("open array", lambda path=path: root[path] if path else root)
            if math.prod(array.shape) <= MOST:
                found[path] = attempt("read", lambda array=array: np.asarray(array[...]))
                continue
            whole = False
            for box in (
                [slice(0, 20)] * array.ndim,
                [slice(max(0, n - 9), n) for n in array.shape],
            ):
                attempt("read a corner", lambda array=array, box=box: array[tuple(box)])
        except AnychunkError as e:
            errors.append(f"{path}: {e}")
    return found, whole, errors


def says_refused(node: Any) -> bool:
    """Return whether an attribute of any group says that a part of the file was refused."""
    text = json.dumps(node.attributes, default=str)
    if '"refused"' in text or '"problem"' in text:
        return True
    return any(says_refused(part) for part in getattr(node, "members", {}).values())


def use(case: Case, folder: Path) -> dict[str, Any]:
    """Do what users do; return the outcome, with pixels under `arrays` if there are any."""
    import anychunk
    from anychunk.errors import AnychunkError

    path = folder / case.entry
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            node = attempt("index", lambda: anychunk.index(path))
            described = attempt("describe", lambda: anychunk.describe(node))
            root = attempt("open", lambda: anychunk.open(node))
            arrays, whole, errors = read_all(described, root)
            others = more(case, node, root, (arrays, whole, errors), folder)
    except Foreign as e:
        return {"outcome": "foreign", **e.report}
    except Mismatch as e:
        return {"outcome": "inconsistent", "message": str(e)}
    except AnychunkError as e:
        return {"outcome": "error", "class": type(e).__name__, "message": str(e)[:300]}
    warned = [str(w.message)[:200] for w in caught if "anychunk" in str(w.category)]
    told = bool(warned or errors or says_refused(node))
    # positions beside samples that cannot be read are no pixels
    if errors and not any(is_samples(path) for path in arrays):
        return {"outcome": "error", "class": "read", "message": errors[0][:300]}
    return {
        "outcome": "pixels", "whole": whole and not errors, "told": told, "arrays": arrays,
        "did": others,
    }  # fmt: skip


def more(
    case: Case, node: Any, root: Any, read: tuple[Any, bool, list[str]], folder: Path
) -> list[str]:
    """Do by turns: members, verify, thumbnail, save and reopen."""
    import anychunk
    from anychunk.errors import AnychunkError
    from anychunk.thumbnail import png, thumbnail

    before, whole, errors = read
    did = []
    if case.choice % 4 == 0 and hasattr(root, "members"):
        did.append("members")
        attempt("members", lambda: list(root.members(max_depth=None)))
    if case.choice % 4 == 1:
        did.append("verify")
        report = attempt("verify", lambda: anychunk.verify(node, workers=1))
        if errors and report.is_good:
            raise Mismatch(f"verify finds nothing wrong, but reading raises: {errors[0][:200]}")
        if not errors and whole:
            bad = [f for f in report.findings if f.severity == "error" and "overlap" not in f.what]
            if bad and not report.is_good:
                did.append(f"verify: {bad[0].what[:100]}")
    if case.choice % 4 == 2:
        did.append("thumbnail")
        try:
            attempt("thumbnail", lambda: png(thumbnail(node, size=64)))
        except AnychunkError:
            did.append("no thumbnail")
    if case.choice % 8 == 3:
        kind = ("json", "json", "parquet", "icechunk")[case.choice // 8 % 4]
        did.append(f"save {kind}")
        target = folder / f"saved.{kind}"
        try:
            attempt("save", lambda: node.save(target))
        except AnychunkError:
            did.append("not saved")
            return did
        again = attempt("load", lambda: anychunk.index(target))
        described = attempt("describe", lambda: anychunk.describe(again))
        after, _, problems = read_all(described, attempt("reopen", lambda: anychunk.open(again)))
        same = before.keys() == after.keys() and all(
            a.dtype == after[path].dtype
            and a.shape == after[path].shape
            and a.tobytes() == after[path].tobytes()
            for path, a in before.items()
        )
        if not same and not errors:
            why = problems[0][:200] if problems else "other pixels"
            raise Mismatch(f"the index saved as {kind} reads differently: {why}")
    return did


def is_samples(path: str) -> bool:
    """Return whether an array holds samples, not positions or names beside them."""
    return path.rpartition("/")[2] in ("", "image", "mask") or not path.count("/")


def level_of(path: str) -> str:
    """Return the name of the level group of an array."""
    return path.split("/")[-2] if "/" in path else ""


def compare(case: Case, folder: Path, ours: dict[str, Any], say: Any) -> dict[str, Any]:
    """Compare pixels with the other readers; return what they say."""
    arrays = [
        array
        for path, array in ours["arrays"].items()
        # other readers of these formats do not return all of the resolutions that we list
        if is_samples(path)
        and (
            case.format not in ("jpeg2000", "nitf")
            or path in ("", "image")
            or level_of(path) == "0"
        )
    ]
    mine = [plane for array in arrays for plane in peers.planes(array) if plane.size]
    chosen = {id(array) for array in arrays}
    coarse = [
        plane
        for path, array in ours["arrays"].items()
        if is_samples(path) and id(array) not in chosen
        for plane in map(unsigned, peers.planes(array))
    ]
    # planes that no TiffData names are absent, and read as fill values
    has_holes = any("OME-XML" in edit.get("label", "") for edit in case.edits)
    pending = [plane for plane in mine if not has_holes or plane.any()]
    opinions, count = {}, {}
    for name in case.peers:
        say({"phase": name})
        try:
            ways = peers.READERS[name](folder / case.entry)
        except peers.TooLargeError:
            opinions[name] = "too large"
            continue
        except Exception as e:  # whatever they raise, they refuse
            opinions[name] = f"refuses: {type(e).__name__}: {e}"[:200]
            continue
        # all of our planes must be those of one way, and its planes are the ones to count
        left, theirs = min(
            (
                ([p for p in pending if not peers.is_among(p, way, case.tolerance)], way)
                for way in ways
            ),
            key=lambda found: len(found[0]),
        )
        opinions[name] = opinion(left, pending, theirs, mine, case.tolerance)
        # resolutions are left out of ours, too; those of other readers may be other ones
        if case.format == "jpeg2000":
            theirs = [plane for plane in theirs if plane.shape in {p.shape for p in mine}]
        theirs = [p for p in theirs if not peers.is_among(unsigned(p), coarse, case.tolerance)]
        count[name] = distinct([plane for plane in theirs if plane.size])
        pending = left
    if not case.peers:
        verdict = "pixels, no peer"
    elif not pending:
        verdict = "equal"
    elif any(o == "too large" for o in opinions.values()) or not ours["whole"]:
        verdict = "not compared"
    elif any(o.startswith("differs") for o in opinions.values()):
        verdict = "differs"
    else:
        verdict = "ours alone"
    shapes = [f"{a.dtype}{list(a.shape)}" for a in arrays[:4]]
    if (
        verdict == "equal"
        and any(count.values())
        and distinct(mine) * 2 <= min(count.values())
        and ours["whole"]
        and not ours["told"]
    ):
        verdict = "vanished"  # half of the planes that others find are not there
    return {"outcome": verdict, "opinions": opinions, "ours": shapes}


def unsigned(plane: np.ndarray) -> np.ndarray:
    """Return signed integers as unsigned ones: a way to read may be the same samples as these."""
    return plane.view(f"u{plane.itemsize}") if plane.dtype.kind == "i" else plane


def opinion(
    left: list[np.ndarray],
    pending: list[np.ndarray],
    theirs: list[np.ndarray],
    mine: list[np.ndarray],
    tolerance: float,
) -> str:
    """Say what a reader makes of planes of ours, of which it does not find those that are left."""
    if not left:
        return "agrees"
    if all(peers.is_among(plane, mine, tolerance) for plane in theirs):
        return f"lacks {len(left)} of {len(pending)} planes"  # which it does not contradict
    return f"differs in {len(left)} of {len(pending)} planes"


def is_undamaged(case: Case, ours: dict[str, Any], base: Path) -> bool:
    """Return whether the pixels are those of the seed: the damage did not reach them.

    Some of them may be missing if the file says so (`told`).
    """
    with tempfile.TemporaryDirectory(dir=base) as name:
        write(Path(name), case.files)
        before = use(replace(case, choice=NOTHING), Path(name)).get("arrays", {})
    types = {array.dtype for array in before.values()}
    if not {array.dtype for array in ours["arrays"].values()} <= types:
        return False
    known = [plane for array in before.values() for plane in peers.planes(array)]
    mine = [plane for array in ours["arrays"].values() for plane in peers.planes(array)]
    all_known = all(peers.is_among(plane, known, 0) for plane in mine)
    return bool(mine) and all_known and (ours["told"] or distinct(mine) == distinct(known))


def is_read_by_others(case: Case, base: Path, say: Any) -> bool:
    """Return whether another reader finds the same in the seed, which for real files is not known.

    What it does not read as we do before it is damaged says nothing about damage.
    """
    return confirmed(replace(case, edits=()), base, say) is not None


def confirmed(case: Case, base: Path, say: Any) -> list[np.ndarray] | None:
    """Return our arrays if another reader finds the same in a file, else None."""
    with tempfile.TemporaryDirectory(dir=base) as name:
        write(Path(name), case.edited())
        found = use(replace(case, choice=NOTHING), Path(name))
        if found["outcome"] != "pixels":
            return None
        is_equal = compare(case, Path(name), found, say)["outcome"] == "equal"
        return list(found["arrays"].values()) if is_equal else None


def is_equal_by_parts(case: Case, ours: dict[str, Any], base: Path, say: Any) -> bool:
    """Return whether each edit alone is read as another reader reads it, and explains our planes.

    Of a file with two edits, a reader that fails at one of them cannot confirm the other. A plane
    that appears only if both are there is confirmed by nobody: it remains a finding.
    """
    if len(case.edits) < 2:
        return False
    known: list[np.ndarray] = []
    for edit in case.edits:
        part = confirmed(replace(case, edits=(edit,)), base, say)
        if part is None:
            return False
        known += part
    mine = list(ours["arrays"].values())
    if not {array.dtype for array in mine} <= {array.dtype for array in known}:
        return False
    planes = [plane for array in known for plane in peers.planes(array)]
    return all(peers.is_among(plane, planes, 0) for array in mine for plane in peers.planes(array))


def distinct(planes: list[np.ndarray]) -> int:
    """Return how many planes differ from each other."""
    return len({(plane.shape, plane.tobytes()) for plane in planes})


def peak() -> int:
    """Return the largest resident size, in bytes, since `reset_peak`."""
    with Path("/proc/self/status").open() as file:
        lines = [line for line in file if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) << 10


def reset_peak() -> int:
    """Forget the largest resident size; return the current one."""
    Path("/proc/self/clear_refs").write_text("5")
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(case: Case, say: Any, base: Path) -> dict[str, Any]:
    """Run one case in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        write(folder, case.edited())
        if case.entry and not (folder / case.entry).exists():
            (folder / case.entry).mkdir(parents=True)
        say({"phase": "ours"})
        before = reset_peak()
        start = time.process_time()
        ours = use(case, folder)
        spent = {"cpu_s": round(time.process_time() - start, 3), "bytes": peak() - before}
        plain = {k: v for k, v in ours.items() if k != "arrays"}
        say({"phase": "peers", "ours": plain | spent})
        if ours["outcome"] == "pixels":
            plain |= compare(case, folder, ours, say)
        if plain["outcome"] in ("differs", "ours alone", "vanished") and case.edits:
            say({"phase": "the undamaged file"})
            if is_undamaged(case, ours, base):
                plain["outcome"] = "undamaged"
            elif case.seed.startswith("real/") and not is_read_by_others(case, base, say):
                plain["outcome"] = "seed not compared"
            elif is_equal_by_parts(case, ours, base, say):
                plain["outcome"] = "equal by parts"
        return plain | spent
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Serve requests until the pipe is closed."""
    requests = os.fdopen(int(sys.argv[1]), "r")
    answers = os.fdopen(int(sys.argv[2]), "w")
    base = Path(sys.argv[3])

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message, default=str) + "\n")
        answers.flush()

    import imagecodecs  # noqa: F401
    import rasterio
    import tifffile  # noqa: F401
    import zarr  # noqa: F401

    import anychunk  # noqa: F401 - before the clock starts

    warnings.simplefilter("ignore")
    environment = rasterio.Env(GDAL_CACHEMAX=64, GDAL_PAM_ENABLED="NO", CPL_LOG="/dev/null")
    environment.__enter__()
    say({"ready": os.getpid()})
    for line in requests:
        case = Case.from_json(json.loads(line))
        say({"done": run(case, say, base)})


if __name__ == "__main__":
    main()
