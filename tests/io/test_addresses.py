"""Signed urls, credentials, stores and files of every kind that a caller may pass."""

import copy
import io
import json
import multiprocessing
import os
import pickle
import traceback
import zipfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import fsspec
import numpy as np
import obstore
import pytest
import tifffile
import zarr
from obstore.store import HTTPStore, LocalStore, MemoryStore, S3Store

import anychunk
from anychunk import limits
from anychunk.errors import (
    AnychunkError,
    MissingFileError,
    OptionError,
    SourceError,
    UnsupportedError,
)
from anychunk.io.object_stores import memory_store, object_store
from anychunk.io.objects import ObjectSource
from anychunk.io.opening import open_source, read_object
from anychunk.io.source import as_url, is_pattern, with_secrets, without_secrets
from anychunk.io.storage import obstore_options
from tests.support import http_server
from tests.support.s3 import KEY, SECRET, needs_s3, serve_s3

pytestmark = pytest.mark.processes


VALUES = np.arange(96 * 80, dtype=np.uint16).reshape(96, 80)
SIGNED = "X-Amz-Algorithm=AWS4&X-Amz-Credential=AK%2F1&X-Amz-Signature=SECRET*%5B"

TOKENS = (
    "private_token", "PRIVATE-TOKEN", "accessToken", "client_secret", "clientSecret", "access_key",
    "accessKey", "secretAccessKey", "X-Api-Key", "api_key", "user_password", "id_token",
    "Ocp-Apim-Subscription-Key", "AWSAccessKeyId", "GoogleAccessId", "account_key",
    "X-OSS-Security-Token", "oauth_signature", "%74oken",
)  # fmt: skip


@pytest.fixture(scope="module")
def tiff(tmp_path_factory):
    path = tmp_path_factory.mktemp("addresses") / "a b.tif"
    tifffile.imwrite(path, VALUES, tile=(16, 16))
    return path


class Server:
    """What a server on loopback was asked, and what it requires."""

    def __init__(self):
        self.requests, self.query, self.headers = [], {}, {}
        self.has_ranges = True


@contextmanager
def serving(content):
    """Serve `content` to requests with the query and the headers that `Server` requires."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args):
            pass

        def do_GET(self):
            state.requests.append((self.command, self.path, dict(self.headers.items())))
            asked = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
            lower = {k.lower(): v for k, v in self.headers.items()}
            if any(asked.get(k) != v for k, v in state.query.items()):
                return self.answer(403, b"")
            if any(lower.get(k) != v for k, v in state.headers.items()):
                return self.answer(401, b"")
            wanted = self.headers.get("Range")
            if not wanted or not state.has_ranges:
                return self.answer(200, content)
            first, last = wanted.removeprefix("bytes=").split("-")
            if int(first) >= len(content):
                return self.answer(416, b"")
            piece = content[int(first) : int(last) + 1]
            span = f"bytes {first}-{int(first) + len(piece) - 1}/{len(content)}"
            return self.answer(206, piece, span)

        do_HEAD = do_GET

        def answer(self, status, body, span=None):
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Tue, 01 Jan 2030 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            if span:
                self.send_header("Content-Range", span)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with http_server.running(Handler) as url:
        state.url = url
        yield state


@pytest.fixture
def web(tiff):
    with serving(tiff.read_bytes()) as state:
        yield state


def pixels(opened):
    return np.asarray(opened["0/0/image"][...]).reshape(VALUES.shape)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a.tif?versionId=7", "https://h/a.tif?versionId=7"),
        (f"https://h/a.tif?versionId=7&{SIGNED}", "https://h/a.tif?versionId=7"),
        # Azure: https://learn.microsoft.com/rest/api/storageservices/create-service-sas
        (
            "https://h/a?sv=2023&sr=b&sp=r&se=2030&sig=SECRET%3D&snapshot=1",
            "https://h/a?snapshot=1",
        ),
        ("https://h/a?sv=2023&sp=r", "https://h/a?sv=2023&sp=r"),  # no signature: part of the name
        ("https://h/a?X-Goog-Signature=SECRET&X-Goog-Date=1", "https://h/a"),
        ("https://h/a?Expires=9&Key-Pair-Id=K&Signature=SECRET&Policy=P", "https://h/a"),
        ("https://h/a?page=2&access_token=SECRET", "https://h/a?page=2"),
        ("https://user:SECRET@h:81/a%20b", "https://h:81/a%20b"),
        *((f"https://h/a?{name}=SECRET&versionId=7", "https://h/a?versionId=7") for name in TOKENS),
        *(("https://h/a?" + query,) * 2 for query in ("key=a", "monkey=1", "tokens=2", "page=3")),
        ("s3://bucket/a?sig=1", "s3://bucket/a?sig=1"),
        ("abfs://container@account.dfs.core.windows.net/a",) * 2,
        ("/home/me@work/a?sig=1.tif", "/home/me@work/a?sig=1.tif"),
    ],
)
def test_names_of_urls_with_secrets(url, name):
    assert without_secrets(url) == name


def test_a_signed_url_is_read_and_its_signature_is_nowhere(web, tmp_path):
    web.query = {"X-Amz-Signature": "SECRET*["}
    url = f"{web.url}/a%20b.tif?{SIGNED}"
    assert not is_pattern(url)
    index = anychunk.index(url)
    assert list(index.pins) == [f"{web.url}/a%20b.tif"]
    opened = anychunk.open(index)
    np.testing.assert_array_equal(pixels(opened), VALUES)
    assert all("X-Amz-Signature=SECRET*%5B" in path for _, path, _ in web.requests)
    assert b"SECRET" not in pickle.dumps(index)
    assert "SECRET" not in repr(index) + json.dumps(anychunk.describe(index))
    for name in ("i.json", "i.parquet", "i.icechunk"):
        index.save(tmp_path / name)
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"SECRET" not in written
    assert web.url.encode() in written
    # a saved index has no signature: who opens it passes one
    with limits.override(retries=0), pytest.raises(SourceError, match="403"):
        pixels(anychunk.open(tmp_path / "i.json", allow=[web.url]))
    storage = {"query": SIGNED}
    saved = anychunk.open(tmp_path / "i.json", allow=[web.url], storage=storage)
    np.testing.assert_array_equal(pixels(saved), VALUES)


@pytest.mark.parametrize("storage", [None, {"redirects": "same-origin"}])
def test_a_signature_is_not_sent_for_another_caller(web, storage):
    url = f"{web.url}/two.tif"
    signed = anychunk.open_array(f"{url}?versionId=7&private_token=SECRET", storage=storage)
    web.requests.clear()
    unsigned = anychunk.open_array(f"{url}?versionId=7", storage=storage)
    np.testing.assert_array_equal(unsigned[...].reshape(VALUES.shape), VALUES)
    assert web.requests
    assert not [path for _, path, _ in web.requests if "SECRET" in path]
    web.requests.clear()
    for array in (signed, pickle.loads(pickle.dumps(signed)), copy.deepcopy(signed)):
        np.testing.assert_array_equal(array[...].reshape(VALUES.shape), VALUES)
    assert web.requests
    assert all("private_token=SECRET" in path for _, path, _ in web.requests)
    assert "SECRET" not in repr(signed.store) + repr(unsigned.store)


@pytest.mark.parametrize("name", ["accessToken", "client_secret", "access_key"])
def test_tokens_are_nowhere(web, tmp_path, name):
    url = f"{web.url}/t.tif?{name}=SECRET"
    index = anychunk.index(url)
    index.save(tmp_path / "i.json")
    assert "SECRET" not in (tmp_path / "i.json").read_text() + repr(index) + repr(index.pins)
    assert b"SECRET" not in pickle.dumps(index)
    web.query = {name: "another"}
    with limits.override(retries=0), pytest.raises(SourceError, match="403") as caught:
        anychunk.index(url)
    assert "SECRET" not in str(caught.value)


def test_several_signed_urls_are_named_by_their_paths(web):
    web.query = {"sig": "SECRET"}
    urls = [f"{web.url}/{n}.tif?sp=r&sig=SECRET" for n in "ab"]
    group = anychunk.index(urls, combine="group")
    assert list(group.members) == ["a", "b"]
    assert list(group.pins) == [f"{web.url}/{n}.tif" for n in "ab"]
    web.query = {"sig": "another"}
    with pytest.raises(AnychunkError) as caught:
        anychunk.index(urls, combine="stack")
    assert "SECRET" not in str(caught.value)


def test_the_signature_of_a_folder_is_that_of_its_files(web):
    root = f"{web.url}/f.zarr"
    assert with_secrets(f"{root}/0/zarr.json", {}) == f"{root}/0/zarr.json"
    signed = {root: f"{root}?sp=r&sig=SECRET"}
    whole = f"{root}/0/zarr.json?x=1&sp=r&sig=SECRET"
    assert with_secrets(f"{root}/0/zarr.json?x=1", signed) == whole
    assert with_secrets(f"{root}2/zarr.json", signed) == f"{root}2/zarr.json"
    with pytest.raises(AnychunkError):
        anychunk.open(f"{root}?sp=r&sig=SECRET")
    assert all("sig=SECRET" in path for _, path, _ in web.requests)
    assert any(path.startswith("/f.zarr/") for _, path, _ in web.requests)


def test_the_signature_travels_with_a_pickled_array(web):
    web.query = {"sig": "SECRET"}
    array = anychunk.open_array(f"{web.url}/pickled.tif?sig=SECRET")
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(array))))
    np.testing.assert_array_equal(again[...].reshape(VALUES.shape), VALUES)


def test_the_signature_of_a_folder_is_sent_for_its_chunks_only_by_who_has_it(tmp_path):
    anychunk.write(VALUES, tmp_path / "a.n5", chunk=(48, 40))
    root = zarr.create_array(tmp_path / "a.zarr", shape=VALUES.shape, dtype=VALUES.dtype)
    root[...] = VALUES
    with http_server.serve(tmp_path, strip_query=True) as served:
        for name in ("a.n5", "a.zarr"):
            signed = anychunk.open_array(f"{served.url}/{name}?sig=SECRET")
            unsigned = anychunk.open_array(f"{served.url}/{name}")
            for array, is_signed in ((signed, True), (unsigned, False)):
                served.requests.clear()
                np.testing.assert_array_equal(array[...].reshape(VALUES.shape), VALUES)
                assert served.requests
                assert all(("sig=SECRET" in path) is is_signed for path, _ in served.requests)
            assert b"SECRET" not in pickle.dumps(anychunk.index(f"{served.url}/{name}?sig=SECRET"))


def test_files_that_other_processes_index_are_read_with_their_signatures(web):
    web.query = {"sig": "SECRET"}
    urls = [f"{web.url}/{n}.tif?sp=r&sig=SECRET" for n in "ab"]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for how, path in (("stack", "0/0/image"), ("group", "a/0/0/image")):
            index = anychunk.index(urls, combine=how, executor=pool)
            assert anychunk.open(index)[path][...].shape[-2:] == VALUES.shape


def test_errors_show_no_secrets(web):
    web.query = {"sig": "right"}
    for url in (f"{web.url}/e.tif?sig=SECRET&x=OTHER", f"{web.url.replace('//', '//u:SECRET@')}/e"):
        for storage in (None, {"redirects": "same-origin"}, {"query": "code=SECRET"}):
            with limits.override(retries=0), pytest.raises(SourceError, match="403") as caught:
                anychunk.index(url, storage=storage)
            shown = "".join(traceback.format_exception(caught.value))
            assert "SECRET" not in shown.replace("SECRET&x=OTHER", "").replace("u:SECRET@", "")
    assert "may have expired" in str(caught.value)


def test_a_fresh_signature_is_that_of_a_new_opening(web):
    web.query = {"sig": "first"}
    url = f"{web.url}/x.tif"
    opened = anychunk.open(f"{url}?sig=first")
    web.query = {"sig": "second"}
    again = anychunk.open(f"{url}?sig=second")
    np.testing.assert_array_equal(pixels(again), VALUES)
    with limits.override(retries=0), pytest.raises(SourceError, match="403"):
        pixels(opened)


@pytest.mark.parametrize(
    "storage",
    [
        {"query": "?code=abc"},
        {"query": {"code": "abc"}},
        {"sign": lambda url: f"{url}?code=abc"},
        {"query": "code=abc", "redirects": "same-origin"},
    ],
)
def test_parameters_for_every_request(web, storage):
    web.query = {"code": "abc"}
    opened = anychunk.open(f"{web.url}/q.tif", storage=storage)
    np.testing.assert_array_equal(pixels(opened), VALUES)


def test_passwords_and_headers(web):
    web.headers = {"authorization": "Basic dTpw"}
    np.testing.assert_array_equal(
        pixels(anychunk.open(f"{web.url.replace('//', '//u:p@')}/1.tif")), VALUES
    )
    web.headers = {"authorization": "Bearer T"}
    header = {"Authorization": "Bearer T"}
    for number, storage in enumerate(
        ({"client_options": {"default_headers": header}}, {"headers": header})
    ):
        opened = anychunk.open(f"{web.url}/{number}.tif", storage=storage)
        np.testing.assert_array_equal(pixels(opened), VALUES)
    with pytest.raises(SourceError, match="credentials are missing or wrong.*headers"):
        anychunk.index(f"{web.url}/3.tif")


def test_retries_of_the_caller(web):
    storage = {"retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}}
    assert ObjectSource(f"{web.url}/r.tif", storage=storage).size() > 0
    store, _ = object_store(f"{web.url}/r.tif", storage)
    assert store.retry_config["max_retries"] == 0


def test_a_proxy(web, monkeypatch):
    """The web server stands in for a proxy: a proxy is asked for whole urls."""
    for storage in ({"client_options": {"proxy_url": web.url}}, None):
        if storage is None:
            monkeypatch.setenv("http_proxy", web.url)
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
        np.testing.assert_array_equal(
            pixels(anychunk.open("http://far.example/a.tif", storage=storage)), VALUES
        )
        assert web.requests[-1][1] == "http://far.example/a.tif"


def test_small_objects_take_one_request(web, tmp_path):
    read_object(f"{web.url}/o.bin")
    assert len(web.requests) == 1
    web.requests.clear()
    opened = anychunk.open(f"{web.url}/small.tif")
    assert len(web.requests) == 1
    pixels(opened)
    assert len(web.requests) == 2


@pytest.mark.parametrize("storage", [None, {"redirects": "same-origin"}])
def test_a_server_without_ranges(tmp_path, storage):
    noise = np.random.default_rng(0).integers(0, 9999, (300, 300), np.uint16)
    tifffile.imwrite(tmp_path / "n.tif", noise, tile=(64, 64))
    with serving((tmp_path / "n.tif").read_bytes()) as web:
        web.has_ranges = False
        index = anychunk.index(f"{web.url}/n.tif", storage=storage)
        assert len(web.requests) == 2
        array = anychunk.open(index, storage=storage)["0/0/image"]
        np.testing.assert_array_equal(np.squeeze(array[...]), noise)
        np.testing.assert_array_equal(np.squeeze(array[..., :10]), noise[:, :10])
        assert len(web.requests) <= 5
        with limits.override(whole_bytes=1000), pytest.raises(SourceError, match="--limit whole"):
            open_source(f"{web.url}/m.tif", storage=storage).size()


def test_what_is_no_file_is_named(tiff):
    import fsspec

    waiting = fsspec.open(f"file://{tiff}")
    with pytest.raises(TypeError, match=r"got OpenFile.*\.open\(\)"):
        anychunk.open(waiting)
    with waiting as file:
        assert pixels(anychunk.open(file)) is not None
    for wrong in (None, 5):
        with pytest.raises(TypeError, match=f"got {type(wrong).__name__}, expected a url"):
            anychunk.index(wrong)


def test_an_object_without_a_byte(tmp_path):
    with serving(b"") as web:
        assert open_source(f"{web.url}/e").size() == 0


@needs_s3
def test_s3_by_every_name_of_its_options(tiff, tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "s3" / "bucket" / "deep").mkdir(parents=True)
    (tmp_path / "s3" / "bucket" / "deep" / "a b.tif").write_bytes(tiff.read_bytes())
    with serve_s3(tmp_path / "s3") as options:
        endpoint = options["endpoint"]
        client = {"allow_http": True}
        s3fs = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
        nested = {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
        url = "s3://bucket/deep/a b.tif"
        provider = {
            "endpoint": endpoint,
            "credential_provider": lambda: {
                "access_key_id": KEY,
                "secret_access_key": SECRET,
                "expires_at": None,
            },
        }
        for storage in (options, s3fs, nested, provider, {**s3fs, "requester_pays": True}):
            np.testing.assert_array_equal(pixels(anychunk.open(url, storage=storage)), VALUES)
        # Icechunk gets its keys from the same function, for the repository and for the sources
        target = "s3://bucket/p.icechunk"
        both = {"storage": provider, "target_storage": provider}
        assert anychunk.append(url, target, combine="stack", **both) == 1
        assert anychunk.append(url, target, combine="stack", **both) == 0
        np.testing.assert_array_equal(pixels(anychunk.open(target, storage=provider)), VALUES)
        # stores of obstore, with a prefix or without, by a url or by a path in them
        config = {k: v for k, v in options.items() if k != "client_options"}
        whole = S3Store("bucket", client_options=client, **config)
        part = S3Store("bucket", prefix="deep", client_options=client, **config)
        for store, place in ((whole, url), (part, url), (whole, "deep/a b.tif"), (part, "a b.tif")):
            opened = anychunk.open(place, storage=store)
            np.testing.assert_array_equal(pixels(opened), VALUES)
            np.testing.assert_array_equal(pixels(pickle.loads(pickle.dumps(opened))), VALUES)
        with pytest.raises(UnsupportedError, match="outside the store"):
            anychunk.index("s3://other/deep/a.tif", storage=whole)
        # s3a is s3; a https url of S3 is read with credentials if there are any
        np.testing.assert_array_equal(pixels(anychunk.open(f"s3a{url[2:]}", storage=s3fs)), VALUES)
        amazon = "https://bucket.s3.us-east-1.amazonaws.com/deep/a%20b.tif"
        region = {**s3fs, "region": "us-east-1"}
        np.testing.assert_array_equal(pixels(anychunk.open(amazon, storage=region)), VALUES)
        # a signed url of the real thing
        signed = obstore.sign(whole, "GET", "deep/a b.tif", timedelta(minutes=5))
        np.testing.assert_array_equal(pixels(anychunk.open(signed)), VALUES)
        # credentials are read again after a failure
        monkeypatch.setenv("AWS_ENDPOINT", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with limits.override(retries=0), pytest.raises(SourceError):
            anychunk.open(url)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        np.testing.assert_array_equal(pixels(anychunk.open(url)), VALUES)


def test_who_pays_is_said_in_every_request(web, monkeypatch):
    """The web server stands in for S3 and Google: what arrives there is what counts."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    web.headers = {"x-amz-request-payer": "requester"}
    keys = {"key": KEY, "secret": SECRET, "endpoint_url": web.url}
    for number, name in enumerate(("request_payer", "requester_pays")):
        web.requests.clear()
        opened = anychunk.open(f"s3://bucket/{number}.tif", storage={**keys, name: True})
        np.testing.assert_array_equal(pixels(opened), VALUES)
        assert len(web.requests) > 1
        for _, path, headers in web.requests:
            assert path == f"/bucket/{number}.tif"
            assert (
                "x-amz-request-payer" in {k.lower(): v for k, v in headers.items()}["authorization"]
            )
    with pytest.raises(SourceError, match="3.tif"):
        anychunk.open("s3://bucket/3.tif", storage=keys)
    monkeypatch.setenv("AWS_REQUEST_PAYER", "true")
    np.testing.assert_array_equal(pixels(anychunk.open("s3://bucket/4.tif", storage=keys)), VALUES)
    web.headers = {"x-goog-user-project": "p"}
    key = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    google = {"token": {**key, "gcs_base_url": web.url}, "client_options": {"allow_http": True}}
    opened = anychunk.open("gs://bucket/a.tif", storage={**google, "requester_pays": "p"})
    np.testing.assert_array_equal(pixels(opened), VALUES)


def test_a_signed_url_may_have_any_character_in_its_query(web):
    """Patterns are for paths of stores that can be listed, not for queries."""
    for text in ("sig=a*b", "sig=a?b", "sig=[ab]", "X-Amz-Signature=*", "v=*&token=%2A%3F"):
        web.query = {name: values[0] for name, values in parse_qs(text).items()}
        name = f"{web.url}/{len(web.requests)}.tif?{text}"
        for url in (name, [name]):
            options = {} if isinstance(url, str) else {"combine": "stack"}
            opened = anychunk.open(anychunk.index(url, **options))
            np.testing.assert_array_equal(pixels(opened), VALUES)


def test_a_public_url_of_a_cloud_is_not_signed(monkeypatch):
    for name in [n for n in os.environ if n.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for url in (
        "https://bucket.s3.us-west-2.amazonaws.com/a/b.tif",
        "https://s3.amazonaws.com/bucket/a/b.tif",
        "https://account.blob.core.windows.net/container/a/b.tif",
    ):
        store, path = object_store(url)
        assert isinstance(store, HTTPStore)
        assert path.endswith("a/b.tif")
    store, path = object_store("https://s3.amazonaws.com/bucket/a.tif", {"anon": True})
    assert store.config["bucket"] == "bucket"
    assert path == "a.tif"
    azure = {"account_key": "a2V5"}
    store, path = object_store("https://account.blob.core.windows.net/c/a.tif", azure)
    assert (store.config["account_name"], store.config["container_name"]) == ("account", "c")
    assert path == "a.tif"


def test_errors_name_the_variable(monkeypatch):
    for name in [n for n in os.environ if n.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(UnsupportedError, match="set AZURE_STORAGE_ACCOUNT_NAME"):
        open_source("abfs://container/a.tif")
    with pytest.raises(OptionError, match="profile.*AWS_ACCESS_KEY_ID.*Boto3CredentialProvider"):
        open_source("s3://b/a.tif", storage={"profile": "me"})
    with pytest.raises(UnsupportedError, match="region have no effect on a web server"):
        open_source("https://host/a.tif", storage={"region": "x"})
    with pytest.raises(OptionError, match="expected a dictionary of options, an obstore store"):
        open_source("s3://b/a.tif", storage=42)


def test_names_of_other_libraries():
    google = obstore_options("gs", {"token": "anon", "project": "p", "requester_pays": "p"}, "x")
    assert google["skip_signature"] is True
    assert google["client_options"]["default_headers"] == {"x-goog-user-project": "p"}
    assert obstore_options("gs", {"token": "/key.json"}, "x") == {
        "service_account_path": "/key.json"
    }
    assert obstore_options("az", {"anon": True, "account_name": "a"}, "x") == {
        "skip_signature": True,
        "account_name": "a",
    }
    with pytest.raises(OptionError, match="repeats"):
        obstore_options("s3", {"key": "a", "access_key_id": "b"}, "x")


def test_schemes_and_homes(monkeypatch, tmp_path, tiff):
    assert as_url("gcs://b/a") == "gs://b/a"
    assert as_url("ABFS://c/a") == "az://c/a"
    assert as_url("abfss://c@acc.dfs.core.windows.net/a").startswith("abfss://c@acc")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "h.tif").write_bytes(tiff.read_bytes())
    np.testing.assert_array_equal(pixels(anychunk.open("~/h.tif")), VALUES)
    np.testing.assert_array_equal(pixels(anychunk.open((tmp_path / "h.tif").as_uri())), VALUES)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~x").mkdir()
    assert as_url("~x") == "~x"  # a file of this name is there


def test_stores_that_are_no_cloud(tiff):
    local = LocalStore(tiff.parent)
    np.testing.assert_array_equal(pixels(anychunk.open("a b.tif", storage=local)), VALUES)
    memory = MemoryStore()
    memory.put("in/a.tif", tiff.read_bytes())
    np.testing.assert_array_equal(pixels(anychunk.open("in/a.tif", storage=memory)), VALUES)
    with pytest.raises(MissingFileError):
        anychunk.open("in/b.tif", storage=memory)


def test_a_filesystem_of_fsspec(tiff):
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/folder/a.tif", tiff.read_bytes())
    opened = anychunk.open("memory://folder/a.tif", storage=fs)
    np.testing.assert_array_equal(pixels(opened), VALUES)
    with pytest.raises(MissingFileError, match=r"b\.tif"):
        anychunk.open("memory://folder/b.tif", storage=fs)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.write(tiff, "in/a.tif")
    inside = fsspec.filesystem("zip", fo=archive)
    np.testing.assert_array_equal(pixels(anychunk.open("zip://in/a.tif", storage=inside)), VALUES)


def test_bytes_and_open_files(tiff, tmp_path):
    data = tiff.read_bytes()
    for given in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
        np.testing.assert_array_equal(pixels(anychunk.open(given)), VALUES)
    index = anychunk.index(data)
    opened = anychunk.open(index)
    np.testing.assert_array_equal(pixels(pickle.loads(pickle.dumps(opened))), VALUES)
    with pytest.raises(UnsupportedError, match="was passed as bytes or as an open file"):
        index.save(tmp_path / "i.json")
    with tiff.open("rb") as file:
        index = anychunk.index(file)
        assert list(index.pins) == [str(tiff)]  # a file with an address
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as made:
        made.write(tiff, "a.tif")
    with zipfile.ZipFile(tmp_path / "z.zip") as archive, archive.open("a.tif") as file:
        opened = anychunk.open(file)
        np.testing.assert_array_equal(pixels(opened), VALUES)
        with pytest.raises(UnsupportedError, match="cannot be sent to another process"):
            pickle.dumps(opened)
    with pytest.raises(SourceError, match="keep the file open"):
        pixels(opened)
    with tiff.open("r", encoding="latin-1") as file, pytest.raises(OptionError, match="as text"):
        anychunk.open(file)


def test_memory_urls_stay_what_they_were(tiff):
    obstore.put(memory_store("addresses"), "a.tif", tiff.read_bytes())
    np.testing.assert_array_equal(pixels(anychunk.open("memory://addresses/a.tif")), VALUES)


def test_a_failure_is_not_taken_for_a_server_without_ranges(tmp_path):
    with http_server.serve(tmp_path) as served, limits.override(retries=0):
        (tmp_path / "orange 416.tif").write_bytes(bytes(100))
        served.fail[:] = [500]
        with pytest.raises(SourceError, match="500"):
            open_source(f"{served.url}/orange%20416.tif").size()
        assert len(served.requests) == 1


def test_bytes_are_not_combined(tiff):
    with pytest.raises(ValueError, match="not bytes or an open file"):
        anychunk.index(tiff.read_bytes(), combine="stack")
