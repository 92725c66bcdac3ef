"""Access control: paths, CORS, methods, Host header, token."""

import pytest

from anychunk.errors import OptionError
from anychunk_serve.access import checked_origin


@pytest.mark.parametrize(
    "path",
    [
        "/zarr/../../etc/passwd",
        "/zarr/..%2f..%2fetc%2fpasswd",
        "/zarr/scene.tif/%2e%2e/%2e%2e/zarr.json",
        "/zarr/scene.tif%2f..%2fscene.tif/zarr.json",
        "/zarr/scene.tif/0%00/zarr.json",
        "/zarr/scene.tif/%ff%fe/zarr.json",
        "/zarr//scene.tif/zarr.json",
        "/zarr/scene.tif/..\\..\\x",
        "/raw/../scene.tif/zarr.json",
        "/raw/scene.tif/" + "a/" * 500 + "zarr.json",
        "/thumb/..%2f..%2fx.png",
        "/thumb/scene.tif/../0.png",
        "/api/info/..%2fscene.tif",
        "/api/chunk/scene.tif/../0?at=0",
        "/..%2f..%2f..%2fetc/passwd",
        "/assets/..%2f..%2f..%2fapp.py",
        "/%00",
    ],
)
def test_nothing_else_is_reachable(client_of, scene, path):
    client = client_of(scene[0])
    answer = client.get(path)
    assert answer.status_code in (200, 404)
    if answer.status_code == 200:  # the client itself may have removed `..` from the url
        assert "/.." in path
        assert "scene.tif" in str(answer.url)
    assert "root:" not in answer.text


HOME = "https://viewer.example"
PREFLIGHT = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "range"}
URLS = ("/zarr/scene.tif/zarr.json", "/zarr/scene.tif/0/0/image/c/0/0", "/zarr/none", "/api/files")


def test_no_page_of_another_origin_may_read(client_of, scene):
    client = client_of(scene[0])
    for url in URLS:
        for origin in (HOME, "null", "http://localhost:3000", "http://127.0.0.1:8000.evil.example"):
            answer = client.get(url, headers={"Origin": origin})
            assert answer.status_code == 403
            assert "--origin" in answer.json()["error"]
            assert not [name for name in answer.headers if name.startswith("access-control")]
            answer = client.options(url, headers={"Origin": origin, **PREFLIGHT})
            assert "access-control-allow-origin" not in answer.headers
        assert client.get(url).headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_may_not_embed_but_link(client_of, scene):
    client = client_of(scene[0])
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", "websocket"):
            asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
            assert client.get("/thumb/scene.tif/0.png", headers=asked).status_code == 403
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get("/", headers=link).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/thumb/scene.tif/0.png", headers=own).status_code == 200


def test_the_page_itself_and_other_clients_are_unaffected(client_of, scene):
    client = client_of(scene[0])
    assert client.get("/api/files").status_code == 200
    for origin in ("http://127.0.0.1:8000", "https://127.0.0.1:8000"):  # the second: behind a proxy
        assert client.get("/api/files", headers={"Origin": origin}).status_code == 200


def test_allowed_origins(client_of, scene):
    client = client_of(scene[0], origins=(HOME, "http://localhost:3000"))
    assert client.get("/api/server").json()["origins"] == [HOME, "http://localhost:3000"]
    for origin in (HOME, "http://localhost:3000"):
        for url in URLS:
            answer = client.get(url, headers={"Origin": origin})
            assert answer.status_code in (200, 404)
            assert answer.headers["access-control-allow-origin"] == origin
            assert "Origin" in answer.headers["vary"]
            assert "ETag" in answer.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in answer.headers
        local = {"Access-Control-Request-Private-Network": "true"}
        answer = client.options(URLS[0], headers={"Origin": origin, **PREFLIGHT, **local})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert "Range" in answer.headers["access-control-allow-headers"]
        assert answer.headers["access-control-allow-private-network"] == "true"
    for origin in ("https://other.example", f"{HOME}.evil.example", "http://viewer.example"):
        assert client.get(URLS[0], headers={"Origin": origin}).status_code == 403


def test_every_origin(client_of, scene):
    client = client_of(scene[0], origins=("*",))
    answer = client.get(URLS[0], headers={"Origin": "https://any.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


def test_an_allowed_origin_still_needs_the_token(client_of, scene):
    client = client_of(scene[0], origins=(HOME,), token="s3cret")
    answer = client.get(URLS[0], headers={"Origin": HOME})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, HOME)
    preflight = client.options(URLS[0], headers={"Origin": HOME, **PREFLIGHT})
    assert preflight.status_code == 200, "a preflight carries no token"
    token = {"Authorization": "Bearer s3cret"}
    assert client.get(URLS[0], headers={"Origin": HOME, **token}).status_code == 200
    assert client.get(URLS[0], headers={"Origin": "https://x.example", **token}).status_code == 403
    assert client.get("/api/server", headers=token).json()["token"] is True


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://Viewer.example/", HOME),
        ("https://viewer.example:443", HOME),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
        ("*", "*"),
        ("null", "null"),
    ],
)
def test_origins(given, expected):
    assert checked_origin(given) == expected


@pytest.mark.parametrize(
    "given",
    ["viewer.example", "https://", "https://a/b", "ftp://a", "https://a?b", "https://u@a", "",
     "https://a:99999", "https://*.a"],
)  # fmt: skip
def test_what_is_not_an_origin(given):
    with pytest.raises(OptionError):
        checked_origin(given)


def test_methods(client_of, scene):
    client = client_of(scene[0])
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = client.request(method, "/zarr/scene.tif/zarr.json", content=b"x" * 1000)
        assert answer.status_code == 405
        assert "error" in answer.json()


def test_page_has_a_policy(client_of, scene):
    answer = client_of(scene[0]).get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:99", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_host(client_of, scene, host, status):
    answer = client_of(scene[0]).get("/api/files", headers={"Host": host})
    assert answer.status_code == status


def test_host_is_free_where_others_reach_it(client_of, scene):
    client = client_of(scene[0], host="0.0.0.0")
    assert client.get("/api/files", headers={"Host": "lab.example"}).status_code == 200
    client = client_of(scene[0], allow_hosts=("lab.example",))
    assert client.get("/api/files", headers={"Host": "lab.example:80"}).status_code == 200


def test_token(client_of, scene):
    client = client_of(scene[0], token="s3cret")
    url = "/zarr/scene.tif/zarr.json"
    assert client.get(url).status_code == 401
    for wrong in ("Bearer s3cre", "Bearer", "Basic s3cret", "bearer s3cret2"):
        assert client.get(url, headers={"Authorization": wrong}).status_code == 401
    assert client.get(url, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    assert client.get(f"{url}?token=nope").status_code == 401
    assert client.get(f"{url}?token=%ff%00").status_code == 401
    first = client.get("/?token=s3cret")
    assert first.status_code == 200
    assert "httponly" in first.headers["set-cookie"].lower()
    assert client.get(url).status_code == 200, "by the cookie"


def test_raw_metadata_does_not_say_where_the_file_is(client_of, scene):
    text = client_of(scene[0]).get("/raw/scene.tif/zarr.json").text
    assert str(scene[0].parent) not in text
    assert "scene.tif" in text


def test_many_fields_are_no_token(client_of, scene):
    client = client_of(scene[0], token="secret")
    assert client.get(f"/api/files?{'&'.join('a=1' for _ in range(99))}").status_code == 401
