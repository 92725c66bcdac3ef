"""Volumes, comparison, measuring, the list of many files, tokens and changes, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile

from tests.support.browser import ROOT, Look, expected, served
from tests.support.patience import wait_until

pytestmark = pytest.mark.processes


AXE = ROOT / "packages/anychunk-serve/viewer/node_modules/axe-core/axe.min.js"
MANY = 400


def volume() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (40, 60, 90)).astype(np.uint8)


def scene(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (3, 120, 160)).astype(np.uint8)


def write_scene(path: Path, seed: int, left: float) -> None:
    transform = rasterio.transform.from_origin(440720 + left, 3751320, 10, 10)
    profile = {"driver": "GTiff", "width": 160, "height": 120, "count": 3, "dtype": "uint8"}
    with rasterio.open(path, "w", crs="EPSG:32611", transform=transform, **profile) as out:
        out.write(scene(seed))


@pytest.fixture(scope="module")
def size() -> dict[str, int]:
    return {"width": 1100, "height": 740}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("tools")
    np.save(found / "volume.npy", volume())
    write_scene(found / "before.tif", 1, 0)
    write_scene(found / "after.tif", 2, 400)
    (found / "many").mkdir()
    for number in range(MANY):
        np.save(found / f"many/{number:04}.npy", np.zeros((2, 3), np.uint8))
    return found


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    with served(folder) as url:
        yield url


def middle(look: Look, selector: str = "#stage") -> tuple[float, float]:
    box = look.page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def size_of(pixels: np.ndarray) -> tuple[int, int]:
    return pixels.shape[1], pixels.shape[0]


def test_planes_along_all_axes_share_a_cross_hair(look):
    data = volume()
    look.goto("#file=volume.npy&image=0&planes=1&at=z:5,y:20,x:30&view=45,30,2")
    look.page.wait_for_selector("#picture-xz[data-settled=true]")
    look.page.wait_for_selector("#picture-yz[data-settled=true]")
    xy, xz, yz = (look.pixels(f"#picture{name}") for name in ("", "-xz", "-yz"))
    limits = [(0, 255)]
    assert np.array_equal(xy, expected(data[None, 5], limits, (45, 30, 2), size_of(xy)))
    assert np.array_equal(xz, expected(data[None, :, 20], limits, (45, 20, 2), size_of(xz)))
    across = data[:, :, 30].T[None]
    assert np.array_equal(yz, expected(across, limits, (20, 30, 2), size_of(yz)))
    # the middle of the xz pane is x 45, z 20
    x, y = middle(look, ".stage.is-xz")
    look.page.mouse.click(x + 1, y + 1)
    assert look.hash()["at"] == "z:20,y:20,x:45"
    assert look.page.get_by_label("z", exact=True).input_value() == "20"
    assert look.complaints == []


def test_maximum_of_a_slab(look):
    data = volume()
    look.goto("#file=volume.npy&image=0&at=z:10&slab=5&view=45,30,2")
    found = look.pixels()
    slab = data[8:13].max(axis=0)[None]
    assert np.array_equal(found, expected(slab, [(0, 255)], (45, 30, 2), size_of(found)))


def test_two_images_in_one_place(look):
    look.goto("#file=before.tif&image=0&with=after.tif&withImage=0&part=0.5&view=80,60,2")
    look.page.wait_for_function("() => !document.querySelector('.divider').hidden")
    look.settle()
    found = look.pixels()
    width, height = size_of(found)
    limits = [(0, 255)] * 3
    one = expected(scene(1), limits, (80, 60, 2), (width, height))
    # 400 m further east are 40 pixels
    two = expected(scene(2), limits, (40, 60, 2), (width, height))
    assert np.array_equal(found[:, : width // 2], one[:, : width // 2])
    there = two[:, width // 2 + 1 :, 3] > 0
    assert np.array_equal(found[:, width // 2 + 1 :][there], two[:, width // 2 + 1 :][there])
    look.page.click("#tab-tools")
    look.page.get_by_role("button", name="Side by side").click()
    look.page.wait_for_selector("#picture-side[data-settled=true]")
    beside = look.pixels("#picture-side")
    assert np.array_equal(beside, expected(scene(2), limits, (40, 60, 2), size_of(beside)))
    assert look.complaints == []


def test_places_and_lengths(look):
    look.goto("#file=before.tif&image=0&graticule=1")
    look.page.click("#tab-tools")
    look.page.get_by_label("coordinates to go to").fill("441525, 3750515")
    look.page.get_by_role("button", name="Go", exact=True).click()
    look.settle()
    x, y, _ = look.hash()["view"].split(",")
    assert (float(x), float(y)) == (80.5, 80.5)
    look.page.mouse.move(*middle(look))
    look.page.wait_for_selector("#value[data-level='0']")
    # pyproj: EPSG:32611 to EPSG:4326 of (441525, 3750515) is 33.89339 N, 117.63241 W
    text = look.page.locator("#readout").inner_text()
    assert "441525.0, 3750515.0 EPSG:32611" in text
    lat, lon = re.search(r"([\d.]+)° N, ([\d.]+)° W", text).groups()
    pyproj = pytest.importorskip("pyproj", reason="pyproj is not here: pip install pyproj")
    convert = pyproj.Transformer.from_crs(32611, 4326, always_xy=True)
    assert (-float(lon), float(lat)) == pytest.approx(convert.transform(441525, 3750515), abs=1e-4)
    # a rectangle by the keyboard alone: two corners in the middle of the view
    look.page.get_by_role("button", name="Rectangle").click()
    look.page.locator("#stage").focus()
    look.page.keyboard.press("Enter")
    for _ in range(2):
        look.page.keyboard.press("ArrowLeft")
        look.page.keyboard.press("ArrowUp")
    look.page.keyboard.press("Enter")
    look.page.wait_for_selector(".statistics")
    text = look.page.locator("#result").inner_text()
    columns, rows, left, top = map(
        int, re.search(r"(\d+) . (\d+) from (\d+), (\d+)", text).groups()
    )
    part = scene(1)[:, top : top + rows, left : left + columns]
    means = look.page.locator(".statistics tbody tr").first.locator("td").all_inner_texts()
    assert [float(mean) for mean in means] == pytest.approx(part.mean(axis=(1, 2)), abs=0.06)
    code = f"array[0:3, {top}:{top + rows}, {left}:{left + columns}]"
    assert code in look.page.locator("#code").inner_text()
    assert look.complaints == []


def test_many_files_are_listed_as_far_as_they_are_seen(look):
    look.goto("#file=volume.npy&image=0")
    assert f"{MANY + 3} files" in look.page.locator(".files-count").inner_text()
    assert 0 < look.page.locator(".file").count() < 40
    look.page.locator(".files-list").evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
    look.page.locator(".file-title", has_text=f"{MANY - 1:04}.npy").wait_for()
    assert look.page.locator(".file").count() < 40
    look.page.keyboard.press("f")
    look.page.keyboard.type("name:before")
    look.page.wait_for_function("() => document.querySelectorAll('.file').length === 1")
    assert look.page.locator(".files-count").inner_text() == f"1 of {MANY + 3}"
    # on to the image, and open it, by the keyboard
    look.page.locator(".image-button").focus()
    look.page.keyboard.press("Enter")
    look.settle()
    assert look.hash()["file"] == "before.tif"
    look.page.get_by_label("search files").fill("")
    look.page.get_by_role("button", name=re.compile(r"^many")).click()
    look.page.wait_for_function(
        f"() => document.querySelector('.files-count').textContent.startsWith('{MANY} of')"
    )
    assert look.complaints == []


def tab_to(look: Look, selector: str) -> None:
    """Press the tabulator until an element that matches has the focus."""
    for _ in range(200):
        look.page.keyboard.press("Tab")
        if look.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached")


def test_the_keyboard_alone(look):
    """Find a file, open it, move, zoom, change planes, contrast and panels, and measure."""
    keys = look.page.keyboard
    look.goto("")
    keys.press("f")
    keys.type("name:volume")
    look.page.wait_for_function("() => document.querySelectorAll('.file').length === 1")
    tab_to(look, ".image-button")
    keys.press("Enter")
    look.settle()
    assert look.hash()["file"] == "volume.npy"
    tab_to(look, "#stage")
    keys.press("1")
    keys.press("+")
    keys.press("ArrowRight")
    keys.press(".")
    look.settle()
    state = look.hash()
    x, y, zoom = map(float, state["view"].split(","))
    assert (x > 45, zoom, state["at"]) == (True, 2, "z:21")
    found = look.pixels()
    plane = volume()[21][None]
    assert np.array_equal(found, expected(plane, [(0, 255)], (x, y, 2), size_of(found)))
    # limits by their fields
    tab_to(look, ".histogram-fields input")
    keys.press("Control+a")
    keys.type("100")
    keys.press("Enter")
    look.settle()
    assert look.hash()["limits"] == "100,255"
    found = look.pixels()
    assert np.array_equal(found, expected(plane, [(100, 255)], (x, y, 2), size_of(found)))
    # panels are tabs: one is reached, the others by arrows
    tab_to(look, "[role=tab][aria-selected=true]")
    before = look.page.evaluate("() => document.activeElement.id")
    keys.press("ArrowRight")
    after = look.page.evaluate("() => document.activeElement.id")
    assert before != after
    assert look.page.locator(f"#{after}").get_attribute("aria-selected") == "true"
    # the tools by their key, a distance by two points in the middle of the view
    keys.press("r")
    tab_to(look, "#body-tools .button")
    keys.press("Enter")
    tab_to(look, "#stage")
    keys.press("Enter")
    keys.press("ArrowRight")
    keys.press("Enter")
    look.page.wait_for_function("() => document.querySelector('#result')?.textContent.trim()")
    keys.press("Escape")
    keys.press("?")
    look.page.locator("dialog").wait_for(state="visible")
    keys.press("Escape")
    look.page.locator("dialog").wait_for(state="hidden")
    assert look.complaints == []


def test_a_changed_file_is_shown_anew(chromium, size, tmp_path):
    path, following = tmp_path / "served/changing.tif", tmp_path / "next.tif"
    path.parent.mkdir()
    tifffile.imwrite(path, np.full((30, 40), 10, np.uint8))
    tifffile.imwrite(following, np.full((30, 50), 200, np.uint8))
    with served(path.parent) as url:
        context = chromium.new_context(viewport=size, reduced_motion="reduce")
        look = Look(context.new_page(), url.rstrip("/"))

        def brightest():
            return look.pixels().max(axis=(0, 1)).tolist()

        look.goto("#file=changing.tif&image=0&view=20,15,4")
        assert brightest() == [10, 10, 10, 255]
        following.replace(path)
        look.page.wait_for_function(
            "() => document.querySelector('#toast').textContent.includes('changed')"
        )
        # the old picture stays until the new one is drawn
        wait_until(lambda: brightest() == [200, 200, 200, 255])
        context.close()


def test_the_token_stays_out_of_the_address(chromium, size, folder):
    with served(folder / "before.tif", "--token", "s3cret") as url:
        root = url.split("?")[0].rstrip("/")
        context = chromium.new_context(viewport=size)
        look = Look(context.new_page(), root)
        look.page.goto(f"{root}/?token=s3cret#file=before.tif&image=0")
        look.settle()
        assert "s3cret" not in look.page.url
        look.page.reload()
        look.settle()
        look.page.click("#tab-openin")
        text = look.page.locator("#body-openin").inner_text()
        assert text.count("Bearer s3cret") == 3
        assert "it cannot send a token" in text
        assert look.complaints == []
        context.close()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious(chromium, size, address, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not here: make tools")
    context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    look = Look(context.new_page(), address)
    shown = "#file=volume.npy&image=0&planes=1"
    for tab in ("display", "tools", "chunk", "metadata", "openin", "channels"):
        if tab == "channels":
            shown = "#file=before.tif&image=0&draw=channels"
        if tab in ("display", "channels"):
            look.goto(shown)
            look.page.evaluate(AXE.read_text("utf-8"))
        else:
            look.page.click(f"#tab-{tab}")
        found = look.page.evaluate(
            """async () => (await axe.run()).violations
              .filter(({ impact }) => impact === "serious" || impact === "critical")
              .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`)"""
        )
        assert found == [], tab
    context.close()


def test_pinch_and_pan(chromium, address):
    context = chromium.new_context(viewport={"width": 390, "height": 780}, has_touch=True)
    look = Look(context.new_page(), address)
    look.goto("#file=before.tif&image=0&view=80,60,2")
    x, y = middle(look)
    devtools = context.new_cdp_session(look.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touched = [{"x": a, "y": b, "id": i} for i, (a, b) in enumerate(points)]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    touch("touchStart", (x - 30, y), (x + 30, y))
    touch("touchMove", (x - 60, y), (x + 60, y))
    touch("touchEnd")
    look.settle()
    assert float(look.hash()["view"].split(",")[2]) == pytest.approx(4, rel=0.02)
    before = float(look.hash()["view"].split(",")[0])
    touch("touchStart", (x, y))
    for step in range(1, 5):
        touch("touchMove", (x - 10 * step, y))
    touch("touchEnd")
    look.settle()
    assert float(look.hash()["view"].split(",")[0]) == pytest.approx(before + 10, abs=0.6)
    assert look.complaints == []
    context.close()
