"""How much the commands print: `-q` for less, `-v` for more."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

QUIET, NORMAL, VERBOSE = -1, 0, 1
FLAGS = {"-q": QUIET, "--quiet": QUIET, "-v": VERBOSE, "--verbose": VERBOSE}

_state = {"level": NORMAL}


def set_level(level: int) -> None:
    """Choose how much is printed from now on."""
    _state["level"] = level


def is_quiet() -> bool:
    """Return whether only results and errors are printed."""
    return _state["level"] == QUIET


def is_verbose() -> bool:
    """Return whether details are printed, too."""
    return _state["level"] == VERBOSE


def summary(text: str) -> None:
    """Print what a command did, unless `-q` was given."""
    if not is_quiet():
        print(text, flush=True)  # noqa: T201


def note(text: str) -> None:
    """Print a remark on stderr, unless `-q` was given."""
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def detail(text: str) -> None:
    """Print a detail on stderr, if `-v` was given."""
    if is_verbose():
        print(text, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings for users on one line, without the place in the code that Python adds."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, UserWarning):
            note(f"anychunk: warning: {' '.join(str(message).split())}")
        else:
            before(message, category, *place, **options)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def counted(count: int, thing: str) -> str:
    """Return a number of things: 1 array, 2 arrays."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def causes(error: BaseException) -> list[str]:
    """Return what an error was caused by, one line each."""
    found: list[str] = []
    cause = error.__cause__
    while cause is not None and len(found) < MOST_CAUSES:
        found.append(f"caused by {type(cause).__name__}: {' '.join(str(cause).split())}")
        cause = cause.__cause__
    return found


MOST_CAUSES = 10
"""Longer chains are cut."""


# A progress bar on stderr, if that is a terminal, unless `-q` was given.


@contextmanager
def progress_bar(
    verb: str, *, in_bytes: bool = False
) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar; yield a function to call with (done, total), or None without a terminal."""
    if is_quiet():
        yield None
        return
    from rich.console import Console  # slow to import, and not needed to print the help

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = (
        (DownloadColumn(binary_units=True), TransferSpeedColumn())
        if in_bytes
        else (MofNCompleteColumn(),)
    )
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
