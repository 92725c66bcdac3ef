"""`anychunk codecs`: list the codecs."""

import typer

from anychunk.cli.printing import print_codecs


def codecs(
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    verbose: bool = typer.Option(False, "--verbose", help="Also list installed decoders."),
) -> None:
    """List the codecs that anychunk provides, by their names in Zarr metadata.

    Example: anychunk codecs --json
    """
    print_codecs(as_json, verbose=verbose)
