"""Files without tiles that this package writes, read by pynrrd and by a reader of the text alone."""

import json

import nrrd
import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError, OptionError, UnsupportedError
from anychunk.formats.jnrrd import write_untiled
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from tests.support.naive_nrrd import Nrrd

# pynrrd asks for the time in a way that Python 3.12 warns of
pytestmark = pytest.mark.filterwarnings(
    "ignore:datetime.datetime.utcnow:DeprecationWarning",
    "ignore::anychunk.errors.FormatWarning",
)
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "f4", "f8")
HEADER = r"""NRRD0005
# Complete NRRD file format specification at:
# a second comment
type: short
dimension: 4
space: left-posterior-superior
sizes: 2 3 4 5
space directions: none (1,0,0) (0,1.1,0.5) (0,0,3)
kinds: vector domain domain ???
endian: little
encoding: raw
space origin: (1,2,3.25)
space units: "mm" "mm" "mm"
measurement frame: (0,1,0) (1,0,0) (0,0,1)
thicknesses: nan nan nan 2.5
labels: "comp" "i" "j" "the \"k\""
odd field: something  odd
content: a scan, of: something
old min: 5
old max: 900
DWMRI_b-value:=1000
DWMRI_gradient_0000:= 0 0 1
several:=lines\nand \\ a backslash
DICOM:0008:=value
empty:=
 spaced key := v

"""
VALUES = np.arange(2 * 3 * 4 * 5, dtype="int16").reshape(5, 4, 3, 2)


def volume(dtype, shape=(3, 4, 5)):
    return (np.arange(np.prod(shape)).reshape(shape) * 3 - 7).astype(dtype)


def same_headers(a, b, *, but=("data file", "encoding")):
    """Compare two of pynrrd's headers; NaN equals NaN."""
    assert {*a} - {*but} == {*b} - {*but}
    for key in {*a} - {*but}:
        np.testing.assert_equal(a[key], b[key], err_msg=key)


@pytest.fixture
def rich(tmp_path):
    path = tmp_path / "rich.nrrd"
    path.write_bytes(HEADER.encode() + VALUES.tobytes())
    return path


@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("detached", [False, True])
def test_types_and_encodings(tmp_path, compression, dtype, detached):
    values = volume(dtype)
    path = tmp_path / ("a.nhdr" if detached else "a.nrrd")
    endian = "big" if detached else "little"
    anychunk.write(values, path, compression=compression, endian=endian)
    theirs, header = nrrd.read(str(path), index_order="C")
    np.testing.assert_array_equal(theirs, values)
    assert theirs.dtype.newbyteorder("=") == values.dtype
    assert header["encoding"] == compression
    np.testing.assert_array_equal(Nrrd(path).array, values)
    assert Nrrd(path).version == 4
    np.testing.assert_array_equal(anychunk.open_array(path)[...], values)
    assert len(list(tmp_path.iterdir())) == 1 + detached


@pytest.mark.parametrize("name", ["a.nrrd", "a file.nhdr", "a.jnrrd"])
@pytest.mark.parametrize("compression", ["raw", "gzip"])
def test_slices(tmp_path, name, compression):
    values = volume("uint16", (11, 3, 4))
    anychunk.write(values, tmp_path / name, slices=True, compression=compression, **plain(name))
    assert len(list(tmp_path.iterdir())) == 12
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / name)[...], values)
    if name == "a file.nhdr":  # Teem counts a blank line after a list as one more name
        assert not (tmp_path / name).read_bytes().endswith(b"\n\n")
    if name != "a.jnrrd":  # pynrrd does not read several data files
        np.testing.assert_array_equal(Nrrd(tmp_path / name).array, values)


def plain(name):
    return {"chunked": False} if name.endswith(".jnrrd") else {}


@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "zstd", "lz4"])
@pytest.mark.parametrize("data_file", [None, True, "sub/other.bin"])
def test_plain_jnrrd(tmp_path, compression, data_file):
    values = volume("float16")
    path = tmp_path / "a.jnrrd"
    anychunk.write(values, path, chunked=False, compression=compression, data_file=data_file)
    head, _, rest = path.read_bytes().partition(b"\n\n")
    fields = {k: v for line in head.split(b"\n") for k, v in json.loads(line).items()}
    assert next(iter(fields)) == "jnrrd"
    assert (fields["sizes"], fields["type"], fields["encoding"]) == (
        [5, 4, 3],
        "float16",
        compression,
    )
    if compression == "raw":
        data = rest if data_file is None else (tmp_path / fields["data_file"]).read_bytes()
        assert data == values.tobytes()
    np.testing.assert_array_equal(anychunk.open_array(path)[...], values)


@pytest.mark.parametrize("middle", ["b.jnrrd", "b.nrrd", "b.nhdr", "tiled"])
def test_a_conversion_keeps_the_header(rich, tmp_path, middle):
    """Through JNRRD, with and without tiles, and back: pynrrd finds no difference."""
    name = "b.jnrrd" if middle == "tiled" else middle
    options = {} if middle == "tiled" else plain(name)
    anychunk.convert(rich, tmp_path / name, **options, verify=True)
    anychunk.convert(tmp_path / name, tmp_path / "c.nrrd", compression="gzip", verify=True)
    before, expected = nrrd.read(str(rich))
    after, found = nrrd.read(str(tmp_path / "c.nrrd"))
    np.testing.assert_array_equal(after, before)
    if name.endswith(".jnrrd"):
        # Teem refuses unknown fields, so that of a JNRRD file becomes a key/value pair
        assert found.pop("odd_field") == expected.pop("odd field")
    same_headers(found, expected)
    naive, source = Nrrd(tmp_path / "c.nrrd"), Nrrd(rich)
    np.testing.assert_array_equal(naive.array, VALUES)
    assert naive.comments == source.comments
    assert naive.version == 5
    assert source.pairs.items() <= naive.pairs.items()
    assert naive.pairs["several"] == "lines\nand \\ a backslash"
    assert naive.fields["measurement frame"] == "(0,1,0) (1,0,0) (0,0,1)"
    assert naive.fields["sizes"] == "2 3 4 5"


def test_lines_of_jnrrd(rich, tmp_path):
    anychunk.convert(rich, tmp_path / "b.jnrrd", chunked=False)
    head, _, rest = (tmp_path / "b.jnrrd").read_bytes().partition(b"\n\n")
    fields = {k: v for line in head.split(b"\n") for k, v in json.loads(line).items()}
    assert rest == VALUES.tobytes()
    assert fields["space"] == "left_posterior_superior"
    assert fields["kinds"] == ["vector", "domain", "domain", None]
    assert fields["thicknesses"] == [None, None, None, 2.5]
    assert fields["odd_field"] == "something  odd"
    assert fields["key_values"]["DWMRI_gradient_0000"] == " 0 0 1"
    assert fields["measurement_frame"] == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert not any(key.startswith("anychunk") for key in fields)


def test_extensions_are_key_values(tmp_path):
    lines = [
        {"jnrrd": "0004"},
        {"type": "uint8"},
        {"dimension": 2},
        {"sizes": [3, 2]},
        {"encoding": "raw"},
        {"extensions.meta": "https://jnrrd.org/extensions/metadata/v1.0.0"},
        {"meta:name": "a = b\n\\"},
        {"meta:creator.name": "someone"},
        {"odd": [1, {"two": None}]},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "a.jnrrd").write_bytes(text.encode() + b"\n" + bytes(range(6)))
    anychunk.convert(tmp_path / "a.jnrrd", tmp_path / "b.nrrd")
    found = Nrrd(tmp_path / "b.nrrd")
    assert json.loads(found.pairs["extensions"]) == {
        "meta": "https://jnrrd.org/extensions/metadata/v1.0.0"
    }
    assert json.loads(found.pairs["meta:name"]) == "a = b\n\\"
    assert json.loads(found.pairs["odd"]) == [1, {"two": None}]
    assert set(found.fields) == {"type", "dimension", "sizes", "encoding"}
    anychunk.convert(tmp_path / "b.nrrd", tmp_path / "c.jnrrd")
    kept = anychunk.open(tmp_path / "c.jnrrd")["0"].attrs["jnrrd"]
    assert kept["meta:name"] == "a = b\n\\"
    assert kept["meta:creator"] == {"name": "someone"}
    assert kept["extensions"]["meta"].endswith("metadata/v1.0.0")


def test_single_channels_stay(tmp_path):
    header = HEADER.replace("sizes: 2 3 4 5", "sizes: 1 3 4 10")
    (tmp_path / "a.nrrd").write_bytes(header.encode() + VALUES.tobytes())
    anychunk.convert(tmp_path / "a.nrrd", tmp_path / "b.jnrrd", verify=True)
    anychunk.convert(tmp_path / "b.jnrrd", tmp_path / "c.nrrd", verify=True)
    assert Nrrd(tmp_path / "c.nrrd").fields["sizes"] == "1 3 4 10"
    np.testing.assert_array_equal(Nrrd(tmp_path / "c.nrrd").array.ravel(), VALUES.ravel())


def test_options_follow_their_axes(rich, tmp_path):
    """`chunk` has the axes of the array, c z y x; the file has c as its fastest."""
    anychunk.convert(rich, tmp_path / "b.jnrrd", chunk=(2, 5, 4, 1), levels=2, verify=True)
    fields = anychunk.open(tmp_path / "b.jnrrd")["0"].attrs["jnrrd"]
    assert fields["tile:sizes"] == [2, 1, 4, 5]
    assert fields["tile:level_scales"] == [[1, 1, 1, 1], [1, 2, 2, 2]]
    array = anychunk.open_array(rich)
    anychunk.write(array, tmp_path / "c.jnrrd", chunk_axes=(-1, 0), chunk=(2, 1))
    fields = anychunk.open(tmp_path / "c.jnrrd")["0"].attrs["jnrrd"]
    assert dict(zip(fields["tile:dimensions"], fields["tile:sizes"], strict=True)) == {0: 1, 1: 2}
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "c.jnrrd")[...], array[...])


@pytest.mark.parametrize("most", [1, 100, 10**6])
def test_slabs(tmp_path, monkeypatch, rich, most):
    monkeypatch.setattr(write_untiled, "SLAB_BYTES", most)
    anychunk.convert(rich, tmp_path / "b.nrrd", compression="gzip")
    np.testing.assert_array_equal(Nrrd(tmp_path / "b.nrrd").array, VALUES)
    boxes = write_untiled.slabs((7, 5, 4), 2, (3, 5, 2))
    found = np.concatenate([np.arange(140).reshape(7, 5, 4)[box].ravel() for box in boxes])
    np.testing.assert_array_equal(found, np.arange(140))


def test_converted_samples(rich, tmp_path):
    """The header is kept; the type is that of the samples."""
    index = anychunk.index(rich)
    meaning = meaning_of(index, next(im.images(index)))
    values = anychunk.open_array(rich)[...].astype("f4") / 2
    anychunk.write(values, tmp_path / "b.nrrd", meaning=meaning)
    found = Nrrd(tmp_path / "b.nrrd")
    assert found.fields["type"] == "float"
    np.testing.assert_array_equal(found.array, VALUES / 2)


def test_of_another_format(tmp_path):
    """An array without a header of its own: axes, spacings and units in the words of NRRD."""
    values = volume("uint8", (2, 6, 5))
    anychunk.write(values, tmp_path / "a.n5", chunk=(2, 3, 5))
    anychunk.convert(tmp_path / "a.n5", tmp_path / "b.nrrd", verify=True)
    theirs, header = nrrd.read(str(tmp_path / "b.nrrd"), index_order="C")
    np.testing.assert_array_equal(theirs, values)
    assert header["labels"] == ["x", "y", "z"]
    assert header["kinds"] == ["space"] * 3
    Nrrd(tmp_path / "b.nrrd")


def test_given_fields(tmp_path):
    header = {"space": "RAS", "space_directions": np.eye(3).tolist(), "kinds": ["rgb_color"] * 3}
    anychunk.write(volume("u1"), tmp_path / "a.nrrd", header=header, version=5)
    found = Nrrd(tmp_path / "a.nrrd")
    assert found.version == 5
    assert found.fields["space directions"] == "(1,0,0) (0,1,0) (0,0,1)"
    assert found.fields["kinds"] == "RGB-color RGB-color RGB-color"
    anychunk.write(volume("u1"), tmp_path / "b.jnrrd", header=header, chunked=False)
    assert anychunk.open(tmp_path / "b.jnrrd")["0"].attrs["jnrrd"]["space"] == "RAS"


@pytest.mark.parametrize(
    ("name", "array", "options", "error"),
    [
        ("a.nrrd", np.zeros((2, 2), "f2"), {}, UnsupportedError),
        ("a.nrrd", np.zeros((2, 2), "c8"), {}, UnsupportedError),
        ("a.nrrd", np.zeros((2, 2)), {"compression": "zstd"}, OptionError),
        ("a.nrrd", np.zeros((2, 2)), {"chunk": (2, 2)}, OptionError),
        ("a.nrrd", np.zeros((2, 2)), {"chunked": True}, OptionError),
        ("a.nrrd", np.zeros((2, 2)), {"version": 3}, OptionError),
        ("a.nrrd", np.zeros((2, 2)), {"slices": True, "data_file": "b.raw"}, OptionError),
        ("a.nrrd", np.zeros((2, 2)), {"data_file": "../b.raw"}, FormatError),
        ("a.nrrd", np.zeros((2, 2)), {"header": {"key_values": {"a:=b": ""}}}, UnsupportedError),
        ("a.nrrd", np.zeros((2, 2)), {"header": {"key_values": {"a": "b\r"}}}, UnsupportedError),
        ("a.jnrrd", np.zeros((2, 2)), {"chunked": False, "levels": 2}, OptionError),
    ],
)
def test_refused(tmp_path, name, array, options, error):
    with pytest.raises(error):
        anychunk.write(array, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_detached_conversions_are_in_place(rich, tmp_path):
    (tmp_path / "out").mkdir()
    anychunk.convert(rich, tmp_path / "out" / "b.nhdr", verify=True)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["b.nhdr", "b.raw"]
    with pytest.raises(FileExistsError):
        anychunk.convert(rich, tmp_path / "out" / "b.nhdr")
    anychunk.convert(rich, tmp_path / "out" / "b.nhdr", overwrite=True)
    np.testing.assert_array_equal(Nrrd(tmp_path / "out" / "b.nhdr").array, VALUES)
