"""The command line: one sub-command a file, errors on one line."""

import sys
from collections.abc import Sequence

import typer

from anychunk.cli import codecs, convert, formats, index, info, serve, thumb, verify
from anychunk.errors import AnychunkError

app = typer.Typer(
    name="anychunk",
    help="Open any tiled array file as Zarr v3, in place.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _command in (
    info.info,
    index.index,
    convert.convert,
    verify.verify,
    thumb.thumb,
    serve.serve,
    formats.formats,
    codecs.codecs,
):
    app.command()(_command)


def _version(value: bool) -> None:
    if value:
        from anychunk import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors go to stderr on one line, with exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = "--debug" in given
    try:
        app([a for a in given if a != "--debug"], prog_name="anychunk")
    except (AnychunkError, OSError, LookupError, ValueError, TypeError, MemoryError) as e:
        if is_debug:
            raise
        text = e.args[0] if isinstance(e, KeyError) and e.args else e
        if not isinstance(e, AnychunkError | OSError | KeyError):
            text = f"{type(e).__name__}: {text}; --debug shows where"
        print(f"anychunk: {' '.join(str(text).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
