import inspect
import json
import warnings

import jsonschema
import numpy as np
import obstore
import pytest
import zarr

import anychunk
from anychunk import codecs, formats
from anychunk.errors import (
    AnychunkError,
    FormatError,
    InternalError,
    NoSuchImageError,
    SourceError,
    UnsupportedError,
)
from anychunk.io.object_stores import memory_store
from anychunk.zarr.codecs import zarr_codec
from tests.support import processes
from tests.support.http_server import serve
from tests.support.permissions import unprivileged

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
    np.testing.assert_array_equal(group["0/0/image"][...], VALUES)
    np.testing.assert_array_equal(anychunk.open_array(file, image=0, level=0)[1], VALUES[1])


def test_content_decides_not_the_name(file, tmp_path):
    file.rename(tmp_path / "a.tif")
    assert anychunk.open(tmp_path / "a.tif").attrs["anychunk"]["format"] == "npy"


@pytest.mark.processes
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
    assert array["path"] == "0/0/image"
    assert array["shape"] == [3, 4, 5]
    assert array["axes"] == ["z", "y", "x"]
    assert array["stored_bytes"] == VALUES.nbytes


def test_missing_array_names_what_there_is(file):
    with pytest.raises(NoSuchImageError, match="'3/0'.*: 0/0/image$") as caught:
        anychunk.open_array(file, image=3)
    assert isinstance(caught.value, KeyError)
    with pytest.raises(NoSuchImageError, match="'3/0'.*: 0/0/image$"):
        anychunk.open_group(file).image(3)


def test_group_has_a_typed_way_to_its_arrays(file, tmp_path):
    group = anychunk.open_group(file)
    assert isinstance(group, anychunk.Group)
    array = group.image(0, level=0)
    assert isinstance(array, anychunk.Array)
    np.testing.assert_array_equal(array[...], np.load(file))
    np.testing.assert_array_equal(group["0"].image("0")[...], np.load(file))
    node = anychunk.index(file)["0/0/image"]
    assert isinstance(anychunk.open(node), anychunk.Array)
    with pytest.raises(UnsupportedError, match="open_array"):
        anychunk.open_group(node)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: None, FileNotFoundError, "no such file"),
        (lambda path: path.write_bytes(b""), FormatError, "the file is empty"),
        (lambda path: path.write_text("hello world"), UnsupportedError, "begins with b'hello wo'"),
        (lambda path: path.mkdir(), UnsupportedError, r"\bjnrrd\b.* n5\b"),
    ],
)
def test_what_does_not_open(tmp_path, make, error, message):
    make(tmp_path / "x")
    with pytest.raises(error, match=message) as caught:
        anychunk.open(tmp_path / "x")
    assert "\n" not in str(caught.value)
    assert "x" in str(caught.value)


@pytest.mark.processes
def test_file_without_permission(file):
    file.chmod(0)
    code = f"""
import anychunk
from anychunk.zarr.codecs import zarr_codec
from anychunk.errors import SourceError
try:
    anychunk.open({str(file)!r})
except SourceError as e:
    print(e)
"""
    done = processes.run(unprivileged() + code, cwd=file.parent)
    assert done.returncode == 0, done.stderr
    assert "Permission denied" in done.stdout


def test_url_without_network():
    with anychunk.limits.override(retries=0, retry_s=1), pytest.raises(SourceError) as caught:
        anychunk.open("http://127.0.0.1:9/x.npy")
    assert "\n" not in str(caught.value)


def test_named_format(file):
    assert anychunk.index(file, format="npy") == anychunk.index(file)
    with pytest.raises(UnsupportedError, match="'nonsense'.* npy"):
        anychunk.index(file, format="nonsense")


@pytest.mark.defect
@pytest.mark.parametrize("error", [IndexError, TypeError, OSError, RecursionError])
def test_defect_of_a_parser_is_reported_as_ours(file, monkeypatch, error):
    def broken(source):
        raise error("list index out of range")

    broken.__module__ = "anychunk.formats.npy"
    monkeypatch.setitem(broken.__globals__, "__name__", "anychunk.formats.npy")
    monkeypatch.setattr(formats.by_name("npy"), "parse", broken)
    with pytest.raises(InternalError, match=error.__name__) as caught:
        anychunk.index(file)
    assert isinstance(caught.value.__cause__, error)


def test_what_a_library_raises_is_the_files_fault(file, monkeypatch):
    def parse(source):
        jsonschema.validate(1, {"type": "string"})

    monkeypatch.setattr(formats.by_name("npy"), "parse", parse)
    with pytest.raises(FormatError) as caught:
        anychunk.index(file)
    assert not isinstance(caught.value, InternalError)


def test_help_lists_every_option():
    for function in (anychunk.index, anychunk.open):
        text = inspect.getdoc(function)
        names = {p.name for p in inspect.signature(anychunk.index).parameters.values()}
        for module in formats.table().values():
            parse = module.parse if isinstance(module, formats.Format) else module.parse_folder
            names |= {
                p.name
                for p in inspect.signature(parse).parameters.values()
                if p.kind == p.KEYWORD_ONLY
            }
        others = {"url", "options"}
        for name in names - others:
            assert name in text, (function, name)


def test_unknown_option_is_the_callers_mistake(file):
    with pytest.raises(TypeError, match="nonsense"):
        anychunk.index(file, nonsense=1)


def test_write_refuses_an_unknown_name(tmp_path):
    with pytest.raises(AnychunkError, match=r"a\.unknown.* \.jnrrd"):
        anychunk.write(VALUES, tmp_path / "a.unknown")


def test_enable_makes_ours_the_choice_and_disable_undoes_it():
    before = dict(zarr.config.get("codecs"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anychunk.enable()
        try:
            for name, plain in codecs.load_all().items():
                assert zarr.registry.get_codec_class(name) is zarr_codec(plain)
            # the names that are not ours stay
            assert zarr.config.get("codecs")["zstd"] == before["zstd"]
        finally:
            anychunk.disable()
    assert zarr.config.get("codecs") == before


def test_enable_twice_is_undone_once():
    before = dict(zarr.config.get("codecs"))
    anychunk.enable()
    anychunk.enable()
    anychunk.disable()
    assert zarr.config.get("codecs") == before
