import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from anychunk.testing.formats import FormatContract
from tests.corpus import needs_corpus, samples, sha256
from tests.formats.gdal import gdal_read
from tests.formats.nitf_writer import (
    Image,
    des_segment,
    graphic_segment,
    nitf,
    text_segment,
    tre,
)

RNG = np.random.default_rng(5)
VERSIONS = ["NITF02.10", "NSIF01.00", "NITF02.00"]


def array(dtype, shape=(3, 13, 11), bits=None):
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        values = RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if dtype.kind == "c" else 0)
        return values.astype(dtype)
    bits = bits or 8 * dtype.itemsize
    low, high = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)
    )
    return RNG.integers(low, high, shape, dtype, endpoint=True)


def read(folder, images, **options):
    file = folder / "a.ntf"
    file.write_bytes(nitf(images, **options))
    return anychunk.open(file)


class TestNitf(FormatContract):
    prefixes = 40

    def samples(self, folder):
        made = [
            [Image(array("u1"), imode="P", block=(4, 4))],
            [Image(array("i2"), imode="S", block=(5, 6)), Image(array("f4", (1, 5, 5)))],
            [Image(array("u2", bits=12), nbpp=12, imode="R", block=(8, 8))],
            [Image(array("u1", (2, 9, 9)), ic="NM", block=(4, 4), pad=b"\x07")],
        ]
        for number, images in enumerate(made):
            for version in VERSIONS[:1] if number else VERSIONS:
                file = folder / f"{number}{version}.ntf"
                file.write_bytes(nitf(images, version=version))
                yield file, {f"{i}/0": image.array for i, image in enumerate(images)}


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize("block", [None, (4, 5), (16, 16), (13, 4)])
@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8"]
)
def test_every_mode_and_type(tmp_path, imode, block, dtype):
    image = Image(array(dtype), imode=imode, block=block)
    found = read(tmp_path, [image])["0/0"]
    assert found.dtype == image.array.dtype
    np.testing.assert_array_equal(found[...], image.array)
    np.testing.assert_array_equal(found[1:, 3:9, 2:10], image.array[1:, 3:9, 2:10])


DEPTHS = [1, 2, 3, 5, 7, 8, 9, 11, 12, 15, 17, 24, 31, 33, 40, 48, 63]


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize(
    ("kind", "nbpp"),
    [(kind, nbpp) for kind in "ui" for nbpp in DEPTHS if (kind, nbpp) != ("i", 1)],
)
def test_every_depth(tmp_path, imode, nbpp, kind):
    width = next(bits for bits in (8, 16, 32, 64) if bits >= nbpp)
    image = Image(
        array(f"{kind}{width // 8}", (2, 7, 5), bits=nbpp), nbpp=nbpp, imode=imode, block=(4, 3)
    )
    found = read(tmp_path, [image])["0/0"]
    assert found.dtype == image.array.dtype
    np.testing.assert_array_equal(found[...], image.array)


@pytest.mark.parametrize("pjust", "LR")
@pytest.mark.parametrize(
    ("dtype", "nbpp", "abpp"), [("u2", 16, 11), ("i2", 16, 11), ("u2", 12, 9), ("i4", 32, 20)]
)
@pytest.mark.parametrize("imode", "BPS")
def test_justified_samples(tmp_path, imode, dtype, nbpp, abpp, pjust):
    image = Image(
        array(dtype, (2, 6, 5), bits=abpp),
        nbpp=nbpp,
        abpp=abpp,
        pjust=pjust,
        imode=imode,
        block=(4, 4),
    )
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], image.array)


@pytest.mark.parametrize("version", VERSIONS)
def test_bilevel_pixels(tmp_path, version):
    image = Image(array("u1", (1, 18, 35), bits=1), nbpp=1, pvtype="B", irep="RGB/LUT")
    found = read(tmp_path, [image], version=version)["0/0"]
    np.testing.assert_array_equal(found[...], image.array)
    np.testing.assert_array_equal(found[...], gdal_read(tmp_path / "a.ntf"))


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "c8"])
def test_masked_blocks_are_the_pad_pixel(tmp_path, imode, dtype):
    values = array(dtype)
    absent = {(0, 1), (2, 0)} if imode != "S" else {(0, 0, 1), (2, 2, 0)}
    pad = np.asarray(-3 if np.dtype(dtype).kind != "u" else 9).astype(
        np.dtype(dtype).newbyteorder(">")
    )
    image = Image(values, ic="NM", imode=imode, block=(5, 4), absent=absent, pad=pad.tobytes())
    expected = values.copy()
    for at in absent:
        band = slice(None) if imode != "S" else at[0]
        expected[band, at[-2] * 5 : at[-2] * 5 + 5, at[-1] * 4 : at[-1] * 4 + 4] = pad
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], expected)


@pytest.mark.parametrize("imode", "BS")
@pytest.mark.parametrize("ic", ["NM", "M3", "M5", "M1", "M4"])
def test_no_block_is_stored(tmp_path, ic, imode):
    """A mask may leave out every block: the image is its pad pixel, and the others open."""
    bits, bands = (1, 1) if ic == "M1" else (8, 1 if ic == "M4" else 2)
    absent = {(b, 0, x) for b in range(bands) for x in (0, 1)} if imode == "S" else {(0, 0), (0, 1)}
    values = np.ones((bands, 16, 32), "u1")
    masked = Image(
        values, ic=ic, imode=imode, block=(16, 16), absent=absent, pad=b"\1", nbpp=bits,
        comrat="1D  " if ic == "M1" else "00.0",
    )  # fmt: skip
    other = Image(array("u2", (1, 7, 9)))
    group = read(tmp_path, [other, masked])
    np.testing.assert_array_equal(group["1/0"][...], values)
    np.testing.assert_array_equal(group["0/0"][...], other.array)


def test_absent_blocks_of_a_colour_map_are_no_colour(tmp_path):
    lut = tuple(bytes(range(64)) for _ in range(3))
    image = Image(array("u1", (1, 8, 8), bits=6), ic="NM", block=(4, 4), absent={(0, 1)}, lut=lut)
    found = read(tmp_path, [image])["0/0"][...]
    assert (found[0, :4, 4:] == 64).all()
    np.testing.assert_array_equal(found, gdal_read(tmp_path / "a.ntf"))


def test_blank_mode_of_one_band(tmp_path):
    image = Image(array("u2", (1, 8, 8)), block=(4, 4), fields={"IMODE": " "})
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], image.array)


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "u4", "i4", "f4", "f8"])
@pytest.mark.parametrize("block", [None, (16, 16)])
def test_equals_gdal(tmp_path, imode, dtype, block):
    image = Image(array(dtype, (3, 37, 41)), imode=imode, block=block)
    found = read(tmp_path, [image])["0/0"]
    np.testing.assert_array_equal(found[...], gdal_read(tmp_path / "a.ntf"))


def test_large_blocks_are_cut_into_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("anychunk.formats.nitf.uncompressed.CHUNK_BYTES", 4096)
    monkeypatch.setattr("anychunk.formats.nitf.uncompressed.BAND_BYTES", 1024)
    for imode in "BPRS":
        for rows, block in (
            (128, None),
            (131, None),
            (131, (60, 64)),
            (200, (61, 70)),
            (64, (64, 96)),
        ):
            for dtype in ("u1", "u2"):
                image = Image(array(dtype, (3, rows, 100)), imode=imode, block=block)
                found = read(tmp_path, [image])["0/0"]
                np.testing.assert_array_equal(found[...], image.array)
                if block is None:
                    assert found.nchunks > 3
    image = Image(array("u1", (1, 160, 400), bits=1), nbpp=1)
    found = read(tmp_path, [image])["0/0"]
    assert found.nchunks > 1
    np.testing.assert_array_equal(found[...], image.array)


def test_wide_image_in_one_block(tmp_path):
    image = Image(array("u1", (1, 3, 9000)))
    assert b"0001000100000003" in nitf([image])
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], image.array)


def test_more_blocks_than_the_image_needs(tmp_path):
    values = np.zeros((1, 24, 24), "u1")
    values[:, :10, :9] = array("u1", (1, 10, 9))
    image = Image(values, block=(8, 8), size=(10, 9), fields={"NBPR": "0003", "NBPC": "0003"})
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], values[:, :10, :9])


def test_many_bands(tmp_path):
    image = Image(array("u2", (23, 5, 6)), imode="R", block=(3, 3))
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], image.array)


def test_plain_data_needs_standard_codecs_only(tmp_path):
    for imode, names in {
        "B": ["bytes"],
        "S": ["bytes"],
        "P": ["transpose", "bytes"],
        "R": ["transpose", "bytes"],
    }.items():
        index_file = tmp_path / "a.ntf"
        index_file.write_bytes(nitf([Image(array("u2"), imode=imode, block=(4, 4))]))
        found = anychunk.index(index_file)["0/0"].codecs
        assert [codec["name"] for codec in found] == names


def test_attributes(tmp_path):
    blocka = b"01" + b"00000" + b"00010" + b"000" + b"000" + b" " * 16
    corners = [
        "+32.983985+085.001346",
        "+31.983985+085.001346",
        "+31.983985+084.001346",
        "+32.983985+084.001346",
    ]
    blocka += "".join(corners).encode() + b" " * 5
    rpc = b"10001.000002.0000001901303+32.7209-117.1787+0022"
    rpc += b"002520" + b"02504" + b"+00.0237" + b"+000.0953" + b"+0233" + b"+1.408860E+5" * 80
    lut = (bytes(range(4)), bytes(range(4, 8)), bytes(range(8, 12)))
    first = Image(
        array("u1", (1, 10, 10)), icords="G", igeolo="325902N0840005E325902N0850005E315902N0850005E315902N0840005E",
        tres=tre("BLOCKA", blocka) + tre("RPC00B", rpc) + tre("XYZZYA", b"\1\2"), lut=lut, irep="RGB/LUT",
        location="0001200034", level="002001",
    )  # fmt: skip
    group = read(
        tmp_path, [first], texts=[text_segment(b"hello")], graphics=[graphic_segment(b"cgm")],
        des=[des_segment("XML_DATA_CONTENT", b"<a/>"), des_segment("TRE_OVERFLOW", tre("OVERFA", b"over"), "IXSHD", 1)],
    )  # fmt: skip
    about = group["0"].attrs
    assert about["spatial:bbox"] == [84.001346, 31.983985, 85.001346, 32.983985]
    assert [entry["name"] for entry in about["zarr_conventions"]] == ["proj", "spatial"]
    assert about["nitf:corners"][0] == [84.001346, 32.983985]
    assert about["rpc"]["line_off"] == 19
    assert about["rpc"]["samp_den_coeff"] == [140886.0] * 20
    assert about["nitf"]["placement"] == {"IDLVL": 2, "IALVL": 1, "row": 12, "column": 34}
    assert about["nitf"]["BANDS"][0]["LUTD"] == [list(table) for table in lut]
    tres = {entry["tag"]: entry for entry in about["nitf"]["tres"]}
    assert tres["BLOCKA"]["fields"]["L_LINES"] == 10
    assert tres["XYZZYA"] == {"tag": "XYZZYA", "length": 2, "data": "0x0102"}
    assert tres["OVERFA"]["data"] == "over"
    listed = group.attrs["nitf"]["segments"]
    assert [entry["kind"] for entry in listed] == ["graphic", "text", "des", "des"]
    raw = (tmp_path / "a.ntf").read_bytes()
    found = [raw[e["offset"] : e["offset"] + e["length"]] for e in listed]
    assert found[:3] == [b"cgm", b"hello", b"<a/>"]
    assert about["ome"]["multiscales"][0]["datasets"][0]["path"] == "0"


@pytest.mark.parametrize(
    ("icords", "text", "expected"),
    [
        ("G", "325902S0840005W", (-84 - 5 / 3600, -32 - 59 / 60 - 2 / 3600)),
        ("D", "-12.345+123.456", (123.456, -12.345)),
        # by pyproj: EPSG:32614, EPSG:32756
        ("N", "145000004649776", (-99.0, 41.999997975)),
        ("S", "563345006254500", (151.211387317, -33.836803430)),
        ("U", "14TNM0000049776", (-99.0, 41.999997975)),
        ("U", "56HLH3450054500", (151.211387317, -33.836803430)),
    ],
)
def test_corners_of_every_system(tmp_path, icords, text, expected):
    image = Image(array("u1", (1, 4, 4)), icords=icords, igeolo=text * 4)
    about = read(tmp_path, [image])["0"].attrs
    np.testing.assert_allclose(about["nitf:corners"][0], expected, atol=1e-8)


def test_unreadable_corners_are_left_out(tmp_path):
    image = Image(array("u1", (1, 4, 4)), icords="G", igeolo=" " * 60)
    assert "spatial:bbox" not in read(tmp_path, [image])["0"].attrs


def test_reduced_resolutions_are_levels(tmp_path):
    sizes = (40, 20, 10, 2)
    images = [Image(array("u1", (1, n, n))) for n in sizes]
    for number, image in enumerate(images):
        name = "a.ntf" if number == 0 else f"a.ntf.r{number}"
        (tmp_path / name).write_bytes(nitf([image]))
    group = anychunk.open(tmp_path / "a.ntf")["0"]
    # the last is not half of the one before
    assert sorted(group.array_keys()) == ["0", "1", "2"]
    for number in range(3):
        np.testing.assert_array_equal(group[str(number)][...], images[number].array)
    scales = [
        d["coordinateTransformations"][0]["scale"][1]
        for d in group.attrs["ome"]["multiscales"][0]["datasets"]
    ]
    assert scales == [1, 2, 4]
    assert sorted(anychunk.open(tmp_path / "a.ntf", rsets=False)["0"].array_keys()) == ["0"]


def test_streamed_file(tmp_path):
    values = array("u1", (1, 6, 6))
    true = nitf([Image(values)])
    header = int(true[354:360])
    unknown = bytearray(true)
    unknown[342:354] = b"9" * 12
    des = (
        b"%07d" % header
        + b"\x0a\x6e\x1d\x97"
        + true[:header]
        + b"\x0e\xca\x14\xbf"
        + b"%07d" % header
    )
    (tmp_path / "a.ntf").write_bytes(bytes(unknown) + b"x" * 200 + des)
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.ntf")["0/0"][...], values)
    (tmp_path / "a.ntf").write_bytes(bytes(unknown))
    with pytest.raises(FormatError, match="STREAMING_FILE_HEADER"):
        anychunk.open(tmp_path / "a.ntf")


@pytest.mark.parametrize("ic", ["C0", "C2", "C7", "M0", "CC", "ZZ"])
def test_other_compressions_are_refused_by_name(tmp_path, ic):
    image = Image(array("u1", (1, 4, 4)), ic=ic, payload=b"x" * 99)
    with pytest.raises(UnsupportedError, match=f"image 0: IC '{ic}'.*opened: NC NM"):
        read(tmp_path, [image])
    # others of the same file open, and the refused one says why
    group = read(tmp_path, [image, Image(array("u1", (1, 4, 4)))])
    assert list(group["0"].array_keys()) == []
    assert ic in group["0"].attrs["nitf"]["refused"]
    assert group["1/0"].shape == (1, 4, 4)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"NROWS": "00000000"}, FormatError),
        ({"NROWS": "99999999"}, FormatError),
        ({"NCOLS": "abcdefgh"}, FormatError),
        ({"NBPR": "0000"}, FormatError),
        ({"NPPBH": "0000", "NBPR": "0002"}, FormatError),
        ({"NBPP": "65"}, FormatError),
        ({"NBPP": "00"}, FormatError),
        ({"NBPP": "16"}, TruncatedError),
        ({"IMODE": "X"}, FormatError),
        ({"PVTYPE": "R  "}, UnsupportedError),
        ({"PVTYPE": "ABC"}, UnsupportedError),
        ({"ENCRYP": "1"}, UnsupportedError),
        ({"NROWS": "00000400", "NBPC": "0100"}, TruncatedError),
    ],
)
def test_headers_that_lie(tmp_path, fields, error):
    # a text follows, whose bytes must not be taken for pixels
    image = Image(array("u1", (1, 4, 4)), fields=fields)
    with pytest.raises(error, match="image 0"):
        read(tmp_path, [image], texts=[text_segment(b"x" * 9999)])
    # others of the same file open, and this one says why not
    sound = Image(array("u1", (1, 4, 4)))
    group = read(tmp_path, [image, sound])
    assert list(group["0"].array_keys()) == []
    assert "image 0" in group["0"].attrs["nitf"]["refused"]
    np.testing.assert_array_equal(group["1/0"][...], sound.array)


@pytest.mark.parametrize("place", ["lengths", "subheader"])
def test_the_place_or_the_subheader_of_an_image_is_not_known(tmp_path, place):
    """GDAL writes question marks for images that are still to come, and opens the others."""
    first, second = Image(array("u1", (1, 4, 4))), Image(array("u2", (2, 5, 6)))
    data = bytearray(nitf([first, second]))
    at = 363 + 16 if place == "lengths" else data.rindex(b"IMtest")
    data[at : at + 2] = b"??"
    (tmp_path / "a.ntf").write_bytes(data)
    group = anychunk.open(tmp_path / "a.ntf")
    np.testing.assert_array_equal(group["0/0"][...], first.array)
    assert list(group["1"].array_keys()) == []
    assert "image 1" in group["1"].attrs["nitf"]["refused"]
    # alone it is an error
    data = bytearray(nitf([second]))
    at = 363 if place == "lengths" else data.rindex(b"IMtest")
    data[at : at + 2] = b"??"
    (tmp_path / "b.ntf").write_bytes(data)
    with pytest.raises(FormatError, match="image 0"):
        anychunk.open(tmp_path / "b.ntf")


def test_blank_and_wrong_abpp_mean_all_bits(tmp_path):
    for text in ("  ", "00", "99"):
        image = Image(array("i2", (1, 4, 4)), fields={"ABPP": text})
        np.testing.assert_array_equal(read(tmp_path, [image])["0/0"][...], image.array)


def test_length_of_the_only_segment_may_be_wrong(tmp_path):
    image = Image(array("u1", (1, 4, 4)))
    raw = nitf([image])
    (tmp_path / "a.ntf").write_bytes(raw.replace(b"0000000016", b"0000000002", 1))
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.ntf")["0/0"][...], image.array)


def test_cut_off_block_is_an_error_and_others_open(tmp_path):
    image = Image(array("u1", (1, 8, 8)), block=(4, 4))
    (tmp_path / "a.ntf").write_bytes(nitf([image])[:-1])
    found = anychunk.open(tmp_path / "a.ntf")["0/0"]
    np.testing.assert_array_equal(found[:, :4], image.array[:, :4])
    with pytest.raises(TruncatedError, match=r"chunk \(0, 1, 1\)"):
        found[...]


@needs_corpus
@pytest.mark.parametrize("sample", samples("nitf/"), ids=lambda s: s.path)
def test_real_files(sample):
    group = anychunk.open(sample.file)
    readings = sample.readings()
    for name in group.group_keys():
        found = group[f"{name}/0"][...]
        oracle = readings.get(f"rasterio NITF_IM:{name}") or readings["rasterio.read()"]
        assert (sha256(found), found.shape, found.dtype.name) == oracle
    assert bool(readings) == bool(list(group.group_keys()))


@needs_corpus
@pytest.mark.parametrize("sample", samples("malformed/nitf/"), ids=lambda s: s.path)
def test_malformed_files(sample):
    if "oss_fuzz" in sample.path:
        with pytest.raises(UnsupportedError):
            anychunk.open(sample.file)
        return
    group = anychunk.open(sample.file)
    for name in group.group_keys():
        np.testing.assert_array_equal(group[f"{name}/0"][...], gdal_read(sample.file))
