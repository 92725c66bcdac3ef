"""Side files compared with GDAL: .aux.xml, world files, .ovr, .msk."""

import shutil

import numpy as np
import pytest
import rasterio
from rasterio.enums import Resampling

import anychunk
from anychunk.errors import SourceChangedError
from anychunk.formats._side_files import world_urls
from anychunk.metadata.reading import meaning_of
from anychunk.model.images import images
from tests.support.http_server import serve

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
DATA = np.random.default_rng(0).integers(1, 250, (2, 120, 80)).astype("uint8")
PLACED = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)}
AUX = """<PAMDataset><SRS>{srs}</SRS>
<GeoTransform> 1.0, 0.5, 0.0, 40.0, 0.0, -0.25</GeoTransform>
<Metadata><MDI key="A">b</MDI></Metadata>
<Metadata domain="OTHER"><MDI key="C">d</MDI></Metadata>
<PAMRasterBand band="1"><Description>first</Description><NoDataValue>5</NoDataValue>
<UnitType>m</UnitType><Offset>3</Offset><Scale>2</Scale><ColorInterp>Red</ColorInterp>
<Metadata><MDI key="STATISTICS_MEAN">4</MDI></Metadata></PAMRasterBand>
<PAMRasterBand band="2"><NoDataValue>5</NoDataValue></PAMRasterBand></PAMDataset>"""


def written(path, array=DATA, **options):
    shape = {"count": len(array), "height": array.shape[1], "width": array.shape[2]}
    with rasterio.open(path, "w", driver="GTiff", dtype="uint8", **shape, **options) as file:
        file.write(array)
    return path


def meaning(path, **options):
    index = anychunk.index(path, **options)
    return meaning_of(index, next(images(index)))


@pytest.mark.parametrize(
    "srs", ["EPSG:4326", rasterio.crs.CRS.from_epsg(4326).to_wkt()], ids=["code", "wkt"]
)
def test_aux_xml_beats_the_file(tmp_path, srs):
    path = written(tmp_path / "a.tif", nodata=7, **PLACED)
    (tmp_path / "a.tif.aux.xml").write_text(AUX.format(srs=srs))
    found = meaning(path)
    with rasterio.open(path) as theirs:
        assert found.place.crs.code == "EPSG:4326" == f"EPSG:{theirs.crs.to_epsg()}"
        assert found.place.transform == tuple(theirs.transform)[:6]
        assert found.nodata == theirs.nodata == 5
        assert tuple(band.scale for band in found.bands) == theirs.scales == (2, 1)
        assert tuple(band.offset for band in found.bands) == theirs.offsets == (3, 0)
        assert tuple(band.name for band in found.bands) == theirs.descriptions
        assert tuple(band.unit for band in found.bands) == theirs.units
        assert found.bands[0].interpretation.lower() == theirs.colorinterp[0].name
        assert dict(found.bands[0].tags) == theirs.tags(1)
        assert found.tags["A"] == theirs.tags()["A"] == "b"
        assert "C" not in found.tags
    assert meaning(path, sidecars=False).place.crs.code == "EPSG:32633"
    assert meaning(path, sidecars=False).nodata == 7


def test_palette_of_aux_xml(tmp_path):
    path = written(tmp_path / "a.tif", DATA[:1])
    entries = "".join(f'<Entry c1="{n}" c2="{255 - n}" c3="9" c4="{n}"/>' for n in range(256))
    (tmp_path / "a.tif.aux.xml").write_text(
        '<PAMDataset><PAMRasterBand band="1"><ColorInterp>Palette</ColorInterp>'
        f"<ColorTable>{entries}</ColorTable></PAMRasterBand></PAMDataset>"
    )
    found = meaning(path).display
    with rasterio.open(path) as theirs:
        assert [tuple(c) for c in found["palette"]["colors"]] == list(theirs.colormap(1).values())
    assert found["model"] == "palette"


def test_ground_control_points_of_aux_xml(tmp_path):
    path = written(tmp_path / "a.tif")
    points = "".join(
        f'<GCP Id="{n}" Pixel="{n}.5" Line="{n * n}" X="{n + 3}" Y="{n - 4}" Z="1"/>'
        for n in range(3)
    )
    (tmp_path / "a.tif.aux.xml").write_text(
        f'<PAMDataset><GCPList Projection="EPSG:4326">{points}</GCPList></PAMDataset>'
    )
    found = meaning(path).place
    with rasterio.open(path) as theirs:
        assert found.gcps == tuple((p.col, p.row, p.x, p.y, p.z) for p in theirs.gcps[0])
    assert found.crs.code == "EPSG:4326"


@pytest.mark.parametrize("numbers", ["10 0 0 -10 500005 4999995", "10 1 2 -10 500005 4999995"])
@pytest.mark.parametrize("extension", ["tfw", "tifw", "wld", "TFW"])
def test_world_file(tmp_path, extension, numbers):
    path = written(tmp_path / ("a.TIF" if extension.isupper() else "a.tif"))
    (tmp_path / f"a.{extension}").write_text(numbers.replace(" ", "\n") + "\n")
    found = meaning(path).place
    with rasterio.open(path) as theirs:
        # GDAL does not look for every one of these; the numbers are the same
        expected = tuple(theirs.transform)[:6]
    if expected != (1, 0, 0, 0, 1, 0):
        assert found.transform == expected
    assert found.transform[0] == 10
    assert found.crs is None


def test_a_world_file_does_not_beat_the_file(tmp_path):
    path = written(tmp_path / "a.tif", **PLACED)
    (tmp_path / "a.tfw").write_text("1\n0\n0\n-1\n0\n0\n")
    with rasterio.open(path) as theirs:
        assert meaning(path).place.transform == tuple(theirs.transform)[:6] == (
            10, 0, 5e5, 0, -10, 5e6,
        )  # fmt: skip


def test_names_of_world_files():
    assert list(world_urls("d/a.jp2"))[:3] == ["d/a.j2w", "d/a.jp2w", "d/a.wld"]
    assert list(world_urls("d.x/a")) == []


@pytest.fixture
def with_levels(tmp_path):
    """A TIFF with two overviews and masks in files of their own, as GDAL writes them."""
    path = written(tmp_path / "a.tif", tiled=True, blockxsize=32, blockysize=32, **PLACED)
    with (
        rasterio.Env(TIFF_USE_OVR=True, GDAL_TIFF_INTERNAL_MASK=False),
        rasterio.open(path, "r+") as file,
    ):
        file.build_overviews([2, 4], Resampling.nearest)
        file.write_mask(np.where(DATA[0] > 100, 255, 0).astype("uint8"))
    assert (tmp_path / "a.tif.ovr").exists()
    assert (tmp_path / "a.tif.msk").exists()
    return path


def test_levels_and_masks(with_levels):
    group = anychunk.open(with_levels)
    assert sorted(group["0"]) == ["0", "1", "2"]
    for level in (0, 1):
        with rasterio.open(with_levels, overview_level=level) as theirs:
            found = group[f"0/{level + 1}/image"][...]
            np.testing.assert_array_equal(found, theirs.read())
    with rasterio.open(with_levels) as theirs:
        np.testing.assert_array_equal(group["0/0/mask"][...], theirs.dataset_mask())
        np.testing.assert_array_equal(group["0/0/image"][...], theirs.read())
    assert group["0"].attrs["anychunk.display"]["mask"] == {"path": "mask", "valid": 255}
    assert sorted(anychunk.open(with_levels, sidecars=False)["0"]) == ["0"]


def test_each_is_pinned(with_levels):
    (with_levels.parent / "a.tif.aux.xml").write_text(AUX.format(srs="EPSG:4326"))
    index = anychunk.index(with_levels)
    names = {url.rpartition("/")[2] for url in index.pins}
    assert names == {"a.tif", "a.tif.ovr", "a.tif.msk", "a.tif.aux.xml"}
    array = anychunk.open(index)["0/1/image"]
    assert array[...].shape == (2, 60, 40)
    path = with_levels.parent / "a.tif.ovr"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(SourceChangedError):
        array[...]


def test_saved_index_refers_to_side_files(with_levels, tmp_path):
    expected = anychunk.open(with_levels)["0/2/image"][...]
    anychunk.save(anychunk.index(with_levels), tmp_path / "a.json")
    np.testing.assert_array_equal(anychunk.open(tmp_path / "a.json")["0/2/image"][...], expected)


@pytest.mark.parametrize(
    "name", ["a.tif.aux.xml", "a.tif.ovr", "a.tif.msk", "a.tfw"], ids=lambda n: n
)
@pytest.mark.parametrize("data", [b"", b"<PAMDataset", b"II*\0\x08\0\0\0\xff\xff", b"<x/>"])
def test_damaged_ones_do_not_prevent_opening(tmp_path, name, data):
    path = written(tmp_path / "a.tif", **PLACED)
    (tmp_path / name).write_bytes(data)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], DATA)
    if name != "a.tfw":
        (reason,) = anychunk.index(path).attributes["tiff"]["refused"]
        assert name in reason


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    path = written(inside / "a.tif", nodata=7, **PLACED)
    (outside / "x.xml").write_text(AUX.format(srs="EPSG:4326"))
    link = inside / "a.tif.aux.xml"
    link.symlink_to(outside / "x.xml")
    assert meaning(path).place.crs.code == "EPSG:32633"
    (reason,) = anychunk.index(path).attributes["tiff"]["refused"]
    assert "a.tif.aux.xml" in reason
    link.unlink()
    shutil.copy(outside / "x.xml", inside / "y.xml")
    link.symlink_to(inside / "y.xml")
    assert meaning(path).place.crs.code == "EPSG:4326"


@pytest.mark.processes
def test_remote_files_are_not_searched_for_unless_asked(with_levels):
    (with_levels.parent / "a.tif.aux.xml").write_text(AUX.format(srs="EPSG:4326"))
    with serve(with_levels.parent) as served:
        url = f"{served.url}/a.tif"
        assert meaning(url).place.crs.code == "EPSG:32633"
        assert {request.split()[1] for request, _ in served.requests} == {"/a.tif"}
        found = anychunk.index(url, sidecars=True)
        assert found["0"].attributes["proj:code"] == "EPSG:4326"
        assert sorted(found["0"].members) == ["0", "1", "2"]
