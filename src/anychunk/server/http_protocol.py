"""Choose the HTTP protocol: ours if uvicorn is what it relies on, otherwise uvicorn's own.

`Connection` derives from a class of uvicorn that is not documented. Before it is used, the methods
that it overrides and the attributes that it reads are checked. If one is missing or takes other
arguments, the server runs with uvicorn's `h11` protocol, which limits the length of a request head
too, and says in one line of the log what is lost.
"""

import inspect
import logging
from typing import Any

import uvicorn

MOST_HEAD = 64 << 10
"""Most bytes of a request line and its headers."""
MOST_CONNECTIONS = 400
"""Beyond this number, the connection that has been idle longest is closed."""

METHODS = {
    "connection_made": 1,
    "connection_lost": 1,
    "on_message_begin": 0,
    "on_url": 1,
    "on_header": 2,
    "on_headers_complete": 0,
    "on_response_complete": 0,
    "pause_writing": 0,
    "resume_writing": 0,
    "send_400_response": 1,
}
"""Methods that `Connection` overrides, with the number of their arguments."""
ATTRIBUTES = ("connections", "loop", "pipeline", "transport")
"""Attributes of a protocol that `Connection` reads."""

log = logging.getLogger(__name__)


def http_options() -> dict[str, Any]:
    """Return the options of `uvicorn.Config` that choose the protocol."""
    problem = _problem()
    if problem is None:
        from anychunk.server.connection import Connection

        return {"http": Connection}
    log.warning(
        "anychunk serve: slow and stalled clients are not disconnected, and beyond %d connections "
        "requests are refused, because uvicorn %s differs from what is expected: %s",
        MOST_CONNECTIONS,
        uvicorn.__version__,
        problem,
    )
    return {
        "http": "h11",
        "h11_max_incomplete_event_size": MOST_HEAD,
        "limit_concurrency": MOST_CONNECTIONS,
    }


def _problem() -> str | None:
    """Return why `Connection` cannot be used, or None if it can."""
    try:
        # not public: it may move, and it needs httptools
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
        from uvicorn.server import ServerState
    except ImportError as e:
        return str(e)
    for name, count in METHODS.items():
        method = getattr(HttpToolsProtocol, name, None)
        if not _takes(method, count):
            return f"HttpToolsProtocol.{name} is not a method of {count} arguments"
    try:
        config = uvicorn.Config(_application, ws="none", lifespan="off", log_config=None)
        # any object is a loop as long as nothing connects
        made = HttpToolsProtocol(config, ServerState(), {}, object())  # type: ignore[arg-type]
    except Exception as e:  # noqa: BLE001 - whatever fails here would fail for every connection
        return f"HttpToolsProtocol cannot be created: {type(e).__name__}: {e}"
    missing = [name for name in ATTRIBUTES if not hasattr(made, name)]
    return f"HttpToolsProtocol has no {', '.join(missing)}" if missing else None


def _takes(method: object, count: int) -> bool:
    """Return whether a function can be called with `self` and `count` arguments."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*[None] * (count + 1))
    except TypeError:
        return False
    return True


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing: no request reaches it."""
