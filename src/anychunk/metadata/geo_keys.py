"""GeoKeys: the values of the key directory, and the CRS that user-defined keys describe.

Spec: OGC GeoTIFF 1.1 (19-008r4), section 7 and annexes B and C. Where many files differ from it,
      their keys mean what GDAL and libgeotiff take them for.

Parsers call `metadata.crs.crs_from_geokeys`, which needs this module's PROJJSON, and pyproj, only
where keys do not name an EPSG code.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anychunk.model.index import Json

type Value = int | float | str | list[float]
type Keys = Mapping[int, Any]
"""Values of GeoKeys by number. Files are untrusted: a value may have any of the types."""

DOUBLE_PARAMS, ASCII_PARAMS = 34736, 34737
"""TIFF tags that hold the values of GeoKeys that are not short integers."""
USER_DEFINED = 32767
"""Value of a key that says its object is described by further keys."""
MODEL_TYPE, RASTER_TYPE, CITATION = 1024, 1025, 1026
GEODETIC_CRS, GEODETIC_CITATION, DATUM, PRIME_MERIDIAN = 2048, 2049, 2050, 2051
ANGULAR_UNITS, ANGULAR_UNIT_SIZE, ELLIPSOID = 2054, 2055, 2056
SEMI_MAJOR, SEMI_MINOR, INVERSE_FLATTENING, PRIME_MERIDIAN_LONGITUDE = 2057, 2058, 2059, 2061
PROJECTED_CRS, PROJECTED_CITATION, PROJECTION, METHOD = 3072, 3073, 3074, 3075
LINEAR_UNITS, LINEAR_UNIT_SIZE = 3076, 3077
PARALLEL_1, PARALLEL_2 = 3078, 3079
NATURAL_LONGITUDE, NATURAL_LATITUDE, EASTING, NORTHING = 3080, 3081, 3082, 3083
FALSE_LONGITUDE, FALSE_LATITUDE, FALSE_EASTING, FALSE_NORTHING = 3084, 3085, 3086, 3087
CENTRE_LONGITUDE, CENTRE_LATITUDE, CENTRE_EASTING, CENTRE_NORTHING = 3088, 3089, 3090, 3091
NATURAL_SCALE, CENTRE_SCALE, AZIMUTH, POLE_LONGITUDE, SKEW_ANGLE = 3092, 3093, 3094, 3095, 3096
VERTICAL_CRS, VERTICAL_UNITS = 4096, 4099
PROJECTED, GEOGRAPHIC, GEOCENTRIC = 1, 2, 3
"""Values of GTModelType."""
PIXEL_IS_POINT = 2

LENGTHS = {
    9001: ("metre", 1.0), 9002: ("foot", 0.3048), 9003: ("US survey foot", 12 / 39.37),
    9005: ("Clarke's foot", 0.3047972654), 9014: ("fathom", 1.8288),
    9030: ("nautical mile", 1852.0), 9036: ("kilometre", 1000.0),
}  # fmt: skip
"""Names of EPSG's units of length and their sizes in metres."""
ANGLES = {
    9101: ("radian", 1.0), 9102: ("degree", math.pi / 180), 9103: ("arc-minute", math.pi / 10800),
    9104: ("arc-second", math.pi / 648000), 9105: ("grad", math.pi / 200),
    9106: ("gon", math.pi / 200), 9107: ("degree", math.pi / 180), 9108: ("degree", math.pi / 180),
}  # fmt: skip
"""Names of EPSG's units of angle and their sizes in radians."""

type Parameter = tuple[str, tuple[int, ...], str]
"""A parameter of a projection: its name, the keys that may hold it, and the kind of its unit."""

_LATITUDES = (NATURAL_LATITUDE, CENTRE_LATITUDE, FALSE_LATITUDE)
_LONGITUDES = (NATURAL_LONGITUDE, CENTRE_LONGITUDE, FALSE_LONGITUDE)
_ORIGIN: tuple[Parameter, ...] = (
    ("Latitude of natural origin", _LATITUDES, "angle"),
    ("Longitude of natural origin", _LONGITUDES, "angle"),
)
_CENTRE: tuple[Parameter, ...] = (
    ("Latitude of natural origin", (CENTRE_LATITUDE, NATURAL_LATITUDE), "angle"),
    ("Longitude of natural origin", (CENTRE_LONGITUDE, NATURAL_LONGITUDE), "angle"),
)
_FIRST: Parameter = ("Latitude of 1st standard parallel", (PARALLEL_1,), "angle")
_SECOND: Parameter = ("Latitude of 2nd standard parallel", (PARALLEL_2,), "angle")
_SCALE: Parameter = ("Scale factor at natural origin", (NATURAL_SCALE, CENTRE_SCALE), "scale")
_FALSE: tuple[Parameter, ...] = (
    ("False easting", (EASTING, CENTRE_EASTING, FALSE_EASTING), "length"),
    ("False northing", (NORTHING, CENTRE_NORTHING, FALSE_NORTHING), "length"),
)
_TWO_PARALLELS: tuple[Parameter, ...] = (
    ("Latitude of false origin", (FALSE_LATITUDE, NATURAL_LATITUDE), "angle"),
    ("Longitude of false origin", (FALSE_LONGITUDE, NATURAL_LONGITUDE), "angle"),
    _FIRST,
    _SECOND,
    ("Easting at false origin", (FALSE_EASTING, EASTING), "length"),
    ("Northing at false origin", (FALSE_NORTHING, NORTHING), "length"),
)
_MERCATOR, _TWO_CONIC, _POLAR = 7, 8, 15
METHODS: dict[int, tuple[str, tuple[Parameter, ...]]] = {
    1: ("Transverse Mercator", (*_ORIGIN, _SCALE, *_FALSE)),
    3: (
        "Hotine Oblique Mercator (variant B)",
        (
            ("Latitude of projection centre", (CENTRE_LATITUDE,), "angle"),
            ("Longitude of projection centre", (CENTRE_LONGITUDE,), "angle"),
            ("Azimuth of initial line", (AZIMUTH,), "angle"),
            ("Angle from Rectified to Skew Grid", (SKEW_ANGLE, AZIMUTH), "angle"),
            ("Scale factor on initial line", (NATURAL_SCALE, CENTRE_SCALE), "scale"),
            ("Easting at projection centre", (CENTRE_EASTING, EASTING), "length"),
            ("Northing at projection centre", (CENTRE_NORTHING, NORTHING), "length"),
        ),
    ),
    _MERCATOR: ("Mercator (variant A)", (*_ORIGIN, _SCALE, *_FALSE)),
    _TWO_CONIC: ("Lambert Conic Conformal (2SP)", _TWO_PARALLELS),
    9: ("Lambert Conic Conformal (1SP)", (*_ORIGIN, _SCALE, *_FALSE)),
    10: ("Lambert Azimuthal Equal Area", (*_CENTRE, *_FALSE)),
    11: ("Albers Equal Area", _TWO_PARALLELS),
    12: ("Azimuthal Equidistant", (*_CENTRE, *_FALSE)),
    14: ("Stereographic", (*_CENTRE, _SCALE, *_FALSE)),
    _POLAR: (
        "Polar Stereographic (variant B)",
        (
            ("Latitude of standard parallel", (NATURAL_LATITUDE, PARALLEL_1), "angle"),
            ("Longitude of origin", (POLE_LONGITUDE, NATURAL_LONGITUDE), "angle"),
            *_FALSE,
        ),
    ),
    16: ("Oblique Stereographic", (*_ORIGIN, _SCALE, *_FALSE)),
    17: ("Equidistant Cylindrical", (_FIRST, *_CENTRE, *_FALSE)),
    18: ("Cassini-Soldner", (*_ORIGIN, *_FALSE)),
    19: ("Gnomonic", (*_CENTRE, *_FALSE)),
    20: ("Miller Cylindrical", (_CENTRE[1], *_FALSE)),
    21: ("Orthographic", (*_CENTRE, *_FALSE)),
    22: ("American Polyconic", (*_ORIGIN, *_FALSE)),
    23: ("Robinson", (_CENTRE[1], *_FALSE)),
    24: ("Sinusoidal", (_CENTRE[1], *_FALSE)),
    26: ("New Zealand Map Grid", (*_ORIGIN, *_FALSE)),
    27: ("Transverse Mercator (South Orientated)", (*_ORIGIN, _SCALE, *_FALSE)),
    28: ("Lambert Cylindrical Equal Area", (_FIRST, _ORIGIN[1], *_FALSE)),
}
"""Projection methods of ProjMethodGeoKey (annex C.2), with PROJ's names of their parameters."""

SCHEMA = "https://proj.org/schemas/v0.7/projjson.schema.json"
ESRI = re.compile(r"ESRI PE String\s*=\s*(.*)", re.DOTALL)


def geo_keys(directory: Sequence[int], doubles: Sequence[float], text: str) -> dict[int, Value]:
    """Return the GeoKeys by number (GeoTIFF 1.1 section 7.1.2).

    Parameters:
        directory: GeoKeyDirectory: a header of four numbers, then four per key.
        doubles: GeoDoubleParams.
        text: GeoAsciiParams.
    """
    found: dict[int, Value] = {}
    count = min(directory[3], len(directory) // 4 - 1) if len(directory) >= 4 else 0
    for i in range(1, count + 1):
        key, tag, length, value = directory[4 * i : 4 * i + 4]
        if tag == 0:
            found[key] = value
        elif tag == DOUBLE_PARAMS:
            values = [float(v) for v in doubles[value : value + length]]
            found[key] = values[0] if len(values) == 1 else values
        elif tag == ASCII_PARAMS:
            found[key] = text[value : value + length].rstrip("|\0")
    return found


def number(keys: Keys, *codes: int) -> float | None:
    """Return the finite number of the first of these keys that has one."""
    for code in codes:
        value = keys.get(code)
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    return None


def text(keys: Keys, code: int) -> str:
    """Return the text of a key; empty if it has none."""
    value = keys.get(code)
    return value if isinstance(value, str) else ""


def code_of(keys: Keys, key: int) -> int | None:
    """Return the EPSG code that a key holds; None if it is missing, undefined or user-defined."""
    value = keys.get(key)
    return value if isinstance(value, int) and 0 < value < USER_DEFINED else None


def esri_text(keys: Keys) -> str | None:
    """Return the WKT that software of ESRI stores in a citation, where it overrides the keys."""
    for key in (PROJECTED_CITATION, GEODETIC_CITATION, CITATION):
        found = ESRI.search(text(keys, key))
        if found:
            return found[1].strip(" |\0")
    return None


def is_projected(keys: Keys) -> bool:
    """Return whether the keys describe a projected CRS; GTModelType is missing in some files."""
    model = keys.get(MODEL_TYPE)
    return (
        model == PROJECTED
        or keys.get(PROJECTED_CRS) == USER_DEFINED
        or (model in (None, USER_DEFINED) and METHOD in keys)
    )


def projjson(keys: Keys, pyproj: Any) -> dict[str, Json] | None:
    """Return the CRS of user-defined keys as PROJJSON; None if they do not describe one.

    Parameters:
        keys: the keys.
        pyproj: the module, for what EPSG codes of datums, ellipsoids and projections stand for.
    """
    base = _geographic(keys, pyproj)
    if base is None:
        return None
    if not is_projected(keys):
        model = keys.get(MODEL_TYPE)
        # other models are local systems, which are not on the earth
        is_known = model == GEOGRAPHIC or (model is None and GEODETIC_CRS in keys)
        return {"$schema": SCHEMA, **base} if is_known else None
    length = _unit(keys, LINEAR_UNITS, LINEAR_UNIT_SIZE, LENGTHS, 9001)
    conversion = _conversion(keys, _unit_json(length, "LinearUnit"), pyproj)
    if conversion is None:
        return None
    axes = [
        {"name": name, "abbreviation": name[0], "direction": name[:-3].lower()}
        for name in ("Easting", "Northing")
    ]
    unit = _unit_json(length, "LinearUnit")
    return {
        "$schema": SCHEMA,
        "type": "ProjectedCRS",
        "name": _name(keys),
        "base_crs": base,
        "conversion": conversion,
        "coordinate_system": {
            "subtype": "Cartesian",
            "axis": [{**axis, "unit": unit} for axis in axes],
        },
    }


def _name(keys: Keys) -> str:
    names = [text(keys, key).strip() for key in (PROJECTED_CITATION, CITATION)]
    return next(filter(None, names), "unnamed")


def _unit(
    keys: Keys, key: int, size_key: int, table: Mapping[int, tuple[str, float]], default: int
) -> tuple[str, float]:
    size = number(keys, size_key)
    if keys.get(key) == USER_DEFINED and size is not None and size > 0:
        return "unknown", size
    code = keys.get(key)
    return table.get(code if isinstance(code, int) else default, table[default])


def _unit_json(unit: tuple[str, float], kind: str) -> Json:
    name, factor = unit
    if name in ("metre", "degree"):
        return name
    return {"type": kind, "name": name, "conversion_factor": factor}


def _described(thing: Any) -> dict[str, Json]:
    """Return the PROJJSON of an object of pyproj, as part of another one."""
    found = dict(thing.to_json_dict())
    found.pop("$schema", None)
    return found


def _geographic(keys: Keys, pyproj: Any) -> dict[str, Json] | None:
    """Return the geographic CRS that the keys describe, or that the projected one is based on."""
    code = code_of(keys, GEODETIC_CRS)
    if code is not None:
        named = pyproj.CRS.from_epsg(code)
        return _described(
            named if named.is_geographic and len(named.axis_info) == 2 else named.to_2d()
        )
    parts = _citation_parts(text(keys, GEODETIC_CITATION))
    datum = _datum(keys, parts, pyproj)
    if datum is None:
        if _is_wgs84(keys):
            return _described(pyproj.CRS.from_epsg(4326))
        return None
    unit = _unit_json(_unit(keys, ANGULAR_UNITS, ANGULAR_UNIT_SIZE, ANGLES, 9102), "AngularUnit")
    axes = [("Latitude", "lat", "north"), ("Longitude", "lon", "east")]
    kind = "datum_ensemble" if datum.get("type") == "DatumEnsemble" else "datum"
    return {
        "type": "GeographicCRS",
        "name": parts.get("GCS Name") or text(keys, GEODETIC_CITATION) or "unknown",
        kind: datum,
        "coordinate_system": {
            "subtype": "ellipsoidal",
            "axis": [
                {"name": name, "abbreviation": short, "direction": direction, "unit": unit}
                for name, short, direction in axes
            ],
        },
    }


def _citation_parts(citation: str) -> dict[str, str]:
    """Return the pairs of a citation such as `GCS Name = NAD27|Datum = …`."""
    pairs = [part.split("=", 1) for part in citation.split("|") if "=" in part]
    return {name.strip(): value.strip() for name, value in pairs}


def _is_wgs84(keys: Keys) -> bool:
    """Return whether WGS 84 is meant: by its name, or by keys of nothing but a projection."""
    citation = text(keys, GEODETIC_CITATION)
    named = "WGS" in citation.upper() and "84" in citation
    return named or (METHOD in keys and not {DATUM, ELLIPSOID} & set(keys))


def _datum(keys: Keys, parts: Mapping[str, str], pyproj: Any) -> dict[str, Json] | None:
    code = code_of(keys, DATUM)
    if code is not None:
        return _described(pyproj.crs.Datum.from_epsg(code))
    ellipsoid = _ellipsoid(keys, parts, pyproj)
    if ellipsoid is None:
        return None
    found: dict[str, Json] = {
        "type": "GeodeticReferenceFrame",
        "name": parts.get("Datum", "unknown"),
        "ellipsoid": ellipsoid,
    }
    meridian = code_of(keys, PRIME_MERIDIAN)
    longitude = number(keys, PRIME_MERIDIAN_LONGITUDE)
    if meridian is not None and meridian != 8901:  # Greenwich
        found["prime_meridian"] = _described(pyproj.crs.PrimeMeridian.from_epsg(meridian))
    elif meridian is None and (longitude or "Primem" in parts):
        name = parts.get("Primem", "unknown")
        found["prime_meridian"] = {"name": name, "longitude": longitude or 0.0}
    return found


def _ellipsoid(keys: Keys, parts: Mapping[str, str], pyproj: Any) -> dict[str, Json] | None:
    major, minor = number(keys, SEMI_MAJOR), number(keys, SEMI_MINOR)
    inverse, code = number(keys, INVERSE_FLATTENING), code_of(keys, ELLIPSOID)
    name = parts.get("Ellipsoid", "unknown")
    if major is None or major <= 0:
        return None if code is None else _described(pyproj.crs.Ellipsoid.from_epsg(code))
    if inverse:
        return {"name": name, "semi_major_axis": major, "inverse_flattening": inverse}
    if minor:
        return {"name": name, "semi_major_axis": major, "semi_minor_axis": minor}
    return {"name": name, "radius": major}


def _conversion(keys: Keys, length: Json, pyproj: Any) -> dict[str, Json] | None:
    code = code_of(keys, PROJECTION)
    if code is not None:
        return _described(pyproj.crs.CoordinateOperation.from_epsg(code))
    method = keys.get(METHOD)
    if not isinstance(method, int) or method not in METHODS:
        return None
    name, parameters = _variant(method, keys)
    units = {"angle": "degree", "length": length, "scale": "unity"}
    defaults = {"angle": 0.0, "length": 0.0, "scale": 1.0}
    values = []
    for title, codes, kind in parameters:
        value = number(keys, *codes)
        value = defaults[kind] if value is None else value
        values.append({"name": title, "value": value, "unit": units[kind]})
    return {
        "name": text(keys, PROJECTED_CITATION) or "unnamed",
        "method": {"name": name},
        "parameters": values,
    }


def _variant(method: int, keys: Keys) -> tuple[str, tuple[Parameter, ...]]:
    """Return the method, by the parameters that the keys give it."""
    if method == _MERCATOR and NATURAL_SCALE not in keys and number(keys, PARALLEL_1) is not None:
        return "Mercator (variant B)", (_FIRST, _ORIGIN[1], *_FALSE)
    if method == _TWO_CONIC and number(keys, PARALLEL_2) is None:
        return METHODS[9]
    if (
        method == _POLAR
        and NATURAL_SCALE in keys
        and abs(number(keys, NATURAL_LATITUDE) or 0) == 90
    ):
        longitude = ("Longitude of natural origin", (POLE_LONGITUDE, NATURAL_LONGITUDE), "angle")
        return "Polar Stereographic (variant A)", (_ORIGIN[0], longitude, _SCALE, *_FALSE)
    return METHODS[method]


# How Zarr spells fill values.


def fill_value_json(value: Any, dtype: np.dtype[Any]) -> Json:
    """Return a fill value as Zarr v3 metadata spells it for `dtype`."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "c":
        return [float_json(value.real), float_json(value.imag)]
    return float_json(value) if dtype.kind == "f" else int(value)


def float_json(value: float) -> Json:
    """Return a float as Zarr v3 metadata spells it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)
