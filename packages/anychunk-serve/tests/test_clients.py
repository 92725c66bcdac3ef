"""Third-party clients read what is served, and get the pixels of the files."""

import json
import shutil
import subprocess
import warnings
from functools import cache
from pathlib import Path

import nibabel
import numpy as np
import pytest
import rasterio
import tensorstore
import zarr
from obstore.store import HTTPStore
from zarr.storage import ObjectStore

import anychunk
from tests.support import served_files as files
from tests.support.patience import PATIENCE_S
from tests.support.serving import running

pytestmark = pytest.mark.processes


VIEWER = Path(__file__).parents[1] / "viewer"
PREFIXES = ["zarr", "zarr-raw"]
PAGE = "https://neuroglancer-demo.appspot.com"
"""A web page that may read what is served."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("served")
    for name in files.NAMES:
        files.make(made, name)
    return made


@pytest.fixture(scope="module")
def server(folder):
    with running(folder, "--origin", PAGE) as found:
        yield found


@pytest.fixture(scope="module")
def listed(server):
    return server.files()


def place(server, listed, name, prefix="zarr"):
    """Return the path of the first level of the first image."""
    return place_in(f"{server.url}/{prefix}/{name}", listed[name]["images"][0]["path"])


@cache
def place_in(url, image):
    group = zarr.open_group(http_store(url), mode="r")
    shown = group[image] if image else group
    level = shown.attrs["ome"]["multiscales"][0]["datasets"][0]["path"]
    return f"{image}/{level}" if image else level


first = cache(files.first)
"""The path and the pixels of the first level, by our own reader."""


def http_store(url):
    return ObjectStore(HTTPStore.from_url(url, client_options={"allow_http": True}), read_only=True)


def test_every_file_is_listed(listed):
    assert set(listed) == set(files.NAMES)
    assert {name: record["error"] for name, record in listed.items() if record["error"]} == {}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", files.NAMES)
def test_zarr_python(server, folder, listed, name, prefix):
    path = place(server, listed, name, prefix)
    group = zarr.open_group(http_store(f"{server.url}/{prefix}/{name}"), mode="r")
    assert group.metadata.consolidated_metadata is not None
    expected = first(folder / name)[1]
    found = group[path]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found[...], expected)


@pytest.mark.parametrize("name", files.NAMES)
def test_raw_keeps_the_codecs_of_the_file(server, folder, name):
    own_path, expected = first(folder / name)
    store = http_store(f"{server.url}/raw/{name}")
    found = zarr.open_array(store, path=own_path, mode="r")
    np.testing.assert_array_equal(found[...], expected)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", files.NAMES)
def test_tensorstore(server, folder, listed, name, prefix):
    url = f"{server.url}/{prefix}/{name}/{place(server, listed, name)}/"
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": url}}
    found = tensorstore.open(spec, read=True).result()
    expected = first(folder / name)[1]
    np.testing.assert_array_equal(found.read().result(), expected)


@pytest.mark.parametrize("name", [n for n in files.NAMES if "bool" not in n])
def test_gdal(server, folder, listed, name):
    with rasterio.Env() as env:
        if "Zarr" not in env.drivers():
            pytest.skip("this GDAL has no Zarr driver")
    path = place(server, listed, name)
    expected = first(folder / name)[1]
    url = f'ZARR:"/vsicurl/{server.url}/zarr/{name}":/{path}'
    if expected.ndim == 3 and expected.shape[0] > 1:
        url += ":0"
        expected = expected[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), rasterio.open(url) as found:
            np.testing.assert_array_equal(found.read().squeeze(), expected.squeeze())


NODE = """
import * as zarr from "zarrita";
const [base, ...paths] = JSON.parse(process.argv[1]);
const found = {};
for (const path of paths) {
  const array = await zarr.open(new zarr.FetchStore(`${base}/${path}`), { kind: "array" });
  const { data, shape } = await zarr.get(array);
  const plain = Array.from(data, (value) => typeof value === "bigint" ? value.toString() : Number(value));
  found[path] = { shape, values: plain };
}
process.stdout.write(JSON.stringify(found));
"""
ZARRITA = [n for n in files.NAMES if "complex" not in n and "float16" not in n]
"""zarrita has no complex numbers, and Node 20 no Float16Array."""


def test_zarrita(server, folder, listed):
    if shutil.which("node") is None or not (VIEWER / "node_modules" / "zarrita").is_dir():
        pytest.skip("Node with zarrita is not here: install Node 20, then make tools")
    paths = {f"zarr/{name}/{place(server, listed, name)}": name for name in ZARRITA}
    done = subprocess.run(
        ["node", "--input-type=module", "-e", NODE, json.dumps([server.url, *paths])],
        cwd=VIEWER,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for path, found in json.loads(done.stdout).items():
        expected = first(folder / paths[path])[1]
        plain = [int(v) if isinstance(v, str) else v for v in found["values"]]
        values = np.array(plain, expected.dtype).reshape(found["shape"])
        np.testing.assert_array_equal(values, expected, err_msg=path)


def test_neuroglancer_takes_the_source(server, listed):
    import neuroglancer

    name = "uint16.tif"
    url = f"zarr3://{server.url}/zarr/{name}/{listed[name]['images'][0]['path']}/"
    state = neuroglancer.ViewerState()
    state.layers.append(name="image", layer=neuroglancer.ImageLayer(source=url))
    kept = neuroglancer.ViewerState(json.loads(json.dumps(state.to_json())))
    assert kept.layers["image"].source[0].url == url
    # the first request of its zarr3 source
    status, body, headers = server.get(f"/zarr/{name}/0/zarr.json", Origin=PAGE)
    assert (status, headers["access-control-allow-origin"]) == (200, PAGE)
    described = json.loads(body)["attributes"]["ome"]
    assert described["version"] == "0.5"
    axes = [axis["name"] for axis in described["multiscales"][0]["axes"]]
    assert axes[-2:] == ["y", "x"]


@pytest.mark.parametrize("steps", [(1, 1, 1), (1, 1, 3), (2, 3, 4)])
@pytest.mark.parametrize("form", ["sform", "qform"])
def test_positions_of_nifti(tmp_path, steps, form):
    """A step of 1 that an affine states is served as any other, also of a Zarr copy."""
    affine = np.diag([*steps, 1.0])
    image = nibabel.Nifti1Image(np.zeros((5, 4, 3), "int16"), affine)
    image.set_sform(affine, 2 if form == "sform" else 0)
    image.set_qform(affine, 2 if form == "qform" else 0)
    nibabel.save(image, tmp_path / "a.nii")
    anychunk.convert(tmp_path / "a.nii", tmp_path / "a.zarr")
    theirs = nibabel.load(tmp_path / "a.nii").affine
    with running(tmp_path / "a.nii", tmp_path / "a.zarr") as server:
        listed = server.files()
        for name in ("a.nii", "a.zarr"):
            group = zarr.open_group(http_store(f"{server.url}/zarr/{name}"), mode="r")
            level = group[place(server, listed, name).rpartition("/")[0]]
            for number, axis in enumerate("xyz"):
                indices = np.zeros((image.shape[number], 3))
                indices[:, number] = range(len(indices))
                expected = nibabel.affines.apply_affine(theirs, indices)[:, number]
                np.testing.assert_allclose(level[axis][...], expected, err_msg=f"{name} {axis}")
