"""Georeference of JPEG 2000 files, compared with rasterio."""

import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
import rasterio
from rasterio import Affine
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.errors import FormatError
from anychunk.formats.jpeg2000 import read_geojp2, read_gml
from tests.formats.jpeg2000.test_jpeg2000 import RGB, box, jp2
from tests.support.corpus import needs_corpus, samples
from tests.support.gdal import has_driver
from tests.support.j2k_streams import compress, needs_openjpeg, opened
from tests.support.patience import PATIENCE_S

needs_jp2_driver = pytest.mark.skipif(
    not has_driver("JP2OpenJPEG"), reason="rasterio has no JP2OpenJPEG driver"
)
UUID = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")

NEEDS_PYPROJ = 'the order of axes of this CRS is in pyproj: pip install "anychunk[geo]"'


@needs_corpus
@pytest.mark.parametrize(
    ("file", "code", "transform"),
    [
        ("byte_tile_2048.jp2", "EPSG:26711", [60.0, 0.0, 440720.0, 0.0, -60.0, 3751320.0]),
        ("byte_point.jp2", "EPSG:32611", [60.0, 0.0, 440690.0, 0.0, -60.0, 3751350.0]),
        (
            "rgbwcmyk01_YeGeo_kakadu.jp2",
            "EPSG:26918",
            [240.0, 0.0, 270000.0, 0.0, -240.0, 4336500.0],
        ),
    ],
)
def test_geojp2(file, code, transform):
    """Values of rasterio."""
    (sample,) = (s for s in samples("jpeg2000/") if s.file.name == file)
    attributes = anychunk.open(sample.file)["0"].attrs
    assert attributes["proj:code"] == code
    assert attributes["spatial:transform"] == transform


GML = """<gml:RectifiedGrid dimension="2"><gml:origin><gml:Point srsName="urn:ogc:def:crs:EPSG::{code}">
<gml:pos>{origin}</gml:pos></gml:Point></gml:origin>
<gml:offsetVector>{column}</gml:offsetVector><gml:offsetVector>{row}</gml:offsetVector></gml:RectifiedGrid>"""


@needs_openjpeg
@pytest.mark.parametrize(
    ("code", "origin", "column", "row", "transform"),
    [
        ("26711", "440750 3751290", "60 0", "0 -60", [60.0, 0.0, 440720.0, 0.0, -60.0, 3751320.0]),
        ("4326", "39.5 -99.5", "0 1", "-1 0", [1.0, 0.0, -100.0, 0.0, -1.0, 40.0]),
    ],
    ids=["east first", "north first"],
)
def test_gml(tmp_path, code, origin, column, row, transform):
    text = GML.format(code=code, origin=origin, column=column, row=row).encode()
    label = box(b"lbl ", b"gml.root-instance")
    data = jp2(compress(list(RGB)), box(b"asoc", label + box(b"xml ", text)))
    attributes = opened(tmp_path / "a.jp2", data)["0"].attrs
    assert attributes["proj:code"] == f"EPSG:{code}"
    assert attributes["spatial:transform"] == transform


def georeference(path):
    """Return transform and EPSG code, as rasterio reads them from the file itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as dataset:
            code = dataset.crs.to_epsg() if dataset.crs else None
            return tuple(dataset.transform)[:6], code


@needs_jp2_driver
@pytest.mark.parametrize("kind", ["GeoJP2", "GMLJP2", "both", "GMLJP2V2"])
@pytest.mark.parametrize("registration", ["Area", "Point"])
@pytest.mark.parametrize(
    ("code", "transform"),
    [
        (32631, Affine(10, 0, 500000, 0, -10, 4649776)),
        (32733, Affine(0.5, 0, 399960.25, 0, -0.25, 8100040.75)),
        (32631, Affine(8, 6, 500000, 6, -8, 4649776)),  # rotated
        (4326, Affine(0.01, 0, 3.5, 0, -0.02, 42.25)),  # latitude before longitude in GML
        (2326, Affine(2, 0, 800000, 0, -2, 830000)),  # northing before easting
        (4326, Affine(0.01, 0.003, 3.5, 0.002, -0.02, 42.25)),
        (2326, Affine(8, 6, 800000, 6, -8, 830000)),
        (32631, Affine(0, 10, 500000, 10, 0, 4649776)),  # columns go north
        (4326, Affine(0, 0.01, 3.5, 0.02, 0, 42.25)),
        (3413, Affine(8, 6, 500000, 6, -8, -649776)),  # both axes point south
        (3857, Affine(8, 6, 500000, 6, -8, 649776)),
    ],
    ids=[
        "utm north",
        "utm south",
        "rotated",
        "geographic",
        "north first",
        "geographic, rotated",
        "north first, rotated",
        "columns go north",
        "geographic, columns go north",
        "polar, rotated",
        "mercator, rotated",
    ],
)
def test_files_of_gdal(tmp_path, kind, registration, code, transform):
    if kind != "GeoJP2" and transform.b:
        pytest.importorskip("pyproj", reason=NEEDS_PYPROJ)
    path = tmp_path / "a.jp2"
    options = {
        "GeoJP2": {"GeoJP2": "YES", "GMLJP2": "NO"},
        "GMLJP2": {"GeoJP2": "NO", "GMLJP2": "YES"},
        "both": {"GeoJP2": "YES", "GMLJP2": "YES"},
        "GMLJP2V2": {"GeoJP2": "NO", "GMLJP2V2_DEF": "YES"},
    }[kind]
    tiff = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "height": 24, "width": 32}
    with rasterio.open(tiff, "w", crs=f"EPSG:{code}", transform=transform, **profile) as made:
        made.write(np.arange(24 * 32, dtype="uint8").reshape(1, 24, 32))
        made.update_tags(AREA_OR_POINT=registration)
    rasterio.shutil.copy(
        tiff, path, driver="JP2OpenJPEG", QUALITY="100", REVERSIBLE="YES", **options
    )
    path.with_name("a.jp2.aux.xml").unlink(missing_ok=True)
    if kind.startswith("GML"):
        # GDAL 3.12 writes rows of the matrix as offset vectors, which it reads as columns
        a, b, c, d, e, f = tuple(transform)[:6]
        transform = Affine(a, d, c, b, e, f)
    if registration == "Area" or not (transform.b or transform.d) or kind.startswith("GML"):
        # GDAL 3.12 does not undo the half pixel of GeoJP2's ModelTransformation
        assert georeference(path) == (pytest.approx(tuple(transform)[:6], rel=1e-12), code)
    found = anychunk.open(path)["0"].attrs
    assert found["proj:code"] == f"EPSG:{code}"
    assert found["spatial:transform"] == pytest.approx(tuple(transform)[:6], rel=1e-12)


@needs_corpus
@needs_jp2_driver
@pytest.mark.parametrize(
    "sample", [s for s in samples("jpeg2000/") if s.file.suffix == ".jp2"], ids=lambda s: s.path
)
def test_corpus(sample):
    try:
        transform, code = georeference(sample.file)
    except rasterio.errors.RasterioError:
        pytest.skip("rasterio does not open it")
    try:
        found = anychunk.open(sample.file)["0"].attrs
    except anychunk.AnychunkError:
        pytest.skip("refused; see test_jpeg2000.py")
    if "spatial:transform" in found:
        assert found["spatial:transform"] == pytest.approx(transform, rel=1e-9)
    else:
        assert transform == (1, 0, 0, 0, 1, 0)
    assert found.get("proj:code") == (f"EPSG:{code}" if code else None)


def summary(place):
    """Return transform and code of the CRS."""
    return place.transform, place.crs.code if place.crs else None


def degenerate_geotiff(*entries: tuple[int, str, tuple[float, ...]]) -> bytes:
    """Return a little-endian TIFF of one directory with doubles ("d") and shorts ("H")."""
    kinds = {"d": 12, "H": 3}
    at = 8 + 2 + 12 * len(entries) + 4
    head, body = b"", b""
    for tag, kind, values in entries:
        data = struct.pack(f"<{len(values)}{kind}", *values)
        inline = len(data) <= 4
        place = data.ljust(4, b"\0") if inline else struct.pack("<I", at + len(body))
        head += struct.pack("<HHI", tag, kinds[kind], len(values)) + place
        body += b"" if inline else data
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + head + bytes(4) + body


SCALE = (33550, "d", (10.0, 10.0, 0.0))
TIE = (33922, "d", (0.0, 0.0, 0.0, 100.0, 200.0, 0.0))
AREA = (34735, "H", (1, 1, 0, 2, 1025, 0, 1, 1, 3072, 0, 1, 32631))
POINT = (34735, "H", (1, 1, 0, 2, 1025, 0, 1, 2, 3072, 0, 1, 32631))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((SCALE, TIE, AREA), ((10, 0, 100, 0, -10, 200), "EPSG:32631")),
        ((SCALE, TIE, POINT), ((10, 0, 95, 0, -10, 205), "EPSG:32631")),
        ((SCALE, AREA), (None, "EPSG:32631")),  # no tie point
        ((SCALE, TIE), (None, None)),  # no GeoKeys
    ],
)
def test_degenerate_geotiff(entries, expected):
    ordered = sorted(entries, key=lambda entry: entry[0])
    assert summary(read_geojp2(degenerate_geotiff(*ordered))) == expected


@pytest.mark.parametrize("data", [b"", b"II*\0", b"no TIFF at all", b"II*\0\xff\xff\xff\x7f"])
def test_damaged_geotiff(data):
    with pytest.raises(FormatError, match=rf"\b{len(data)} bytes"):
        read_geojp2(data)


@needs_openjpeg
def test_damaged_geotiff_leaves_the_pixels(tmp_path):
    data = jp2(compress(list(RGB)), box(b"uuid", UUID + b"no TIFF at all"))
    group = opened(tmp_path / "a.jp2", data)
    assert "14 bytes" in group["0"].attrs["j2k"]["warning"]
    assert "spatial:transform" not in group["0"].attrs
    np.testing.assert_array_equal(group["0/0/image"][...], RGB)


ROTATED = """<gml:RectifiedGrid dimension="2">{names}<gml:origin><gml:Point srsName="{crs}">
<gml:pos>{origin}</gml:pos></gml:Point></gml:origin>
<gml:offsetVector>{column}</gml:offsetVector><gml:offsetVector>{row}</gml:offsetVector></gml:RectifiedGrid>"""
EASTING = "<gml:axisName>Easting</gml:axisName><gml:axisName>Northing</gml:axisName>"


@needs_openjpeg
@needs_jp2_driver
@pytest.mark.parametrize(
    ("crs", "names", "is_turned"),
    [
        ("urn:ogc:def:crs:EPSG::4326", "", True),
        ("http://www.opengis.net/def/crs/EPSG/0/4326", "", True),
        ("urn:ogc:def:crs:EPSG::2326", "", True),
        ("urn:ogc:def:crs:EPSG::2326", EASTING, False),
        ("urn:ogc:def:crs:EPSG::32631", "", False),
        ("urn:ogc:def:crs:EPSG::27700", "", False),
    ],
)
def test_order_of_axes(tmp_path, crs, names, is_turned):
    """A rotated grid: only the name of the CRS tells which number is the northing."""
    if crs.endswith(("::2326", "::27700")):
        pytest.importorskip("pyproj", reason=NEEDS_PYPROJ)
    text = ROTATED.format(crs=crs, names=names, origin="39.5 12.5", column="0.5 3", row="-4 0.25")
    root = f"<gml:FeatureCollection xmlns:gml='http://www.opengis.net/gml'>{text}</gml:FeatureCollection>"
    label = box(b"lbl ", b"gml.root-instance")
    inside = box(b"asoc", label + box(b"xml ", root.encode()))
    outside = box(b"asoc", box(b"lbl ", b"gml.data") + inside)
    group = opened(tmp_path / "a.jp2", jp2(compress(list(RGB)), outside))
    found = group["0"].attrs
    expected, code = georeference(tmp_path / "a.jp2")
    assert found["proj:code"] == f"EPSG:{code}"
    assert found["spatial:transform"] == pytest.approx(expected, rel=1e-12)
    assert found["spatial:transform"][0] == (3 if is_turned else 0.5)


def test_order_of_axes_that_is_not_known(monkeypatch):
    """Without pyproj: a common CRS is known, an unrotated grid shows it, any other is left out."""
    monkeypatch.setattr("anychunk.metadata.crs.known_crs", lambda crs: None)
    fields = {"names": "", "origin": "39.5 12.5", "column": "0.5 3", "row": "-4 0.25"}
    rotated = read_gml(ROTATED.format(crs="urn:ogc:def:crs:EPSG::2326", **fields))
    assert summary(rotated) == (None, "EPSG:2326")
    known = read_gml(ROTATED.format(crs="urn:ogc:def:crs:EPSG::4326", **fields))
    assert known.transform[:2] == (3, 0.25)
    plain = {**fields, "column": "0 3", "row": "-4 0"}
    shown = read_gml(ROTATED.format(crs="urn:ogc:def:crs:EPSG::2326", **plain))
    assert shown.transform[:2] == (3, 0)


def test_opening_does_not_import_pyproj(tmp_path):
    """It takes longer to import than a file to open."""
    if not has_driver("JP2OpenJPEG"):
        pytest.skip("rasterio has no JP2OpenJPEG driver")
    path = tmp_path / "a.jp2"
    transform = Affine(0.01, 0, 3.5, 0, -0.02, 42.25)
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "height": 24, "width": 32}
    with rasterio.open(tmp_path / "a.tif", "w", crs="EPSG:4326", transform=transform, **profile):
        pass
    rasterio.shutil.copy(tmp_path / "a.tif", path, driver="JP2OpenJPEG")
    code = "import sys, anychunk; anychunk.open(sys.argv[1]); assert 'pyproj' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=PATIENCE_S)


GRID = "<RectifiedGrid>{}</RectifiedGrid>"
VECTORS = "<offsetVector>60 0</offsetVector><offsetVector>0 -60</offsetVector>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (None, None)),
        ("<Grid srsName='urn:ogc:def:crs:EPSG::4326'/>", (None, None)),  # not rectified
        (GRID.format(VECTORS), (None, None)),  # no origin
        (GRID.format("<pos>1 2</pos>"), (None, None)),  # no vectors
        (GRID.format("<pos>1 x</pos>" + VECTORS), (None, None)),
        (GRID.format("<pos>1 2</pos>" + VECTORS.replace("-60", "0")), (None, None)),  # singular
        (GRID.format("<pos>30 -30</pos>" + VECTORS), ((60, 0, 0, 0, -60, 0), None)),
        (
            GRID.format("<pos srsName='urn:ogc:def:crs:EPSG:6.6:32631'>30,-30</pos>" + VECTORS),
            ((60, 0, 0, 0, -60, 0), "EPSG:32631"),
        ),
        (
            GRID.format("<pos srsName='EPSG:32631'>1</pos>" + VECTORS),
            (None, "EPSG:32631"),
        ),
    ],
)
def test_gml_documents(text, expected):
    assert summary(read_gml(text)) == expected
