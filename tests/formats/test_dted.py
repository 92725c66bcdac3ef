"""DTED, against GDAL through rasterio."""

import numpy as np
import pytest

import anychunk
from anychunk.errors import ChunkDecodeError, FormatError, TruncatedError
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from anychunk.testing.formats import FormatContract
from tests.support.dted_cells import (
    VOID,
    gdal_cell,
    made_cell,
    read_by_gdal,
    record,
    terrain,
    word,
)

# GDAL reports each of the defects that are tested
pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


class TestDted(FormatContract):
    def samples(self, folder):
        values = terrain()
        yield gdal_cell(folder / "a.dt0", values), {"0/0/image": values}
        yield made_cell(folder / "b.dt0", values[:, :61]), {"0/0/image": values[:, :61]}


def described(path, **options):
    index = anychunk.index(path, **options)
    return meaning_of(index, next(im.images(index)))


def equals_gdal(path, **options):
    values, transform, nodata, crs, unit = read_by_gdal(path)
    np.testing.assert_array_equal(anychunk.open_array(path, **options)[...], values)
    found = described(path, **options)
    np.testing.assert_allclose(found.place.transform, tuple(transform)[:6], rtol=1e-13)
    assert (found.nodata, found.bands[0].unit) == (nodata, unit)
    assert found.place.crs.code == f"EPSG:{crs.to_epsg()}"
    return values


@pytest.mark.parametrize(
    ("level", "rows", "columns", "lat"),
    [(0, 121, 121, 45), (1, 1201, 1201, 45), (2, 3601, 601, 81), (1, 1201, 601, 55)],
)
def test_cells_of_gdals_driver(tmp_path, level, rows, columns, lat):
    path = gdal_cell(tmp_path / f"a.dt{level}", terrain(rows, columns), lon=-71, lat=lat)
    values = equals_gdal(path)
    np.testing.assert_array_equal(values, terrain(rows, columns))
    array = anychunk.open_array(path)
    assert array.chunks[1] * 2 * rows <= 2**20
    np.testing.assert_array_equal(array[-3:, -2:], values[-3:, -2:])
    group = anychunk.open(path)["0"]
    assert group.attrs["dted"]["level"] == level


@pytest.mark.parametrize(
    ("lon", "lat"),
    [("0100000E", "0450000N"), ("0710000W", "0450000S"), ("1793000W", "0001530N")],
)
def test_made_cells(tmp_path, lon, lat):
    """Voids, negative heights, labels of tapes, another datum."""
    values = terrain(7, 5)
    values[0] = [0, -1, -430, 32766, VOID]
    path = made_cell(tmp_path / "a.dt0", values, lon=lon, lat=lat)
    np.testing.assert_array_equal(equals_gdal(path), values)
    about = anychunk.open(path)["0"].attrs["dted"]
    assert about["vertical_datum"] == "MSL"
    assert about["producer"] == "USABCDEF"
    labels = b"VOL1".ljust(80) + b"HDR1".ljust(80)
    equals_gdal(made_cell(tmp_path / "b.dt0", values, labels=labels))
    equals_gdal(made_cell(tmp_path / "c.dt0", values, datum=b"WGS72"))


@pytest.mark.parametrize(("short", "whole"), [("380000N ", "0380000N"), ("095930S ", "0095930S")])
def test_latitude_of_two_digits(tmp_path, short, whole):
    """DDMMSSH with a space behind it, as osml-imagery-io's own samples have it."""
    values = terrain(7, 5)
    shown = [
        anychunk.open(made_cell(tmp_path / name, values, lat=lat))["0"]
        for name, lat in (("a.dt0", short), ("b.dt0", whole))
    ]
    assert shown[0].attrs["spatial:transform"] == shown[1].attrs["spatial:transform"]
    np.testing.assert_array_equal(shown[0]["0/image"][...], values)


def test_twos_complement_and_negative_zero(tmp_path):
    """GDAL takes heights below -16000 m for two's complement; -0 is 0."""
    stored = [0xFFFE, 0x8000, 0xFFFF, 0xC001, 0xBE80, 0xBE81, 1]
    path = made_cell(
        tmp_path / "a.dt0",
        np.zeros((7, 2), "i2"),
        records=[record(0, stored), record(1, map(word, range(7)))],
    )
    values = equals_gdal(path)
    assert values[::-1, 0].tolist() == [-2, 0, VOID, -16383, -16000, -16767, 1]


def test_checksums(tmp_path):
    values = terrain(7, 4)
    records = [record(n, map(word, c[::-1])) for n, c in enumerate(values.T)]
    records[2] = record(2, map(word, values[::-1, 2]), checksum=77)
    path = made_cell(tmp_path / "a.dt0", values, records=records)
    np.testing.assert_array_equal(equals_gdal(path, checksums=False), values)
    with pytest.raises(ChunkDecodeError):
        anychunk.open_array(path)[...]
    found = anychunk.verify(path, checksums=False).findings
    assert [(f.severity, f.where.split()[-1]) for f in found] == [("warning", "2")]


def test_partial_cells(tmp_path):
    """Only some of the records: the others are voids."""
    values = terrain(7, 5)
    records = [record(n, map(word, values[::-1, n])) for n in (1, 2, 4)]
    path = made_cell(tmp_path / "a.dt0", values, records=records, partial=b"60")
    expected = values.copy()
    expected[:, [0, 3]] = VOID
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)
    np.testing.assert_array_equal(read_by_gdal(path)[0], expected)


@pytest.mark.parametrize("cut", [100, 3000, 3428, 3450, -1])
def test_truncated(tmp_path, cut):
    path = made_cell(tmp_path / "a.dt0", terrain(6, 5))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TruncatedError):
        anychunk.index(path, format="dted")


@pytest.mark.parametrize(
    ("offset", "field"), [(47, b"0000"), (51, b"12x1"), (4, b"01000E  "), (19, b"X"), (20, b"0000")]
)
def test_bad_headers(tmp_path, offset, field):
    path = made_cell(tmp_path / "a.dt0", terrain(6, 5))
    data = bytearray(path.read_bytes())
    data[offset : offset + len(field)] = field
    path.write_bytes(data)
    with pytest.raises(FormatError):
        anychunk.index(path)


def test_mosaic(tmp_path):
    """Four cells share edges; each post occurs once, and the outermost lines are left out."""
    whole = terrain(13, 13)
    for row, col in ((0, 0), (0, 1), (1, 0), (1, 1)):
        part = whole[row * 6 : row * 6 + 7, col * 6 : col * 6 + 7]
        made_cell(
            tmp_path / f"n{46 - row}e{10 + col:03}.dt0", part,
            lon=f"{10 + col:03}0000E", lat=f"{46 - row:03}0000N", step=(6000, 6000),
        )  # fmt: skip
    cells = sorted(tmp_path.glob("*.dt0"))
    index = anychunk.index(f"{tmp_path}/*.dt0", combine="mosaic")
    array = anychunk.open(index)["0/0/image"]
    np.testing.assert_array_equal(array[...], whole[:12, :12])
    found = meaning_of(index, next(im.images(index)))
    first = read_by_gdal(tmp_path / "n46e010.dt0")[1]
    np.testing.assert_allclose(found.place.transform, tuple(first)[:6], rtol=1e-12)
    # a gap is void
    index = anychunk.index([c for c in cells if c.name != "n45e011.dt0"], combine="mosaic")
    array = anychunk.open(index)["0/0/image"][...]
    np.testing.assert_array_equal(array[:6], whole[:6, :12])
    assert (array[6:, 6:] == VOID).all()


def test_mosaic_of_one_cell_is_the_cell(tmp_path):
    values = terrain(7, 7)
    made_cell(tmp_path / "a.dt0", values, step=(6000, 6000))
    index = anychunk.index([tmp_path / "a.dt0"], combine="mosaic")
    np.testing.assert_array_equal(anychunk.open(index)["0/0/image"][...], values)


def test_mosaic_of_several_zones_is_refused(tmp_path):
    """Lines of longitude are farther apart in the north; posts are not resampled."""
    made_cell(tmp_path / "a.dt0", terrain(7, 7), lat="0490000N", step=(6000, 6000))
    made_cell(tmp_path / "b.dt0", terrain(7, 5), lat="0500000N", step=(9000, 6000))
    with pytest.raises(FormatError, match=r"b\.dt0.*pixel size .* expected 0\.1666"):
        anychunk.index(f"{tmp_path}/*.dt0", combine="mosaic")
