import numpy as np
import pytest

import anychunk
from anychunk.errors import FormatError, TruncatedError, UnsupportedError
from anychunk.testing.formats import FormatContract
from tests.support.corpus import needs_corpus, samples, sha256
from tests.support.gdal import gdal_shown, without_band
from tests.support.nitf_writer import (
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
                yield file, {f"{i}/0/image": image.shown for i, image in enumerate(images)}


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize("block", [None, (4, 5), (16, 16), (13, 4)])
@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8"]
)
def test_every_mode_and_type(tmp_path, imode, block, dtype):
    image = Image(array(dtype), imode=imode, block=block)
    found = read(tmp_path, [image])["0/0/image"]
    assert found.dtype == image.array.dtype
    np.testing.assert_array_equal(found[...], image.shown)
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
    found = read(tmp_path, [image])["0/0/image"]
    assert found.dtype == image.array.dtype
    np.testing.assert_array_equal(found[...], image.shown)


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
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    ("dtype", "nbpp", "abpp"), [("u2", 16, 11), ("i2", 16, 11), ("u1", 8, 7), ("i4", 32, 20)]
)
@pytest.mark.parametrize("imode", "BPS")
@pytest.mark.parametrize("block", [(4, 4), (6, 5)])
def test_left_justified_samples_whose_low_bits_are_in_use(
    tmp_path, imode, dtype, nbpp, abpp, block
):
    """They are left as stored, as GDAL does: shifting them would lose bits."""
    image = Image(array(dtype, (2, 6, 5), bits=nbpp), imode=imode, block=block)
    image.fields = {"ABPP": f"{abpp:02d}"}
    image.pjust = "L"
    assert (image.array & 1).any()
    found = read(tmp_path, [image])["0/0/image"][...]
    np.testing.assert_array_equal(found, image.shown)
    np.testing.assert_array_equal(found, gdal_shown(tmp_path / "a.ntf"))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(("dtype", "nbpp", "abpp"), [("i2", 16, 11), ("i4", 32, 20)])
@pytest.mark.parametrize("imode", "BPS")
def test_signed_samples_whose_high_bits_are_in_use(tmp_path, imode, dtype, nbpp, abpp):
    """They are left as stored, as GDAL does: extending them would lose bits."""
    image = Image(array(dtype, (2, 6, 5), bits=nbpp), imode=imode, block=(4, 4))
    image.fields = {"ABPP": f"{abpp:02d}"}
    found = read(tmp_path, [image])["0/0/image"][...]
    np.testing.assert_array_equal(found, image.shown)
    np.testing.assert_array_equal(found, gdal_shown(tmp_path / "a.ntf"))


def test_high_bits_that_were_not_looked_at_are_an_error(tmp_path):
    values = np.zeros((1, 1500, 1000), "i2")
    values[0, 705, 500] = 0x5231
    (tmp_path / "a.ntf").write_bytes(nitf([Image(values, fields={"ABPP": "12"})]))
    with pytest.raises(anychunk.errors.ChunkDecodeError, match=r"4 high bits.*justify=False"):
        anychunk.open_array(tmp_path / "a.ntf")[...]
    found = anychunk.open_array(tmp_path / "a.ntf", justify=False)[...]
    np.testing.assert_array_equal(found, values[0])


def test_packed_left_justified_samples_whose_low_bits_are_in_use(tmp_path):
    image = Image(array("u2", (1, 1, 3), bits=12), nbpp=12, imode="B", pjust="L")
    image.array[0, 0] = 0x10, 0x20, 0x31
    image.fields = {"ABPP": "08"}
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


def test_low_bits_that_were_not_looked_at_are_an_error(tmp_path):
    """One sample of many: no bit is lost silently, and `justify` decides."""
    values = np.zeros((1, 1500, 1000), "u2")
    values[0, 705, 500] = 0x1231
    (tmp_path / "a.ntf").write_bytes(nitf([Image(values, pjust="L", fields={"ABPP": "12"})]))
    with pytest.raises(anychunk.errors.ChunkDecodeError, match=r"4 low bits.*justify=False"):
        anychunk.open_array(tmp_path / "a.ntf")[...]
    found = anychunk.open_array(tmp_path / "a.ntf", justify=False)[...]
    np.testing.assert_array_equal(found, values[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_bilevel_pixels(tmp_path, version):
    image = Image(array("u1", (1, 18, 35), bits=1), nbpp=1, pvtype="B", irep="RGB/LUT")
    found = read(tmp_path, [image], version=version)["0/0/image"]
    np.testing.assert_array_equal(found[...], image.shown)
    np.testing.assert_array_equal(found[...], gdal_shown(tmp_path / "a.ntf"))


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
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], expected)


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
    np.testing.assert_array_equal(group["1/0/image"][...], without_band(values))
    np.testing.assert_array_equal(group["0/0/image"][...], other.shown)


def test_absent_blocks_of_a_colour_map_are_no_colour(tmp_path):
    lut = tuple(bytes(range(64)) for _ in range(3))
    image = Image(array("u1", (1, 8, 8), bits=6), ic="NM", block=(4, 4), absent={(0, 1)}, lut=lut)
    found = read(tmp_path, [image])["0/0/image"][...]
    assert (found[:4, 4:] == 64).all()
    np.testing.assert_array_equal(found, gdal_shown(tmp_path / "a.ntf"))


def test_blank_mode_of_one_band(tmp_path):
    image = Image(array("u2", (1, 8, 8)), block=(4, 4), fields={"IMODE": " "})
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


@pytest.mark.parametrize("imode", "BPRS")
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "u4", "i4", "f4", "f8"])
@pytest.mark.parametrize("block", [None, (16, 16)])
def test_equals_gdal(tmp_path, imode, dtype, block):
    image = Image(array(dtype, (3, 37, 41)), imode=imode, block=block)
    found = read(tmp_path, [image])["0/0/image"]
    np.testing.assert_array_equal(found[...], gdal_shown(tmp_path / "a.ntf"))


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
                found = read(tmp_path, [image])["0/0/image"]
                np.testing.assert_array_equal(found[...], image.shown)
                if block is None:
                    assert found.nchunks > 3
    image = Image(array("u1", (1, 160, 400), bits=1), nbpp=1)
    found = read(tmp_path, [image])["0/0/image"]
    assert found.nchunks > 1
    np.testing.assert_array_equal(found[...], image.shown)


def test_wide_image_in_one_block(tmp_path):
    image = Image(array("u1", (1, 3, 9000)))
    assert b"0001000100000003" in nitf([image])
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


def test_more_blocks_than_the_image_needs(tmp_path):
    values = np.zeros((1, 24, 24), "u1")
    values[:, :10, :9] = array("u1", (1, 10, 9))
    image = Image(values, block=(8, 8), size=(10, 9), fields={"NBPR": "0003", "NBPC": "0003"})
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], values[0, :10, :9])


def test_many_bands(tmp_path):
    image = Image(array("u2", (23, 5, 6)), imode="R", block=(3, 3))
    np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


def test_plain_data_needs_standard_codecs_only(tmp_path):
    for imode, names in {
        "B": ["bytes"],
        "S": ["bytes"],
        "P": ["transpose", "bytes"],
        "R": ["transpose", "bytes"],
    }.items():
        index_file = tmp_path / "a.ntf"
        index_file.write_bytes(nitf([Image(array("u2"), imode=imode, block=(4, 4))]))
        found = anychunk.index(index_file)["0/0/image"].codecs
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
    # corners are centres of pixels, so that the image is half a pixel larger on each side
    half = 1 / 9 / 2
    assert about["spatial:bbox"] == pytest.approx(
        [84.001346 - half, 31.983985 - half, 85.001346 + half, 32.983985 + half]
    )
    names = [entry["name"] for entry in about["zarr_conventions"]]
    assert names == ["multiscales", "proj", "spatial"]
    assert about["anychunk.rpc"]["line_off"] == 19
    assert about["anychunk.rpc"]["samp_den_coeff"] == [140886.0] * 20
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
    assert about["ome"]["multiscales"][0]["datasets"][0]["path"] == "0/image"


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
    assert sorted(group.group_keys()) == ["0", "1", "2"]
    for number in range(3):
        np.testing.assert_array_equal(group[f"{number}/image"][...], images[number].shown)
    scales = [
        d["coordinateTransformations"][0]["scale"][1]
        for d in group.attrs["ome"]["multiscales"][0]["datasets"]
    ]
    assert scales == [1, 2, 4]
    assert sorted(anychunk.open(tmp_path / "a.ntf", rsets=False)["0"].group_keys()) == ["0"]


@pytest.mark.parametrize("sizes", [(41, 21, 11), (41, 20, 10)])
def test_reduced_resolutions_of_odd_sizes(tmp_path, sizes):
    """Writers round up or down; pixels are twice as wide all the same."""
    for number, side in enumerate(sizes):
        name = "a.ntf" if number == 0 else f"a.ntf.r{number}"
        igeolo = "100000N0200000E100000N0200040E095920N0200040E095920N0200000E"
        image = Image(array("u1", (1, side, side)), icords="G", igeolo=igeolo)
        (tmp_path / name).write_bytes(nitf([image]))
    group = anychunk.open(tmp_path / "a.ntf")["0"]
    step = 40 / 40 / 3600
    for number in range(3):
        a, _, c, _, e, _ = group[str(number)].attrs["spatial:transform"]
        assert [a, e] == pytest.approx([step * 2**number, -step * 2**number])
        assert c == pytest.approx(20 - step / 2)


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
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.ntf")["0/0/image"][...], values[0])
    (tmp_path / "a.ntf").write_bytes(bytes(unknown))
    with pytest.raises(FormatError, match=r"a\.ntf .*\b999999999999\b"):
        anychunk.open(tmp_path / "a.ntf")


@pytest.mark.parametrize("ic", ["C0", "C2", "C7", "M0", "CC", "ZZ"])
def test_other_compressions_are_refused_by_name(tmp_path, ic):
    image = Image(array("u1", (1, 4, 4)), ic=ic, payload=b"x" * 99)
    with pytest.raises(UnsupportedError, match=f"image 0: IC '{ic}'.* NC NM"):
        read(tmp_path, [image])
    # others of the same file open, and the refused one says why
    group = read(tmp_path, [image, Image(array("u1", (1, 4, 4)))])
    assert list(group["0"].keys()) == []
    assert ic in group["0"].attrs["nitf"]["refused"]
    assert group["1/0/image"].shape == (4, 4)


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
    assert list(group["0"].keys()) == []
    assert "image 0" in group["0"].attrs["nitf"]["refused"]
    np.testing.assert_array_equal(group["1/0/image"][...], sound.shown)


@pytest.mark.parametrize("place", ["lengths", "subheader"])
def test_the_place_or_the_subheader_of_an_image_is_not_known(tmp_path, place):
    """GDAL writes question marks for images that are still to come, and opens the others."""
    first, second = Image(array("u1", (1, 4, 4))), Image(array("u2", (2, 5, 6)))
    data = bytearray(nitf([first, second]))
    at = 363 + 16 if place == "lengths" else data.rindex(b"IMtest")
    data[at : at + 2] = b"??"
    (tmp_path / "a.ntf").write_bytes(data)
    group = anychunk.open(tmp_path / "a.ntf")
    np.testing.assert_array_equal(group["0/0/image"][...], first.shown)
    assert list(group["1"].keys()) == []
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
        np.testing.assert_array_equal(read(tmp_path, [image])["0/0/image"][...], image.shown)


def test_abpp_and_length_that_both_contradict_nbpp(tmp_path):
    """With NBPP 7 in place of 8, samples would be taken from the wrong bits; GDAL refuses it."""
    raw = nitf([Image(array("u1", (1, 8, 8)), fields={"ABPP": "08", "NBPP": "07"})])
    (tmp_path / "a.ntf").write_bytes(raw)
    with pytest.raises(FormatError, match="ABPP is 8 and NBPP 7"):
        anychunk.open(tmp_path / "a.ntf")


def test_abpp_contradicts_nbpp_and_the_length_fits_both(tmp_path):
    """Blocks of 4 pixels take 4 bytes with 7 bits as with 8."""
    image = Image(array("u1", (3, 4, 4)), block=(2, 2), fields={"ABPP": "08", "NBPP": "07"})
    (tmp_path / "a.ntf").write_bytes(nitf([image]))
    with pytest.raises(FormatError, match="ABPP is 8 and NBPP 7"):
        anychunk.open(tmp_path / "a.ntf")


@pytest.mark.parametrize("nbpp", ["05", "09", "13"])
def test_unlisted_nbpp_that_the_length_does_not_confirm(tmp_path, nbpp):
    """LI may be too small behind the last segment, but then nothing says that NBPP is right."""
    image = Image(array("u1", (3, 4, 4)), block=(2, 2), fields={"ABPP": "05", "NBPP": nbpp})
    (tmp_path / "a.ntf").write_bytes(nitf([image]) + bytes(99))
    with pytest.raises(FormatError, match=f"NBPP is {int(nbpp)}, which the standard does not list"):
        anychunk.open(tmp_path / "a.ntf")


@pytest.mark.parametrize("length", [b"-1111", b"00002"])
def test_a_length_of_tres_that_cannot_be(tmp_path, length):
    """Fields behind it are where a negative length says, as GDAL refuses it."""
    raw = bytearray(nitf([Image(array("u1", (1, 4, 4)))]))
    raw[394:399] = length  # UDHDL of a file with one image
    (tmp_path / "a.ntf").write_bytes(raw)
    with pytest.raises(FormatError, match="UDH"):
        anychunk.open(tmp_path / "a.ntf")


def test_one_bit_has_no_sign(tmp_path):
    raw = nitf([Image(np.ones((1, 8, 8), "u1"), nbpp=1, pvtype="B", fields={"PVTYPE": "SI "})])
    (tmp_path / "a.ntf").write_bytes(raw)
    with pytest.raises(FormatError, match="PVTYPE SI with NBPP 1"):
        anychunk.open(tmp_path / "a.ntf")


def test_length_of_the_only_segment_may_be_wrong(tmp_path):
    image = Image(array("u1", (1, 4, 4)))
    raw = nitf([image])
    (tmp_path / "a.ntf").write_bytes(raw.replace(b"0000000016", b"0000000002", 1))
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.ntf")["0/0/image"][...], image.shown)


def test_cut_off_block_is_an_error_and_others_open(tmp_path):
    image = Image(array("u1", (1, 8, 8)), block=(4, 4))
    (tmp_path / "a.ntf").write_bytes(nitf([image])[:-1])
    found = anychunk.open(tmp_path / "a.ntf")["0/0/image"]
    np.testing.assert_array_equal(found[:4], image.shown[:4])
    with pytest.raises(TruncatedError, match=r"chunk \(1, 1\)"):
        found[...]


@needs_corpus
@pytest.mark.parametrize("sample", samples("nitf/"), ids=lambda s: s.path)
def test_real_files(sample):
    group = anychunk.open(sample.file)
    readings = sample.readings()
    for name in group.group_keys():
        found = group[f"{name}/0/image"][...]
        oracle = readings.get(f"rasterio NITF_IM:{name}") or readings["rasterio.read()"]
        bands = () if found.ndim == 3 else (1,)  # that of a single band is dropped
        assert (sha256(found), (*bands, *found.shape), found.dtype.name) == oracle
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
        np.testing.assert_array_equal(group[f"{name}/0/image"][...], gdal_shown(sample.file))


def test_a_reserved_count_that_is_not_zero_is_refused(tmp_path):
    """GDAL refuses it, too: it takes NUMX for a number of segments."""
    data = nitf([Image(array("u1", (1, 6, 5), bits=8))])
    at = 382  # after the lengths of one image, and NUMS
    assert data[at - 6 : at + 3] == b"030000000"
    (tmp_path / "a.ntf").write_bytes(data[:at] + b"002" + data[at + 3 :])
    with pytest.raises(anychunk.errors.FormatError, match="NUMX"):
        anychunk.open(tmp_path / "a.ntf")
