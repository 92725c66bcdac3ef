"""Plain NRRD, against pynrrd."""

import bz2
import gzip
from itertools import pairwise

import nrrd
import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats import jnrrd
from anychunk.testing.formats import FormatContract

# pynrrd asks for the time in a way that Python 3.12 warns of
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
VALUES = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4) - 5


def read(path, **options):
    return anychunk.open_array(path, **options)[...]


@pytest.mark.filterwarnings("ignore::anychunk.errors.FormatWarning")
class TestNrrd(FormatContract):
    def samples(self, folder):
        for encoding in ("raw", "gzip", "bzip2"):
            path = folder / f"{encoding}.nrrd"
            nrrd.write(str(path), VALUES, {"encoding": encoding}, index_order="C")
            yield path, {"0/0/image": VALUES}


@pytest.mark.parametrize("encoding", ["raw", "gzip", "bzip2", "ascii"])
@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("detached", [False, True])
def test_equals_pynrrd(tmp_path, encoding, kind, detached):
    values = (np.arange(60).reshape(3, 4, 5) * 3).astype(kind)
    path = tmp_path / ("a.nhdr" if detached else "a.nrrd")
    nrrd.write(str(path), values, {"encoding": encoding}, index_order="C", detached_header=detached)
    theirs, _ = nrrd.read(str(path), index_order="C")
    found = read(path)
    assert found.dtype == theirs.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, theirs)
    np.testing.assert_array_equal(found, values)


def test_geometry_and_keys(tmp_path):
    fields = {
        "space": "left-posterior-superior",
        "space directions": np.array([[np.nan] * 3, [2, 0, 0], [0, 3, 0], [0, 0, 4]]),
        "space origin": np.array([1.0, 2, 3]),
        "kinds": ["vector", "domain", "domain", "domain"],
        "labels": ["v", "x", "y", "z"],
        "units": ["", "mm", "mm", "mm"],
        "my key": "some value",
    }
    values = np.zeros((2, 2, 2, 3), "f4")
    nrrd.write(str(tmp_path / "a.nrrd"), values, fields, index_order="C")
    group = anychunk.open(tmp_path / "a.nrrd")["0"]
    (image,) = group.attrs["ome"]["multiscales"]
    scale, shift = image["datasets"][0]["coordinateTransformations"]
    assert scale["scale"] == [1.0, 4.0, 3.0, 2.0]
    assert shift["translation"] == [0.0, 3.0, 2.0, 1.0]
    assert [a["name"] for a in image["axes"]] == ["c", "z", "y", "x"]
    assert group["0/image"].shape == (3, 2, 2, 2)
    assert group.attrs["anychunk.space"]["frame"] == "LPS"
    assert group.attrs["anychunk.tags"] == {"my key": "some value"}
    assert group.attrs["nrrd"]["key_values"] == {"my key": "some value"}
    assert group.attrs["nrrd"]["space_directions"][0] is None
    assert anychunk.describe(tmp_path / "a.nrrd")["format"] == "jnrrd"


def text(tmp_path, *lines, data=b"", name="a.nrrd"):
    (tmp_path / name).write_bytes("\n".join(lines).encode() + data)
    return tmp_path / name


HEAD = ("NRRD0004", "# a comment", "type: short", "dimension: 3", "sizes: 4 3 2", "endian: little")


@pytest.mark.parametrize("version", ["01", "02", "03", "04", "05", ".01"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_versions_and_line_ends(tmp_path, version, end):
    lines = (f"NRRD00{version}", *HEAD[1:], "encoding: raw", "", "")
    (tmp_path / "a.nrrd").write_bytes(end.join(lines).encode() + VALUES.astype("<i2").tobytes())
    np.testing.assert_array_equal(read(tmp_path / "a.nrrd"), VALUES)


def test_names_in_capitals(tmp_path):
    """Teem knows its names in any case."""
    head = [line.replace("short", "SHORT").replace("little", "Little") for line in HEAD]
    path = text(tmp_path, *head, "encoding: RAW", "", "", data=VALUES.astype("<i2").tobytes())
    np.testing.assert_array_equal(read(path), VALUES)


def test_keys_with_colons(tmp_path):
    pairs = ("DICOM:0008:=a: b", "DICOM:0010:=c:=d", "content:")
    path = text(
        tmp_path, *HEAD, "encoding: raw", *pairs, "", "", data=VALUES.astype("<i2").tobytes()
    )
    np.testing.assert_array_equal(read(path), VALUES)
    found = anychunk.open(path)["0"].attrs["nrrd"]["key_values"]
    assert found == {"DICOM:0008": "a: b", "DICOM:0010": "c:=d"}


def test_percent_sign_in_a_name(tmp_path):
    (tmp_path / "a%20b.raw").write_bytes(VALUES.astype("<i2").tobytes())
    path = text(tmp_path, *HEAD, "encoding: raw", "data file: a%20b.raw", "", name="a.nhdr")
    np.testing.assert_array_equal(read(path), VALUES)


def test_lists_and_patterns_of_data_files(tmp_path):
    for number, part in enumerate(VALUES.astype(">i2")):
        (tmp_path / f"s{number + 1:02d}.gz").write_bytes(gzip.compress(b"xx" + part.tobytes()))
    head = (*HEAD[:-1], "endian: big", "encoding: gz", "byte skip: 2")
    path = text(tmp_path, *head, "data file: LIST", "s01.gz", "s02.gz", "", name="a.nhdr")
    np.testing.assert_array_equal(read(path), VALUES)
    path = text(tmp_path, *head, "data file: s%02d.gz 1 2 1", "", name="b.nhdr")
    np.testing.assert_array_equal(read(path), VALUES)


def test_skips(tmp_path):
    (tmp_path / "d.raw").write_bytes(b"one\ntwo\n" + b"12345" + VALUES.astype("<i2").tobytes())
    for skips in (("line skip: 2", "byte skip: 5"), ("byteskip: -1",)):
        path = text(tmp_path, *HEAD, "encoding: raw", *skips, "data file: d.raw", name="a.nhdr")
        np.testing.assert_array_equal(read(path), VALUES)


@pytest.mark.parametrize("encoding", ["gzip", "bzip2"])
@pytest.mark.parametrize("front", [0, 352, 3_000_000])
def test_samples_at_the_end_of_a_compressed_stream(tmp_path, encoding, front):
    """A header over a `.nii.gz` file: samples follow 352 bytes or more inside the stream."""
    compress = {"gzip": gzip.compress, "bzip2": bz2.compress}[encoding]
    plain = b"\x5c" * front + VALUES.astype("<i2").tobytes()
    for name, stream in {
        "one.nii.gz": compress(plain),
        "members.nii.gz": compress(plain[: front + 7]) + compress(plain[front + 7 :]),
    }.items():
        (tmp_path / name).write_bytes(stream)
        head = (*HEAD, f"encoding: {encoding}", "byte skip: -1", f"data file: {name}", "")
        path = text(tmp_path, *head, name="a.nhdr")
        np.testing.assert_array_equal(read(path), VALUES)
        if name.startswith("one"):  # pynrrd reads a single member
            theirs, _ = nrrd.read(str(path), index_order="C")
            np.testing.assert_array_equal(read(path), theirs)


@pytest.mark.parametrize("ends", [[3], [0, 0, 9000], range(0, 7_000_000, 65280)])
def test_several_gzip_members(tmp_path, ends):
    """As `cat a.gz b.gz`, pigz and bgzip write them; pynrrd reads the same samples uncompressed."""
    path = tmp_path / "a.nrrd"
    samples = np.random.default_rng(5).integers(0, 99, (61, 200, 250)).astype("<i2")
    nrrd.write(str(path), samples, {"encoding": "raw"}, index_order="C")
    expected, _ = nrrd.read(str(path), index_order="C")
    head, plain = path.read_bytes().split(b"\n\n", 1)
    ends = [0, *(end for end in ends if end < len(plain)), len(plain), len(plain)]
    stream = b"".join(gzip.compress(plain[i:j]) for i, j in pairwise(ends))
    path.write_bytes(head.replace(b"encoding: raw", b"encoding: gzip") + b"\n\n" + stream)
    np.testing.assert_array_equal(anychunk.open_array(path)[-5:, 7:9], expected[-5:, 7:9])
    np.testing.assert_array_equal(read(path), expected)


def test_samples_at_the_end_of_several_compressed_streams(tmp_path):
    for number, part in enumerate(VALUES.astype("<i2")):
        (tmp_path / f"s{number}.gz").write_bytes(
            gzip.compress(b"x" * (9 + number) + part.tobytes())
        )
    head = (*HEAD, "encoding: gzip", "byte skip: -1", "data file: LIST", "s0.gz", "s1.gz", "")
    np.testing.assert_array_equal(read(text(tmp_path, *head, name="a.nhdr")), VALUES)


def test_a_compressed_stream_that_is_too_short(tmp_path):
    whole = gzip.compress(bytes(100) + VALUES.astype("<i2").tobytes())
    head = (*HEAD, "encoding: gzip", "byte skip: -1", "data file: d.gz", "")
    path = text(tmp_path, *head, name="a.nhdr")
    for stream in (whole[:-1], whole[:-9], gzip.compress(bytes(47)), b"no stream"):
        (tmp_path / "d.gz").write_bytes(stream)
        with pytest.raises(AnychunkError, match="gzip"):
            read(path)


def test_hex(tmp_path):
    path = text(
        tmp_path, *HEAD, "encoding: hex", "", "", data=VALUES.astype("<i2").tobytes().hex().encode()
    )
    np.testing.assert_array_equal(read(path), VALUES)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("sizes: 4 3", "dimension is 3"),
        ("sizes: 4 x 2", "expected an integer"),
        ("sizes: 4 3 99999999999999999999999", "expected an integer"),
        ("space directions: (1,0", "expected \\(a,b,c\\)|could not convert"),
        ("nonsense", "line 7: 'nonsense'"),
        ("dimension: 3", "line 7: .*'dimension'"),
        ("data file: ../../etc/passwd", "leads outside"),
        ("data file: /etc/passwd", "leads outside"),
        ("data file: %s 1 2 1", "one %d"),
    ],
)
def test_broken_headers(tmp_path, line, match):
    lines = [x for x in HEAD if not x.startswith(line.split(":")[0]) or line == "dimension: 3"]
    path = text(tmp_path, *lines, line, "encoding: raw", "", "", data=bytes(48))
    with pytest.raises(FormatError, match=match):
        anychunk.index(path)


def test_no_blank_line_is_bounded(tmp_path):
    (tmp_path / "a.nrrd").write_bytes(b"NRRD0004\n" + b"a: b\n" * 100_000)
    with (
        anychunk.limits.override(header_bytes=1 << 17),
        pytest.raises(AnychunkError, match="no blank line"),
    ):
        anychunk.index(tmp_path / "a.nrrd")


def test_is_told_by_content():
    assert jnrrd.sniff(b"NRRD0005\n")
    assert jnrrd.sniff(b"NRRD0001\r\n")
    assert not jnrrd.sniff(b"NRRD0009\n")
    assert not jnrrd.sniff(b"NRRD")


def test_names_of_fields_are_ascii(tmp_path):
    head = (
        b"NRRD0004\ntype: uint8\ndimension: 1\nsizes: 2\nencoding: raw\n\xff\xfe dimension: 3\n\n"
    )
    (tmp_path / "a.nrrd").write_bytes(head + b"ab")
    with pytest.raises(FormatError, match="ASCII"):
        anychunk.index(tmp_path / "a.nrrd")
