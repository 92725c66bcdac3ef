"""uvicorn's undocumented protocol: what is checked of it, and serving without it."""

import contextlib
import http.client
import logging
import sys
import threading
import urllib.parse

import numpy as np
import pytest
import tifffile
import zarr
from obstore.store import HTTPStore
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from zarr.storage import ObjectStore

from anychunk.server import http_protocol, run
from anychunk.server.connection import Connection
from tests.patience import PATIENCE_S


def test_the_installed_uvicorn_is_as_expected(caplog):
    """If this fails with a new uvicorn: adapt `Connection`, then the tables of `http_protocol`."""
    assert http_protocol.http_options() == {"http": Connection}
    assert not caplog.records


def test_every_overridden_method_is_checked():
    overridden = {name for name in vars(Connection) if name in dir(HttpToolsProtocol)}
    mechanics = {name for name in overridden if name.startswith("__")} | {"_abc_impl"}
    assert overridden - mechanics == set(http_protocol.METHODS)


@pytest.mark.parametrize("name", http_protocol.METHODS)
@pytest.mark.parametrize("changed", [None, lambda self, a, b, c, d: None], ids=["gone", "other"])
def test_method_that_changed(monkeypatch, caplog, name, changed):
    monkeypatch.setattr(HttpToolsProtocol, name, changed)
    assert http_protocol.http_options()["http"] == "h11"
    (record,) = caplog.records
    assert name in record.getMessage()


@pytest.mark.parametrize("name", http_protocol.ATTRIBUTES)
def test_attribute_that_is_gone(monkeypatch, caplog, name):
    create = HttpToolsProtocol.__init__

    def create_without(self, *args, **kwargs):
        create(self, *args, **kwargs)
        delattr(self, name)

    monkeypatch.setattr(HttpToolsProtocol, "__init__", create_without)
    assert http_protocol.http_options()["http"] == "h11"
    assert name in caplog.text


def test_protocol_that_is_created_otherwise(monkeypatch, caplog):
    monkeypatch.setattr(HttpToolsProtocol, "__init__", lambda self, config: None)
    assert http_protocol.http_options()["http"] == "h11"
    assert "TypeError" in caplog.text


@contextlib.contextmanager
def serving(path):
    """Serve a file from a thread of this process; yield the address."""
    urls, servers, is_ready = [], [], threading.Event()

    def ready(url):
        urls.append(url)
        is_ready.set()

    thread = threading.Thread(
        target=run.serve,
        args=([str(path)], run.Settings(port=0)),
        kwargs={"ready": ready, "verbose": False, "started": servers.append},
    )
    thread.start()
    try:
        assert is_ready.wait(PATIENCE_S)
        yield urllib.parse.urlsplit(urls[0])
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE_S)


def test_serving_without_it(monkeypatch, tmp_path, caplog):
    """Without httptools: the same chunk, a bounded request head, one line that says what is lost."""
    data = np.arange(64 * 64, dtype="uint16").reshape(64, 64)
    tifffile.imwrite(tmp_path / "a.tif", data)
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    with caplog.at_level(logging.WARNING), serving(tmp_path / "a.tif") as place:
        store = HTTPStore.from_url(
            f"{place.geturl()}zarr/a.tif/0/0/image", client_options={"allow_http": True}
        )
        array = zarr.open_array(ObjectStore(store, read_only=True), mode="r")
        np.testing.assert_array_equal(np.squeeze(array[...]), data)
        made = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)
        made.request("GET", "/", headers={f"x-{i}": "y" * 4000 for i in range(40)})
        assert made.getresponse().status in (400, 431)
        made.close()
    lines = [r.getMessage() for r in caplog.records if r.name == http_protocol.__name__]
    assert len(lines) == 1
    assert "stalled clients are not disconnected" in lines[0]
