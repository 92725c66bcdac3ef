"""Indexes of all real files exchanged with osml-imagery-io, in both directions and in every form.

`make test-in ENV=osml` makes the environments, without and with anychunk beside it, and runs these.
"""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError
from anychunk.model.index import ArrayIndex, walk
from tests.support import corpus
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("osml_exchange.py")
FORMS = ("2.json", "3.json", "2.parquet")
PARTS = 8
"""The real files are exchanged in parts: all of them take minutes."""
MISTAKEN = ("float32_ieee754_split_reversible.jp2",)
"""Components of 1, 8 and 23 bits, which its index calls int8."""
OPEN = """
import hashlib, json, sys
import numpy as np, anychunk
found = {}
for index in json.load(open(sys.argv[1])):
    try:
        group = anychunk.open(index)
    except anychunk.AnychunkError as e:
        found[index] = [f"{type(e).__name__}: {e}"]
        continue
    values = found[index] = []
    while f"{len(values)}/data" in group:
        try:
            array = np.asarray(group[f"{len(values)}/data"][...])
        except anychunk.AnychunkError as e:
            values.append(f"{type(e).__name__}: {e}")
            continue
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        values.append(hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest())
json.dump(found, open(sys.argv[2], "w"))
"""


def run(python, folder, given, *arguments):
    (folder / "given.json").write_text(json.dumps([str(path) for path in given]))
    *start, last = arguments
    command = [python, "-W", "ignore", *start, folder / "given.json", folder / last]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / last).read_text())


def truth_of(file):
    """Return the hashes of all arrays of a file, and of each plane of a stack.

    None if chunks are damaged, or in files that are missing.
    """
    group, hashes = anychunk.open(file), set()
    for path, node in walk(anychunk.index(file)):
        if not isinstance(node, ArrayIndex) or node.data_type == "string":
            continue
        try:
            array = np.asarray(group[path][...])
        except AnychunkError:
            return None  # osml-imagery-io shows pixels of some damaged files all the same
        hashes.add(corpus.sha256(array))
        if array.ndim < 3 or not array.size:
            continue
        ndims = range(1, array.ndim - 1)
        for axes in itertools.chain.from_iterable(
            itertools.combinations(range(array.ndim - 2), n) for n in ndims
        ):
            moved = np.moveaxis(array, axes, range(len(axes)))
            planes = moved.reshape(-1, *moved.shape[len(axes) :])
            hashes |= {corpus.sha256(plane) for plane in planes[:100]}
    return hashes


def copied(part, folder):
    """Yield a copy of each real file that osml-imagery-io may read, in a folder of its own."""
    formats = ("tiff", "nitf", "jpeg2000", "ome-tiff")
    found = [sample for sample in corpus.samples() if sample.format in formats]
    assert len(found) > 300
    for number, sample in enumerate(found[part::PARTS]):
        (folder / str(number)).mkdir()
        # an OME-TIFF file may be one of several
        files = sample.file.parent.iterdir() if sample.format == "ome-tiff" else [sample.file]
        for file in filter(Path.is_file, files):
            shutil.copy(file, folder / str(number))
        yield folder / str(number) / sample.file.name


@corpus.needs_corpus
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_all_real_files(tmp_path, part):
    """0 wrong in any direction; 0 refused that osml-imagery-io reads right by its own index."""
    theirs_alone, beside = (ROOT / f".venv-{n}/bin/python" for n in ("osml", "beside"))
    if not theirs_alone.exists() or not beside.exists():
        pytest.skip("osml-imagery-io is not here: make test-in ENV=osml")
    truths, ours = {}, []
    for file in copied(part, tmp_path):
        try:
            truth = truth_of(file)
        except AnychunkError:
            continue
        if truth is None:
            continue
        truths[str(file)] = truth
        for form in FORMS:
            target = f"{file}.ours-{form}"
            options = {"zarr_format": int(form[0])} if form.endswith("json") else {}
            try:
                anychunk.index(file).save(target, layout="osml", **options)
            except AnychunkError:
                continue
            ours.append(target)
    assert len(truths) > 50
    theirs = run(theirs_alone, tmp_path, truths, SCRIPT, "write", "theirs.json")
    readings = {
        "theirs here": run(sys.executable, tmp_path, theirs, "-c", OPEN, "a.json"),
        "theirs where both are": run(beside, tmp_path, theirs, "-c", OPEN, "b.json"),
        "ours there": run(theirs_alone, tmp_path, ours, SCRIPT, "read", "c.json"),
        "ours where both are": run(beside, tmp_path, ours, SCRIPT, "read", "d.json"),
    }
    failed = []
    for file, truth in truths.items():
        for (reading, found), form in itertools.product(readings.items(), FORMS):
            is_read = (theirs.get(f"{file}.{form}") or [""])[0] in truth
            indexes = [f"{file}.ours-{form}"]
            if "theirs" in reading:
                indexes = [f"{file}.{form}", f"{file}.portable-{form}"]
                is_read = f"{file}.{form}" in theirs and not file.endswith(MISTAKEN)
            for index in indexes:
                values = found.get(index, ["refused"])
                is_wrong = [v not in truth and ": " not in v and v != "refused" for v in values]
                is_refused = [v not in truth for v in values]
                if any(is_wrong) or (is_read and any(is_refused)):
                    failed.append((reading, index, values))
    assert failed == []
