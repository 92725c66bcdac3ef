"""Fixtures of the server tests: a client of a server, and a file to serve."""

from contextlib import ExitStack

import numpy as np
import pytest
import tifffile
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from anychunk_serve import descriptions, hierarchy, records
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import Catalog
from anychunk_serve.jobs import Jobs
from anychunk_serve.run import Settings, guarded_app


@pytest.fixture
def complete_lists(monkeypatch):
    """Have lists and consolidated metadata made to their end, however long that takes."""
    for module, name in ((records, "WAIT_S"), (descriptions, "WALK_S"), (hierarchy, "LIST_S")):
        monkeypatch.setattr(module, name, 1e6)


@pytest.fixture
def client_of(complete_lists):
    """Return a function that starts a server of some files."""
    with ExitStack() as stack:

        def start(*paths, is_scanned=True, **settings):
            # one event loop for all requests, as in a real server
            portal = stack.enter_context(start_blocking_portal())
            stack.callback((jobs := Jobs(2)).close)
            caches = Caches(memory=256 << 20)
            catalog = Catalog([str(p) for p in paths], caches=caches, is_scanned=is_scanned)
            app = guarded_app(catalog, jobs, Settings(**settings))
            client = TestClient(app, base_url="http://127.0.0.1:8000")
            client.portal = portal
            stack.callback(client.close)
            return client

        yield start


@pytest.fixture
def scene(tmp_path):
    """Return a TIFF of 1100 x 1300 in tiles of 256 without levels, and its pixels."""
    y, x = np.mgrid[0:1100, 0:1300]
    data = ((y * 7 + x * 3) % 4001).astype("uint16")
    path = tmp_path / "scene.tif"
    tifffile.imwrite(path, data, tile=(256, 256), compression="zlib")
    return path, data
