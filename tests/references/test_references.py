"""Save an index in each format, open it again here and in other processes, and compare."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import zarr

import anychunk
from anychunk import limits, references
from anychunk.errors import (
    AnychunkError,
    FormatError,
    LimitError,
    OptionError,
    SourceChangedError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.model.index import ArrayIndex, Computed, GroupIndex, Objects, walk
from anychunk.references import icechunk as ice
from tests.support.corpus import needs_corpus, samples
from tests.support.indexes import MADE, PATHS, array, pin_of, plain
from tests.support.patience import PATIENCE_S

FORMS = ["i.json", "i.parquet", "i.icechunk"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MADE)
def test_saved_and_opened_again(tmp_path, kind, form):
    node, truth = MADE[kind](tmp_path)
    node.save(tmp_path / form, copy="needed")
    opened = anychunk.open(tmp_path / form)
    np.testing.assert_array_equal(opened[PATHS[kind]][...], truth)
    assert opened.attrs.get("title") == node.attributes.get("title")
    again = anychunk.index(tmp_path / form)
    alone = {"tiles/t0_0", "tiles/t1_0"} if kind == "objects" else set()
    assert again.pins == node.pins | {str(tmp_path / n): pin_of(tmp_path / n) for n in alone}
    found, made = again[PATHS[kind]], node[PATHS[kind]]
    assert found.metadata() == made.metadata()


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("fronted", "i.json"),
        ("fronted", "i.parquet"),
        ("fronted", "i.icechunk"),
        ("parted", "i.parquet"),
        ("parted", "i.icechunk"),
    ],
)
def test_what_a_form_cannot_express_is_refused_before_anything_is_written(tmp_path, kind, form):
    node, _ = MADE[kind](tmp_path)
    with pytest.raises(UnsupportedError, match=r"array [fp]: \d of \d chunks") as e:
        node.save(tmp_path / form)
    assert 'copy="needed"' in str(e.value)
    assert not (tmp_path / form).exists()


def test_computed_chunks_are_refused_by_name(tmp_path):
    chunks = Computed(source="0", method="average", configuration={}, grid=(1,))
    node = GroupIndex(members={"c": array((2,), (2,), chunks)})
    with pytest.raises(UnsupportedError, match=r"array c: .*\(average\)"):
        node.save(tmp_path / "i.json")


@pytest.mark.parametrize("form", FORMS)
def test_members_of_any_name_are_kept(tmp_path, form):
    """`c` is where an array has its chunks, and may be the name of a group."""
    node, truth = plain(tmp_path)
    named = GroupIndex(members={"c": node["0"], "zarr.jsonx": node["0"], "0": node["0/0"]})
    named.save(tmp_path / form)
    opened = anychunk.open(tmp_path / form)
    assert set(opened.keys()) == {"c", "zarr.jsonx", "0"}
    np.testing.assert_array_equal(opened["c/0"][...], truth)


@pytest.mark.parametrize("form", FORMS)
def test_an_index_moves_with_its_data(tmp_path, form):
    (tmp_path / "old").mkdir()
    node, truth = plain(tmp_path / "old")
    node.save(tmp_path / "old" / form)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    shutil.rmtree(tmp_path / "old")
    os.utime(tmp_path / "new" / "a b.bin", ns=(1, 1))  # a copy has another modification time
    np.testing.assert_array_equal(anychunk.open(tmp_path / "new" / form)["0/0"][...], truth)
    (tmp_path / "new" / "a b.bin").write_bytes(b"shorter")
    with pytest.raises(SourceChangedError, match="size 7, was 40"):
        anychunk.open(tmp_path / "new" / form)["0/0"][...]


@pytest.mark.parametrize("form", FORMS)
def test_references_outside_what_is_allowed_are_refused(tmp_path, form):
    (tmp_path / "data").mkdir()
    (tmp_path / "idx").mkdir()
    node, truth = plain(tmp_path / "data")
    target = tmp_path / "idx" / form
    node.save(target)
    with pytest.raises(FormatError, match=r"data/a b\.bin.* outside .*/idx; .*allow="):
        anychunk.open(target)
    with pytest.raises(FormatError, match=r"data/a b\.bin.* outside .*/idx; .*allow="):
        anychunk.open(target, allow=[str(tmp_path / "dat")])
    opened = anychunk.open(target, allow=[str(tmp_path / "data")])
    np.testing.assert_array_equal(opened["0/0"][...], truth)
    assert anychunk.open(target, allow=["*"])["0/0"].shape == (4, 4)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_changes_under_its_index(tmp_path, form):
    node, _ = plain(tmp_path)
    node.save(tmp_path / form)
    (tmp_path / "a b.bin").write_bytes(bytes(range(1, 41)))
    os.utime(tmp_path / "a b.bin", ns=(1, 1))
    with pytest.raises(SourceChangedError, match="index it again"):
        anychunk.open(tmp_path / form)["0/0"][...]
    opened = anychunk.open(tmp_path / form, on_change="warn")
    with pytest.warns(UserWarning, match="what is read may be wrong"):
        assert opened["0/0"][0, 0] == 5
    with pytest.raises(ValueError, match="on_change is 'maybe'"):
        anychunk.open(tmp_path / form, on_change="maybe")


def test_a_short_file_is_an_error_never_fill(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = replace(anychunk.index(tmp_path / "i.json"), pins={})
    (tmp_path / "a b.bin").write_bytes(b"123")
    with pytest.raises(AnychunkError, match="ends after 3"):
        anychunk.open(found)["0/0"][...]
    (tmp_path / "sub" / "b.bin").unlink()
    with pytest.raises(AnychunkError, match="b.bin"):
        anychunk.open(found)["0/0"][2:, 2:]


def test_saving_again_replaces(tmp_path):
    node, truth = plain(tmp_path)
    other = GroupIndex(members={"z": node["0/0"]})
    for form in FORMS:
        other.save(tmp_path / form)
        node.save(tmp_path / form, overwrite=True)
        opened = anychunk.open(tmp_path / form)
        assert list(opened.group_keys()) == ["0"]
        np.testing.assert_array_equal(opened["0/0"][...], truth)


def test_unknown_targets_are_refused(tmp_path):
    node, _ = plain(tmp_path)
    with pytest.raises(UnsupportedError, match=r"i\.xyz.* \.json \.parquet \.parq"):
        node.save(tmp_path / "i.xyz")
    with pytest.raises(OptionError, match="'zip'.*kerchunk parquet icechunk"):
        node.save(tmp_path / "i.json", format="zip")
    node.save(tmp_path / "named", format="icechunk")
    assert anychunk.open(tmp_path / "named")["0/0"].shape == (4, 4)


def small_samples():
    """The first few small files of each format that is opened here."""
    found, seen = [], {}
    for sample in samples():
        family = sample.path.split("/")[0]
        if family == "malformed" or seen.get(family, 0) >= 2:
            continue
        if sample.file.is_file() and sample.file.stat().st_size > 300_000:
            continue
        try:
            node = anychunk.index(sample.file)
        except (AnychunkError, OSError):
            continue
        if sum(np.prod(a.shape) for _, a in walk(node) if isinstance(a, ArrayIndex)) > 3e6:
            continue
        seen[family] = seen.get(family, 0) + 1
        found.append(sample)
    return found


@pytest.mark.processes
@needs_corpus
@pytest.mark.filterwarnings("ignore")
def test_every_format_in_every_form_in_a_fresh_process(tmp_path):
    chosen = small_samples()
    assert len({s.path.split("/")[0] for s in chosen}) >= 5
    jobs, truths = [], []
    for number, sample in enumerate(chosen):
        node = anychunk.index(sample.file)
        opened = anychunk.open(node)
        paths = [path for path, n in walk(node) if isinstance(n, ArrayIndex)][:3]
        truth = [(opened[p] if p else opened)[...] for p in paths]
        for form in FORMS:
            if form == "i.parquet" and isinstance(node, ArrayIndex):
                continue
            target = tmp_path / f"{number}{form}"
            references.save(node, str(target), copy="needed")
            jobs.append([str(target), paths, str(tmp_path / f"{number}{form}.npz")])
            truths.append(truth)
    script = (
        "import sys, json, numpy as np, anychunk\n"
        "for target, paths, out in json.load(open(sys.argv[1])):\n"
        "    opened = anychunk.open(target, allow=['*'])\n"
        "    np.savez(out, *[(opened[p] if p else opened)[...] for p in paths])\n"
    )
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "jobs.json")],
        check=True,
        timeout=PATIENCE_S,
    )
    for (_, _, out), truth in zip(jobs, truths, strict=True):
        with np.load(out) as found:
            for i, values in enumerate(truth):
                np.testing.assert_array_equal(found[f"arr_{i}"], values)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_portable_codecs_are_read_by_plain_zarr_without_us(tmp_path):
    """A fresh process that never imports anychunk reads the NPY index by zarr and fsspec."""
    values = np.arange(24, dtype="<u2").reshape(4, 6)
    np.save(tmp_path / "a.npy", values)
    anychunk.index(tmp_path / "a.npy").save(tmp_path / "i.json")
    script = (
        "import sys, fsspec, zarr, numpy as np\n"
        "from zarr.storage import FsspecStore\n"
        "fs = fsspec.filesystem('reference', fo=sys.argv[1], asynchronous=True)\n"
        "g = zarr.open_group(FsspecStore(fs, path='', read_only=True), mode='r', zarr_format=3,"
        " use_consolidated=False)\n"
        "assert 'anychunk.api' not in sys.modules\n"
        "assert (g['0/0/image'][...] == np.arange(24).reshape(4, 6)).all()\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "i.json")],
        check=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("name", ["a+b", "a b", "é", "a%b", "a%20b", "a#b", "a?b"])
def test_folders_of_any_name(tmp_path, name):
    """Also by Icechunk itself, which compares references without their escapes."""
    (tmp_path / name).mkdir()
    node, truth = plain(tmp_path / name, f"{name}.bin")
    for form in FORMS:
        node.save(tmp_path / form)
        np.testing.assert_array_equal(anychunk.open(tmp_path / form)["0/0"][...], truth)
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["0/0"][...], truth)


def test_a_grid_beyond_the_limit_is_refused(tmp_path):
    node, _ = plain(tmp_path)
    for form in FORMS:
        node.save(tmp_path / form)
        with limits.override(chunks=3), pytest.raises(LimitError):
            anychunk.open(tmp_path / form)
    with limits.override(index_bytes=10), pytest.raises(LimitError):
        anychunk.open(tmp_path / "i.json")


@pytest.mark.parametrize("form", ["i.json", "i.icechunk"])
def test_an_empty_file_is_no_absent_chunk(tmp_path, form):
    """Where every chunk must be there."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "0").write_bytes(b"ab")
    (tmp_path / "d" / "1").write_bytes(b"")
    chunks = Objects(base=str(tmp_path / "d"), pattern="{0}", grid=(2,), is_sparse=False)
    node = GroupIndex(members={"a": array((4,), (2,), chunks)})
    with pytest.raises(TruncatedError, match="is empty"):
        node.save(tmp_path / form)


@pytest.mark.parametrize("form", ["i.json", "i.parquet", "i.icechunk"])
def test_braces_in_a_name_are_no_template(tmp_path, form):
    node, truth = plain(tmp_path, "a{{b}}.bin")
    if form == "i.json":
        with pytest.raises(UnsupportedError, match="braces"):
            node.save(tmp_path / form)
        assert not (tmp_path / form).exists()
    else:
        node.save(tmp_path / form)
        np.testing.assert_array_equal(anychunk.open(tmp_path / form)["0/0"][...], truth)


@pytest.mark.parametrize("form", FORMS)
def test_save_is_a_function_too(tmp_path, form):
    node, truth = plain(tmp_path)
    anychunk.save(node, tmp_path / form, relative=False)
    np.testing.assert_array_equal(anychunk.open(tmp_path / form)["0/0"][...], truth)
    anychunk.save(node["0/0"], tmp_path / "a", format="kerchunk")
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a")[...], truth)


@pytest.mark.processes
@pytest.mark.parametrize(
    "before",
    [
        "",
        "import anychunk.model.index",
        "import anychunk.api",
    ],
)
def test_an_index_of_another_process_saves_itself(tmp_path, before):
    """Unpickled where nothing of anychunk but the model is imported, as on a Dask worker."""
    node, truth = plain(tmp_path)
    (tmp_path / "n.pickle").write_bytes(pickle.dumps([node, node["0/0"]]))
    script = f"""
import pickle, sys
{before}
group, array = pickle.load(open("n.pickle", "rb"))
assert "anychunk.references" not in sys.modules
group.save("g.json")
array.save("a.json")
assert len(group.to_virtualizarr()._group.groups) == 1
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    np.testing.assert_array_equal(anychunk.open(tmp_path / "g.json")["0/0"][...], truth)
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.json")[...], truth)
