"""Viewers that run in browsers read what is served: Viv's loaders in Node, neuroglancer in Chromium."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tifffile

from tests.support import served_files as files
from tests.support.browser import PATIENCE_MS, browser
from tests.support.patience import PATIENCE_S
from tests.support.serving import running

pytestmark = pytest.mark.processes


CLIENTS = Path(__file__).parent / "clients"
CHANNELS = ["DAPI", "GFP"]
SCALARS = [
    *(
        f"{dtype}.tif"
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32")
    ),
    *(f"uint16{suffix}" for suffix in files.MAKERS if suffix != ".tif"),
]
"""Every data type that Viv draws, and every format."""


def volume() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (6, 48, 80)).astype(np.uint8)


def cells() -> np.ndarray:
    """Return (c, y, x), large enough for levels."""
    y, x = np.mgrid[0:600, 0:700]
    return np.stack([y * 50 + x, 60000 - y * 20 - x]).astype(np.uint16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("served")
    for name in SCALARS:
        files.make(made, name)
    metadata = {"axes": "CYX", "Channel": {"Name": CHANNELS}}
    tifffile.imwrite(made / "cells.ome.tif", cells(), tile=(256, 256), metadata=metadata)
    tifffile.imwrite(
        made / "volume.ome.tif",
        volume(),
        tile=(32, 32),
        compression="zlib",
        metadata={"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2},
    )
    return made


def by_viv(*urls: str) -> dict[str, dict]:
    if shutil.which("node") is None or not (CLIENTS / "node_modules/@vivjs/loaders").is_dir():
        pytest.skip("Viv's loaders are not here: install Node 20, then make tools")
    command = ["node", str(CLIENTS / "viv.js"), *urls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pixels(found: dict, dtype: np.dtype) -> np.ndarray:
    return np.array(found["values"], dtype).reshape(found["shape"])


def test_viv(folder):
    with running(folder) as server:
        listed = server.files()
        paths = {name: listed[name]["images"][0]["path"] for name in listed}
        urls = {name: f"{server.url}/zarr/{name}/{path}" for name, path in paths.items()}
        answers = by_viv(*urls.values())
    for name in SCALARS:
        expected = files.first(folder / name)[1]
        found = answers[urls[name]]
        assert found["dtype"].lower() == str(expected.dtype)
        plane = expected[1] if expected.ndim == 3 else expected
        np.testing.assert_array_equal(pixels(found["plane"], expected.dtype), plane, err_msg=name)
    found = answers[urls["cells.ome.tif"]]
    assert found["labels"] == ["c", "y", "x"]
    assert found["channels"] == CHANNELS
    assert found["shapes"] == [[2, 600, 700], [2, 300, 350]]
    np.testing.assert_array_equal(pixels(found["plane"], np.dtype("uint16")), cells()[1])
    np.testing.assert_array_equal(pixels(found["tile"], np.dtype("uint16")), cells()[1, :256, :256])


def test_neuroglancer(folder):
    """Its own client draws a plane of a volume, two screen pixels per element."""
    neuroglancer = pytest.importorskip(
        "neuroglancer", reason="neuroglancer is not here: pip install neuroglancer"
    )
    neuroglancer.set_server_bind_address("127.0.0.1")
    with browser("--enable-unsafe-swiftshader") as started:
        viewer = neuroglancer.Viewer()
        page_url = viewer.get_viewer_url()
        origin = "/".join(page_url.split("/")[:3])
        with running(folder / "volume.ome.tif", "--origin", origin) as server:
            source = f"{server.url}/zarr/volume.ome.tif/0/|zarr3:"
            with viewer.txn() as state:
                state.layers["volume"] = neuroglancer.ImageLayer(
                    source=source,
                    shader="void main() { emitGrayscale(float(toRaw(getDataValue())) / 255.0); }",
                )
                state.dimensions = neuroglancer.CoordinateSpace(
                    names=["x", "y", "z"], units="um", scales=[0.5, 0.5, 2]
                )
                # OME-Zarr counts positions from the centre of the first element
                state.position = [39.5, 23.5, 3]
                state.cross_section_scale = 0.5
                state.layout = "xy"
                state.show_axis_lines = state.show_scale_bar = False
                state.show_default_annotations = False
            page = started.new_page(viewport={"width": 400, "height": 300})
            page.set_default_timeout(PATIENCE_MS)
            page.goto(page_url)
            shown = viewer.screenshot(size=[160, 96]).screenshot.image_pixels
            page.close()
    assert shown.shape == (96, 160, 4)
    expected = volume()[3].repeat(2, axis=0).repeat(2, axis=1)
    for band in range(3):
        np.testing.assert_array_equal(shown[..., band], expected)
