"""The page of `anychunk serve` in a real browser: the right pixels, from every format.

All comparisons of pixels are exact: the files are lossless, and from zoom 1 on nothing is smoothed.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.demo import FILES
from tests.support.browser import Look, expected, served

pytestmark = pytest.mark.processes


# how (c, y, x) comes out of what was written, at a position of the slider
COLOUR, STACK, CHANNELS = "colour", "stack", "channels"
CASES = {
    "scene.tif": ("0", COLOUR, "c"),
    "image.ntf": ("0", COLOUR, None),
    "photo.jp2": ("0", COLOUR, "c"),
    "tissue.n5": ("", STACK, "z"),
    "scan.jnrrd": ("0", STACK, "z"),
    "volume.npy": ("0", STACK, "z"),
    "cells.ome.tif": ("0", CHANNELS, "z"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("served")
    made = {name: FILES[name].make(folder / name) for name in CASES}
    others = {name: read_raster(folder / name) for name, data in made.items() if data is None}
    large = np.tile(others["scene.tif"], (1, 2, 2))
    anychunk.write(large, str(folder / "large.tif"), axes="cyx")
    return folder, made | others | {"large.tif": large}


def read_raster(path: Path) -> np.ndarray:
    with rasterio.open(path) as file:
        return file.read()


def holes() -> np.ndarray:
    out = np.linspace(0, 1, 1200, dtype=np.float32).reshape(30, 40)
    out[10:20, 5:30] = np.nan
    return out


def odd_files(folder: Path) -> None:
    """Write files that cannot be shown, or only in part."""
    np.save(folder / "waves.npy", np.ones((20, 30), np.complex64))
    np.save(folder / "holes.npy", holes())
    (folder / "broken.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff")
    path = folder / "torn #1.tif"
    ramp = (np.arange(512 * 512, dtype=np.uint32) % 251).astype(np.uint8).reshape(512, 512)
    tifffile.imwrite(path, ramp, tile=(256, 256), compression="zlib")
    with tifffile.TiffFile(path) as tiff:
        offset, length = tiff.pages[0].dataoffsets[3], tiff.pages[0].databytecounts[3]
    damaged = bytearray(path.read_bytes())
    damaged[offset : offset + length] = b"\xff" * length
    path.write_bytes(damaged)


@pytest.fixture(scope="module")
def address(files) -> Iterator[str]:
    with served(files[0]) as url:
        yield url


@pytest.fixture(scope="module")
def odd_address(tmp_path_factory) -> Iterator[str]:
    """Serve files that cannot be shown, or only in part."""
    folder = tmp_path_factory.mktemp("odd")
    odd_files(folder)
    with served(folder) as url:
        yield url


@pytest.fixture
def odd(look, odd_address) -> Look:
    look.address = odd_address
    return look


def planes_of(data: np.ndarray, kind: str, at: int) -> np.ndarray:
    if kind == COLOUR:
        return data
    return data[at][None] if kind == STACK else data[0, at][None]


def limits_of(data: np.ndarray) -> tuple[float, float]:
    """Return limits that differ from the automatic ones, with some values outside."""
    return float(np.percentile(data, 10) // 1), float(np.percentile(data, 85) // 1)


def canvas_size(look: Look) -> tuple[int, int]:
    return tuple(look.page.evaluate("() => [picture.width, picture.height]"))


def link(name: str, image: str, **state: object) -> str:
    return f"#file={quote(name)}&image={image}" + "".join(f"&{k}={v}" for k, v in state.items())


@pytest.mark.parametrize("name", CASES)
def test_format(tab, files, name):
    image, kind, slider = CASES[name]
    data = files[1][name]
    low, high = limits_of(data)
    height, width = data.shape[-2:]
    at = 3
    state = {"limits": f"{low},{high}", "view": f"{width / 2},{height / 2},1"}
    if kind != COLOUR:
        state["at"] = f"{slider}:{at}"
    if kind == CHANNELS:
        state["bands"] = "0"
    planes = planes_of(data, kind, at)

    # the list shows it, with a picture
    tab.goto("")
    button = tab.page.locator(f".image-button[title^='{name} ']")
    button.click()
    tab.settle()
    assert tab.hash()["file"] == name
    picture = button.locator("img").element_handle()
    tab.page.wait_for_function("(img) => img.complete && img.naturalWidth > 0", arg=picture)

    # the right pixels
    tab.goto(link(name, image, **state))
    size = canvas_size(tab)
    view = (width / 2, height / 2, 1)
    assert np.array_equal(tab.pixels(), expected(planes, [(low, high)] * len(planes), view, size))

    # zooms
    tab.page.keyboard.press("+")
    tab.settle()
    assert float(tab.hash()["view"].split(",")[2]) == 2
    twice = (width / 2, height / 2, 2)
    assert np.array_equal(tab.pixels(), expected(planes, [(low, high)] * len(planes), twice, size))

    # the value under the pointer
    box = tab.page.locator("#stage").bounding_box()
    x, y = width // 2 + 7, height // 2 - 11
    left, top = (np.floor(n / 2 - m + 0.5) for n, m in zip(size, (width, height), strict=True))
    tab.page.mouse.move(box["x"] + left + 2 * x + 1, box["y"] + top + 2 * y + 1)
    tab.page.wait_for_selector(f"#value[data-level='0'][data-x='{x}'][data-y='{y}']")
    shown = tab.page.locator("#value").inner_text().split()
    assert shown == [str(int(plane[y, x])) for plane in planes]

    # moves a slider
    if slider == "c":
        tab.page.keyboard.press("c")
        tab.settle()
    if slider is None:
        assert tab.page.locator("#sliders").is_hidden()
    else:
        knob = tab.page.locator(f"input[type=range][aria-label='{slider}']")
        knob.press("ArrowRight")
        tab.settle()
        next_planes = data[1:2] if slider == "c" else planes_of(data, kind, at + 1)
        if slider == "c":  # another band has another contrast
            fields = tab.page.locator(".histogram-fields input")
            for i, value in enumerate((high, low)):
                fields.nth(1 - i).fill(str(value))
                fields.nth(1 - i).press("Enter")
            tab.settle()
        assert np.array_equal(tab.pixels(), expected(next_planes, [(low, high)], twice, size))
    assert tab.complaints == []


def test_coarse_levels_lie_where_they_belong(tab, files):
    data = files[1]["scene.tif"]
    tab.goto(link("scene.tif", "0", limits="0,255", view="600,450,0.5"))
    assert tab.page.locator("#level").inner_text().startswith("level 1")
    shown = tab.pixels()[..., :3].astype(float)
    full = expected(data, [(0, 255)] * 3, (600, 450, 1), (1408, 1448))
    means = full[:, :, :3].reshape(724, 2, 704, 2, 3).mean(axis=(1, 3))
    height, width = shown.shape[:2]
    assert (height, width) == means.shape[:2]
    covered = full.reshape(724, 2, 704, 2, 4)[:, 0, :, 0, 3] > 0
    # GDAL made this level by cubic interpolation: means are near, and half a pixel off would not be
    assert np.abs(shown - means)[covered].mean() < 4


def test_automatic_contrast_is_2_to_98_percent(tab, files):
    data = files[1]["volume.npy"]
    tab.goto(link("volume.npy", "0", at="z:5"))
    low, high = np.percentile(data[5], (2, 98))
    fields = tab.page.locator(".histogram-fields input")
    assert float(fields.nth(0).input_value()) == pytest.approx(low, abs=1)
    assert float(fields.nth(1).input_value()) == pytest.approx(high, abs=1)
    size = canvas_size(tab)
    tab.goto(link("volume.npy", "0", at="z:5", view="150,100,2"))
    assert np.array_equal(tab.pixels(), expected(data[5][None], [(low, high)], (150, 100, 2), size))
    assert tab.complaints == []


def test_nan_is_transparent(odd):
    odd.goto(link("holes.npy", "0", view="20,15,8", limits="0,1"))
    alpha = odd.pixels()[..., 3]
    width, height = canvas_size(odd)
    left, top = width // 2 - 160, height // 2 - 120
    inside = alpha[top : top + 240, left : left + 320][::8, ::8] > 0
    assert np.array_equal(inside, ~np.isnan(holes()))


# counts transparent pixels of the middle of the canvas in every frame
WATCH = """([width, height]) => {
  Object.assign(window, { frames_seen: 0, most_blank: 0 });
  cancelAnimationFrame(window.watching);
  const canvas = document.querySelector("#picture");
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  const watch = () => {
    context.clearRect(0, 0, width, height);
    context.drawImage(canvas, (width - canvas.width) / 2, (height - canvas.height) / 2);
    const { data } = context.getImageData(0, 0, width, height);
    let blank = 0;
    for (let i = 3; i < data.length; i += 4) blank += data[i] === 0;
    window.most_blank = Math.max(window.most_blank, blank);
    window.frames_seen++;
    window.watching = requestAnimationFrame(watch);
  };
  watch();
}"""
SLOW = """() => {
  const fetched = window.fetch; window.given_up = 0;
  window.fetch = async (url, options) => {
    if (!String(url).includes("/c/")) return fetched(url, options);
    const { signal } = options;
    signal.addEventListener("abort", () => window.given_up++, { once: true });
    await new Promise((done, fail) => {
      setTimeout(() => done(window.held), 120);
      signal.addEventListener("abort", () => fail(signal.reason));
    });
    return fetched(url, options);
  };
}"""


def test_a_repaint_never_blanks(look, files):
    """With at least 9 slow tiles in view, old ones stay until new ones arrive."""
    data = files[1]["large.tif"]
    look.page.add_init_script(f"({SLOW})()")
    look.goto(link("large.tif", "0", bands="0", limits="0,255", view="600,450,1"))
    size = canvas_size(look)
    assert (size[0] // 256 + 1) * (size[1] // 256 + 1) >= 9
    # bands, colours and places all over the window; then other levels, in its middle
    for watched, keys in ((size, "..mc a+-"), ((460, 320), "-+-0+-")):
        look.page.evaluate(WATCH, list(watched))
        for key in keys:
            look.page.keyboard.press("ArrowLeft" if key == " " else key)
            look.frames(4)
        look.settle()
        assert look.page.evaluate("() => [most_blank, frames_seen > 20]") == [0, True], keys
    look.goto(link("large.tif", "0", bands="2", limits="0,255", view="600,450,1"))
    assert np.array_equal(look.pixels(), expected(data[2:], [(0, 255)], (600, 450, 1), size))
    assert look.complaints == []


def test_tiles_no_longer_seen_are_given_up(look, files):
    look.page.add_init_script(f"({SLOW})()")
    look.goto(link("volume.npy", "0", at="z:0", limits="0,40000", view="150,100,2"))
    look.page.evaluate("() => { window.held = new Promise((done) => { window.release = done; }); }")
    for _ in range(9):
        look.page.keyboard.press(".")
        look.frames(2)
    look.page.evaluate("() => window.release()")
    look.settle()
    assert look.page.evaluate("() => window.given_up") >= 5
    shown = expected(
        files[1]["volume.npy"][9][None], [(0, 40000)], (150, 100, 2), canvas_size(look)
    )
    assert np.array_equal(look.pixels(), shown)
    assert look.complaints == []


def test_what_cannot_be_shown_says_why(odd):
    odd.goto(link("waves.npy", "0"), is_settled=False)
    odd.page.locator("#message h2").wait_for()
    text = odd.page.locator("#message").inner_text()
    assert "complex64 is not drawn" in text
    odd.page.click("#tab-openin")
    assert 'anychunk.open("waves.npy")' in odd.page.locator("#body-openin").inner_text()
    broken = odd.page.locator(".file.is-broken").inner_text()
    assert "broken.tif" in broken
    assert "65535 entries" in broken
    assert not [line for line in odd.complaints if "thumb" not in line]  # the torn file has none


def test_a_torn_chunk_is_hatched_not_empty(odd):
    odd.goto(link("torn #1.tif", "0", view="256,256,1", limits="0,255"))
    assert "torn #1.tif" in odd.page.locator("#toast").inner_text()
    shown = odd.pixels()
    width, height = canvas_size(odd)
    torn = shown[height // 2 + 8 : height // 2 + 248, width // 2 + 8 : width // 2 + 248]
    assert (torn[..., 3] > 0).all()
    assert (torn[..., 0] > torn[..., 1]).all()  # red lines, no grey
    ramp = (np.arange(512 * 512, dtype=np.uint32) % 251).astype(np.uint8).reshape(1, 512, 512)
    whole = expected(ramp, [(0, 255)], (256, 256, 1), (width, height))
    assert np.array_equal(shown[: height // 2], whole[: height // 2])
    assert all("502" in complaint for complaint in odd.complaints)  # the browser's own line


def test_a_chunk_tells_its_codec_and_bytes(tab, files):
    tab.goto(link("scene.tif", "0", grid="1", view="600,400,1"))
    box = tab.page.locator("#stage").bounding_box()
    tab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    panel = tab.page.locator(".chunk")
    panel.wait_for()
    text = panel.inner_text()
    with tifffile.TiffFile(files[0] / "scene.tif") as tiff:
        page = tiff.pages[0]
        number = 1 * 3 + 2  # row 1, column 2 of 3 x 3 tiles
        offset = page.dataoffsets[number]
    assert "(0, 1, 2)" in text
    assert "tiff-tile" in text
    assert f"{offset:,}".replace(",", " ") in text.replace(" ", " ")
    over = tab.page.evaluate(
        "() => over.getContext('2d').getImageData(0, 0, over.width, over.height).data.some((v) => v > 0)"
    )
    assert over
    assert tab.complaints == []


def test_metadata_is_found_by_search(look):
    look.goto(link("scene.tif", "0"))
    look.page.keyboard.press("/")
    look.page.keyboard.type("UTM zone")
    tree = look.page.locator(".tree")
    look.page.wait_for_selector("mark")
    assert "WGS 84 / UTM zone 11N" in tree.inner_text()
    assert "ImageWidth" not in tree.inner_text()
    assert look.complaints == []


def test_position_in_map_coordinates(tab):
    tab.goto(link("scene.tif", "0", view="600,450,1"))
    box = tab.page.locator("#stage").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2 + 0.5, box["y"] + box["height"] / 2 + 0.5)
    # pixel (600, 450): 440720 + 600.5 * 10, 3751320 - 450.5 * 10
    tab.page.wait_for_selector("#value[data-level='0']")
    assert "446725.0, 3746815.0 EPSG:32611" in tab.page.locator("#readout").inner_text()


def test_phone_and_keys(chromium, address):
    context = chromium.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=2)
    look = Look(context.new_page(), address)
    look.goto(link("tissue.n5", ""))
    assert look.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert look.page.locator("#files").is_hidden()
    look.page.click("button[aria-label='files']")
    look.page.locator(".image-button[title^='photo.jp2']").click()
    look.settle()
    assert look.hash()["file"] == "photo.jp2"
    look.page.click("button[aria-label='display, chunk, metadata']")
    look.page.locator("#panel").wait_for(state="visible")
    look.page.click("#panel button[aria-label='close']")
    look.page.keyboard.press("?")
    assert "chunk grid" in look.page.locator("dialog").inner_text()
    look.page.keyboard.press("Escape")
    look.page.locator("dialog").wait_for(state="hidden")
    before = look.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    look.page.keyboard.press("t")
    look.page.wait_for_function(
        "before => getComputedStyle(document.body).backgroundColor !== before", arg=before
    )
    assert look.complaints == []
    context.close()
