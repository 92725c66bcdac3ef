"""A progress bar on stderr, if that is a terminal, unless `-q` was given."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anychunk.cli import talk


@contextmanager
def progress_bar(
    verb: str, *, in_bytes: bool = False
) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar; yield a function to call with (done, total), or None without a terminal."""
    if talk.is_quiet():
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
