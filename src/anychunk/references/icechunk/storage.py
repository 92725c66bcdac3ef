"""Icechunk's storage and credentials, from the options that obstore takes.

Credentials come from the options or the environment, and are never written into a repository.
"""

import os
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from anychunk.errors import UnsupportedError
from anychunk.io import Storage, check_tree, is_remote, is_restricted, local_path

ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
REGIONS = ("region", "aws_region", "aws_default_region")
CREDENTIALS = {
    "access_key_id": ("access_key_id", "aws_access_key_id"),
    "secret_access_key": ("secret_access_key", "aws_secret_access_key"),
    "session_token": ("session_token", "token", "aws_session_token"),
}
"""Icechunk's names of credentials, and obstore's names of the same."""


def _lower_case(storage: Storage | None) -> dict[str, Any]:
    return {str(name).lower(): value for name, value in (storage or {}).items()}


def _option(options: dict[str, Any], names: Iterable[str]) -> Any:
    """Return an option by any of its names, or else from the environment."""
    for name in names:
        if options.get(name) is not None:
            return options[name]
    return next((os.environ[n.upper()] for n in names if os.environ.get(n.upper())), None)


def s3_options(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's options for S3: region, endpoint and addressing, without credentials."""
    options = _lower_case(storage)
    endpoint = _option(options, ENDPOINTS)
    return {
        "region": _option(options, REGIONS) or "us-east-1",
        "endpoint_url": endpoint,
        "allow_http": bool(endpoint) and str(endpoint).startswith("http:"),
        # servers other than AWS rarely have a host name for every bucket
        "force_path_style": bool(endpoint),
    }


def s3_credentials(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's credentials for S3: anonymous, or from the options or the environment."""
    options = _lower_case(storage)
    if options.get("skip_signature"):
        return {"anonymous": True}
    found = {
        name: options.get(next((n for n in names if n in options), ""))
        for name, names in CREDENTIALS.items()
    }
    given = {name: value for name, value in found.items() if value}
    return given or {"from_env": True}


def repository_storage(ice: Any, url: str, storage: Storage | None) -> Any:
    """Return Icechunk's storage for a repository at `url`.

    Raises:
        UnsupportedError: If Icechunk cannot open the url, or could be redirected where the
            caller did not allow it.
    """
    if not is_remote(url):
        check_tree(local_path(url))  # Icechunk itself follows every symbolic link
        return ice.local_filesystem_storage(local_path(url))
    parts = urlsplit(url)
    bucket, prefix = parts.netloc, parts.path.strip("/") or None
    if parts.scheme in ("s3", "s3a"):
        return ice.s3_storage(
            bucket=bucket, prefix=prefix, **s3_options(storage), **s3_credentials(storage)
        )
    if parts.scheme in ("gs", "gcs"):
        return ice.gcs_storage(bucket=bucket, prefix=prefix, from_env=True)
    if is_restricted(url, storage):
        raise UnsupportedError(
            f"{url}: Icechunk follows every redirect of a web server; allow redirects to open it"
        )
    if parts.scheme in ("http", "https"):
        return ice.http_storage(url)
    raise UnsupportedError(
        f"{url}: Icechunk repositories on {parts.scheme} are not supported; "
        "supported: file s3 gs http https"
    )


def container_store(ice: Any, prefix: str, storage: Storage | None) -> Any:
    """Return how Icechunk reads sources below `prefix`; it is saved, so it has no credentials."""
    scheme = urlsplit(prefix).scheme
    if scheme == "file":
        return ice.local_filesystem_store(prefix.removeprefix("file://"))
    if scheme in ("s3", "s3a"):
        options = s3_options(storage)
        return ice.s3_store(**options, s3_compatible=bool(options["endpoint_url"]))
    if scheme in ("gs", "gcs"):
        return ice.gcs_store()
    if scheme in ("http", "https"):
        return ice.http_store()
    raise UnsupportedError(
        f"{prefix}: Icechunk cannot refer to {scheme} urls; supported: file s3 gs http https"
    )


def containers_access(ice: Any, prefixes: Iterable[str], storage: Storage | None) -> Any:
    """Return the credentials that let Icechunk read sources below `prefixes`."""
    access = {}
    for prefix in prefixes:
        scheme = urlsplit(prefix).scheme
        if scheme == "file":
            access[prefix] = ice.Credentials.LocalFileSystemAccess()
        elif scheme in ("http", "https"):
            access[prefix] = ice.Credentials.HttpAccess()
        elif scheme in ("s3", "s3a"):
            access[prefix] = ice.s3_credentials(**s3_credentials(storage))
        else:
            access[prefix] = ice.gcs_credentials(from_env=True)
    return ice.containers_credentials(access)
