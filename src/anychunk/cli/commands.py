"""The commands and their options, as typer knows them."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import typer
import typer.core

from anychunk.cli import codecs, convert, demo, formats, index, info, thumb, verify
from anychunk.cli.printing import summary
from anychunk.errors import MissingDependencyError

EXIT_CODES = (
    "Exit codes: 0 done; 1 a check found problems, or some of several files failed; "
    "2 error; 130 interrupted."
)
EPILOG = f"""Options of every command: -q prints less, -v more, --debug the traceback of an error;
--limit NAME=VALUE changes a limit.

{EXIT_CODES}"""


class Command(typer.core.TyperCommand):
    """A command whose help shows `FILE` and `--port PORT`, without braces and types of Python."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar or parameter.name).split()
                # releases of typer word them in different ways
                vars(parameter).update(
                    get_usage_pieces=lambda ctx, name=name: name,
                    display_type_rich=lambda ctx: "",
                )
            elif parameter.metavar is None and not getattr(parameter, "is_flag", True):
                parameter.metavar = str(parameter.name).rpartition("_")[2].upper()


ADDED = "anychunk.commands"
"""The group of entry points by which other packages add commands: functions for typer."""
NOT_HERE = {"serve": ("anychunk[serve]", "Serve files as Zarr over HTTP; not installed.")}
"""The commands of our other packages: what installs them, and what `--help` says without."""


class Commands(typer.core.TyperGroup):
    """Our commands, and those that other packages add, which are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        others = [point.name for point in entry_points(group=ADDED)]
        return list(dict.fromkeys([*self.commands, *others, *NOT_HERE]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None if there is none of the name."""
        if cmd_name not in self.commands:
            found = [point.load() for point in entry_points(group=ADDED, name=cmd_name)]
            if found:
                self.commands[cmd_name] = added(cmd_name, found[0])
            elif cmd_name in NOT_HERE:
                return not_here(cmd_name)
        return super().get_command(ctx, cmd_name)


def added(name: str, function: Callable[..., Any], **options: Any) -> Any:
    """Return a function as a command, which is not a part of `app`."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    given = {"short_help": summary(function.__doc__), "epilog": EPILOG, **options}
    alone.command(name, cls=Command, **given)(function)
    return typer.main.get_command(alone)


def not_here(name: str) -> Any:
    """Return a command that says what to install."""
    what, about = NOT_HERE[name]

    def said() -> None:
        raise MissingDependencyError(
            f'{name} is a package of its own; install it with: pip install "{what}"'
        )

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return added(name, said, short_help=about, add_help_option=False, context_settings=anything)


app = typer.Typer(
    name="anychunk",
    cls=Commands,
    help="Open tiled array files as Zarr v3, in place.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich needs longer to start than everything else that help needs
    pretty_exceptions_enable=False,
)
for _command in (
    demo.demo,
    info.info,
    index.index,
    convert.convert,
    verify.verify,
    thumb.thumb,
    formats.formats,
    codecs.codecs,
):
    # given as such, because the first sentence of a docstring is cut off
    app.command(cls=Command, short_help=summary(_command.__doc__), epilog=EPILOG)(_command)

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
    quiet: bool = typer.Option(
        False, "-q", "--quiet", help="Print no progress, remarks and summaries, only results."
    ),
    verbose: bool = typer.Option(
        False, "-v", "--verbose", help="Print details too: times, causes of errors, requests."
    ),
    limit: str = typer.Option(
        "",
        "--limit",
        metavar="NAME=VALUE",
        help="Change a limit on what a file may ask for, such as chunk_bytes=8GiB; several times.",
    ),
) -> None: ...


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        code = app(list(arguments), prog_name="anychunk", standalone_mode=False)
    except UsageError as e:
        print_usage_error(e)
        return 2
    except typer.Abort as e:  # what typer makes of Ctrl-C, except where it handles another error
        raise KeyboardInterrupt from e
    return code if isinstance(code, int) else 0


def print_usage_error(error: Any) -> None:
    """Print what is wrong with the arguments on one line; without arguments, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    command = error.ctx.command_path if getattr(error, "ctx", None) else "anychunk"
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    print(f"anychunk: {text}; see {command} --help", file=sys.stderr)  # noqa: T201
