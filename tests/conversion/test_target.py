"""Targets: invisible until complete, and never in the way of something else."""

import json

import numpy as np
import pytest

import anychunk
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.plan import make_plan
from anychunk.conversion.target import Target
from anychunk.errors import FormatError, TargetExistsError
from anychunk.io.object_stores import memory_store
from anychunk.io.opening import read_object


@pytest.fixture
def plan(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 5), "uint8"))
    return make_plan(anychunk.index(tmp_path / "a.npy"), ZarrOptions(axes="yx"), 1)


@pytest.fixture(params=["local", "remote"])
def url(request, tmp_path):
    return (
        str(tmp_path / "b.zarr") if request.param == "local" else f"memory://target/{tmp_path.name}"
    )


def finished(url, plan, *, overwrite=False):
    target = Target(url, None)
    journal = target.prepare(plan.fingerprint, overwrite=overwrite)
    target.finish(journal, plan.root, overwrite=overwrite)
    return target


def metadata(url, path):
    return json.loads(read_object(f"{url}/{path}").tobytes())


def test_metadata_is_written_at_the_end(url, plan):
    target = Target(url, None)
    journal = target.prepare(plan.fingerprint, overwrite=False)
    assert not target.exists()
    target.finish(journal, plan.root, overwrite=False)
    assert target.exists()
    root = metadata(url, "zarr.json")
    assert (root["zarr_format"], root["node_type"]) == (3, "group")
    assert metadata(url, "0/image/zarr.json") == json.loads(json.dumps(plan.arrays[0].metadata))
    assert read_object(f"{url}/.anychunk/journal") is None


def test_a_local_target_is_written_beside_its_name(tmp_path, plan):
    target = Target(str(tmp_path / "b.zarr"), None)
    assert target.part == str(tmp_path / ".b.zarr.part")
    finished(target.url, plan)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.zarr"]
    assert Target("memory://b/c.zarr", None).part == "memory://b/c.zarr"


def test_an_existing_target_is_refused(url, plan):
    finished(url, plan)
    target = Target(url, None)
    with pytest.raises(TargetExistsError, match=url):
        target.prepare("another", overwrite=False)
    target.prepare("another", overwrite=True)


def test_an_unfinished_conversion_is_resumed_only_by_itself(url, plan):
    target = Target(url, None)
    target.prepare(plan.fingerprint, overwrite=False).add("0/0", 7)
    if not target.is_local:
        journal = target.prepare(plan.fingerprint, overwrite=False)
        journal.add("0/0", 7)
        journal.flush()
    assert target.prepare(plan.fingerprint, overwrite=False).done() == {"0/0": 7}
    with pytest.raises(TargetExistsError, match=target.part):
        target.prepare("another", overwrite=False)
    assert target.prepare("another", overwrite=True).done() == {}


def test_overwriting_replaces_everything(url, plan, tmp_path):
    finished(url, plan)
    if url.startswith("memory"):
        memory_store("target").put(f"{tmp_path.name}/0/c/9/9", b"old")
    else:
        (tmp_path / "b.zarr" / "old").write_bytes(b"old")
    other = make_plan(plan.source, ZarrOptions(axes="yx", chunk=(2, 2)), 1)
    finished(url, other, overwrite=True)
    [found] = other.arrays
    assert metadata(url, "0/image/zarr.json") == json.loads(json.dumps(found.metadata))
    assert read_object(f"{url}/old") is None
    assert read_object(f"{url}/0/c/9/9") is None
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "a.npy") in ([], ["b.zarr"])


def test_a_file_in_the_way_is_replaced_only_if_allowed(tmp_path, plan):
    (tmp_path / "b.zarr").write_text("a file")
    with pytest.raises(FileExistsError, match=r"b\.zarr"):
        finished(str(tmp_path / "b.zarr"), plan)
    finished(str(tmp_path / "b.zarr"), plan, overwrite=True)
    assert (tmp_path / "b.zarr" / "zarr.json").exists()


def test_a_link_in_place_of_the_part_is_refused(tmp_path, plan):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".b.zarr.part").symlink_to(tmp_path / "elsewhere")
    for overwrite in (False, True):
        with pytest.raises(FormatError, match=r"\.b\.zarr\.part"):
            Target(str(tmp_path / "b.zarr"), None).prepare("abc", overwrite=overwrite)
    assert not list((tmp_path / "elsewhere").iterdir())
