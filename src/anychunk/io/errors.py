"""Map errors of the operating system and of obstore to ours, with advice."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from anychunk.errors import AnychunkError, MissingFileError, SourceError


class file_errors:  # noqa: N801 - used like a function
    """Add the path to errors of the file system; a missing file is a `MissingFileError`.

    Not a generator: that and the error would refer to each other, and keep open whatever the frames
    of the error hold until the garbage collector runs.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AnychunkError) or not isinstance(error, OSError):
            return
        path = self.path
        if isinstance(error, FileNotFoundError):
            text = f"{path}: no such file or directory; check the path"
            raise MissingFileError(text) from error
        advice = "; check its permissions" if isinstance(error, PermissionError) else ""
        raise SourceError(f"{path}: {error.strerror or error}{advice}") from error


NO_PATH = "Could not parse path"
"""How obstore's error begins for names such as `a//b`."""


@contextmanager
def remote_errors(url: str) -> Iterator[None]:
    """Map errors of obstore and fsspec to ours, with advice where possible."""
    from obstore.exceptions import BaseError

    try:
        yield
    except AnychunkError:
        raise
    except FileNotFoundError as e:
        raise MissingFileError(f"{url}: no such object; check the url") from _shown(e)
    except PermissionError as e:
        raise SourceError(f"{url}: {first_line(e)}; access denied; check the credentials") from e
    except (BaseError, OSError) as e:
        # only the first line: obstore appends a dump of internals, which may contain secrets
        raise SourceError(f"{url}: {first_line(e)}{what_to_do(e)}") from _shown(e)
    except ValueError as e:
        if not str(e).startswith(NO_PATH):
            raise
        raise SourceError(f"{url}: {first_line(e)}; no object has such a name") from e


SECRET = re.compile(r"(?P<scheme>https?://)(?:[^/\s@]*@)?(?P<place>[^\s?]*)(?:\?\S*)?")


def without_queries(text: str) -> str:
    """Remove queries and passwords from the urls in a message: they may grant access."""
    return SECRET.sub(r"\g<scheme>\g<place>", text)


def first_line(error: BaseException) -> str:
    return without_queries(str(error).split("\n", 1)[0])


def _shown(error: Exception) -> Exception | None:
    """Return the cause that a traceback may show; None if its message contains a query."""
    text = str(error)
    return error if without_queries(text) == text else None


NO_GOOGLE_KEY = (
    "no credentials found; set GOOGLE_APPLICATION_CREDENTIALS, "
    "or for public data GOOGLE_SKIP_SIGNATURE=true (skip_signature)"
)
ADVICE = {
    # every cloud has its own path below the same address: the more specific come first
    "metadata.google.internal": NO_GOOGLE_KEY,
    "/computeMetadata/": NO_GOOGLE_KEY,
    "/metadata/identity/oauth2": "no credentials found; set AZURE_STORAGE_ACCOUNT_KEY or "
    "AZURE_STORAGE_SAS_TOKEN, or for public data AZURE_SKIP_SIGNATURE=true (skip_signature)",
    "169.254.169.254": "no credentials found; set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or for public data AWS_SKIP_SIGNATURE=true (skip_signature)",
    "Account must be specified": "set AZURE_STORAGE_ACCOUNT_NAME, or pass "
    "storage={'account_name': …}",
    "incorrectly configured region": "set AWS_REGION to the region of the bucket, or pass "
    "storage={'region': …}",
    "403 Forbidden": "access denied; check the credentials (AWS_ACCESS_KEY_ID, "
    "AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS) and the permissions of the "
    "object; a signed url may have expired; a bucket of which the requester pays needs "
    "storage={'requester_pays': True}",
    "401 Unauthorized": "credentials are missing or wrong; check those that are set, or pass "
    "storage={'headers': {'Authorization': …}}",
    # a missing object is a FileNotFoundError
    "404 Not Found": "no such bucket or container; check its name",
    "error sending request": "the server could not be reached; check the url, the network, and "
    "HTTPS_PROXY if there is a proxy",
    "builder error": "the endpoint is http, which is refused by default; pass "
    "storage={'client_options': {'allow_http': True}}",
    "service account file": "GOOGLE_APPLICATION_CREDENTIALS, or service_account_path, must be the "
    "JSON file of a key",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY",
}
"""Advice, by a text that the error message of obstore contains."""


def what_to_do(error: Exception) -> str:
    text = str(error)
    return next((f"; {advice}" for sign, advice in ADVICE.items() if sign in text), "")
