"""The colours of the page, against formulas that are written down here once more.

Opaque pixels that are painted without a GPU are compared exactly, those of a GPU within 1. Partly
transparent ones are composited over the stated background first, within 1: browsers keep colours
multiplied by alpha.
"""

import colorsys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

from tests.support.browser import Look, served

pytestmark = pytest.mark.processes


HEIGHT, WIDTH = 60, 80
BACKGROUND = np.array([40, 80, 120.0])
"""What partly transparent pixels are compared over."""
COLOURS = ("0000FF", "00FF00", "FF8000", "FF00FF")


def ramp(bands: int, *, dtype: str = "uint8", seed: int = 3) -> np.ndarray:
    """Return (y, x, band) of all kinds of values, 0 and the largest included."""
    out = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, (HEIGHT, WIDTH, bands))
    out[:4], out[-4:] = 0, np.iinfo(dtype).max
    return out.astype(dtype)


def as_bytes(colour: np.ndarray) -> np.ndarray:
    return np.floor(255 * np.clip(colour, 0, 1) + 0.5)


def opaque(colour: np.ndarray) -> np.ndarray:
    return np.dstack([colour, np.full(colour.shape[:2], 255.0)])


def miniswhite(path: Path) -> np.ndarray:
    data = ramp(1)[..., 0]
    tifffile.imwrite(path, data, photometric="miniswhite")
    return opaque(np.repeat(255.0 - data[..., None], 3, axis=2))


def palette(path: Path) -> np.ndarray:
    data = ramp(1)[..., 0]
    table = np.random.default_rng(5).integers(0, 65536, (3, 256)).astype(np.uint16)
    tifffile.imwrite(path, data, photometric="palette", colormap=table)
    return opaque((table >> 8).T[data].astype(float))


def cmyk(path: Path) -> np.ndarray:
    data = ramp(4)
    tifffile.imwrite(path, data, photometric="separated")
    inks = data.astype(float)
    return opaque(np.rint((255 - inks[..., :3]) * (255 - inks[..., 3:]) / 255))


def photograph(path: Path) -> np.ndarray:
    data = ramp(3)[..., :3] // 2 + 40  # never stretched, though no value is 0 or 255
    tifffile.imwrite(path, data, photometric="rgb")
    return opaque(data.astype(float))


def straight_alpha(path: Path) -> np.ndarray:
    data = ramp(4)
    tifffile.imwrite(path, data, photometric="rgb", extrasamples=["unassalpha"])
    return data.astype(float)


def associated_alpha(path: Path) -> np.ndarray:
    data = ramp(4).astype(float)
    alpha = data[..., 3:] / 255
    data[..., :3] = np.floor(data[..., :3] * alpha)
    tifffile.imwrite(path, data.astype(np.uint8), photometric="rgb", extrasamples=["assocalpha"])
    return np.dstack([data[..., :3] / np.maximum(alpha, 1e-9), data[..., 3]])


def masked(path: Path) -> np.ndarray:
    data = ramp(3)
    valid = np.zeros((HEIGHT, WIDTH), np.uint8)
    valid[10:50, 8:70] = 255
    profile = {"driver": "GTiff", "width": WIDTH, "height": HEIGHT, "count": 3, "dtype": "uint8"}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", photometric="rgb", **profile) as out:
            out.write(data.transpose(2, 0, 1))
            out.write_mask(valid)
    return np.dstack([data.astype(float), valid])


def nodata(path: Path) -> np.ndarray:
    data = ramp(1)[..., 0]
    profile = {"driver": "GTiff", "width": WIDTH, "height": HEIGHT, "count": 1, "dtype": "uint8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", nodata=0, **profile) as out:
            out.write(data[None])
    return np.dstack([data.astype(float)] * 3 + [np.where(data == 0, 0, 255)])


def fluorescence(path: Path) -> np.ndarray:
    """Write four channels with colours; the limits are those that the test's link states."""
    data = ramp(4, dtype="uint16").transpose(2, 0, 1)
    # OME has colours as signed 32-bit integers of red, green, blue and alpha
    numbers = [int.from_bytes(bytes.fromhex(f"{c}FF"), "big", signed=True) for c in COLOURS]
    channel = {"Name": ["DAPI", "GFP", "mCherry", "Cy5"], "Color": numbers}
    tifffile.imwrite(path, data, ome=True, metadata={"axes": "CYX", "Channel": channel})
    found = np.zeros((HEIGHT, WIDTH, 3))
    for plane, color in zip(data, COLOURS, strict=True):
        part = np.clip((plane - 1000.0) / (30000 - 1000), 0, 1)
        found += part[..., None] * np.frombuffer(bytes.fromhex(color), np.uint8) / 255
    return opaque(as_bytes(found))


def labels(path: Path) -> np.ndarray:
    data = ramp(1, dtype="uint16")[..., 0] % 900
    tifffile.imwrite(path, data)
    out = np.zeros((HEIGHT, WIDTH, 4))
    for value in np.unique(data[data > 0]):
        out[data == value] = [*label_colour(int(value)), 255]
    return out


def label_colour(label: int) -> tuple[float, ...]:
    """Return the colour of a label: murmur3's last step as hue, saturation and value."""
    mixed = label & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    mixed ^= mixed >> 16
    hue, saturation = (mixed & 0xFFFF) / 65536, 0.5 + (mixed >> 16 & 0xFF) / 512
    rgb = colorsys.hsv_to_rgb(hue, saturation, 0.7 + (mixed >> 24 & 0xFF) / 850)
    return tuple(np.floor(255 * np.array(rgb) + 0.5))


WINDOWS = ";".join(f"{band}::1000:30000::" for band in range(4))
KINDS = {
    "miniswhite": (miniswhite, ""),
    "palette": (palette, ""),
    "cmyk": (cmyk, ""),
    "photograph": (photograph, ""),
    "straight_alpha": (straight_alpha, ""),
    "associated_alpha": (associated_alpha, ""),
    "masked": (masked, ""),
    "nodata": (nodata, ""),
    "fluorescence": (fluorescence, f"&painter=canvas&channels={WINDOWS}"),
    "labels": (labels, "&draw=labels"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("colours")
    return folder, {kind: make(folder / f"{kind}.tif") for kind, (make, _) in KINDS.items()}


@pytest.fixture(scope="module")
def address(files) -> Iterator[str]:
    with served(files[0]) as url:
        yield url


@pytest.fixture(scope="module")
def switches() -> tuple[str, ...]:
    return ("--enable-unsafe-swiftshader",)


def over(picture: np.ndarray) -> np.ndarray:
    """Composite (red, green, blue, alpha) over the background."""
    alpha = picture[..., 3:].astype(float) / 255
    return picture[..., :3] * alpha + BACKGROUND * (1 - alpha)


def drawn(look: Look, kind: str, state: str) -> np.ndarray:
    """Return the picture of a file as the page draws it, pixel by pixel."""
    look.goto(f"#file={kind}.tif&image=0&view={WIDTH / 2},{HEIGHT / 2},1{state}")
    pixels = look.pixels()
    height, width = pixels.shape[:2]
    top, left = (
        int(np.floor(height / 2 - HEIGHT / 2 + 0.5)),
        int(np.floor(width / 2 - WIDTH / 2 + 0.5)),
    )
    inside = pixels[top : top + HEIGHT, left : left + WIDTH]
    assert not pixels[:top].any()
    assert not pixels[:, :left].any()
    return inside


@pytest.mark.parametrize("kind", KINDS)
def test_colours(tab, files, kind):
    found, expected = drawn(tab, kind, KINDS[kind][1]), files[1][kind]
    is_opaque = expected[..., 3] == 255
    assert is_opaque.any()
    assert np.array_equal(found[..., 3], expected[..., 3])
    assert np.array_equal(found[is_opaque], np.floor(expected[is_opaque] + 0.5))
    assert np.abs(over(found) - over(expected)).max() <= 1
    assert tab.complaints == []


def test_channels_on_the_gpu(look, files):
    expected = files[1]["fluorescence"]
    state = KINDS["fluorescence"][1].replace("canvas", "gpu")
    found = drawn(look, "fluorescence", state)
    has_gpu = look.page.evaluate(
        "() => document.createElement('canvas').getContext('webgl2') !== null"
    )
    assert has_gpu, "chromium has WebGL 2 by SwiftShader"
    assert look.page.locator("#picture").get_attribute("data-painter") == "gpu"
    assert np.abs(found.astype(float) - expected).max() <= 1
    # reading a canvas back stalls the emulated GPU, which the browser remarks on
    assert [line for line in look.complaints if "GL Driver Message" not in line] == []
    look.complaints.clear()


def test_legend_and_switches_of_channels(look, files):
    look.goto("#file=fluorescence.tif&image=0")
    legend = look.page.locator("#legend")
    assert legend.inner_text().split() == ["DAPI", "GFP", "mCherry", "Cy5"]
    look.page.get_by_label("show GFP").uncheck()
    look.page.get_by_label("colour of DAPI").fill("#00ffff")
    look.settle()
    assert legend.inner_text().split() == ["DAPI", "mCherry", "Cy5"]
    assert look.hash()["channels"] == "0:00FFFF::::;1:::::0"
    look.page.get_by_role("button", name="only Cy5").click()
    look.settle()
    assert legend.inner_text().split() == ["Cy5"]
    assert look.complaints == []


def test_the_label_under_the_pointer(look, files):
    expected = files[1]["labels"]
    look.goto(f"#file=labels.tif&image=0&draw=labels&view={WIDTH / 2},{HEIGHT / 2},4")
    box = look.page.locator("#stage").bounding_box()
    # the pixel to the right of the middle and below it
    look.page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2 + 2)
    look.page.wait_for_selector("#value[data-level='0']")
    shown = look.page.locator("#value")
    assert shown.inner_text().startswith("label ")
    mark = shown.locator(".ink").evaluate("(mark) => getComputedStyle(mark).backgroundColor")
    red, green, blue = expected[HEIGHT // 2, WIDTH // 2, :3].astype(int)
    assert mark == f"rgb({red}, {green}, {blue})"
