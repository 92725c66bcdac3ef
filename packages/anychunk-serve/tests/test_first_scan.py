"""The first scan of the folders: what is found is served while it runs."""

import json
import threading

import numpy as np
import pytest

from anychunk.errors import FormatError, SourceError
from anychunk_serve import descriptions, records
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import Catalog
from anychunk_serve.listing import Listing
from anychunk_serve.records import Records, Window
from tests.support.patience import PATIENCE_S, wait_until

NAMES = [f"{number}.npy" for number in range(9)]
EARLY = 4
"""Files that are found before the scan is held up."""


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        np.save(tmp_path / name, np.zeros((3, 4), "uint8"))
    return tmp_path


@pytest.fixture
def gate(monkeypatch):
    """Hold scans up after a few files until it is set."""
    opened = threading.Event()
    whole = Listing.scan

    def held(listing):
        for number, found in enumerate(whole(listing)):
            if number == EARLY:
                assert opened.wait(PATIENCE_S)
            yield found

    monkeypatch.setattr(Listing, "scan", held)
    monkeypatch.setattr("anychunk_serve.catalog.PUBLISH_S", 0)
    yield opened
    opened.set()


def unscanned(*arguments):
    return Catalog([str(a) for a in arguments], caches=Caches(memory=64 << 20), is_scanned=False)


def listed(table, **wanted):
    return json.loads(table.window(Window(**{"limit": EARLY, **wanted})))


def test_files_are_listed_while_others_are_searched(folder, gate, monkeypatch):
    monkeypatch.setattr(records, "SCAN_S", 1e6)
    catalog = unscanned(folder)
    table = Records(catalog, lambda entry: descriptions.described(catalog, entry))
    catalog.wait_for_first()
    wait_until(lambda: len(catalog) == EARLY)
    monkeypatch.setattr(records, "WAIT_S", 1e6)
    first = listed(table)
    assert [record["name"] for record in first["files"]] == NAMES[:EARLY]
    assert not any(record.get("pending") for record in first["files"])
    assert (first["listed"], first["total"], first["scanning"]) == (False, EARLY, True)
    gate.set()
    wait_until(lambda: catalog.is_listed)
    whole = listed(table, limit=100)
    assert [record["name"] for record in whole["files"]] == NAMES
    assert (whole["listed"], whole["total"]) == (True, len(NAMES))
    # whoever has the first list is told of the others
    wait_until(lambda: not table.changes(first["revision"])["scanning"])
    assert set(NAMES[EARLY:]) <= set(table.changes(first["revision"])["changed"])
    table.close()


def test_a_longer_list_waits_for_the_scan(folder, gate, monkeypatch):
    monkeypatch.setattr(records, "WAIT_S", 1e6)
    catalog = unscanned(folder)
    table = Records(catalog, lambda entry: descriptions.described(catalog, entry))
    threading.Timer(0.05, gate.set).start()
    assert len(listed(table, limit=100)["files"]) == len(NAMES)
    table.close()


def test_absent_is_said_only_when_everything_was_searched(client_of, folder, gate):
    client = client_of(folder, is_scanned=False)
    assert client.get(f"/zarr/{NAMES[0]}/zarr.json").status_code == 200
    found = {}

    def ask(name):
        found[name] = client.get(f"/zarr/{name}/zarr.json").status_code

    asking = [threading.Thread(target=ask, args=(name,)) for name in (NAMES[-1], "absent.npy")]
    for thread in asking:
        thread.start()
    # both wait, and do not keep others from being served
    assert client.get(f"/zarr/{NAMES[1]}/zarr.json").status_code == 200
    assert found == {}
    gate.set()
    for thread in asking:
        thread.join(PATIENCE_S)
    assert found == {NAMES[-1]: 200, "absent.npy": 404}


def test_a_scan_that_finds_nothing_raises_its_error(monkeypatch):
    def fails(listing):
        raise SourceError("s3://scenes: no such bucket")
        yield

    monkeypatch.setattr(Listing, "scan", fails)
    catalog = unscanned("s3://scenes/")
    catalog.scan()
    with pytest.raises(SourceError, match="no such bucket"):
        catalog.wait_for_first()


def test_a_list_that_cannot_be_read_is_an_error_at_once(folder):
    (folder / "list.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError):
        unscanned(folder / NAMES[0], f"@{folder}/list.txt")
