"""NIfTI compared with nibabel."""

import gzip
from itertools import pairwise

import nibabel
import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats import nifti
from anychunk.testing.formats import FormatContract

RNG = np.random.default_rng(4)
TYPES = [
    "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float32", "float64", "complex64", "complex128",
]  # fmt: skip
AFFINE = np.array([[0, -2, 0, 10], [1.5, 0, 0, -7], [0, 0, 3, 5], [0, 0, 0, 1.0]])


def write(path, array, kind=nibabel.Nifti1Image, *, endian="<", affine=AFFINE, edit=None):
    """Write an array (x, y, …) with nibabel; `edit` changes the image first."""
    header = kind.header_class(endianness=endian)
    header.set_data_dtype(array.dtype)
    image = kind(array, affine, header)
    if edit is not None:
        edit(image)
    nibabel.save(image, path)
    return str(path)


def values(shape, dtype):
    return RNG.integers(0, 100, shape).astype(dtype)


class TestNifti(FormatContract):
    def samples(self, folder):
        array = values((5, 4, 3), "int16")
        for name in ("a.nii", "a.nii.gz"):
            write(folder / name, array)
            yield folder / name, {"0/0/image": array.transpose()}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_every_type(dtype, kind, endian, suffix, tmp_path):
    array = values((7, 6, 5, 4), dtype)
    path = write(tmp_path / f"a{suffix}", array, kind, endian=endian)
    opened, expected = anychunk.open_array(path), nibabel.load(path)
    assert opened.metadata.dimension_names == ("t", "z", "y", "x")
    assert opened.dtype == dtype
    np.testing.assert_array_equal(opened[...].transpose(), expected.dataobj.get_unscaled())
    space = anychunk.open(path)["0"].attrs["anychunk.space"]
    np.testing.assert_allclose(space["affine"], expected.affine, atol=1e-6)


@pytest.mark.parametrize(
    "sizes", [(9,), (9, 8), (9, 8, 7), (3, 4, 5, 6), (3, 4, 5, 1, 6), (2,) * 7]
)
def test_every_number_of_axes(sizes, tmp_path):
    array = values(sizes, "int16")
    path = write(tmp_path / "a.nii", array)
    opened = anychunk.open_array(path)
    names, found = opened.metadata.dimension_names, opened[...]
    if len(sizes) == 5:
        assert names == ("t", "c", "z", "y", "x")
        found = found.swapaxes(0, 1)
    np.testing.assert_array_equal(found.transpose(), nibabel.load(path).dataobj)
    assert len(set(names)) == len(sizes)


@pytest.mark.parametrize("edit", ["qform", "sform", "none"])
def test_affines(edit, tmp_path):
    def change(image):
        rotation = np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, -1]]) * [2, 3, 4]
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = rotation, (5, -6, 7)
        image.header.set_sform(matrix, 2 if edit == "sform" else 0)
        image.header.set_qform(matrix, 1 if edit == "qform" else 0)

    path = write(tmp_path / "a.nii", values((5, 4, 3), "int16"), affine=None, edit=change)
    attributes = anychunk.open(path)["0"].attrs
    expected = nibabel.load(path)
    if edit == "none":
        assert "anychunk.space" not in attributes
        return
    found = np.array(attributes["anychunk.space"]["affine"])
    np.testing.assert_allclose(found, expected.affine, atol=1e-4)


@pytest.mark.parametrize(("slope", "offset"), [(0.5, 3), (1, 0), (0, 5), (np.nan, 0), (2, 0)])
def test_scaling(slope, offset, tmp_path):
    path = write(tmp_path / "a.nii", values((5, 4, 3), "int16"))
    data = bytearray((tmp_path / "a.nii").read_bytes())
    data[112:120] = np.array([slope, offset], "<f4").tobytes()
    (tmp_path / "a.nii").write_bytes(data)
    array = anychunk.open_array(path)
    scale, add = array.attrs.get("scale_factor", 1), array.attrs.get("add_offset", 0)
    expected = np.asarray(nibabel.load(path).dataobj)
    np.testing.assert_allclose(array[...].transpose() * scale + add, expected)


def test_units_and_colours(tmp_path):
    def units(image):
        image.header.set_xyzt_units("micron", "msec")
        image.header.set_zooms((2, 3, 4, 5))

    path = write(tmp_path / "a.nii", values((3, 4, 5, 6), "uint8"), affine=None, edit=units)
    image = anychunk.open(path)["0"].attrs["ome"]["multiscales"][0]
    assert [a.get("unit") for a in image["axes"]] == ["millisecond", *["micrometer"] * 3]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"] == [5, 4, 3, 2]
    assert list(anychunk.open(path)["0/0"].array_keys()).count("t") == 1
    colour = np.zeros((4, 3, 2), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    colour["G"] = values((4, 3, 2), "u1")
    path = write(tmp_path / "rgb.nii", colour)
    found = anychunk.open_array(path)[...]
    np.testing.assert_array_equal(found[1].transpose(), colour["G"])


def test_positions_in_space(tmp_path):
    """A diagonal matrix has steps and an origin, any other one only steps."""
    diagonal = np.diag([2, 3, 4, 1.0])
    diagonal[:3, 3] = 5, 6, 7
    for affine, expected in ((diagonal, ([4, 3, 2], [7, 6, 5])), (AFFINE, ([3, 2, 1.5], None))):
        path = write(tmp_path / "a.nii", values((5, 4, 3), "int16"), affine=affine)
        opened = anychunk.open(path)
        scale, *rest = opened["0"].attrs["ome"]["multiscales"][0]["datasets"][0][
            "coordinateTransformations"
        ]
        np.testing.assert_allclose(scale["scale"], expected[0])
        assert [moved["translation"] for moved in rest] == ([expected[1]] if expected[1] else [])
        assert opened["0"].attrs["anychunk.space"]["frame"] == "RAS"


def test_a_large_compressed_volume(tmp_path):
    array = (np.cumsum(RNG.normal(0, 3, (200, 150, 100)), axis=0) + 500).astype(np.int16)
    path = write(tmp_path / "a.nii.gz", array)
    opened = anychunk.open_array(path)
    assert opened.chunks == (50, 150, 200)
    expected = nibabel.load(path)
    for number in (99, 0, 50, 49):
        np.testing.assert_array_equal(opened[number].T, expected.dataobj[..., number])
    anychunk.index(path).save(str(tmp_path / "a.json"))
    saved = anychunk.open_array(str(tmp_path / "a.json"))
    np.testing.assert_array_equal(saved[...].transpose(), array)


@pytest.mark.parametrize("shape", [(20, 30, 2), (200, 150, 100)])
@pytest.mark.parametrize("ends", [[3], [0, 0, 100, 347], [400, 9000], range(0, 7_000_000, 65280)])
def test_several_gzip_members(shape, ends, tmp_path):
    """As `cat a.gz b.gz`, pigz and bgzip, whose last member is empty, write them."""
    write(tmp_path / "a.nii", values(shape, "int16"))
    plain = (tmp_path / "a.nii").read_bytes()
    ends = [0, *(end for end in ends if end < len(plain)), len(plain), len(plain)]
    path = tmp_path / "a.nii.gz"
    path.write_bytes(b"".join(gzip.compress(plain[i:j]) for i, j in pairwise(ends)))
    expected = np.asarray(nibabel.load(path).dataobj).T
    np.testing.assert_array_equal(anychunk.open_array(path)[-1, 3:9], expected[-1, 3:9])
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)
    anychunk.index(path).save(tmp_path / "a.json")
    saved = anychunk.open_array(tmp_path / "a.json")
    np.testing.assert_array_equal(saved[-1, 3:9], expected[-1, 3:9])
    np.testing.assert_array_equal(saved[...], expected)


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (70, b"\1\0", UnsupportedError),
        (70, b"\0\6", UnsupportedError),
        (40, b"\x08\0", FormatError),
        (40, b"\0\0", FormatError),
        (42, b"\xff\xff", FormatError),
        (42, b"\xff\x7f", TruncatedError),
        (108, np.float32(np.nan).tobytes(), FormatError),
        (108, np.float32(100).tobytes(), FormatError),
        (108, np.float32(352.5).tobytes(), FormatError),
        (344, b"ni1\0", UnsupportedError),
    ],
)
def test_refused(offset, value, error, tmp_path):
    path = tmp_path / "a.nii"
    write(path, values((5, 4, 3), "int16"))
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(error):
        anychunk.index(str(path))


def test_any_header():
    """Whatever a header says, it is an index or an error of ours."""
    clean = bytearray(352)
    clean[:4], clean[344:348] = (348).to_bytes(4, "little"), b"n+1\0"
    for _ in range(300):
        data = clean.copy()
        for place in RNG.integers(40, 330, 30):
            data[place] = int(RNG.integers(256))
        data[40:44] = b"\2\0\2\0"
        try:
            header = nifti.read_header(bytes(data), 1, is_big=False, url="a")
            nifti.affine_of(header), nifti.scaling(header), nifti.native(header)
        except AnychunkError:
            continue
    assert not nifti.sniff(b"")
    assert not nifti.sniff(gzip.compress(b"x" * 400))
    assert nifti.sniff(bytes(clean))
