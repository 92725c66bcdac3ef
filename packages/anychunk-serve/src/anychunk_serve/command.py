"""`anychunk serve`: serve files as Zarr over HTTP."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from anychunk.cli import talk
from anychunk.errors import MissingFileError

AUTO = "auto"


def serve(  # noqa: PLR0917 - typer calls it by name
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Files, URLs, saved indexes, folders, prefixes of object stores ending in `/`, "
            "or `@LIST`, a text file with one of these per line.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on; default: 8000, or the next free one.", min=0, max=65535
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Token that clients must send; `auto` generates one.", envvar="ANYCHUNK_TOKEN"
        ),
    ] = None,
    memory: Annotated[
        int, typer.Option(help="MiB for caches; larger chunks are not decoded.", min=64)
    ] = 512,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name that clients may use. Repeatable."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Web page of another origin that may read the files, such as "
            "https://viewer.example. Repeatable; default: none."
        ),
    ] = None,
    allow_redirects: Annotated[
        bool,
        typer.Option("--allow-redirects", help="Follow HTTP redirects to other hosts and ports."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as JSON, on one line.")
    ] = False,
) -> None:
    """Serve files as Zarr over HTTP, with a web page to view them.

    With -v, every request is logged.

    Example: anychunk serve scene.tif --open

    Example: anychunk serve scans/ --port 8080 -v
    """
    # slow to import, and not needed for --help
    from anychunk.io.source import is_remote, local_path
    from anychunk_serve import access, run

    for file in files:
        if not is_remote(file) and not Path(local_path(file.removeprefix("@"))).exists():
            raise MissingFileError(f"{file.removeprefix('@')}: no such file or directory")
    settings = run.Settings(
        host=host,
        port=port,
        token=run.new_token() if token == AUTO else token or None,
        memory=memory << 20,
        allow_hosts=tuple(allow_host or ()),
        origins=tuple(access.checked_origin(one) for one in origin or ()),
        allow_redirects=allow_redirects,
    )

    def ready(url: str) -> None:
        if as_json:
            print(json.dumps({"url": url, "files": files}), flush=True)  # noqa: T201
        else:
            typer.echo(f"{url}  (press Ctrl-C to stop)")
        if open_page:
            import webbrowser

            webbrowser.open(url)

    is_done = run.serve(files, settings, ready=ready, verbose=talk.is_verbose())
    if not is_done:
        # a running decoder cannot be cancelled, and a normal exit would wait for its thread
        sys.stdout.flush()
        os._exit(0)
