"""The routes of the server."""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anychunk.errors import AnychunkError, SourceChangedError, SourceError
from anychunk.io.cache import Cache
from anychunk.model.grid import parse_coords, split_key
from anychunk.model.index import ArrayIndex, Json, find
from anychunk.zarr.store import METADATA
from anychunk_serve import descriptions
from anychunk_serve.catalog import Catalog, Entry, Opened
from anychunk_serve.hierarchy import LABELS
from anychunk_serve.jobs import ClientGone, Jobs
from anychunk_serve.memory import MemoryGuard
from anychunk_serve.records import LISTED_S, SORTS, Records, Window
from anychunk_serve.response_bodies import Body, BytesBody, stored_body
from anychunk_serve.responses import (
    BYTES,
    JSON,
    SendBudget,
    as_json,
    error_response,
    exception_response,
    respond,
)
from anychunk_serve.search import SearchError, parsed
from anychunk_serve.thumbnails import thumbnail_png

PAGE = Path(__file__).with_name("page")
MOST_SEGMENTS = 64
"""Longest path below a route, in segments."""
MOST_SEEN = 10_000
"""Pairs of a client and a file whose version is remembered."""
LISTED, MOST_LISTED = 500, 2000
"""Files of one list: by default, and at most."""
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for the log; no client is there to receive it."""

type Handler = Callable[["Server", Request], Awaitable[Response]]


class OtherVersionError(SourceChangedError):
    """A client asks for a version of a file that is not the one that is served."""


class Server:
    """State that the routes share."""

    def __init__(self, catalog: Catalog, jobs: Jobs, about: Mapping[str, Json]) -> None:
        self.catalog, self.jobs, self.about = catalog, jobs, about
        jobs.after = MemoryGuard(catalog.caches).tend
        self.records = Records(catalog, partial(descriptions.described, catalog))
        self.budget = SendBudget(catalog.caches.most // 8)
        self.documents: Cache[BytesBody] = Cache(32 << 20, largest=16 << 20)
        """Metadata and thumbnails."""
        self._seen: Cache[int] = Cache(MOST_SEEN)
        """The generation of each file whose metadata a client has asked for; each has size 1."""

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
        """Return an open file, for reading chunks of it, which are checked when they are read."""
        check_not_gone(entry)
        found = self.catalog.peek(entry)
        if found is None:
            work = partial(self.catalog.opened, entry)
            found = await self.jobs.run(("open", entry.name), work, request, is_slow=True)
        self._check_version(entry, found, request, is_chunk=True)
        return found

    async def current(self, entry: Entry, request: Request) -> Opened:
        """Return a file as it is now, for metadata and whatever is derived from it."""
        check_not_gone(entry)
        work = partial(self.catalog.current, entry)
        if self.catalog.peek(entry) is None:
            found = await self.jobs.run(("open", entry.name), work, request, is_slow=True)
        else:
            # not shared: a job that runs already may have checked the file before it changed
            found = await self.jobs.run(object(), work, request)
        self._check_version(entry, found, request, is_chunk=False)
        return found

    def note_reload(self, entry: Entry, opened: Opened, request: Request) -> None:
        """Note that a client has asked for the metadata of this version."""
        self._seen.put((entry.name, client_of(request)), opened.generation, 1)

    def note_change(self, request: Request) -> None:
        """Note that reading a file has shown that it has changed."""
        entry: Entry | None = getattr(request.state, "entry", None)
        found = None if entry is None else self.catalog.peek(entry)
        if found is not None:
            found.watch.ask_again()

    def _check_version(
        self, entry: Entry, opened: Opened, request: Request, *, is_chunk: bool
    ) -> None:
        """Raise `OtherVersionError` if a client asks for chunks by the metadata of another version.

        The client either says by `version` which one it has, or has asked for metadata before.
        """
        query = request.scope["query_string"]
        asked = request.query_params.get("version") if b"version=" in query else None
        if asked is not None:
            if asked != opened.version:
                raise OtherVersionError(
                    f"{entry.name}: version {asked[:40]!r} is asked for, the file is now "
                    f"{opened.version!r}; read its metadata again"
                )
            return
        has_changed = is_chunk and opened.generation > 0
        if has_changed and self._seen.get((entry.name, client_of(request))) != opened.generation:
            raise OtherVersionError(f"{entry.name}: the file has changed; read its zarr.json again")


def check_not_gone(entry: Entry) -> None:
    if entry.is_gone:
        raise SourceError(f"{entry.name}: no such file; it was removed")


def client_of(request: Request) -> tuple[str, str]:
    """Return what tells clients apart: address and kind of client."""
    host = "" if request.client is None else request.client.host
    return host, request.headers.get("user-agent", "")[:200]


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
        except SearchError as e:
            return error_response(400, str(e)[:300])
        except Exception as e:  # noqa: BLE001 - the border of the server
            if isinstance(e, SourceChangedError) and not isinstance(e, OtherVersionError):
                server.note_change(request)
            return exception_response(e, request.scope)

    return handle


async def requested(request: Request, server: Server) -> tuple[Entry, str] | None:
    """Return the file and the path inside it that a request names, and note the file for errors."""
    return await named(request, server, segments_of(request))


async def named(
    request: Request, server: Server, segments: list[str] | None
) -> tuple[Entry, str] | None:
    if not segments:
        return None
    found = await when_listed(server, request, lambda: server.find(segments))
    if found is None:
        # it may have been added since the last scan
        await server.jobs.run("scan", server.records.scan_if_due, request, is_slow=True)
        found = server.find(segments)
    if found is not None:
        request.state.entry = found[0]
    return found


async def when_listed[T](
    server: Server, request: Request, look: Callable[[], T | None]
) -> T | None:
    """Return what `look` returns; None only if the first scan has ended: 404 means absent."""
    while (found := look()) is None and not server.catalog.is_listed:
        if await request.is_disconnected():
            raise ClientGone
        await asyncio.sleep(LISTED_S)
    # once more, because the scan may have ended in between
    return look() if found is None else found


def not_found(request: Request) -> Response:
    return error_response(404, f"{request.url.path[:200]}: not found")


async def about(server: Server, request: Request) -> Response:
    """Describe the server."""
    return json_response(request, dict(server.about))


async def files(server: Server, request: Request) -> Response:
    """List files: one window of those that match."""
    work = partial(server.records.window, window_of(request))
    key = ("files", request.scope["query_string"])
    found = await server.jobs.run(key, work, request, is_slow=True)
    return respond(request, BytesBody.of(found), media=JSON)


def window_of(request: Request) -> Window:
    """Return the part of the list that a query asks for."""
    given = request.query_params
    sort = given.get("sort", "name")
    if sort.removeprefix("-") not in SORTS:
        raise SearchError(f"query `sort`: {sort[:40]!r}, expected one of {', '.join(SORTS)}")
    return Window(
        offset=number_of(given, "offset", 0),
        limit=min(number_of(given, "limit", LISTED), MOST_LISTED),
        search=parsed(given.get("search", "")),
        folder=given.get("folder"),
        within=given.get("within"),
        sort=sort,
    )


def number_of(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a non-negative number of a query."""
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise SearchError(f"query `{name}`: {text[:40]!r}, expected a number")
    return int(text)


async def changes(server: Server, request: Request) -> Response:
    """List the names of files that have changed since a revision."""
    since = number_of(request.query_params, "since", 0)
    return json_response(request, server.records.changes(since))


async def folders(server: Server, request: Request) -> Response:
    """Describe a folder and the folders in it."""
    path = request.query_params.get("path", "").strip("/")
    found = await when_listed(server, request, lambda: server.records.folders(path))
    return not_found(request) if found is None else json_response(request, found)


async def one_file(server: Server, request: Request) -> Response:
    """Describe one file with all its images."""
    found = await requested(request, server)
    if found is None or found[1]:
        return not_found(request)
    entry = found[0]
    try:
        opened = await server.current(entry, request)
        work = partial(descriptions.file_record, opened, entry)
        key = ("file", opened.zstd.token)
        record = await server.jobs.run(key, work, request, is_slow=True)
        server.records.put(entry, descriptions.shortened(record))
    except (AnychunkError, OSError, MemoryError) as e:
        if entry.is_gone or isinstance(e, OtherVersionError):
            raise
        record = descriptions.failed_record(entry, e)
        server.records.put(entry, record)
    return json_response(request, record)


def json_response(request: Request, value: Any) -> Response:
    return respond(request, BytesBody.of(as_json(value)), media=JSON)


async def zarr(server: Server, request: Request, *, compression: str = "zstd") -> Response:
    """Serve a key of the standard Zarr hierarchy."""
    found = await requested(request, server)
    if found is None:
        return not_found(request)
    entry, key = found
    if request.scope["query_string"] and request.query_params.get("compression") == "none":
        compression = "none"
    path, _, last = key.rpartition("/")
    if last != METADATA:
        return await zarr_chunk(
            server, request, await server.opened(entry, request), key, compression
        )
    opened = await server.current(entry, request)
    server.note_reload(entry, opened, request)
    chunks = opened.chunks(compression)
    work = partial(descriptions.metadata, chunks, path)
    known = ("metadata", chunks.token, path)
    return await document(server, request, known, work, version=opened.version, media=JSON)


async def zarr_chunk(
    server: Server, request: Request, opened: Opened, key: str, compression: str
) -> Response:
    """Serve a chunk."""
    chunks = opened.chunks(compression)
    split = split_key(key)
    if split is None:
        return not_found(request)
    path, rest = split
    if not chunks.is_known(path):
        look = partial(chunks.array, path)
        await server.jobs.run(("find", chunks.token, path), look, request)
    array = chunks.array(path) if chunks.is_known(path) else None
    coords = None if array is None else parse_coords(rest, array.grid)
    if array is None or coords is None:
        return not_found(request)
    # without a thread if possible: switching costs more than sending a cached chunk
    body = chunks.cached(path, array, coords)
    if body is None:
        work = partial(chunks.body, path, array, coords)
        is_slow = chunks.is_computed(array)
        body = await server.jobs.run((chunks.token, key), work, request, is_slow=is_slow)
    if body is None:
        # a chunk that is a file of its own is also missing if all of its folder was removed
        await server.jobs.run(("verify", chunks.token), opened.watch.verify, request)
        return error_response(404, f"{key}: chunk is absent from the file and reads as fill")
    return respond(request, body)


async def document(
    server: Server,
    request: Request,
    key: Hashable,
    work: Callable[[], bytes | None],
    *,
    version: str,
    media: str,
) -> Response:
    """Serve a small document from the cache, or make it; 404 if `work` returns None."""
    body = server.documents.get(key)
    if body is None:
        data = await server.jobs.run(key, work, request, is_slow=True)
        if data is None:
            return not_found(request)
        body = BytesBody.of(data, version)
        server.documents.put(key, body, len(body))
    return respond(request, body, media=media)


async def raw(server: Server, request: Request) -> Response:
    """Serve a key of the file's own index: its own chunks and codecs."""
    found = await requested(request, server)
    if found is None:
        return not_found(request)
    entry, key = found
    is_metadata = key.rpartition("/")[2] == METADATA
    if is_metadata:
        opened = await server.current(entry, request)
        server.note_reload(entry, opened, request)
    else:
        opened = await server.opened(entry, request)
    work = partial(raw_body, opened, key)
    body = await server.jobs.run(("raw", opened.zstd.token, key), work, request)
    if body is None:
        await server.jobs.run(("verify", opened.zstd.token), opened.watch.verify, request)
        return not_found(request)
    return respond(request, body, media=JSON if is_metadata else BYTES)


def raw_body(opened: Opened, key: str) -> Body | None:
    """Return the value of a key of the index, or None if there is no such key."""
    path, _, last = key.rpartition("/")
    if last == METADATA:
        data = descriptions.index_metadata(opened.index, path)
        return None if data is None else BytesBody.of(data, opened.version)
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
    found = await requested(request, server)
    if found is None or found[1]:
        return not_found(request)
    opened = await server.current(found[0], request)
    work = partial(descriptions.info, opened, found[0])
    key = ("info", opened.zstd.token)
    return json_response(request, await server.jobs.run(key, work, request, is_slow=True))


async def grid(server: Server, request: Request) -> Response:
    """Describe the chunk grid of an array."""
    found = await requested(request, server)
    if found is None:
        return not_found(request)
    opened = await server.current(found[0], request)
    record = descriptions.grid(opened.zstd, found[1])
    return not_found(request) if record is None else json_response(request, record)


async def chunk(server: Server, request: Request) -> Response:
    """Describe one chunk of an array."""
    found = await requested(request, server)
    if found is None:
        return not_found(request)
    at = descriptions.position(request.query_params.get("at", ""))
    if at is None:
        return error_response(400, "query `at`: expected comma-separated integers, e.g. ?at=0,512")
    opened = await server.current(found[0], request)
    work = partial(descriptions.chunk, opened.zstd, found[1], at)
    record = await server.jobs.run(("chunk", opened.zstd.token, found[1], at), work, request)
    return not_found(request) if record is None else json_response(request, record)


async def thumb(server: Server, request: Request) -> Response:
    """Serve a thumbnail of an image."""
    segments = segments_of(request)
    if not segments or not segments[-1].endswith(".png"):
        return not_found(request)
    found = await named(request, server, [*segments[:-1], segments[-1].removesuffix(".png")])
    if found is None:
        return not_found(request)
    entry, path = found
    opened = await server.current(entry, request)
    key = ("thumb", opened.zstd.token, path, opened.store.damaged_streams)
    work = partial(thumbnail_png, opened.zstd, path)
    return await document(server, request, key, work, version=opened.version, media="image/png")


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


def application(catalog: Catalog, jobs: Jobs, about_server: Mapping[str, Json]) -> Starlette:
    """Return the ASGI app with all routes.

    Parameters:
        catalog: The files.
        jobs: Where work is done.
        about_server: What `/api/server` answers.
    """
    routes = [
        Route("/api/server", endpoint(about)),
        Route("/api/changes", endpoint(changes)),
        Route("/api/folders", endpoint(folders)),
        Route("/zarr/{rest:path}", endpoint(zarr)),
        Route("/api/files", endpoint(files)),
        Route("/api/files/{rest:path}", endpoint(one_file)),
        Route("/api/info/{rest:path}", endpoint(info)),
        Route("/api/grid/{rest:path}", endpoint(grid)),
        Route("/api/chunk/{rest:path}", endpoint(chunk)),
        Route("/zarr-raw/{rest:path}", endpoint(partial(zarr, compression="none"))),
        Route("/zarr-labels/{rest:path}", endpoint(partial(zarr, compression=LABELS))),
        Route("/raw/{rest:path}", endpoint(raw)),
        Route("/thumb/{rest:path}", endpoint(thumb)),
        Route("/{rest:path}", endpoint(page)),
    ]
    app = Starlette(routes=routes)
    app.state.server = Server(catalog, jobs, about_server)
    return app
