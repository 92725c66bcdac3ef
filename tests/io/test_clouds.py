"""Azure and Google, each against a server on loopback.

Azurite is an emulator of Azure Storage. There is none of Google's XML interface on PyPI; that
interface is modelled on S3's, and `rclone serve s3` answers obstore's client for Google.
"""

import base64
import json
from datetime import timedelta

import numpy as np
import obstore
import pytest
import tifffile
import zarr
from obstore.store import AzureStore

import anychunk
from anychunk.errors import MissingFileError, OptionError, SourceError, UnsupportedError
from anychunk.io.errors import what_to_do
from anychunk.references.icechunk import open_repository
from tests.support.azure import ACCOUNT, needs_azure, serve_azure
from tests.support.s3 import needs_s3, serve_s3

pytestmark = pytest.mark.processes


VALUES = np.random.default_rng(8).integers(0, 4000, (64, 80), dtype="uint16")
NO_RETRIES = {"retry_config": {"max_retries": 0}}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN", "ENDPOINT"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    for name in ("AZURE_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def tiff(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiff") / "a.tif"
    tifffile.imwrite(path, VALUES, tile=(16, 16), compression="zlib")
    return path


@pytest.fixture(scope="module")
def azure(tiff, tmp_path_factory):
    with serve_azure(tmp_path_factory.mktemp("azure"), "box") as options:
        store = AzureStore("box", **options, client_options={"allow_http": True})
        for name in ("a", "b"):
            obstore.put(store, f"data/{name}.tif", tiff.read_bytes())
        yield options, store


@pytest.fixture(scope="module")
def google(tiff, tmp_path_factory):
    folder = tmp_path_factory.mktemp("google") / "served"
    (folder / "bucket" / "data").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / "bucket" / "data" / f"{name}.tif").write_bytes(tiff.read_bytes())
    with serve_s3(folder, is_open=True) as options:
        key = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
        text = json.dumps({**key, "gcs_base_url": options["endpoint"]})
        (folder / "key.json").write_text(text)
        yield {"service_account_key": text, "client_options": {"allow_http": True}}, folder


def check(url, path="0/0/image", **options):
    np.testing.assert_array_equal(anychunk.open(url, **options)[path][...], VALUES)


def check_saved(bucket, storage):
    """Index a bucket's files, save the index to the bucket, and open it again."""
    files = f"{bucket}/data/*.tif"
    for form in ("i.json", "i.parquet"):
        anychunk.index_to(
            files,
            combine="group",
            storage=storage,
            target_storage=storage,
            target=f"{bucket}/{form}",
        )
        for name in ("a", "b"):
            check(f"{bucket}/{form}", f"{name}/0/0/image", storage=storage)


def without_key(options):
    return {name: value for name, value in options.items() if name != "account_key"}


@needs_azure
def test_azure(azure):
    options, store = azure
    check("az://box/data/a.tif", storage=options)
    check("abfs://box/data/a.tif", storage=options)
    check(f"abfs://box@{ACCOUNT}.dfs.core.windows.net/data/a.tif", storage=options)
    check("data/a.tif", storage=store)
    named = {"account": ACCOUNT, "key": options["account_key"], "endpoint": options["endpoint"]}
    check("az://box/data/a.tif", storage=named)
    check_saved("az://box", options)


@needs_azure
def test_azure_by_the_environment_and_by_signatures(azure, monkeypatch):
    options, store = azure
    url = obstore.sign(store, "GET", "data/a.tif", timedelta(minutes=10))
    assert "sig=" in url
    check(url)
    signature = url.partition("?")[2]
    check("az://box/data/a.tif", storage={**without_key(options), "sas_token": signature})
    for name in ("account_name", "account_key", "endpoint"):
        monkeypatch.setenv(f"AZURE_STORAGE_{name.upper()}", options[name])
    check("az://box/data/a.tif")


@needs_azure
def test_icechunk_on_azure(azure):
    options, _ = azure
    target = "az://box/archive.icechunk"
    assert (
        anychunk.append("az://box/data/a.tif", target, storage=options, target_storage=options) == 1
    )
    assert (
        anychunk.append("az://box/data/*.tif", target, storage=options, target_storage=options) == 1
    )
    check(target, "b/0/0/image", storage=options)
    # Icechunk by itself, with the repository's own containers
    repository = open_repository(target, storage=options)
    assert [s.message for s in repository.ancestry(branch="main")][:2] == ["Add 1 files"] * 2
    (container,) = repository.config.virtual_chunk_containers
    assert container == "az://box/"
    found = zarr.open_group(repository.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(found["a/0/0/image"][...], VALUES)


@needs_azure
def test_errors_of_azure(azure):
    options, _ = azure
    wrong = {**options, "account_key": base64.b64encode(bytes(64)).decode()}
    for storage in (wrong, {**without_key(options), "skip_signature": True}):
        with pytest.raises(SourceError, match="a.tif.*access denied.*AZURE_STORAGE_ACCOUNT_KEY"):
            anychunk.open("az://box/data/a.tif", storage=storage)
    with pytest.raises(MissingFileError, match="none.tif"):
        anychunk.open("az://box/data/none.tif", storage=options)
    with pytest.raises(SourceError, match="no such bucket or container"):
        anychunk.open("az://none/data/a.tif", storage=options)


def test_an_account_is_not_told_twice():
    url = "abfs://box@here.dfs.core.windows.net/a.tif"
    with pytest.raises(OptionError, match="account_name' is 'other', expected the account"):
        anychunk.open(url, storage={"account_name": "other"})
    with pytest.raises(UnsupportedError, match="set AZURE_STORAGE_ACCOUNT_NAME") as caught:
        anychunk.open("az://box/a.tif")
    assert "supported:" not in str(caught.value)


@needs_s3
def test_google(google):
    storage, folder = google
    check("gs://bucket/data/a.tif", storage=storage)
    check("gcs://bucket/data/a.tif", storage=storage)
    client = storage["client_options"]
    check(
        "gs://bucket/data/a.tif",
        storage={"token": str(folder / "key.json"), "client_options": client},
    )
    check_saved("gs://bucket", storage)
    with pytest.raises(MissingFileError, match="none.tif"):
        anychunk.open("gs://bucket/data/none.tif", storage=storage)
    with pytest.raises(SourceError, match="no such bucket or container"):
        anychunk.open("gs://none/data/a.tif", storage=storage)


def test_errors_of_google(tmp_path, monkeypatch):
    (tmp_path / "key.json").write_text("{}")
    for key in (tmp_path / "none.json", tmp_path / "key.json"):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        with pytest.raises(UnsupportedError, match="GOOGLE_APPLICATION_CREDENTIALS.*JSON file"):
            anychunk.open("gs://bucket/a.tif")


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        (
            "computeMetadata/v1/instance/service-accounts/default/token",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        ("metadata/identity/oauth2/token", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("latest/meta-data/iam/security-credentials", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_advice_is_that_of_the_cloud(path, variable):
    """All clouds ask the same address for the credentials of a machine."""
    advice = what_to_do(OSError(f"Error performing GET http://169.254.169.254/{path} in 3ms"))
    assert f"set {variable}" in advice
