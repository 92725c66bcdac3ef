"""`_repr_html_`: what it says, that files cannot inject into it, and that it reads little."""

import base64
import io
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser

import numpy as np
import PIL.Image
import pytest
import rasterio
import tifffile
import zarr

import anychunk
from anychunk import notebooks
from anychunk.decode.chunks import ChunkReader
from anychunk.metadata.drawing import grey
from anychunk.metadata.meaning import Axis
from anychunk.notebooks import Budget
from tests.support.http_server import serve
from tests.support.made_images import made
from tests.support.patience import PATIENCE_S

VOID = {"img", "br"}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for pictures as long as a busy machine takes."""
    monkeypatch.setattr(notebooks, "SECONDS", PATIENCE_S)


class Page(HTMLParser):
    """The elements and texts of HTML; fails where elements are not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " | ".join(self.texts)

    def picture(self):
        """Return the picture as Pillow reads it."""
        (source,) = [attrs["src"] for tag, attrs in self.elements if tag == "img"]
        data = base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True)
        return np.asarray(PIL.Image.open(io.BytesIO(data)))


def page(shown):
    found = shown._repr_html_()
    assert isinstance(found, str)
    return Page(found)


@pytest.fixture
def scene(tmp_path):
    """Write a georeferenced colour picture with overviews of 512 and 256 pixels."""
    path = tmp_path / "scene.tif"
    profile = {"driver": "GTiff", "width": 1024, "height": 512, "count": 3, "dtype": "uint8"}
    profile |= {"tiled": True, "blockxsize": 128, "blockysize": 128, "photometric": "RGB"}
    transform = rasterio.transform.from_origin(500_000, 4_000_000, 10, 10)
    with rasterio.open(path, "w", crs="EPSG:32633", transform=transform, **profile) as out:
        data = np.zeros((3, 512, 1024), "uint8")
        data[0, :, :512], data[2, :, 512:] = 200, 100
        out.write(data)
        out.build_overviews([2, 4], rasterio.enums.Resampling.nearest)
    return path


@pytest.mark.parametrize("what", ["group", "index", "array", "level"])
def test_a_scene(scene, what):
    shown = {
        "group": anychunk.open,
        "index": anychunk.index,
        "array": anychunk.open_array,
        "level": lambda path: anychunk.open(path)["0"],
    }[what](scene)
    found = page(shown)
    drawn = found.picture()
    assert drawn.shape == (96, 192, 3)
    assert drawn[50, 20].tolist() == [200, 0, 0]
    assert drawn[50, 170].tolist() == [0, 0, 100]
    for text in ("EPSG:32633", "x 500000 to 510240", "y 3994880 to 4000000", "uint8"):
        assert text in found.text
    assert "3 x 512 x 1024" in found.text
    if what != "array":
        assert "3 x 256 x 512" in found.text
        assert "3 x 128 x 256" in found.text
        assert "40 \N{MULTIPLICATION SIGN} 40" in found.text
    if what in ("group", "index"):
        assert str(scene) in found.text


def test_the_code_that_is_shown_runs(scene):
    for name, shown in (
        ("group", anychunk.open(scene)),
        ("index", anychunk.index(scene)),
        ("array", anychunk.open_array(scene)),
    ):
        lines = re.search(r"<pre[^>]*>(.*?)</pre>", shown._repr_html_())[1]
        for line in lines.replace("&quot;", '"').split("<br>"):
            code = f"import anychunk, xarray\nfound = {line}"
            scope = {name: shown}
            exec(code, scope)
            assert scope["found"] is not None
        if name != "index":
            np.testing.assert_array_equal(
                anychunk.open_array(scene)[0, :512, :512],
                eval(lines.split("<br>")[0], {name: shown}),
            )


def test_only_the_fitting_level_is_read(scene, monkeypatch):
    read = []
    begin = ChunkReader.begin

    def noted(self, *args, **kwargs):
        read.append(self.index.shape)
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(ChunkReader, "begin", noted)
    page(anychunk.open(scene)).picture()
    assert set(read) == {(3, 128, 256)}


@pytest.mark.processes
def test_a_remote_scene_costs_few_requests(scene):
    with serve(scene.parent) as served:
        group = anychunk.open(f"{served.url}/scene.tif")
        before = len(served.requests)
        assert page(group).picture().shape == (96, 192, 3)
        ranges = [span for _, span in served.requests[before:] if span]
        count = sum(b - a + 1 for a, b in (map(int, s[6:].split("-")) for s in ranges))
        assert len(ranges) <= 2
        assert count < 200_000  # of 2 MB


def test_physical_sizes_and_names(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        np.zeros((2, 5, 40, 80), "uint16"),
        metadata={
            "axes": "CZYX",
            "Name": "embryo",
            "PhysicalSizeX": 0.25,
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": 0.5,
            "PhysicalSizeYUnit": "µm",
            "PhysicalSizeZ": 2.0,
            "PhysicalSizeZUnit": "µm",
        },
    )
    found = page(anychunk.open(tmp_path / "a.ome.tif")).text
    assert "embryo" in found
    assert "z 10 µm, y 20 µm, x 20 µm" in found
    assert "2 µm \N{MULTIPLICATION SIGN} 0.5 µm \N{MULTIPLICATION SIGN} 0.25 µm" in found


ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def test_text_of_files_is_escaped(tmp_path):
    path = tmp_path / f"{ATTACK.replace('/', '')}.ome.tif"
    metadata = {"axes": "CYX", "Name": ATTACK, "Channel": {"Name": [ATTACK, "b"]}}
    tifffile.imwrite(path, np.zeros((2, 8, 8), "uint8"), metadata=metadata)
    store = zarr.open_group(tmp_path / "a.zarr", mode="w")
    name = ATTACK.replace("/", "")
    array = store.create_array(
        name, shape=(8, 8), chunks=(8, 8), dtype="uint8", dimension_names=[ATTACK, "x"]
    )
    array.attrs["proj:code"] = ATTACK
    array.attrs["units"] = ATTACK
    described = {"axes": [{"name": "y", "unit": ATTACK}, {"name": "x", "unit": ATTACK}]}
    described["datasets"] = [{"path": name, "coordinateTransformations": []}]
    store.attrs["ome"] = {"version": "0.5", "multiscales": [{**described, "name": ATTACK}]}
    shown = [anychunk.open(path), anychunk.open(tmp_path / "a.zarr")]
    shown += [
        anychunk.index(path),
        anychunk.open_array(path),
        anychunk.open_array(tmp_path / "a.zarr"),
    ]
    shown += [anychunk.verify(path), anychunk.convert(path, tmp_path / f"{name}.zarr")]
    for one in shown:
        found = page(one)
        assert {tag for tag, _ in found.elements} <= {
            *("div", "b", "img", "br", "table", "tr", "td", "th", "pre"),
        }
        assert all(not name.startswith("on") for _, attrs in found.elements for name in attrs)


def test_a_large_level_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(ChunkReader, "begin", lambda *_: pytest.fail("chunks are read"))
    monkeypatch.setattr(notebooks, "BUDGET", Budget(decoded=255))
    found = page(made(tmp_path, [np.zeros((16, 16), "uint8")], display=grey()))
    assert "img" not in [tag for tag, _ in found.elements]
    assert "no picture" in found.text


@pytest.mark.parametrize("limit", ["decoded", "stored", "chunks"])
def test_limits_of_a_picture(tmp_path, monkeypatch, limit):
    index = made(tmp_path, [np.ones((16, 16), "uint8")], chunk=(4, 4), display=grey())
    exact = {"decoded": 256, "stored": 256, "chunks": 16}[limit]
    monkeypatch.setattr(notebooks, "BUDGET", Budget(**{limit: exact}))
    assert page(index).picture().shape == (16, 16)
    monkeypatch.setattr(notebooks, "BUDGET", Budget(**{limit: exact - 1}))
    assert "<img" not in index._repr_html_()


def test_slow_and_failing_pictures_are_left_out(tmp_path, monkeypatch):
    index = made(tmp_path, [np.ones((16, 16), "uint8")], display=grey())
    never = threading.Event()
    assert notebooks.within(0.01, never.wait) is None
    never.set()
    assert notebooks.within(PATIENCE_S, lambda: 7) == 7
    assert notebooks.within(PATIENCE_S, lambda: 1 // 0) is None
    for path in tmp_path.glob("*.raw"):
        path.unlink()
    found = page(index)  # the rest is still shown
    assert "16 x 16" in found.text
    assert "<img" not in index._repr_html_()


def test_a_failure_falls_back_to_text(tmp_path, monkeypatch):
    index = made(tmp_path, [np.ones((16, 16), "uint8")])
    monkeypatch.setattr(notebooks, "index_html", lambda *_, **__: 1 // 0)
    assert index._repr_html_() is None
    assert anychunk.open(index)._repr_html_() is None
    assert "16 x 16" in repr(index)


def test_many_images_are_not_all_listed(tmp_path):
    index = made(tmp_path, [np.ones((4, 4), "uint8")], images=40)
    found = page(index)
    assert "… and more" in found.text
    assert len(found.elements) < 400


def test_data_that_are_not_images(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5.0))
    for shown in (anychunk.open(tmp_path / "a.npy"), anychunk.open_array(tmp_path / "a.npy")):
        found = page(shown)
        assert "float64" in found.text
        assert "img" not in [tag for tag, _ in found.elements]
    np.save(tmp_path / "b.npy", np.zeros((0, 4)))
    assert "0 x 4" in page(anychunk.open(tmp_path / "b.npy")).text


def test_reports(tmp_path):
    data = np.arange(64 * 64, dtype="uint8").reshape(64, 64)
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(16, 16), compression="zlib")
    found = page(anychunk.verify(tmp_path / "a.tif", against="tifffile")).text
    assert "good" in found
    assert "16, 0 of them absent" in found
    assert "tifffile" in found
    found = page(anychunk.convert(tmp_path / "a.tif", tmp_path / "a.zarr", verify=True)).text
    assert "verified | yes" in found
    assert "4.0 KiB" in found
    index = anychunk.index(tmp_path / "a.tif")
    raw = bytearray((tmp_path / "a.tif").read_bytes())
    (array,) = [a for _, a in index.arrays()]
    start = int(array.chunks.offsets.flat[3])
    raw[start : start + 8] = bytes(8)
    (tmp_path / "b.tif").write_bytes(raw)
    found = page(anychunk.verify(tmp_path / "b.tif")).text
    assert "not good" in found
    assert "error" in found


def test_units_of_axes(tmp_path):
    axes = [Axis(name="y", unit="millimeter", scale=2.0), Axis(name="x", unit="furlong", scale=1.0)]
    found = page(made(tmp_path, [np.ones((4, 5), "uint8")], axes=axes)).text
    assert "y 8 mm, x 5 furlong" in found


@pytest.mark.processes
def test_opening_does_not_load_what_notebooks_need(scene):
    code = "import sys, anychunk; anychunk.open(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, scene], capture_output=True, text=True, check=True
    )
    assert not {"anychunk_plugins", "anychunk.thumbnail"} & set(done.stdout.split())


@pytest.mark.filterwarnings("ignore")
def test_ipython_shows_html_and_text(scene):
    formatters = pytest.importorskip(
        "IPython.core.formatters", reason="IPython is not installed: pip install ipython"
    )
    for shown in (anychunk.open(scene), anychunk.open_array(scene), anychunk.index(scene)):
        data, _ = formatters.DisplayFormatter().format(shown)
        assert "EPSG:32633" in data["text/html"]
        assert len(data["text/plain"]) < 1000
