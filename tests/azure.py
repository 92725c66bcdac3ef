"""An Azure Storage server on loopback: Azurite, of Node's package azurite."""

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, wait_until

ACCOUNT = "devstoreaccount1"
# public: the one key that every Azurite has
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
needs_azure = pytest.mark.skipif(
    shutil.which("azurite-blob") is None,
    reason="azurite-blob is not here: npm install --global azurite",
)


@contextmanager
def serve_azure(folder: Path, *containers: str):
    """Serve empty containers; gives options for obstore."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(shutil.which("azurite-blob")), "--silent", "--skipApiVersionCheck",
        "--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", str(port),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
            wait_until(lambda: _answers(port, process))
            for name in containers:
                _create(endpoint, name)
            yield {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _answers(port, process):
    assert process.poll() is None, "azurite ended at once"
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except OSError:
        return False
    return True


def _create(endpoint, container):
    """Create a container, which obstore cannot: "Authorize with Shared Key" of Azure's REST API."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    version = "2021-08-06"
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}"]
    text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    request = urllib.request.Request(
        f"{endpoint}/{container}?restype=container", method="PUT", headers=headers
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.status == 201
