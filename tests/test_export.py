"""Save an index in each form, open it again here and elsewhere, and compare."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import fsspec
import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import anychunk
from anychunk import export, limits, sink
from anychunk.errors import (
    AnychunkError,
    FormatError,
    LimitError,
    SourceChangedError,
    UnsupportedError,
)
from anychunk.export import icechunk as ice
from anychunk.export.places import Places
from anychunk.index import ArrayIndex, Computed, GroupIndex, walk
from tests.corpus import needs_corpus, samples
from tests.indexes import MADE, PATHS, array, pin_of, plain

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
    with pytest.raises(UnsupportedError, match="chunks have inline bytes .* several parts") as e:
        node.save(tmp_path / form)
    assert 'copy="needed"' in str(e.value)
    assert not (tmp_path / form).exists()


def test_computed_chunks_are_refused_by_name(tmp_path):
    chunks = Computed(source="0", method="average", configuration={}, grid=(1,))
    node = GroupIndex(members={"c": array((2,), (2,), chunks)})
    with pytest.raises(UnsupportedError, match="array c: its chunks are computed"):
        node.save(tmp_path / "i.json")


def test_parts_stay_references_in_json(tmp_path):
    node, _ = MADE["parted"](tmp_path)
    node.save(tmp_path / "i.json")
    references = json.loads((tmp_path / "i.json").read_text())["refs"]
    assert references["p/c/0"] == ["{{base}}/parts.bin", [[30, 2], [2, 1], [20, 1]]]
    assert references["p/c/1"] == ["{{base}}/parts.bin", 8, 4]
    assert anychunk.index(tmp_path / "i.json")["p"] == node["p"]


def reference_store(target, **options):
    fs = fsspec.filesystem("reference", fo=str(target), asynchronous=True, **options)
    return FsspecStore(fs, read_only=True, path="")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fsspec_reads_our_json(tmp_path, zarr_format):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.json", zarr_format=zarr_format)
    group = zarr.open_group(
        reference_store(tmp_path / "i.json"),
        mode="r",
        zarr_format=zarr_format,
        use_consolidated=False,
    )
    np.testing.assert_array_equal(group["0/0"][...], truth)
    assert group.attrs["title"] == "é"


@pytest.mark.filterwarnings("ignore")
def test_fsspec_reads_our_parquet(tmp_path):
    pytest.importorskip("fastparquet")
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    group = zarr.open_group(
        # without a protocol fsspec goes through all references, and trips over nested groups
        reference_store(tmp_path / "i.parquet", remote_protocol="file"),
        mode="r",
        zarr_format=2,
        use_consolidated=False,
    )
    np.testing.assert_array_equal(group["0/0"][...], truth)


def test_icechunk_reads_our_repository(tmp_path):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    group = zarr.open_group(store, mode="r")
    np.testing.assert_array_equal(group["0/0"][...], truth)
    assert group.attrs["title"] == "é"


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


@pytest.mark.parametrize("form", FORMS)
def test_members_of_any_name_are_kept(tmp_path, form):
    """`c` is where an array has its chunks, and may be the name of a group."""
    node, truth = plain(tmp_path)
    named = GroupIndex(members={"c": node["0"], "zarr.jsonx": node["0"], "0": node["0/0"]})
    named.save(tmp_path / form)
    opened = anychunk.open(tmp_path / form)
    assert set(opened.keys()) == {"c", "zarr.jsonx", "0"}
    np.testing.assert_array_equal(opened["c/0"][...], truth)


def test_virtualizarr_both_ways(tmp_path):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    node, truth = plain(tmp_path, "a.bin")  # its stores do not find names with spaces
    store = node.to_virtualizarr(registry=ObjectStoreRegistry({"file://": LocalStore()}))
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    np.testing.assert_array_equal(group["0/0"][...], truth)
    back = anychunk.from_virtualizarr(store)
    np.testing.assert_array_equal(anychunk.open(back)["0/0"][...], truth)
    assert back.pins == node.pins
    fronted, values = MADE["fronted"](tmp_path)
    with pytest.raises(UnsupportedError, match="VirtualiZarr manifest cannot express"):
        fronted.to_virtualizarr()
    copied = anychunk.from_virtualizarr(fronted.to_virtualizarr(copy="needed"))
    np.testing.assert_array_equal(anychunk.open(copied)["f"][...], values)


def test_virtual_parser_is_a_parser_of_virtualizarr(tmp_path):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset, open_virtual_datatree
    from virtualizarr.parsers.typing import Parser

    values = np.arange(60, dtype="int16").reshape(3, 4, 5)
    np.save(tmp_path / "a.npy", values)
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parser = anychunk.VirtualParser()
    assert isinstance(parser, Parser)
    url = f"file://{tmp_path}/a.npy"
    dataset = open_virtual_dataset(url, registry=registry, parser=parser)
    assert dataset["data"].shape == (3, 4, 5)
    back = anychunk.from_virtualizarr(dataset)
    np.testing.assert_array_equal(anychunk.open(back)["data"][...], values)
    loaded = open_virtual_dataset(
        url, registry=registry, parser=parser, loadable_variables=["data"]
    )
    np.testing.assert_array_equal(loaded["data"].to_numpy(), values)
    tree = open_virtual_datatree(
        url, registry=registry, parser=anychunk.VirtualParser(tree=True), loadable_variables=[]
    )
    assert tree["0/0/data"].shape == (3, 4, 5)


@pytest.mark.parametrize("form", FORMS)
def test_an_index_moves_with_its_data(tmp_path, form):
    (tmp_path / "old").mkdir()
    node, truth = plain(tmp_path / "old")
    node.save(tmp_path / "old" / form)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    shutil.rmtree(tmp_path / "old")
    os.utime(tmp_path / "new" / "a b.bin", ns=(1, 1))  # a copy has a time of its own
    np.testing.assert_array_equal(anychunk.open(tmp_path / "new" / form)["0/0"][...], truth)
    (tmp_path / "new" / "a b.bin").write_bytes(b"shorter")
    with pytest.raises(SourceChangedError, match="size 7, was 40"):
        anychunk.open(tmp_path / "new" / form)["0/0"][...]


def test_relative_needs_the_data_below_the_index(tmp_path):
    (tmp_path / "data").mkdir()
    node, _ = plain(tmp_path / "data")
    with pytest.raises(UnsupportedError, match="lies outside"):
        node.save(tmp_path / "other" / "i.json", relative=True)
    node.save(tmp_path / "data" / "i.json", relative=False)
    assert "{{base}}" not in (tmp_path / "data" / "i.json").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_references_outside_what_is_allowed_are_refused(tmp_path, form):
    (tmp_path / "data").mkdir()
    (tmp_path / "idx").mkdir()
    node, truth = plain(tmp_path / "data")
    target = tmp_path / "idx" / form
    node.save(target)
    with pytest.raises(FormatError, match="leads outside .* allow it with"):
        anychunk.open(target)
    with pytest.raises(FormatError, match="leads outside"):
        anychunk.open(target, allow=[str(tmp_path / "dat")])
    opened = anychunk.open(target, allow=[str(tmp_path / "data")])
    np.testing.assert_array_equal(opened["0/0"][...], truth)
    assert anychunk.open(target, allow=["*"])["0/0"].shape == (4, 4)


@pytest.mark.parametrize(
    ("reference", "allow"),
    [
        ("/etc/passwd", ()),
        ("file:///etc/passwd", ()),
        ("../x", ()),
        ("sub/../../x", ()),
        ("s3://other/x", ()),
        ("s3://bucket-evil/x", ("s3://bucket",)),
        ("s3://bucket/data/../secret", ("s3://bucket/data/",)),
        ("s3://bucket/data/%2e%2e/secret", ("s3://bucket/data/",)),
        ("a\0b", ()),
        ("link/x", ()),
        ("{{nobody}}/x", ()),
    ],
)
def test_references_that_leave_are_refused(tmp_path, reference, allow):
    (tmp_path / "link").symlink_to("/etc")
    places = Places(url=str(tmp_path / "i.json"), allow=allow)
    with pytest.raises(FormatError):
        places.resolve(reference)


def test_references_that_stay_are_followed(tmp_path):
    places = Places(url=str(tmp_path / "i.json"), templates={"u": str(tmp_path)})
    assert places.resolve("a b.tif") == f"{tmp_path}/a b.tif"
    assert places.resolve("{{u}}/x") == f"{tmp_path}/x"
    remote = Places(url="s3://b/idx/i.json")
    assert remote.resolve("x.tif") == "s3://b/idx/x.tif"
    assert remote.resolve("s3://b/idx/deep/x.tif") == "s3://b/idx/deep/x.tif"


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


def test_icechunk_itself_notices_a_changed_file(tmp_path):
    import icechunk

    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    later = time.time_ns() + 5_000_000_000
    os.utime(tmp_path / "a b.bin", ns=(later, later))
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    with pytest.raises(icechunk.IcechunkError):
        zarr.open_group(store, mode="r")["0/0"][...]


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
        node.save(tmp_path / form)
        opened = anychunk.open(tmp_path / form)
        assert list(opened.group_keys()) == ["0"]
        np.testing.assert_array_equal(opened["0/0"][...], truth)


def test_osml_layout(tmp_path):
    node, truth = plain(tmp_path)
    for zarr_format, key in ((3, "0/data/c.1.0"), (2, "0/data/1.0")):
        node.save(tmp_path / "i.json", layout="osml", zarr_format=zarr_format)
        references = json.loads((tmp_path / "i.json").read_text())["refs"]
        assert key in references
        opened = anychunk.open(tmp_path / "i.json")
        np.testing.assert_array_equal(opened["0/data"][...], truth)


def test_foreign_reference_json(tmp_path):
    """Version 0, Zarr v2, big-endian, F order, zlib, slashes in keys, text inline: as kerchunk has it."""
    import zlib

    values = np.arange(6, dtype=">i2").reshape(2, 3)
    packed = zlib.compress(values.tobytes(order="F"))
    (tmp_path / "d").write_bytes(b"xx" + packed)
    zarray = {
        "zarr_format": 2,
        "shape": [2, 3],
        "chunks": [2, 3],
        "dtype": ">i2",
        "order": "F",
        "compressor": {"id": "zlib", "level": 1},
        "filters": None,
        "fill_value": None,
        "dimension_separator": "/",
    }
    text = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [4],
        "dtype": "|u1",
        "order": "C",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
    }
    references = {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(zarray),
        "a/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["r", "c"], "u": "m"}),
        "a/0/0": ["d", 2, len(packed)],
        "t/.zarray": text,
        "t/0": "abcd",
    }
    (tmp_path / "i.json").write_text(json.dumps(references, indent=1))
    opened = anychunk.open(tmp_path / "i.json")
    np.testing.assert_array_equal(opened["a"][...], values)
    assert opened["a"].metadata.dimension_names == ("r", "c")
    assert dict(opened["a"].attrs) == {"u": "m"}
    assert bytes(opened["t"][...]) == b"abcd"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", -1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", 1, 0]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", 2**63, 2**63]}),
        lambda d: d["refs"].update({"0/0/c/0/0": [None, 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": {"a": 1}}),
        lambda d: d["refs"].update({"0/0/c/0/0": "base64:%%%"}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["x", []]}),
        lambda d: d["refs"].update({"0/0/c/x/0": ["{{base}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0": ["{{base}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{q}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/zarr.json": "{"}),
        lambda d: d["refs"].update({"0/0/zarr.json": "[]"}),
        lambda d: d["refs"].update({"0/0/zarr.json": '{"node_type": "array"}'}),
        lambda d: d["refs"].update({"0/0/x/zarr.json": '{"node_type": "group"}'}),
        lambda d: d["refs"].update({"../zarr.json": '{"node_type": "group"}'}),
        lambda d: d.update({"gen": [{"key": "x"}]}),
        lambda d: d.update({"version": 2}),
        lambda d: d.update({"templates": 3}),
        lambda d: d["refs"].clear(),
    ],
)
def test_garbled_json_is_refused(tmp_path, change):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    change(found)
    (tmp_path / "i.json").write_text(json.dumps(found))
    with pytest.raises(AnychunkError):
        anychunk.open(tmp_path / "i.json")


def test_hostile_json_gives_an_index_or_an_error(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    text = (tmp_path / "i.json").read_bytes()
    random = np.random.default_rng(1)
    for i in range(400):
        data = bytearray(text)
        if i % 3 == 0:
            data = data[: random.integers(30, len(data))]
        for _ in range(random.integers(1, 6)):
            data[random.integers(0, len(data))] = random.integers(0, 256)
        (tmp_path / "x.json").write_bytes(bytes(data))
        try:
            opened = anychunk.open(tmp_path / "x.json", format="kerchunk")
            assert isinstance(opened, zarr.Group | zarr.Array)
        except (UnicodeDecodeError, RecursionError):
            raise
        except (AnychunkError, ValueError, KeyError, TypeError):
            # zarr itself judges data types and fill values that it does not know
            continue
    for bad in (b'{"refs": ' + b"[" * 100_000, b'{"refs": {"a": ' + b'{"a":' * 100_000):
        (tmp_path / "x.json").write_bytes(bad)
        with pytest.raises(FormatError):
            anychunk.open(tmp_path / "x.json")


def test_a_grid_beyond_the_limit_is_refused(tmp_path):
    node, _ = plain(tmp_path)
    for form in FORMS:
        node.save(tmp_path / form)
        with limits.override(chunks=3), pytest.raises(LimitError):
            anychunk.open(tmp_path / form)
    with limits.override(index_bytes=10), pytest.raises(LimitError):
        anychunk.open(tmp_path / "i.json")


def test_garbled_parquet_is_refused(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    (tmp_path / "i.parquet/0/0/refs.0.parq").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(FormatError, match="no parquet references"):
        anychunk.open(tmp_path / "i.parquet")


def test_a_lost_table_of_parquet_is_no_absent_chunks(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    (tmp_path / "i.parquet/0/0/refs.0.parq").unlink()
    with pytest.raises(FormatError, match="refs.0.parq is missing"):
        anychunk.open(tmp_path / "i.parquet")
    # as fsspec has it, where others wrote it
    (tmp_path / "i.parquet/anychunk.json").unlink()
    assert (anychunk.open(tmp_path / "i.parquet", allow=["*"])["0/0"][...] == 9).all()


def test_parquet_saved_again_is_never_half_of_each(tmp_path, monkeypatch):
    node, truth = plain(tmp_path)
    target = tmp_path / "i.parquet"
    MADE["scalar"](tmp_path)[0].save(target)
    real = sink.put

    def failing(url, *pieces, **options):
        if url.endswith("anychunk.json"):
            raise OSError("the disk is full")
        real(url, *pieces, **options)

    monkeypatch.setattr(sink, "put", failing)
    with pytest.raises(OSError, match="full"):
        node.save(target)
    monkeypatch.undo()
    with pytest.raises(UnsupportedError):
        anychunk.open(target)
    node.save(target)
    np.testing.assert_array_equal(anychunk.open(target)["0/0"][...], truth)


def test_unknown_targets_are_refused(tmp_path):
    node, _ = plain(tmp_path)
    with pytest.raises(UnsupportedError, match="tells no kind of index"):
        node.save(tmp_path / "i.xyz")
    with pytest.raises(UnsupportedError, match="no index 'zip'"):
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
            export.save(node, str(target), copy="needed")
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
        timeout=100,
    )
    for (_, _, out), truth in zip(jobs, truths, strict=True):
        with np.load(out) as found:
            for i, values in enumerate(truth):
                np.testing.assert_array_equal(found[f"arr_{i}"], values)


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
        "assert (g['0/0'][...] == np.arange(24).reshape(4, 6)).all()\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "i.json")],
        check=True,
        timeout=60,
    )


def test_pins_are_read_strictly(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    assert anychunk.index(tmp_path / "i.json").pins[str(tmp_path / "a b.bin")] == pin_of(
        tmp_path / "a b.bin"
    )
    text = (tmp_path / "i.json").read_text()
    (tmp_path / "i.json").write_text(text.replace('\\"size\\": 40', '\\"size\\": \\"40\\"'))
    with pytest.raises(FormatError, match="is no pin"):
        anychunk.open(tmp_path / "i.json")


def test_a_long_index_goes_to_icechunk_in_pieces_and_appears_at_once(tmp_path, monkeypatch):
    import icechunk

    from anychunk.export.icechunk import transaction

    monkeypatch.setattr(transaction, "PIECE", 1)
    monkeypatch.setattr("anychunk.export.icechunk.repository.MANIFEST_CHUNKS", 1)
    node, truth = plain(tmp_path)
    target = tmp_path / "i.icechunk"
    node.save(target)
    np.testing.assert_array_equal(anychunk.open(target)["0/0"][...], truth)
    before = anychunk.index(target)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))
    assert repository.list_branches() == {"main"}
    monkeypatch.setattr(
        transaction.Transaction, "commit", lambda self, message: (_ for _ in ()).throw(OSError())
    )
    with pytest.raises(OSError):
        GroupIndex(members={"z": node["0/0"]}).save(target)
    assert anychunk.index(target) == before  # a crash leaves what was there
    monkeypatch.undo()
    monkeypatch.setattr(transaction, "PIECE", 1)
    GroupIndex(members={"z": node["0/0"]}).save(target)
    assert list(anychunk.index(target).members) == ["z"]
