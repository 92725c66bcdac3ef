"""`anychunk demo`: write a small file of each format."""

import json
from pathlib import Path
from typing import Annotated

import typer

from anychunk.cli import talk


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to; created if absent.")
    ] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Write a small file of each format, to try anychunk with. Existing files are kept.

    Example: anychunk demo
    """
    from anychunk.demo import FILES, write

    shown = folder.as_posix()
    rows = []
    for name, is_new in write(folder):
        path, about = f"{shown}/{name}", FILES[name].about
        rows.append({"path": path, "about": about, "written": is_new})
        if not as_json:
            typer.echo(f"{path:<{len(shown) + 14}}  {about if is_new else 'exists and is kept'}")
    if as_json:
        typer.echo(json.dumps({"files": rows}))
        return
    talk.summary(
        "\nTry:\n"
        f"  anychunk info {shown}/scene.tif\n"
        f"  anychunk serve {shown} --open\n"
        f"  anychunk convert {shown}/cells.ome.tif cells.zarr --verify"
    )
