"""The command line: one module per subcommand, errors on one line."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

import typer

from anychunk import limits
from anychunk.cli import codecs, convert, formats, index, info, serve, thumb, verify
from anychunk.errors import AnychunkError, OptionError

app = typer.Typer(
    name="anychunk",
    help="Open tiled array files as Zarr v3, in place.",
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

INTERRUPTED = 130
"""The exit code that shells expect after Ctrl-C: 128 + SIGINT."""
# found by name: depending on its version, typer uses click or a vendored copy of it
UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _version(value: bool) -> None:
    if value:
        from anychunk import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
    debug: bool = typer.Option(False, "--debug", help="Print the traceback of an error."),
    limit: str = typer.Option(
        "",
        "--limit",
        metavar="NAME=VALUE",
        help="Change a limit on what a file may ask for, such as chunk_bytes=8GiB; several times.",
    ),
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors go to stderr on one line, with exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_debug = "--debug" in given
    # accepted anywhere on the line, not only before the subcommand
    rest = [a for a in given if a != "--debug"]
    try:
        allow_every_character()
        rest, changes = take_limits(rest)
        limits.configure(changes)
        code = app(rest, prog_name="anychunk", standalone_mode=False)
    except UsageError as e:
        print_usage_error(e)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        # Abort is what typer makes of Ctrl-C, except where it handles another error
        print("anychunk: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(INTERRUPTED)
    except (AnychunkError, OSError, LookupError, ValueError, TypeError, MemoryError) as e:
        if is_debug:
            raise
        text = e.args[0] if isinstance(e, KeyError) and e.args else e
        if not isinstance(e, AnychunkError | OSError | KeyError):
            text = f"{type(e).__name__}: {text}; use --debug for the traceback"
        print(f"anychunk: {' '.join(str(text).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def take_limits(arguments: Sequence[str]) -> tuple[list[str], dict[str, float]]:
    """Return the arguments without those of `--limit`, accepted anywhere, and the limits."""
    rest: list[str] = []
    found: dict[str, float] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            return [*rest, argument, *waiting], found
        name, _, text = argument.partition("=")
        if name != "--limit":
            rest.append(argument)
            continue
        text = text if "=" in argument else next(waiting, "")
        name, is_set, value = text.partition("=")
        if not is_set:
            raise OptionError(f"--limit {text}: expected NAME=VALUE, such as chunk_bytes=8GiB")
        found.update([limits.parse(name.strip(), value, where=f"--limit {text}")])
    return rest, found


def allow_every_character() -> None:
    """Print a character that the terminal or pipe has no code for as its number in Unicode.

    The encoding of Windows code pages lacks most of them, and a file may have any name.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def print_usage_error(error: Any) -> None:
    """Print what is wrong with the arguments on one line; without arguments, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    command = error.ctx.command_path if getattr(error, "ctx", None) else "anychunk"
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    print(f"anychunk: {text}; see {command} --help", file=sys.stderr)  # noqa: T201
