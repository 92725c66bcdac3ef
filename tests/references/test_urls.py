import pytest

from anychunk.errors import FormatError
from anychunk.references.urls import UrlResolver


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
