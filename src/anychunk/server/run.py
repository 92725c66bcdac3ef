"""Start the server, and end it on Ctrl-C."""

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn

from anychunk.errors import AnychunkError, UnsupportedError
from anychunk.server.app import application
from anychunk.server.catalog import Catalog
from anychunk.server.guard import LOOPBACK, Guard
from anychunk.server.jobs import Jobs
from anychunk.server.pixels import Kept
from anychunk.server.protocol import Connection

PORT = 8000
"""Taken where none is asked for, or else the next that is free."""
TRIED = 20
GRACE_S = 2
BACKLOG = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None
    memory: int = 512 << 20
    allow_hosts: Sequence[str] = ()
    allow_redirects: bool = False


def listen(host: str, port: int | None) -> socket.socket:
    """Open the port; the next free one where none was asked for."""
    wanted = range(PORT, PORT + TRIED) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem: OSError | None = None
    for number in wanted:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, number))
            # who is told the address may call at once
            opened.listen(BACKLOG)
        except OSError as e:
            opened.close()
            problem = e
        else:
            return opened
    raise UnsupportedError(f"{host}:{wanted[-1]}: {problem}; choose another --port") from problem


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def guarded(catalog: Catalog, jobs: Jobs, settings: Settings) -> Guard:
    """Make the app with all that stands before it."""
    hosts = None
    if is_loopback(settings.host):
        hosts = [*LOOPBACK, settings.host, *settings.allow_hosts]
    return Guard(application(catalog, jobs), token=settings.token, hosts=hosts)


def url_of(opened: socket.socket, settings: Settings) -> str:
    host, port = opened.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    query = "" if settings.token is None else f"?token={settings.token}"
    return f"http://{name}:{port}/{query}"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def warm(catalog: Catalog) -> None:
    """Open the first file: half a second goes into importing its format's libraries."""
    for entry in catalog.entries()[:1]:
        with contextlib.suppress(AnychunkError, OSError):  # told where the file is listed
            catalog.opened(entry)


def serve(
    arguments: Sequence[str],
    settings: Settings,
    *,
    ready: Callable[[str], None],
    verbose: bool,
    started: Callable[[uvicorn.Server], object] | None = None,
) -> bool:
    """Serve until interrupted; `ready` is told the address. Give whether all work is done."""
    jobs = Jobs()
    catalog = Catalog(
        arguments,
        kept=Kept(memory=settings.memory),
        allow_redirects=settings.allow_redirects,
    )
    opened = listen(settings.host, settings.port)
    if verbose:
        logging.basicConfig(format="%(message)s", level=logging.INFO)
    config = uvicorn.Config(
        guarded(catalog, jobs, settings),
        http=Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        timeout_keep_alive=60,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)
    if started is not None:
        started(server)
    try:
        threading.Thread(target=warm, args=(catalog,), daemon=True).start()
        ready(url_of(opened, settings))
        server.run(sockets=[opened])
    except KeyboardInterrupt:
        pass
    finally:
        opened.close()
        is_idle = jobs.close(GRACE_S)
    return is_idle
