"""JNRRD without tiles, its header, and the samples with their truth."""

import bz2
import gzip
import json
import re
import warnings

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.errors import (
    AnychunkError,
    FormatError,
    FormatWarning,
    LimitError,
    TruncatedError,
    UnsupportedError,
)
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import header
from anychunk.io.buffers import MemorySource
from anychunk.io.opening import open_source
from anychunk.testing.formats import FormatContract
from tests.support.corpus import ROOT, needs_corpus
from tests.support.naive_jnrrd import core, write

MADE = ROOT / "jnrrd-made"
VALUES = np.arange(24, dtype=np.int16).reshape(2, 3, 4) - 7
ENCODE = {
    "raw": bytes,
    "gzip": gzip.compress,
    "gz": gzip.compress,
    "bzip2": bz2.compress,
    "bz2": bz2.compress,
    "zstd": lambda data: bytes(imagecodecs.zstd_encode(data)),
    "lz4": lambda data: bytes(imagecodecs.lz4f_encode(data)),
    "hex": lambda data: data.hex().encode(),
    "ascii": lambda data: b" ".join(b"%d" % n for n in np.frombuffer(data, "<i2")),
    "txt": lambda data: b"\n".join(b"%d" % n for n in np.frombuffer(data, "<i2")),
    "text": lambda data: b", ".join(b"%d" % n for n in np.frombuffer(data, "<i2")),
}


def fields(**more):
    return core([4, 3, 2], "int16", **more)


def read(path, **options):
    return anychunk.open_array(path, **options)[...]


@needs_corpus
@pytest.mark.parametrize("file", sorted(MADE.glob("*.jnrrd")), ids=lambda path: path.stem)
def test_samples_equal_their_truth(file):
    group = anychunk.open(file)["0"]
    truths = {0: file.with_suffix(".truth.npy")}
    truths |= {n: file.with_suffix(f".L{n}.truth.npy") for n in range(1, 5)}
    compared = 0
    for level, truth in truths.items():
        if truth.exists():
            expected = np.load(truth)
            assert group[f"{level}/image"].dtype == expected.dtype
            np.testing.assert_array_equal(group[f"{level}/image"][...], expected)
            compared += 1
    assert compared
    assert jnrrd.validate(file) == []


@pytest.mark.filterwarnings("ignore::anychunk.errors.FormatWarning")
class TestJnrrd(FormatContract):
    def samples(self, folder):
        data = VALUES.astype("<i2").tobytes()
        for name in ("raw", "gzip", "bzip2", "zstd", "lz4"):
            yield (
                write(folder / f"{name}.jnrrd", fields(encoding=name), ENCODE[name](data)),
                {"0/0/image": VALUES},
            )


@pytest.mark.parametrize("encoding", ENCODE)
def test_every_encoding(tmp_path, encoding):
    data = ENCODE[encoding](VALUES.astype("<i2").tobytes())
    found = read(write(tmp_path / "a.jnrrd", fields(encoding=encoding), data))
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, VALUES)


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize(
    "kind",
    [
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_every_type_in_both_byte_orders(tmp_path, kind, endian):
    values = (np.arange(24).reshape(2, 3, 4) - (0 if kind[0] == "u" else 9)).astype(kind)
    stored = values.astype(values.dtype.newbyteorder("<" if endian == "little" else ">"))
    found = read(
        write(tmp_path / "a.jnrrd", core([4, 3, 2], kind) | {"endian": endian}, stored.tobytes())
    )
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("alias", "kind"),
    [
        ("float", "f4"),
        ("double", "f8"),
        ("short", "i2"),
        ("unsigned char", "u1"),
        ("unsigned_char", "u1"),
        ("signed char", "i1"),
        ("uint16_t", "u2"),
        ("unsigned long long int", "u8"),
        ("int", "i4"),
    ],
)
def test_types_of_nrrd_are_understood(tmp_path, alias, kind):
    values = np.arange(5, dtype=kind)
    np.testing.assert_array_equal(
        read(write(tmp_path / "a.jnrrd", core([5], alias), values.tobytes())), values
    )


def test_blocks_are_bytes_along_a_further_axis(tmp_path):
    data = np.arange(18, dtype=np.uint8)
    array = anychunk.open_array(
        write(tmp_path / "a.jnrrd", core([3, 2], "block", block_size=3), data.tobytes())
    )
    assert array.metadata.dimension_names == ("dim_0", "dim_1", "dim_2")
    assert "ome" not in anychunk.open(tmp_path / "a.jnrrd")["0"].attrs
    np.testing.assert_array_equal(array[...], data.reshape(2, 3, 3))


def test_bfloat16_is_indexed_by_its_name(tmp_path):
    path = write(tmp_path / "a.jnrrd", core([3], "bfloat16"), bytes(6))
    assert anychunk.index(path)["0/0/image"].data_type == "bfloat16"


def test_first_size_is_the_fastest_axis(tmp_path):
    found = read(write(tmp_path / "a.jnrrd", core([3, 2]), bytes(range(6))))
    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, 5]])


def test_missing_endian_is_little_with_a_warning(tmp_path):
    without = fields()
    del without["endian"]
    path = write(tmp_path / "a.jnrrd", without, VALUES.astype("<i2").tobytes())
    with pytest.warns(FormatWarning, match="endian.*int16"):
        found = read(path)
    np.testing.assert_array_equal(found, VALUES)
    single = core([3])
    del single["endian"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(write(tmp_path / "b.jnrrd", single, bytes(3)))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("blank", [True, False])
def test_header_ends_at_a_blank_line_or_at_what_is_no_object(tmp_path, end, blank):
    path = tmp_path / "a.jnrrd"
    path.write_bytes(
        b"".join(json.dumps({k: v}).encode() + end.encode() for k, v in core([5]).items())
        + (end.encode() if blank else b"")
        + bytes([200, 1, 2, 3, 10])
    )
    np.testing.assert_array_equal(read(path), [200, 1, 2, 3, 10])


def test_data_that_looks_like_a_blank_line_is_data(tmp_path):
    data = b'\n\n{"a"'
    np.testing.assert_array_equal(read(write(tmp_path / "a.jnrrd", core([6]), data)), list(data))


def test_utf8_is_decoded_before_it_is_parsed(tmp_path):
    path = write(tmp_path / "a.jnrrd", core([2], content="x"), b"ab")
    text = path.read_bytes().replace(b'"x"', '"µm \u4e2d"'.encode())
    path.write_bytes(text)
    assert anychunk.open(path)["0"].attrs["jnrrd"]["content"] == "µm \u4e2d"


def test_damaged_line_is_no_data(tmp_path):
    path = write(tmp_path / "a.jnrrd", core([2]), b"ab")
    path.write_bytes(
        path.read_bytes().replace(b'{"encoding": "raw"}', b'{"encoding": raw}\n{"more": 1}')
    )
    with pytest.raises(FormatError, match='line 6.*{"encoding": raw}'):
        read(path)


def rebuilt(*lines):
    return header.rebuild([header.make_line(k, v) for k, v in lines], "a")


def test_flattened_keys_are_rebuilt_the_more_specific_wins():
    assert rebuilt(("v:p.c1", "new"), ("v:p", {"c1": "old", "c2": "old"})) == {
        "v:p": {"c1": "new", "c2": "old"}
    }
    assert rebuilt(("v:i", [{"n": 1}, {"n": 2}]), ("v:i[1].n", 3), ("v:i[2].n", 4)) == {
        "v:i": [{"n": 1}, {"n": 3}, {"n": 4}]
    }
    assert rebuilt(("t:offset_table[1]", 8), ("t:offset_table[0]", 7)) == {"t:offset_table": [7, 8]}
    assert rebuilt(("v:a.b.c.d", 1)) == {"v:a": {"b": {"c": {"d": 1}}}}
    assert rebuilt(("plain.key", 1)) == {"plain.key": 1}
    with pytest.raises(FormatError, match="999999999"):
        rebuilt(("v:i[999999999]", 1))
    with pytest.raises(FormatError, match="v:i.*'a'.*int"):
        rebuilt(("v:i", 5), ("v:i.a", 1))


def test_repeated_extensions_merge():
    lines = [("extensions", {"a": "A"}), ("extensions", {"b": "B"})]
    assert rebuilt(*lines) == {"extensions": {"a": "A", "b": "B"}}
    with pytest.raises(FormatError, match="'a'.*A.*C"):
        rebuilt(*lines, ("extensions", {"a": "C"}))
    with pytest.raises(FormatError, match="sizes"):
        rebuilt(("sizes", [1]), ("sizes", [2]))


def test_unknown_lines_survive_a_rewrite_in_order(tmp_path):
    lines = [
        *core([4, 4]).items(),
        ("note", "µ"),
        ("extensions", {"d": "https://d"}),
        ("d:p.q[0]", 1),
        ("space_origin", [1, None]),
        ("x", None),
    ]
    path = write(tmp_path / "a.jnrrd", lines, bytes(16))
    old = jnrrd.read_header(open_source(str(path)))
    anychunk.write(np.zeros((6, 4), np.uint16), tmp_path / "b.jnrrd", chunk=(2, 2), header=old)
    new = jnrrd.read_header(open_source(str(tmp_path / "b.jnrrd")))
    kept = [
        line.text for line in old.lines if line.key in ("note", "d:p.q[0]", "space_origin", "x")
    ]
    keys = [line.key for line in new.lines]
    assert [line.text for line in new.lines if line.text in kept] == kept
    assert keys[:4] == ["jnrrd", "type", "dimension", "sizes"]
    assert new.fields["sizes"] == [4, 6]
    assert new.fields["extensions"] == {"d": "https://d", "tile": jnrrd.tiling_fields.URI}
    assert keys[-1] == "tile:offset_table"
    assert read(tmp_path / "b.jnrrd").shape == (6, 4)


def test_nan_is_written_as_null_and_read_as_unknown(tmp_path):
    anychunk.write(
        np.zeros((2, 2), "f4"),
        tmp_path / "a.jnrrd",
        header={"spacings": [float("nan"), 2.0]},
        padding_value=float("nan"),
    )
    text = (tmp_path / "a.jnrrd").read_bytes()
    assert b'{"spacings": [null, 2.0]}' in text
    assert b'{"tile:padding_value": null}' in text
    assert np.isnan(anychunk.open_array(tmp_path / "a.jnrrd").fill_value)
    path = write(
        tmp_path / "b.jnrrd", core([2], spacings=[float("nan")], old_max=float("inf")), b"ab"
    )
    assert b"NaN" in path.read_bytes()
    attributes = anychunk.open(path)["0"].attrs["jnrrd"]
    assert attributes["spacings"] == [None]
    assert attributes["old_max"] is None


def test_detached_data(tmp_path):
    data = VALUES.astype("<i2").tobytes()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/d.raw").write_bytes(b"one\ntwo\nxyz" + data)
    path = write(tmp_path / "a.jnrrd", fields(data_file="sub/d.raw", line_skip=2, byte_skip=3))
    np.testing.assert_array_equal(read(path), VALUES)
    path = write(tmp_path / "b.jnrrd", fields(data_file="sub/d.raw", byte_skip=-1))
    np.testing.assert_array_equal(read(path), VALUES)
    (tmp_path / "d.gz").write_bytes(b"line\n" + gzip.compress(b"skip" + data))
    path = write(
        tmp_path / "c.jnrrd", fields(data_file="d.gz", encoding="gzip", line_skip=1, byte_skip=4)
    )
    np.testing.assert_array_equal(read(path), VALUES)


@pytest.mark.parametrize("encoding", ["raw", "gzip", "ascii"])
@pytest.mark.parametrize("count", [2, 6])
def test_several_data_files(tmp_path, encoding, count):
    for number, part in enumerate(VALUES.reshape(count, -1)):
        (tmp_path / f"s{number + 1:03d}.dat").write_bytes(
            ENCODE[encoding](part.astype("<i2").tobytes())
        )
    names = [f"s{n + 1:03d}.dat" for n in range(count)]
    pattern = {"format": "s%03d.dat", "min": 1, "max": count, "step": 1}
    for more in ({"data_files": names}, {"data_file_pattern": pattern}):
        path = write(tmp_path / "a.jnrrd", fields(encoding=encoding, **more))
        np.testing.assert_array_equal(read(path), VALUES)
    with pytest.raises(FormatError, match=rf"{count + 3} data files .*\[4, 3, 2\]"):
        read(write(tmp_path / "b.jnrrd", fields(data_files=[*names, "x", "y", "z"])))
    (tmp_path / names[0]).unlink()
    with pytest.raises(AnychunkError, match=names[0]):
        read(write(tmp_path / "a.jnrrd", fields(encoding=encoding, data_files=names)))


def test_several_data_files_with_skips(tmp_path):
    for number, part in enumerate(VALUES):
        (tmp_path / f"{number}.dat").write_bytes(b"head\n" + part.astype("<i2").tobytes())
    for more in ({"line_skip": 1}, {"byte_skip": -1}, {"byte_skip": 5}):
        path = write(tmp_path / "a.jnrrd", fields(data_files=["0.dat", "1.dat"], **more))
        np.testing.assert_array_equal(read(path), VALUES)


@pytest.mark.parametrize("pattern", ["s%s.dat", "s%d%d.dat", "s.dat", "s%5f", "%n", "s%%d"])
def test_patterns_of_data_files_know_d_only(tmp_path, pattern):
    value = {"format": pattern, "min": 0, "max": 1, "step": 1}
    with pytest.raises(FormatError, match=re.escape(repr(pattern))):
        read(write(tmp_path / "a.jnrrd", fields(data_file_pattern=value)))


def test_large_raw_volume_is_many_chunks_without_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(jnrrd.untiled_volume, "CHUNK_BYTES", 1000)
    for shape in [(3, 31, 40), (7, 2, 3), (5000,), (2, 3, 5000), (23, 9)]:
        values = np.arange(np.prod(shape), dtype="<u4").reshape(shape)
        path = write(tmp_path / "a.jnrrd", core(list(shape[::-1]), "uint32"), values.tobytes())
        array = anychunk.open_array(path)
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(array[..., -1], values[..., -1])
        if values.nbytes > 4000:
            assert array.nchunks > 2


def test_axes_and_transformations(tmp_path):
    geometry = {
        "kinds": ["vector", "space", "space", "space"],
        "space": "right_anterior_superior",
        "space_directions": [None, [0.5, 0, 0], [0, 0.5, 0], [0, 0, 1.2]],
        "space_origin": [10, 20, 30],
        "space_units": ["mm", "mm", "mm"],
        "content": "brain",
    }
    group = anychunk.open(write(tmp_path / "a.jnrrd", core([3, 4, 5, 6], **geometry), bytes(360)))[
        "0"
    ]
    (image,) = group.attrs["ome"]["multiscales"]
    assert image["name"] == "brain"
    assert image["axes"] == [
        {"name": "c", "type": "channel"},
        {"name": "z", "type": "space", "unit": "millimeter"},
        {"name": "y", "type": "space", "unit": "millimeter"},
        {"name": "x", "type": "space", "unit": "millimeter"},
    ]
    scale, shift = image["datasets"][0]["coordinateTransformations"]
    assert scale["scale"] == [1.0, 1.2, 0.5, 0.5]
    assert shift["translation"] == [0.0, 30.0, 20.0, 10.0]
    assert group["0/image"].metadata.dimension_names == ("c", "z", "y", "x")
    assert group["0/image"].shape == (3, 6, 5, 4)
    assert group.attrs["anychunk.space"] == {
        "frame": "RAS",
        "unit": "millimeter",
        "affine": [[0.5, 0, 0, 10], [0, 0.5, 0, 20], [0, 0, 1.2, 30], [0, 0, 0, 1]],
    }
    assert group.attrs["jnrrd"]["space_directions"] == geometry["space_directions"]


def test_rotated_axes_keep_their_spacing_and_no_false_origin(tmp_path):
    geometry = {
        "space_directions": [[3, 4], [-4, 3]],
        "space_origin": [1, 2],
        "labels": ["u", "v"],
        "units": ["um", None],
    }
    group = anychunk.open(write(tmp_path / "a.jnrrd", core([2, 2], **geometry), bytes(4)))["0"]
    (image,) = group.attrs["ome"]["multiscales"]
    assert image["datasets"][0]["coordinateTransformations"] == [
        {"type": "scale", "scale": [5.0, 5.0]}
    ]
    assert [axis["name"] for axis in image["axes"]] == ["y", "x"]
    assert image["axes"][1]["unit"] == "micrometer"
    assert group.attrs["anychunk.space"]["affine"] == [
        [3, -4, 0, 1],
        [4, 3, 0, 2],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"sizes": [4, 3]}, FormatError, "dimension is 3, but sizes has 2"),
        ({"sizes": [4, 3, 0]}, FormatError, r"sizes.*\[4, 3, 0\].*1"),
        ({"sizes": [4, 3, True]}, FormatError, r"sizes.*\[4, 3, True\].*1"),
        ({"sizes": [4, 3, 2**61]}, FormatError, rf"sizes.*{2**61}.*2\*\*62"),
        ({"sizes": [4, 3, 2**40]}, TruncatedError, "need"),
        ({"type": "quaternion"}, UnsupportedError, "quaternion.* int8"),
        ({"type": None}, FormatError, "'type' is missing"),
        ({"encoding": "rar"}, UnsupportedError, "rar.* raw"),
        ({"encoding": None}, FormatError, "'encoding' is missing"),
        ({"endian": "middle"}, FormatError, "'little' or 'big'"),
        ({"jnrrd": "0099"}, UnsupportedError, "version '0099'"),
        ({"type": "block"}, FormatError, "block_size"),
        ({"data_file": "a", "data_files": ["b"]}, FormatError, "data_file and data_files"),
        ({"byte_skip": -2}, FormatError, "byte_skip"),
        ({"byte_skip": 10}, TruncatedError, "need"),
        ({"line_skip": 10}, TruncatedError, "line_skip.* 9"),
        ({"encoding": "zstd", "byte_skip": -1}, UnsupportedError, "byte_skip -1.*zstd"),
        ({"encoding": "ascii", "byte_skip": -1}, UnsupportedError, "byte_skip -1.*ascii"),
        ({"sizes": [100_000, 100_000, 50], "encoding": "gzip"}, LimitError, "over the limit"),
        ({"data_file": "../secret"}, FormatError, "leads outside"),
        ({"data_file": "/etc/passwd"}, FormatError, "leads outside"),
        ({"data_file": "https://example.org/a.raw"}, FormatError, "leads outside"),
        ({"data_file": "missing.raw"}, FileNotFoundError, "missing.raw"),
    ],
)
def test_broken_headers(tmp_path, change, error, match):
    changed = {k: v for k, v in (fields() | change).items() if v is not None}
    with pytest.raises(error, match=match):
        read(write(tmp_path / "a.jnrrd", changed, VALUES.astype("<i2").tobytes()))


def test_gigabyte_line_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "a.jnrrd"
    with path.open("wb") as file:
        file.write(b'{"jnrrd": "0004"}\n{"a": "')
        file.truncate(1 << 30)
    with limits.override(header_bytes=1 << 20), pytest.raises(LimitError, match="header_bytes"):
        anychunk.index(path)


@pytest.mark.parametrize(
    "text",
    [
        b'{"jnrrd": "0004"}\n{"a": ' + b"[" * 100_000 + b"}\n",
        b'{"jnrrd": "0004"}\n{"a": ' + b"9" * 10_000 + b"}\n",
        b'{"jnrrd": "0004", "x": 1}\n',
        b'{"jnrrd": "0004"}\n{}\n',
        b'{"jnrrd": "0004"}',
    ],
)
def test_strange_lines(text):
    with pytest.raises(FormatError):
        jnrrd.parse(MemorySource(text, "strange"))


def test_allowed_folders_are_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere/d.raw").write_bytes(VALUES.astype("<i2").tobytes())
    for name in ("../elsewhere/d.raw", f"{tmp_path}/elsewhere/d.raw"):
        path = write(tmp_path / "here/a.jnrrd", fields(data_file=name))
        with pytest.raises(FormatError, match="allow"):
            anychunk.index(path)
        with pytest.raises(FormatError, match="allow"):
            anychunk.index(path, allow=[f"{tmp_path}/else"])
        np.testing.assert_array_equal(read(path, allow=[f"{tmp_path}/elsewhere"]), VALUES)
