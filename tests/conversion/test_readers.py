"""What the installed readers make of a conversion; the readers are not ours."""

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import rasterio

import anychunk
from tests.cli.test_cli import run
from tests.support import zarr_readers
from tests.support.zarr_readers import READERS, check_readers

pytestmark = [
    pytest.mark.skipif(find_spec(package) is None, reason=f"not here: pip install {package}")
    for package in ("xarray", "rioxarray", "ome_zarr_models", "zarrs")
]
EVERYWHERE = set(READERS) - {"ome-zarr"}  # its newest release refuses the installed dask


def answers(source, target, **options):
    return {check.reader.split()[0]: check for check in check_readers(source, target, **options)}


@pytest.fixture
def masked(tmp_path):
    profile = {"driver": "GTiff", "width": 600, "height": 530, "count": 1, "dtype": "uint16"}
    place = {
        "crs": "EPSG:32611",
        "transform": rasterio.transform.from_origin(440720, 3751320, 10, 10),
    }
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(tmp_path / "m.tif", "w", **profile, **place) as out,
    ):
        out.write(np.arange(530 * 600, dtype="uint16").reshape(1, 530, 600))
        out.write_mask(np.full((530, 600), 255, "uint8"))
    return tmp_path / "m.tif"


def test_the_default_is_read_by_every_reader(cog, masked, tmp_path):
    for number, file in enumerate((cog[0], masked)):
        target = tmp_path / f"{number}.zarr"
        report = anychunk.convert(file, target)
        found = answers(file, target)
        assert set(found) >= EVERYWHERE
        assert {name for name in EVERYWHERE if not found[name].is_good} == set(), found
        assert "EPSG:32611" in found["rasterio"].what
        assert not report.notes


def test_the_preset_for_older_viewers_is_read_by_every_reader(cog, masked, tmp_path):
    for number, file in enumerate((cog[0], masked)):
        target = tmp_path / f"{number}.zarr"
        anychunk.convert(file, target, like="ome-zarr-0.4")
        found = answers(file, target, like="ome-zarr-0.4")
        assert {name for name in EVERYWHERE if not found[name].is_good} == set(), found
        assert "EPSG:32611" in found["rasterio"].what
        assert "0.4" in found["ome-zarr-models"].what


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_the_root_lists_levels_in_gdal(cog, tmp_path):
    anychunk.convert(cog[0], tmp_path / "b.zarr")
    with rasterio.open(f'ZARR:"{tmp_path}/b.zarr"') as root:
        assert f'ZARR:"{tmp_path}/b.zarr":/0/image' in root.subdatasets
    with rasterio.open(tmp_path / "b.zarr/0") as level:
        assert level.shape == (515, 770)
        np.testing.assert_array_equal(level.read(), cog[1])


def test_volumes_and_planes(tmp_path):
    for axes, shape in (("zyx", (5, 60, 70)), ("tczyx", (2, 3, 4, 60, 70)), ("yx", (60, 70))):
        np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 99, shape, "uint16"))
        anychunk.convert(tmp_path / "a.npy", tmp_path / "b.zarr", axes=axes, overwrite=True)
        found = answers(tmp_path / "a.npy", tmp_path / "b.zarr", axes=axes)
        assert {name for name in EVERYWHERE if not found[name].is_good} == set(), found


def test_shards_are_said_not_to_be_read_by_gdal(cog, tmp_path):
    report = anychunk.convert(cog[0], tmp_path / "b.zarr", like="cloud")
    assert "GDAL" in report.notes[0]
    found = answers(cog[0], tmp_path / "b.zarr", like="cloud")
    assert found["zarr"].is_good
    assert found["zarrs"].is_good
    if tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 13):
        assert not found["rasterio"].is_good


def test_wrong_samples_are_noticed(cog, tmp_path, monkeypatch):
    real = zarr_readers.ask

    def wrong(*given):
        question = real(*given)
        return replace(question, expected=question.expected + 1)

    monkeypatch.setattr(zarr_readers, "ask", wrong)
    anychunk.convert(cog[0], tmp_path / "b.zarr")
    found = answers(cog[0], tmp_path / "b.zarr")
    assert not any(found[name].is_good for name in EVERYWHERE - {"ome-zarr-models"})


def test_command(capsys, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4, 5), "uint8"))
    arguments = ["convert", str(tmp_path / "a.npy"), str(tmp_path / "b.zarr")]
    code, out, err = run(capsys, *arguments, "--json", "--overwrite")
    assert code == 0
    assert "dim_0" in err
    assert "dim_0" in json.loads(out)["losses"][0]
    code, out, err = run(capsys, *arguments, "--strict", "--overwrite")
    assert code == 2
    assert err.startswith("lost: ")
