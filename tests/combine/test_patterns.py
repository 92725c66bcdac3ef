import re
from urllib.parse import unquote

import obstore
import pytest

from anychunk.combine.images import expand
from anychunk.io.object_stores import memory_store
from anychunk.io.source import is_pattern


def test_choices_of_letters_in_a_pattern(tmp_path):
    """As of local files: `!` is all but those, and none of them is a slash."""
    names = ["a1.tif", "b1.tif", "!1.tif", "^1.tif", "sub/1.tif"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        obstore.put(memory_store("choices"), name, b"x")
    for pattern in (
        "[!a]1.tif",
        "[a-b]1.tif",
        "[^]1.tif",
        "sub[!a]1.tif",
        "[!^]1.tif",
        "[z-a!]1.tif",
    ):
        local = [str(path.relative_to(tmp_path)) for path in tmp_path.glob(pattern)]
        url = f"memory://choices/{pattern}"
        if not local:
            with pytest.raises(FileNotFoundError, match=re.escape(url)):
                expand(url, None)
        else:
            found = [unquote(url.removeprefix("memory://choices/")) for url in expand(url, None)]
            assert sorted(found) == sorted(local)


def test_urls_and_patterns_in_order_each_once(tmp_path):
    for name in ("b.tif", "a.tif", "c[1].tif", "sub/d.tif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = expand([tmp_path / "b.tif", f"{tmp_path}/?.tif", f"{tmp_path}/**/d.tif"], None)
    assert [path[len(str(tmp_path)) + 1 :] for path in found] == ["b.tif", "a.tif", "sub/d.tif"]
    assert is_pattern(f"{tmp_path}/*.tif")
    assert not is_pattern(f"{tmp_path}/c[1].tif")  # a file of this name is there
    assert is_pattern(f"{tmp_path}/d[1].tif")
    assert is_pattern("s3://bucket/c[1].tif")


def test_stars_stay_within_a_folder_unless_there_are_two():
    for name in ("a/1.tif", "a/b/2.tif", "a/b/c/3.tif"):
        obstore.put(memory_store("stars"), name, b"x")
    for pattern, names in {
        "a/*.tif": ["1"],
        "a/*/*.tif": ["2"],
        "a/**/*.tif": ["1", "2", "3"],
        "**": ["1", "2", "3"],
        "a/?/2.tif": ["2"],
    }.items():
        found = expand(f"memory://stars/{pattern}", None)
        assert [url[-5:-4] for url in found] == names, pattern
