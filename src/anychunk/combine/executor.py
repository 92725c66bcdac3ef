"""Parse many files at once: on threads of this process, or on the workers of a Dask cluster.

What comes back from a worker is an index, which is plain arrays, or the message of a failure.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from typing import Any

from anychunk import limits
from anychunk.errors import AnychunkError, MissingDependencyError
from anychunk.io import Storage, below, is_remote, list_objects, local_path
from anychunk.model.index import Node

type Parse = Callable[[str], Node]
type Outcome = Node | AnychunkError
type Failures = dict[str, str]


class FilesError(AnychunkError):
    """Some of many files could not be indexed; `failures` says which, and why."""

    def __init__(self, failures: Failures, count: int) -> None:
        self.failures, self.count = failures, count
        shown = "; ".join(list(failures.values())[:20])
        more = f"; and {len(failures) - 20} more" if len(failures) > 20 else ""
        super().__init__(f"{len(failures)} of {count} files could not be indexed: {shown}{more}")

    def __reduce__(self) -> Any:
        return type(self), (self.failures, self.count)


def expand(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], storage: Storage | None
) -> list[str]:
    """Give every file that urls and patterns of urls name, in order, each once."""
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    found: dict[str, None] = {}
    for url in map(str, given):
        found |= dict.fromkeys(_matches(url, storage) if is_pattern(url) else [url])
    return list(found)


def is_pattern(url: str) -> bool:
    """Whether a url stands for several: a name with stars that no file has."""
    return any(c in url for c in "*?[") and (is_remote(url) or not os.path.exists(local_path(url)))  # noqa: PTH110


def _matches(pattern: str, storage: Storage | None) -> list[str]:
    if not is_remote(pattern):
        found = sorted(glob.glob(local_path(pattern), recursive=True))  # noqa: PTH207 - of a url
    else:
        folder = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        names = (name for name, _ in list_objects(folder, storage=storage))
        wanted = re.compile(_expression(pattern))
        found = sorted(
            below(folder, name) for name in names if wanted.fullmatch(f"{folder}/{name}")
        )
    if not found:
        raise FileNotFoundError(f"{pattern}: no file is named so")
    return found


def _expression(pattern: str) -> str:
    """Write a pattern as a regular expression; one star stays within a folder."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(special.get(p) or _choice(p) for p in pieces)


def _choice(piece: str) -> str:
    """Write `[a-c]` and `[!a-c]` as a regular expression, as fnmatch does; all else as it is."""
    if not (piece.startswith("[") and piece.endswith("]")):
        return re.escape(piece)
    return "(?!/)" + fnmatch.translate(piece)[len("(?s:") : -len(r")\Z")]


def outcomes(
    parse: Parse, urls: Sequence[str], client: Any = None
) -> Iterator[tuple[str, Outcome]]:
    """Parse every file; yield (url, index or failure) as each is done."""
    if client is None:
        yield from _on_threads(parse, urls)
    else:
        yield from _on_dask(parse, urls, client)


def attempt(parse: Parse, url: str) -> Outcome:
    """Parse one file; a failure is a value, so that it travels and stops nothing else."""
    try:
        return parse(url)
    except AnychunkError as e:
        return e
    except OSError as e:
        return AnychunkError(str(e))


def _on_threads(parse: Parse, urls: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    # parsing waits for answers more than it computes
    many = limits.get().concurrency if any(map(is_remote, urls)) else os.cpu_count()
    with ThreadPoolExecutor(many, thread_name_prefix="anychunk-index") as pool:
        futures = {pool.submit(attempt, parse, url): url for url in urls}
        try:
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        finally:
            for future in futures:
                future.cancel()


def _on_dask(parse: Parse, urls: Sequence[str], client: Any) -> Iterator[tuple[str, Outcome]]:
    try:
        distributed: Any = import_module("distributed")  # it has no types
    except ImportError as e:
        raise MissingDependencyError(
            'a Dask cluster needs distributed; install it with: pip install "anychunk[dask]"'
        ) from e
    opened = distributed.Client(client) if isinstance(client, str) else None
    cluster = opened or client
    try:
        futures = {cluster.submit(attempt, parse, url, pure=False): url for url in urls}
        for future, result in distributed.as_completed(
            futures, with_results=True, raise_errors=False
        ):
            url = futures[future]
            is_done = future.status == "finished"
            yield url, result if is_done else AnychunkError(f"{url}: the worker failed: {result}")
            future.release()
    finally:
        if opened is not None:
            opened.close()
