"""Icechunk repositories, as Icechunk itself sees them."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk import codecs
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import FormatError, SourceError
from anychunk.model.index import GroupIndex
from anychunk.model.pin import Pin
from anychunk.references import icechunk as ice
from anychunk.references.icechunk import chunks
from tests.support.indexes import plain


def test_icechunk_reads_our_repository(tmp_path):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    group = zarr.open_group(store, mode="r")
    np.testing.assert_array_equal(group["0/0"][...], truth)
    assert group.attrs["title"] == "é"


def test_icechunk_itself_notices_a_changed_file(tmp_path):
    import icechunk

    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    later = time.time_ns() + 5_000_000_000
    os.utime(tmp_path / "a b.bin", ns=(later, later))
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    with pytest.raises(icechunk.IcechunkError):
        zarr.open_group(store, mode="r")["0/0"][...]


def test_a_long_index_goes_to_icechunk_in_pieces_and_appears_at_once(tmp_path, monkeypatch):
    import icechunk

    monkeypatch.setattr(chunks, "PIECE", 1)
    monkeypatch.setattr("anychunk.references.icechunk.chunks.MANIFEST_CHUNKS", 1)
    node, truth = plain(tmp_path)
    target = tmp_path / "i.icechunk"
    node.save(target)
    np.testing.assert_array_equal(anychunk.open(target)["0/0"][...], truth)
    before = anychunk.index(target)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))
    assert repository.list_branches() == {"main"}
    monkeypatch.setattr(
        chunks.Transaction,
        "commit",
        lambda self, message, statistics: (_ for _ in ()).throw(OSError()),
    )
    with pytest.raises(OSError):
        GroupIndex(members={"z": node["0/0"]}).save(target)
    assert anychunk.index(target) == before  # a crash leaves what was there
    monkeypatch.undo()
    monkeypatch.setattr(chunks, "PIECE", 1)
    GroupIndex(members={"z": node["0/0"]}).save(target, overwrite=True)
    assert list(anychunk.index(target).members) == ["z"]


@pytest.mark.parametrize(
    ("pin", "checksum"),
    [
        (None, None),
        (Pin(size=1), None),
        (Pin(size=1, etag='"e"', mtime_ns=5), '"e"'),
        (Pin(size=1, etag='W/"e"'), None),
        (Pin(size=1, etag='W/"e"', mtime_ns=1), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (Pin(size=1, mtime_ns=2 * 10**9), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
        (Pin(size=1, mtime_ns=2 * 10**9 + 1), datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)),
    ],
)
def test_checksums_of_references(pin, checksum):
    assert chunks._checksum(pin) == checksum


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("/a b/c%20d/e.tif", "file:///a b/c%20d/"),
        ("/e.tif", "file:///"),
        ("s3://bucket/a/b.tif", "s3://bucket/"),
        ("https://host:8000/a/b.tif?q", "https://host:8000/"),
    ],
)
def test_prefixes_of_containers(url, prefix):
    assert chunks._container_prefix(url) == prefix


@pytest.mark.parametrize(
    ("grids", "size"),
    [
        ([(100,)], 60_000),
        ([(5, 1, 5)], 245),
        ([(5, 5), (5, 5, 5)], 39),
        ([()], 60_000),
        ([], 60_000),
    ],
)
def test_chunks_per_manifest(grids, size):
    assert chunks.chunks_per_manifest(grids) == size


def test_only_what_fits_is_appended(tmp_path):
    node, truth = plain(tmp_path)
    target = str(tmp_path / "r.icechunk")
    ice.append(node, target, along=None)
    with pytest.raises(FormatError, match="r.icechunk: .*'0/0'"):
        ice.append(node, target, along=None)
    other = GroupIndex(members={"1": node["0"]}, pins=node.pins)
    with pytest.raises(FormatError, match="r.icechunk: .*'1/0' .*axis 0"):
        ice.append(other, target, along=0)
    ice.append(other, target, along=None)
    ice.append(GroupIndex(members=dict(node.members), pins=node.pins), target, along=1)
    opened = anychunk.open(target)
    np.testing.assert_array_equal(opened["0/0"][...], np.concatenate([truth, truth], axis=1))
    np.testing.assert_array_equal(opened["1/0"][...], truth)
    odd = replace(node["0/0"], shape=(3, 4))  # its last chunk has padding
    short = GroupIndex(members={"s": GroupIndex(members={"0": odd})})
    ice.append(short, target, along=None)
    with pytest.raises(FormatError, match=r"r.icechunk s/0: .*\b3 along axis 0 .*\b2\b"):
        ice.append(short, target, along=0)


def test_errors_of_icechunk_name_the_repository(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "r.icechunk")
    with pytest.raises(SourceError, match="r.icechunk: Icechunk: "):
        anychunk.index(tmp_path / "r.icechunk", branch="none")
    assert ice.saved_sources(str(tmp_path / "other.icechunk")) == set()
    assert ice.saved_sources(str(tmp_path / "r.icechunk")) == set(node.pins)


def test_branches_and_tags(tmp_path):
    node, _ = plain(tmp_path)
    first = ice.save(node, str(tmp_path / "r.icechunk"), message="one")
    opened = ice.open_repository(str(tmp_path / "r.icechunk"))
    opened.create_tag("v1", first)
    opened.create_branch("aside", first)
    GroupIndex(members={"z": node["0/0"]}).save(tmp_path / "r.icechunk", overwrite=True)
    for options, names in (({}, ["z"]), ({"tag": "v1"}, ["0"]), ({"branch": "aside"}, ["0"])):
        assert list(anychunk.index(tmp_path / "r.icechunk", **options).members) == names


@pytest.mark.parametrize(
    "name", ["outer/repo", "./outer/repo", "outer/repo/", "outer/../outer/repo"]
)
def test_chunks_in_a_repository_with_a_relative_path(tmp_path, monkeypatch, name):
    """Chunks that Icechunk itself stored; they are also found after the repository was moved."""
    import icechunk

    monkeypatch.chdir(tmp_path)
    made = icechunk.Repository.create(icechunk.local_filesystem_storage("outer/repo"))
    session = made.writable_session("main")
    values = np.arange(2500, dtype="uint16").reshape(50, 50)
    # more than Icechunk stores inline, and not compressed
    options = {"chunks": (25, 50), "compressors": None}
    zarr.create_array(session.store, name="a", data=values, **options)
    # where anychunk was asked to save a repository, before it was moved to a folder below
    zarr.open_group(session.store).attrs["anychunk"] = {"index": 1, "base": str(tmp_path)}
    session.commit("a")
    np.testing.assert_array_equal(anychunk.open(name)["a"][...], values)
    np.testing.assert_array_equal(anychunk.open(tmp_path / name)["a"][...], values)


@pytest.mark.processes
@pytest.mark.parametrize("is_command", [False, True])
def test_only_a_command_rests_before_it_ends(is_command):
    """Icechunk's threads release objects of Python after their last call."""
    ending = "sys.argv[1:] = ['formats']; main()" if is_command else "print('ends')"
    code = (
        "import sys, time\n"
        "time.sleep = lambda seconds: print('rests', seconds)\n"
        "from anychunk.cli import main\n"
        "from anychunk.references.icechunk.chunks import icechunk_module\n"
        "icechunk_module()\n"
        f"{ending}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.count("rests 0.1") == is_command


def test_names_of_codecs_do_not_keep_files_apart(tmp_path):
    """Of two images with the same tiles, osml-imagery-io reads one, so that its names differ."""
    target, truth = str(tmp_path / "r.icechunk"), []
    for number, width in enumerate((128, 64)):
        pixels = np.random.default_rng(number).integers(0, 255, (100, width, 3)).astype("u1")
        options = {"tile": (64, 64), "photometric": "rgb", "compression": "lzw"}
        tifffile.imwrite(tmp_path / f"{number}.tif", pixels, **options)
        node = anychunk.index(tmp_path / f"{number}.tif")
        level = GroupIndex(members={"0": node["0/0/image"]})
        ice.append(GroupIndex(members={"a": level}, pins=node.pins), target, along=2)
        truth.append(np.moveaxis(pixels, -1, 0))
        store = ice.open_repository(target).readonly_session("main").store
        name = zarr.open_group(store, mode="r")["a/0"].metadata.codecs[1].name
        assert name == (codecs.URIS[TiffTile.name], TiffTile.name)[number]
    np.testing.assert_array_equal(anychunk.open(target)["a/0"][...], np.concatenate(truth, axis=2))
