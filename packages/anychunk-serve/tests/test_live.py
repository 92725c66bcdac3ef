"""Files that change, grow, appear and disappear while they are served."""

import os
import shutil
import threading

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.formats import _jpeg2000
from anychunk_serve import records, response_bodies, watch
from tests.decode.test_windows import codestream, equally_long
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.served_files import decoded
from tests.zarr.test_replaced_files import CHANGES, change

pytestmark = pytest.mark.processes

CHUNK = "/zarr/a.tif/0/0/image/c/0/0"
META = "/zarr/a.tif/0/0/image/zarr.json"


def write(path, value, shape=(300, 300), dtype="uint16"):
    """Replace a file in one step."""
    made = path.with_suffix(".part")
    tifffile.imwrite(made, np.full(shape, value, dtype), tile=(128, 128), compression="zlib")
    made.replace(path)


@pytest.fixture(autouse=True)
def scans_when_asked(monkeypatch):
    for name in ("SCAN_S", "REMOTE_SCAN_S", "SCAN_SHARE"):
        monkeypatch.setattr(records, name, 0)
    monkeypatch.setattr(records, "RETRY_S", 1e6)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.tif"
    write(path, 1)
    return path


def names(client, since=None):
    """Return the names in the list, after a scan that begins now."""
    client.app_records.scan()
    return [record["name"] for record in client.get("/api/files").json()["files"]]


@pytest.fixture
def live(client_of):
    def start(*paths, **settings):
        client = client_of(*paths, **settings)
        # AccessControl, CORSMiddleware, TokenCheck, Starlette
        app = client.app._app.app._app
        client.app_records = app.state.server.records
        return client

    return start


def test_a_changed_file_is_opened_again(live, file):
    client = live(file)
    before = client.get(META)
    assert client.get(CHUNK).status_code == 200
    write(file, 7, shape=(400, 500), dtype="uint8")
    refused = client.get(CHUNK)
    assert refused.status_code == 409
    assert str(file.parent) not in refused.text
    assert client.get("/raw/a.tif/0/0/image/c/0/0").status_code == 409
    after = client.get(META, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["shape"] == [400, 500]
    assert (decoded(client.get(CHUNK), (128, 128), "uint8") == 7).all()


def test_metadata_of_the_same_form_has_another_etag(live, file):
    client = live(file)
    before = client.get(META)
    write(file, 2)
    after = client.get(META, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json() == before.json()
    assert after.headers["etag"] != before.headers["etag"]
    same = client.get(META, headers={"If-None-Match": after.headers["etag"]})
    assert same.status_code == 304


@pytest.mark.parametrize("size_and_time_are_restored", [False, True])
def test_every_document_is_of_the_file_as_it_is(live, file, size_and_time_are_restored):
    tifffile.imwrite(file, np.full((300, 300), 1, "uint8"))
    client = live(file)
    urls = (
        "/thumb/a.tif/0.png",
        "/zarr/a.tif/zarr.json",
        "/raw/a.tif/zarr.json",
        "/api/info/a.tif",
    )
    etags = {url: client.get(url).headers["etag"] for url in urls[:3]}
    version = client.get("/api/files/a.tif").json()["version"]
    status = file.stat()
    tifffile.imwrite(file, np.full((300, 300), 200, "uint8"))
    if size_and_time_are_restored:
        assert file.stat().st_size == status.st_size
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    for url in urls:
        assert client.get(f"{url}?version={version}").status_code == 409
    for url, etag in etags.items():
        assert client.get(url).headers["etag"] != etag
    assert client.get("/api/files/a.tif").json()["version"] != version


@pytest.mark.skipif(os.name == "nt", reason="Windows does not record changes of status")
@pytest.mark.parametrize("is_read_before", [False, True])
@pytest.mark.parametrize("how", CHANGES)
def test_a_file_of_the_same_size_and_time_is_opened_again(live, tmp_path, how, is_read_before):
    old, new = (np.full((300, 300), value, "uint16") for value in (1, 200))
    path = tmp_path / "a.tif"
    tifffile.imwrite(tmp_path / "new", new, tile=(128, 128))
    tifffile.imwrite(path, old, tile=(128, 128))
    client = live(path)
    first = client.get(META)
    if is_read_before:
        assert client.get(CHUNK).content == old[:128, :128].tobytes()
    change(path, (tmp_path / "new").read_bytes(), how)
    assert client.get(CHUNK).status_code == 409, "its metadata may be another's"
    again = client.get(META, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 200
    assert client.get(CHUNK).content == tifffile.imread(path)[:128, :128].tobytes()


@pytest.mark.skipif(os.name == "nt", reason="Windows does not record changes of status")
def test_a_stored_chunk_of_the_same_size_and_time_has_another_etag(live, tmp_path, monkeypatch):
    """It is sent while it is read, so its ETag says which file it is from, not which bytes."""
    monkeypatch.setattr(response_bodies, "STREAMED_BYTES", 1)
    path, raw = tmp_path / "a.tif", "/raw/a.tif/0/0/image"
    for name, value in (("a.tif", 1), ("new", 200)):
        tifffile.imwrite(tmp_path / name, np.full((128, 128), value, "uint8"), tile=(128, 128))
    client = live(path)
    client.get(f"{raw}/zarr.json")
    before = client.get(f"{raw}/c/0/0")
    assert before.content == bytes([1]) * 128 * 128
    change(path, (tmp_path / "new").read_bytes(), "replaced")
    client.get(f"{raw}/zarr.json")
    after = client.get(f"{raw}/c/0/0", headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.content == bytes([200]) * 128 * 128


def test_one_client_does_not_reload_for_another(live, file):
    client = live(file)
    first, second = {"User-Agent": "first"}, {"User-Agent": "second"}
    for one in (first, second):
        assert client.get(META, headers=one).status_code == 200
    write(file, 9, dtype="uint8")
    assert client.get(META, headers=second).status_code == 200
    assert client.get(CHUNK, headers=second).status_code == 200
    assert client.get(CHUNK, headers=first).status_code == 409, "it has the old metadata"
    assert client.get(META, headers=first).status_code == 200
    assert client.get(CHUNK, headers=first).status_code == 200


def test_a_version_that_is_asked_for(live, file):
    client = live(file)
    old = client.get("/api/files/a.tif").json()["version"]
    assert client.get(f"{CHUNK}?version={old}").status_code == 200
    write(file, 3)
    assert client.get(f"{CHUNK}?version={old}").status_code == 409
    assert client.get(f"{META}?version={old}").status_code == 409
    new = client.get("/api/files/a.tif").json()["version"]
    assert client.get(f"{CHUNK}?version={new}").status_code == 200, "without reading metadata"
    assert client.get(f"{CHUNK}?version={old}").status_code == 409
    assert client.get(f"{CHUNK}?version=").status_code == 409


def test_a_changed_file_that_was_closed_meanwhile(live, file, monkeypatch):
    client = live(file)
    assert client.get(META).status_code == 200
    catalog = client.app_records._catalog
    catalog._open.clear()
    write(file, 5)
    assert client.get(CHUNK).status_code == 409
    assert client.get(META).status_code == 200
    assert client.get(CHUNK).status_code == 200


def test_deleted_files_disappear_and_are_never_absent(live, file, tmp_path):
    np.save(tmp_path / "b.npy", np.zeros((20, 20)))
    client = live(tmp_path)
    assert names(client) == ["a.tif", "b.npy"]
    revision = client.get("/api/files").json()["revision"]
    assert client.get(CHUNK).status_code == 200
    file.unlink()
    for url in (CHUNK, META, "/raw/a.tif/0/0/image/c/0/0", "/api/files/a.tif?version=x"):
        answer = client.get(url)
        assert answer.status_code in (502, 409) or url.startswith("/api")
        assert str(tmp_path) not in answer.text
    assert names(client) == ["b.npy"]
    changes = client.get(f"/api/changes?since={revision}").json()
    assert (changes["removed"], changes["reset"], changes["total"]) == (["a.tif"], False, 1)
    for url in (CHUNK, META, "/thumb/a.tif/0.png", "/api/files/a.tif"):
        assert client.get(url).status_code == 502, url


def test_a_file_that_comes_back_is_another(live, file, tmp_path):
    client = live(tmp_path)
    assert client.get(META).status_code == 200
    file.unlink()
    assert names(client) == []
    write(file, 4)
    assert names(client) == ["a.tif"]
    assert client.get(CHUNK).status_code == 409
    assert client.get(META).status_code == 200
    assert client.get(CHUNK).status_code == 200


def test_chunks_of_a_removed_n5_are_not_absent(live, tmp_path):
    path = tmp_path / "v.n5"
    anychunk.write(np.ones((1100, 64), "uint8"), str(path), chunk=(32, 32), compression="raw")
    client = live(tmp_path)
    assert client.get("/zarr-raw/v.n5/0/image/c/0/0").status_code == 200
    shutil.rmtree(path)
    assert client.get("/zarr-raw/v.n5/0/image/c/1/0").status_code == 409
    assert client.get("/raw/v.n5/c/1/0").status_code == 409
    assert names(client) == []
    assert client.get("/zarr-raw/v.n5/0/image/c/1/0").status_code == 502


def test_the_metadata_of_an_n5_dataset_is_read_again(live, tmp_path):
    path = tmp_path / "v.n5"
    anychunk.write(np.ones((64, 64), "uint8"), str(path), chunk=(32, 32), compression="raw")
    client = live(path)
    assert client.get("/zarr/v.n5/0/image/zarr.json").json()["shape"] == [64, 64]
    shutil.rmtree(path)
    anychunk.write(np.ones((96, 64), "uint8"), str(path), chunk=(32, 32), compression="raw")
    assert client.get("/zarr/v.n5/0/image/zarr.json").json()["shape"] == [96, 64]


def test_new_files_are_found(live, file, tmp_path):
    client = live(tmp_path)
    assert names(client) == ["a.tif"]
    revision = client.get("/api/files").json()["revision"]
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "sub" / "new.npy", np.zeros((20, 20)))
    # by the first request that names it
    assert client.get("/zarr/sub%2Fnew.npy/zarr.json").status_code == 200
    assert client.get(f"/api/changes?since={revision}").json()["changed"] == ["sub/new.npy"]


def test_a_file_that_grows_is_tried_again(live, file, tmp_path):
    whole = file.read_bytes()
    growing = tmp_path / "growing.tif"
    growing.write_bytes(b"")
    client = live(tmp_path)
    assert names(client) == ["a.tif"], "an empty file has no format yet"
    growing.write_bytes(whole[:100])
    assert names(client) == ["a.tif", "growing.tif"]
    assert client.get("/api/files/growing.tif").json()["error"] is not None
    assert client.get("/zarr/growing.tif/zarr.json").status_code in (415, 502)
    growing.write_bytes(whole)
    assert client.get("/zarr/growing.tif/zarr.json").status_code == 200, "without a delay"
    names(client)

    def record():
        return client.get("/api/files?search=growing").json()["files"][0]

    wait_until(lambda: record()["error"] is None)
    assert record()["image_count"] == 1


def test_a_file_that_changes_while_it_is_opened(live, file, monkeypatch):
    client = live(file)
    real, opened = watch.Watch.__init__, []

    def changed_first(self, *arguments):
        if not opened:
            opened.append(True)
            write(file, 8, shape=(500, 300))
        real(self, *arguments)

    monkeypatch.setattr(watch.Watch, "__init__", changed_first)
    assert client.get(META).json()["shape"] == [500, 300]
    assert (decoded(client.get(CHUNK), (128, 128), "uint16") == 8).all()


def test_a_changed_record_is_announced(live, file, tmp_path):
    client = live(tmp_path)
    (before,) = client.get("/api/files").json()["files"]
    write(file, 1, shape=(700, 900))
    client.app_records.scan()
    since = before["revision"]

    def now():
        return client.get("/api/files").json()["files"][0]

    wait_until(lambda: now()["images"][0]["shape"] == [700, 900])
    assert client.get(f"/api/changes?since={since}").json()["changed"] == ["a.tif"]
    latest = client.get("/api/changes?since=0").json()
    assert latest["reset"] is True, "a revision of another server"
    again = client.get(f"/api/changes?since={latest['revision']}").json()
    assert (again["changed"], again["removed"], again["reset"]) == ([], [], False)


def test_a_new_file_is_found_while_an_older_scan_is_running(live, file, tmp_path, monkeypatch):
    """That scan has passed the folder already, so the request waits for it and scans again."""
    client = live(tmp_path)
    catalog = client.app_records._catalog
    real, begun, may_end = catalog.scan, threading.Event(), threading.Event()

    def slow(*arguments):
        found = real(*arguments)
        begun.set()
        may_end.wait(PATIENCE_S)
        return found

    monkeypatch.setattr(catalog, "scan", slow)
    client.get("/api/files")  # begins a scan in the background
    assert begun.wait(PATIENCE_S)
    np.save(tmp_path / "new.npy", np.zeros((20, 20)))
    monkeypatch.setattr(catalog, "scan", real)
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(client.get("/zarr/new.npy/zarr.json").status_code)
    )
    asking.start()
    may_end.set()
    asking.join(PATIENCE_S)
    assert answers == [200]


def test_a_jpeg2000_file_is_rewritten_with_its_old_size_and_time(live, tmp_path, monkeypatch):
    """A table of the old code-blocks would find other bytes in the new file."""
    monkeypatch.setattr(_jpeg2000, "SIDE", 64)
    monkeypatch.setattr(_jpeg2000, "SMALLEST", 32)
    monkeypatch.setattr("anychunk.codecs.chain.LEAST_PART", 1 << 14)
    path = tmp_path / "a.j2k"
    client = None
    for image, data in equally_long(codestream):
        path.write_bytes(data)
        os.utime(path, (0, 0))
        client = client or live(path)
        assert client.get("/zarr/a.j2k/0/0/image/zarr.json").status_code == 200
        found = decoded(client.get("/zarr/a.j2k/0/0/image/c/0/0"), image.shape, "uint8")
        np.testing.assert_array_equal(found, image)
