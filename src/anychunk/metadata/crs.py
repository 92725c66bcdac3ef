"""Coordinate reference systems as text: WKT and CF attributes, by pyproj where it is installed.

pyproj (extra `geo`) is imported only where a CRS is written out, or where GeoKeys name no code:
importing it takes longer than opening a file. Without it a code stands for itself, which rioxarray
and GDAL accept.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from anychunk.metadata import geo_keys
from anychunk.metadata.meaning import Crs
from anychunk.model.index import Json


def crs_from_geokeys(keys: Mapping[int, Any]) -> Crs | None:
    """Return the CRS that GeoKeys describe; None if they describe none, or only pyproj could tell.

    An EPSG code needs no library, except where a citation with ESRI's WKT overrides it.

    Parameters:
        keys: values by number, as `geo_keys.geo_keys` returns them.
    """
    text = geo_keys.esri_text(keys)
    if text is not None:
        if not has_pyproj():
            return None  # the codes may be those of another CRS
        if (found := _from_wkt(text)) is not None:
            return found
    return _by_code(keys) or _from_keys(keys)


def _by_code(keys: Mapping[int, Any]) -> Crs | None:
    """Return the CRS that keys name by an EPSG code."""
    code = geo_keys.code_of(keys, geo_keys.PROJECTED_CRS)
    if code is not None:
        return Crs(code=f"EPSG:{code}", is_geographic=False)
    code = geo_keys.code_of(keys, geo_keys.GEODETIC_CRS)
    if code is None or geo_keys.is_projected(keys):
        return None
    if keys.get(geo_keys.MODEL_TYPE) == geo_keys.GEOCENTRIC:
        return Crs(code=f"EPSG:{code}", is_geographic=False)
    is_in_degrees = keys.get(geo_keys.ANGULAR_UNITS, 0) in (0, 9102, 9107, 9108)
    return Crs(code=f"EPSG:{code}", is_geographic=True) if is_in_degrees else None


ROOT_CODE = re.compile(r'(?:AUTHORITY\["EPSG",\s*"(\d+)"\]|ID\["EPSG",\s*(\d+)\])\]\s*$')
"""The code of a whole CRS, at the end of its WKT."""


def crs_from_wkt(text: str) -> Crs | None:
    """Return the CRS of a WKT, by its EPSG code if it states one; None for local systems.

    Parameters:
        text: WKT 1 or 2, or a code such as EPSG:4326.
    """
    text = text.strip()
    if re.fullmatch(r"EPSG:\d+", text):
        return Crs(code=text)
    if not text or re.match(r"(LOCAL_CS|ENGCRS|ENGINEERINGCRS)\b", text):
        return None
    if (found := ROOT_CODE.search(text)) is not None:
        code = f"EPSG:{found[1] or found[2]}"
        return Crs(code=code, is_geographic=_is_geographic_text(text))
    return _from_wkt(text) if has_pyproj() else Crs(wkt=text)


def _is_geographic_text(wkt: str) -> bool | None:
    if re.match(r"\s*(GEOGCS|GEOGCRS|GEODCRS)\b", wkt):
        return True
    return False if re.match(r"\s*(PROJCS|PROJCRS)\b", wkt) else None


def has_pyproj() -> bool:
    """Return whether pyproj is installed."""
    try:
        import pyproj  # noqa: F401 - slow to import, and optional
    except ImportError:
        return False
    return True


def _from_keys(keys: Mapping[int, Any]) -> Crs | None:
    """Return the CRS of user-defined keys; None without pyproj."""
    if not has_pyproj():
        return None
    items = ((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(keys.items()))
    return _described_crs(tuple(items))


@lru_cache(64)
def _described_crs(items: tuple[tuple[int, Any], ...]) -> Crs | None:
    keys = dict(items)
    if not {geo_keys.GEODETIC_CRS, geo_keys.METHOD, geo_keys.MODEL_TYPE} & set(keys):
        return None
    import pyproj  # slow to import, and optional

    try:
        described = geo_keys.projjson(keys, pyproj)
        if described is None:
            return None
        found = pyproj.CRS.from_json_dict(described)
        return Crs(wkt=found.to_wkt(), is_geographic=bool(found.is_geographic))
    except (pyproj.exceptions.ProjError, ValueError, TypeError):  # what keys of damaged files give
        return None


def _from_wkt(text: str) -> Crs | None:
    known = _by_pyproj(None, text)
    if known is None:
        return None
    return Crs(wkt=known.to_wkt(), is_geographic=bool(known.is_geographic))


def cf_attributes(crs: Crs) -> dict[str, Json]:
    """Return the attributes of the grid mapping variable that describe a CRS."""
    return dict(_cf_attributes(crs))


@lru_cache(64)
def _cf_attributes(crs: Crs) -> dict[str, Json]:
    known = known_crs(crs)
    text = crs.wkt or crs.code
    found: dict[str, Json] = {}
    if known is not None:
        try:
            found = {k: v for k, v in known.to_cf().items() if k != "crs_wkt"}
            text = known.to_wkt()
        except Exception:  # noqa: BLE001 - pyproj raises several classes for what it cannot express
            found = {}
    return {**found, "crs_wkt": text, "spatial_ref": text}


def is_geographic(crs: Crs) -> bool | None:
    """Return whether x and y are longitude and latitude; None if that is unknown."""
    if crs.is_geographic is not None:
        return crs.is_geographic
    known = known_crs(crs)
    if known is not None:
        return bool(known.is_geographic) if known.is_geographic or known.is_projected else None
    if crs.wkt is not None:
        return _is_geographic_text(crs.wkt)
    return True if crs.code in ("EPSG:4326", "OGC:CRS84") else None


def linear_unit(crs: Crs) -> str | None:
    """Return the unit of x and y of a projected CRS, as CF spells it (metre, US survey foot)."""
    known = known_crs(crs)
    if known is None or not known.axis_info:
        return None
    name = known.axis_info[0].unit_name
    return str(name) if name else None


def known_crs(crs: Crs) -> Any:
    """Return the `pyproj.CRS` of a CRS; None without pyproj, or if it does not know the CRS."""
    return _by_pyproj(crs.code, crs.wkt)


@lru_cache(64)
def _by_pyproj(code: str | None, wkt: str | None) -> Any:
    try:
        import pyproj  # slow to import, and optional
    except ImportError:
        return None
    for given in (code, wkt):
        if given is not None:
            try:
                return pyproj.CRS.from_user_input(given)
            except pyproj.exceptions.CRSError:
                continue
    return None
