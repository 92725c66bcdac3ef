"""The catalog: names of files, and files that appear, change and disappear."""

import json
import os
from datetime import UTC, datetime

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk_serve import catalog, records
from tests.support import http_server


def test_list(client_of, scene):
    answer = client_of(scene[0]).get("/api/files").json()
    (record,) = answer.pop("files")
    revision = answer.pop("revision")
    assert answer == {
        "total": 1,
        "matching": 1,
        "offset": 0,
        "pending": 0,
        "scanning": False,
        "listed": True,
        "complete": True,
    }
    (image,) = record.pop("images")
    version = record.pop("version")
    assert record.pop("revision") <= revision
    assert record == {
        "name": "scene.tif",
        "title": "scene.tif",
        "folder": "",
        "format": "tiff",
        "bytes": scene[0].stat().st_size,
        "modified": datetime.fromtimestamp(int(scene[0].stat().st_mtime), UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        ),
        "crs": None,
        "error": None,
        "image_count": 1,
        "arrays": [],
        "array_count": 0,
    }
    assert image == {
        "path": "0",
        "title": image["title"],
        "shape": [1100, 1300],
        "axes": ["y", "x"],
        "dtype": "uint16",
        "levels": 3,
        "crs": None,
        "thumbnail": f"/thumb/scene.tif/0.png?version={version}",
    }


def test_broken_files_are_listed_with_their_error(client_of, scene, tmp_path):
    (tmp_path / "broken.tif").write_bytes(scene[0].read_bytes()[:100])
    client = client_of(tmp_path)
    records = {r["name"]: r for r in client.get("/api/files").json()["files"]}
    assert records["scene.tif"]["error"] is None
    assert records["broken.tif"]["images"] == []
    assert records["broken.tif"]["error"].startswith("broken.tif")
    assert str(tmp_path) not in json.dumps(records)
    answer = client.get("/zarr/broken.tif/zarr.json")
    assert answer.status_code in (415, 502)
    assert str(tmp_path) not in answer.text


def test_files_that_there_was_no_time_for_are_pending(client_of, scene, monkeypatch):
    monkeypatch.setattr(records.Records, "_start_workers", lambda self: None)
    client = client_of(scene[0])
    monkeypatch.setattr(records, "WAIT_S", -1.0)
    (record,) = client.get("/api/files").json()["files"]
    assert (record["pending"], record["images"]) == (True, [])
    assert record["bytes"] == scene[0].stat().st_size
    full = client.get("/api/files/scene.tif").json()
    assert (full.get("pending"), len(full["images"])) == (None, 1)
    (listed,) = client.get("/api/files").json()["files"]
    assert {k: v for k, v in listed.items() if k != "revision"} == full


@pytest.mark.defect
def test_a_defect_of_ours_is_not_blamed_on_the_file(client_of, scene, monkeypatch, caplog):
    def broken(*_, **__):
        raise KeyError("internal detail")

    client = client_of(scene[0])
    monkeypatch.setattr(catalog, "index_inside", broken)
    answer = client.get("/zarr/scene.tif/zarr.json")
    (record,) = client.get("/api/files").json()["files"]
    assert answer.status_code == 500
    for line in (answer.json()["error"], record["error"]):
        assert len(line.splitlines()) == 1
        assert "detail" not in line
        assert "KeyError" not in line
    assert all("internal detail" in r.exc_text for r in caplog.records)
    assert caplog.records


def test_a_changed_block_of_n5_is_read_again(client_of, tmp_path):
    path = tmp_path / "v.n5"
    anychunk.write(np.full((64, 64), 1, "uint8"), str(path), chunk=(32, 32), compression="raw")
    client = client_of(path)
    url = "/zarr-raw/v.n5/0/image/c/0/0"
    assert set(client.get(url).content) == {1}
    block = path / "0" / "0"
    block.write_bytes(block.read_bytes()[:-1] + b"\x09")
    os.utime(block, ns=(1, 1))
    assert client.get(url).content.count(b"\x09") == 1


def test_a_changed_part_of_a_mosaic_is_noticed(client_of, tmp_path):
    parts = []
    for number in range(3):
        parts.append(str(tmp_path / f"part{number}.tif"))
        data = np.full((300, 300), number + 1, "uint8")
        tifffile.imwrite(parts[-1], data, tile=(128, 128), compression="zlib")
    anychunk.index(parts, combine="stack").save(tmp_path / "all.json")
    client = client_of(tmp_path / "all.json")
    meta = client.get("/zarr-raw/all.json/0/0/image/zarr.json").json()
    assert meta["shape"][0] == 3
    urls = [f"/zarr-raw/all.json/0/0/image/c/{n}/0/0" for n in range(3)]
    assert [client.get(url).content[0] for url in urls] == [1, 2, 3]
    tifffile.imwrite(parts[1], np.full((300, 300), 9, "uint8"), tile=(128, 128))
    assert [client.get(url).status_code for url in urls] == [200, 409, 200]


def test_names(client_of, tmp_path):
    for folder in ("a", "b", "b/deep er"):
        (tmp_path / folder).mkdir(exist_ok=True)
    data = np.zeros((20, 20), "uint8")
    np.save(tmp_path / "a" / "x.npy", data)
    np.save(tmp_path / "b" / "x.npy", data + 1)
    np.save(tmp_path / "b" / "deep er" / "é %2F#?.npy", data + 2)
    (tmp_path / "notes.txt").write_text("nothing")
    client = client_of(tmp_path, tmp_path / "a" / "x.npy")
    records = client.get("/api/files").json()["files"]
    assert [r["name"] for r in records] == ["a/x.npy", "b/x.npy", "b/deep er/é %2F#?.npy", "x.npy"]
    urls = [r["images"][0]["thumbnail"].replace("/thumb/", "/zarr-raw/") for r in records]
    assert urls[1].partition("?")[0] == "/zarr-raw/b%2Fx.npy/0.png"
    values = [client.get(u.replace("/0.png", "/0/0/image/c/0/0")).content[0] for u in urls]
    assert values == [0, 1, 2, 0]
    # also with unescaped slashes: some clients unescape urls
    assert client.get("/zarr-raw/b/x.npy/0/0/image/c/0/0").content[0] == 1


def test_same_names_are_told_apart(client_of, tmp_path):
    for folder, value in (("a", 3), ("b", 4)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", np.full((20, 20), value, "uint8"))
    client = client_of(tmp_path / "a" / "x.npy", tmp_path / "b" / "x.npy")
    assert [r["name"] for r in client.get("/api/files").json()["files"]] == ["x.npy", "x.npy (2)"]
    assert client.get("/zarr-raw/x.npy%20(2)/0/0/image/c/0/0").content[0] == 4


@pytest.mark.processes
def test_a_signed_url_is_read_with_its_signature_and_served_without(client_of, scene, tmp_path):
    with http_server.serve(tmp_path, strip_query=True) as served:
        client = client_of(f"{served.url}/scene.tif?private_token=SECRET")
        record = client.get("/api/files")
        assert record.json()["files"][0]["name"] == "scene.tif"
        assert "SECRET" not in record.text
        answer = client.get("/zarr-raw/scene.tif/0/0/image/c/0/0")
        assert answer.status_code == 200, answer.text
        assert served.requests
        assert all("private_token=SECRET" in path for path, _ in served.requests)


def test_links_do_not_lead_out(client_of, tmp_path):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "secret.npy", np.zeros(4))
    (tmp_path / "in" / "way.npy").symlink_to(tmp_path / "secret.npy")
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    assert client_of(tmp_path / "in").get("/api/files").json()["files"] == []


def test_chunks_of_a_zarr_store_are_no_files(client_of, scene, tmp_path):
    chunk = tmp_path / "store.zarr" / "c" / "0"
    chunk.parent.mkdir(parents=True)
    (tmp_path / "store.zarr" / "zarr.json").write_text("{}")
    chunk.write_bytes(scene[0].read_bytes())
    assert [r["name"] for r in client_of(tmp_path).get("/api/files").json()["files"]] == [
        "scene.tif"
    ]


def test_levels_of_labels_mix_no_values(client_of, tmp_path):
    """Neither by computing means, nor by taking those that the file has."""
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 4000, (260, 300)).astype("uint16").repeat(4, 0).repeat(4, 1)
    labels = labels[1:, 1:]  # so that pieces of 2 x 2 have up to four labels
    path = tmp_path / "labels.tif"
    with tifffile.TiffWriter(path) as out:
        out.write(labels, tile=(256, 256), subifds=1)
        half = labels[:-1, :-1].reshape(519, 2, 599, 2).mean(axis=(1, 3)).astype("uint16")
        out.write(half, tile=(256, 256), subfiletype=1)
    client = client_of(path)
    group = client.get("/zarr-labels/labels.tif/0/zarr.json").json()
    datasets = group["attributes"]["ome"]["multiscales"][0]["datasets"]
    assert [dataset["path"] for dataset in datasets] == ["0/image", "1/image", "2/image"]

    def plane(level):
        base = f"/zarr-labels/labels.tif/0/{level}/image"
        about = client.get(f"{base}/zarr.json").json()
        chunk = about["chunk_grid"]["configuration"]["chunk_shape"]
        found = np.zeros(about["shape"], "uint16")
        for y in range(-(-found.shape[0] // chunk[0])):
            for x in range(-(-found.shape[1] // chunk[1])):
                body = client.get(f"{base}/c/{y}/{x}").content
                piece = np.frombuffer(body, "<u2").reshape(chunk)
                place = found[y * chunk[0] :, x * chunk[1] :][: chunk[0], : chunk[1]]
                place[:] = piece[: place.shape[0], : place.shape[1]]
        return found

    full, coarse = plane(0), plane(1)
    np.testing.assert_array_equal(full, labels)
    assert coarse.shape == (519, 599)
    pieces = labels[:1038, :1198].reshape(519, 2, 599, 2).transpose(0, 2, 1, 3).reshape(519, 599, 4)
    counts = (pieces[..., None] == pieces[..., None, :]).sum(axis=-1)
    chosen = np.where(pieces == coarse[..., None], counts, 0).max(axis=-1)
    np.testing.assert_array_equal(chosen, counts.max(axis=-1))
    assert np.isin(plane(2), labels).all()
    # the other addresses have the levels of the file
    served = client.get("/zarr-raw/labels.tif/0/1/image/c/0/0").content
    assert np.frombuffer(served, "<u2")[0] == half[0, 0]
