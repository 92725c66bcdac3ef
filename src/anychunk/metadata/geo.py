"""Georeferencing as Zarr attributes: the `proj:` and `spatial:` conventions.

Spec: https://github.com/zarr-conventions/proj and /spatial (v0.1); OGC GeoTIFF 1.1 (19-008r4).

A transform is the six numbers (a, b, c, d, e, f) of x = a·column + b·row + c and
y = d·column + e·row + f, where (0, 0) is the outer corner of the first pixel (rasterio's order of
coefficients, not GDAL's).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from anychunk.metadata.meaning import Crs, Transform
from anychunk.model.index import Json

VERSION = "v0.1"
CONVENTIONS = {
    "proj": (
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "Coordinate reference system information for geospatial data",
    ),
    "multiscales": ("d35379db-88df-4056-af3a-620245f8e347", "Multiscale layout of zarr datasets"),
    "spatial": ("689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information"),
}
PREFIXES = ("spatial:", "proj:")
"""Prefixes of the attributes that make up a georeference."""


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
    crs: Crs | None = None,
    bbox: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return the georeference of an image as attributes; empty if nothing is known.

    Parameters:
        shape: height and width of the image in pixels.
        transform: maps pixels to ground coordinates.
        crs: the coordinate reference system.
        bbox: the area that the image covers, where no transform is known.
    """
    found: dict[str, Any] = {}
    registered = []
    if crs is not None and (crs.code is not None or crs.wkt is not None):
        registered.append(convention("proj"))
        if crs.code is not None:
            found["proj:code"] = crs.code
        else:
            found["proj:wkt2"] = crs.wkt
    if transform is not None:
        registered.append(convention("spatial"))
        found |= {
            "spatial:dimensions": ["y", "x"],
            "spatial:shape": list(shape),
            "spatial:transform_type": "affine",
            "spatial:transform": list(transform),
            "spatial:bbox": list(bounds(transform, shape)),
            "spatial:registration": "pixel",
        }
    elif bbox is not None:
        registered.append(convention("spatial"))
        found |= {"spatial:dimensions": ["y", "x"], "spatial:bbox": list(bbox)}
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

    None if the tags are missing, or the transform is not finite or not invertible. Tie points
    without a scale are ground control points. Where a file has several of these, the precedence is
    GDAL's.

    Parameters:
        scale: ModelPixelScale.
        tiepoints: ModelTiepoint, of which the first counts.
        matrix: ModelTransformation, where there is no pixel scale.
        is_point: whether coordinates refer to the centre of a pixel (RasterPixelIsPoint).
    """
    found: Transform | None = None
    has_scale = scale is not None and len(scale) >= 2 and bool(scale[0]) and bool(scale[1])
    if scale is not None and has_scale and tiepoints is not None and len(tiepoints) >= 6:
        i, j, _, x, y, _ = tiepoints[:6]
        sx, sy = scale[0], -abs(scale[1])
        found = (sx, 0.0, x - i * sx, 0.0, sy, y - j * sy)
    elif matrix is not None and len(matrix) == 16:
        # row-major 4 x 4; the rows and columns of z are ignored, as GDAL does
        found = (matrix[0], matrix[1], matrix[3], matrix[4], matrix[5], matrix[7])
    if found is None or not _is_finite(found) or found[0] * found[4] == found[1] * found[3]:
        return None
    if is_point:
        # coordinates refer to pixel centres: move the origin back by half a pixel
        a, b, c, d, e, f = found
        found = (a, b, c - (a + b) / 2, d, e, f - (d + e) / 2)
    return tuple(float(n) for n in found)  # type: ignore[return-value]


MOST_POINTS = 10_000
"""More ground control points than this are data, not description."""


def geotiff_gcps(
    tiepoints: Sequence[float] | None, *, is_point: bool
) -> tuple[tuple[float, float, float, float, float], ...]:
    """Return the ground control points (column, row, x, y, z) of ModelTiepoint.

    Parameters:
        tiepoints: ModelTiepoint: column, row, depth, x, y, z per point.
        is_point: whether columns and rows refer to the centre of a pixel.
    """
    if tiepoints is None or len(tiepoints) % 6 or len(tiepoints) > 6 * MOST_POINTS:
        return ()
    if not _is_finite(tiepoints):
        return ()
    half = 0.5 if is_point else 0.0
    columns, rows, _, xs, ys, zs = (tiepoints[n::6] for n in range(6))
    moved = ([n + half for n in columns], [n + half for n in rows])
    return tuple(zip(*moved, xs, ys, zs, strict=True))


def _is_finite(numbers: Sequence[float]) -> bool:
    return all(isinstance(n, int | float) and abs(n) < 1e300 for n in numbers)


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
