"""Where a JPEG 2000 image lies: the GeoTIFF inside GeoJP2's UUID box, or GMLJP2's grid."""

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

type Place = tuple[Transform | None, str | None]

MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT = 34264, 33550, 33922, 34735, 34736, 34737


def read_geojp2(data: bytes) -> Place:
    """Read the transform and the EPSG code of a degenerate GeoTIFF."""
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
    from tifffile import TiffFile  # slow to import, and few files have a GeoTIFF inside

    try:
        with TiffFile(BytesIO(data)) as tiff:
            tags = tiff.pages.first.tags
            found = {
                code: tags.valueof(code) for code in (MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT)
            }
    except Exception as e:
        raise FormatError(f"GeoJP2 box: its GeoTIFF is not readable ({e})") from e
    return {code: _plain(value) for code, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """One number stands alone in tifffile, several in a tuple or bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str | tuple) else (value,)


def read_gml(text: str) -> Place:
    """Read the first rectified grid of a GML document; its origin is a pixel's centre."""
    code = re.search(r"srsName\s*=\s*[\"'][^\"']*EPSG:[^\"':]*:?(\d+)[\"']", text)
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
        # the reference system names north before east, and so does everything here
        x, y, a, d, b, e = y, x, d, a, e, b
    if a * e == b * d:
        return None, epsg
    return (a, b, x - (a + b) / 2, d, e, y - (d + e) / 2), epsg
