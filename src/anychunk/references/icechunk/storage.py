"""Icechunk's storage and credentials, from the options that obstore takes.

Credentials come from the options or the environment, and are never written into a repository.
"""

import inspect
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import imagecodecs
import numpy as np

from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, OptionError, UnsupportedError
from anychunk.io.http import is_restricted
from anychunk.io.inside import check_tree
from anychunk.io.opening import Folder
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


# Check the FlexBuffers in a repository's `repo` file before Icechunk follows their offsets.
#
# Icechunk verifies the FlatBuffers of the file, but not the FlexBuffers inside: its configuration
# and the metadata of snapshots. Their reader follows every offset. One to itself overflows the
# stack,
# which ends the process; so does deep nesting. Vectors that share their elements take exponential
# time. Here values are counted: each takes at least one byte, so more values than bytes are no
# tree.
#
# Specifications: Icechunk 2, `repo.fbs`; FlatBuffers and FlexBuffers internals.

HEADER = 39
"""Magic bytes, name of the writer, version, kind of file, compression."""
ZSTD = 1
WITH_FLEXBUFFERS = 2
"""The first version of the format that has them."""
SNAPSHOTS, METADATA, CONFIG = 4, 6, 9
"""Fields of `Repo`."""
SNAPSHOT_METADATA = 4
"""Field of `SnapshotInfo`."""
VALUE = 1
"""Field of `MetadataItem`."""
MAP, VECTOR = 9, 10
"""Types of FlexBuffers that contain values of any type."""
MOST_LEVELS = 64
"""How deep values may be nested; Icechunk's configuration has 6 levels."""
WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def check_repo_file(folder: Folder) -> None:
    """Raise `FormatError` if Icechunk would not come back from reading the `repo` file.

    Anything else that is wrong with it is left to Icechunk, which reports it.
    """
    try:
        data = folder.read("repo")
    except (AnychunkError, OSError):
        return
    if data is None or len(data) <= HEADER or data[HEADER - 3] < WITH_FLEXBUFFERS:
        return
    plain = data[HEADER:]
    if data[HEADER - 1] == ZSTD:
        most = np.empty(limits.get().header_bytes, np.uint8)
        try:
            plain = bytes(imagecodecs.zstd_decode(plain, out=most))
        except Exception:  # noqa: BLE001 - damaged, or too long for what follows
            return
    try:
        found = list(_flexbuffers(plain))
    except (struct.error, IndexError, ValueError):
        return
    for name, value in found:
        if not is_tree(value):
            raise FormatError(
                f"{folder.path}/repo: {name} refers to itself, or to the same values over and over"
            )


def _flexbuffers(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the FlexBuffers in a repo file."""
    root = _target(data, 0)
    yield from ((f"metadata {i}", v) for i, v in enumerate(_values(data, root, METADATA)))
    for number, snapshot in enumerate(_tables(data, root, SNAPSHOTS)):
        for value in _values(data, snapshot, SNAPSHOT_METADATA):
            yield f"the metadata of snapshot {number}", value
    config = _field(data, root, CONFIG)
    if config:
        yield "the configuration", _bytes(data, config)


def _values(data: bytes, table: int, field: int) -> Iterator[bytes]:
    """Yield the values of a vector of `MetadataItem`."""
    for item in _tables(data, table, field):
        place = _field(data, item, VALUE)
        if place:
            yield _bytes(data, place)


def _tables(data: bytes, table: int, field: int) -> Iterator[int]:
    """Yield the positions of the tables in a vector; nothing if the field is absent."""
    place = _field(data, table, field)
    if place:
        start = _target(data, place)
        (count,) = struct.unpack_from("<I", data, start)
        if 4 * count > len(data):
            raise ValueError("longer than the file")
        for i in range(count):
            yield _target(data, start + 4 + 4 * i)


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table; 0 if it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise ValueError("before the file")
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + int(offset) if offset else 0


def _target(data: bytes, place: int) -> int:
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)


def _bytes(data: bytes, place: int) -> bytes:
    start = _target(data, place)
    (count,) = struct.unpack_from("<I", data, start)
    return data[start + 4 : start + 4 + count]


def is_tree(data: bytes) -> bool:
    """Return whether following the offsets of a FlexBuffer reaches no more values than it has."""
    if len(data) < 3:
        return True
    width, left = data[-1], len(data)
    # (position, width of what is stored there, packed type) of the values of one level
    level = [(len(data) - 2 - width, width, data[-2])]
    for _ in range(MOST_LEVELS):
        following = []
        for value in level:
            inner = _inner(data, *value, left)
            if inner is None:
                return False
            left -= len(inner)
            following += inner
        level = following
    return not level


def _inner(
    data: bytes, place: int, width: int, packed: int, most: int
) -> list[tuple[int, int, int]] | None:
    """Return the values inside a value; None if they are more than `most`."""
    if packed >> 2 not in (MAP, VECTOR):
        return []
    start = place - _unsigned(data, place, width)
    own = 1 << (packed & 3)
    count = _unsigned(data, start - own, own)
    if start < own or start + count * (own + 1) > len(data):
        return []  # Icechunk reports what is beyond the end
    if count > most:
        return None
    types = data[start + count * own : start + count * (own + 1)]
    return [(start + i * own, own, kind) for i, kind in enumerate(types)]


def _unsigned(data: bytes, place: int, width: int) -> int:
    """Return an integer; 0 if it is outside the data."""
    if width not in WIDTHS or not 0 <= place <= len(data) - width:
        return 0
    (number,) = struct.unpack_from(WIDTHS[width], data, place)
    return int(number)
