"""The web server of the tests."""

import gc
import http.client
import threading
import warnings

import pytest

from tests.support.http_server import serve

pytestmark = pytest.mark.processes


def test_connections_that_clients_keep_open_are_closed(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    before = set(threading.enumerate())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with serve(tmp_path) as web:
            client = http.client.HTTPConnection(web.url.removeprefix("http://"))
            client.request("GET", "/a")
            assert client.getresponse().read() == b"abc"
        assert set(threading.enumerate()) <= before  # none waits for the next request
        client.close()
        gc.collect()
    assert not [w for w in seen if issubclass(w.category, ResourceWarning)]
