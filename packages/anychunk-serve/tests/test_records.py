"""Records of files: windows of the list, order, folders, what is made first, and how much work that is."""

import json
import threading

import numpy as np
import pytest

from anychunk_serve import descriptions, listing, records
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import Catalog
from anychunk_serve.records import Records, Window
from anychunk_serve.search import parsed
from tests.support.effort import at_most
from tests.support.patience import wait_until

COUNT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of many small files, some of them broken, in ten folders."""
    made = tmp_path_factory.mktemp("many")
    for number in range(COUNT):
        below = made / f"f{number % 10}" / "deep"
        below.mkdir(parents=True, exist_ok=True)
        np.save(
            below / f"{number:04}.npy", np.zeros((number + 1, 4), ["uint8", "uint16"][number % 2])
        )
        if number % 50 == 0:
            (below / f"{number:04} broken.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
    (made / "notes.txt").write_text("no image")
    return made


@pytest.fixture
def catalog(folder):
    return Catalog([str(folder)], caches=Caches(memory=64 << 20))


@pytest.fixture
def table(catalog, monkeypatch):
    monkeypatch.setattr(records, "WAIT_S", 1e6)
    monkeypatch.setattr(records, "SCAN_S", 1e6)
    made = Records(catalog, lambda entry: descriptions.described(catalog, entry))
    yield made
    made.close()


def listed(table, **wanted):
    return json.loads(table.window(Window(**{"limit": 2000, **wanted})))


def test_windows(table):
    whole = listed(table)
    total = COUNT + COUNT // 50
    assert (whole["total"], whole["matching"], whole["pending"]) == (total, total, 0)
    names = [record["name"] for record in whole["files"]]
    assert names == sorted(names)
    part = listed(table, offset=7, limit=5)
    assert [record["name"] for record in part["files"]] == names[7:12]
    assert listed(table, offset=10**9)["files"] == []
    assert listed(table, sort="-name")["files"][0]["name"] == names[-1]
    sizes = [record["bytes"] for record in listed(table, sort="-bytes")["files"]]
    assert sizes == sorted(sizes, reverse=True)


def test_search(table):
    listed(table)
    found = listed(table, search=parsed("dtype:uint16 -broken"))
    assert found["matching"] == COUNT // 2
    assert {image["dtype"] for r in found["files"] for image in r["images"]} == {"uint16"}
    assert listed(table, search=parsed("broken"))["matching"] == COUNT // 50
    assert listed(table, search=parsed("format:npy size:>1kB"))["matching"] < COUNT
    assert all(r["error"] for r in listed(table, search=parsed("broken"))["files"])


def test_folders(table):
    root = table.folders("")
    assert (root["files"], root["all"], len(root["folders"])) == (0, COUNT + COUNT // 50, 10)
    assert root["folders"][3] == {"name": "f3", "path": "f3", "all": COUNT // 10, "folders": 1}
    assert table.folders("f3/deep")["files"] == COUNT // 10
    assert table.folders("f3/de") is None
    assert listed(table, folder="f3")["matching"] == 0
    assert listed(table, folder="f3/deep")["matching"] == COUNT // 10
    assert listed(table, within="f3")["matching"] == COUNT // 10


def test_what_is_shown_is_made_first(catalog, monkeypatch):
    monkeypatch.setattr(records, "LOCAL_WORKERS", 1)
    monkeypatch.setattr(records, "SCAN_S", 1e6)
    monkeypatch.setattr(records, "WAIT_S", 0.0)
    order, go = [], threading.Semaphore(0)

    def describe(entry):
        go.acquire()
        order.append(entry.name)
        return descriptions.described(catalog, entry)

    table = Records(catalog, describe)
    shown = listed(table, offset=200, limit=3)
    assert [record["pending"] for record in shown["files"]] == [True] * 3
    found = listed(table, search=parsed("0123"))
    for _ in range(8):
        go.release()
    wait_until(lambda: len(order) >= 8)
    names = [record["name"] for record in shown["files"]]
    first = [record["name"] for record in found["files"]]
    # the thread may have taken one before the search
    assert set(order[:5]) >= {*names, *first}
    table.close()
    for _ in range(COUNT):
        go.release()


def test_listing_and_searching_parse_nothing(table, monkeypatch):
    listed(table)

    def refuse(*_):
        raise AssertionError("no file is opened for a list")

    monkeypatch.setattr(table, "_describe", refuse)
    monkeypatch.setattr("anychunk_serve.catalog.index_inside", refuse)
    with at_most(40 * COUNT):
        assert listed(table, limit=100)["pending"] == 0
    with at_most(40 * COUNT):
        assert listed(table, search=parsed("dtype:uint16 f3"), limit=50)["files"] is not None


def test_a_scan_examines_only_what_is_new(catalog, folder, monkeypatch):
    examined = []
    real = listing.is_file_format
    monkeypatch.setattr(listing, "is_file_format", lambda p, **_: examined.append(p) or real(p))
    assert catalog.scan() == ([], [])
    assert examined == []
    new = folder / "f1" / "new.npy"
    np.save(new, np.zeros((2, 2)))
    try:
        with at_most(100 * COUNT):
            assert catalog.scan() == (["f1/new.npy"], [])
        assert examined == [new.as_posix()]
    finally:
        new.unlink()
    assert catalog.scan() == ([], ["f1/new.npy"])


def test_open_files_are_few(catalog, table):
    listed(table)
    assert len(catalog._open) == 0, "records keep no file open"


def test_records_are_small(tmp_path, monkeypatch):
    import tifffile

    monkeypatch.setattr(records, "WAIT_S", 1e6)
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        for number in range(40):
            out.write(np.zeros((8 + number, 8), "uint8"), description="x" * 5000)
    catalog = Catalog([str(tmp_path)], caches=Caches(memory=64 << 20))
    table = Records(catalog, lambda entry: descriptions.described(catalog, entry))
    (record,) = listed(table)["files"]
    assert record["image_count"] == 40
    assert len(record["images"]) == 8
    assert len(json.dumps(record)) < 8000
    table.close()


def test_limits_are_said(folder, monkeypatch):
    monkeypatch.setattr(listing, "MOST_FILES", 20)
    catalog = Catalog([str(folder)], caches=Caches(memory=64 << 20))
    assert (len(catalog), catalog.listing.is_complete) == (20, False)
    monkeypatch.setattr(listing, "MOST_EXAMINED", 10)
    catalog = Catalog([str(folder)], caches=Caches(memory=64 << 20))
    assert len(catalog) < 10, "one of ten is no image"
    assert not catalog.listing.is_complete


@pytest.mark.defect
def test_a_defect_does_not_stop_the_others(catalog, table, monkeypatch, caplog):
    real = descriptions.image_record

    def broken(tree, image, entry, version):
        if "0007" in entry.name:
            raise KeyError("internal detail")
        return real(tree, image, entry, version)

    monkeypatch.setattr(descriptions, "image_record", broken)
    found = listed(table)
    assert found["pending"] == 0
    (record,) = [r for r in found["files"] if "0007" in r["name"]]
    assert "internal detail" not in record["error"]
    assert "internal detail" in caplog.text


def test_queries(client_of, folder):
    client = client_of(folder)
    assert len(client.get("/api/files?limit=3&offset=2").json()["files"]) == 3
    assert client.get("/api/files").json()["pending"] == 0
    assert client.get("/api/files?search=dtype%3Auint16").json()["matching"] == COUNT // 2
    for query in (
        "limit=-1",
        "offset=x",
        "limit=1e3",
        "sort=colour",
        "search=size%3A10",
        "offset=",
    ):
        answer = client.get(f"/api/files?{query}")
        assert answer.status_code == 400, query
        assert set(answer.json()) == {"error"}
    assert client.get("/api/folders?path=f2").json()["all"] == COUNT // 10
    assert client.get("/api/folders?path=..").status_code == 404
    assert client.get("/api/changes?since=abc").status_code == 400
