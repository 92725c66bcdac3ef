import json
import os
import warnings

import numpy as np
import obstore
import pytest
import zarr

import anychunk
from anychunk import codecs, formats
from anychunk.errors import AnychunkError, FormatError, SourceError, UnsupportedError
from anychunk.io import memory_store
from tests.server import serve

VALUES = np.arange(60, dtype="float32").reshape(3, 4, 5)


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    return tmp_path / "a.npy"


def test_open(file):
    group = anychunk.open(file)
    assert isinstance(group, zarr.Group)
    assert group.read_only
    about = group.attrs["anychunk"]
    assert about["format"] == "npy"
    assert about["source"] == str(file)
    assert about["size"] == file.stat().st_size
    assert about["mtime_ns"] == file.stat().st_mtime_ns
    np.testing.assert_array_equal(group["0/0"][...], VALUES)
    np.testing.assert_array_equal(anychunk.open_array(file, image=0, level=0)[1], VALUES[1])


def test_content_decides_not_the_name(file, tmp_path):
    file.rename(tmp_path / "a.tif")
    assert anychunk.open(tmp_path / "a.tif").attrs["anychunk"]["format"] == "npy"


@pytest.mark.parametrize("kind", ["memory", "http"])
def test_open_remote(file, tmp_path, kind):
    obstore.put(memory_store("api"), "x/a.npy", file.read_bytes())
    with serve(tmp_path) as served:
        url = "memory://api/x/a.npy" if kind == "memory" else f"{served.url}/a.npy"
        array = anychunk.open_array(url)
        np.testing.assert_array_equal(array[...], VALUES)
        assert len(served.requests) <= 2
        assert "etag" in anychunk.describe(url)


def test_describe_is_json(file):
    found = json.loads(json.dumps(anychunk.describe(file)))
    assert found["format"] == "npy"
    (array,) = found["arrays"]
    assert array["path"] == "0/0"
    assert array["shape"] == [3, 4, 5]
    assert array["axes"] == ["dim_0", "dim_1", "dim_2"]
    assert array["stored_bytes"] == VALUES.nbytes


def test_missing_array_names_what_there_is(file):
    with pytest.raises(KeyError, match="no array '3/0'; there are: 0/0"):
        anychunk.open_array(file, image=3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: None, FileNotFoundError, "no such file"),
        (lambda path: path.write_bytes(b""), FormatError, "the file is empty"),
        (lambda path: path.write_text("hello world"), UnsupportedError, "begins with b'hello wo'"),
        (lambda path: path.mkdir(), UnsupportedError, "jnrrd jpeg2000 n5"),
    ],
)
def test_what_does_not_open(tmp_path, make, error, message):
    make(tmp_path / "x")
    with pytest.raises(error, match=message) as caught:
        anychunk.open(tmp_path / "x")
    assert "\n" not in str(caught.value)
    assert "x" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(file):
    file.chmod(0)
    with pytest.raises(SourceError, match="Permission denied"):
        anychunk.open(file)


def test_url_without_network():
    with anychunk.limits.override(retries=0, retry_s=1), pytest.raises(SourceError) as caught:
        anychunk.open("http://127.0.0.1:9/x.npy")
    assert "\n" not in str(caught.value)


def test_named_format(file):
    assert anychunk.index(file, format="npy") == anychunk.index(file)
    with pytest.raises(UnsupportedError, match="'nonsense'.* npy"):
        anychunk.index(file, format="nonsense")


def test_foreign_exception_in_a_parser_is_ours(file, monkeypatch):
    for error in (IndexError, TypeError, OSError, RecursionError):

        def broken(source, error=error):
            raise error("list index out of range")

        monkeypatch.setattr(formats.by_name("npy"), "parse", broken)
        with pytest.raises(FormatError, match=f"{error.__name__} while parsing"):
            anychunk.index(file)


def test_unknown_option_is_the_callers_mistake(file):
    with pytest.raises(TypeError, match="nonsense"):
        anychunk.index(file, nonsense=1)


def test_write_refuses_an_unknown_name(tmp_path):
    with pytest.raises(AnychunkError, match=r"a\.unknown.* jnrrd"):
        anychunk.write(VALUES, tmp_path / "a.unknown")


def test_enable_makes_ours_the_choice_and_disable_undoes_it():
    before = dict(zarr.config.get("codecs"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anychunk.enable()
        try:
            for name in codecs.table():
                assert zarr.registry.get_codec_class(name) is codecs.codec_class(name)
            # the names that are not ours stay
            assert zarr.config.get("codecs")["zstd"] == before["zstd"]
        finally:
            anychunk.disable()
            anychunk.read.pipeline.install()
    assert zarr.config.get("codecs") == before


def test_enable_twice_is_undone_once():
    before = dict(zarr.config.get("codecs"))
    anychunk.enable()
    anychunk.enable()
    anychunk.disable()
    anychunk.read.pipeline.install()
    assert zarr.config.get("codecs") == before
