"""DTED cells: written by GDAL's driver, and made by hand from MIL-PRF-89020B."""

import numpy as np
import rasterio
from rasterio.shutil import copy
from rasterio.transform import from_origin

VOID = -32767


def gdal_cell(path, values, *, lon=10, lat=45):
    """Write a cell with GDAL; `values` have the rows and columns of a level, north up."""
    rows, columns = values.shape
    dx, dy = 1 / (columns - 1), 1 / (rows - 1)
    source = path.with_suffix(".tif")
    with rasterio.open(
        source, "w", driver="GTiff", height=rows, width=columns, count=1, dtype="int16",
        crs="EPSG:4326", transform=from_origin(lon - dx / 2, lat + 1 + dy / 2, dx, dy), nodata=VOID,
    ) as file:  # fmt: skip
        file.write(values, 1)
    copy(source, path, driver="DTED")
    source.unlink()
    return path


def record(number, samples, *, checksum=None, sentinel=0xAA):
    """One data record; `samples` are 16-bit words as stored, from south to north."""
    data = bytes([sentinel]) + number.to_bytes(3, "big") + number.to_bytes(2, "big") + bytes(2)
    data += b"".join(int(word).to_bytes(2, "big") for word in samples)
    return data + (sum(data) if checksum is None else checksum).to_bytes(4, "big")


def word(value):
    """An elevation as a sign bit and a magnitude."""
    return abs(int(value)) | (0x8000 if value < 0 else 0)


def made_cell(
    path, values, *, lon="0100000E", lat="0450000N", step=(300, 300), labels=b"", partial=b"00",
    columns=None, datum=b"WGS84", records=None,
):  # fmt: skip
    """Write a cell byte by byte."""
    rows, width = values.shape
    columns = columns or width
    uhl = b"UHL1" + lon.encode() + lat.encode() + b"%04d%04d" % step + b"0010U  " + b" " * 12
    uhl = (uhl + b"%04d%04d0" % (columns, rows)).ljust(80)
    dsi = bytearray(b" " * 648)
    for offset, field in (
        (0, b"DSIU"), (59, b"DTED0"), (87, b"02B"), (102, b"USABCDEF"), (141, b"MSL"),
        (144, datum), (281, b"%04d%04d" % (rows, columns)), (289, partial),
    ):  # fmt: skip
        dsi[offset : offset + len(field)] = field
    acc = b"ACC00130020NA  NA  ".ljust(2700)
    found = records or [record(n, map(word, c[::-1])) for n, c in enumerate(values.T)]
    path.write_bytes(labels + uhl + bytes(dsi) + acc + b"".join(found))
    return path


def read_by_gdal(path):
    with rasterio.open(path) as file:
        return file.read(1), file.transform, file.nodata, file.crs, file.units[0]


def terrain(rows=121, columns=121, seed=0):
    values = np.random.default_rng(seed).integers(-430, 8000, (rows, columns)).astype("int16")
    values[3:6, 10:20] = VOID
    return values
