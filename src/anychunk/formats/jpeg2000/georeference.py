"""The georeference of a JPEG 2000 file: the GeoTIFF in a GeoJP2 box, or the grid of GMLJP2.

Spec: GeoJP2 (a degenerate GeoTIFF in a uuid box); OGC 05-047r3 (GMLJP2 1.0), OGC 08-085 (2.0).
"""

import re
from io import BytesIO
from typing import Any

from anychunk.errors import FormatError
from anychunk.metadata.geo import (
    PIXEL_IS_POINT,
    RASTER_TYPE,
    Transform,
    geo_keys,
    geotiff_code,
    geotiff_transform,
)

type Georeference = tuple[Transform | None, str | None]
"""Transform and code of the CRS, if known."""

SRS_NAME = re.compile(r"srsName\s*=\s*[\"'](?:[^\"']*[:/])?EPSG[:/](?:[^\"':/]*[:/])?(\d+)[\"']")
"""EPSG:code, urn:ogc:def:crs:EPSG:version:code or http://www.opengis.net/def/crs/EPSG/0/code."""
MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT = 34264, 33550, 33922, 34735, 34736, 34737


def read_geojp2(data: bytes) -> Georeference:
    """Return the georeference of a degenerate GeoTIFF: one without pixels.

    Raises:
        FormatError: it is not a TIFF file.
    """
    tags = _tags(data)
    directory = tags.get(KEYS) or ()
    if len(directory) < 4:
        return None, None
    text = tags.get(TEXT) or ""
    keys = geo_keys(directory, tags.get(DOUBLES) or (), text if isinstance(text, str) else "")
    transform = geotiff_transform(
        scale=tags.get(SCALE),
        tiepoints=tags.get(TIEPOINTS),
        matrix=tags.get(MATRIX),
        is_point=keys.get(RASTER_TYPE) == PIXEL_IS_POINT,
    )
    return transform, geotiff_code(keys)


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


def read_gml(text: str) -> Georeference:
    """Return the georeference of the first rectified grid of a GML document.

    Parsed with regular expressions instead of an XML parser: real documents often have wrong
    namespaces, and nothing else is needed from them. The origin of the grid is the centre of the
    first pixel.
    """
    code = SRS_NAME.search(text)
    epsg = f"EPSG:{code[1]}" if code else None
    grid = re.search(r"<(?:\w+:)?RectifiedGrid\b.*?</(?:\w+:)?RectifiedGrid>", text, re.DOTALL)
    if grid is None:
        return None, None
    origin = re.search(r"<(?:\w+:)?pos\b[^>]*>([^<]*)<", grid[0])
    vectors = re.findall(r"<(?:\w+:)?offsetVector\b[^>]*>([^<]*)<", grid[0])
    try:
        (x, y), (a, d), (b, e) = (
            [float(n) for n in re.split(r"[\s,]+", numbers.strip())[:2]]
            for numbers in ([origin[1], *vectors] if origin else [])
        )
    except ValueError:
        return None, epsg
    if a == 0 == e and b and d:
        # the CRS has northing before easting, and so do origin and offset vectors
        x, y, a, d, b, e = y, x, d, a, e, b
    if a * e == b * d:
        return None, epsg
    return (a, b, x - (a + b) / 2, d, e, y - (d + e) / 2), epsg
