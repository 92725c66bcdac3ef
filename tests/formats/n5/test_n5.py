import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import zarr

import anychunk
from anychunk.errors import FormatError, LimitError, SourceError, UnsupportedError
from anychunk.formats.n5.attributes import Dataset
from anychunk.formats.n5.hierarchy import Options, meaning_of, plain_meaning
from anychunk.io.opening import Folder
from anychunk.model.index import ArrayIndex
from tests.support.corpus import ROOT, needs_corpus, samples, sha256
from tests.support.http_server import serve
from tests.support.n5_blocks import block_bytes, field, gzipped, write_dataset

ARRAY = field((7, 5, 4))
MADE = sorted((ROOT / "n5-made").glob("*/*.truth.npy"))


@pytest.fixture
def container(tmp_path):
    root = tmp_path / "c.n5"
    gzipped(root / "group/volume", ARRAY, (3, 2, 3), note={"by": "hand"})
    (root / "attributes.json").write_text('{"n5": "2.5.1"}')
    (root / "empty").mkdir()
    return root


@needs_corpus
@pytest.mark.parametrize("axes", ["xyz", "zyx"])
@pytest.mark.parametrize("truth", MADE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_made_datasets_equal_their_truth(truth, axes):
    opened = anychunk.open(str(truth).removesuffix(".truth.npy"), axes=axes)
    array = opened if isinstance(opened, zarr.Array) else opened["data/0/image"]
    expected = np.load(truth) if axes == "xyz" else np.load(truth).T
    assert array.dtype == expected.dtype
    found = array[...]
    # by bytes: the truth holds NaN
    assert (found.shape, found.tobytes()) == (expected.shape, expected.tobytes())


@needs_corpus
@pytest.mark.parametrize("sample", samples("n5/"), ids=lambda sample: sample.path)
def test_real_containers_equal_tensorstore(sample):
    readings = re.findall(r"([^ |]+): tensorstore n5 [^:]*: sha256=(\w+)", sample.oracle)
    opened, plain = (anychunk.open(sample.file, axes=axes) for axes in ("zyx", "xyz"))
    for path, digest in readings:
        array, turned = (o if path == "." else o[array_below(o, path)] for o in (plain, opened))
        assert sha256(array[...]) == digest
        np.testing.assert_array_equal(turned[...], array[...].T)
    if not readings:  # version 1, which tensorstore does not open: the same samples as in version 2
        other = anychunk.open(sample.file.with_name("data-2.5.1.n5"))
        np.testing.assert_array_equal(opened["raw/0/image"][...], other["raw/0/image"][...])


def array_below(group, path):
    """The path of the array of a dataset: in a level group, or in that of the only level."""
    return f"{path}/image" if f"{path}/image" in group else f"{path}/0/image"


@needs_corpus
def test_strings_objects_and_varlength_blocks():
    folder = ROOT / "n5-made/special"
    strings = anychunk.open(folder / "string_varlength.n5")
    truth = json.loads((folder / "string_varlength.n5.truth.json").read_text("utf-8"))
    assert strings[...].tolist() == truth["0"]["data"]
    objects = anychunk.open(folder / "object_mode2.n5")
    truth = json.loads((folder / "object_mode2.n5.truth.json").read_text("utf-8"))
    assert objects[0] == bytes.fromhex(truth["0"]["bytes_hex"])
    labels = anychunk.open(folder / "varlength_uint8.n5", axes="xyz")
    truth = json.loads((folder / "varlength_uint8.n5.truth.json").read_text("utf-8"))
    np.testing.assert_array_equal(labels[2:, :2].ravel(order="F"), truth["1/0"]["data"])
    with pytest.raises(UnsupportedError, match=r"chunk \(0, 0\), 0/0: .*varlength"):
        labels[:2, :2]
    turned = anychunk.open(folder / "varlength_uint8.n5")
    np.testing.assert_array_equal(turned[:2, 2:].ravel(), truth["1/0"]["data"])
    blocks = anychunk.open(folder / "varlength_uint8.n5", content="bytes")
    assert blocks.shape == (2, 2)
    assert blocks.metadata.dimension_names == ("dim_0", "dim_1")
    assert list(blocks[...][0, 0]) == truth["0/0"]["data"]


def test_hierarchy(container):
    group = anychunk.open(container)
    assert isinstance(group, zarr.Group)
    assert sorted(group) == ["empty", "group"]
    image = group["group/volume"]
    assert list(image) == ["0"]
    volume = image["0/image"]
    np.testing.assert_array_equal(volume[...], ARRAY.T)
    assert volume.metadata.dimension_names == ("z", "y", "x")
    assert image.attrs["n5"]["note"] == {"by": "hand"}
    assert image.attrs["ome"]["multiscales"][0]["datasets"][0]["path"] == "0/image"
    assert group.attrs["n5"] == {"n5": "2.5.1"}
    assert group.attrs["anychunk"]["format"] == "n5"
    assert "nothing" not in group
    with pytest.raises(KeyError):
        group["group/volume/1"]


@pytest.mark.parametrize("url", ["group/volume", "group", "", "empty"])
def test_any_folder_of_a_container_opens(container, url):
    opened = anychunk.open(container / url)
    array = {"group/volume": lambda o: o, "group": lambda o: o["volume/0/image"]}.get(
        url, lambda o: o.get("group/volume/0/image")
    )(opened)
    if url == "empty":
        assert array is None
    else:
        np.testing.assert_array_equal(array[...], ARRAY.T)


def test_selections_in_both_orders(container):
    volume = anychunk.open(container / "group/volume", axes="xyz")
    turned = anychunk.open(container / "group/volume")
    assert volume.metadata.dimension_names == ("x", "y", "z")
    assert [codec.to_dict()["name"] for codec in turned.metadata.codecs] == ["anychunk.n5"]
    assert turned.shape == (4, 5, 7)
    assert turned.chunks == (3, 2, 3)
    assert turned.metadata.dimension_names == ("z", "y", "x")
    for at in (np.s_[1:6:2, 3, :], np.s_[-1], np.s_[..., 2:], np.s_[3:4, 4:, 3]):
        np.testing.assert_array_equal(volume[at], ARRAY[at])
        np.testing.assert_array_equal(turned[at], ARRAY.T[at])
    np.testing.assert_array_equal(
        volume.oindex[[0, 6], :, [1, 3]], ARRAY[np.ix_([0, 6], range(5), [1, 3])]
    )
    mask = np.zeros(7, bool)
    mask[[1, 6]] = True
    np.testing.assert_array_equal(volume.oindex[mask, 4], ARRAY[mask, 4])


def test_index_is_plain_data(container):
    index = anychunk.index(container)
    again = pickle.loads(pickle.dumps(index))
    assert again == index
    assert index != anychunk.index(container, axes="xyz")
    np.testing.assert_array_equal(anychunk.open(again)["group/volume/0/image"][...], ARRAY.T)
    described = anychunk.describe(container)
    assert [array["path"] for array in described["arrays"]] == ["group/volume/0/image"]


def test_absent_and_empty_blocks_read_as_zero(container):
    (container / "group/volume/0/0/0").unlink()
    (container / "group/volume/1/0/0").write_bytes(b"")
    expected = ARRAY.copy()
    expected[:6, :2, :3] = 0
    np.testing.assert_array_equal(anychunk.open(container / "group/volume")[...], expected.T)


def test_an_unreadable_block_is_no_absent_one(container):
    file = container / "group/volume/0/0/0"
    file.unlink()
    file.mkdir()
    with pytest.raises(SourceError, match="0/0/0"):
        anychunk.open(container / "group/volume")[...]


def test_a_remote_container_in_memory(container):
    import obstore

    from anychunk.io.object_stores import memory_store

    store = memory_store("n5-test")
    for file in container.rglob("*"):
        if file.is_file():
            obstore.put(store, f"c.n5/{file.relative_to(container)}", file.read_bytes())
    group = anychunk.open("memory://n5-test/c.n5")
    assert list(group) == ["group"]  # an object store has no empty folders
    np.testing.assert_array_equal(group["group/volume/0/image"][...], ARRAY.T)
    np.testing.assert_array_equal(
        anychunk.open("memory://n5-test/c.n5/group/volume")[2:5], ARRAY.T[2:5]
    )
    with pytest.raises(FileNotFoundError):
        anychunk.open("memory://n5-test/c.n5/nothing")


@pytest.mark.processes
def test_a_container_behind_a_web_server(container):
    (container / "group/volume/2/2/1").unlink()
    expected = ARRAY.copy()
    expected[6:, 4:, 3:] = 0
    expected = expected.T
    with serve(container.parent) as served:
        dataset = anychunk.open(f"{served.url}/c.n5/group/volume")
        assert len(served.requests) <= 2
        np.testing.assert_array_equal(dataset[...], expected)
        again = anychunk.open(f"{served.url}/c.n5/group/volume", format="n5")
        np.testing.assert_array_equal(again[3:], expected[3:])
        # a server does not list, but what is asked for is found, also below a bare group
        group = anychunk.open(f"{served.url}/c.n5")
        np.testing.assert_array_equal(group["group/volume/0/image"][...], expected)
        served.fail = [500] * 50
        with pytest.raises(SourceError), anychunk.limits.override(retries=1, retry_s=1.0):
            dataset[:2]


VALID = {
    "dimensions": [7, 5],
    "blockSize": [3, 2],
    "dataType": "uint16",
    "compression": {"type": "raw"},
}


def made(tmp_path, text, array=None):
    folder = tmp_path / "d.n5"
    write_dataset(folder, field((7, 5)) if array is None else array, (3, 2))
    (folder / "attributes.json").write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


@pytest.mark.parametrize(
    "attributes",
    [
        VALID,
        {**{k: v for k, v in VALID.items() if k != "compression"}, "compressionType": "raw"},
        {**VALID, "compression": "raw"},
        {**VALID, "n5": "1.5.0", "dimensions": [7.0, 5.0]},
        "\ufeff/* a licence\n with { */\n" + json.dumps(VALID).replace("{", "{ // note\n", 1),
        json.dumps({**VALID, "url": "http://a/*b*/"}),
    ],
    ids=["plain", "version 1", "by name", "floats", "comments", "no comment"],
)
def test_attributes_of_every_kind(tmp_path, attributes):
    found = anychunk.open(made(tmp_path, attributes))
    np.testing.assert_array_equal(found[...], field((7, 5)).T)
    if "url" in found.attrs["n5"]:
        assert found.attrs["n5"]["url"] == "http://a/*b*/"


def test_a_missing_block_size_is_one_block(tmp_path):
    array = field((7, 5))
    folder = write_dataset(tmp_path / "d.n5", array, (7, 5))
    attributes = {k: v for k, v in VALID.items() if k != "blockSize"}
    (folder / "attributes.json").write_text(json.dumps(attributes))
    np.testing.assert_array_equal(anychunk.open(folder)[...], array.T)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dimensions": [7, 5, 4]}, FormatError, r"\[7, 5, 4\] and blockSize \[3, 2\]"),
        ({"dimensions": []}, FormatError, r"\[\] and blockSize \[3, 2\]"),
        ({"dimensions": [7, -5]}, FormatError, "dimensions is"),
        ({"dimensions": [7, True]}, FormatError, "dimensions is"),
        ({"dimensions": [7, 0.5]}, FormatError, "dimensions is"),
        ({"dimensions": "7x5"}, FormatError, "dimensions is"),
        ({"dimensions": [1] * 100, "blockSize": [1] * 100}, FormatError, "at most 32"),
        ({"blockSize": [0, 2]}, FormatError, "blockSize is"),
        ({"dimensions": [1 << 62] * 2, "blockSize": [1 << 30] * 2}, LimitError, "blockSize"),
        ({"dimensions": [1 << 60] * 2}, LimitError, "chunks"),
        ({"dataType": "uint7"}, UnsupportedError, "uint7.* uint8"),
        ({"dataType": ["uint8"]}, UnsupportedError, r"\['uint8'\].* uint8"),
        ({"compression": {"type": "jpeg"}}, UnsupportedError, "jpeg.* raw gzip"),
        ({"compression": {"type": "gzip", "level": 77}}, FormatError, "level 77"),
        ({"compression": {"type": "blosc", "cname": "x"}}, FormatError, "cname 'x'"),
        ({"compression": {"type": "blosc", "shuffle": 9}}, FormatError, "compression"),
        ({"compression": {}}, FormatError, "an object with a type"),
        ({"compression": None}, FormatError, "an object with a type"),
    ],
)
def test_attributes_that_make_no_sense(tmp_path, change, error, message):
    with pytest.raises(error, match=message) as caught:
        anychunk.open(made(tmp_path, {**VALID, **change}))
    assert "attributes.json" in str(caught.value) or error is LimitError
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["{", "[1]", "7", '"text"', "{'a': 1}", "[" * 200_000, "\xff", "/* open"]
)
def test_attributes_that_are_no_object(tmp_path, text):
    folder = made(tmp_path, "")
    (folder / "attributes.json").write_bytes(text.encode("latin1"))
    with pytest.raises(FormatError, match=r"attributes\.json"):
        anychunk.open(folder)


def test_an_empty_attributes_file_is_a_group(tmp_path):
    assert isinstance(anychunk.open(made(tmp_path, "")), zarr.Group)


@pytest.mark.parametrize("option", [{"axes": "C"}, {"content": 1}])
def test_options_are_checked(container, option):
    with pytest.raises((ValueError, FormatError), match="expected one of"):
        anychunk.open(container, **option)


def test_a_block_far_larger_than_its_dataset(tmp_path):
    array = field((5, 6))
    folder = tmp_path / "d.n5"
    write_dataset(folder, array, (5, 6))
    attributes = {**VALID, "dimensions": [5, 6], "blockSize": [1 << 30, 1 << 30]}
    (folder / "attributes.json").write_text(json.dumps(attributes))
    found = anychunk.open(folder)
    plain = anychunk.open(folder, axes="xyz")
    assert (found.chunks, plain.chunks) == ((6, 5), (5, 6))
    np.testing.assert_array_equal(found[...], array.T)
    np.testing.assert_array_equal(plain[...], array)
    padded = np.zeros((8, 9), "uint16")
    padded[:5, :6] = array
    (folder / "0/0").write_bytes(block_bytes(padded))
    np.testing.assert_array_equal(found[...], array.T)
    np.testing.assert_array_equal(plain[...], array)


def test_a_broken_member_does_not_hide_the_others(container):
    bad = container / "bad"
    bad.mkdir()
    (bad / "attributes.json").write_text("{")
    group = anychunk.open(container)
    np.testing.assert_array_equal(group["group/volume/0/image"][...], ARRAY.T)
    with pytest.raises(FormatError, match=r"bad/attributes\.json"):
        group["bad"]


def test_names_do_not_lead_out(container):
    index = anychunk.index(container / "group")
    for name in ("..", ".", "", "../empty", "volume/0", "\0", "..\\empty"):
        assert name not in index.members


def test_links_that_lead_back_end(container):
    (container / "group/loop").symlink_to("..")
    with pytest.raises(FormatError, match="group/loop"):
        anychunk.describe(container)


def test_a_container_of_very_many_datasets_is_not_visited(tmp_path, monkeypatch):
    root = tmp_path / "many.n5"
    write_dataset(root / "d0", field((4, 4)), (4, 4))
    text = (root / "d0/attributes.json").read_text()
    for number in range(1, 2000):
        folder = root / f"d{number}"
        folder.mkdir()
        (folder / "attributes.json").write_text(text if number % 2 else "damaged")
    visited = set()
    read = Folder.read

    def reads(self, name):
        visited.add(Path(self.path).name)
        return read(self, name)

    monkeypatch.setattr(Folder, "read", reads)
    group = anychunk.open(root)  # would raise, if it read them
    index = anychunk.index(root)
    assert len(list(index.members)) == 2000
    assert isinstance(index["d1/0/image"], ArrayIndex)
    np.testing.assert_array_equal(group["d0/0/image"][...], field((4, 4)).T)
    assert visited <= {"many.n5", "d0", "d1", "s0"}  # s0: whether a group is a pyramid


@pytest.mark.parametrize("options", [{}, {"axes": "xyz"}, {"content": "bytes"}])
@pytest.mark.parametrize("data_type", ["uint8", "float64", "string"])
@pytest.mark.parametrize("ndim", [1, 2, 3, 4, 5, 6])
def test_structure_alone_means_what_any_other_attribute_leaves(ndim, data_type, options):
    sizes = tuple(range(3, 3 + ndim))
    attributes = {"dimensions": list(sizes), "blockSize": list(sizes), "dataType": data_type}
    dataset = Dataset(dimensions=sizes, block_size=sizes, data_type=data_type, compression={})
    chosen = Options(**options)
    expected = meaning_of(dataset, [("0", attributes | {"other": 1})], ({}, {}), chosen)
    assert plain_meaning(ndim, data_type, chosen) == expected
