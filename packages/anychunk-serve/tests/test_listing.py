"""Which files the arguments of the command name."""

import os

import numpy as np
import pytest
import tifffile

from anychunk.errors import FormatError, MissingFileError
from anychunk_serve.listing import Listing
from tests.project.test_plugins import BROKEN, install, run
from tests.support.s3 import needs_s3, serve_s3
from tests.support.serving import running


def found(*arguments):
    return [(one.name, one.url) for one in Listing([str(a) for a in arguments]).scan()]


def test_clients_see_no_signature():
    url = "https://host/scenes/a.tif?versionId=3&sig=SECRET&sp=r"
    assert found(url) == [("a.tif", "https://host/scenes/a.tif?versionId=3")]
    assert found("https://me:SECRET@host/") == [("https://host/",) * 2]


def test_a_list_of_files_and_urls(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "b.npy", np.zeros((4, 4)))
    text = (
        f"# scenes\n{tmp_path}/a.npy\n\n{tmp_path}/in\r\nhttps://host/c.tif\n{tmp_path}/gone.tif\n"
    )
    (tmp_path / "list.txt").write_text(text)
    assert found(f"@{tmp_path}/list.txt") == [
        ("a.npy", f"{tmp_path}/a.npy"),
        ("b.npy", f"{tmp_path}/in/b.npy"),
        ("c.tif", "https://host/c.tif"),
        ("gone.tif", f"{tmp_path}/gone.tif"),
    ]
    with pytest.raises(MissingFileError):
        found(f"@{tmp_path}/none.txt")
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError):
        found(f"@{tmp_path}/list.txt")


@pytest.mark.processes
def test_a_list_is_served(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(64, dtype="uint8").reshape(8, 8))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.npy\n")
    with running(f"@{tmp_path}/list.txt") as server:
        assert server.get("/zarr-raw/a.npy/0/0/image/c/0/0")[1] == bytes(range(64))


def test_hostile_folders(tmp_path):
    """Pipes, links in circles and to elsewhere, folders that may not be read, odd names."""
    inside = tmp_path / "in"
    inside.mkdir()
    np.save(tmp_path / "secret.npy", np.zeros(4))
    os.mkfifo(inside / "pipe.npy")
    (inside / "circle").symlink_to(inside)
    (inside / "self.npy").symlink_to(inside / "self.npy")
    (inside / "out.npy").symlink_to(tmp_path / "secret.npy")
    (inside / "dangling.npy").symlink_to(tmp_path / "none.npy")
    (inside / ".hidden.npy").write_bytes((tmp_path / "secret.npy").read_bytes())
    np.save(inside / "real.npy", np.zeros(4))
    (inside / "link.npy").symlink_to("real.npy")
    deep = inside.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    np.save(deep / "x.npy", np.zeros(4))
    names = [name for name, _ in found(inside)]
    assert names == ["link.npy", "real.npy", "/".join(["d"] * 100 + ["x.npy"])]


@pytest.mark.processes
@needs_s3
def test_a_prefix_of_an_object_store(tmp_path, monkeypatch):
    bucket = tmp_path / "buckets" / "scenes"
    (bucket / "sub" / "deeper").mkdir(parents=True)
    data = np.arange(64 * 64, dtype="uint16").reshape(64, 64)
    tifffile.imwrite(bucket / "sub" / "a.tif", data)
    tifffile.imwrite(bucket / "sub" / "deeper" / "b.TIF", data)
    tifffile.imwrite(bucket / "elsewhere.tif", data)
    (bucket / "sub" / "notes.txt").write_text("no image")
    store = bucket / "sub" / "image.zarr"
    store.mkdir()
    (store / "zarr.json").write_text("{}")
    tifffile.imwrite(store / "chunk.tif", data)
    with serve_s3(bucket.parent) as options:
        settings = {
            "AWS_ENDPOINT_URL": options["endpoint"],
            "AWS_REGION": options["region"],
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_ALLOW_HTTP": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        with running("s3://scenes/sub/") as server:
            records = server.files()
            assert set(records) == {"a.tif", "deeper/b.TIF"}
            assert records["a.tif"]["bytes"] == (bucket / "sub" / "a.tif").stat().st_size
            assert records["a.tif"]["modified"] is not None
            body = server.get("/zarr-raw/deeper%2Fb.TIF/0/0/image/c/0/0")[1]
            assert body == data.tobytes()
            assert server.files()["a.tif"]["images"][0]["shape"] == [64, 64]


def test_formats_of_broken_plugins(tmp_path):
    install(tmp_path / "site", **{name: text for name, (text, _) in BROKEN.items()})
    np.save(tmp_path / "a.npy", np.arange(6))
    code = """
        import json, sys
        from anychunk_serve.listing import Listing
        print(json.dumps([found.name for found in Listing([sys.argv[1]]).scan()]))
    """
    names, err = run(tmp_path / "site", code, tmp_path)
    assert "a.npy" in names
    assert all(err.count(f"acme-{name} 1.2") == 1 for name in BROKEN)
