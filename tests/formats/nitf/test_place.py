"""Where a NITF image lies, compared with GDAL and pyproj."""

import struct
import warnings

import numpy as np
import pyproj
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.rpc import RPC
from rasterio.transform import RPCTransformer

import anychunk
from anychunk.formats.nitf.place import (
    RPC00A_ORDER,
    chipped,
    from_utm,
    geographic_point,
    rpc,
    utm_point,
)
from anychunk.formats.nitf.tre import Tre
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images
from tests.support.corpus import needs_corpus, samples
from tests.support.nitf_writer import Image, des_segment, nitf, tre

SHAPE = (30, 50)


def image(shape=SHAPE, **fields):
    values = np.arange(np.prod(shape), dtype="u1").reshape(1, *shape)
    return Image(values, **fields)


def place_of(path, number=0):
    """Return the place of an image, read back from its attributes."""
    index = anychunk.index(path)
    return meaning_of(index, list(images(index))[number]).place


def of_gdal(path):
    """Return transform (None if there is none), code of the CRS and ground control points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as opened:
            points, crs = opened.gcps
            crs = opened.crs or crs
            transform = None if opened.transform.is_identity else tuple(opened.transform)[:6]
            code = crs.to_string() if crs else None
            return transform, code, [(p.col, p.row, p.x, p.y) for p in points]


def made(folder, *images_, name="a.ntf", **options):
    path = folder / name
    path.write_bytes(nitf(list(images_), **options))
    return path


def assert_like_gdal(path):
    transform, code, points = of_gdal(path)
    found = place_of(path)
    assert (found.crs.code if found.crs else None) == code
    if transform is None:
        assert found.transform is None
    else:
        assert found.transform == pytest.approx(transform, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose([p[:4] for p in found.gcps], points, rtol=1e-12)
    return found


def blocka(corners, lines):
    """FRLC, LRLC, LRFC and FRFC of corners clockwise from upper left."""
    order = [corners[i] for i in (1, 2, 3, 0)]
    texts = "".join(f"{y:+010.6f}{x:+011.6f}" for x, y in order)
    return tre("BLOCKA", f"01{0:05d}{lines:05d}".encode() + b" " * 22 + texts.encode() + b" " * 5)


BOX = [(20.0, 10.0), (20.5, 10.0), (20.5, 9.7), (20.0, 9.7)]
IGEOLO = "100000N0200000E100000N0203000E094200N0203000E094200N0200000E"


@pytest.mark.parametrize(
    ("icords", "igeolo", "code"),
    [
        ("G", IGEOLO, "EPSG:4326"),
        ("G", "100000S0200000W100000S0193000W101800S0193000W101800S0200000W", "EPSG:4326"),
        ("C", IGEOLO, "EPSG:4326"),
        ("D", "+10.000+020.000+10.000+020.500+09.700+020.500+09.700+020.000", "EPSG:4326"),
        # rotated
        ("D", "+10.000+020.000+10.100+020.500+09.800+020.600+09.700+020.100", "EPSG:4326"),
        ("N", "145000004649776145009804649776145009804649196145000004649196", "EPSG:32614"),
        ("S", "563345006254500563354806254500563354806253920563345006253920", "EPSG:32756"),
        ("U", "14TNM000004977614TNM009804977614TNM009804919614TNM0000049196", "EPSG:32614"),
        ("U", "56HLH345005450056HLH354805450056HLH354805392056HLH3450053920", "EPSG:32756"),
    ],
)
def test_corners_of_every_system(tmp_path, icords, igeolo, code):
    """IGEOLO has the centres of the corner pixels."""
    path = made(tmp_path, image(icords=icords, igeolo=igeolo))
    found = assert_like_gdal(path)
    assert found.crs.code == code
    assert found.transform is not None
    assert found.bbox is None
    assert found.gcps == ()


def test_centres_of_pixels(tmp_path):
    """49 and 29 pixels of 20 m lie between the centres."""
    igeolo = "145000004649776145009804649776145009804649196145000004649196"
    found = place_of(made(tmp_path, image(icords="N", igeolo=igeolo)))
    assert found.transform == pytest.approx((20, 0, 499990, 0, -20, 4649786))


@pytest.mark.parametrize(
    ("icords", "text", "expected"),
    [
        ("G", "325902S0840005W", (-84 - 5 / 3600, -32 - 59 / 60 - 2 / 3600)),
        ("D", "-12.345+123.456", (123.456, -12.345)),
    ],
)
def test_geographic_points(icords, text, expected):
    assert geographic_point(icords, text) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("latitude", ["000000N", "453000N", "895959S", "900000N"])
def test_geocentric_latitudes(latitude):
    """By pyproj: from a position on the ellipsoid in direction of the geocentric latitude."""
    degrees = int(latitude[:2]) + int(latitude[2:4]) / 60 + int(latitude[4:6]) / 3600
    degrees *= -1 if latitude[6] == "S" else 1
    angle = np.radians(degrees)
    a, b = 6378137.0, 6356752.314245179
    radius = a * b / np.hypot(b * np.cos(angle), a * np.sin(angle))
    to_geodetic = pyproj.Transformer.from_crs("EPSG:4978", "EPSG:4979")
    position = (radius * np.cos(angle), 0.0, radius * np.sin(angle))
    expected, _, _ = to_geodetic.transform(*position)
    assert geographic_point("C", f"{latitude}0000000E") == pytest.approx((0, expected), abs=1e-9)


@pytest.mark.parametrize(
    ("icords", "text", "zone", "expected"),
    [
        # by pyproj: EPSG:32614, EPSG:32756
        ("N", "145000004649776", (14, False, 500000, 4649776), (-99.0, 41.999997975)),
        ("S", "563345006254500", (56, True, 334500, 6254500), (151.211387317, -33.836803430)),
        ("U", "14TNM0000049776", (14, False, 500000, 4649776), (-99.0, 41.999997975)),
        ("U", "56HLH3450054500", (56, True, 334500, 6254500), (151.211387317, -33.836803430)),
    ],
)
def test_utm_points(icords, text, zone, expected):
    assert utm_point(icords, text) == zone
    number, is_south, east, north = zone
    assert from_utm(number, east, north, is_south=is_south) == pytest.approx(expected, abs=1e-8)


def test_corners_in_two_zones(tmp_path):
    """GDAL takes the zone of the last one for all; in longitude and latitude they fit together."""
    to_utm = {z: pyproj.Transformer.from_crs(4326, 32600 + z, always_xy=True) for z in (31, 32)}
    texts = ""
    for x, y in [(5.999, 10.0), (6.001, 10.0), (6.001, 9.998), (5.999, 9.998)]:
        zone = 31 if x < 6 else 32
        east, north = to_utm[zone].transform(x, y)
        texts += f"{zone:02d}{round(east):06d}{round(north):07d}"
    found = place_of(made(tmp_path, image(icords="N", igeolo=texts)))
    assert found.crs.code == "EPSG:4326"
    assert found.transform[2] == pytest.approx(5.999, abs=1e-4)
    assert found.transform[0] * 49 == pytest.approx(0.002, abs=1e-5)


def test_nitf_20_has_no_utm(tmp_path):
    """There N means that there are no coordinates."""
    path = made(tmp_path, image(icords="N"), version="NITF02.00")
    found = assert_like_gdal(path)
    assert (found.crs, found.transform, found.bbox) == (None, None, None)


@pytest.mark.parametrize("lines", [30, 1000])
def test_blocka(tmp_path, lines):
    """It replaces IGEOLO where it describes as many lines as the image has."""
    fine = [(x + 0.000123, y - 0.000321) for x, y in BOX]
    path = made(tmp_path, image(icords="G", igeolo=IGEOLO, tres=blocka(fine, lines)))
    found = assert_like_gdal(path)
    first = found.transform[2] + found.transform[0] / 2
    assert first == pytest.approx(20.000123 if lines == 30 else 20.0, abs=1e-9)


def test_blocka_without_igeolo(tmp_path):
    path = made(tmp_path, image(tres=blocka(BOX, 30)))
    assert place_of(path).transform[2] == pytest.approx(20 - 0.5 / 49 / 2)


def test_two_blocka_describe_parts(tmp_path):
    extensions = blocka(BOX, 30) + blocka(BOX, 30)
    path = made(tmp_path, image(icords="D", igeolo="+50.000+050.000" * 4, tres=extensions))
    found = place_of(path)
    assert found.transform is None
    assert found.bbox == (50, 50, 50, 50)


def test_geolob(tmp_path):
    """It has the outer corner of the first pixel, and pixels per 360 degrees."""
    data = b"000360000" + b"000720000" + b"+020.0000000000" + b"+10.00000000000"
    path = made(tmp_path, image(icords="G", igeolo=IGEOLO, tres=tre("GEOLOB", data)))
    found = assert_like_gdal(path)
    assert found.transform == pytest.approx((0.001, 0, 20, 0, -0.0005, 10))


def test_rpf_coverage(tmp_path):
    """The coverage section has the outer corners, as doubles."""
    corners = [(10.0, 20.0), (9.4, 20.0), (10.0, 20.5), (9.4, 20.5)]  # NW SW NE SE, latitude first
    section = struct.pack(">8d", *(n for pair in corners for n in pair))

    def extension(at):
        table = struct.pack(">HII", 130, 96, at)
        return tre("RPFIMG", struct.pack(">HIHHI", 24, 14, 1, 10, 0) + table)

    text = (b"TE" + b" " * 400, section + bytes(32))
    head = nitf([image(icords="G", igeolo=IGEOLO, tres=extension(0))], texts=[text])
    at = head.index(section)
    path = made(tmp_path, image(icords="G", igeolo=IGEOLO, tres=extension(at)), texts=[text])
    found = assert_like_gdal(path)
    assert found.transform == pytest.approx((0.01, 0, 20, 0, -0.02, 10))


@needs_corpus
def test_rpf_coverage_of_a_real_frame():
    """The values of rasterio."""
    (sample,) = (s for s in samples("nitf/") if s.file.name == "RPFTOC01.ON2")
    expected = (0.0017833876302083334, 0, 1.9999416, 0, -0.0013461816406249993, 36.0001175)
    assert place_of(sample.file).transform == pytest.approx(expected, rel=1e-12)


def test_what_is_not_affine_stays_points(tmp_path):
    """A box never poses as a transform."""
    igeolo = "+10.000+020.000+10.100+020.500+09.600+020.700+09.700+020.000"
    path = made(tmp_path, image(icords="D", igeolo=igeolo))
    found = assert_like_gdal(path)
    assert found.transform is None
    assert found.bbox == (20.0, 9.6, 20.7, 10.1)
    assert found.gcps[2] == (49.5, 29.5, 20.7, 9.6, 0.0)
    about = anychunk.open(path)["0"].attrs
    assert "spatial:transform" not in about
    assert about["spatial:bbox"] == [20.0, 9.6, 20.7, 10.1]
    assert about["proj:code"] == "EPSG:4326"
    assert about["anychunk.gcps"][0] == [0.5, 0.5, 20.0, 10.0, 0.0]


@pytest.mark.parametrize(("off", "is_affine"), [(1.6, True), (2.4, False)])
def test_corners_may_be_off_by_half_a_pixel(tmp_path, off, is_affine):
    """A corner that is off by 4 r is off the best parallelogram by r; pixels are 10 m here."""
    east = 500_000
    corners = [(east, 0), (east + 490, 0), (east + 490 + 10 * off, 290), (east, 290)]
    igeolo = "".join(f"14{round(x):06d}{4_649_776 - y:07d}" for x, y in corners)
    found = place_of(made(tmp_path, image(icords="N", igeolo=igeolo)))
    assert (found.transform is not None) == is_affine
    assert bool(found.gcps) != is_affine


@pytest.mark.parametrize("shape", [(1, 50), (30, 1), (1, 1)])
def test_a_single_row_has_no_height(tmp_path, shape):
    path = made(tmp_path, image(shape, icords="G", igeolo=IGEOLO))
    found = place_of(path)
    assert found.transform is None
    assert found.bbox == pytest.approx((20, 9.7, 20.5, 10))


def test_across_the_antimeridian(tmp_path):
    """GDAL fits 359 degrees of the wrong direction; only CADRG is put right there."""
    igeolo = "100000N1794500E100000N1794500W094200N1794500W094200N1794500E"
    found = place_of(made(tmp_path, image(icords="G", igeolo=igeolo)))
    step = 0.5 / 49
    assert found.transform[:3] == pytest.approx((step, 0, 179.75 - step / 2))


@pytest.mark.parametrize("kind", ["SICD", "SIDD"])
def test_corners_of_sensor_data_are_rough(tmp_path, kind):
    """Their XML has the geometry; corners are only good to find the image on a map."""
    xml, body = des_segment("XML_DATA_CONTENT", b"<a/>")
    header = xml[:-4] + b"0073" + f"urn:{kind}:1.3.0".ljust(73).encode()
    path = made(tmp_path, image(icords="G", igeolo=IGEOLO), des=[(header, body)])
    found = place_of(path)
    assert found.transform is None
    assert found.bbox == pytest.approx((20, 9.7, 20.5, 10))
    assert len(found.gcps) == 4
    named = image(icords="G", igeolo=IGEOLO)
    raw = nitf([named]).replace(b"IMtest      ", f"IM{kind}001   ".encode())
    (tmp_path / "b.ntf").write_bytes(raw)
    assert place_of(tmp_path / "b.ntf").transform is None


def rpc_data():
    """RPC00B of a camera that looks down: rows and columns follow latitude and longitude."""
    offsets = b"0001.000002.00" + b"000500" + b"00400" + b"+10.0000" + b"+020.0000" + b"+0100"
    scales = b"000500" + b"00400" + b"+00.1000" + b"+000.2000" + b"+0500"
    rows = {
        "line_num": [0.01, 0.02, -1.0, 0.05],
        "line_den": [1.0, 0.001, 0.002, 0.0],
        "samp_num": [0.02, 1.0, 0.03, 0.04],
        "samp_den": [1.0, -0.002, 0.001, 0.0],
    }
    text = "".join(
        f"{n:+.6E}"[:-2] + f"{n:+.6E}"[-1] for r in rows.values() for n in [*r, *[0.0] * 16]
    )
    return b"1" + offsets + scales + text.encode()


def of_rasterio(values):
    """Return our coefficients as those of rasterio."""
    keys = ("err_bias", "err_rand")
    return RPC(**{k: v for k, v in values.items() if k not in keys}, err_bias=1.0, err_rand=2.0)


def assert_rpc_like_gdal(path):
    found = place_of(path).rpc
    with rasterio.open(path) as opened:
        expected = {key: value for key, value in opened.rpcs.to_dict().items() if value is not None}
    assert found.keys() >= expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value), key
    return found


def test_rpc(tmp_path):
    path = made(tmp_path, image(tres=tre("RPC00B", rpc_data())))
    assert assert_rpc_like_gdal(path)["line_num_coeff"][2] == -1.0


@needs_corpus
def test_rpc_of_a_real_file():
    (sample,) = (s for s in samples("nitf/") if "noICHIPB" in s.file.name)
    assert_rpc_like_gdal(sample.file)


def test_rpc00a_has_another_order(tmp_path):
    data = rpc_data()[:81] + "".join(f"{n:+.6E}"[:-2] + f"{n:+.6E}"[-1] for n in range(80)).encode()
    path = made(tmp_path, image(tres=tre("RPC00A", data)))
    found = place_of(path).rpc
    with rasterio.open(path) as opened:
        assert found["line_num_coeff"] == opened.rpcs.line_num_coeff
    assert found["line_num_coeff"] == [float(n) for n in RPC00A_ORDER]


def ichipb(full, product, flag="00"):
    """ICHIPB; corners as (row, column) of first, upper right, lower left and last."""
    numbers = "".join(f"{n:012.3f}" for corner in (*product, *full) for n in corner)
    return f"{flag}0001.000000000{numbers}{1000:08d}{800:08d}".encode()


def corners(row, column, height, width):
    """Centres of the corner pixels, the first at (0.5, 0.5)."""
    bottom, right = row + height, column + width
    return [(row, column), (row, right), (bottom, column), (bottom, right)]


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_chips(tmp_path, scale):
    """What the full image's polynomials say about a place, those of the chip say about its pixel."""
    full = corners(300.5, 200.5, 29 * scale, 49 * scale)
    product = corners(0.5, 0.5, 29, 49)
    extensions = tre("RPC00B", rpc_data()) + tre("ICHIPB", ichipb(full, product))
    found = place_of(made(tmp_path, image(tres=extensions))).rpc
    whole = rpc(Tre("RPC00B", rpc_data()))
    for longitude, latitude, height in [(20.0, 10.0, 100.0), (20.05, 9.98, 300.0)]:
        at = {"zs": [height], "op": lambda x: x}
        row, column = RPCTransformer(of_rasterio(whole)).rowcol([longitude], [latitude], **at)
        chip_row, chip_column = RPCTransformer(of_rasterio(found)).rowcol(
            [longitude], [latitude], **at
        )
        # rasterio's rows count from the outer corner of the first pixel, and so does ICHIPB
        assert chip_row[0] == pytest.approx((row[0] - 300.5) / scale + 0.5, abs=1e-6)
        assert chip_column[0] == pytest.approx((column[0] - 200.5) / scale + 0.5, abs=1e-6)


@pytest.mark.parametrize("kind", ["rotated", "mirrored", "dewarped", "short", "text"])
def test_chips_that_coefficients_cannot_describe(kind):
    full, product = corners(300.5, 200.5, 29, 49), corners(0.5, 0.5, 29, 49)
    data = {
        "rotated": ichipb([(r + c / 10, c) for r, c in full], product),
        "mirrored": ichipb([(r, -c) for r, c in full], product),
        "dewarped": ichipb(full, product, "01"),
        "short": ichipb(full, product)[:-1],
        "text": ichipb(full, product).replace(b"00000300.500", b"?".rjust(12), 1),
    }[kind]
    whole = rpc(Tre("RPC00B", rpc_data()))
    assert whole is not None
    assert chipped(whole, Tre("ICHIPB", data)) is None


PAM = """<PAMDataset><SRS>EPSG:32631</SRS><GeoTransform>100, 2, 0, 200, 0, -3</GeoTransform>
<PAMRasterBand band="1"><NoDataValue>7</NoDataValue></PAMRasterBand></PAMDataset>"""


@pytest.mark.parametrize("has_corners", [True, False])
def test_side_files(tmp_path, has_corners):
    """Corners of the image count for more than an .aux.xml or a world file, as in GDAL."""
    fields = {"icords": "G", "igeolo": IGEOLO} if has_corners else {}
    path = made(tmp_path, image(**fields))
    inside = place_of(path).transform
    (tmp_path / "a.nfw").write_text("0.01\n0\n0\n-0.02\n30\n40\n")
    expected = inside if has_corners else pytest.approx((0.01, 0, 29.995, 0, -0.02, 40.01))
    assert place_of(path).transform == expected
    (tmp_path / "a.ntf.aux.xml").write_text(PAM)
    found = place_of(path)
    if has_corners:
        assert_like_gdal(path)
        assert found.transform == inside
    else:
        assert found.transform == (2, 0, 100, 0, -3, 200)
        assert found.crs.code == "EPSG:32631"
    index = anychunk.index(path)
    assert meaning_of(index, next(iter(images(index)))).nodata == 7
    index = anychunk.index(path, sidecars=False)
    assert meaning_of(index, next(iter(images(index)))).place.transform == inside


@needs_corpus
@pytest.mark.parametrize(
    "sample", [*samples("nitf/"), *samples("malformed/nitf/")], ids=lambda s: s.path
)
def test_corpus(sample):
    """CRS and transform are those of GDAL, without an exception."""
    try:
        anychunk.index(sample.file)
    except anychunk.AnychunkError:
        pytest.skip("refused; see test_nitf.py")
    if sample.file.name in ("ns3114a.nsf", "A.TOC") or "two_images" in sample.file.name:
        pytest.skip("no image, or several, none of which has a place")
    assert_like_gdal(sample.file)
