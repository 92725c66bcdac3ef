"""Symbolic links in served folders: targets outside are refused and never sent."""

import json

import numpy as np
import pytest

import anychunk
from tests.io.test_inside import SECRET, needs_links, ome_set, replaced, saved

__all__ = ["saved"]

pytestmark = needs_links


@pytest.fixture
def evil(tmp_path):
    place = tmp_path / "in" / "evil.n5"
    anychunk.write(np.ones((64, 64), "uint8"), place / "data", chunk=(32, 32))
    (tmp_path / "secret").write_bytes(SECRET)
    return place


@pytest.mark.parametrize("size", [10, 5 << 20])
def test_blocks(client_of, evil, tmp_path, size):
    (tmp_path / "secret").write_bytes((SECRET * (size // 10))[:size])
    replaced(evil / "data/0/0", tmp_path / "secret")
    client = client_of(evil)
    for url in (
        "/raw/evil.n5/data/0/image/c/0/0",
        "/zarr/evil.n5/data/0/image/c/0/0",
        "/zarr-raw/evil.n5/data/0/image/c/0/0",
        "/thumb/evil.n5/data.png",
        "/api/chunk/evil.n5/data/0/image?at=0,0",
    ):
        answer = client.get(url)
        assert answer.status_code == 415, (url, answer.status_code, answer.content[:80])
        assert SECRET not in answer.content
        assert str(tmp_path) not in answer.text


def test_folders(client_of, evil, tmp_path):
    anychunk.write(np.ones((64, 64), "uint8"), tmp_path / "out/other.n5/data", chunk=(32, 32))
    (evil / "way").symlink_to(tmp_path / "out/other.n5")
    (evil / "attributes").symlink_to(tmp_path)
    client = client_of(evil.parent)
    for url in (
        "/raw/evil.n5/way/zarr.json",
        "/raw/evil.n5/way/data/0/image/c/0/0",
        "/zarr/evil.n5/way/data/0/image/c/0/0",
        "/zarr/evil.n5/way/data/0/zarr.json",
    ):
        assert client.get(url).status_code == 415, url
    (record,) = client.get("/api/files").json()["files"]
    assert "data" in [image["path"] for image in record["images"]] or record["error"]
    assert "other" not in json.dumps(record)


@pytest.mark.parametrize("name", ["a.npy", "a.n5"])
def test_a_file_that_becomes_a_link_before_it_is_opened(client_of, tmp_path, name):
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "a.npy", np.ones((8, 8), "uint8"))
        anychunk.write(np.ones((8, 8), "uint8"), tmp_path / folder / "a.n5")
    client = client_of(tmp_path / "in")
    replaced(tmp_path / "in" / name, tmp_path / "out" / name)
    assert client.get(f"/raw/{name}/zarr.json").status_code == 415


def test_a_file_that_is_named_may_be_a_link(client_of, tmp_path):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "a.npy", np.ones((8, 8), "uint8"))
    (tmp_path / "in" / "link.npy").symlink_to(tmp_path / "a.npy")
    (tmp_path / "folder").symlink_to(tmp_path / "in")
    np.save(tmp_path / "in" / "b.npy", np.ones((8, 8), "uint8"))
    client = client_of(tmp_path / "in" / "link.npy", tmp_path / "folder")
    records = client.get("/api/files").json()["files"]
    assert {r["name"]: r["error"] for r in records} == {"a.npy": None, "b.npy": None}


def test_saved_indexes_and_sets(client_of, saved, tmp_path):
    anychunk.index(saved / "a.tif").save(saved / "a.parquet")
    replaced(saved / "a.parquet" / "0/0/image/refs.0.parq", tmp_path / "secret")
    anychunk.index(saved / "a.tif").save(saved / "b.parquet")
    replaced(saved / "b.parquet" / ".zmetadata", tmp_path / "secret")
    first = ome_set(saved / "set")
    replaced(first.parent / "1.ome.tif", tmp_path / "secret")
    (tmp_path / "secret").write_bytes(SECRET)
    client = client_of(saved)
    records = {r["name"]: r["error"] for r in client.get("/api/files").json()["files"]}
    assert records["a.tif"] is None
    assert records["a.parquet"]
    assert records["set/0.ome.tif"]
    assert records["b.parquet"]
    for name in ("a.parquet", "b.parquet", "set%2F0.ome.tif"):
        assert client.get(f"/raw/{name}/zarr.json").status_code == 415, name
