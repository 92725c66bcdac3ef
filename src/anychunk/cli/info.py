"""`anychunk info`: print what a file contains."""

from typing import Annotated

import typer

from anychunk.cli.allowed import Allow, allowed
from anychunk.cli.printing import print_info


def info(
    file: Annotated[str, typer.Argument(help="Path or URL of a file, folder or saved index.")],
    deep: Annotated[bool, typer.Option("--deep", help="Also print all attributes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Print the images, levels and chunks of a file.

    Example: anychunk info scene.tif --deep

    Example: anychunk info s3://bucket/scene.tif --json

    Example: anychunk info scenes.json --allow s3://bucket/
    """
    print_info(file, deep=deep, as_json=as_json, **allowed(allow))
