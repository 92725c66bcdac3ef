"""Saved indexes where osml-imagery-io is installed beside anychunk, so that both register codecs.

`make test-in ENV=osml` makes the environment and runs these.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError
from anychunk.model.index import ArrayIndex, walk
from tests.support import corpus, j2k_streams
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
URI = "https://awslabs.github.io/osml-imagery-io/codecs/"
PYTHON = ROOT / ".venv-beside" / "bin" / "python"
SCRIPT = Path(__file__).with_name("beside_osml.py")
pytestmark = [
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason="osml-imagery-io is not installed beside us: make test-in ENV=osml",
    ),
    pytest.mark.filterwarnings("ignore"),
]
FORMS = {
    "3.json": (3, {}),
    "2.json": (2, {"zarr_format": 2}),
    "2.parquet": (2, {}),
}
OPEN = """
import json, sys
import anychunk
for path in json.load(open(sys.argv[1])):
    try:
        anychunk.open(path)
    except anychunk.AnychunkError:
        pass
"""
GREY = np.random.default_rng(0).integers(0, 4000, (130, 150)).astype("u2")
RGB = np.random.default_rng(1).integers(0, 255, (3, 128, 192)).astype("u1")


def run(*arguments):
    done = subprocess.run(
        [PYTHON, *map(str, arguments)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def saved(files, folder):
    """Save every file in every form; return the jobs, and the hash of each array."""
    jobs, truth = [], {}
    for number, file in enumerate(files):
        try:
            group = anychunk.open(file)
        except AnychunkError:
            continue
        hashes = {}
        for path, array in walk(anychunk.index(file)):
            if isinstance(array, ArrayIndex):
                try:
                    found = np.asarray(group[path][...])
                except AnychunkError:
                    continue  # a damaged chunk
                if found.dtype.kind in "biufc":
                    hashes[path] = corpus.sha256(found)
        for name, (zarr_format, options) in FORMS.items():
            target = folder / f"{number}.{name}"
            try:
                anychunk.index(file).save(target, copy="needed", **options)
            except AnychunkError:
                continue  # has no such form
            jobs.append([str(target), zarr_format, list(hashes)])
            truth |= {f"{target} {path}": value for path, value in hashes.items()}
    return jobs, truth


def check(files, folder):
    """Compare what zarr reads with either package's classes; return the counts of shared names."""
    (folder / "files.json").write_text(json.dumps([str(file) for file in files]))
    run("-W", "error", "-c", OPEN, folder / "files.json")
    jobs, truth = saved(files, folder)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    run(SCRIPT, folder / "jobs.json", folder / "found.json")
    found = json.loads((folder / "found.json").read_text())
    caught = found.pop("warnings")
    counts, wrong = Counter(), []
    for key, choices in found.items():
        is_v3 = ".3.json" in key
        for choice, (value, names) in choices.items():
            counts[choice, names] += 1
            # Zarr v2 tells a filter nothing of its chunk, and its parquet has no group for a loop
            limits = ("reshape", "No array found", "expected a whole chunk")
            is_refused = not is_v3 and any(text in value for text in limits)
            if value != truth[key] and not is_refused:
                wrong.append((key, choice, value, names))
    assert wrong == []
    # zarr's one warning, for each name, and only where nothing says which class to take
    shared = {text.partition("'")[2] for texts in caught.values() for text in texts if URI in text}
    assert all(
        text.endswith("' not configured in config. Selecting any implementation.")
        for text in shared
    )
    assert not any(URI in text for choice in ("anychunk", "aws") for text in caught[choice])
    return counts


def test_made_files(tmp_path):
    options = {"compression": "lzw", "predictor": True, "tile": (64, 64), "photometric": "rgb"}
    tifffile.imwrite(tmp_path / "rgb.tif", np.moveaxis(RGB, 0, -1), **options)
    options = {"compression": "zlib", "predictor": True, "rowsperstrip": 50}
    tifffile.imwrite(tmp_path / "grey.tif", GREY, **options)
    tifffile.imwrite(tmp_path / "big.tif", GREY, byteorder=">", **options)
    files = [tmp_path / name for name in ("rgb.tif", "grey.tif", "big.tif")]
    if j2k_streams.COMPRESS is not None:
        (tmp_path / "a.j2k").write_bytes(j2k_streams.compress(list(RGB), "-t", "64,64", "-n", "3"))
        files.append(tmp_path / "a.j2k")
    counts = check(files, tmp_path)
    assert {choice for choice, names in counts if names} == {"default", "anychunk", "aws"}


PARTS = 8
"""The real files are read in parts: all of them take minutes."""


@corpus.needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_real_files(tmp_path, part):
    """No pixel differs, whichever class zarr takes for a name that both packages register."""
    formats = ("tiff", "nitf", "jpeg2000", "ome-tiff")
    files = [sample.file for sample in corpus.samples() if sample.format in formats]
    assert len(files) > 300
    counts = check(files[part::PARTS], tmp_path)
    assert {name for _, names in counts for name in names.split()} >= {"tiff-tile", "jpeg2000"}
