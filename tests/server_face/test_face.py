"""The HTTP face: statuses, tags, ranges, names, and what the page asks for."""

import json
import os

import imagecodecs
import numpy as np
import pytest
import tifffile
from starlette.testclient import TestClient

import anychunk
from anychunk.errors import (
    ChunkDecodeError,
    FormatError,
    LimitError,
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.server.catalog import Catalog
from anychunk.server.jobs import Jobs
from anychunk.server.pixels import Kept
from anychunk.server.responses import BusyError, as_json, byte_range, matches, status_of
from anychunk.server.run import Settings, guarded


@pytest.fixture
def client_of():
    """Give a client of a server of these files."""
    made = []

    def start(*paths, **settings):
        jobs = Jobs(2)
        catalog = Catalog([str(p) for p in paths], kept=Kept(memory=256 << 20))
        app = guarded(catalog, jobs, Settings(**settings))
        client = TestClient(app, base_url="http://127.0.0.1:8000")
        made.append((jobs, client))
        return client

    yield start
    for jobs, client in made:
        client.close()
        jobs.close()


@pytest.fixture
def scene(tmp_path):
    """1100 x 1300 in tiles of 256, without levels."""
    y, x = np.mgrid[0:1100, 0:1300]
    data = ((y * 7 + x * 3) % 4001).astype("uint16")
    path = tmp_path / "scene.tif"
    tifffile.imwrite(path, data, tile=(256, 256), compression="zlib")
    return path, data


def decoded(response, shape, dtype):
    assert response.status_code == 200, response.text
    return np.frombuffer(imagecodecs.zstd_decode(response.content), dtype).reshape(shape)


def test_list(client_of, scene):
    (record,) = client_of(scene[0]).get("/api/files").json()["files"]
    (image,) = record.pop("images")
    assert record == {
        "name": "scene.tif",
        "title": "scene.tif",
        "format": "tiff",
        "bytes": scene[0].stat().st_size,
        "error": None,
        "arrays": [],
    }
    assert image == {
        "path": "0",
        "title": image["title"],
        "shape": [1, 1100, 1300],
        "axes": ["band", "y", "x"],
        "dtype": "uint16",
        "levels": 3,
        "thumbnail": "/thumb/scene.tif/0.png",
    }


def test_levels_are_averages(client_of, scene):
    client, data = client_of(scene[0]), scene[1].astype("float64")
    ome = client.get("/zarr/scene.tif/0/zarr.json").json()["attributes"]["ome"]
    datasets = ome["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0", "1", "2"]
    for number in (1, 2):
        data = data.reshape(data.shape[0] // 2, 2, data.shape[1] // 2, 2).mean(axis=(1, 3))
        data = np.rint(data)  # halves go to even, level by level
        meta = client.get(f"/zarr/scene.tif/0/{number}/zarr.json").json()
        assert meta["shape"] == [1, *data.shape]
        chunk = meta["chunk_grid"]["configuration"]["chunk_shape"]
        found = decoded(client.get(f"/zarr/scene.tif/0/{number}/c/0/0/0"), chunk, "<u2")
        expected = data[: chunk[1], : chunk[2]]
        np.testing.assert_array_equal(found[0, : expected.shape[0], : expected.shape[1]], expected)
        assert meta["attributes"]["anychunk_served"]["chunks"] == "computed"
    # centres of the first elements: 0.5 and 1.5 elements into the first level
    assert datasets[1]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 2.0, 2.0]},
        {"type": "translation", "translation": [0.0, 0.5, 0.5]},
    ]
    assert datasets[2]["coordinateTransformations"][1]["translation"] == [0.0, 1.5, 1.5]


def test_root_holds_all_metadata(client_of, scene):
    client = client_of(scene[0])
    root = client.get("/zarr/scene.tif/zarr.json").json()
    others = root["consolidated_metadata"]["metadata"]
    assert set(others) == {"0", "0/0", "0/1", "0/2"}
    for path, metadata in others.items():
        assert client.get(f"/zarr/scene.tif/{path}/zarr.json").json() == metadata


def test_uncompressed_by_path_and_by_query(client_of, scene):
    client = client_of(scene[0])
    for url, query in (("/zarr-raw/", ""), ("/zarr/", "?compression=none")):
        codecs = client.get(f"{url}scene.tif/0/0/zarr.json{query}").json()["codecs"]
        assert codecs == [{"name": "bytes", "configuration": {"endian": "little"}}]
        body = client.get(f"{url}scene.tif/0/0/c/0/0/0{query}").content
        found = np.frombuffer(body, "<u2").reshape(256, 256)
        np.testing.assert_array_equal(found, scene[1][:256, :256])


def test_tag_and_not_modified(client_of, scene):
    client = client_of(scene[0])
    for url in ("/zarr/scene.tif/0/0/c/0/0/0", "/zarr/scene.tif/zarr.json", "/api/files"):
        first = client.get(url)
        again = client.get(url, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert client.get(url, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-99999999999999999999", (5, 10)),
        ("bytes=10-", "beyond"),
        ("bytes=-0", "beyond"),
        ("bytes=5-2", None),
        ("bytes=a-b", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=" + "9" * 300 + "-", None),
        ("", None),
    ],
)
def test_range_header(header, found):
    assert byte_range(header, 10) == found


@pytest.mark.parametrize("prefix", ["zarr", "raw"])
def test_ranges(client_of, scene, prefix):
    client = client_of(scene[0])
    url = f"/{prefix}/scene.tif/0/0/c/0/0/0"
    whole = client.get(url)
    assert whole.headers["accept-ranges"] == "bytes"
    part = client.get(url, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert client.get(url, headers={"Range": "bytes=-7"}).content == whole.content[-7:]
    beyond = client.get(url, headers={"Range": "bytes=99999999-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (
        416,
        f"bytes */{len(whole.content)}",
    )
    old = client.get(url, headers={"Range": "bytes=10-19", "If-Range": '"old"'})
    assert (old.status_code, old.content) == (200, whole.content)


def test_head_says_the_length_alone(client_of, scene):
    client = client_of(scene[0])
    for url in ("/zarr/scene.tif/0/0/c/0/0/0", "/raw/scene.tif/0/0/c/0/0/0", "/api/files", "/"):
        head, whole = client.head(url), client.get(url)
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) == len(whole.content)


def test_absent_is_404_and_only_that(client_of, tmp_path):
    path = tmp_path / "sparse.tif"
    data = np.zeros((512, 512), "uint8")
    data[:256, :256] = 7
    tifffile.imwrite(path, data, tile=(256, 256), compression="zlib", contiguous=False)
    with tifffile.TiffFile(path) as file:
        counts = file.pages[0].tags["TileByteCounts"]
        place, size = counts.valueoffset, counts.dtype
    assert size is not None
    raw = bytearray(path.read_bytes())
    width = 4 if counts.dtype == 4 else 2
    raw[place + 3 * width : place + 4 * width] = bytes(width)  # the last tile: not stored
    path.write_bytes(raw)
    client = client_of(path)
    assert client.get("/zarr/sparse.tif/0/0/c/0/0/0").status_code == 200
    gone = client.get("/zarr/sparse.tif/0/0/c/0/1/1")
    assert gone.status_code == 404
    assert gone.json() == {"error": "0/0/c/0/1/1: the file has no such chunk; it reads as fill"}
    for key in ("c/0/2/0", "c/0/0", "c/00/0/0", "c/0/0/-1", "d/0", "zarr.jso", "c"):
        assert client.get(f"/zarr/sparse.tif/0/0/{key}").status_code == 404


def test_what_cannot_be_decoded_is_no_absence(client_of, scene):
    path = scene[0]
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].dataoffsets[0]
    raw = bytearray(path.read_bytes())
    raw[offset : offset + 50] = bytes(50)
    path.write_bytes(raw)
    client = client_of(path)
    for prefix in ("zarr", "zarr-raw"):
        bad = client.get(f"/{prefix}/scene.tif/0/0/c/0/0/0")
        assert bad.status_code == 502
        assert "chunk (0, 0, 0)" in bad.json()["error"]
        # the computed level that needs it is as unreadable
        assert client.get(f"/{prefix}/scene.tif/0/1/c/0/0/0").status_code == 502
        assert client.get(f"/{prefix}/scene.tif/0/0/c/0/1/1").status_code == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnsupportedError("x"), 415),
        (FormatError("x"), 415),
        (LimitError("x"), 415),
        (MissingDependencyError("x"), 415),
        (SourceError("x"), 502),
        (TruncatedError("x"), 502),
        (ChunkDecodeError("x"), 502),
        (FileNotFoundError("x"), 502),
        (SourceChangedError("x"), 409),
        (BusyError("x"), 503),
        (ValueError("x"), 500),
        (MemoryError(), 500),
    ],
)
def test_status_of_errors(error, status):
    assert status_of(error) == status


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


def test_changed_and_deleted_files(client_of, scene, tmp_path):
    other = tmp_path / "other.npy"
    np.save(other, np.arange(512 * 512, dtype="uint16").reshape(512, 512))
    client = client_of(scene[0], other)
    chunk = "/zarr/scene.tif/0/0/c/0/0/0"
    assert client.get(chunk).status_code == 200
    passed = "/zarr/other.npy/0/0/c/0/0"
    assert client.get(passed).status_code == 200
    scene[0].write_bytes(scene[0].read_bytes() + b"more")
    with other.open("r+b") as file:
        file.truncate(1000)
    for url in (chunk, "/zarr/scene.tif/0/0/c/0/1/1", "/raw/scene.tif/0/0/c/0/0/0", passed):
        answer = client.get(url)
        assert answer.status_code == 409, (url, answer.text)
        assert str(tmp_path) not in answer.text
    scene[0].unlink()
    other.unlink()
    for url in (chunk, "/zarr/scene.tif/0/1/c/0/0/0", "/raw/scene.tif/0/0/c/0/0/0", passed):
        answer = client.get(url)
        assert answer.status_code == 502, (url, answer.text)
        assert "gone" in answer.json()["error"]


def test_a_changed_block_of_n5_is_read_again(client_of, tmp_path):
    path = tmp_path / "v.n5"
    anychunk.write(np.full((64, 64), 1, "uint8"), str(path), block=(32, 32), compression="raw")
    client = client_of(path)
    url = "/zarr-raw/v.n5/0/c/0/0"
    assert set(client.get(url).content) == {1}
    block = path / "0" / "0"
    block.write_bytes(block.read_bytes()[:-1] + b"\x09")
    os.utime(block, ns=(1, 1))
    assert client.get(url).content.count(b"\x09") == 1


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
    assert urls[1] == "/zarr-raw/b%2Fx.npy/0.png"
    values = [client.get(u.replace("/0.png", "/0/0/c/0/0")).content[0] for u in urls]
    assert values == [0, 1, 2, 0]
    # also with plain slashes, which is what clients make of it
    assert client.get("/zarr-raw/b/x.npy/0/0/c/0/0").content[0] == 1


def test_same_names_are_told_apart(client_of, tmp_path):
    for folder, value in (("a", 3), ("b", 4)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", np.full((20, 20), value, "uint8"))
    client = client_of(tmp_path / "a" / "x.npy", tmp_path / "b" / "x.npy")
    assert [r["name"] for r in client.get("/api/files").json()["files"]] == ["x.npy", "x.npy (2)"]
    assert client.get("/zarr-raw/x.npy%20(2)/0/0/c/0/0").content[0] == 4


def test_links_do_not_lead_out(client_of, tmp_path):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "secret.npy", np.zeros(4))
    (tmp_path / "in" / "way.npy").symlink_to(tmp_path / "secret.npy")
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    assert client_of(tmp_path / "in").get("/api/files").json()["files"] == []


def test_files_that_come_later_are_found(client_of, tmp_path):
    client = client_of(tmp_path)
    assert client.get("/api/files").json() == {"files": []}
    np.save(tmp_path / "new.npy", np.zeros((8, 8), "uint8"))
    assert [r["name"] for r in client.get("/api/files").json()["files"]] == ["new.npy"]


@pytest.mark.parametrize(
    "path",
    [
        "/zarr/../../etc/passwd",
        "/zarr/..%2f..%2fetc%2fpasswd",
        "/zarr/scene.tif/%2e%2e/%2e%2e/zarr.json",
        "/zarr/scene.tif%2f..%2fscene.tif/zarr.json",
        "/zarr/scene.tif/0%00/zarr.json",
        "/zarr/scene.tif/%ff%fe/zarr.json",
        "/zarr//scene.tif/zarr.json",
        "/zarr/scene.tif/..\\..\\x",
        "/raw/../scene.tif/zarr.json",
        "/raw/scene.tif/" + "a/" * 500 + "zarr.json",
        "/thumb/..%2f..%2fx.png",
        "/thumb/scene.tif/../0.png",
        "/api/info/..%2fscene.tif",
        "/api/chunk/scene.tif/../0?at=0",
        "/..%2f..%2f..%2fetc/passwd",
        "/assets/..%2f..%2f..%2fapp.py",
        "/%00",
    ],
)
def test_nothing_else_is_reachable(client_of, scene, path):
    client = client_of(scene[0])
    answer = client.get(path)
    assert answer.status_code in (200, 404)
    if answer.status_code == 200:  # a client may take `..` out of a url by itself
        assert "/.." in path
        assert "scene.tif" in str(answer.url)
    assert "root:" not in answer.text


def test_cors(client_of, scene):
    client = client_of(scene[0])
    for url in ("/zarr/scene.tif/zarr.json", "/zarr/none", "/api/files"):
        answer = client.get(url, headers={"Origin": "https://example.org"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "ETag" in answer.headers["access-control-expose-headers"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    asked = {
        "Origin": "https://example.org",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "range",
    }
    answer = client.options("/zarr/scene.tif/zarr.json", headers=asked)
    assert answer.status_code == 204
    assert "Range" in answer.headers["access-control-allow-headers"]


def test_methods(client_of, scene):
    client = client_of(scene[0])
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = client.request(method, "/zarr/scene.tif/zarr.json", content=b"x" * 1000)
        assert answer.status_code == 405
        assert "error" in answer.json()


def test_page_has_a_policy(client_of, scene):
    answer = client_of(scene[0]).get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:99", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_host(client_of, scene, host, status):
    answer = client_of(scene[0]).get("/api/files", headers={"Host": host})
    assert answer.status_code == status


def test_host_is_free_where_others_reach_it(client_of, scene):
    client = client_of(scene[0], host="0.0.0.0")
    assert client.get("/api/files", headers={"Host": "lab.example"}).status_code == 200
    client = client_of(scene[0], allow_hosts=("lab.example",))
    assert client.get("/api/files", headers={"Host": "lab.example:80"}).status_code == 200


def test_token(client_of, scene):
    client = client_of(scene[0], token="s3cret")
    url = "/zarr/scene.tif/zarr.json"
    assert client.get(url).status_code == 401
    for wrong in ("Bearer s3cre", "Bearer", "Basic s3cret", "bearer s3cret2"):
        assert client.get(url, headers={"Authorization": wrong}).status_code == 401
    assert client.get(url, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    assert client.get(f"{url}?token=nope").status_code == 401
    assert client.get(f"{url}?token=%ff%00").status_code == 401
    # a preflight carries no token
    assert client.options(url, headers={"Origin": "x"}).status_code == 204
    first = client.get("/?token=s3cret")
    assert first.status_code == 200
    assert "httponly" in first.headers["set-cookie"].lower()
    assert client.get(url).status_code == 200, "by the cookie"


def test_info(client_of, scene):
    found = client_of(scene[0]).get("/api/info/scene.tif").json()
    assert (found["name"], found["format"], found["source"]) == ("scene.tif", "tiff", "scene.tif")
    assert set(found["metadata"]) == {"", "0", "0/0"}
    assert "ome" in found["metadata"]["0"]
    assert str(scene[0].parent) not in json.dumps(found)


def test_raw_metadata_does_not_say_where_the_file_is(client_of, scene):
    text = client_of(scene[0]).get("/raw/scene.tif/zarr.json").text
    assert str(scene[0].parent) not in text
    assert "scene.tif" in text


def test_where_a_chunk_is(client_of, scene):
    client = client_of(scene[0])
    found = client.get("/api/chunk/scene.tif/0/0?at=0,300,1290").json()
    with tifffile.TiffFile(scene[0]) as file:
        page = file.pages[0]
        number = 1 * 6 + 5
        place = [page.dataoffsets[number], page.databytecounts[number]]
    codecs = found.pop("codecs")
    assert codecs[-1]["name"].endswith("tiff-tile")
    assert found == {
        "chunk": [0, 1, 5],
        "shape": [1, 256, 256],
        "origin": [0, 256, 1280],
        "source": "scene.tif",
        "parts": [place],
        "bytes": place[1],
        "stored": True,
        "computed": False,
    }
    computed = client.get("/api/chunk/scene.tif/0/1?at=0,0,0").json()
    assert (computed["computed"], computed["stored"], computed["codecs"]) == (True, False, [])
    grid = client.get("/api/grid/scene.tif/0/0").json()
    assert (grid["shape"], grid["chunk_shape"]) == ([1, 1100, 1300], [1, 256, 256])
    assert client.get("/api/chunk/scene.tif/0/0?at=x").status_code == 400
    assert client.get("/api/chunk/scene.tif/0/0?at=0,9999,0").status_code == 404
    assert client.get("/api/chunk/scene.tif/9?at=0").status_code == 404


def test_thumbnail(client_of, scene):
    answer = client_of(scene[0]).get("/thumb/scene.tif/0.png")
    assert answer.headers["content-type"] == "image/png"
    picture = imagecodecs.png_decode(answer.content)
    assert max(picture.shape) == 256
    assert client_of(scene[0]).get("/thumb/scene.tif/7.png").status_code == 404


def test_numbers_that_json_lacks():
    text = as_json({"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": (2,)})
    assert json.loads(text) == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": [2]}


def test_tags_match_weakly():
    assert matches('W/"a"', '"a"')
    assert matches("*", '"a"')
    assert not matches('"b"', '"a"')
    assert not matches(None, '"a"')


def test_a_changed_part_of_a_mosaic_is_noticed(client_of, tmp_path):
    parts = []
    for number in range(3):
        parts.append(str(tmp_path / f"part{number}.tif"))
        data = np.full((300, 300), number + 1, "uint8")
        tifffile.imwrite(parts[-1], data, tile=(128, 128), compression="zlib")
    anychunk.index(parts, combine="stack").save(tmp_path / "all.json")
    client = client_of(tmp_path / "all.json")
    meta = client.get("/zarr-raw/all.json/0/0/zarr.json").json()
    assert meta["shape"][0] == 3
    urls = [f"/zarr-raw/all.json/0/0/c/{n}/0/0/0" for n in range(3)]
    assert [client.get(url).content[0] for url in urls] == [1, 2, 3]
    tifffile.imwrite(parts[1], np.full((300, 300), 9, "uint8"), tile=(128, 128))
    assert [client.get(url).status_code for url in urls] == [200, 409, 200]


@pytest.mark.parametrize(
    "ome",
    [
        {"multiscales": [{"datasets": [3, None, {"path": "0", "coordinateTransformations": [7]}]}]},
        {"multiscales": [{"axes": [{"name": "y"}], "datasets": [{"path": "0"}]}]},
        {"multiscales": [{"datasets": [{"path": "0", "coordinateTransformations": 5}]}]},
        {
            "multiscales": [
                {
                    "axes": [{"name": "y"}, {"name": "x"}],
                    "datasets": [
                        {
                            "path": "0",
                            "coordinateTransformations": [{"type": "scale", "scale": ["a", {}]}],
                        }
                    ],
                }
            ]
        },
        {"multiscales": "no"},
        {"multiscales": [[]]},
        7,
    ],
)
def test_attributes_that_lie(client_of, tmp_path, ome):
    path = tmp_path / "v.n5"
    anychunk.write(np.zeros((700, 700), "uint8"), str(path / "image" / "0"), block=(256, 256))
    (path / "attributes.json").write_text(json.dumps({"n5": "4.0.0"}))
    (path / "image" / "attributes.json").write_text(json.dumps({"ome": ome}))
    client = client_of(path)
    (record,) = client.get("/api/files").json()["files"]
    if record["error"] is None:
        assert client.get("/zarr/v.n5/zarr.json").status_code == 200
    else:
        assert client.get("/zarr/v.n5/image/zarr.json").status_code == 415


def test_long_work_keeps_nobody_waiting(client_of, scene, monkeypatch):
    """Levels that take long to compute have threads of their own, and end when nobody waits."""
    import threading

    from anychunk.server import chunks, wanted

    client = client_of(scene[0])
    assert client.get("/zarr/scene.tif/0/zarr.json").status_code == 200
    hold, ended = threading.Event(), []
    shrink = chunks.ds.by_window

    def slowly(*arguments):
        while not hold.wait(0.01):
            try:
                wanted.check()
            except wanted.Dropped:
                ended.append(1)
                raise
        return shrink(*arguments)

    monkeypatch.setattr(chunks.ds, "by_window", slowly)
    answers = []
    ask = [
        threading.Thread(
            target=lambda n=n: answers.append(client.get(f"/zarr/scene.tif/0/1/c/0/{n}/0"))
        )
        for n in range(2)
    ]
    for thread in ask:
        thread.start()
    assert client.get("/zarr/scene.tif/0/0/c/0/0/0").status_code == 200
    hold.set()
    for thread in ask:
        thread.join()
    assert [a.status_code for a in answers] == [200, 200]
    assert ended == []


def test_chunks_of_a_zarr_store_are_no_files(client_of, scene, tmp_path):
    chunk = tmp_path / "store.zarr" / "c" / "0"
    chunk.parent.mkdir(parents=True)
    (tmp_path / "store.zarr" / "zarr.json").write_text("{}")
    chunk.write_bytes(scene[0].read_bytes())
    assert [r["name"] for r in client_of(tmp_path).get("/api/files").json()["files"]] == [
        "scene.tif"
    ]
