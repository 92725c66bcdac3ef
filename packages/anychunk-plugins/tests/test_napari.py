"""The plug-in in the real napari, without a window, and once with one."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tifffile

from tests.support.http_server import serve
from tests.support.patience import PATIENCE_S
from tests.support.scenes import GRID, cells, picture, raster, segmented

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of napari and its libraries, on import
    napari = pytest.importorskip(
        "napari", reason="napari is not installed: make test-in ENV=integrations"
    )
    import npe2
    from napari.components import ViewerModel
    from napari.layers import Image, Labels

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def plugins():
    manager = npe2.PluginManager.instance()
    manager.discover()
    return manager


@pytest.fixture
def viewer():
    return ViewerModel()


def opened(viewer, path, **options):
    return viewer.open(path, plugin="anychunk-plugins", **options)


def test_the_manifest_is_valid(plugins):
    manifest = npe2.PluginManifest.from_distribution("anychunk-plugins")
    manifest.validate_imports()
    (reader,) = manifest.contributions.readers
    assert reader.accepts_directories
    assert "anychunk-plugins" in [m.name for m in plugins.iter_manifests()]


def test_the_manifest_lists_the_extensions_of_all_formats():
    from anychunk import formats

    (reader,) = npe2.PluginManifest.from_distribution("anychunk-plugins").contributions.readers
    assert {f"*{name}" for name in formats.extensions()} <= set(reader.filename_patterns)


def test_channels(viewer, tmp_path):
    path, data = cells(tmp_path)
    one, two = opened(viewer, str(path))
    assert (one.name, two.name) == ("cells: DAPI", "cells: GFP")
    assert one.multiscale
    np.testing.assert_array_equal(two.data[0], data[1])
    assert one.scale.tolist() == [2, 0.5, 0.25]
    assert [str(unit) for unit in one.units] == ["micrometer"] * 3
    assert one.axis_labels == ("z", "y", "x")
    assert one.blending == "additive"
    assert one.colormap.map(1.0).tolist() == [[0, 0, 1, 1]]
    viewer.dims.set_current_step(0, 2)
    assert viewer.layers.extent.world[1].tolist() == [4, 47.5, 39.75]
    # without a canvas, napari shows the coarsest level
    np.testing.assert_array_equal(shown(one), data[0, 2, ::2, ::2])


def shown(layer):
    """Return the slice that napari would draw."""
    return np.asarray(layer._slice.image.raw)


def test_a_picture_with_levels(viewer, tmp_path):
    path, data = picture(tmp_path / "a.tif")
    (layer,) = opened(viewer, str(path))
    assert isinstance(layer, Image)
    assert layer.rgb
    assert [level.shape for level in layer.data] == [(256, 384, 3), (128, 192, 3)]
    np.testing.assert_array_equal(layer.data[0], data.transpose(1, 2, 0))
    assert layer.data_to_world((0, 0)) == pytest.approx((-3_999_995, 500_005))
    assert [str(unit) for unit in layer.units] == ["meter", "meter"]


def test_a_rotated_grid(viewer, tmp_path):
    transform = GRID * type(GRID).rotation(30)
    data = np.random.default_rng(1).random((1, 128, 128)).astype("float32")
    (layer,) = opened(viewer, str(raster(tmp_path / "a.tif", data, transform=transform)))
    x, y = transform * (20.5, 10.5)
    assert layer.data_to_world((10, 20)) == pytest.approx((-y, x))


def test_a_palette(viewer, tmp_path):
    table = {n: (n * 50, 255 - n * 50, 10, 255) for n in range(5)}
    data = (np.arange(128 * 128).reshape(1, 128, 128) % 5).astype("uint8")
    path = raster(tmp_path / "a.tif", data, photometric="PALETTE", palette=table)
    (layer,) = opened(viewer, str(path))
    low, high = layer.contrast_limits
    drawn = layer.colormap.map((data[0, 0, :5] - low) / (high - low))
    assert np.rint(drawn * 255).astype(int).tolist() == [list(table[n]) for n in range(5)]
    assert layer.get_value((-3_999_995, 500_035), world=True) == 3


def test_labels(viewer, tmp_path):
    path, labels = segmented(tmp_path)
    image, objects = opened(viewer, str(path))
    assert isinstance(objects, Labels)
    np.testing.assert_array_equal(objects.data, labels)
    assert objects.get_color(1).tolist() == [1, 0, 0, 1]
    assert objects.scale.tolist() == image.scale.tolist() == [0.5, 0.5]


def test_files_together_and_a_stack(viewer, tmp_path):
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.tif"))
        tifffile.imwrite(paths[-1], np.full((8, 9), number, "uint8"))
    assert [layer.data.shape for layer in opened(viewer, paths)] == [(8, 9)] * 3
    (stack,) = opened(viewer, paths, stack=True)
    assert np.asarray(stack.data)[:, 0, 0].tolist() == [0, 1, 2]


@pytest.mark.processes
def test_a_url(viewer, tmp_path):
    _, data = picture(tmp_path / "a.tif")
    with serve(tmp_path) as served:
        (layer,) = opened(viewer, f"{served.url}/a.tif")
        np.testing.assert_array_equal(layer.data[1], data[:, ::2, ::2].transpose(1, 2, 0))


def test_types_that_napari_shows(viewer, tmp_path):
    for dtype in ("bool", "int8", "float16", "complex64", "int64", "float64"):
        np.save(tmp_path / f"{dtype}.npy", np.eye(8).astype(dtype))
        (layer,) = opened(viewer, str(tmp_path / f"{dtype}.npy"))
        assert shown(layer).shape == (8, 8)


def test_a_file_of_nobody(viewer, tmp_path):
    (tmp_path / "a.tif").write_text("no image")
    with pytest.raises(ValueError, match="refused"):
        opened(viewer, str(tmp_path / "a.tif"))


WINDOW = """
import json, sys, warnings
warnings.simplefilter("ignore")
import napari
from qtpy.QtWidgets import QApplication
viewer = napari.Viewer()  # a hidden one draws nothing here
found = {}
for name in sys.argv[1:]:
    viewer.layers.clear()
    viewer.open(name, plugin="anychunk-plugins")
    viewer.reset_view()
    QApplication.processEvents()
    pixels = viewer.screenshot(canvas_only=True, flash=False)
    found[name] = pixels[pixels.shape[0] // 2, pixels.shape[1] // 2, :3].tolist()
viewer.close()
print(json.dumps(found))
"""


@pytest.mark.processes
@pytest.mark.skipif(
    importlib.util.find_spec("PyQt6") is None, reason='PyQt6: pip install "napari[pyqt6]"'
)
@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is missing: apt-get install xvfb")
def test_colours_in_a_window(tmp_path):
    colour = np.zeros((3, 256, 256), "uint8") + np.array([200, 100, 50], "uint8")[:, None, None]
    picture_path = raster(tmp_path / "rgb.tif", colour, photometric="RGB")
    table = {0: (0, 0, 0, 255), 1: (10, 200, 30, 255)}
    ones = np.ones((1, 256, 256), "uint8")
    palette_path = raster(tmp_path / "p.tif", ones, photometric="PALETTE", palette=table)
    expected = {str(picture_path): [200, 100, 50], str(palette_path): [10, 200, 30]}
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", "1", "-screen", "0", "1024x768x24"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        display = f":{server.stdout.readline().strip()}"
        done = subprocess.run(
            [sys.executable, "-c", WINDOW, *expected],
            env={**os.environ, "DISPLAY": display, "QT_QPA_PLATFORM": "xcb"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
        server.stdout.close()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected
