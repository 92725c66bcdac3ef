"""Georeferencing as Zarr attributes: the `proj:` and `spatial:` conventions.

Spec: https://github.com/zarr-conventions/proj and /spatial (v0.1); OGC GeoTIFF 1.1 (19-008r4).

A transform is the six numbers (a, b, c, d, e, f) of x = a·column + b·row + c and
y = d·column + e·row + f, where (0, 0) is the outer corner of the first pixel (rasterio's order of
coefficients, not GDAL's).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from anychunk.metadata import _tiff
from anychunk.model.index import Json

type Transform = tuple[float, float, float, float, float, float]

VERSION = "v0.1"
CONVENTIONS = {
    "proj": (
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "Coordinate reference system information for geospatial data",
    ),
    "spatial": ("689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information"),
}
PREFIXES = ("spatial:", "proj:")
"""Prefixes of the attributes that make up a georeference."""
USER_DEFINED = 32767
"""Value of a GeoKey that says the CRS is described by further keys."""
# GeoKeys, OGC 19-008r4 annex B
RASTER_TYPE, GEODETIC_CRS, PROJECTED_CRS = 1025, 2048, 3072
PIXEL_IS_POINT = 2
DOUBLE_PARAMS, ASCII_PARAMS = 34736, 34737
"""TIFF tags that hold the values of GeoKeys that are not short integers."""


def convention(name: str) -> dict[str, str]:
    """Return the entry of `zarr_conventions` that registers a convention (`proj` or `spatial`)."""
    uuid, description = CONVENTIONS[name]
    root = f"zarr-conventions/{name}"
    return {
        "schema_url": f"https://raw.githubusercontent.com/{root}/refs/tags/{VERSION}/schema.json",
        "spec_url": f"https://github.com/{root}/blob/{VERSION}/README.md",
        "uuid": uuid,
        "name": name,
        "description": description,
    }


def attributes(
    *,
    shape: tuple[int, int],
    transform: Transform | None,
    code: str | None = None,
    projjson: Mapping[str, Any] | None = None,
    dimensions: Sequence[str] = ("y", "x"),
) -> dict[str, Any]:
    """Return the georeference of an image as attributes; empty if nothing is known.

    Parameters:
        shape: height and width of the image in pixels.
        transform: maps pixels to ground coordinates.
        code: code of the CRS, as `AUTHORITY:CODE`.
        projjson: the CRS as PROJJSON.
        dimensions: names of the image's two spatial dimensions, rows first.
    """
    found: dict[str, Any] = {}
    registered = []
    if code is not None or projjson is not None:
        registered.append(convention("proj"))
        if code is not None:
            found["proj:code"] = code
        if projjson is not None:
            found["proj:projjson"] = dict(projjson)
    if transform is not None:
        registered.append(convention("spatial"))
        found |= {
            "spatial:dimensions": list(dimensions),
            "spatial:shape": list(shape),
            "spatial:transform_type": "affine",
            "spatial:transform": list(transform),
            "spatial:bbox": list(bounds(transform, shape)),
            "spatial:registration": "pixel",
        }
    return {"zarr_conventions": registered, **found} if registered else {}


def bounds(transform: Transform, shape: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return (xmin, ymin, xmax, ymax) of an image of `shape` (height, width)."""
    height, width = shape
    corners = [apply(transform, x, y) for x in (0, width) for y in (0, height)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def apply(transform: Transform, column: float, row: float) -> tuple[float, float]:
    """Return the ground coordinates (x, y) of a position in pixels."""
    a, b, c, d, e, f = transform
    return a * column + b * row + c, d * column + e * row + f


def rescaled(transform: Transform, across: float, down: float) -> Transform:
    """Return the transform of a level with pixels `across` times wider and `down` times taller."""
    a, b, c, d, e, f = transform
    return a * across, b * down, c, d * across, e * down, f


def geotiff_transform(
    *,
    scale: Sequence[float] | None,
    tiepoints: Sequence[float] | None,
    matrix: Sequence[float] | None,
    is_point: bool,
) -> Transform | None:
    """Return the affine transform that GeoTIFF tags describe (GeoTIFF 1.1 section 7.1).

    None if the tags are missing, there are several tie points (a warp), or the transform is not
    finite or not invertible.

    Parameters:
        scale: ModelPixelScale.
        tiepoints: ModelTiepoint.
        matrix: ModelTransformation, which takes precedence.
        is_point: whether coordinates refer to the centre of a pixel (RasterPixelIsPoint).
    """
    found: Transform | None = None
    if matrix is not None and len(matrix) >= 8:
        # row-major 4 x 4; the rows and columns of z are ignored, as GDAL does
        found = (matrix[0], matrix[1], matrix[3], matrix[4], matrix[5], matrix[7])
    elif scale is not None and len(scale) >= 2 and tiepoints is not None and len(tiepoints) == 6:
        i, j, _, x, y, _ = tiepoints
        sx, sy = scale[0], -scale[1]
        found = (sx, 0.0, x - i * sx, 0.0, sy, y - j * sy)
    if found is None or not _is_finite(found) or found[0] * found[4] == found[1] * found[3]:
        return None
    if is_point:
        # coordinates refer to pixel centres: move the origin back by half a pixel
        a, b, c, d, e, f = found
        found = (a, b, c - (a + b) / 2, d, e, f - (d + e) / 2)
    return tuple(float(n) for n in found)  # type: ignore[return-value]


def _is_finite(numbers: Sequence[float]) -> bool:
    return all(isinstance(n, int | float) and abs(n) < 1e300 for n in numbers)


def geotiff_code(keys: Mapping[int, Any]) -> str | None:
    """Return the EPSG code of the CRS that GeoKeys name; None if they do not name one."""
    for key in (PROJECTED_CRS, GEODETIC_CRS):
        value = keys.get(key)
        if isinstance(value, int) and 0 < value < USER_DEFINED:
            return f"EPSG:{value}"
        if value == USER_DEFINED:
            return None  # a projected CRS without a code; its base CRS alone would be wrong
    return None


def geo_keys(
    directory: Sequence[int], doubles: Sequence[float], text: str
) -> dict[int, int | float | str | list[float]]:
    """Return the GeoKeys by number (GeoTIFF 1.1 section 7.1.2).

    Parameters:
        directory: GeoKeyDirectory: a header of four numbers, then four per key.
        doubles: GeoDoubleParams.
        text: GeoAsciiParams.
    """
    found: dict[int, int | float | str | list[float]] = {}
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


def georeference(attributes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes that say where an image lies, with its CRS under `crs`."""
    found = {k: v for k, v in attributes.items() if k.startswith(PREFIXES)}
    return {**found, "crs": crs(attributes)}


def crs(attributes: Mapping[str, Json]) -> Json:
    """Return what identifies the CRS of an image: its code and PROJJSON, or else its GeoKeys."""
    code, projjson = attributes.get("proj:code"), attributes.get("proj:projjson")
    if code is not None or projjson is not None:
        return [code, projjson]
    # the raster type is part of the transform, not of the CRS
    keys = _tiff.geo_keys(attributes)
    return {key: value for key, value in keys.items() if key != "GTRasterTypeGeoKey"}


def without_georeference(
    attributes: Mapping[str, Json], prefixes: tuple[str, ...] = PREFIXES
) -> dict[str, Json]:
    """Return `attributes` without those with these prefixes and without their conventions."""
    kept = {k: v for k, v in attributes.items() if not k.startswith(prefixes)}
    registered = kept.pop("zarr_conventions", None)
    if isinstance(registered, list):
        names = [c.get("name") if isinstance(c, Mapping) else None for c in registered]
        left = [c for c, n in zip(registered, names, strict=True) if f"{n}:" not in prefixes]
        kept |= {"zarr_conventions": left} if left else {}
    return kept
