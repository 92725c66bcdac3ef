"""Indexes of remote files, and of many: S3, web servers that fail, a Dask cluster, a crash."""

import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import rasterio
import rasterio.enums
import tifffile

import anychunk
from anychunk import limits, references
from anychunk.archive import Files, save_files
from anychunk.cli import main
from anychunk.combine.batches import Recipe
from anychunk.combine.images import expand
from anychunk.errors import (
    AnychunkError,
    FilesError,
    FormatError,
    LimitError,
    SourceChangedError,
    SourceError,
)
from anychunk.references import icechunk as ice
from anychunk.references.icechunk import chunks
from tests.support.combined_files import write_geotiff
from tests.support.http_server import serve
from tests.support.nginx import needs_nginx, serve_nginx
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.proxy import proxy
from tests.support.s3 import SECRET, needs_s3, serve_s3

VALUES = np.random.default_rng(3).integers(0, 4000, (64, 80), dtype="uint16")
COUNT = 1000
"""COGs of the archive."""


def write_cog(path, values, **options):
    tifffile.imwrite(path, values, tile=(16, 16), compression="zlib", **options)


@pytest.fixture
def web(tmp_path):
    (tmp_path / "data").mkdir()
    write_cog(tmp_path / "data" / "a.tif", VALUES)
    with serve(tmp_path) as served:
        yield served, tmp_path


FORMS = ["i.json", "i.parquet", "i.icechunk"]


@pytest.mark.processes
@pytest.mark.parametrize("form", FORMS)
def test_remote_file_in_each_form(web, form):
    served, folder = web
    anychunk.index(f"{served.url}/data/a.tif").save(folder / form)
    with pytest.raises(FormatError, match="a.tif.*allow="):
        anychunk.open(folder / form)
    opened = anychunk.open(folder / form, allow=[served.url])
    served.requests.clear()
    np.testing.assert_array_equal(opened["0/0/image"][...].reshape(64, 80), VALUES)
    assert len(served.requests) <= 2
    served.fail[:] = [500, 503]
    np.testing.assert_array_equal(opened["0/0/image"][...].reshape(64, 80), VALUES)


@pytest.mark.processes
@pytest.mark.parametrize("form", FORMS)
def test_faults_are_errors_never_fill(web, form):
    served, folder = web
    anychunk.index(f"{served.url}/data/a.tif").save(folder / form)
    with limits.override(retries=1, retry_s=2):
        opened = anychunk.open(folder / form, allow=[served.url])
        served.fail[:] = [500] * 50
        with pytest.raises(SourceError, match="a.tif"):
            opened["0/0/image"][...]
        served.fail.clear()
        served.short = True
        with pytest.raises(AnychunkError, match="a.tif"):
            opened["0/0/image"][...]
        served.short = False
        np.testing.assert_array_equal(opened["0/0/image"][...].reshape(64, 80), VALUES)


FAULTS = {"500": {"fail": 500}, "dropped": {"drop": 1}, "short": {"short": 1}}


@pytest.mark.processes
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", [None, *FORMS])
def test_faults_of_the_network_are_retried_then_errors_never_fill(web, form, fault):
    """While parsing and while reading, of a file and of its index, by a proxy that fails."""
    served, folder = web
    with (
        proxy(*urlsplit(served.url).netloc.split(":")) as between,
        limits.override(retries=2, retry_s=5),
    ):
        url = f"{between.url}/data/a.tif"

        def break_next(count):
            between.fail, between.drop, between.short = [], 0, 0
            for name, value in FAULTS[fault].items():
                setattr(between, name, [value] * count if name == "fail" else count)

        if form is not None:
            anychunk.index(url).save(folder / form)
        for count, is_read in ((1, True), (2, True), (99, False), (0, True)):
            break_next(0)
            opened = anychunk.open(folder / form, allow=[between.url]) if form else None
            break_next(count)
            if is_read:
                group = opened or anychunk.open(url)
                np.testing.assert_array_equal(group["0/0/image"][...].reshape(64, 80), VALUES)
            else:
                with pytest.raises(AnychunkError, match="a.tif"):
                    (opened or anychunk.open(url))["0/0/image"][...]


@pytest.mark.processes
@pytest.mark.parametrize("form", FORMS)
def test_a_changed_remote_file_is_noticed(web, form):
    served, folder = web
    anychunk.index(f"{served.url}/data/a.tif").save(folder / form)
    write_cog(folder / "data" / "a.tif", VALUES[::-1])
    opened = anychunk.open(folder / form, allow=[served.url])
    with pytest.raises(SourceChangedError, match="index it again"):
        opened["0/0/image"][...]


@pytest.mark.processes
@needs_nginx
def test_a_real_web_server_in_each_form(tmp_path):
    (tmp_path / "data").mkdir()
    write_cog(tmp_path / "data" / "a b.tif", VALUES)
    with serve_nginx(tmp_path / "data", tmp_path / "aside") as url:
        for form in FORMS:
            anychunk.index(f"{url}/a%20b.tif").save(tmp_path / form)
            opened = anychunk.open(tmp_path / form, allow=[url])
            np.testing.assert_array_equal(opened["0/0/image"][...].reshape(64, 80), VALUES)
        lines = (tmp_path / "aside" / "requests").read_text().splitlines()
        assert all(" 206 " in line for line in lines if "GET" in line)
        assert len(lines) <= 4 * len(FORMS)
        write_cog(tmp_path / "data" / "a b.tif", VALUES + 1)
        for form in FORMS:
            with pytest.raises(SourceChangedError):
                anychunk.open(tmp_path / form, allow=[url])["0/0/image"][...]
        with pytest.raises(FileNotFoundError, match="check the url"):
            anychunk.open(f"{url}/none.tif")


@pytest.mark.processes
def test_an_index_on_the_web_refers_to_its_own_folder(web):
    served, folder = web
    node = anychunk.index(folder / "data" / "a.tif")
    node.save(folder / "data" / "i.json")
    text = (folder / "data" / "i.json").read_text()
    assert "{{base}}/a.tif" in text
    opened = anychunk.open(f"{served.url}/data/i.json")
    np.testing.assert_array_equal(opened["0/0/image"][...].reshape(64, 80), VALUES)
    with (folder / "data" / "a.tif").open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceChangedError, match="size"):
        anychunk.open(f"{served.url}/data/i.json")["0/0/image"][...]


@pytest.mark.processes
@needs_s3
def test_s3_in_each_form(tmp_path):
    (tmp_path / "bucket" / "scenes").mkdir(parents=True)
    for name in "ab":
        write_cog(tmp_path / "bucket" / "scenes" / f"{name}.tif", VALUES)
    with serve_s3(tmp_path) as storage:
        pattern = "s3://bucket/scenes/*.tif"
        assert [u[-5:] for u in expand(pattern, storage)] == ["a.tif", "b.tif"]
        node = anychunk.index(pattern, combine="stack", storage=storage)
        for form in FORMS:
            url = f"s3://bucket/scenes/{form}"
            node.save(url, storage=storage, target_storage=storage)
            opened = anychunk.open(url, storage=storage)
            found = opened["0/0/image"][...].reshape(2, 64, 80)
            np.testing.assert_array_equal(found, np.stack([VALUES, VALUES]))
        everything = b"".join(
            p.read_bytes() for p in (tmp_path / "bucket").rglob("*") if p.is_file()
        )
        assert SECRET.encode() not in everything.replace(b"secret_access", b"")
        repository = ice.open_repository("s3://bucket/scenes/i.icechunk", storage=storage)
        import zarr

        direct = zarr.open_group(repository.readonly_session("main").store, mode="r")
        np.testing.assert_array_equal(direct["0/0/image"][1].reshape(64, 80), VALUES)


@pytest.mark.processes
@needs_s3
def test_objects_of_any_name_are_found_by_a_pattern(tmp_path):
    """A percent sign, a hash or a question mark in a key is not part of the url syntax."""
    folder = tmp_path / "bucket" / "x y"
    folder.mkdir(parents=True)
    names = ["a b.tif", "a%20b.tif", "a#b.tif", "a+b.tif", "é.tif", "a?b.tif"]
    for i, name in enumerate(names):
        write_cog(folder / name, VALUES + i)
    with serve_s3(tmp_path) as storage:
        urls = expand("s3://bucket/x y/*.tif", storage)
        assert len(urls) == len(names)
        failures = {}
        node = anychunk.index(
            "s3://bucket/x y/*.tif", combine="stack", storage=storage, failures=failures
        )
        assert not failures
        for form in FORMS:
            node.save(f"s3://bucket/x y/{form}", storage=storage, target_storage=storage)
            found = anychunk.open(f"s3://bucket/x y/{form}", storage=storage)["0/0/image"][...]
            truth = np.stack([VALUES + names.index(name) for name in sorted(names)])
            order = np.argsort([sorted(names).index(unquote(u.rpartition("/")[2])) for u in urls])
            np.testing.assert_array_equal(found.reshape(truth.shape)[order], truth)


def test_keep_going_passes_over_a_batch_of_failures(tmp_path):
    for name in "ac":
        write_cog(tmp_path / f"{name}.tif", VALUES)
    (tmp_path / "b.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
    target, failures = tmp_path / "r.icechunk", {}
    paths = [str(tmp_path / f"{name}.tif") for name in "abc"]
    assert anychunk.append(paths, target, batch=1, failures=failures) == 2
    assert list(failures) == [paths[1]]
    assert sorted(anychunk.open(target).group_keys()) == ["a", "c"]
    assert anychunk.append(paths, target, batch=1, failures={}) == 0
    with pytest.raises(FilesError, match="1 of 1"):
        anychunk.append(paths[1], tmp_path / "none.icechunk", failures={})


def test_failures_are_reported_file_by_file(tmp_path):
    write_cog(tmp_path / "good.tif", VALUES)
    (tmp_path / "bad.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
    (tmp_path / "worse.tif").write_bytes(b"nothing")
    with pytest.raises(FilesError) as e:
        anychunk.index(str(tmp_path / "*.tif"), combine="group")
    assert set(e.value.failures) == {str(tmp_path / "bad.tif"), str(tmp_path / "worse.tif")}
    assert str(e.value).startswith("2 of 3 files")
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    failures = {}
    node = anychunk.index(str(tmp_path / "*.tif"), combine="group", failures=failures)
    assert list(node.members) == ["good"]
    assert set(failures) == set(e.value.failures)
    with pytest.raises(FileNotFoundError, match=r"\*\.nothing"):
        anychunk.index(str(tmp_path / "*.nothing"), combine="group")


def test_command_line(tmp_path, capsys):
    for name in "ab":
        write_cog(tmp_path / f"{name}.tif", VALUES)
    (tmp_path / "c.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
    pattern = str(tmp_path / "*.tif")
    with pytest.raises(SystemExit) as e:
        main(["index", pattern, "-o", str(tmp_path / "i.parquet"), "--keep-going"])
    assert e.value.code == 1
    shown = capsys.readouterr()
    assert "2 files, 2 arrays, 40 chunks" in shown.out
    assert "1 failure\n" in shown.out
    assert "skipped: " in shown.err
    assert set(anychunk.open(tmp_path / "i.parquet").group_keys()) == {"a", "b"}
    with pytest.raises(SystemExit) as e:
        main(["index", pattern, "-o", str(tmp_path / "j.json")])
    assert e.value.code == 2
    assert "1 of 3 files could not be indexed" in capsys.readouterr().err
    assert not (tmp_path / "j.json").exists()
    with pytest.raises(SystemExit) as e:
        main(["index", str(tmp_path / "a.tif"), "-o", str(tmp_path / "one.json")])
    assert not e.value.code
    assert json.loads((tmp_path / "one.json").read_text())["version"] == 1
    with pytest.raises(SystemExit) as e:
        main(
            ["index", str(tmp_path / "a.tif"), str(tmp_path / "b.tif"), "-o",
             str(tmp_path / "s.icechunk"), "--combine", "stack", "--along", "t", "--append",
             "--batch", "1"]
        )  # fmt: skip
    assert not e.value.code
    assert anychunk.open(tmp_path / "s.icechunk")["0/0/image"].shape[0] == 2


@pytest.mark.parametrize(("how", "along"), [("stack", None), ("concat", "y"), ("group", None)])
def test_append_goes_on_where_it_stopped(tmp_path, how, along):
    paths = []
    for i in range(5):
        paths.append(str(tmp_path / f"f{i}.tif"))
        write_cog(paths[-1], VALUES + i)
    target = tmp_path / "r.icechunk"
    assert anychunk.append(paths[:3], target, combine=how, along=along, batch=2) == 3
    assert anychunk.append(paths, target, combine=how, along=along, batch=2) == 2
    assert anychunk.append(paths, target, combine=how, along=along) == 0
    opened = anychunk.open(target)
    truth = [VALUES + i for i in range(5)]
    if how == "group":
        for i in range(5):
            np.testing.assert_array_equal(opened[f"f{i}/0/0/image"][...].reshape(64, 80), truth[i])
    else:
        joined = np.stack(truth) if how == "stack" else np.concatenate(truth)
        np.testing.assert_array_equal(opened["0/0/image"][...].reshape(joined.shape), joined)
    assert len(anychunk.index(target).pins) == 5


def test_append_goes_on_with_the_same_names(tmp_path):
    """Names depend on all files, including those that the repository already has."""
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / "x.tif"))
    write_cog(paths[0], VALUES)
    (tmp_path / "b" / "x.tif").write_bytes(b"II*\0")
    target = tmp_path / "r.icechunk"
    assert anychunk.append(paths, target, failures={}) == 1
    write_cog(paths[1], VALUES + 1)
    assert anychunk.append(paths, target) == 1
    opened = anychunk.open(target)
    assert sorted(opened.group_keys()) == ["a_x", "b_x"]
    assert opened.attrs["anychunk"]["files"] == 2


def test_append_to_a_repository_that_was_moved(tmp_path):
    """Files that moved with it are recognized."""
    (tmp_path / "old").mkdir()
    write_cog(tmp_path / "old" / "0.tif", VALUES)
    anychunk.append(tmp_path / "old" / "0.tif", tmp_path / "old" / "r.icechunk", combine="stack")
    (tmp_path / "old").rename(tmp_path / "new")
    target = tmp_path / "new" / "r.icechunk"
    write_cog(tmp_path / "new" / "1.tif", VALUES + 1)
    assert anychunk.append(str(tmp_path / "new" / "*.tif"), target, combine="stack") == 1
    found = anychunk.open(target)["0/0/image"][...]
    np.testing.assert_array_equal(found.reshape(2, 64, 80), np.stack([VALUES, VALUES + 1]))


def test_append_of_another_place_drops_the_place(tmp_path):
    target = tmp_path / "r.icechunk"
    for i, west in enumerate((0.0, 0.0, 100.0)):
        # scale and tie point of GeoTIFF
        tags = [(33550, 12, 3, (10.0, 10.0, 0.0)), (33922, 12, 6, (0.0, 0.0, 0.0, west, 1e3, 0.0))]
        write_cog(tmp_path / f"{i}.tif", VALUES, extratags=tags)
    anychunk.append([tmp_path / "0.tif", tmp_path / "1.tif"], target, combine="stack", batch=1)
    node = anychunk.index(target)
    assert "spatial:transform" in node["0"].attributes
    assert "spatial:transform" in node["0/0"].attributes
    assert node["0/0/image"].attributes["grid_mapping"] == "spatial_ref"
    assert set(node["0/0"].members) == {"image", "spatial_ref", "x", "y"}
    with pytest.warns(UserWarning, match="r.icechunk 0: .*georeference"):
        anychunk.append(tmp_path / "2.tif", target, combine="stack", georeference="drop")
    node = anychunk.index(target)
    assert node["0/0/image"].shape[0] == 3
    for found in (node["0"], node["0/0"], node["0/0/image"]):
        assert not [key for key in found.attributes if key.startswith("spatial:")]
    assert "grid_mapping" not in node["0/0/image"].attributes
    assert set(node["0/0"].members) == {"image"}


@pytest.mark.parametrize("factors", [[4], [2, 4], [8], []])
@pytest.mark.filterwarnings("ignore:.*levels that not all files have")
def test_append_finds_levels_by_their_shapes(tmp_path, factors):
    """As rasterio reads the overviews of each file."""
    paths = []
    for number, own in enumerate(([2, 4], [2, 4], factors)):
        values = np.random.default_rng(number).integers(0, 999, (64, 64), dtype="uint16")
        paths.append(write_geotiff(tmp_path / f"{number}.tif", values, 500_000, 5_000_000))
        with rasterio.open(paths[-1], "r+") as file:
            file.build_overviews(own, rasterio.enums.Resampling.nearest)
    target = tmp_path / "r.icechunk"
    anychunk.append(paths[:2], target, combine="stack", along="z")
    anychunk.append(paths[2:], target, combine="stack", along="z")
    opened = anychunk.open(target)
    kept = [factor for factor in (2, 4) if factor in factors]
    names = {factor: str(n) for n, factor in enumerate((1, 2, 4))}
    assert sorted(opened["0"].group_keys()) == ["0", *(names[factor] for factor in kept)]
    for number, path in enumerate(paths):
        for factor in (1, *kept):
            own = factors if number == 2 else [2, 4]
            options = {} if factor == 1 else {"overview_level": own.index(factor)}
            with rasterio.open(path, **options) as file:
                truth = file.read(1)
            found = opened[f"0/{names[factor]}/image"][number]
            np.testing.assert_array_equal(found, truth)


def test_append_refuses_what_does_not_go_on(tmp_path):
    write_cog(tmp_path / "a.tif", VALUES)
    write_cog(tmp_path / "b.tif", VALUES.astype("uint8"))
    write_cog(tmp_path / "c.tif", VALUES[:32])
    target = tmp_path / "r.icechunk"
    anychunk.append(tmp_path / "a.tif", target, combine="stack")
    for name, message in (
        ("b.tif", "codecs|data_type"),
        ("c.tif", r"\[1, 32, 80\] .*\[1, 64, 80\]"),
    ):
        with pytest.raises(FormatError, match=message):
            anychunk.append(tmp_path / name, target, combine="stack")
    assert anychunk.open(target)["0/0/image"].shape[0] == 1
    with pytest.raises(ValueError, match="mosaic"):
        anychunk.append(tmp_path / "a.tif", target, combine="mosaic")


APPEND = """
import json, sys, distributed, anychunk
if __name__ == "__main__":
    storage = json.loads(sys.argv[1])
    client = distributed.Client(sys.argv[2])
    anychunk.append("s3://data/cogs/*.tif", "s3://data/all.icechunk", combine="stack", along="t",
                    batch=int(sys.argv[3]), executor=client, storage=storage,
                    target_storage=storage)
"""


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_the_command_parses_on_a_cluster(tmp_path):
    import distributed

    for name in "ab":
        write_cog(tmp_path / f"{name}.tif", VALUES)
    (tmp_path / "c.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
    files, target = [str(tmp_path / f"{name}.tif") for name in "abc"], str(tmp_path / "i.json")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        options = ["-o", target, "--executor", cluster.scheduler_address]
        with pytest.raises(SystemExit) as e:
            main(["index", *files, *options])
        assert e.value.code == 2
        assert not (tmp_path / "i.json").exists()
        with pytest.raises(SystemExit) as e:
            main(["index", *files, *options, "--keep-going"])
    assert e.value.code == 1
    assert sorted(anychunk.open(target).group_keys()) == ["a", "b"]


@pytest.mark.processes
@needs_s3
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(4 * PATIENCE_S)
def test_an_archive_on_dask_killed_half_way_and_resumed(tmp_path):
    """COGs over S3 into one Icechunk repository."""
    import distributed

    folder = tmp_path / "data" / "cogs"
    folder.mkdir(parents=True)
    for i in range(COUNT):
        write_cog(folder / f"{i:04}.tif", VALUES[:32, :32] + i)
    batch = COUNT // 8
    with (
        serve_s3(tmp_path) as storage,
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
    ):
        command = [sys.executable, "-c", APPEND, json.dumps(storage), cluster.scheduler_address]
        with subprocess.Popen([*command, str(batch)], start_new_session=True) as process:
            done = _wait_for_commits(storage, process, at_least=3 * batch)
            os.killpg(process.pid, signal.SIGKILL)
        assert batch <= done
        left = len(ice.saved_sources("s3://data/all.icechunk", storage=storage))
        assert left % batch == 0  # whole batches only
        half = anychunk.open("s3://data/all.icechunk", storage=storage)["0/0/image"]
        assert half.shape[0] == left
        with distributed.Client(cluster) as client:
            added = anychunk.append(
                "s3://data/cogs/*.tif", "s3://data/all.icechunk", combine="stack", along="t",
                batch=batch, executor=client, storage=storage, target_storage=storage,
            )  # fmt: skip
        assert added == COUNT - left
        found = anychunk.open("s3://data/all.icechunk", storage=storage)["0/0/image"][...]
    truth = np.stack([VALUES[:32, :32] + i for i in range(COUNT)])
    np.testing.assert_array_equal(found.reshape(truth.shape), truth)


def _wait_for_commits(storage, process, *, at_least):
    """Return how many files are committed, once they are enough or the process has ended."""
    done = 0

    def are_enough():
        nonlocal done
        # rclone does not replace an object atomically: a reader may see half of each version
        with suppress(SourceError):
            done = len(ice.saved_sources("s3://data/all.icechunk", storage=storage))
        return done >= at_least or process.poll() is not None

    wait_until(are_enough)
    return done


@pytest.mark.processes
def test_virtual_parser_reads_by_the_stores_of_the_registry(web):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr import open_virtual_dataset

    served, _ = web
    store = HTTPStore.from_url(served.url, client_options={"allow_http": True})
    registry = ObjectStoreRegistry({served.url: store})
    dataset = open_virtual_dataset(
        f"{served.url}/data/a.tif",
        registry=registry,
        parser=anychunk.VirtualParser(),
        loadable_variables=["image"],
    )
    np.testing.assert_array_equal(dataset["image"].to_numpy().reshape(64, 80), VALUES)


def written(folder, count, **options):
    """Write small files; return their paths."""
    paths = []
    for i in range(count):
        paths.append(str(folder / f"f{i:03}.tif"))
        write_cog(paths[-1], VALUES[:16, :16] + i, **options)
    return paths


@pytest.mark.parametrize("how", ["stack", "group"])
def test_a_commit_touches_only_what_it_adds(tmp_path, monkeypatch, how):
    """However many files are there, the same keys are read and written."""
    import icechunk

    paths = written(tmp_path, 24)
    touched = []
    for name in ("get", "set"):
        plain = getattr(icechunk.IcechunkStore, name)

        def note(self, key, *args, plain=plain, **options):
            touched.append(key)
            return plain(self, key, *args, **options)

        monkeypatch.setattr(icechunk.IcechunkStore, name, note)
    target, counts = tmp_path / "r.icechunk", []
    for start in range(0, 24, 6):
        touched.clear()
        anychunk.append(paths[start : start + 6], target, combine=how)
        counts.append(len(touched))
    assert len(set(counts[1:])) == 1
    assert len(anychunk.index(target).pins) == 24


@pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")
@pytest.mark.parametrize("call", ["append", "index"])
def test_a_large_group_in_one_repository_is_advised_against(tmp_path, monkeypatch, call):
    monkeypatch.setattr("anychunk.archive.LARGE_GROUP", 3)
    files = written(tmp_path, 5)

    def add(some, how, target):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if call == "append":
                anychunk.append(some, str(tmp_path / target), combine=how, batch=1)
            else:
                anychunk.index_to(some, combine=how, target=str(tmp_path / target))
        return [str(w.message) for w in caught]

    assert add(files[:3], "group", "few.icechunk") == []
    assert add(files, "stack", "stack.icechunk") == []
    (said,) = add(files, "group", "many.icechunk")  # once, not for every commit
    assert "many.icechunk" in said
    assert " 5 files" in said
    if call == "append":
        assert add(files, "group", "many.icechunk") == []  # nothing is added
        (said,) = add(files[:4], "group", "few.icechunk")
        assert " 4 files" in said


def test_a_plain_reader_opens_an_archive(tmp_path):
    import zarr

    paths = written(tmp_path, 3)
    target = tmp_path / "r.icechunk"
    anychunk.append(paths, target, combine="stack", batch=2)
    repository = ice.open_repository(str(target))
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    found = group["0/0/image"][...].reshape(3, 16, 16)
    np.testing.assert_array_equal(found, np.stack([VALUES[:16, :16] + i for i in range(3)]))
    rows = [json.loads(text) for text in group["anychunk.sources"][...]]
    assert [row["url"] for row in rows] == paths
    commits = list(repository.ancestry(branch="main"))
    assert [c.message for c in commits[:2]] == ["Add 1 files", "Add 2 files"]
    assert commits[1].metadata["references"] == 2
    assert commits[1].metadata["files"] == 2


@pytest.mark.parametrize("how", ["stack", "group"])
def test_another_writer_between(tmp_path, monkeypatch, how):
    """What it committed stays, and is appended to; the same files are not added twice."""
    paths = written(tmp_path, 6)
    target = tmp_path / "r.icechunk"
    anychunk.append(paths[:2], target, combine=how)
    commit, others = chunks.Transaction.commit, [paths[4:], paths[2:3]]

    def commit_after_another(self, message, statistics):
        if others:
            more = others.pop(0)
            monkeypatch.setattr(chunks.Transaction, "commit", commit)
            anychunk.append(more, target, combine=how)
            monkeypatch.setattr(chunks.Transaction, "commit", commit_after_another)
        return commit(self, message, statistics)

    monkeypatch.setattr(chunks.Transaction, "commit", commit_after_another)
    with pytest.raises(SourceError, match="another writer added .*f002"):
        # the first attempt meets files 4 and 5, the second file 2
        anychunk.append(paths[2:4], target, combine=how)
    assert anychunk.append(paths, target, combine=how) == 1
    assert len(ice.saved_sources(str(target))) == 6
    opened = anychunk.open(target)
    if how == "group":
        assert sorted(opened.group_keys()) == [f"f{i:03}" for i in range(6)]
    else:
        found = opened["0/0/image"][...].reshape(6, 16, 16)
        truth = np.stack([VALUES[:16, :16] + i for i in (0, 1, 4, 5, 2, 3)])
        np.testing.assert_array_equal(found, truth)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["stack", "group"])
def test_indexed_to_a_target(tmp_path, form, how):
    paths = written(tmp_path, 5)
    target = tmp_path / form
    for batch in (2, None):  # the second replaces the first
        given = {"batch": batch, "overwrite": batch is None}
        assert anychunk.index_to(paths, target, combine=how, **given) == 5
        found, truth = anychunk.open(target), anychunk.open(anychunk.index(paths, combine=how))
        for path, _ in anychunk.index(paths, combine=how).arrays():
            np.testing.assert_array_equal(found[path][...], truth[path][...])
        assert len(anychunk.index(target).pins) == 5
    (tmp_path / "f002.tif").write_bytes(b"II*\0")
    with pytest.raises(FilesError, match="1 of 5"):
        anychunk.index_to(paths, target, combine=how, batch=1, overwrite=True)
    assert len(anychunk.index(target).pins) == 5  # what was there stays
    failures = {}
    anychunk.index_to(paths, target, combine=how, batch=1, failures=failures, overwrite=True)
    assert list(failures) == [paths[2]]
    assert len(anychunk.index(target).pins) == 4
    anychunk.index_to(paths[0], target, overwrite=True)
    assert len(anychunk.index(target).pins) == 1


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("i.json", {}),
        ("i.json", {"zarr_format": 2}),
        ("i.json", {"relative": False}),
        ("i.parquet", {}),
        ("i.parquet", {"relative": False}),
    ],
)
def test_a_large_group_is_saved_piece_by_piece(tmp_path, monkeypatch, form, options):
    """What is saved is what one index of all files would be; no more than a batch is held."""
    monkeypatch.setattr("anychunk.archive.MOST_IMAGES", 3)
    monkeypatch.setattr("anychunk.references.documents.MOST_IMAGES", 3)
    paths = written(tmp_path, 9)
    held, adding = [], references.adding

    @contextmanager
    def watched(*args, **kinds):
        with adding(*args, **kinds) as add:

            def note(node):
                add(node)
                held.append(weakref.ref(node))
                sizes.append(len(node.members))
                alive.append(sum(ref() is not None for ref in held))

            yield note

    alive, sizes = [], []
    monkeypatch.setattr("anychunk.references.adding", watched)
    files = Files(urls=paths, recipe=Recipe(parse=anychunk.index, how="group"))
    done = save_files(files, str(tmp_path / form), batch=2, **options)
    assert (done.files, sizes) == (9, [2, 2, 2, 2, 1])
    assert max(alive) <= 2  # the one that is added, and the one before it
    node = anychunk.index(paths, combine="group")
    (tmp_path / "whole").mkdir()
    node.save(tmp_path / "whole" / form, **options)
    if form == "i.parquet":
        for name in (".zmetadata", "anychunk.json"):
            one, other = (
                json.loads((folder / form / name).read_text())
                for folder in (tmp_path, tmp_path / "whole")
            )
            del one["metadata"][ROOT[name]], other["metadata"][ROOT[name]]  # names their folders
            assert one == other
    found, truth = (anychunk.index(folder / form, allow=["*"]) for folder in
                    (tmp_path, tmp_path / "whole"))  # fmt: skip
    assert (found.members, found.pins) == (truth.members, truth.pins)
    attributes = [dict(index.attributes["anychunk"]) for index in (found, truth)]
    assert attributes[0].pop("base", None) == attributes[1].pop("base", None) or not options
    assert attributes[0] == attributes[1]


ROOT = {".zmetadata": ".zattrs", "anychunk.json": "zarr.json"}


def test_a_large_group_without_a_good_file_replaces_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.archive.MOST_IMAGES", 1)
    paths = written(tmp_path, 3)
    for form in ("i.json", "i.parquet"):
        anychunk.index_to(paths, combine="group", target=tmp_path / form, batch=1)
    for path in paths:
        Path(path).write_bytes(b"II*\0")
    for form in ("i.json", "i.parquet"):
        with pytest.raises(FilesError, match="3 of 3"):
            anychunk.index_to(
                paths, combine="group", target=tmp_path / form, batch=1, failures={}, overwrite=True
            )
        assert len(anychunk.index(tmp_path / form).pins) == 3


@pytest.mark.processes
@needs_s3
def test_a_large_group_on_s3(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.archive.MOST_IMAGES", 1)
    (tmp_path / "bucket").mkdir()
    paths = written(tmp_path, 3)
    with serve_s3(tmp_path) as storage:
        for form in ("i.json", "i.parquet"):
            target = f"s3://bucket/{form}"
            anychunk.index_to(
                paths,
                combine="group",
                target=target,
                batch=1,
                storage=storage,
                target_storage=storage,
            )
            found = anychunk.open(target, allow=["*"], storage=storage)
            for i in range(3):
                image = found[f"f{i:03}/0/0/image"][...]
                np.testing.assert_array_equal(image, VALUES[:16, :16] + i)


def test_json_over_the_limit_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.archive.MOST_IMAGES", 1)
    paths = written(tmp_path, 3)
    with limits.override(index_bytes=5000), pytest.raises(LimitError, match="--limit index_bytes"):
        anychunk.index_to(paths, combine="group", target=tmp_path / "i.json", batch=1)
    assert not list(tmp_path.glob("*.json*"))


def test_streams_that_are_cut_are_not_saved_in_batches(tmp_path, monkeypatch):
    """Their seek points are part of the codecs, which all files of a stack share."""
    paths = written(tmp_path, 5)
    monkeypatch.setattr("anychunk.archive.has_streams", lambda node: True)
    anychunk.index_to(paths, combine="stack", target=tmp_path / "i.icechunk", batch=1)
    repository = ice.open_repository(str(tmp_path / "i.icechunk"))
    assert [c.metadata.get("files") for c in repository.ancestry(branch="main")] == [5, None]


@pytest.mark.processes
def test_on_processes(tmp_path):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    paths = written(tmp_path, 5)
    (tmp_path / "f003.tif").write_bytes(b"II*\0")
    failures = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        options = {"combine": "stack", "failures": failures, "executor": executor}
        assert anychunk.append(paths, tmp_path / "r.icechunk", batch=3, **options) == 4
    assert list(failures) == [paths[3]]
    found = anychunk.open(tmp_path / "r.icechunk")["0/0/image"][...].reshape(4, 16, 16)
    np.testing.assert_array_equal(found, np.stack([VALUES[:16, :16] + i for i in (0, 1, 2, 4)]))


@pytest.mark.parametrize("form", FORMS)
def test_a_pickled_array_refers_to_a_large_saved_index(tmp_path, monkeypatch, form):
    from anychunk import references
    from anychunk.zarr import store as zarr_store

    paths = written(tmp_path, 40)
    node = anychunk.index(paths, combine="stack")
    node.save(tmp_path / form)
    opened = anychunk.open(tmp_path / form)["0/0/image"]
    small = len(pickle.dumps(opened))
    monkeypatch.setattr(zarr_store, "SMALL_TABLES", 100)
    data = pickle.dumps(opened)
    assert len(data) < small
    assert b"f039.tif" not in data
    references._loaded.clear()
    again = pickle.loads(data)
    np.testing.assert_array_equal(again[...], opened[...])
    assert pickle.loads(data).store.index is again.store.index  # loaded once per process
    # a copy that was changed is not what was saved
    changed = anychunk.index(tmp_path / form)
    changed = type(changed)(members=changed.members, pins=changed.pins)
    assert b"f039.tif" in pickle.dumps(anychunk.open(changed))
    # nor is a later version: a repository keeps the old one
    anychunk.index(paths[:20], combine="stack").save(tmp_path / form, overwrite=True)
    references._loaded.clear()
    if form == "i.icechunk":
        np.testing.assert_array_equal(pickle.loads(data)[...], opened[...])
    else:
        with pytest.raises(SourceChangedError, match="open the index again"):
            pickle.loads(data)


def test_a_window_of_a_stack_is_a_small_graph(tmp_path):
    """Selected before it is chunked: no task for what is outside."""
    import xarray

    anychunk.index(written(tmp_path, 40), combine="stack").save(tmp_path / "i.json")
    dataset = xarray.open_dataset(tmp_path / "i.json", engine="anychunk")
    mean = dataset["image"].isel(x=slice(0, 8), y=slice(0, 8)).chunk({"t": 20}).mean()
    assert len(mean.__dask_graph__()) <= 10
    truth = np.mean([VALUES[:8, :8] + i for i in range(40)])
    np.testing.assert_allclose(float(mean.compute()), truth)
