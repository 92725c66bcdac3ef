"""Small TIFF files for tests of combined indexes."""

import rasterio
import tifffile
from rasterio.transform import from_origin


def save_all(folder, values, **options):
    """Write one tiled TIFF per value; return their paths."""
    paths = []
    for i, value in enumerate(values):
        path = folder / f"{i}.tif"
        tifffile.imwrite(path, value, tile=(16, 16), **options)
        paths.append(str(path))
    return paths


def write_geotiff(path, values, west, north, size=10.0, transform=None, **options):
    """Write one band, or several, as a tiled GeoTIFF; return its path."""
    profile = {"driver": "GTiff", "tiled": True, "blockxsize": 16, "blockysize": 16}
    profile |= {"crs": "EPSG:32633", **options}
    bands = values.reshape(-1, *values.shape[-2:])
    with rasterio.open(
        path, "w", height=bands.shape[1], width=bands.shape[2], count=len(bands),
        dtype=values.dtype, transform=transform or from_origin(west, north, size, size), **profile,
    ) as file:  # fmt: skip
        file.write(bands)
    return str(path)
