"""Images that are turned or mirrored, labels from afar, layers, playing, and taking the picture away."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tifffile

from tests.support.browser import Look, expected, served
from tests.support.patience import wait_until
from tests.test_thumbnail import by_pillow, write_turned

pytestmark = pytest.mark.processes


LABELS_SHAPE = (700, 900)
TURNED = (2, 3, 6, 7)
"""Values of the tag Orientation: mirrored, upside down, rotated, rotated and mirrored."""


def labels() -> np.ndarray:
    """Return labels in spots of 3 x 3 pixels, so that means of 2 x 2 would be other labels."""
    rng = np.random.default_rng(7)
    spots = rng.integers(1, 60_000, (LABELS_SHAPE[0] // 3 + 1, LABELS_SHAPE[1] // 3))
    return spots.astype(np.uint16).repeat(3, 0).repeat(3, 1)[: LABELS_SHAPE[0]]


def photograph(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (60, 80)).astype(np.uint8)


def stack() -> np.ndarray:
    return np.random.default_rng(9).integers(0, 256, (6, 20, 30)).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("drawn")
    for orientation in TURNED:
        write_turned(found / f"turned{orientation}.tif", orientation)
    tifffile.imwrite(found / "labels.tif", labels(), tile=(256, 256))
    for seed in (1, 2):
        tifffile.imwrite(found / f"photograph{seed}.tif", photograph(seed))
    np.save(found / "stack.npy", stack())
    return found


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    with served(folder) as url:
        yield url


def inside(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the middle of a canvas; everything around must be empty."""
    top = int(np.floor(pixels.shape[0] / 2 - height / 2 + 0.5))
    left = int(np.floor(pixels.shape[1] / 2 - width / 2 + 0.5))
    found = pixels[top : top + height, left : left + width]
    assert (pixels[..., 3] > 0).sum() == height * width
    return found


# one of each kind; viewer/tests has the others, tests/test_thumbnail.py all of them
@pytest.mark.parametrize("orientation", TURNED)
def test_turned_images_are_upright(tab, folder, orientation):
    path = folder / f"turned{orientation}.tif"
    upright = by_pillow(path)
    tab.goto(f"#file={path.name}&image=0&view=15,10,4")
    shown = upright.repeat(4, axis=0).repeat(4, axis=1)
    found = inside(tab.pixels(), *shown.shape[:2])
    np.testing.assert_array_equal(found[..., :3], shown)
    # the value under the pointer is that of the pixel seen, its position that in the array
    stored = tifffile.imread(path)
    box = tab.page.locator("#stage").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2 + 6, box["y"] + box["height"] / 2 + 10)
    tab.page.wait_for_selector("#value[data-level='0']")
    row, column = upright.shape[0] // 2 + 2, upright.shape[1] // 2 + 1
    value = tab.page.locator("#value")
    x, y = (int(value.get_attribute(f"data-{name}")) for name in "xy")
    assert value.inner_text().split() == [str(n) for n in upright[row, column]]
    np.testing.assert_array_equal(stored[y, x], upright[row, column])
    # arrow keys move along the screen
    tab.page.locator("#stage").focus()
    tab.page.keyboard.press("ArrowRight")
    tab.settle()
    columns = np.flatnonzero(tab.pixels()[..., 3].any(axis=0))
    rows = np.flatnonzero(tab.pixels()[..., 3].any(axis=1))
    width, height = (tab.page.evaluate(f"() => picture.{side}") for side in ("width", "height"))
    assert columns.mean() < width / 2 - 10
    assert rows.mean() == pytest.approx(height / 2, abs=1)
    assert tab.complaints == []


def test_turned_images_fit_the_window(tab):
    tab.goto("#file=turned6.tif&image=0")
    solid = tab.pixels()[..., 3] > 0
    rows, columns = np.flatnonzero(solid.any(axis=1)), np.flatnonzero(solid.any(axis=0))
    assert len(rows) / len(columns) == pytest.approx(30 / 20, rel=0.01)
    # not cut off, and as large as the free part of the window allows
    assert 0 < rows[0] < rows[-1] < solid.shape[0] - 1
    assert len(rows) > solid.shape[0] * 0.7


NOTE_VALUES = """() => {
  const shown = document.querySelector("#value");
  window.values = [];
  new MutationObserver(() => {
    if (shown.dataset.level) window.values.push([shown.dataset.level, shown.innerText]);
  }).observe(shown, { attributes: true, childList: true });
}"""
"""Keep what is shown below the picture, each with its level."""


def test_labels_from_afar_are_labels_of_the_image(look):
    """Where no pixel of the level is split by the screen, every colour is that of a label."""
    look.goto("#file=labels.tif&image=0&draw=labels&view=450,350,0.5")
    assert look.page.locator("#level").inner_text().startswith("level 1")
    box = look.page.locator("#stage").bounding_box()
    named = {str(value) for value in np.unique(labels())}
    look.page.evaluate(NOTE_VALUES)
    for step in range(8):
        x = box["x"] + box["width"] / 2 - 90 + 21 * step
        look.page.mouse.move(x, box["y"] + box["height"] / 2 + 3 * step)
        # the value of the level is replaced by that of the image
        look.page.wait_for_function(
            "step => values.filter(([level]) => level === '0').length > step", arg=step
        )
    values = look.page.evaluate("() => values")
    assert {"0", "1"} == {level for level, _ in values}
    assert {text.split()[1].replace(",", "") for _, text in values} <= named
    # back and forth without reloading the page
    for mode, prefix in (("Grey", "zarr-raw"), ("Labels", "zarr-labels")):
        with look.page.expect_response(lambda r, p=prefix: f"/{p}/labels.tif/" in r.url):
            look.page.get_by_role("button", name=mode, exact=True).click()
        look.settle()
    assert look.hash()["draw"] == "labels"
    assert look.complaints == []


def test_opacity_of_a_layer(look):
    look.goto(
        "#file=photograph1.tif&image=0&with=photograph2.tif&withImage=0"
        "&compare=over&part=0.25&view=40,30,2"
    )
    look.page.wait_for_function(
        "() => document.querySelector('#picture').dataset.settled === 'true'"
    )
    wait_until(lambda: not is_alone(look))
    found = inside(look.pixels(), 120, 160)
    below, above = (photograph(seed).repeat(2, 0).repeat(2, 1).astype(float) for seed in (1, 2))
    mixed = 0.75 * below + 0.25 * above
    # the browser rounds the opacity to a byte, too
    assert np.abs(found[..., 0] - mixed).max() <= 1.5
    assert look.complaints == []


def is_alone(look: Look) -> bool:
    """Whether the other image is not drawn yet."""
    look.settle()
    below = photograph(1).repeat(2, 0).repeat(2, 1)
    return np.array_equal(inside(look.pixels(), 120, 160)[..., 0], below)


def test_the_picture_is_saved(look):
    look.goto("#file=photograph1.tif&image=0&view=40,30,3")
    shown = look.pixels()
    look.page.click("#tab-tools")
    with look.page.expect_download() as started:
        look.page.get_by_role("button", name="Save as PNG").click()
    download = started.value
    assert download.suggested_filename == "photograph1.tif.png"
    with PIL.Image.open(io.BytesIO(Path(download.path()).read_bytes())) as picture:
        saved = np.asarray(picture.convert("RGBA"))
    assert saved.shape == shown.shape
    np.testing.assert_array_equal(saved[shown[..., 3] > 0], shown[shown[..., 3] > 0])
    assert look.complaints == []


def test_a_copied_link_shows_the_same(chromium, size, folder):
    with served(folder / "photograph1.tif", "--token", "s3cret") as url:
        root = url.split("?")[0].rstrip("/")
        context = chromium.new_context(
            viewport=size, permissions=["clipboard-read", "clipboard-write"]
        )
        look = Look(context.new_page(), root)
        look.page.goto(f"{root}/?token=s3cret#file=photograph1.tif&image=0")
        look.settle()
        for key in ("+", "ArrowLeft", "m"):
            look.page.locator("#stage").focus()
            look.page.keyboard.press(key)
        look.settle()
        wait_until(lambda: look.hash().get("map"))
        shown = look.pixels()
        look.page.click("#tab-tools")
        look.page.locator("#body-tools").get_by_label("copy a link to this view").click()
        link = look.page.evaluate("() => navigator.clipboard.readText()")
        assert "s3cret" not in link
        assert link.startswith(root)
        # the same browser: its cookie has the token
        other = Look(context.new_page(), root)
        other.page.goto(link)
        other.settle()
        np.testing.assert_array_equal(other.pixels(), shown)
        assert look.complaints == other.complaints == []
        context.close()


def test_pictures_per_second(look):
    """By a clock that the test moves: as many planes are shown as the rate says."""
    look.page.clock.install(time=0)
    look.goto("#file=stack.npy&image=0&at=z:0&view=15,10,4")
    count = len(stack())
    knob = look.page.get_by_label("z", exact=True)
    for number in range(1, count + 1):  # all planes are read ahead
        knob.fill(str(number % count))
        look.settle()
    look.page.clock.pause_at(3_600_000)
    look.page.get_by_label("play z").click()
    for rate in (10, 5):
        look.page.get_by_label("pictures per second").select_option(str(rate))
        look.page.clock.run_for(1000)  # what was due by the rate before
        start = int(knob.input_value())
        look.page.clock.run_for(2000)
        assert (int(knob.input_value()) - start) % count == 2 * rate % count
    look.page.get_by_label("pause z").click()
    stopped = knob.input_value()
    look.page.clock.run_for(2000)
    assert knob.input_value() == stopped
    look.page.clock.resume()
    look.settle()
    found = look.pixels()
    plane = stack()[int(stopped)][None]
    size = (found.shape[1], found.shape[0])
    assert np.array_equal(found, expected(plane, [(0, 255)], (15, 10, 4), size))
    assert look.complaints == []
