"""`anychunk serve` on the command line."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import jsonschema
import numpy as np
import pytest

from anychunk_serve import run as server_run
from tests.cli.test_cli import run
from tests.cli.test_printing import SCHEMAS
from tests.project.test_import import RUN as COMMAND
from tests.project.test_import import loaded
from tests.support.patience import PATIENCE_S
from tests.support.serving import running


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((600, 600), "uint16"))
    return tmp_path / "a.npy"


def test_files_that_are_not_there(capsys, tmp_path):
    code, out, err = run(capsys, "serve", str(tmp_path / "none.tif"))
    assert (code, out) == (2, "")
    assert err == f"anychunk: {tmp_path}/none.tif: no such file or directory\n"


@pytest.mark.processes
def test_a_port_that_is_taken(capsys, file):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run(capsys, "serve", str(file), "--port", str(port))
    assert code == 2
    assert f"127.0.0.1:{port}: " in err
    assert err.endswith("choose another --port\n")


@pytest.mark.processes
def test_two_servers_never_share_a_port(monkeypatch):
    """Windows lets them with SO_REUSEADDR, and refuses with SO_EXCLUSIVEADDRUSE."""
    options = []

    class Socket(socket.socket):
        def setsockopt(self, level, option, value):
            options.append(option)

    monkeypatch.setattr(socket, "socket", Socket)
    first = server_run.listen("127.0.0.1", None)
    second = server_run.listen("127.0.0.1", None)
    with first, second:
        assert first.getsockname()[1] != second.getsockname()[1]
    assert set(options) == {server_run.address_option()}
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)
    assert server_run.address_option() == -5


def test_help(capsys):
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    assert "Exit codes: 0 done; 1 " in out
    assert not re.search(r"<(str|int|list|float|bool)|\{", out), out
    assert "web page" in run(capsys, "--help")[1]


def test_help_does_not_load_the_server():
    found = loaded(COMMAND, "serve", "--help")
    assert not {"anychunk_serve.run", "starlette", "uvicorn", "zarr"} & found


def test_prints_its_address_as_json(capsys, file, monkeypatch):
    def serve(files, settings, *, ready, verbose):
        ready("http://127.0.0.1:8000/")
        return not verbose

    monkeypatch.setattr(server_run, "serve", serve)
    code, out, _ = run(capsys, "serve", str(file), "--json")
    assert code == 0
    document = json.loads(out)
    jsonschema.validate(document, SCHEMAS["serve"])
    assert document["url"] == "http://127.0.0.1:8000/"


@pytest.mark.processes
def test_a_line_for_each_request(file):
    command = [sys.executable, "-m", "anychunk", "serve", str(file), "--port", "0", "-v"]
    with subprocess.Popen(
        [*command, "--token", "secret"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().split()[0]
        assert url.endswith("/?token=secret")
        base = url.partition("?")[0]
        for path in ("zarr/a.npy/zarr.json", "zarr/a.npy/0/0/image/c/0/0"):
            urllib.request.urlopen(f"{base}{path}?token=secret", timeout=PATIENCE_S).read()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        lines = process.stderr.read().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"GET /zarr/a\.npy/zarr\.json 200 [\d.]+ ms", lines[0])
    assert "secret" not in "".join(lines)


@pytest.mark.processes
def test_it_does_not_wait_for_idle_clients_on_ctrl_c(file):
    with running(file, is_patient=True) as server:
        idle = [
            socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
            for _ in range(5)
        ]
        assert server.get("/zarr/a.npy/zarr.json")[0] == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait() == 0
        for one in idle:
            one.close()
