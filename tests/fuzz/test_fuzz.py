"""The fuzzer itself: seeds that are valid, cases that repeat, limits that hold; and its findings."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fuzz.pool
from fuzz import explained, mutations, seeds, state, worker
from fuzz.__main__ import generated, without_folders
from fuzz.cases import Case, apply, make
from fuzz.minimise import minimise, signature
from fuzz.pool import Pool
from tests.support.patience import PATIENCE_S

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
GOOD = ("equal", "pixels, no peer")


def unedited(seed, choice=0):
    return Case(
        seed=seed.name, format=seed.format, files=seed.files, entry=seed.entry, peers=seed.peers,
        tolerance=seed.tolerance, choice=choice,
    )  # fmt: skip


def test_every_seed_is_read_as_other_readers_read_it():
    """What is read wrong before it is damaged says nothing about damage."""
    every = [seed for name in seeds.FORMATS for seed in seeds.of_format(name)]
    with Pool(2) as pool:
        stream = ((seed, unedited(seed)) for seed in every)
        found = {seed.name: outcome for seed, _, outcome in pool.run(stream)}
    assert len(found) == len(every) > 150
    assert {name: o for name, o in found.items() if o["outcome"] not in GOOD} == {}
    assert sum(o["outcome"] == "equal" for o in found.values()) > 70


def test_the_same_numbers_give_the_same_cases():
    names = ["npy", "jnrrd", "jpeg2000"]
    first, second = generated(names, 5, 10), generated(names, 5, 10)
    for _ in range(50):
        (number, _), case = next(first)
        (again, _), same = next(second)
        assert (number, case) == (again, same)
        assert case.edited() != case.files


def test_a_case_survives_json():
    (_, _), case = next(generated(["npy"], 1, 0))
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_edits_refer_to_the_unedited_file():
    files = {"a": b"0123456789"}
    grow = {"kind": "put", "file": "a", "offset": 2, "length": 1, "hex": b"xyz".hex()}
    late = {"kind": "put", "file": "a", "offset": 8, "length": 1, "hex": b"Q".hex()}
    fit = {"kind": "fit", "file": "a", "offset": 4, "length": 1, "hex": b"AB".hex(), "end": 10}
    assert apply(files, (grow, late)) == {"a": b"01xyz34567Q9"}
    assert apply(files, (late, fit)) == {"a": b"0123AB567Q"}
    assert apply(files, ()) is None
    inner = {"kind": "json", "file": "a", "path": ["x", "y", 0], "value": 7}
    assert json.loads(json.loads(apply({"a": b'{"x": "{\\"y\\": [1]}"}'}, (inner,))["a"])["x"]) == {
        "y": [7]
    }


def test_every_kind_of_field_is_edited():
    kinds = {
        spot.kind for name in seeds.FORMATS for s in seeds.of_format(name) for spot in s.fields
    }
    assert kinds == set(mutations.EDITORS)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("dies", "death"),
        ("takes memory", "memory"),
        ("took", "memory"),
        ("takes time", "time"),
        ("dies in a peer", "peer died"),
        ("is fine", "equal"),
    ],
)
def test_the_pool_notices(monkeypatch, kind, outcome):
    if kind == "takes time":
        monkeypatch.setattr(fuzz.pool, "CPU_S", 0.3)
    monkeypatch.setattr(fuzz.pool, "MEMORY", 400 << 20)
    case = Case(seed=kind, format="npy", files={}, entry="")
    with Pool(1, module="tests.support.faults") as pool:
        assert pool.one(case)["outcome"] == outcome
        assert (
            pool.one(Case(seed="is fine", format="npy", files={}, entry=""))["outcome"] == "equal"
        )


def test_a_finding_is_minimised():
    """A pool that calls every case bad that contains one edit."""

    class Sensitive:
        def one(self, case):
            bad = any(edit["offset"] == 90 for edit in case.edits)
            return {"outcome": "differs" if bad else "equal"}

    seed = seeds.of_format("npy")[0]
    edits = tuple(
        {"kind": "put", "file": "a.npy", "offset": at, "length": 1, "hex": "00", "label": str(at)}
        for at in (80, 90, 99)
    )
    case = make(seed, edits, 0)
    small, outcome = minimise(Sensitive(), seed, case, {"outcome": "differs"})
    assert small.edits == edits[1:2]
    assert signature(small, outcome) == ("differs", seed.name, "90")


def damaged(seed, *offsets):
    """A case with a sample changed at each offset from the end of an NPY file."""
    size = len(seed.files[seed.entry])
    edits = tuple(
        {"kind": "put", "file": seed.entry, "offset": size - at, "length": 1, "hex": "7b"}
        for at in offsets
    )
    return make(seed, edits, 0)


def test_planes_that_only_two_edits_together_make_are_not_equal_by_parts(tmp_path):
    """Each edit alone is confirmed; of both together, only what one of them shows."""
    seed = seeds.of_format("npy")[0]
    case = damaged(seed, 1, 9)
    apart = [worker.use(replace(case, edits=(e,)), written(tmp_path, case, e)) for e in case.edits]
    both = worker.use(case, written(tmp_path, case, *case.edits))
    assert not worker.is_equal_by_parts(case, both, tmp_path, lambda _: None)
    for part in apart:
        assert worker.is_equal_by_parts(case, part, tmp_path, lambda _: None)
    single = damaged(seed, 1)
    assert not worker.is_equal_by_parts(single, apart[0], tmp_path, lambda _: None)


def written(folder, case, *edits):
    """Write the files of a case with some of its edits; return their folder."""
    place = folder / str(len(list(folder.iterdir())))
    for name, data in replace(case, edits=edits).edited().items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


@pytest.mark.processes
def test_the_command(tmp_path):
    """It counts its inputs, keeps the state where it is told, and continues there."""
    options = "--inputs 4 --formats npy --seed 3 --workers 1 --minutes 5"
    command = [sys.executable, "-m", "fuzz", *options.split(), "--state", str(tmp_path)]
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=fuzz.pool.ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    first, second = state.runs(tmp_path)
    assert (first["inputs"], second["inputs"]) == (4, 4)
    assert second["first"] == first["next"] >= 4


def test_runs_are_summed(tmp_path):
    for inputs in (3, 4):
        run = state.Run(tmp_path, seed=7, first=0)
        run.path = run.path.with_name(f"{inputs}.json")
        for _ in range(inputs):
            run.add("npy", "equal")
        run.save(following=inputs, cpu_s=1800, workers=2)
    assert state.following(tmp_path, 7) == 4
    assert state.following(tmp_path, 8) == 0
    lines = state.summary(state.runs(tmp_path)).splitlines()
    assert lines[-2].split() == ["all", "7", "7"]
    assert "1.00 core-hours" in lines[-1]


@pytest.mark.skipif(not CASES, reason="the fuzzer has no findings that are kept")
def test_findings_stay_fixed():
    """Each was once a foreign exception, a death, too much memory or time, or a wrong pixel."""
    with Pool(2) as pool:
        stream = ((path, Case.from_json(json.loads(path.read_text())["case"])) for path in CASES)
        found = {path.name: (case, outcome) for path, case, outcome in pool.run(stream)}
    bad = {
        name: outcome
        for name, (case, outcome) in found.items()
        if outcome["outcome"] in state.BAD and not explained.reason(case, outcome)
    }
    assert len(found) == len(CASES)
    assert bad == {}


def test_findings_name_no_folders():
    message = "/var/x1/y2/a.tif 0/0/image: see https://example.org/a/b; '/home/me/b.tif' is cut"
    assert without_folders(message) == (
        "a.tif 0/0/image: see https://example.org/a/b; 'b.tif' is cut"
    )
    for path in CASES:
        found = json.loads(path.read_text()).get("found", {})
        assert without_folders(found) == found, path.name
