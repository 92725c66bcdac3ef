"""Where a TIFF page lies on the earth: GeoTIFF tags, ground control points, RPC.

Spec: GeoTIFF 1.1 (OGC 19-008r4) sections 7 and 8; RPCs in GeoTIFF
      (http://geotiff.maptools.org/rpc_prop.html); precedence of the tags as in GDAL.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tifffile

from anychunk.formats.tiff.directory import DOUBLE, FLOAT, LONG, SHORT
from anychunk.metadata.crs import crs_from_geokeys
from anychunk.metadata.geo import geotiff_gcps, geotiff_transform
from anychunk.metadata.geo_keys import PIXEL_IS_POINT, RASTER_TYPE, geo_keys
from anychunk.metadata.meaning import Place
from anychunk.model.index import Json

PIXEL_SCALE, TIEPOINTS, MATRIX, RPC = 33550, 33922, 34264, 50844
KEY_DIRECTORY, DOUBLE_PARAMS, ASCII_PARAMS = 34735, 34736, 34737
NUMBERS = (SHORT, LONG, FLOAT, DOUBLE)
"""Types of tags that are read as floating point numbers."""
RPC_NUMBERS = (
    "err_bias", "err_rand", "line_off", "samp_off", "lat_off", "long_off", "height_off",
    "line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale",
)  # fmt: skip
RPC_LISTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
"""The contents of the RPC tag, in their order: single numbers, then lists of 20."""


def page_geo_keys(page: tifffile.TiffPage) -> dict[int, Any]:
    """Return the GeoKeys of a page by number; empty if it has none."""
    directory = page.tags.get(KEY_DIRECTORY)
    if directory is None or directory.dtype != SHORT:
        return {}
    text = page.tags.valueof(ASCII_PARAMS, "")
    return dict(
        geo_keys(
            np.asarray(directory.value).reshape(-1).tolist(),
            numbers(page, DOUBLE_PARAMS) or (),
            text if isinstance(text, str) else "",
        )
    )


def page_place(page: tifffile.TiffPage, keys: Mapping[int, Any]) -> Place:
    """Return where a page lies.

    Parameters:
        page: the page.
        keys: its GeoKeys.
    """
    is_point = keys.get(RASTER_TYPE) == PIXEL_IS_POINT
    scale, tiepoints = numbers(page, PIXEL_SCALE), numbers(page, TIEPOINTS)
    transform = geotiff_transform(
        scale=scale, tiepoints=tiepoints, matrix=numbers(page, MATRIX), is_point=is_point
    )
    gcps = () if transform is not None else geotiff_gcps(tiepoints, is_point=is_point)
    crs = crs_from_geokeys(keys) if keys else None
    return Place(crs=crs, transform=transform, gcps=gcps, rpc=_rpc(numbers(page, RPC)))


def numbers(page: tifffile.TiffPage, code: int) -> Sequence[float] | None:
    """Return the numbers of a tag; None if it is missing or has another type."""
    tag = page.tags.get(code)
    if tag is None or tag.dtype not in NUMBERS:
        return None
    return np.asarray(tag.value).reshape(-1).tolist()


def _rpc(values: Sequence[float] | None) -> dict[str, Json] | None:
    """Return the rational polynomial coefficients of the RPC tag by GDAL's names in lower case."""
    first, each = len(RPC_NUMBERS), 20
    if values is None or len(values) != first + each * len(RPC_LISTS):
        return None
    if not all(math.isfinite(value) for value in values):
        return None
    found: dict[str, Json] = dict(zip(RPC_NUMBERS, values, strict=False))
    for i, name in enumerate(RPC_LISTS):
        found[name] = list(values[first + i * each : first + (i + 1) * each])
    return found
