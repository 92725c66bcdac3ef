"""Start the server, and stop it on Ctrl-C."""

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn

from anychunk._version import __version__
from anychunk.errors import AnychunkError, UnsupportedError
from anychunk.io.opening import without_maps
from anychunk_serve.access import LOOPBACK, AccessControl
from anychunk_serve.app import application
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import Catalog
from anychunk_serve.jobs import Jobs

PORT = 8000
"""The default port; if it is taken, the next free one is used."""
PORTS_TRIED = 20
GRACE_S = 2
"""Time for requests and jobs to end when the server stops."""
MOST_HEAD = 64 << 10
"""Most bytes of a request line and its headers."""
MOST_CONNECTIONS = 400
"""Beyond this number, requests are answered with 503."""
BACKLOG = 1024
"""Connections that the system holds until they are accepted."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of `anychunk serve`."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: `PORT` or the next free one. 0: any free one."""
    token: str | None = None
    """What clients must send; None: nothing."""
    memory: int = 512 << 20
    """Bytes for caches, and size of the largest chunk that is decoded."""
    allow_hosts: Sequence[str] = ()
    """Host headers accepted besides loopback names."""
    origins: Sequence[str] = ()
    """Web pages of other origins that may read what is served, as `checked_origin` returns them."""
    allow_redirects: bool = False
    """Whether web servers may redirect to other hosts and ports."""


def address_option() -> int:
    """Return the option with which a port is taken at once after a restart, but by one server only.

    On Windows SO_REUSEADDR would let a second server, or any other process, take the same port.
    """
    exclusive: int = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
    return exclusive


def listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket; without a port, on the first free one from `PORT` on."""
    ports = range(PORT, PORT + PORTS_TRIED) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem: OSError | None = None
    for number in ports:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, address_option(), 1)
        try:
            opened.bind((host, number))
            # listen already: `ready` announces the address before uvicorn runs
            opened.listen(BACKLOG)
        except OSError as e:
            opened.close()
            problem = e
        else:
            return opened
    raise UnsupportedError(f"{host}:{ports[-1]}: {problem}; choose another --port") from problem


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def guarded_app(catalog: Catalog, jobs: Jobs, settings: Settings) -> AccessControl:
    """Return the app behind its access control."""
    hosts = None
    if is_loopback(settings.host):
        hosts = [*LOOPBACK, settings.host, *settings.allow_hosts]
    about = {
        "anychunk": __version__,
        "origins": list(settings.origins),
        "token": settings.token is not None,
    }
    return AccessControl(
        application(catalog, jobs, about),
        token=settings.token,
        hosts=hosts,
        origins=settings.origins,
    )


def url_of(opened: socket.socket, settings: Settings) -> str:
    """Return the address that a browser opens, with the token if there is one."""
    host, port = opened.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    query = "" if settings.token is None else f"?token={settings.token}"
    return f"http://{name}:{port}/{query}"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def warm(catalog: Catalog) -> None:
    """Open the first file ahead of any request: importing its format takes half a second."""
    for entry in catalog.entries()[:1]:
        with contextlib.suppress(AnychunkError, OSError):  # shown in the list of files
            catalog.opened(entry)


def serve(
    arguments: Sequence[str],
    settings: Settings,
    *,
    ready: Callable[[str], None],
    verbose: bool,
    started: Callable[[uvicorn.Server], object] | None = None,
) -> bool:
    """Serve files until interrupted.

    Parameters:
        arguments: Files, urls, saved indexes, or folders.
        settings: Options.
        ready: Called with the address once the server accepts connections.
        verbose: Whether to log a line per request.
        started: Called with the uvicorn server before it runs, for callers that stop it themselves.

    Returns:
        Whether all jobs have ended; if not, threads still run.
    """
    with without_maps():
        return _serve(arguments, settings, ready=ready, verbose=verbose, started=started)


def _serve(
    arguments: Sequence[str],
    settings: Settings,
    *,
    ready: Callable[[str], None],
    verbose: bool,
    started: Callable[[uvicorn.Server], object] | None,
) -> bool:
    jobs = Jobs()
    catalog = Catalog(
        arguments,
        caches=Caches(memory=settings.memory),
        allow_redirects=settings.allow_redirects,
        is_scanned=False,
    )
    app = guarded_app(catalog, jobs, settings)  # begins to scan
    catalog.wait_for_first()
    opened = listen(settings.host, settings.port)
    if verbose:
        logging.basicConfig(format="%(message)s", level=logging.INFO)
    config = uvicorn.Config(
        app,
        http="h11",  # bounds the head of a request; httptools does not
        h11_max_incomplete_event_size=MOST_HEAD,
        limit_concurrency=MOST_CONNECTIONS,
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
