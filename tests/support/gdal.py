"""GDAL as an outside reader."""

import warnings

import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning


def gdal_read(path):
    """Read every band of a file with GDAL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as opened:
            return opened.read()


def gdal_shown(path):
    """Read every band of a file with GDAL; (y, x) if there is one."""
    return without_band(gdal_read(path))


def without_band(array):
    """Return an array of one band (1, y, x) as (y, x), and others unchanged."""
    return array[0] if array.ndim == 3 and len(array) == 1 else array


def gdal_write(path, array, **options):
    """Write an array (band, y, x) with GDAL, by way of a TIFF, because some drivers only copy."""
    bands, rows, columns = array.shape
    profile = {"count": bands, "height": rows, "width": columns, "dtype": array.dtype.name}
    plain = path.with_name("plain.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(plain, "w", driver="GTiff", **profile) as opened:
            opened.write(array)
        rasterio.shutil.copy(plain, path, **options)


def has_driver(name):
    """Whether this GDAL can read and write a format."""
    with rasterio.Env() as env:
        return name in env.drivers()
