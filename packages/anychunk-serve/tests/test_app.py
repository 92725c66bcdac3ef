"""The routes: statuses, ETags, byte ranges, metadata, chunks, thumbnails."""

import json

import imagecodecs
import numpy as np
import pytest
import tifffile

import anychunk
from tests.support.http_server import serve
from tests.support.served_files import decoded


def test_levels_are_averages(client_of, scene):
    client, data = client_of(scene[0]), scene[1].astype("float64")
    ome = client.get("/zarr/scene.tif/0/zarr.json").json()["attributes"]["ome"]
    datasets = ome["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0/image", "1/image", "2/image"]
    for number in (1, 2):
        data = data.reshape(data.shape[0] // 2, 2, data.shape[1] // 2, 2).mean(axis=(1, 3))
        data = np.rint(data)  # each level rounds half to even
        meta = client.get(f"/zarr/scene.tif/0/{number}/image/zarr.json").json()
        assert meta["shape"] == list(data.shape)
        chunk = meta["chunk_grid"]["configuration"]["chunk_shape"]
        found = decoded(client.get(f"/zarr/scene.tif/0/{number}/image/c/0/0"), chunk, "<u2")
        expected = data[: chunk[0], : chunk[1]]
        np.testing.assert_array_equal(found[: expected.shape[0], : expected.shape[1]], expected)
        assert meta["attributes"]["anychunk_served"]["chunks"] == "computed"
    # centres of the first elements: 0.5 and 1.5 elements into the first level
    assert datasets[1]["coordinateTransformations"] == [
        {"type": "scale", "scale": [2.0, 2.0]},
        {"type": "translation", "translation": [0.5, 0.5]},
    ]
    assert datasets[2]["coordinateTransformations"][1]["translation"] == [1.5, 1.5]


def test_root_holds_all_metadata(client_of, scene):
    client = client_of(scene[0])
    root = client.get("/zarr/scene.tif/zarr.json").json()
    others = root["consolidated_metadata"]["metadata"]
    levels = {"0/0", "0/1", "0/2"}
    assert set(others) == {"0", *levels, *(f"{level}/image" for level in levels)}
    for path, metadata in others.items():
        own = client.get(f"/zarr/scene.tif/{path}/zarr.json").json()
        below = own.pop("consolidated_metadata", {"metadata": {}})["metadata"]
        assert own == metadata
        # every group lists what is below it, for clients that open only that group
        inside = {p.removeprefix(f"{path}/") for p in others if p.startswith(f"{path}/")}
        assert set(below) == inside


def test_uncompressed_by_path_and_by_query(client_of, scene):
    client = client_of(scene[0])
    for url, query in (("/zarr-raw/", ""), ("/zarr/", "?compression=none")):
        codecs = client.get(f"{url}scene.tif/0/0/image/zarr.json{query}").json()["codecs"]
        assert codecs == [{"name": "bytes", "configuration": {"endian": "little"}}]
        body = client.get(f"{url}scene.tif/0/0/image/c/0/0{query}").content
        found = np.frombuffer(body, "<u2").reshape(256, 256)
        np.testing.assert_array_equal(found, scene[1][:256, :256])


def test_tag_and_not_modified(client_of, scene):
    client = client_of(scene[0])
    for url in ("/zarr/scene.tif/0/0/image/c/0/0", "/zarr/scene.tif/zarr.json", "/api/files"):
        first = client.get(url)
        again = client.get(url, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert client.get(url, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("prefix", ["zarr", "raw"])
def test_ranges(client_of, scene, prefix):
    client = client_of(scene[0])
    url = f"/{prefix}/scene.tif/0/0/image/c/0/0"
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
    for url in (
        "/zarr/scene.tif/0/0/image/c/0/0",
        "/raw/scene.tif/0/0/image/c/0/0",
        "/api/files",
        "/",
    ):
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
    raw[place + 3 * width : place + 4 * width] = bytes(width)  # declares the last tile absent
    path.write_bytes(raw)
    client = client_of(path)
    assert client.get("/zarr/sparse.tif/0/0/image/c/0/0").status_code == 200
    gone = client.get("/zarr/sparse.tif/0/0/image/c/1/1")
    assert gone.status_code == 404
    assert gone.json()["error"].startswith("0/0/image/c/1/1: ")
    for key in ("c/2/0", "c/0/0/0", "c/00/0", "c/0/-1", "d/0", "zarr.jso", "c"):
        assert client.get(f"/zarr/sparse.tif/0/0/image/{key}").status_code == 404


def test_a_chunk_that_does_not_decode_is_not_absent(client_of, scene):
    path = scene[0]
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].dataoffsets[0]
    raw = bytearray(path.read_bytes())
    raw[offset : offset + 50] = bytes(50)
    path.write_bytes(raw)
    client = client_of(path)
    for prefix in ("zarr", "zarr-raw"):
        bad = client.get(f"/{prefix}/scene.tif/0/0/image/c/0/0")
        assert bad.status_code == 502
        assert "chunk (0, 0)" in bad.json()["error"]
        # neither can the computed level be read that needs it
        assert client.get(f"/{prefix}/scene.tif/0/1/image/c/0/0").status_code == 502
        assert client.get(f"/{prefix}/scene.tif/0/0/image/c/1/1").status_code == 200


def test_info(client_of, scene):
    found = client_of(scene[0]).get("/api/info/scene.tif").json()
    assert (found["name"], found["format"], found["source"]) == ("scene.tif", "tiff", "scene.tif")
    assert set(found["metadata"]) == {"", "0", "0/0", "0/0/image"}
    assert "ome" in found["metadata"]["0"]
    assert str(scene[0].parent) not in json.dumps(found)


def test_where_a_chunk_is(client_of, scene):
    client = client_of(scene[0])
    found = client.get("/api/chunk/scene.tif/0/0/image?at=300,1290").json()
    with tifffile.TiffFile(scene[0]) as file:
        page = file.pages[0]
        number = 1 * 6 + 5
        place = [page.dataoffsets[number], page.databytecounts[number]]
    codecs = found.pop("codecs")
    assert codecs[-1]["name"].endswith("tiff-tile")
    assert found == {
        "chunk": [1, 5],
        "shape": [256, 256],
        "origin": [256, 1280],
        "source": "scene.tif",
        "parts": [place],
        "bytes": place[1],
        "stored": True,
        "computed": False,
    }
    computed = client.get("/api/chunk/scene.tif/0/1/image?at=0,0").json()
    assert (computed["computed"], computed["stored"], computed["codecs"]) == (True, False, [])
    grid = client.get("/api/grid/scene.tif/0/0/image").json()
    assert (grid["shape"], grid["chunk_shape"]) == ([1100, 1300], [256, 256])
    assert client.get("/api/chunk/scene.tif/0/0/image?at=x").status_code == 400
    assert client.get("/api/chunk/scene.tif/0/0/image?at=9999,0").status_code == 404
    assert client.get("/api/chunk/scene.tif/9?at=0").status_code == 404


def test_thumbnail(client_of, scene):
    answer = client_of(scene[0]).get("/thumb/scene.tif/0.png")
    assert answer.headers["content-type"] == "image/png"
    picture = imagecodecs.png_decode(answer.content)
    assert max(picture.shape) == 256
    assert client_of(scene[0]).get("/thumb/scene.tif/7.png").status_code == 404


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
    anychunk.write(np.zeros((700, 700), "uint8"), str(path / "image" / "0"), chunk=(256, 256))
    (path / "attributes.json").write_text(json.dumps({"n5": "4.0.0"}))
    (path / "image" / "attributes.json").write_text(json.dumps({"ome": ome}))
    client = client_of(path)
    (record,) = client.get("/api/files").json()["files"]
    if record["error"] is None:
        assert client.get("/zarr/v.n5/zarr.json").status_code == 200
    else:
        assert client.get("/zarr/v.n5/image/zarr.json").status_code == 415


def test_long_work_keeps_nobody_waiting(client_of, scene, monkeypatch):
    """Computed levels run on separate threads, and do not delay other chunks."""
    import threading

    from anychunk_serve import cancellation, chunks

    client = client_of(scene[0])
    assert client.get("/zarr/scene.tif/0/zarr.json").status_code == 200
    hold, ended = threading.Event(), []
    shrink = chunks.ds.by_window

    def slowly(*arguments):
        while not hold.is_set():
            try:
                cancellation.check()
            except cancellation.Cancelled:
                ended.append(1)
                raise
        return shrink(*arguments)

    monkeypatch.setattr(chunks.ds, "by_window", slowly)
    answers = []
    ask = [
        threading.Thread(
            target=lambda n=n: answers.append(client.get(f"/zarr/scene.tif/0/1/image/c/{n}/0"))
        )
        for n in range(2)
    ]
    for thread in ask:
        thread.start()
    assert client.get("/zarr/scene.tif/0/0/image/c/0/0").status_code == 200
    hold.set()
    for thread in ask:
        thread.join()
    assert [(a.status_code, a.text[:200]) for a in answers if a.status_code != 200] == []
    assert ended == []


def test_nodata_is_excluded_from_levels(client_of, tmp_path):
    import rasterio

    data = np.full((800, 900), 30, "int16")
    data[::2, ::2] = -9999
    data[:100] = -9999
    transform = rasterio.transform.from_origin(0, 800, 1, 1)
    with rasterio.open(
        tmp_path / "a.tif",
        "w",
        driver="GTiff",
        width=900,
        height=800,
        count=1,
        dtype="int16",
        nodata=-9999,
        transform=transform,
    ) as out:
        out.write(data, 1)
    client = client_of(tmp_path / "a.tif")
    found = client.get("/zarr/a.tif/0/1/image/c/0/0?compression=none")
    level = np.frombuffer(found.content, "<i2").reshape(400, 450)
    assert set(level[:50].flat) == {-9999}
    assert set(level[50:].flat) == {30}


def test_head_has_no_ranges(client_of, scene):
    url = "/zarr/scene.tif/0/0/image/c/0/0"
    client = client_of(scene[0])
    head = client.head(url, headers={"range": "bytes=0-9"})
    assert head.status_code == 200
    assert int(head.headers["content-length"]) == len(client.get(url).content)


@pytest.mark.processes
@pytest.mark.parametrize("where", ["local", "remote"])
def test_parts_of_a_stream_that_is_found_to_be_damaged(client_of, tmp_path, monkeypatch, where):
    """What was sent before the end of the stream was reached is not sent again."""
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.LEAST", 1 << 18)
    monkeypatch.setattr("anychunk.decode.pieces.MOST_CHECKED", 0)
    path = tmp_path / "files" / "a.tif"
    path.parent.mkdir()
    data = np.random.default_rng(2).integers(0, 250, (2048, 1024), "uint8")
    tifffile.imwrite(path, data, rowsperstrip=2048, compression="zlib", metadata=None)
    with tifffile.TiffFile(path) as opened:
        page = opened.pages[0]
        end = page.dataoffsets[0] + page.databytecounts[0]
    stored = bytearray(path.read_bytes())
    stored[end - 1] ^= 1  # of the Adler-32
    path.write_bytes(stored)
    with serve(path.parent) as web:
        client = client_of(path if where == "local" else f"{web.url}/a.tif")
        first, last = (f"/zarr-raw/a.tif/0/0/image/c/{row}/0" for row in (0, -1))
        meta = client.get("/zarr-raw/a.tif/0/0/image/zarr.json").json()
        rows, columns = meta["chunk_grid"]["configuration"]["chunk_shape"]
        last = last.replace("-1", str(-(-2048 // rows) - 1))
        for _ in range(2):
            found = np.frombuffer(client.get(first).content, np.uint8)
            np.testing.assert_array_equal(found.reshape(rows, columns), data[:rows, :columns])
        assert client.get(last).status_code == 502
        for url in (first, first.replace("zarr-raw", "zarr"), last):
            assert client.get(url).status_code == 502
        assert client.get("/zarr/a.tif/0/1/image/c/0/0").status_code == 502
