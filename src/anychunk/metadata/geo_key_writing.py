"""GeoTIFF tags of a place: the GeoKeys of a CRS, and the tags of its transform or its points.

Spec: OGC GeoTIFF 1.1 (19-008r4) sections 7 and 8. A CRS with an EPSG code needs no library. Any
      other one is described by keys of its datum and its projection, with pyproj. The mirror image
      of `geo_keys`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anychunk.metadata import geo_keys as gk
from anychunk.metadata.crs import crs_from_geokeys, is_geographic, known_crs
from anychunk.metadata.meaning import Crs, Place, Transform

VERSION = (1, 1, 1)
"""GeoTIFF 1.1: version of the directory, and revision of the keys."""
PIXEL_IS_AREA = 1
DEGREE, METRE = 9102, 9001


@dataclass(frozen=True)
class GeoTags:
    """The values of the GeoTIFF tags; empty ones are not written."""

    directory: tuple[int, ...] = ()
    doubles: tuple[float, ...] = ()
    text: str = ""
    pixel_scale: tuple[float, ...] = ()
    tiepoints: tuple[float, ...] = ()
    matrix: tuple[float, ...] = ()
    loss: str | None = None
    """What of the place is not written."""


def geo_tags(place: Place, *, is_point: bool, vertical: Mapping[int, int] | None = None) -> GeoTags:
    """Return the tags of a place.

    Parameters:
        place: where an image lies.
        is_point: whether pixels stand for points in their centres (AREA_OR_POINT=Point).
        vertical: keys of the CRS of heights, which go with those of a CRS.
    """
    loss = None
    keys: dict[int, int | float | str] = {}
    if place.crs is not None:
        keys, loss = crs_keys(place.crs)
        keys |= (vertical or {}) if keys else {}
    scale, tiepoints, matrix = affine_tags(place.transform, is_point=is_point)
    if place.transform is None and place.gcps:
        # GeoTIFF 1.1 annex B.6: (column, row, 0, x, y, z); those of points are half a pixel off
        shift = 0.5 if is_point else 0.0
        tiepoints = tuple(
            value
            for column, row, x, y, z in place.gcps
            for value in (column - shift, row - shift, 0.0, x, y, z)
        )
    if place.transform is None and not place.gcps and place.bbox is not None and loss is None:
        loss = "the bounding box, because no transform is known"
    # GDAL takes keys without a CRS for a local one; pixels are areas where nothing is stated
    if keys or ((tiepoints or matrix) and is_point):
        raster = gk.PIXEL_IS_POINT if is_point else PIXEL_IS_AREA
        keys = {gk.RASTER_TYPE: raster, **keys}
    directory, doubles, text = packed_keys(keys)
    return GeoTags(directory, doubles, text, scale, tiepoints, matrix, loss)


def affine_tags(
    transform: Transform | None, *, is_point: bool
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return ModelPixelScale and ModelTiepoint of a transform, or ModelTransformation."""
    if transform is None:
        return (), (), ()
    a, b, c, d, e, f = transform
    if is_point:  # the tiepoint is then the centre of the first pixel
        c, f = c + (a + b) / 2, f + (d + e) / 2
    if b == d == 0 and a > 0 > e:
        return (a, -e, 0.0), (0.0, 0.0, 0.0, c, f, 0.0), ()
    return (), (), (a, b, 0.0, c, d, e, 0.0, f, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def crs_keys(crs: Crs) -> tuple[dict[int, int | float | str], str | None]:
    """Return the keys of a CRS, and what is lost of it."""
    keys = _keys_of(crs)
    found = crs_from_geokeys(keys) if keys else None
    if found is not None and (crs.code is None or found.code != crs.code):
        before, after = known_crs(crs), known_crs(found)
        if before is None or after is None or not before.equals(after, ignore_axis_order=True):
            found = None
    if found is None:
        name = crs.code or (crs.wkt or "")[:60]
        return {}, f"the CRS {name}, which GeoKeys cannot describe"
    return keys, None


def _keys_of(crs: Crs) -> dict[int, int | float | str]:
    code = crs.code.removeprefix("EPSG:") if crs.code is not None else ""
    if crs.code is not None and crs.code.startswith("EPSG:") and code.isdecimal():
        number = int(code)
    else:
        known = known_crs(crs)
        number = (known.to_epsg(min_confidence=100) or 0) if known is not None else 0
    if 0 < number < gk.USER_DEFINED:
        return _code_keys(number, crs)
    return _described_keys(known_crs(crs))


def _code_keys(number: int, crs: Crs) -> dict[int, int | float | str]:
    in_degrees = is_geographic(crs)
    if in_degrees is None:
        in_degrees = 4000 <= number < 5000  # EPSG's range of geodetic systems
    if in_degrees:
        return {
            gk.MODEL_TYPE: gk.GEOGRAPHIC,
            gk.GEODETIC_CRS: number,
            gk.ANGULAR_UNITS: DEGREE,
        }
    known = known_crs(crs)
    if known is not None and known.is_geocentric:
        return {gk.MODEL_TYPE: gk.GEOCENTRIC, gk.GEODETIC_CRS: number}
    return {gk.MODEL_TYPE: gk.PROJECTED, gk.PROJECTED_CRS: number}


def _described_keys(known: Any) -> dict[int, int | float | str]:
    """Return the keys of a CRS without a code, a `pyproj.CRS`; none if there are none for it."""
    if known is None:
        return {}
    if known.is_projected:
        base = known.geodetic_crs
        code = base.to_epsg(min_confidence=70)
        geodetic = {gk.GEODETIC_CRS: code} if code else _geodetic_keys(base)
        projection = _projection_keys(known.to_json_dict())
        if not geodetic or not projection:
            return {}
        return {
            **geodetic,
            gk.MODEL_TYPE: gk.PROJECTED,
            gk.ANGULAR_UNITS: DEGREE,
            gk.CITATION: _plain(known.name),
            gk.PROJECTED_CRS: gk.USER_DEFINED,
            gk.PROJECTION: gk.USER_DEFINED,
            **projection,
        }
    keys = _geodetic_keys(known) if known.is_geographic else {}
    return {gk.MODEL_TYPE: gk.GEOGRAPHIC, **keys} if keys else {}


def _projection_keys(document: Mapping[str, Any]) -> dict[int, int | float | str]:
    """Return the keys of the method, its parameters and the unit; none if there are none for it.

    Parameters:
        document: the CRS as PROJJSON.
    """
    conversion = document.get("conversion", {})
    name = conversion.get("method", {}).get("name")
    values = {p["name"]: (p["value"], p.get("unit")) for p in conversion.get("parameters", [])}
    unit = document["coordinate_system"]["axis"][0].get("unit")
    size = unit.get("conversion_factor") if isinstance(unit, Mapping) else 1.0
    units = [code for code, (_, metres) in gk.LENGTHS.items() if metres == size]
    known = [(code, *method) for code, method in gk.METHODS.items() if method[0] == name]
    if not known or not units:
        return {}
    code, _, parameters = known[0]
    keys: dict[int, int | float | str] = {gk.METHOD: code, gk.LINEAR_UNITS: units[0]}
    expected = {"angle": "degree", "length": unit, "scale": "unity"}
    for title, codes, kind in parameters:
        value, own = values.pop(title, (None, None))
        if value is None or own != expected[kind]:
            return {}
        keys[codes[0]] = float(value)
    return keys if not values else {}


def _geodetic_keys(known: Any) -> dict[int, int | float | str]:
    """Return the keys of a geographic CRS by its datum and ellipsoid."""
    ellipsoid = known.ellipsoid
    if ellipsoid is None:
        return {}
    parts = {
        "GCS Name": known.name,
        "Datum": known.datum.name if known.datum is not None else "unknown",
        "Ellipsoid": ellipsoid.name,
        "Primem": known.prime_meridian.name,
    }
    citation = "|".join(f"{key} = {_plain(value)}" for key, value in parts.items())
    return {
        gk.GEODETIC_CRS: gk.USER_DEFINED,
        gk.GEODETIC_CITATION: f"{citation}|",
        gk.DATUM: gk.USER_DEFINED,
        gk.ANGULAR_UNITS: DEGREE,
        gk.ELLIPSOID: gk.USER_DEFINED,
        gk.SEMI_MAJOR: ellipsoid.semi_major_metre,
        gk.INVERSE_FLATTENING: ellipsoid.inverse_flattening,
        gk.PRIME_MERIDIAN_LONGITUDE: known.prime_meridian.longitude,
    }


def _plain(text: str) -> str:
    """Return a text without what separates texts in GeoAsciiParams."""
    return text.replace("|", " ").encode("ascii", "replace").decode()


def packed_keys(
    keys: Mapping[int, int | float | str],
) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    """Return GeoKeyDirectory, GeoDoubleParams and GeoAsciiParams (section 7.1.2)."""
    if not keys:
        return (), (), ""
    entries: list[int] = []
    doubles: list[float] = []
    text = ""
    for key in sorted(keys):
        value = keys[key]
        if isinstance(value, int):
            entries += [key, 0, 1, value]
        elif isinstance(value, float):
            entries += [key, gk.DOUBLE_PARAMS, 1, len(doubles)]
            doubles.append(value)
        else:
            entries += [key, gk.ASCII_PARAMS, len(value) + 1, len(text)]
            text += f"{value}|"
    return (*VERSION, len(keys), *entries), tuple(doubles), text
