"""Georeferencing as Zarr attributes: the `proj:` and `spatial:` conventions.

Spec: https://github.com/zarr-conventions/proj and /spatial (v0.1); OGC GeoTIFF 1.1 (19-008r4).

A transform is the six numbers (a, b, c, d, e, f) of x = a·column + b·row + c and
y = d·column + e·row + f, where (0, 0) is the outer corner of the first pixel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

type Transform = tuple[float, float, float, float, float, float]

VERSION = "v0.1"
CONVENTIONS = {
    "proj": (
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "Coordinate reference system information for geospatial data",
    ),
    "spatial": ("689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information"),
}
USER_DEFINED = 32767
RASTER_TYPE, GEODETIC_CRS, PROJECTED_CRS = 1025, 2048, 3072
PIXEL_IS_POINT = 2


def convention(name: str) -> dict[str, str]:
    """Give the registration of a convention."""
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
    """Give the attributes of an image of `shape` (height, width); empty where nothing is known."""
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
    """Give (xmin, ymin, xmax, ymax) of an image of (height, width)."""
    height, width = shape
    corners = [apply(transform, x, y) for x in (0, width) for y in (0, height)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def apply(transform: Transform, column: float, row: float) -> tuple[float, float]:
    a, b, c, d, e, f = transform
    return a * column + b * row + c, d * column + e * row + f


def rescaled(transform: Transform, across: float, down: float) -> Transform:
    """Give the transform of a level whose pixels are `across` by `down` pixels of the first."""
    a, b, c, d, e, f = transform
    return a * across, b * down, c, d * across, e * down, f


def geotiff_transform(
    *,
    scale: Sequence[float] | None,
    tiepoints: Sequence[float] | None,
    matrix: Sequence[float] | None,
    is_point: bool,
) -> Transform | None:
    """Read ModelPixelScale, ModelTiepoint and ModelTransformation (GeoTIFF 1.1 section 7.1).

    None where there is no affine transform: no tags, or several tie points.
    """
    found: Transform | None = None
    if matrix is not None and len(matrix) >= 8:
        found = (matrix[0], matrix[1], matrix[3], matrix[4], matrix[5], matrix[7])
    elif scale is not None and len(scale) >= 2 and tiepoints is not None and len(tiepoints) == 6:
        i, j, _, x, y, _ = tiepoints
        sx, sy = scale[0], -scale[1]
        found = (sx, 0.0, x - i * sx, 0.0, sy, y - j * sy)
    if found is None or not _is_finite(found) or found[0] * found[4] == found[1] * found[3]:
        return None
    if is_point:
        # the tie point is a pixel's centre, half a pixel from its corner
        a, b, c, d, e, f = found
        found = (a, b, c - (a + b) / 2, d, e, f - (d + e) / 2)
    return tuple(float(n) for n in found)  # type: ignore[return-value]


def _is_finite(numbers: Sequence[float]) -> bool:
    return all(isinstance(n, int | float) and abs(n) < 1e300 for n in numbers)


def geotiff_code(keys: Mapping[int, Any]) -> str | None:
    """Give the EPSG code of the coordinate reference system, where it has one."""
    for key in (PROJECTED_CRS, GEODETIC_CRS):
        value = keys.get(key)
        if isinstance(value, int) and 0 < value < USER_DEFINED:
            return f"EPSG:{value}"
        if value == USER_DEFINED:
            return None  # described by further keys, which have no code together
    return None


def geo_keys(
    directory: Sequence[int], doubles: Sequence[float], text: str
) -> dict[int, int | float | str | list[float]]:
    """Read the GeoKeyDirectory: {key: value} (GeoTIFF 1.1 section 7.1.2)."""
    found: dict[int, int | float | str | list[float]] = {}
    count = min(directory[3], len(directory) // 4 - 1) if len(directory) >= 4 else 0
    for i in range(1, count + 1):
        key, place, length, value = directory[4 * i : 4 * i + 4]
        if place == 0:
            found[key] = value
        elif place == 34736:
            values = [float(v) for v in doubles[value : value + length]]
            found[key] = values[0] if len(values) == 1 else values
        elif place == 34737:
            found[key] = text[value : value + length].rstrip("|\0")
    return found
