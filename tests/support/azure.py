"""An Azure Storage server on loopback: Azurite, of Node's package azurite."""

import base64
import hashlib
import hmac
import re
import shutil
import subprocess
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.patience import PATIENCE_S, wait_until

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
    command = [
        str(shutil.which("azurite-blob")), "--silent", "--skipApiVersionCheck",
        "--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", "0",
    ]  # fmt: skip
    with (
        TemporaryDirectory() as aside,
        (Path(aside) / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            endpoint = f"{_address(Path(aside) / 'log', process)}/{ACCOUNT}"
            for name in containers:
                _create(endpoint, name)
            yield {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _address(log, process):
    """Return the address with the port that the server took, which it names once it listens."""
    found = None

    def is_named():
        nonlocal found
        assert process.poll() is None, "azurite ended at once"
        found = re.search(r"listens on (http://[\d.]+:\d+)\s", log.read_text("utf-8"))
        return found

    wait_until(is_named)
    return found[1]


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
