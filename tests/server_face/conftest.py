"""What the tests of the HTTP face share: a client of a server, and a file to serve."""

from contextlib import ExitStack

import numpy as np
import pytest
import tifffile
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from anychunk.server import friendly, listing
from anychunk.server.catalog import Catalog
from anychunk.server.jobs import Jobs
from anychunk.server.pixels import Kept
from anychunk.server.run import Settings, guarded


@pytest.fixture
def client_of(monkeypatch):
    """Give a client of a server of these files, which lists all of them however long that takes."""
    for module, name in ((listing, "LIST_S"), (listing, "WALK_S"), (friendly, "LIST_S")):
        monkeypatch.setattr(module, name, 1e6)
    made = []
    loops = ExitStack()

    def start(*paths, **settings):
        jobs = Jobs(2)
        catalog = Catalog([str(p) for p in paths], kept=Kept(memory=256 << 20))
        app = guarded(catalog, jobs, Settings(**settings))
        client = TestClient(app, base_url="http://127.0.0.1:8000")
        # all its requests run in one event loop, as a server's do
        client.portal = loops.enter_context(start_blocking_portal())
        made.append((jobs, client))
        return client

    with loops:
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
