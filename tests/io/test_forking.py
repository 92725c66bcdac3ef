"""Processes that are forked while other threads open and read files."""

import importlib
import os
import pickle
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager

import nrrd
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import references
from anychunk.codecs.seek.walk import Walker
from anychunk.decode.windows import TileWindows
from anychunk.formats import _jpeg2000_windows
from anychunk.io import forking, http
from anychunk.io.cache import Cache
from tests.decode.test_windows import codestream
from tests.support.http_server import serve
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

VALUES = np.random.default_rng(0).integers(0, 255, (304, 304), dtype="u1")
LOCKS = [
    "codecs:_BUILT._lock",
    "codecs.jpeg2000.tiles:WALKED._lock",
    "codecs.jpeg2000.tiles:_USUAL._lock",
    "codecs.tiff.libtiff_messages:_lock",
    "decode.tile_streams:OPENED._lock",
    "decode.windows:TABLES._lock",
    "decode.windows:_walking",
    "io.http:_sites_lock",
    "io.measuring:_lock",
    "io.object_stores:_stores._lock",
    "io.system:_POSITION",
    "engine.chunks:RECENT._lock",
    "zarr.pipeline:DECODERS._lock",
    "engine.chunks:TOUCHED._lock",
    "references:_loading",
]
"""Every lock that all threads of a process share."""


def locks_at(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(f"anychunk.{module}")
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found if isinstance(found, list) else [found]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Divide JPEG 2000 tiles of more than 64 x 64, so that small images have windows."""
    monkeypatch.setattr(_jpeg2000_windows, "SIDE", 64)
    monkeypatch.setattr(_jpeg2000_windows, "SMALLEST", 32)
    monkeypatch.setattr("anychunk.codecs.chain.LEAST_PART", 1 << 14)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # small indexes would be pickled, not loaded again
    monkeypatch.setattr("anychunk.zarr.store.SMALL_TABLES", 0)
    tifffile.imwrite(tmp_path / "a.tif", VALUES, tile=(64, 64), compression="zlib")
    (tmp_path / "a.j2k").write_bytes(codestream(VALUES))
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "a.json")
    array = anychunk.open_array(tmp_path / "a.json")
    (tmp_path / "pickled").write_bytes(pickle.dumps(array))
    return tmp_path


def read_all(folder):
    """Open and read files of several formats, by way of all caches; raise if a pixel is wrong."""
    with anychunk.read_stats():
        for name in ("a.tif", "a.j2k", "a.json"):
            array = anychunk.open_array(folder / name)
            np.testing.assert_array_equal(array[30:80, 100:150], VALUES[30:80, 100:150])
            np.testing.assert_array_equal(array[...], VALUES)
    array = pickle.loads((folder / "pickled").read_bytes())
    np.testing.assert_array_equal(array[...], VALUES)


def exit_code(in_child):
    """Return the exit code of a forked child that calls a function; fail if it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            in_child()
            code = 0
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
        finally:
            os._exit(code)
    ended = []

    def has_ended():
        pid, status = os.waitpid(child, os.WNOHANG)
        ended.extend([status] if pid else [])
        return ended

    try:
        wait_until(has_ended)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended[0])


@contextmanager
def held_by_a_thread(locks):
    """Have another thread hold locks."""
    taken, let_go = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            let_go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(PATIENCE_S)
        yield
    finally:
        let_go.set()
        thread.join(PATIENCE_S)


def test_every_shared_lock_is_listed():
    """A lock that is missing here may be one that nobody renews."""
    known = {id(lock) for name in LOCKS for lock in locks_at(name)}
    lock_types = (type(threading.Lock()), type(threading.RLock()), threading.Condition)
    for name, module in list(sys.modules.items()):
        if not name.startswith("anychunk."):
            continue
        for attribute, value in list(vars(module).items()):
            for one in value if isinstance(value, list | tuple) else [value]:
                lock = one._lock if isinstance(one, Cache) else one
                is_lock = isinstance(lock, (forking.Lock, *lock_types))
                assert not is_lock or id(lock) in known, f"{name}.{attribute}"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_a_thread_held_is_free_in_the_child(folder, name):
    read_all(folder)

    def check():
        for lock in locks_at(name):
            with lock:
                pass
        read_all(folder)

    with held_by_a_thread(locks_at(name)):
        assert exit_code(check) == 0
    read_all(folder)


def test_a_thread_opens_a_file(folder, monkeypatch):
    """It loads the index that a pickled array refers to; all others wait for it."""
    begun, go_on = threading.Event(), threading.Event()
    load_again = references._load_again

    def blocked(*given):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return load_again(*given)

    monkeypatch.setattr(references, "_load_again", blocked)
    monkeypatch.setattr(references, "_loaded", {})
    found = []
    thread = threading.Thread(
        target=lambda: found.append(pickle.loads((folder / "pickled").read_bytes())[...])
    )
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)

        def in_child():
            references._load_again = load_again
            read_all(folder)

        assert exit_code(in_child) == 0
    finally:
        go_on.set()
        thread.join(PATIENCE_S)
    np.testing.assert_array_equal(found[0], VALUES)


def test_a_thread_decodes_a_tile(folder, monkeypatch):
    """The first read of a JPEG 2000 tile finds its code-blocks while it holds the tile's lock."""
    begun, go_on = threading.Event(), threading.Event()
    walk = TileWindows._walk

    def blocked(*given, **options):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return walk(*given, **options)

    monkeypatch.setattr(TileWindows, "_walk", blocked)
    array = anychunk.open_array(folder / "a.j2k")
    found = []
    thread = threading.Thread(target=lambda: found.append(array[30:80, 100:150]))
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)

        def in_child():
            TileWindows._walk = walk
            np.testing.assert_array_equal(array[30:80, 100:150], VALUES[30:80, 100:150])
            read_all(folder)

        assert exit_code(in_child) == 0
    finally:
        go_on.set()
        thread.join(PATIENCE_S)
    np.testing.assert_array_equal(found[0], VALUES[30:80, 100:150])


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_a_thread_decodes_a_stream(tmp_path, monkeypatch):
    """The child reads the array that a thread of its parent is in the middle of."""
    values = np.random.default_rng(0).integers(0, 99, (64, 256, 256), dtype="u1")
    nrrd.write(str(tmp_path / "a.nrrd"), values.T, {"encoding": "gzip"}, compression_level=1)
    array = anychunk.open_array(tmp_path / "a.nrrd")
    begun, go_on = threading.Event(), threading.Event()
    take = Walker._take

    def blocked(self, *given):
        take(self, *given)
        begun.set()
        assert go_on.wait(PATIENCE_S)

    monkeypatch.setattr(Walker, "_take", blocked)
    found = []
    thread = threading.Thread(target=lambda: found.append(array[0]))
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)

        def in_child():
            Walker._take = take
            np.testing.assert_array_equal(array[60], values[60])
            np.testing.assert_array_equal(array[3], values[3])

        assert exit_code(in_child) == 0
    finally:
        go_on.set()
        thread.join(PATIENCE_S)
    np.testing.assert_array_equal(found[0], values[0])


@pytest.mark.processes
def test_the_child_has_connections_of_its_own(tmp_path):
    """Answers to requests of two processes on one connection would be mixed up."""
    np.save(tmp_path / "a.npy", VALUES)
    with serve(tmp_path) as served:
        storage = {"redirects": "same-origin"}

        def read():
            array = anychunk.open_array(f"{served.url}/a.npy", storage=storage)
            np.testing.assert_array_equal(array[...], VALUES)

        read()
        [site] = [site for root, site in http._sites.items() if root == served.url]
        assert site._idle

        def in_child():
            assert not site._idle
            read()

        assert exit_code(in_child) == 0
        read()


def test_a_cache_that_is_gone_is_not_renewed():
    before = len(forking._renewals)
    cache = Cache(100)
    assert len(forking._renewals) == before + 1
    del cache
    assert len(forking._renewals) == before
