"""Every form of saved index has a version; a newer one is refused with one line."""

import json
import shutil

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk.errors import FormatError, UnsupportedError

VALUES = (np.arange(64 * 64) % 251).astype("uint8").reshape(64, 64)
SAVED = {
    "v3": ("i.json", {}),
    "v2": ("i.json", {"zarr_format": 2}),
    "osml": ("i.json", {"layout": "osml"}),
    "parquet": ("i.parquet", {}),
    "icechunk": ("i.icechunk", {}),
}
"""Target and options of each form that `save` writes."""
COMBINED = ("i.json", "i.parquet", "i.icechunk")
"""Targets that are written piece by piece."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with two files, and their indexes in every form, each in its own folder."""
    folder = tmp_path_factory.mktemp("indexes")
    for name in ("a.tif", "b.tif"):
        tifffile.imwrite(folder / name, VALUES, tile=(32, 32), compression="zlib", metadata=None)
    node = anychunk.index(folder / "a.tif")
    for name, (target, options) in SAVED.items():
        (folder / name).mkdir()
        node.save(folder / name / target, relative=False, **options)
    for target in COMBINED:
        (folder / f"many-{target}").mkdir()
        files = [folder / "a.tif", folder / "b.tif"]
        anychunk.index_to(files, combine="group", target=folder / f"many-{target}" / target)
    return folder


FORMS = [*SAVED, *(f"many-{target}" for target in COMBINED)]


@pytest.fixture(params=FORMS)
def index(request, made, tmp_path):
    """Return the path of a copy of an index."""
    copy = shutil.copytree(made / request.param, tmp_path / "copy")
    return next(copy.iterdir())


def root_of(path, change=lambda about: None):
    """Return the attribute of an index as it is stored, after a change of it."""
    if path.suffix == ".icechunk":
        import icechunk

        store = icechunk.local_filesystem_storage(str(path))
        session = icechunk.Repository.open(store).writable_session("main")
        group = zarr.open_group(session.store)
        about = json.loads(json.dumps(group.attrs["anychunk"]))
        change(about)
        if repr(about) != repr(group.attrs["anychunk"]):
            group.attrs["anychunk"] = about
            session.commit("change")
        return about
    file = path / "anychunk.json" if path.is_dir() else path
    document = json.loads(file.read_text())
    parts = document["metadata" if path.is_dir() else "refs"]
    key = ".zattrs" if ".zattrs" in parts else "zarr.json"
    root = json.loads(parts[key]) if isinstance(parts[key], str) else parts[key]
    about = (root if key == ".zattrs" else root["attributes"])["anychunk"]
    change(about)
    parts[key] = json.dumps(root) if isinstance(parts[key], str) else root
    file.write_text(json.dumps(document))
    return about


def opened(path):
    found = anychunk.index(path, allow=["*"])
    assert "index" not in found.attributes["anychunk"]
    image = next(
        array
        for _, array in anychunk.open(found).members(max_depth=None)
        if hasattr(array, "shape")
    )
    np.testing.assert_array_equal(np.squeeze(image[...]), VALUES)


def test_the_version_is_saved(index):
    about = root_of(index)
    assert (about["index"], about["version"]) == (1, anychunk.__version__)
    opened(index)


def test_the_version_is_of_the_index_and_not_of_the_file(made, tmp_path):
    again = anychunk.index(made / "v3" / "i.json", allow=["*"])
    assert again.attributes == anychunk.index(made / "a.tif").attributes
    again.attributes["anychunk"].update(index=9, version="0.0.1")
    again.save(tmp_path / "again.json")
    assert root_of(tmp_path / "again.json")["index"] == 1
    assert root_of(tmp_path / "again.json")["version"] == anychunk.__version__


def test_an_array_at_the_root(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(32, 32))
    node = anychunk.index(tmp_path / "a.zarr")
    for zarr_format in (2, 3):
        target = tmp_path / f"{zarr_format}.json"
        node.save(target, zarr_format=zarr_format)
        assert root_of(target)["index"] == 1
        np.testing.assert_array_equal(anychunk.open(target)[...], VALUES)
        root_of(target, lambda about: about.update(index=2))
        with pytest.raises(UnsupportedError, match="index version 2"):
            anychunk.open(target)


def test_a_newer_version_is_refused(index):
    root_of(index, lambda about: about.update(index=2, version="7.8.9rc1"))
    expected = (
        rf"{index.name}.*index version 2, anychunk \S+ reads 1; install anychunk 7\.8\.9rc1 or"
    )
    with pytest.raises(UnsupportedError, match=expected) as e:
        anychunk.index(index, allow=["*"])
    assert "\n" not in str(e.value)
    root_of(index, lambda about: about.update(index=10**60, version="7\n8"))
    with pytest.raises(UnsupportedError, match="install a newer anychunk"):
        anychunk.index(index, allow=["*"])


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "1", None, [1]], ids=repr)
def test_a_version_is_a_positive_integer(index, wrong):
    root_of(index, lambda about: about.update(index=wrong))
    with pytest.raises(FormatError, match="expected a positive integer"):
        anychunk.index(index, allow=["*"])


def test_an_index_of_ours_without_a_version_is_refused(made, tmp_path):
    for name in ("v3", "v2", "osml", "parquet", "icechunk"):
        path = next(shutil.copytree(made / name, tmp_path / name).iterdir())
        root_of(path, lambda about: about.pop("index"))
        with pytest.raises(FormatError, match="without a version"):
            anychunk.index(path, allow=["*"])


def test_indexes_of_others_have_no_version(index):
    """The attribute may be in them, too: other software copies it from a store that we wrote."""
    root_of(index, lambda about: [about.pop(key, None) for key in ("index", "pins", "base")])
    opened(index)


def test_nothing_is_appended_to_a_newer_repository(made, tmp_path):
    target = shutil.copytree(made / "icechunk" / "i.icechunk", tmp_path / "r.icechunk")
    root_of(target, lambda about: about.update(index=2))
    before = root_of(target)
    with pytest.raises(UnsupportedError, match="index version 2"):
        anychunk.append([made / "b.tif"], target, combine="group")
    assert root_of(target) == before


def test_appended_files_leave_the_version(made, tmp_path):
    target = tmp_path / "r.icechunk"
    for name in ("a.tif", "b.tif"):
        anychunk.append([made / name], target, combine="group")
        assert root_of(target)["index"] == 1
    assert set(anychunk.index(target, allow=["*"]).members) == {"a", "b"}


@pytest.mark.filterwarnings("ignore")
def test_manifests_have_the_version(made, tmp_path):
    import virtualizarr as vz  # noqa: F401 - the accessor

    manifests = anychunk.index(made / "a.tif").to_virtualizarr()
    group = manifests._group
    assert group.metadata.attributes["anychunk"]["index"] == 1
    assert "index" not in anychunk.from_virtualizarr(manifests).attributes["anychunk"]
    group.metadata.attributes["anychunk"]["index"] = 2
    with pytest.raises(UnsupportedError, match="index version 2"):
        anychunk.from_virtualizarr(manifests)
