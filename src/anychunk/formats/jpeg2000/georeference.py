"""The georeference of a JPEG 2000 file: the GeoTIFF in a GeoJP2 box, or the grid of GMLJP2.

Spec: GeoJP2 (a degenerate GeoTIFF in a uuid box); OGC 05-047r3 (GMLJP2 1.0), OGC 08-085 (2.0).
"""

import re
from io import BytesIO
from typing import Any

from anychunk.errors import FormatError
from anychunk.metadata import crs as crs_text
from anychunk.metadata.geo import geotiff_transform
from anychunk.metadata.geo_keys import PIXEL_IS_POINT, RASTER_TYPE, geo_keys
from anychunk.metadata.meaning import Crs, Place

SRS_NAME = re.compile(
    r"srsName\s*=\s*[\"'](?P<form>[^\"']*?)\bEPSG(?:\.xml)?[:/#](?:[^\"':/#]*[:/])?(?P<code>\d+)[\"']",
    re.IGNORECASE,
)
"""EPSG:code, urn:ogc:def:crs:EPSG:version:code, http://www.opengis.net/def/crs/EPSG/0/code or
http://www.opengis.net/gml/srs/epsg.xml#code."""
OWN_ORDER = re.compile(r"urn:|https?://www\.opengis\.net/def/crs/", re.IGNORECASE)
"""Forms of names that ask for the order of axes that the CRS defines; others have x before y."""
EAST_FIRST = re.compile(r"EPSG:(32[67]\d\d|3857|269\d\d|267\d\d)")
NORTH_FIRST = re.compile(r"EPSG:(4326|4258|4269|4267|4230|4277|4283)")
"""Common CRS whose order of axes is known without a library: UTM, and longitude and latitude."""
ALTERNATE = "GDAL_JP2K_ALT_OFFSETVECTOR_ORDER=TRUE"
"""GDAL writes it into a comment where offset vectors have x and y in the opposite order."""
MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT = 34264, 33550, 33922, 34735, 34736, 34737


def read_geojp2(data: bytes) -> Place:
    """Return the georeference of a degenerate GeoTIFF: one without pixels.

    Raises:
        FormatError: it is not a TIFF file.
    """
    tags = _tags(data)
    directory = tags.get(KEYS) or ()
    if len(directory) < 4:
        return Place()
    text = tags.get(TEXT) or ""
    keys = geo_keys(directory, tags.get(DOUBLES) or (), text if isinstance(text, str) else "")
    transform = geotiff_transform(
        scale=tags.get(SCALE),
        tiepoints=tags.get(TIEPOINTS),
        matrix=tags.get(MATRIX),
        is_point=keys.get(RASTER_TYPE) == PIXEL_IS_POINT,
    )
    return Place(transform=transform, crs=crs_text.crs_from_geokeys(keys))


def _tags(data: bytes) -> dict[int, Any]:
    from tifffile import TiffFile  # slow to import, and few files contain a GeoTIFF

    try:
        with TiffFile(BytesIO(data)) as tiff:
            tags = tiff.pages.first.tags
            found = {
                code: tags.valueof(code) for code in (MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT)
            }
    except Exception as e:
        raise FormatError(
            f"GeoJP2 box of {len(data)} bytes: tifffile cannot read its GeoTIFF ({e})"
        ) from e
    return {code: _plain(value) for code, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return a tag's value as text or tuple; tifffile does not wrap a single number."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str | tuple) else (value,)


def read_gml(text: str) -> Place:
    """Return the georeference of the first rectified grid of a GML document.

    Parsed with regular expressions instead of an XML parser: real documents often have wrong
    namespaces, and nothing else is needed from them. The origin of the grid is the centre of the
    first pixel.
    """
    named = SRS_NAME.search(text)
    crs = Crs(code=f"EPSG:{named['code']}") if named else None
    grid = re.search(r"<(?:\w+:)?RectifiedGrid\b.*?</(?:\w+:)?RectifiedGrid>", text, re.DOTALL)
    if grid is None:
        return Place()
    origin = re.search(r"<(?:\w+:)?pos\b[^>]*>([^<]*)<", grid[0])
    vectors = re.findall(r"<(?:\w+:)?offsetVector\b[^>]*>([^<]*)<", grid[0])
    try:
        (x, y), (a, d), (b, e) = (
            [float(n) for n in re.split(r"[\s,]+", numbers.strip())[:2]]
            for numbers in ([origin[1], *vectors] if origin else [])
        )
    except ValueError:
        return Place(crs=crs)
    is_turned: bool | None = False
    if named and crs and OWN_ORDER.match(named["form"]) and not _states_easting(grid[0]):
        is_turned = is_north_first(crs, is_swapped=a == 0 == e, is_plain=b == 0 == d)
    if is_turned is None:
        return Place(crs=crs)  # a rotated grid, and an order of axes that is not known
    if is_turned:
        x, y = y, x
        a, d, b, e = (e, b, d, a) if ALTERNATE in text else (d, a, e, b)
    if not all(abs(n) < 1e300 for n in (x, y, a, b, d, e)) or a * e == b * d:
        return Place(crs=crs)
    return Place(crs=crs, transform=(a, b, x - (a + b) / 2, d, e, y - (d + e) / 2))


def _states_easting(grid: str) -> bool:
    """Return whether a grid names its axes as easting and northing, whatever its CRS defines."""
    names = re.findall(r"<(?:\w+:)?axisName\b[^>]*>\s*([^<]*?)\s*<", grid)
    return [name.lower() for name in names[:2]] == ["easting", "northing"]


def is_north_first(crs: Crs, *, is_swapped: bool, is_plain: bool) -> bool | None:
    """Return whether latitude or northing comes first in coordinates of a CRS.

    None if that is not known: the code is not a common one, the grid is rotated, so that its
    vectors do not show it, and pyproj is not installed.

    Parameters:
        crs: the CRS.
        is_swapped: whether rows and columns of the grid are parallel to axes, if northing is first.
        is_plain: whether they are if easting is first.
    """
    code = crs.code or ""
    if EAST_FIRST.fullmatch(code):
        return False
    if NORTH_FIRST.fullmatch(code):
        return True
    if is_swapped or is_plain:
        return is_swapped
    known = crs_text.known_crs(crs)
    if known is None or len(known.axis_info) < 2:
        return None
    first, second = known.axis_info[:2]
    if (first.direction.lower(), second.direction.lower()) == ("north", "east"):
        return True
    # at the poles both axes point north or south
    names = str(first.name).lower(), str(second.name).lower()
    return names[0].startswith("northing") and names[1].startswith("easting")
