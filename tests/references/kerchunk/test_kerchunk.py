"""Reference JSON: ours, that of other tools, and malformed."""

import json
from dataclasses import replace

import fsspec
import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import anychunk
from anychunk import limits
from anychunk.errors import AnychunkError, FormatError, LimitError, UnsupportedError
from anychunk.model.index import WHOLE, ByteRanges, GroupIndex
from anychunk.references.kerchunk import json_reader
from tests.support.indexes import MADE, array, pin_of, plain, uint64


def test_parts_stay_references_in_json(tmp_path):
    node, _ = MADE["parted"](tmp_path)
    node.save(tmp_path / "i.json")
    references = json.loads((tmp_path / "i.json").read_text())["refs"]
    assert references["p/c/0"] == ["{{base}}/parts.bin", [[30, 2], [2, 1], [20, 1]]]
    assert references["p/c/1"] == ["{{base}}/parts.bin", 8, 4]
    assert anychunk.index(tmp_path / "i.json")["p"] == node["p"]


def test_relative_needs_the_data_below_the_index(tmp_path):
    (tmp_path / "data").mkdir()
    node, _ = plain(tmp_path / "data")
    with pytest.raises(UnsupportedError, match=r"a b\.bin .*/other\b.*relative=False"):
        node.save(tmp_path / "other" / "i.json", relative=True)
    node.save(tmp_path / "data" / "i.json", relative=False)
    assert "{{base}}" not in (tmp_path / "data" / "i.json").read_text()


def test_osml_layout(tmp_path):
    node, truth = plain(tmp_path)
    for zarr_format, key in ((3, "0/data/c.0.1.0"), (2, "0/data/0.1.0")):
        node.save(tmp_path / "i.json", layout="osml", zarr_format=zarr_format, overwrite=True)
        references = json.loads((tmp_path / "i.json").read_text())["refs"]
        assert key in references
        opened = anychunk.open(tmp_path / "i.json")
        assert opened["0/data"].metadata.dimension_names == ("band", "y", "x")
        np.testing.assert_array_equal(opened["0/data"][...], truth[None])


def test_foreign_reference_json(tmp_path):
    """Version 0, Zarr v2, big-endian, F order, zlib, slashes in keys, text inline: as kerchunk has it."""
    import zlib

    values = np.arange(6, dtype=">i2").reshape(2, 3)
    packed = zlib.compress(values.tobytes(order="F"))
    (tmp_path / "d").write_bytes(b"xx" + packed)
    zarray = {
        "zarr_format": 2,
        "shape": [2, 3],
        "chunks": [2, 3],
        "dtype": ">i2",
        "order": "F",
        "compressor": {"id": "zlib", "level": 1},
        "filters": None,
        "fill_value": None,
        "dimension_separator": "/",
    }
    text = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [4],
        "dtype": "|u1",
        "order": "C",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
    }
    references = {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(zarray),
        "a/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["r", "c"], "u": "m"}),
        "a/0/0": ["d", 2, len(packed)],
        "t/.zarray": text,
        "t/0": "abcd",
    }
    (tmp_path / "i.json").write_text(json.dumps(references, indent=1))
    opened = anychunk.open(tmp_path / "i.json")
    np.testing.assert_array_equal(opened["a"][...], values)
    assert opened["a"].metadata.dimension_names == ("r", "c")
    assert dict(opened["a"].attrs) == {"u": "m"}
    assert bytes(opened["t"][...]) == b"abcd"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", -1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", 1, 0]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{base}}/a b.bin", 2**63, 2**63]}),
        lambda d: d["refs"].update({"0/0/c/0/0": [None, 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": {"a": 1}}),
        lambda d: d["refs"].update({"0/0/c/0/0": "base64:%%%"}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["x", []]}),
        lambda d: d["refs"].update({"0/0/c/x/0": ["{{base}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0": ["{{base}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/c/0/0": ["{{q}}/a b.bin", 1, 4]}),
        lambda d: d["refs"].update({"0/0/zarr.json": "{"}),
        lambda d: d["refs"].update({"0/0/zarr.json": "[]"}),
        lambda d: d["refs"].update({"0/0/zarr.json": '{"node_type": "array"}'}),
        lambda d: d["refs"].update({"0/0/x/zarr.json": '{"node_type": "group"}'}),
        lambda d: d["refs"].update({"../zarr.json": '{"node_type": "group"}'}),
        lambda d: d.update({"gen": [{"key": "x"}]}),
        lambda d: d.update({"version": 2}),
        lambda d: d.update({"templates": 3}),
        lambda d: d["refs"].clear(),
    ],
)
def test_garbled_json_is_refused(tmp_path, change):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    change(found)
    (tmp_path / "i.json").write_text(json.dumps(found))
    with pytest.raises(AnychunkError):
        anychunk.open(tmp_path / "i.json")


def test_hostile_json_gives_an_index_or_an_error(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    text = (tmp_path / "i.json").read_bytes()
    random = np.random.default_rng(1)
    for i in range(400):
        data = bytearray(text)
        if i % 3 == 0:
            data = data[: random.integers(30, len(data))]
        for _ in range(random.integers(1, 6)):
            data[random.integers(0, len(data))] = random.integers(0, 256)
        (tmp_path / "x.json").write_bytes(bytes(data))
        try:
            opened = anychunk.open(tmp_path / "x.json", format="kerchunk")
            assert isinstance(opened, zarr.Group | zarr.Array)
        except (UnicodeDecodeError, RecursionError):
            raise
        except (AnychunkError, ValueError, KeyError, TypeError):
            # zarr itself judges data types and fill values that it does not know
            continue
    for bad in (b'{"refs": ' + b"[" * 100_000, b'{"refs": {"a": ' + b'{"a":' * 100_000):
        (tmp_path / "x.json").write_bytes(bad)
        with pytest.raises(FormatError):
            anychunk.open(tmp_path / "x.json")


def test_pins_are_read_strictly(tmp_path):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    assert anychunk.index(tmp_path / "i.json").pins[str(tmp_path / "a b.bin")] == pin_of(
        tmp_path / "a b.bin"
    )
    text = (tmp_path / "i.json").read_text()
    (tmp_path / "i.json").write_text(text.replace('\\"size\\": 40', '\\"size\\": \\"40\\"'))
    with pytest.raises(FormatError, match=r"'size': '40'"):
        anychunk.open(tmp_path / "i.json")


DOCUMENT = "0/0/zarr.json"


@pytest.mark.parametrize("data_type", ["x", 5])
def test_an_array_of_unknown_type_leaves_the_others_readable(tmp_path, data_type):
    node, values = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    document = json.loads(found["refs"][DOCUMENT])
    found["refs"]["0/1/zarr.json"] = json.dumps({**document, "data_type": data_type})
    (tmp_path / "i.json").write_text(json.dumps(found))
    group = anychunk.open_group(tmp_path / "i.json")
    np.testing.assert_array_equal(group["0/0"][...], values)
    with pytest.raises(FormatError, match="0/1"):
        group["0/1"]


@pytest.mark.parametrize(
    ("key", "change", "error", "message"),
    [
        (DOCUMENT, {"fill_value": {}}, FormatError, r"0/0: fill value {} .*u?int"),
        (DOCUMENT, {"fill_value": 2**63}, FormatError, rf"0/0: fill value {2**63} "),
        (DOCUMENT, {"dimension_names": [1, 2]}, FormatError, r"0/0: dimension_names \(1, 2\)"),
        (DOCUMENT, {"dimension_names": ["x"]}, FormatError, r"0/0: .*\('x',\).* 2,"),
        (DOCUMENT, {"codecs": ["x"]}, FormatError, "0/0: codec 'x'"),
        (DOCUMENT, {"codecs": [{"name": 1}]}, FormatError, "0/0: codec {'name': 1}"),
        (DOCUMENT, {"shape": [4]}, FormatError, r"0/0: .*\(2, 2\).*\(4,\)"),
        (DOCUMENT, {"attributes": 5}, FormatError, "0/0: attributes are 5"),
        ("0/zarr.json", {"attributes": ["x"]}, FormatError, r"0: attributes are \['x'\]"),
        ("zarr.json", {"attributes": {"anychunk": 5}}, FormatError, "anychunk is 5"),
    ],
)
def test_metadata_that_zarr_would_refuse(tmp_path, key, change, error, message):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    found["refs"][key] = json.dumps({**json.loads(found["refs"][key]), **change})
    (tmp_path / "i.json").write_text(json.dumps(found))
    with pytest.raises(error, match=message):
        anychunk.index(tmp_path / "i.json")


@pytest.mark.parametrize("chunk_shape", [[2, 0], [2]])
def test_chunk_shapes_that_make_no_grid(tmp_path, chunk_shape):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    text = (tmp_path / "i.json").read_text()
    changed = text.replace('\\"chunk_shape\\": [2, 2]', f'\\"chunk_shape\\": {chunk_shape}')
    assert changed != text
    (tmp_path / "i.json").write_text(changed)
    with pytest.raises(FormatError, match=r"0/0: chunk shape \(2,.*\(4, 4\)"):
        anychunk.index(tmp_path / "i.json")


@pytest.mark.parametrize("ranges", [5, None, {}, "x", []])
def test_ranges_that_are_no_list(tmp_path, ranges):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    found["refs"]["0/0/c/0/0"] = ["{{base}}/a b.bin", ranges]
    (tmp_path / "i.json").write_text(json.dumps(found))
    with pytest.raises(FormatError, match=r"i\.json.*0/0/c/0/0"):
        anychunk.index(tmp_path / "i.json")


@pytest.mark.parametrize(
    "codecs", [[{"name": "x"}], [{"name": "bytes", "configuration": {"endian": "x"}}], []]
)
def test_codecs_that_zarr_does_not_open(tmp_path, codecs):
    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.json")
    found = json.loads((tmp_path / "i.json").read_text())
    found["refs"][DOCUMENT] = json.dumps({**json.loads(found["refs"][DOCUMENT]), "codecs": codecs})
    (tmp_path / "i.json").write_text(json.dumps(found))
    group = anychunk.open_group(tmp_path / "i.json")
    for read in (
        lambda: group["0/0"],
        lambda: group["0"]["0"],
        group["0"].members,
        lambda: list(group["0"].arrays()),
        lambda: group.image(0),
    ):
        with pytest.raises(AnychunkError):
            read()


def test_chunks_with_a_front_and_parts_are_copied_once(tmp_path):
    node, _ = MADE["parted"](tmp_path)
    chunks = replace(node["p"].chunks, fronts=(b"\x63",), lengths=uint64([1, 3]))
    fronted = replace(node, members={"p": replace(node["p"], chunks=chunks)})
    fronted.save(tmp_path / "i.json", copy="needed")
    found = anychunk.open(tmp_path / "i.json")["p"][...]
    np.testing.assert_array_equal(found, [99, 30, 2, 20, 99, 8, 9, 10])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["music", "c", "a"])
def test_an_array_without_axes(tmp_path, name, zarr_format):
    (tmp_path / "f").write_bytes(bytes([7]))
    chunks = ByteRanges(offsets=uint64(0), lengths=uint64(1), urls=(str(tmp_path / "f"),))
    node = GroupIndex(members={name: array((), (), chunks)})
    node.save(tmp_path / "i.json", zarr_format=zarr_format)
    assert anychunk.open(tmp_path / "i.json")[name][()] == 7
    fs = fsspec.filesystem("reference", fo=str(tmp_path / "i.json"), asynchronous=True)
    store = FsspecStore(fs, read_only=True, path="")
    assert zarr.open_group(store, mode="r", zarr_format=zarr_format)[name][()] == 7


def test_metadata_that_is_a_reference_is_not_lost(tmp_path):
    refs = {".zgroup": '{"zarr_format":2}', "a/.zarray": ["m.json", 0, 10], "a/0": ["f", 0, 4]}
    (tmp_path / "i.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(AnychunkError, match=r"a/\.zarray"):
        anychunk.index(tmp_path / "i.json")


def test_json_that_would_not_open_again_is_not_written(tmp_path):
    node, _ = plain(tmp_path)
    with limits.override(index_bytes=100), pytest.raises(LimitError, match="parquet or Icechunk"):
        node.save(tmp_path / "i.json")
    assert not (tmp_path / "i.json").exists()


@pytest.mark.parametrize("separators", [None, (",", ":"), (" ,\n", " :\t")])
@pytest.mark.parametrize("block", [64, 300, 1 << 20])
def test_references_that_are_read_many_at_a_time(monkeypatch, block, separators):
    """Against Python's JSON: runs of plain references, and what interrupts them."""
    monkeypatch.setattr(json_reader, "BLOCK", block)
    monkeypatch.setattr(json_reader, "FEW", 3)
    document = {"zarr_format": 2, "shape": [40, 9], "chunks": [1, 1], "dtype": "|u1",
                "compressor": None, "filters": None, "fill_value": 0, "order": "C"}  # fmt: skip
    refs = {f"{name}/.zarray": json.dumps(document) for name in ("a", "b")}
    random = np.random.default_rng(1)
    for n in range(360):
        name = "ab"[n > 200] if n % 7 else "b"
        key = f"{name}/{n // 9}.{n % 9}"
        url = f"https://example.com/{'é' if n % 5 == 0 else 'x'}{n // 20}"
        offset, length = (int(x) for x in random.integers(1, 1 << 61, 2) >> random.integers(0, 60))
        refs[key] = {
            0: [url], 1: [url, [[offset, length], [1, 2]]], 2: "text"
        }.get(n % 11, [url, offset, length or 1])  # fmt: skip
    text = json.dumps({"version": 1, "refs": refs}, separators=separators, ensure_ascii=True)
    text = text.replace("\\u00e9", "é", 9)  # the others are escaped, so that they are not plain
    found = json_reader.read_json(text, "i.json")
    plain_or_whole = {k: v for k, v in refs.items() if isinstance(v, list)}
    assert len(found.keys) == len(plain_or_whole)
    names = list(found.urls)
    keys = [key for keys in found.keys.taken_blocks() for key in keys]
    ranges = zip(found.offsets, found.lengths, strict=True)
    for key, id_, read in zip(keys, found.url_ids, ranges, strict=True):
        url, *rest = plain_or_whole[key]
        first = (0, int(WHOLE)) if not rest else tuple(rest if len(rest) == 2 else rest[0][0])
        assert (names[id_], read) == (url, first)
    assert found.parts == {k: [(1, 2)] for k, v in plain_or_whole.items() if len(v) == 2}
    assert set(found.inline) == {k for k, v in refs.items() if v == "text"}
