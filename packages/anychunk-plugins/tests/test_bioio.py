"""The reader in the real bioio, by bioio's own checks."""

import pickle
import subprocess
import sys
import warnings
from datetime import timedelta

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.metadata.drawing import channels
from anychunk.metadata.meaning import Axis
from tests.support.http_server import serve
from tests.support.made_images import made
from tests.support.scenes import RANDOM, cells, picture

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of bioio's libraries, on import
    bioio = pytest.importorskip(
        "bioio", reason="bioio is not installed: make test-in ENV=integrations"
    )
    from bioio.plugins import get_plugins, plugin_feasibility_report
    from bioio_base import exceptions, test_utilities

    from anychunk_plugins.bioio import Reader, ReaderMetadata

pytestmark = pytest.mark.filterwarnings("ignore")


def check(container, path, *, level=0, **expected):
    """Run bioio's own checks of a reader, or of `BioImage` with it."""
    return test_utilities.run_image_file_checks(
        ImageContainer=container,
        image=path,
        set_resolution_level=level,
        expected_current_resolution_level=level,
        expected_metadata_type=dict,
        reader_kwargs={},
        **{f"expected_{key}" if key != "set_scene" else key: v for key, v in expected.items()},
    )


def image(path, **options):
    return bioio.BioImage(path, reader=Reader, **options)


@pytest.mark.parametrize("container", [Reader, image], ids=["Reader", "BioImage"])
@pytest.mark.parametrize("level", [0, 1])
def test_channels_sizes_and_levels(tmp_path, container, level):
    path, data = cells(tmp_path)
    step = 2**level
    found = check(
        container,
        path,
        level=level,
        set_scene="embryo",
        scenes=("embryo",),
        current_scene="embryo",
        resolution_levels=(0, 1),
        shape=(1, 2, 3, 96 // step, 160 // step),
        dtype=np.dtype("uint16"),
        dims_order="TCZYX",
        channel_names=["DAPI", "GFP"],
        physical_pixel_sizes=(2.0, 0.5 * step, 0.25 * step),
    )
    np.testing.assert_array_equal(found.data[0], data[..., ::step, ::step])
    assert found.resolution_level_dims == {0: (1, 2, 3, 96, 160), 1: (1, 2, 3, 48, 80)}
    assert str(found.dimension_properties.X.unit) == "micrometer"
    assert found.dimension_properties.T.unit is None


def test_lazy(tmp_path):
    path, data = cells(tmp_path)
    found = image(path)
    part = found.get_image_dask_data("YX", C=1, Z=2)
    np.testing.assert_array_equal(part.compute(), data[1, 2])
    np.testing.assert_array_equal(found.get_image_dask_data("ZYX", C=0).compute(), data[0])


def test_scenes(tmp_path):
    path = tmp_path / "a.tif"
    first = RANDOM.integers(0, 9, (8, 9)).astype("uint8")
    second = RANDOM.integers(0, 9, (20, 30)).astype("uint16")
    with tifffile.TiffWriter(path) as out:
        out.write(first)
        out.write(second)
    for container in (Reader, image):
        test_utilities.run_multi_scene_image_read_checks(
            ImageContainer=container,
            image=path,
            first_scene_id=0,
            first_scene_shape=(1, 1, 1, 8, 9),
            first_scene_dtype=np.dtype("uint8"),
            second_scene_id="Image:1",
            second_scene_shape=(1, 1, 1, 20, 30),
            second_scene_dtype=np.dtype("uint16"),
            allow_same_scene_data=False,
            reader_kwargs={},
        )
    found = image(path)
    assert found.scenes == ("Image:0", "Image:1")
    found.set_scene(1)
    assert found.channel_names == ["Channel:1:0"]
    np.testing.assert_array_equal(found.get_image_data("YX"), second)


def test_pictures_have_samples(tmp_path):
    path, data = picture(tmp_path / "a.tif")
    found = check(
        Reader,
        path,
        set_scene="Image:0",
        scenes=("Image:0",),
        current_scene="Image:0",
        resolution_levels=(0, 1),
        shape=(1, 1, 1, 256, 384, 3),
        dtype=np.dtype("uint8"),
        dims_order="TCZYXS",
        channel_names=["Channel:0:0"],
        physical_pixel_sizes=(None, 10.0, 10.0),
    )
    np.testing.assert_array_equal(found.data[0, 0, 0], data.transpose(1, 2, 0))
    assert str(found.dimension_properties.Y.unit) == "meter"
    assert found.metadata["proj:code"] == "EPSG:32633"


def test_a_time_series(tmp_path):
    axes = [Axis(name="t", unit="minute", scale=2.0), Axis(name="y"), Axis(name="x")]
    display = channels([{"band": 0, "label": "GFP"}])
    values = RANDOM.integers(0, 9, (5, 8, 8)).astype("uint8")
    made(tmp_path, [values], axes=axes, display=display).save(tmp_path / "a.json")
    found = image(tmp_path / "a.json")
    assert found.dims.order == "TCZYX"
    assert found.time_interval == timedelta(minutes=2)
    assert found.channel_names == ["GFP"]
    assert found.physical_pixel_sizes == (None, None, None)
    np.testing.assert_array_equal(found.get_image_data("TYX"), values)


def test_bioio_chooses_it_for_files_of_no_other_reader(tmp_path):
    values = RANDOM.integers(0, 9, (4, 8, 8)).astype("uint16")
    anychunk.write(values, tmp_path / "a.n5")
    found = bioio.BioImage(tmp_path / "a.n5")
    assert isinstance(found.reader, Reader)
    np.testing.assert_array_equal(found.get_image_data("ZYX"), values)
    claimed = {ext for ext, plugins in get_plugins(use_cache=False).items() for p in plugins}
    ours = ReaderMetadata.get_supported_extensions()
    assert set(ours) <= claimed
    others = {".tif", ".tiff", ".ome.tif", ".ome.tiff", ".zarr", ".png", ".jpg", ".czi", ".nd2"}
    others |= {".lif", ".dv", ".jp2", ".nrrd", ".nii", ".nii.gz", ".svs", ".ndpi", ".lsm", ".stk"}
    assert not others & set(ours)
    with pytest.raises(exceptions.UnsupportedFileFormatError):
        bioio.BioImage(cells(tmp_path)[0])
    report = plugin_feasibility_report(str(cells(tmp_path)[0]))
    assert report["anychunk-plugins"].supported


@pytest.mark.processes
def test_a_url(tmp_path):
    _, data = cells(tmp_path)
    with serve(tmp_path) as served:
        found = image(f"{served.url}/cells.ome.tif")
        np.testing.assert_array_equal(found.get_image_data("CZYX"), data)


def test_a_filesystem_with_options(tmp_path):
    path, data = cells(tmp_path)
    found = image(path, fs_kwargs={"auto_mkdir": False})
    np.testing.assert_array_equal(found.get_image_data("CZYX"), data)


def test_options_of_the_index(tmp_path):
    values = RANDOM.integers(0, 9, (4, 6, 8)).astype("uint16")
    anychunk.write(values, tmp_path / "a.n5")
    found = image(tmp_path / "a.n5", axes="xyz")
    assert sorted(found.shape) == [1, 1, 4, 6, 8]


def test_refused(tmp_path):
    (tmp_path / "a.ntf").write_text("no image")
    with pytest.raises(exceptions.UnsupportedFileFormatError, match="anychunk"):
        Reader(tmp_path / "a.ntf")
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "none.ntf")
    np.save(tmp_path / "line.npy", np.arange(5))
    with pytest.raises(exceptions.UnsupportedFileFormatError, match="no array"):
        Reader(tmp_path / "line.npy")
    with pytest.raises(TypeError, match="expected a path"):
        Reader(np.zeros((2, 2)))


def test_a_reader_is_pickled(tmp_path):
    path, data = cells(tmp_path)
    found = pickle.loads(pickle.dumps(Reader(path)))
    np.testing.assert_array_equal(found.data[0], data)


@pytest.mark.processes
def test_the_plug_in_is_light():
    code = "import sys, bioio_base, anychunk_plugins.bioio as m; m.ReaderMetadata"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"zarr", "anychunk.api", "obstore"} & set(done.stdout.split())
