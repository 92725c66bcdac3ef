"""Connect to a Dask cluster by the address of its scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anychunk.errors import MissingDependencyError, SourceError


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`, and close it afterwards."""
    try:
        from distributed import Client
    except ImportError as e:
        raise MissingDependencyError(
            'a Dask cluster needs distributed; install it with: pip install "anychunk[dask]"'
        ) from e
    client: Any = Client  # untyped
    try:
        # Not the default of the process: the caller's other Dask work must not move to this
        # cluster, and distributed keeps a client as the default even if it cannot connect, after
        # which every computation of the process waits forever.
        opened = client(address, set_as_default=False)
    except (OSError, ValueError) as e:
        raise SourceError(f"{address}: cannot connect to a Dask scheduler: {e}") from e
    with opened:
        yield opened


def threads(client: Any) -> int:
    """Return how many threads the workers of a client have together."""
    return sum(client.nthreads().values()) or 1
