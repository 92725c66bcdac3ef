import pytest

from anychunk.errors import FormatError
from anychunk.io.source import file_url
from anychunk.references.urls import EVERYWHERE, UrlResolver, folder_of, is_below


@pytest.mark.parametrize(
    ("reference", "allow"),
    [
        ("/etc/passwd", ()),
        ("file:///etc/passwd", ()),
        ("../x", ()),
        ("sub/../../x", ()),
        ("s3://other/x", ()),
        ("s3://bucket-evil/x", ("s3://bucket",)),
        ("s3://bucket/data/../secret", ("s3://bucket/data/",)),
        ("s3://bucket/data/%2e%2e/secret", ("s3://bucket/data/",)),
        ("a\0b", ()),
        ("link/x", ()),
        ("{{nobody}}/x", ()),
    ],
)
def test_references_that_leave_are_refused(tmp_path, reference, allow):
    (tmp_path / "link").symlink_to("/etc")
    resolver = UrlResolver(url=str(tmp_path / "i.json"), templates={}, allow=allow)
    with pytest.raises(FormatError):
        resolver.resolve(reference)


def test_references_that_stay_are_followed(tmp_path):
    resolver = UrlResolver(url=str(tmp_path / "i.json"), templates={"u": str(tmp_path)})
    assert resolver.resolve("a b.tif") == f"{tmp_path}/a b.tif"
    assert resolver.resolve("{{u}}/x") == f"{tmp_path}/x"
    remote = UrlResolver(url="s3://b/idx/i.json")
    assert remote.resolve("x.tif") == "s3://b/idx/x.tif"
    assert remote.resolve("s3://b/idx/deep/x.tif") == "s3://b/idx/deep/x.tif"


def test_names_of_places():
    assert folder_of("/a/b/i.json") == "/a/b"
    assert folder_of("/i.json") == "/"
    assert folder_of("s3://b/a/i.icechunk/") == "s3://b/a"
    assert is_below("/a/b", "/a")
    assert is_below("/a/b", "/a/")
    assert not is_below("/ab", "/a")
    assert not is_below("/a", "/a")
    assert file_url("/a b/%c") == "file:///a%20b/%25c"
    assert file_url("s3://b/a b") == "s3://b/a b"


def test_references_move_with_their_index(tmp_path):
    resolver = UrlResolver(url=f"{tmp_path}/i.json", base="/old/")
    assert resolver.has_moved
    assert resolver.resolve("/old/sub/x") == f"{tmp_path}/sub/x"
    with pytest.raises(FormatError, match="/older/x"):
        resolver.resolve("/older/x")
    assert not UrlResolver(url="/old/i.json", base="/old").has_moved
    assert not UrlResolver(url="/new/i.json").has_moved


def test_what_is_allowed(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data")
    url = f"{tmp_path}/index/i.json"
    x = f"{tmp_path}/data/x"
    for allow in ([f"{tmp_path}/data"], [f"file://{tmp_path}/data/"], ["*"], [x]):
        assert UrlResolver(url=url, allow=allow).resolve(x) == x
    linked = f"{tmp_path}/data/link/x"  # a link that stays inside
    assert UrlResolver(url=url, allow=[f"{tmp_path}/data"]).resolve(linked) == linked
    for allow in ([f"{tmp_path}/dat"], [f"{tmp_path}/data/y"], ["s3://b"], []):
        with pytest.raises(FormatError, match="data/x"):
            UrlResolver(url=url, allow=allow).resolve(x)
    remote = UrlResolver(url=url, allow=["https://host/a"])
    assert remote.resolve("https://host/a/b") == "https://host/a/b"
    assert remote.resolve("https://host/a") == "https://host/a"
    with pytest.raises(FormatError, match="https://host/ab"):
        remote.resolve("https://host/ab")


def test_urls_of_an_index_that_moved_are_compared_without_being_resolved():
    urls = ["/old/a.tif", "/older/a.tif", "s3://bucket/a.tif", "/old/b c/d.tif"]
    stays = UrlResolver(url="/old/i.icechunk", base="/old", allow=(EVERYWHERE,))
    assert list(stays.moved(urls)) == urls
    for base in ("/old", "/old/"):
        resolver = UrlResolver(url="s3://new/here/i.icechunk", base=base, allow=(EVERYWHERE,))
        found = list(resolver.moved(urls))
        assert found == [
            "s3://new/here/a.tif", "/older/a.tif", "s3://bucket/a.tif", "s3://new/here/b c/d.tif"
        ]  # fmt: skip
        assert found == [resolver.resolve(url) for url in urls]
