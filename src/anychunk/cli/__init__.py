"""The command line: one module per subcommand, errors on one line."""

import atexit
import os
import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from anychunk import limits
from anychunk.cli import talk
from anychunk.errors import AnychunkError, OptionError

INTERRUPTED = 130
"""The exit code that shells expect after Ctrl-C: 128 + SIGINT."""

REST_S = 0.1
"""How long a command that has used Icechunk waits before it ends."""

PIPE_CLOSED = 141
"""128 + SIGPIPE, which ends other programs in this case."""


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from anychunk.cli.commands import app  # imports typer

    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors go to stderr on one line, with exit code 2."""
    if arguments is None:
        atexit.register(rest_after_icechunk)
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest, flags = take_flags(given)
    is_debug = "--debug" in flags
    talk.set_level(max((talk.FLAGS[flag] for flag in flags & {*talk.FLAGS}), key=abs, default=0))
    started = time.perf_counter()
    code: int | None = 0
    try:
        allow_every_character()
        rest, changes = take_limits(rest)
        limits.configure(changes)
        with talk.plain_warnings():
            code = run_listing(rest)
            if code is None:
                from anychunk.cli.commands import run

                code = run(rest)
    except KeyboardInterrupt:
        print("anychunk: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        # Python writes what is left when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except (AnychunkError, OSError, LookupError, ValueError, TypeError, MemoryError) as e:
        if is_debug:
            raise
        text = e.args[0] if isinstance(e, KeyError) and e.args else e
        if not isinstance(e, AnychunkError | OSError | KeyError):
            text = f"{type(e).__name__}: {text}; use --debug for the traceback"
        print(f"anychunk: {' '.join(str(text).split())}", file=sys.stderr)  # noqa: T201
        for line in talk.causes(e):
            talk.detail(line)
        sys.exit(2)
    if rest[:1] != ["serve"]:  # whose details are requests
        spent = time.perf_counter() - started
        talk.detail(f"took {spent:.2f} s, {time.process_time():.2f} s of processor time")
    sys.exit(code)


def rest_after_icechunk() -> None:
    """Let Icechunk's threads come to rest before the interpreter is taken down.

    After a call has returned, the thread that ran it still releases objects of Python. If those
    are gone by then, the process ends with a segmentation fault after all its work is done, as 10
    of 200 did with Icechunk 2.3. Nothing tells when the threads are done.
    """
    if "icechunk" in sys.modules:
        time.sleep(REST_S)


def take_flags(arguments: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the arguments without the flags that every command has, and those flags.

    They are accepted anywhere on the line, not only before the subcommand.
    """
    count = arguments.index("--") if "--" in arguments else len(arguments)
    before, after = arguments[:count], arguments[count:]
    known = {"--debug", *talk.FLAGS}
    return [*(a for a in before if a not in known), *after], {a for a in before if a in known}


def run_listing(arguments: Sequence[str]) -> int | None:
    """Run a command that only prints, if its arguments need no interpretation.

    typer needs half of the time of such a command: it imports pydantic to interpret arguments. All
    other command lines are left to it, mistaken ones too; None is returned for them.
    """
    if not arguments or "_ANYCHUNK_COMPLETE" in os.environ:  # the shell asks for completions
        return None
    command, *rest = arguments
    flags = {a for a in rest if a.startswith("-")}
    values = [a for a in rest if not a.startswith("-")]
    is_json = "--json" in flags
    if command == "info" and values and flags <= {"--deep", "--json"}:
        from anychunk.cli.files import print_infos

        return print_infos(values, deep="--deep" in flags, as_json=is_json)
    if command in {"formats", "codecs"} and not values and flags <= {"--json"}:
        from anychunk.cli import printing

        (printing.print_formats if command == "formats" else printing.print_codecs)(is_json)
        return 0
    return None


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
