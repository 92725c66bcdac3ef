"""`anychunk info`: print what files contain."""

from typing import Annotated

import typer

from anychunk.cli.parts import Allow, allowed


def info(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Paths, URLs or glob patterns of files, folders or saved indexes.",
        ),
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Also print all attributes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Print the images, levels and chunks of a file; of several files, one line each.

    Exit code 1: one of several files does not open.

    Example: anychunk info scene.tif --deep

    Example: anychunk info scans/*.ntf

    Example: anychunk info s3://bucket/scene.tif --json

    Example: anychunk info scenes.json --allow s3://bucket/
    """
    from anychunk.cli.files import print_infos  # with all that indexes files

    code = print_infos(files, deep=deep, as_json=as_json, **allowed(allow))
    if code:
        raise typer.Exit(code)
