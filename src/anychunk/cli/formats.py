"""`anychunk formats`: list the formats."""

import typer

from anychunk.cli.printing import print_formats


def formats(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the formats that anychunk opens, and which of them it writes.

    Example: anychunk formats
    """
    print_formats(as_json)
