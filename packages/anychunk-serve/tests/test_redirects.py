"""Redirects of web servers: refused by default if they lead to another host or port."""

import gc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import SourceError, UnsupportedError
from anychunk.io.http import Site
from anychunk.io.opening import open_source, read_object
from tests.support import http_server
from tests.support.serving import running

pytestmark = pytest.mark.processes


RESTRICTED = {"redirects": "same-origin"}


@contextmanager
def redirecting(target, *, status=302, only=""):
    """Redirect every request whose path contains `only` to the same path at `target`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_response(status if only in self.path else 404)
            self.send_header("Location", f"{target}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

    with http_server.running(Handler) as url:
        yield url


@pytest.fixture
def web(tmp_path):
    """Run a web server with a TIFF, an N5 container and the first file of an OME-TIFF."""
    folder = tmp_path / "web"
    folder.mkdir()
    rng = np.random.default_rng(0)
    data = rng.integers(0, 999, (700, 700)).astype("uint16")
    tifffile.imwrite(folder / "a.tif", data, tile=(128, 128))
    anychunk.write(data, folder / "v.n5", chunk=(256, 256))
    with http_server.serve(folder) as served:
        served.data = data
        yield served


def test_other_ports_are_refused(client_of, web):
    with redirecting(web.url) as url:
        client = client_of(f"{url}/a.tif", f"{url}/v.n5")
        for path in ("/zarr/a.tif/zarr.json", "/raw/a.tif/zarr.json", "/zarr/v.n5/zarr.json"):
            answer = client.get(path)
            assert answer.status_code == 502, (path, answer.text)
            assert len(answer.json()["error"].splitlines()) == 1
        errors = [r["error"] for r in client.get("/api/files").json()["files"]]
        assert all(errors)
    assert web.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_every_kind_of_redirect_is_refused(web, status):
    with redirecting(web.url, status=status) as url:
        for read in (
            lambda: open_source(f"{url}/a.tif", storage=RESTRICTED).size(),
            lambda: open_source(f"{url}/a.tif", storage=RESTRICTED).refresh(),
            lambda: read_object(f"{url}/a.tif", storage=RESTRICTED),
        ):
            with pytest.raises(SourceError):
                read()
    assert web.requests == []


@pytest.mark.parametrize(
    "target",
    ["http://localhost:{port}", "https://127.0.0.1:{port}", "file:///etc", "//[", "ftp://x"],
)
def test_other_hosts_and_schemes_are_refused(web, target):
    port = web.url.rpartition(":")[2]
    with (
        redirecting(target.format(port=port)) as url,
        pytest.raises(SourceError),
    ):
        open_source(f"{url}/a.tif", storage=RESTRICTED).size()
    assert web.requests == []


def test_chunks_that_are_redirected_are_refused(client_of, web, tmp_path):
    """Metadata is served here, chunks or the rest of a file are redirected elsewhere."""
    with http_server.serve(tmp_path / "web") as other:
        client = client_of(f"{web.url}/v.n5", f"{web.url}/a.tif")
        assert client.get("/raw/v.n5/c/0/0").status_code == 200
        assert client.get("/zarr-raw/a.tif/0/0/image/c/0/0").status_code == 200
        web.moved = {path: f"{other.url}{path}" for path in ("/v.n5/1/1", "/a.tif")}
        for path in (
            "/raw/v.n5/c/1/1",
            "/zarr-raw/v.n5/0/image/c/1/1",
            "/thumb/v.n5.png",
            "/raw/a.tif/0/0/image/c/5/5",
            "/zarr/a.tif/0/1/image/c/0/0",
        ):
            assert client.get(path).status_code == 502, path
        assert other.requests == []


def test_they_are_followed_where_that_is_allowed(web, tmp_path):
    with redirecting(web.url) as url, running(f"{url}/a.tif", "--allow-redirects") as served:
        status, body, _ = served.get("/zarr-raw/a.tif/0/0/image/c/0/0")
        assert status == 200
        assert np.frombuffer(body, "<u2")[0] == web.data[0, 0]
    with redirecting(web.url) as url, running(f"{url}/a.tif") as served:
        assert served.get("/zarr-raw/a.tif/0/0/image/c/0/0")[0] == 502


def test_the_python_api_follows_them(web):
    with redirecting(web.url) as url:
        np.testing.assert_array_equal(anychunk.open(f"{url}/a.tif")["0/0/image"], web.data)


def test_redirects_to_the_same_host_and_port_are_followed(client_of, web):
    web.moved = {"/old.tif": "/a.tif", "/older.tif": f"{web.url}/old.tif"}
    client = client_of(f"{web.url}/older.tif")
    answer = client.get("/zarr-raw/older.tif/0/0/image/c/0/0")
    assert answer.status_code == 200
    assert np.frombuffer(answer.content, "<u2")[0] == web.data[0, 0]
    web.moved = {"/a.tif": "/a.tif"}
    with pytest.raises(SourceError):
        open_source(f"{web.url}/a.tif", storage=RESTRICTED).size()


class TestClient:
    """Our own client behaves like obstore."""

    def test_arrays(self, web):
        for name, path in (("a.tif", "0/0/image"), ("v.n5", None)):
            opened = anychunk.open(f"{web.url}/{name}", storage=RESTRICTED)
            array = opened if path is None else opened[path]
            np.testing.assert_array_equal(np.squeeze(array[...]), web.data)

    @pytest.mark.parametrize("size", [0, 1, 100, 100_000])
    def test_sizes_and_pins(self, web, tmp_path, size):
        data = np.random.default_rng(1).bytes(size)
        (tmp_path / "web" / "x y%#").write_bytes(data)
        url = f"{web.url}/x%20y%25%23"
        ours, theirs = open_source(url, storage=RESTRICTED), open_source(url)
        assert ours.pin() == theirs.pin() == ours.refresh()
        assert ours.read(0, size).tobytes() == data
        assert ours.read(size // 2, size // 3).tobytes() == data[size // 2 :][: size // 3]
        assert read_object(url, storage=RESTRICTED).tobytes() == data

    def test_absent_and_failing(self, web):
        with pytest.raises(FileNotFoundError):
            open_source(f"{web.url}/nothing", storage=RESTRICTED).size()
        assert read_object(f"{web.url}/nothing", storage=RESTRICTED) is None
        web.fail = [403]
        with pytest.raises(SourceError):
            open_source(f"{web.url}/a.tif", storage=RESTRICTED).size()
        web.fail = [503, 500, 429]
        assert open_source(f"{web.url}/a.tif", storage=RESTRICTED).size() > 0

    def test_bodies_that_break_off(self, web):
        web.short = True
        with anychunk.limits.override(retries=1), pytest.raises(anychunk.errors.AnychunkError):
            open_source(f"{web.url}/a.tif", storage=RESTRICTED).size()

    def test_nobody_listens(self):
        with anychunk.limits.override(retries=0), pytest.raises(SourceError):
            open_source("http://127.0.0.1:9/a.tif", storage=RESTRICTED).size()

    def test_options(self, web):
        with pytest.raises(UnsupportedError):
            open_source(f"{web.url}/a.tif", storage={**RESTRICTED, "client_options": {}})
        with pytest.raises(ValueError, match="redirects"):
            open_source(f"{web.url}/a.tif", storage={"redirects": "never"})


def test_idle_connections_are_closed_with_their_site(web):
    site = Site(web.url)
    site.get("a.tif")
    connections = list(site._idle)
    assert [c.sock is not None for c in connections] == [True]
    del site
    gc.collect()
    assert [c.sock for c in connections] == [None]


def test_icechunk_of_a_web_server_is_refused(client_of, web):
    with pytest.raises(UnsupportedError):
        anychunk.index(f"{web.url}/r.icechunk", format="icechunk", storage=RESTRICTED)
