"""Icechunk's storage and credentials, from the options that obstore takes.

Credentials come from the options or the environment, and are never written into a repository.
"""

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from anychunk.errors import OptionError, UnsupportedError
from anychunk.io.http import is_restricted
from anychunk.io.inside import check_tree
from anychunk.io.source import Storage, drive_first, is_remote, local_path
from anychunk.io.storage import ACCOUNTS, ANONYMOUS, account_in, obstore_options, options_of
from anychunk.zarr.core import sync

PROVIDER = "credential_provider"
"""Obstore's option for a function that returns credentials."""
ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
REGIONS = ("region", "aws_region", "aws_default_region")
PAYERS = ("request_payer", "aws_request_payer")
CREDENTIALS = {
    "access_key_id": ("access_key_id", "aws_access_key_id"),
    "secret_access_key": ("secret_access_key", "aws_secret_access_key"),
    "session_token": ("session_token", "token", "aws_session_token"),
}
"""Icechunk's names of credentials, and obstore's names of the same."""
AZURE_CREDENTIALS = {
    "access_key": ("access_key", "account_key", "azure_storage_account_key"),
    "sas_token": ("sas_token", "sas_key", "azure_storage_sas_token", "azure_storage_sas_key"),
    "bearer_token": ("bearer_token", "token", "azure_storage_token"),
}
"""The same for Azure."""
AZURE_ENDPOINTS = ("endpoint", "azure_storage_endpoint", "azure_endpoint")
AZURE_SCHEMES = ("az", "azure", "abfs", "abfss")
GOOGLE_CREDENTIALS = {
    "service_account_file": (
        "service_account_path", "service_account", "google_service_account_path",
        "google_service_account",
    ),
    "service_account_key": ("service_account_key", "google_service_account_key"),
    "application_credentials": ("application_credentials", "google_application_credentials"),
    "bearer_token": ("bearer_token", "token"),
}  # fmt: skip
"""The same for Google."""


def _named(storage: Storage | None, scheme: str) -> dict[str, Any]:
    """Return options by obstore's names in lower case, whatever the caller called them."""
    given = {str(name).lower(): value for name, value in options_of(storage).items()}
    return obstore_options(scheme, given, "storage")


def _option(options: dict[str, Any], names: Iterable[str]) -> Any:
    """Return an option by any of its names, or else from the environment."""
    for name in names:
        if options.get(name) is not None:
            return options[name]
    return next((os.environ[n.upper()] for n in names if os.environ.get(n.upper())), None)


def s3_options(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's options for S3: region, endpoint and addressing, without credentials."""
    options = _named(storage, "s3")
    endpoint = _option(options, ENDPOINTS)
    return {
        "region": _option(options, REGIONS) or "us-east-1",
        "endpoint_url": endpoint,
        "allow_http": bool(endpoint) and str(endpoint).startswith("http:"),
        # servers other than AWS rarely have a host name for every bucket
        "force_path_style": bool(endpoint),
        "requester_pays": _is_true(_option(options, PAYERS)),
    }


def s3_credentials(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's credentials for S3: anonymous, or from the options or the environment."""
    return _credentials(_named(storage, "s3"), CREDENTIALS, "aws")


def google_credentials(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's credentials for Google Cloud Storage, likewise."""
    given = _credentials(_named(storage, "gs"), GOOGLE_CREDENTIALS, "google")
    # Icechunk takes one of them
    return dict(list(given.items())[:1])


def azure_credentials(storage: Storage | None) -> dict[str, Any]:
    """Return Icechunk's credentials for Azure, likewise."""
    given = _credentials(_named(storage, "az"), AZURE_CREDENTIALS, "azure")
    # Icechunk takes one of the three
    return dict(list(given.items())[:1])


def azure_options(storage: Storage | None) -> dict[str, str]:
    """Return Icechunk's options for an Azure server other than Microsoft's."""
    endpoint = _option(_named(storage, "az"), AZURE_ENDPOINTS)
    if not endpoint:
        return {}
    is_plain = str(endpoint).startswith("http:")
    return {
        "azure_storage_endpoint": str(endpoint),
        **({"azure_allow_http": "true"} if is_plain else {}),
    }


def _credentials(
    options: Mapping[str, Any], known: Mapping[str, Sequence[str]], cloud: str
) -> dict[str, Any]:
    """Return credentials: anonymous, given by the caller, or those of the environment.

    Parameters:
        options: By obstore's names.
        known: Icechunk's names of credentials, and obstore's names of the same.
        cloud: How the variables of the environment begin.
    """
    if _is_true(options.get(ANONYMOUS)):
        return {"anonymous": True}
    if (provider := options.get(PROVIDER)) is not None:
        options = _provided(provider)
    given = {
        name: value
        for name, names in known.items()
        if (value := options.get(next((n for n in names if n in options), "")))
    }
    if provider is not None and not given:
        raise OptionError(
            f"storage option {PROVIDER!r} returned {sorted(options)}, expected one of "
            f"{' '.join(names[0] for names in known.values())}"
        )
    if provider is not None and cloud == "aws" and options.get("expires_at") is not None:
        given["expires_after"] = options["expires_at"]
    if given:
        return given
    if _is_true(_option({}, (f"{cloud}_{ANONYMOUS}",))):
        return {"anonymous": True}
    return {"from_env": True}


def _provided(provider: Any) -> dict[str, Any]:
    """Return the credentials that obstore would ask a provider for, which may be asynchronous."""
    found = provider()
    if inspect.isawaitable(found):

        async def wait() -> Any:
            return await found

        found = sync(wait())
    return dict(found)


def has_provider(storage: Storage | None) -> bool:
    """Return whether credentials come from a function, and are valid for a time only."""
    return options_of(storage).get(PROVIDER) is not None


def _is_true(value: object) -> bool:
    """Return whether an option is set, which may be text, as in the environment."""
    return str(value).lower() in ("true", "1", "yes", "on", "y", "t")


def azure_account(url: str, storage: Storage | None) -> str:
    """Return the name of the storage account that a container is in.

    Raises:
        UnsupportedError: Neither the options nor the environment name it.
    """
    account = account_in(url) or _option(_named(storage, "az"), ACCOUNTS)
    if account is None:
        raise UnsupportedError(
            f"{url}: the storage account is unknown; set AZURE_STORAGE_ACCOUNT_NAME, or pass "
            "storage={'account_name': …}"
        )
    return str(account)


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
        return ice.gcs_storage(bucket=bucket, prefix=prefix, **google_credentials(storage))
    if parts.scheme in AZURE_SCHEMES:
        return ice.azure_storage(
            account=azure_account(url, storage),
            container=bucket.partition("@")[0],
            prefix=prefix or "",
            config=azure_options(storage) or None,
            **azure_credentials(storage),
        )
    if is_restricted(url, storage):
        raise UnsupportedError(
            f"{url}: Icechunk follows every redirect of a web server; allow redirects to open it"
        )
    if parts.scheme in ("http", "https"):
        return ice.http_storage(url)
    raise UnsupportedError(
        f"{url}: Icechunk repositories on {parts.scheme} are not supported; "
        "supported: file s3 gs az http https"
    )


def container_store(ice: Any, prefix: str, storage: Storage | None) -> Any:
    """Return how Icechunk reads sources below `prefix`; it is saved, so it has no credentials."""
    scheme = urlsplit(prefix).scheme
    if scheme == "file":
        return ice.local_filesystem_store(drive_first(prefix.removeprefix("file://")))
    if scheme in ("s3", "s3a"):
        options = s3_options(storage)
        return ice.s3_store(**options, s3_compatible=bool(options["endpoint_url"]))
    if scheme in ("gs", "gcs"):
        return ice.gcs_store()
    if scheme in AZURE_SCHEMES:
        account = {"account": azure_account(prefix, storage)}
        return ice.ObjectStoreConfig.Azure({**account, **azure_options(storage)})
    if scheme in ("http", "https"):
        return ice.http_store()
    raise UnsupportedError(
        f"{prefix}: Icechunk cannot refer to {scheme} urls; supported: file s3 gs az http https"
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
        elif scheme in AZURE_SCHEMES:
            access[prefix] = ice.azure_credentials(**azure_credentials(storage))
        else:
            access[prefix] = ice.gcs_credentials(**google_credentials(storage))
    return ice.containers_credentials(access)
