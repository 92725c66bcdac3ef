"""What `storage=` may be, and the names that other libraries have for the same options.

`storage` is a mapping of options, an obstore store, or an fsspec filesystem. Options are obstore's
own; those of s3fs, gcsfs and adlfs are translated where they mean the same.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from anychunk.errors import OptionError, UnsupportedError
from anychunk.io.source import PLAIN, SIGNED, Storage, is_remote, without_secrets

OWN = frozenset({"resolve", "redirects", "filesystem", "query", "sign", SIGNED})
"""Options of ours, which obstore does not know."""


def options_of(storage: Storage | None) -> Mapping[str, Any]:
    """Return `storage` as options, whatever the caller passed."""
    if storage is None:
        return {}
    if isinstance(storage, Mapping):
        return storage
    if is_store(storage):
        # with its settings, for libraries that read the same bucket by themselves (Icechunk)
        settings = getattr(storage, "config", None) or {}
        return {**settings, "resolve": partial(path_in_store, storage)}
    if is_filesystem(storage):
        return {"filesystem": storage}
    raise OptionError(
        f"storage is of type {type(storage).__name__}, expected a dictionary of options, an "
        "obstore store, or an fsspec filesystem"
    )


def is_store(storage: object) -> bool:
    """Return whether `storage` is a store of obstore, or of a class derived from one."""
    return any(base.__module__.startswith("obstore.") for base in type(storage).__mro__)


def is_filesystem(storage: object) -> bool:
    """Return whether `storage` is an fsspec filesystem, without importing fsspec."""
    return all(hasattr(storage, name) for name in ("cat_file", "info", "_strip_protocol"))


def filesystem_of(storage: Storage | None) -> Any:
    """Return the fsspec filesystem that reads remote urls, or None."""
    return options_of(storage).get("filesystem")


def path_in_store(store: Any, url: str) -> tuple[Any, str]:
    """Return a store and the path of a url in it; a url of another place is refused."""
    root = root_of_store(store)
    if url != root and not url.startswith(f"{root}/"):
        raise UnsupportedError(
            f"{without_secrets(url)}: lies outside the store that was passed as storage, {root}"
        )
    return store, unquote(urlsplit(url[len(root) :]).path).lstrip("/")


def root_of_store(store: Any) -> str:
    """Return the url of a store, without a slash at its end; paths in the store are below it."""
    kind = type(store).__name__
    config = getattr(store, "config", None) or {}
    prefix = str(getattr(store, "prefix", None) or "").strip("/")
    if hasattr(store, "url"):
        return without_secrets(str(store.url)).rstrip("/")
    if "container_name" in config:
        root = f"az://{config['container_name']}"
    elif "bucket" in config:
        root = f"{'gs' if 'GCS' in kind or 'Google' in kind else 's3'}://{config['bucket']}"
    elif "Local" in kind:
        return f"file:///{prefix}".rstrip("/")
    else:
        root = f"memory://store-{id(store):x}"
    return f"{root}/{quote(prefix, safe=PLAIN)}" if prefix else root


def in_store(url: str, storage: Storage | None) -> str:
    """Return the full url of a path in the store that was passed as storage."""
    if storage is None or isinstance(storage, Mapping) or is_remote(url) or not is_store(storage):
        return url
    return f"{root_of_store(storage)}/{quote(url.lstrip('/'), safe=PLAIN)}"


ANONYMOUS = "skip_signature"
S3_NAMES = {
    "anon": ANONYMOUS, "key": "access_key_id", "secret": "secret_access_key",
    "token": "session_token", "endpoint_url": "endpoint", "region_name": "region",
    "requester_pays": "request_payer", "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key", "aws_session_token": "session_token",
    "username": "access_key_id", "password": "secret_access_key",
}  # fmt: skip
AZURE_NAMES = {"anon": ANONYMOUS, "account": "account_name", "key": "account_key"}
ACCOUNTS = ("account_name", "azure_storage_account_name", "azure_storage_account")
GOOGLE_NAMES = {"anon": ANONYMOUS, "endpoint_url": "endpoint"}
ADVICE = {
    "profile": "obstore reads no profiles: export the credentials as AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or pass credential_provider="
    "obstore.auth.boto3.Boto3CredentialProvider(boto3.Session(profile_name=…))",
    "connection_string": "pass account_name and account_key, or sas_token, instead",
}


def obstore_options(scheme: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options under obstore's names.

    Parameters:
        scheme: Of the url: s3, gs, az, http …
        given: Options as the caller passed them.
        where: Names the url in messages.
    """
    options = {name: value for name, value in given.items() if name not in OWN}
    # both a name of ours and a nested dictionary of s3fs: {"client_kwargs": {"region_name": …}}
    options |= dict(options.pop("client_kwargs", None) or {})
    for name, advice in ADVICE.items():
        if name in options:
            raise OptionError(f"{where}: storage option {name!r} is not supported; {advice}")
    if scheme == "s3":
        return _renamed(options, S3_NAMES, where)
    if scheme == "gs":
        return _google(_renamed(options, GOOGLE_NAMES, where))
    if scheme in ("az", "abfs", "abfss"):
        named = _renamed(options, AZURE_NAMES, where)
        # obstore takes the account of the url itself, and refuses to be told twice
        return _without_account(named, where) if account_in(where) else named
    if headers := options.pop("headers", None):
        options["client_options"] = _with_headers(options, dict(headers))
    return options


def account_in(url: str) -> str | None:
    """Return the storage account that a url names, as `abfs://container@account.dfs.…` does."""
    parts = urlsplit(url)
    is_azure = parts.scheme in ("abfs", "abfss", "az", "azure")
    return (
        parts.hostname.partition(".")[0] if is_azure and parts.username and parts.hostname else None
    )


def _without_account(options: dict[str, Any], url: str) -> dict[str, Any]:
    """Remove the account from options, unless it is another than that of the url."""
    names = [name for name in options if str(name).lower() in ACCOUNTS]
    for name in names:
        if options[name] != account_in(url):
            raise OptionError(
                f"{url}: storage option {name!r} is {options[name]!r}, expected the account that "
                "the url names"
            )
    return {name: value for name, value in options.items() if name not in names}


def _renamed(options: dict[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        other = names.get(str(name).lower(), name)
        if other in found:
            raise OptionError(f"{where}: storage option {name!r} repeats {other!r}")
        if value is not None:
            found[other] = value
    return found


def _google(options: dict[str, Any]) -> dict[str, Any]:
    """Translate gcsfs' `token` and `requester_pays`, a project that pays."""
    token = options.pop("token", None)
    if token == "anon":  # noqa: S105 - not a password
        options[ANONYMOUS] = True
    elif isinstance(token, Mapping):
        options["service_account_key"] = json.dumps(dict(token))
    elif token is not None:
        options["service_account_path"] = str(token)
    options.pop("project", None)
    if payer := options.pop("requester_pays", None):
        options["client_options"] = _with_headers(options, {"x-goog-user-project": str(payer)})
    return options


def _with_headers(options: Mapping[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    client = dict(options.get("client_options") or {})
    return {**client, "default_headers": {**dict(client.get("default_headers") or {}), **headers}}
