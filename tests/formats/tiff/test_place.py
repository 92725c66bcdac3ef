"""Where made GeoTIFF files lie, compared with GDAL, tag by tag and key by key."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import rasterio
import rasterio.crs
import tifffile

import anychunk
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
SCALE, TIE = (33550, (10.0, 10.0, 0.0)), (33922, (0.0, 0.0, 0.0, 1.0, 2.0, 0.0))
TWO_TIES = (33922, (*TIE[1], 5.0, 5.0, 0.0, 3.0, 4.0, 0.0))
MATRIX = (34264, (1.0, 2.0, 0.0, 30.0, 4.0, 5.0, 0.0, 60.0, *(0.0,) * 7, 1.0))
AREA, POINT = 1, 2
TAGS = {
    "scale and tie point": [SCALE, TIE],
    "scale, tie point and matrix": [SCALE, TIE, MATRIX],
    "scale and two tie points": [SCALE, TWO_TIES],
    "negative scale of y": [(33550, (10.0, -10.0, 0.0)), TIE],
    "negative scale of x": [(33550, (-10.0, 10.0, 0.0)), TIE],
    "scale of zero": [(33550, (0.0, 10.0, 0.0)), TIE],
    "matrix": [MATRIX],
    "matrix and tie points": [MATRIX, TWO_TIES],
    "half a matrix": [(34264, MATRIX[1][:8])],
    "a tie point": [TIE],
    "tie points": [TWO_TIES],
    "nothing": [],
}


def directory(*keys):
    """Return GeoKeyDirectory, GeoDoubleParams and GeoAsciiParams as extra tags."""
    entries, doubles, text = [], [], ""
    for key, value in sorted(keys):
        if isinstance(value, int):
            entries += [key, 0, 1, value]
        elif isinstance(value, float):
            entries += [key, 34736, 1, len(doubles)]
            doubles.append(value)
        else:
            entries += [key, 34737, len(value) + 1, len(text)]
            text += f"{value}|"
    tags = [(34735, 3, 4 + len(entries), (1, 1, 0, len(keys), *entries), True)]
    if doubles:
        tags.append((34736, 12, len(doubles), tuple(doubles), True))
    if text:
        tags.append((34737, 2, len(text) + 1, text, True))
    return tags


def written(path, tags, keys):
    extra = [(code, 12, len(values), values, True) for code, values in tags]
    tifffile.imwrite(
        path, np.zeros((4, 5), "uint8"), extratags=[*extra, *directory(*keys)], metadata=None
    )
    return path


def place(path):
    index = anychunk.index(path)
    return meaning_of(index, next(images(index))).place


@pytest.mark.parametrize("kind", [AREA, POINT], ids=["area", "point"])
@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_transform_and_tie_points(tmp_path, tags, kind):
    path = written(tmp_path / "a.tif", tags, [(1024, 1), (1025, kind), (3072, 32631)])
    found = place(path)
    with rasterio.open(path) as dataset:
        assert (found.transform or (1, 0, 0, 0, 1, 0)) == tuple(dataset.transform)[:6]
        assert found.gcps == tuple((p.col, p.row, p.x, p.y, p.z) for p in dataset.gcps[0])
        assert found.crs.code == "EPSG:32631"
        assert (dataset.crs or dataset.gcps[1]).to_epsg() == 32631


USER, PROJECTED, GEOGRAPHIC = 32767, (1024, 1), (1024, 2)
WGS84 = (2048, 4326)
ON_WGS84 = [PROJECTED, WGS84, (3072, USER), (3074, USER)]
FEET, METRES = (3076, 9003), (3076, 9001)
CENTRE = [(3088, 10.0), (3089, 52.0), (3082, 1000.0), (3083, 2000.0)]
NATURAL = [(3080, 10.0), (3081, 52.0), (3082, 1000.0), (3083, 2000.0)]
PARALLELS = [(3078, 33.0), (3079, 45.0), (3084, -96.0), (3085, 23.0), (3086, 1e6), (3087, 0.0)]
LCC = (
    'PROJCS["mine",GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",SPHEROID["WGS_1984",6378137.0,'
    '298.257223563]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],'
    'PROJECTION["Lambert_Conformal_Conic"],PARAMETER["False_Easting",0.0],'
    'PARAMETER["False_Northing",0.0],PARAMETER["Central_Meridian",-96.0],'
    'PARAMETER["Standard_Parallel_1",33.0],PARAMETER["Standard_Parallel_2",45.0],'
    'PARAMETER["Latitude_Of_Origin",39.0],UNIT["Meter",1.0]]'
)
KEYS = {
    "geographic": [GEOGRAPHIC, WGS84],
    "arc-seconds": [GEOGRAPHIC, WGS84, (2054, 9104)],
    "ensemble of datums": [GEOGRAPHIC, (2048, USER), (2050, 6326), (2054, 9102)],
    "ellipsoid by code": [GEOGRAPHIC, (2048, USER), (2050, USER), (2054, 9102), (2056, 7030)],
    "ellipsoid by axes": [
        GEOGRAPHIC, (2048, USER), (2050, USER), (2054, 9102), (2056, USER), (2057, 6378000.0),
        (2059, 298.0),
    ],
    "sphere": [
        GEOGRAPHIC, (2048, USER), (2050, USER), (2054, 9102), (2056, USER), (2057, 6370000.0),
        (2058, 6370000.0),
    ],
    "names in the citation": [
        GEOGRAPHIC, (2048, USER), (2049, "GCS Name = X|Datum = Y|Ellipsoid = Z|Primem = Greenwich"),
        (2050, USER), (2054, 9102), (2056, USER), (2057, 6378000.0), (2059, 298.0), (2061, 0.0),
    ],
    "transverse Mercator": [*ON_WGS84, (3075, 1), METRES, *NATURAL, (3092, 0.9996)],
    "false easting in feet": [*ON_WGS84, (3075, 1), FEET, *NATURAL, (3092, 0.9996)],
    "unit of one's own": [
        *ON_WGS84, (3075, 1), (3076, USER), (3077, 0.5), *NATURAL, (3092, 0.9996),
    ],
    "projection by code": [PROJECTED, (2048, 4258), (3072, USER), (3074, 16031), METRES],
    "Lambert conic, two parallels": [*ON_WGS84, (3075, 8), METRES, *PARALLELS],
    "Lambert conic, one parallel": [*ON_WGS84, (3075, 9), METRES, *NATURAL, (3092, 0.999)],
    "Albers": [*ON_WGS84, (3075, 11), METRES, *PARALLELS],
    "Lambert azimuthal": [*ON_WGS84, (3075, 10), METRES, *CENTRE],
    "azimuthal equidistant": [*ON_WGS84, (3075, 12), METRES, *CENTRE],
    "Mercator": [*ON_WGS84, (3075, 7), METRES, (3080, 10.0), (3081, 0.0), (3082, 0.0), (3083, 0.0),
                 (3092, 0.99)],
    "oblique stereographic": [*ON_WGS84, (3075, 16), METRES, *NATURAL, (3092, 0.9999)],
    "equidistant cylindrical": [*ON_WGS84, (3075, 17), METRES, *CENTRE, (3078, 30.0)],
    "orthographic": [*ON_WGS84, (3075, 21), METRES, *CENTRE],
    "sinusoidal": [*ON_WGS84, (3075, 24), METRES, (3088, 10.0), (3082, 0.0), (3083, 0.0)],
    "cylindrical equal area": [*ON_WGS84, (3075, 28), METRES, (3078, 30.0), (3080, 10.0),
                               (3082, 0.0), (3083, 0.0)],
    "polyconic": [*ON_WGS84, (3075, 22), METRES, *NATURAL],
    "ESRI's WKT beats the keys": [
        (1024, USER), (2048, USER), (2049, "GCS Name = GCS_WGS_1984|Datum = D_WGS_1984"),
        (2050, USER), (2054, 9102), (2056, USER), (2057, 6378137.0), (2059, 298.257223563),
        (3073, f"ESRI PE String = {LCC}"), METRES,
    ],
    "local system": [(1024, 0), (1025, 1), (3076, 9001)],
}  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("pyproj") is None, reason="pip install pyproj")
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_crs_of_keys(tmp_path, keys):
    path = written(tmp_path / "a.tif", [SCALE, TIE], keys)
    found = place(path).crs
    with rasterio.open(path) as dataset:
        theirs = dataset.crs
    if "LOCAL_CS" in (theirs.to_wkt() if theirs else "LOCAL_CS"):
        assert found is None
    else:
        assert rasterio.crs.CRS.from_user_input(found.code or found.wkt) == theirs


@pytest.mark.parametrize("name", ["transverse Mercator", "ESRI's WKT beats the keys"])
def test_without_pyproj_keys_stay_and_no_crs_is_guessed(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pyproj", None)
    path = written(tmp_path / "a.tif", [SCALE, TIE], KEYS[name])
    assert place(path).crs is None
    assert place(path).transform == (10, 0, 1, 0, -10, 2)
    keys = anychunk.index(path)["0"].attributes["tiff"]["geo_keys"]
    assert keys["GTModelTypeGeoKey"] == dict(KEYS[name])[1024]
    assert place(written(tmp_path / "b.tif", [SCALE, TIE], [PROJECTED, (3072, 32631)])).crs


@pytest.mark.processes
def test_codes_do_not_import_pyproj(tmp_path):

    path = written(tmp_path / "a.tif", [SCALE, TIE], [PROJECTED, (3072, 32631)])
    code = "import sys, anychunk; anychunk.index(sys.argv[1]); sys.exit('pyproj' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 0


def test_rational_polynomials(tmp_path):
    values = tuple(float(n) for n in range(1, 93))
    path = written(tmp_path / "a.tif", [(50844, values)], [])
    found = place(path).rpc
    with rasterio.open(path) as dataset:
        theirs = dataset.rpcs.to_dict()
    assert found == {name: value for name, value in theirs.items() if value is not None}
    assert found["line_num_coeff"] == [float(n) for n in range(13, 33)]
