"""Parse many files in parallel, on threads of this process or on a Dask cluster.

A worker returns an index, which is plain data, or the error that occurred.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from anychunk import limits
from anychunk.errors import AnychunkError, MissingDependencyError
from anychunk.io import is_remote
from anychunk.io.threads import as_completed, cores
from anychunk.model.index import Node

type Parse = Callable[[str], Node]
type Outcome = Node | AnychunkError
type Failures = dict[str, str]
"""Error messages by url."""

"""How many failures an error message lists."""


def parse_many(
    parse: Parse, urls: Sequence[str], client: Any = None
) -> Iterator[tuple[str, Outcome]]:
    """Parse every file; yield (url, index or error) as each is done.

    Parameters:
        parse: Called with one url, in several threads or processes at once.
        urls: The files.
        client: A `distributed.Client`, or the address of a Dask scheduler; None: threads.
    """
    if client is None:
        yield from _on_threads(parse, urls)
    else:
        yield from _on_dask(parse, urls, client)


def _attempt(parse: Parse, url: str) -> Outcome:
    """Parse one file; return an error instead of raising it, so that the others go on."""
    try:
        return parse(url)
    except AnychunkError as e:
        return e
    except OSError as e:
        return AnychunkError(str(e))


def _on_threads(parse: Parse, urls: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    # parsing a remote file is mostly waiting for responses: more threads than cores pay off
    threads = limits.get().concurrency if any(map(is_remote, urls)) else cores()
    with ThreadPoolExecutor(threads, thread_name_prefix="anychunk-index") as pool:
        yield from as_completed(partial(_attempt, parse), urls, executor=pool, ahead=2 * threads)


def _on_dask(parse: Parse, urls: Sequence[str], client: Any) -> Iterator[tuple[str, Outcome]]:
    try:
        import distributed
    except ImportError as e:
        raise MissingDependencyError(
            'a Dask cluster needs distributed; install it with: pip install "anychunk[dask]"'
        ) from e
    dask: Any = distributed  # it has no types
    opened = dask.Client(client) if isinstance(client, str) else None
    cluster = opened or client
    try:
        # pure=False: a url parsed again may be another file by now, a cached result would be stale
        futures = {cluster.submit(_attempt, parse, url, pure=False): url for url in urls}
        for future, result in dask.as_completed(futures, with_results=True, raise_errors=False):
            url = futures[future]
            is_done = future.status == "finished"
            yield url, result if is_done else AnychunkError(f"{url}: the worker failed: {result}")
            future.release()  # the cluster need not keep an index that has been fetched
    finally:
        if opened is not None:
            opened.close()
