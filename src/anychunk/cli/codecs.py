"""`anychunk codecs`: list the codecs."""

import json
import sys

import typer
from rich.console import Console
from rich.table import Table

from anychunk import codecs as registry
from anychunk.cli.formats import summary


def codecs(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the codecs that anychunk provides, by their names in Zarr metadata.

    Example: anychunk codecs --json
    """
    rows = []
    for name, cls in registry.load_all().items():
        rows.append({"name": name, "about": summary(sys.modules[cls.__module__].__doc__)})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("codec", "about")
    for row in rows:
        # only the last part of a name that is a url, so that it fits; --json prints all of it
        table.add_row(row["name"].rsplit("/", 1)[-1], row["about"])
    Console().print(table)
