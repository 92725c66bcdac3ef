"""Options of obstore as Icechunk takes them; nothing here touches a network."""

from datetime import UTC, datetime
from types import SimpleNamespace

import icechunk
import pytest

from anychunk.errors import AnychunkError, OptionError, UnsupportedError
from anychunk.io.http import SAME_ORIGIN
from anychunk.references.icechunk.storage import (
    azure_credentials,
    azure_options,
    container_store,
    containers_access,
    google_credentials,
    repository_storage,
    s3_credentials,
    s3_options,
)

KEYS = {"access_key_id": "AK", "secret_access_key": "SK"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in (
        "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "ENDPOINT",
        "AWS_REQUEST_PAYER", "AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "AZURE_SKIP_SIGNATURE",
        "ENDPOINT_URL", "REGION", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


class Recorder:
    """Records what Icechunk's functions are called with."""

    def __init__(self):
        self.Credentials = SimpleNamespace(
            LocalFileSystemAccess=lambda: "local", HttpAccess=lambda: "http"
        )

    def __getattr__(self, name):
        return lambda *args, **options: (name, *args, options)


def test_defaults_of_s3():
    for storage in (None, {}):
        assert s3_options(storage) == {
            "region": "us-east-1",
            "endpoint_url": None,
            "allow_http": False,
            "force_path_style": False,
            "requester_pays": False,
        }
        assert s3_credentials(storage) == {"from_env": True}


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url", "aws_endpoint", "AWS_ENDPOINT_URL"])
def test_endpoints(name):
    found = s3_options({name: "http://localhost:9000"})
    assert found["endpoint_url"] == "http://localhost:9000"
    assert (found["allow_http"], found["force_path_style"]) == (True, True)
    found = s3_options({name: "https://s3.example.org"})
    assert (found["allow_http"], found["force_path_style"]) == (False, True)


@pytest.mark.parametrize("name", ["region", "aws_region", "AWS_DEFAULT_REGION"])
def test_regions(name):
    assert s3_options({name: "eu-central-1"})["region"] == "eu-central-1"


def test_the_environment_fills_in(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://env:1")
    assert s3_options(None)["region"] == "eu-west-2"
    assert s3_options(None)["endpoint_url"] == "http://env:1"
    given = s3_options({"region": "here", "endpoint": "https://given"})
    assert (given["region"], given["endpoint_url"]) == ("here", "https://given")
    assert s3_options({"region": None})["region"] == "eu-west-2"
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert s3_options(None)["region"] == "eu-north-1"
    # credentials of the environment are left to Icechunk, which also refreshes them
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    assert s3_credentials(None) == {"from_env": True}


@pytest.mark.parametrize("token", ["session_token", "token", "aws_session_token"])
@pytest.mark.parametrize("prefix", ["", "aws_", "AWS_"])
def test_credentials_by_any_name(prefix, token):
    storage = {f"{prefix}{name}": value for name, value in KEYS.items()}
    assert s3_credentials(storage) == KEYS
    assert s3_credentials({**storage, token: "T"}) == {**KEYS, "session_token": "T"}
    assert s3_credentials({**storage, token: ""}) == KEYS
    assert s3_credentials({**storage, "skip_signature": False}) == KEYS


@pytest.mark.parametrize("name", ["skip_signature", "SKIP_SIGNATURE"])
def test_anonymous_wins_over_keys(name):
    assert s3_credentials({**KEYS, name: True}) == {"anonymous": True}


def test_requester_pays(monkeypatch):
    for storage in ({"request_payer": True}, {"requester_pays": True}, {"request_payer": "true"}):
        assert s3_options(storage)["requester_pays"] is True
        store = container_store(icechunk, "s3://bucket/", storage)
        assert "requester_pays=True" in repr(store)  # saved, for plain readers
    assert s3_options({"request_payer": False})["requester_pays"] is False
    monkeypatch.setenv("AWS_REQUEST_PAYER", "true")
    assert s3_options(None)["requester_pays"] is True


@pytest.mark.parametrize(
    ("credentials", "variable"),
    [
        (s3_credentials, "AWS_SKIP_SIGNATURE"),
        (google_credentials, "GOOGLE_SKIP_SIGNATURE"),
        (azure_credentials, "AZURE_SKIP_SIGNATURE"),
    ],
)
def test_public_data_by_the_environment(monkeypatch, credentials, variable):
    assert credentials(None) == {"from_env": True}
    monkeypatch.setenv(variable, "true")
    assert credentials(None) == {"anonymous": True}
    monkeypatch.setenv(variable, "false")
    assert credentials(None) == {"from_env": True}
    if credentials is s3_credentials:
        monkeypatch.setenv(variable, "true")
        assert credentials(KEYS) == KEYS


def test_functions_that_return_credentials():
    end = datetime(2030, 1, 1, tzinfo=UTC)
    keys = {**KEYS, "token": "T", "expires_at": end}
    given = {**KEYS, "session_token": "T", "expires_after": end}

    async def later():
        return keys

    for provider in (lambda: keys, later):
        assert s3_credentials({"credential_provider": provider}) == given
    icechunk.s3_credentials(**given)
    token = {"credential_provider": lambda: {"token": "T", "expires_at": None}}
    assert google_credentials(token) == {"bearer_token": "T"}
    assert azure_credentials(token) == {"bearer_token": "T"}
    signed = {"credential_provider": lambda: {"sas_token": "S", "expires_at": None}}
    assert azure_credentials(signed) == {"sas_token": "S"}
    with pytest.raises(OptionError, match="credential_provider"):
        s3_credentials({"credential_provider": dict})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_repositories_on_s3(scheme):
    storage = {**KEYS, "endpoint": "http://h:1", "region": "r", "session_token": "T"}
    name, options = repository_storage(Recorder(), f"{scheme}://bucket/a/b.icechunk/", storage)
    assert name == "s3_storage"
    assert options == {
        "bucket": "bucket",
        "prefix": "a/b.icechunk",
        "region": "r",
        "endpoint_url": "http://h:1",
        "allow_http": True,
        "force_path_style": True,
        "requester_pays": False,
        **KEYS,
        "session_token": "T",
    }
    _, options = repository_storage(Recorder(), f"{scheme}://bucket", {"skip_signature": True})
    assert (options["prefix"], options["anonymous"]) == (None, True)


def test_names_of_other_libraries_mean_the_same():
    named = {"key": "AK", "secret": "SK", "client_kwargs": {"endpoint_url": "http://h:1"}}
    assert s3_credentials(named) == KEYS
    assert s3_options(named)["endpoint_url"] == "http://h:1"
    assert s3_credentials({"anon": True}) == {"anonymous": True}


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (None, {"from_env": True}),
        ({"skip_signature": True}, {"anonymous": True}),
        ({"token": "anon"}, {"anonymous": True}),
        ({"token": "key.json"}, {"service_account_file": "key.json"}),
        ({"service_account_path": "key.json"}, {"service_account_file": "key.json"}),
        ({"service_account_key": "{}"}, {"service_account_key": "{}"}),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "a.json"}, {"application_credentials": "a.json"}),
    ],
)
def test_credentials_of_google(storage, expected):
    assert google_credentials(storage) == expected
    _, options = repository_storage(Recorder(), "gs://bucket/a", storage)
    assert options == {"bucket": "bucket", "prefix": "a", **expected}
    access = containers_access(icechunk, ["gs://bucket/"], storage)
    assert list(access) == ["gs://bucket/"]


def test_azure_servers_and_accounts_in_urls(monkeypatch):
    url = "abfs://container@account.dfs.core.windows.net/a"
    storage = {"endpoint": "http://127.0.0.1:1/account", "account_key": "K"}
    plain = {"azure_storage_endpoint": storage["endpoint"], "azure_allow_http": "true"}
    _, options = repository_storage(Recorder(), url, storage)
    assert options == {
        "account": "account", "container": "container", "prefix": "a", "access_key": "K",
        "config": plain,
    }  # fmt: skip
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://private")
    assert azure_options(None) == {"azure_storage_endpoint": "https://private"}


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_repositories_on_gcs(scheme):
    found = repository_storage(Recorder(), f"{scheme}://bucket/a", None)
    assert found == ("gcs_storage", {"bucket": "bucket", "prefix": "a", "from_env": True})


def test_repositories_on_the_web():
    url = "https://host/a.icechunk"
    assert repository_storage(Recorder(), url, None) == ("http_storage", url, {})
    with pytest.raises(UnsupportedError, match=url):
        # Icechunk's own client would follow a redirect to another host
        repository_storage(Recorder(), url, {"redirects": SAME_ORIGIN})


def test_local_repositories(tmp_path):
    target = str(tmp_path / "a b")
    for url in (target, f"file://{tmp_path}/a%20b"):
        assert repository_storage(Recorder(), url, None) == ("local_filesystem_storage", target, {})


@pytest.mark.parametrize("scheme", ["az", "azure", "abfs"])
def test_repositories_on_azure(scheme, monkeypatch):
    url = f"{scheme}://container/a/b.icechunk"
    with pytest.raises(UnsupportedError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        repository_storage(Recorder(), url, None)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "of-environment")
    name, options = repository_storage(Recorder(), url, None)
    assert name == "azure_storage"
    place = {"container": "container", "prefix": "a/b.icechunk", "config": None}
    assert options == {"account": "of-environment", **place, "from_env": True}
    storage = {"account_name": "given", "account_key": "K", "sas_key": ""}
    _, options = repository_storage(Recorder(), url, storage)
    assert options == {"account": "given", **place, "access_key": "K"}
    access = containers_access(Recorder(), [f"{scheme}://container/"], {"sas_token": "S"})
    assert access[1] == {f"{scheme}://container/": ("azure_credentials", {"sas_token": "S"})}
    # Icechunk itself takes these
    assert repository_storage(icechunk, url, storage)
    store = container_store(icechunk, f"{scheme}://container/", storage)
    assert icechunk.VirtualChunkContainer(f"{scheme}://container/", store)


@pytest.mark.parametrize("url", ["ftp://host/a"])
def test_other_repositories_are_refused(url):
    with pytest.raises(AnychunkError, match=url.partition(":")[0]):
        repository_storage(Recorder(), url, None)


def test_stores_of_containers():
    recorder = Recorder()
    found = container_store(recorder, "file:///data/a b/", None)
    assert found == ("local_filesystem_store", "/data/a b/", {})
    assert container_store(recorder, "gs://bucket/", None) == ("gcs_store", {})
    assert container_store(recorder, "https://host/", None) == ("http_store", {})
    storage = {**KEYS, "endpoint": "http://h:1"}
    name, options = container_store(recorder, "s3://bucket/", storage)
    assert name == "s3_store"
    assert (options["endpoint_url"], options["s3_compatible"]) == ("http://h:1", True)
    # it is written into the repository
    assert not {"access_key_id", "secret_access_key", "session_token"} & set(options)
    assert container_store(recorder, "s3a://bucket/", None)[1]["s3_compatible"] is False
    with pytest.raises(UnsupportedError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        container_store(icechunk, "az://container/", None)


def test_access_to_containers():
    prefixes = ["file:///d/", "http://a/", "https://b/", "s3://c/", "gs://d/"]
    name, access, _ = containers_access(Recorder(), prefixes, KEYS)
    assert name == "containers_credentials"
    assert access == {
        "file:///d/": "local",
        "http://a/": "http",
        "https://b/": "http",
        "s3://c/": ("s3_credentials", KEYS),
        "gs://d/": ("gcs_credentials", {"from_env": True}),
    }


def test_icechunk_takes_all_of_them(tmp_path):
    """The real functions, which check their arguments; none of them connects."""
    storage = {**KEYS, "endpoint": "http://localhost:1", "token": "T"}
    for options in (storage, {"skip_signature": True}, None):
        assert repository_storage(icechunk, "s3://bucket/a", options) is not None
        assert container_store(icechunk, "s3://bucket/", options) is not None
        assert containers_access(icechunk, ["s3://bucket/"], options)
    assert repository_storage(icechunk, "gs://bucket/a", None) is not None
    assert repository_storage(icechunk, str(tmp_path / "r"), None) is not None
    for prefix in ("gs://bucket/", "https://host/", f"file://{tmp_path}/"):
        assert container_store(icechunk, prefix, None) is not None
        assert containers_access(icechunk, [prefix], None)
