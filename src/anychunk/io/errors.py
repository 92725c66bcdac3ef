"""Map errors of the operating system and of obstore to ours, with advice."""

from collections.abc import Iterator
from contextlib import contextmanager

from anychunk.errors import AnychunkError, SourceError


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Add the path to errors of the file system; a missing file stays FileNotFoundError."""
    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{path}: no such file or directory; check the path") from e
    except PermissionError as e:
        raise SourceError(f"{path}: {e.strerror or e}; check its permissions") from e
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


@contextmanager
def remote_errors(url: str) -> Iterator[None]:
    """Map errors of obstore to ours, with advice where possible."""
    from obstore.exceptions import BaseError

    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise FileNotFoundError(f"{url}: no such object; check the url") from e
    except (BaseError, OSError) as e:
        # only the first line: obstore appends a dump of internals, which may contain secrets
        raise SourceError(f"{url}: {first_line(e)}{what_to_do(e)}") from e


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


ADVICE = {
    "169.254.169.254": "no credentials found; set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or for public data AWS_SKIP_SIGNATURE=true (skip_signature)",
    "metadata.google.internal": "no credentials found; set GOOGLE_APPLICATION_CREDENTIALS, "
    "or for public data GOOGLE_SKIP_SIGNATURE=true (skip_signature)",
    "403 Forbidden": "access denied; check the credentials and the permissions of the object",
    "401 Unauthorized": "credentials are missing or wrong; check those that are set",
    "error sending request": "the server could not be reached; check the url and the network",
}
"""Advice, by a text that the error message of obstore contains."""


def what_to_do(error: Exception) -> str:
    text = str(error)
    return next((f"; {advice}" for sign, advice in ADVICE.items() if sign in text), "")
