"""Errors of the system and of obstore, as ours: where, what, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from anychunk.errors import AnychunkError, SourceError


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Keep built-in errors that say it all, name the path in the others."""
    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{path}: no such file or directory; check the path") from e
    except PermissionError as e:
        raise SourceError(f"{path}: {e.strerror or e}; ask its owner for the right") from e
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


@contextmanager
def remote_errors(url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{url}: no such object; check the url") from e
    except (BaseError, OSError) as e:
        # obstore appends a dump of its internals, which may hold more than the user should see
        raise SourceError(f"{url}: {first_line(e)}{what_to_do(e)}") from e


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


ADVICE = {
    "169.254.169.254": "no credentials were found; set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or for public data AWS_SKIP_SIGNATURE=true (skip_signature)",
    "metadata.google.internal": "no credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, "
    "or for public data GOOGLE_SKIP_SIGNATURE=true (skip_signature)",
    "403 Forbidden": "the server refuses; check the credentials and who may read it",
    "401 Unauthorized": "the server asks for credentials; check those that are set",
    "error sending request": "the server could not be reached; check the url and the network",
}
"""What to do, by what object_store says of an error."""


def what_to_do(error: Exception) -> str:
    text = str(error)
    return next((f"; {advice}" for sign, advice in ADVICE.items() if sign in text), "")
