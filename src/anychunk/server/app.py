"""The routes of the server."""

import mimetypes
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anychunk.io.cache import Cache
from anychunk.model.grid import parse_coords, split_key
from anychunk.model.index import ArrayIndex, find
from anychunk.read.zarr_store import METADATA
from anychunk.server import descriptions
from anychunk.server.catalog import Catalog, Entry, Opened
from anychunk.server.chunks import Chunks
from anychunk.server.jobs import ClientGone, Jobs
from anychunk.server.response_bodies import Body, BytesBody, stored_body
from anychunk.server.responses import (
    BYTES,
    JSON,
    SendBudget,
    as_json,
    error_response,
    exception_response,
    respond,
)
from anychunk.server.thumbnails import thumbnail_png

PAGE = Path(__file__).with_name("page")
MOST_SEGMENTS = 64
"""Longest path below a route, in segments."""
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for the log; no client is there to receive it."""

type Handler = Callable[["Server", Request], Awaitable[Response]]


class Server:
    """State that the routes share."""

    def __init__(self, catalog: Catalog, jobs: Jobs) -> None:
        self.catalog, self.jobs = catalog, jobs
        self.budget = SendBudget(catalog.caches.most // 8)
        self.documents: Cache[BytesBody] = Cache(32 << 20, largest=16 << 20)
        """Metadata and thumbnails."""

    def find(self, segments: list[str]) -> tuple[Entry, str] | None:
        """Split a path into a file and the path inside it; None if no file matches.

        Names may hold slashes, so the shortest prefix that is a name wins.
        """
        for count in range(1, len(segments) + 1):
            entry = self.catalog.get("/".join(segments[:count]))
            if entry is not None:
                return entry, "/".join(segments[count:])
        return None

    async def opened(self, entry: Entry, request: Request) -> Opened:
        """Return an open file; opening runs as a job."""
        found = self.catalog.peek(entry)
        if found is not None:
            return found
        work = partial(self.catalog.opened, entry)
        return await self.jobs.run(("open", entry.name), work, request, is_slow=True)


def segments_of(request: Request) -> list[str] | None:
    """Return the path below the route, split and then unescaped; None if it is not valid.

    Split before unescaping, so that an escaped slash stays part of a name.
    """
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    parts = raw.split(b"/")[3 if raw.startswith(b"/api/") else 2 :]
    try:
        names = [unquote_to_bytes(part).decode() for part in parts]
    except UnicodeDecodeError:
        return None
    while names and not names[-1]:
        names.pop()
    if len(names) > MOST_SEGMENTS or not all(is_name(name) for name in names):
        return None
    return names


def is_name(text: str) -> bool:
    """Whether a segment may be a name, or several joined by escaped slashes."""
    if "/" in text:
        return all(map(is_name, text.split("/")))
    return text not in ("", ".", "..") and "\0" not in text and "\\" not in text


def endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return a Starlette endpoint that answers every exception with its status and one line."""

    async def handle(request: Request) -> Response:
        server: Server = request.app.state.server
        try:
            return await handler(server, request)
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception as e:  # noqa: BLE001 - the border of the server
            return exception_response(e, request.scope)

    return handle


def requested(request: Request, server: Server) -> tuple[Entry, str] | None:
    """Return the file and the path inside it that a request names, and note the file for errors."""
    segments = segments_of(request)
    found = server.find(segments) if segments else None
    if found is not None:
        request.state.entry = found[0]
    return found


def not_found(request: Request) -> Response:
    return error_response(404, f"{request.url.path[:200]}: not found")


async def files(server: Server, request: Request) -> Response:
    """List all files."""
    found = await server.jobs.run(
        "files", partial(descriptions.files, server.catalog), request, is_slow=True
    )
    return json_response(request, {"files": found})


async def one_file(server: Server, request: Request) -> Response:
    """Describe one file, as the list does."""
    found = requested(request, server)
    if found is None or found[1]:
        return not_found(request)
    work = partial(descriptions.file_record, server.catalog, found[0])
    return json_response(
        request, await server.jobs.run(("file", found[0].name), work, request, is_slow=True)
    )


def json_response(request: Request, value: Any) -> Response:
    return respond(request, BytesBody.of(as_json(value)), media=JSON)


async def zarr(server: Server, request: Request, *, compression: str = "zstd") -> Response:
    """Serve a key of the standard Zarr hierarchy."""
    found = requested(request, server)
    if found is None:
        return not_found(request)
    entry, key = found
    if request.scope["query_string"] and request.query_params.get("compression") == "none":
        compression = "none"
    opened = await server.opened(entry, request)
    chunks = opened.chunks(compression)
    path, _, last = key.rpartition("/")
    if last == METADATA:
        return await metadata(server, request, chunks, path)
    return await zarr_chunk(server, request, chunks, (entry.name, compression, key))


async def metadata(server: Server, request: Request, chunks: Chunks, path: str) -> Response:
    """Serve a `zarr.json`."""
    work = partial(descriptions.metadata, chunks, path)
    return await document(server, request, ("metadata", chunks.token, path), work, media=JSON)


async def zarr_chunk(
    server: Server, request: Request, chunks: Chunks, job: tuple[str, str, str]
) -> Response:
    """Serve a chunk; `job` is (name of the file, compression, key)."""
    name, compression, key = job
    split = split_key(key)
    if split is None:
        return not_found(request)
    path, rest = split
    if not chunks.is_known(path):
        look = partial(chunks.array, path)
        await server.jobs.run(("find", name, compression, path), look, request)
    array = chunks.array(path) if chunks.is_known(path) else None
    coords = None if array is None else parse_coords(rest, array.grid)
    if array is None or coords is None:
        return not_found(request)
    # without a thread if possible: switching costs more than sending a cached chunk
    body = chunks.cached(path, array, coords)
    if body is None:
        work = partial(chunks.body, path, array, coords)
        is_slow = chunks.is_computed(array)
        body = await server.jobs.run(job, work, request, is_slow=is_slow)
    if body is None:
        return error_response(404, f"{key}: chunk is absent from the file and reads as fill")
    return respond(request, body)


async def document(
    server: Server,
    request: Request,
    key: Hashable,
    work: Callable[[], bytes | None],
    *,
    media: str,
) -> Response:
    """Serve a small document from the cache, or make it; 404 if `work` returns None."""
    body = server.documents.get(key)
    if body is None:
        data = await server.jobs.run(key, work, request, is_slow=True)
        if data is None:
            return not_found(request)
        body = BytesBody.of(data)
        server.documents.put(key, body, len(body))
    return respond(request, body, media=media)


async def raw(server: Server, request: Request) -> Response:
    """Serve a key of the file's own index: its own chunks and codecs."""
    found = requested(request, server)
    if found is None:
        return not_found(request)
    entry, key = found
    opened = await server.opened(entry, request)

    body = await server.jobs.run(("raw", entry.name, key), partial(raw_body, opened, key), request)
    if body is None:
        return not_found(request)
    return respond(request, body, media=JSON if key.endswith(METADATA) else BYTES)


def raw_body(opened: Opened, key: str) -> Body | None:
    """Return the value of a key of the index, or None if there is no such key."""
    path, _, last = key.rpartition("/")
    if last == METADATA:
        data = descriptions.index_metadata(opened.index, path)
        return None if data is None else BytesBody.of(data)
    split = split_key(key)
    node = None if split is None else find(opened.index, split[0])
    if split is None or not isinstance(node, ArrayIndex):
        return None
    coords = parse_coords(split[1], node.grid)
    if coords is None:
        return None
    reader = opened.store.chunk_reader(split[0])
    if reader is not None:
        return stored_body(reader, reader.number(coords))
    computed = opened.store.get_sync(key)
    return None if computed is None else BytesBody.of(computed.to_bytes())


async def info(server: Server, request: Request) -> Response:
    """Describe the metadata of a file."""
    found = requested(request, server)
    if found is None or found[1]:
        return not_found(request)
    opened = await server.opened(found[0], request)
    work = partial(descriptions.info, opened, found[0])
    return json_response(
        request, await server.jobs.run(("info", found[0].name), work, request, is_slow=True)
    )


async def grid(server: Server, request: Request) -> Response:
    """Describe the chunk grid of an array."""
    found = requested(request, server)
    if found is None:
        return not_found(request)
    opened = await server.opened(found[0], request)
    record = descriptions.grid(opened.zstd, found[1])
    return not_found(request) if record is None else json_response(request, record)


async def chunk(server: Server, request: Request) -> Response:
    """Describe one chunk of an array."""
    found = requested(request, server)
    if found is None:
        return not_found(request)
    at = descriptions.position(request.query_params.get("at", ""))
    if at is None:
        return error_response(400, "query `at`: expected comma-separated integers, e.g. ?at=0,512")
    opened = await server.opened(found[0], request)
    work = partial(descriptions.chunk, opened.zstd, found[1], at)
    record = await server.jobs.run(("chunk", found[0].name, found[1], at), work, request)
    return not_found(request) if record is None else json_response(request, record)


async def thumb(server: Server, request: Request) -> Response:
    """Serve a thumbnail of an image."""
    segments = segments_of(request)
    if not segments or not segments[-1].endswith(".png"):
        return not_found(request)
    found = server.find([*segments[:-1], segments[-1].removesuffix(".png")])
    if found is None:
        return not_found(request)
    entry, path = found
    request.state.entry = entry
    opened = await server.opened(entry, request)
    key = ("thumb", opened.zstd.token, path)
    work = partial(thumbnail_png, opened.zstd, path)
    return await document(server, request, key, work, media="image/png")


async def page(server: Server, request: Request) -> Response:
    """Serve a file of the built page, or a simple list if the page was not built."""
    parts = [p for p in request.url.path.split("/") if p]
    file = PAGE.joinpath(*parts) if parts else PAGE / "index.html"
    if any(p in ("..", ".") or "\0" in p or "\\" in p for p in parts) or not file.is_file():
        return not_found(request) if parts else simple_list(server, request)
    media = mimetypes.guess_type(file.name)[0] or BYTES
    data = file.read_bytes()
    # names of assets contain a hash of their content
    cache = "public, max-age=31536000, immutable" if "assets" in parts else "no-cache"
    return respond(request, BytesBody.of(data), media=media, cache=cache)


def simple_list(server: Server, request: Request) -> Response:
    items = "".join(
        f'<li><a href="/api/info/{descriptions.escape(e.name)}">{escape(e.title)}</a></li>'
        for e in server.catalog.entries()
    )
    text = f"<!doctype html><meta charset=utf-8><title>anychunk</title><ul>{items}</ul>"
    return respond(request, BytesBody.of(text.encode()), media="text/html; charset=utf-8")


def application(catalog: Catalog, jobs: Jobs) -> Starlette:
    """Return the ASGI app with all routes."""
    routes = [
        Route("/zarr/{rest:path}", endpoint(zarr)),
        Route("/api/files", endpoint(files)),
        Route("/api/files/{rest:path}", endpoint(one_file)),
        Route("/api/info/{rest:path}", endpoint(info)),
        Route("/api/grid/{rest:path}", endpoint(grid)),
        Route("/api/chunk/{rest:path}", endpoint(chunk)),
        Route("/zarr-raw/{rest:path}", endpoint(partial(zarr, compression="none"))),
        Route("/raw/{rest:path}", endpoint(raw)),
        Route("/thumb/{rest:path}", endpoint(thumb)),
        Route("/{rest:path}", endpoint(page)),
    ]
    app = Starlette(routes=routes)
    app.state.server = Server(catalog, jobs)
    return app
