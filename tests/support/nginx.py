"""A real web server on loopback: nginx of the system's packages, where it is installed."""

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S, wait_until

BINARY = shutil.which("nginx")
needs_nginx = pytest.mark.skipif(
    BINARY is None, reason="nginx is not on PATH (Debian: /usr/sbin): apt-get install nginx-light"
)
SETTINGS = """
daemon off;
{user}
pid {aside}/pid;
error_log {aside}/errors;
events {{}}
http {{
  access_log {aside}/requests;
  client_body_temp_path {aside}; proxy_temp_path {aside}; fastcgi_temp_path {aside};
  uwsgi_temp_path {aside}; scgi_temp_path {aside};
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


@contextmanager
def serve_nginx(folder: Path, aside: Path):
    """Serve a folder; gives its url, and ends with the block."""
    aside.mkdir()
    settings = aside / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # it would work as one that may not look
    # It takes no port 0, but sockets that are open already, as one that replaces another nginx does.
    with socket.create_server(("127.0.0.1", 0), backlog=511) as open_socket:
        port = open_socket.getsockname()[1]
        settings.write_text(SETTINGS.format(user=user, aside=aside, port=port, folder=folder))
        process = subprocess.Popen(
            [BINARY, "-c", settings, "-p", aside],
            stderr=subprocess.PIPE,
            env={**os.environ, "NGINX": f"{open_socket.fileno()};"},
            pass_fds=[open_socket.fileno()],
        )
    with process:
        try:
            _wait(aside, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _wait(aside, process):
    def is_up():
        assert process.poll() is None, f"nginx ended at once: {process.stderr.read()}"
        return (aside / "pid").exists()

    wait_until(is_up)  # and connections that come earlier wait in the queue of the socket
