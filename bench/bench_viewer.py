"""The viewer: time to the first picture of a large COG, and repainting without blank pixels."""

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.windows import Window

from bench.measure import Row
from tests.support.browser import Look, browser, served

SIDE, QUICK_SIDE, BLOCK = 20_000, 4_000, 2_000
ZOOM = 0.51
"""At full resolution: 9 tiles of 512 x 512 in the window."""
VIEWPORT = {"width": 1280, "height": 800}

# milliseconds since the request: until something is drawn, and until everything is
TIMES = """() => {
  window.times = {};
  const small = new OffscreenCanvas(32, 32).getContext("2d", { willReadFrequently: true });
  const look = () => {
    const canvas = document.querySelector("#picture");
    if (canvas && canvas.width > 300) {
      small.drawImage(canvas, 0, 0, 32, 32);
      const isDrawn = small.getImageData(16, 16, 1, 1).data[3] > 0;
      if (isDrawn && !window.times.first) window.times.first = performance.now();
      if (isDrawn && canvas.dataset.settled === "true") window.times.sharp = performance.now();
    }
    if (!window.times.sharp) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
# the longest time between two frames, and the most transparent pixels in one
FRAMES = """() => {
  Object.assign(window, { most_blank: 0, longest: 0, last: performance.now() });
  const canvas = document.querySelector("#picture");
  const { width, height } = canvas;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  const watch = (now) => {
    context.clearRect(0, 0, width, height);
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    let blank = 0;
    for (let i = 3; i < data.length; i += 4) blank += data[i] === 0;
    window.most_blank = Math.max(window.most_blank, blank);
    window.longest = Math.max(window.longest, now - window.last);
    window.last = now;
    requestAnimationFrame(watch);
  };
  requestAnimationFrame(watch);
}"""


def make_cog(folder: Path, side: int) -> Path:
    """Write a smooth field with noise with GDAL: uint16, tiles of 512, deflate, all overviews."""
    plain, cog = folder / "plain.tif", folder / "large.tif"
    profile: dict[str, Any] = {"width": side, "height": side, "count": 1, "dtype": "uint16"}
    place = {"crs": "EPSG:32611", "transform": rasterio.transform.from_origin(4e5, 4e6, 10, 10)}
    noise = np.random.default_rng(0).normal(0, 0.01, (BLOCK, BLOCK)).astype(np.float32)
    tiles = {"tiled": True, "blockxsize": 512, "blockysize": 512, "compress": "zstd"}
    with rasterio.open(plain, "w", driver="GTiff", **profile, **place, **tiles) as out:
        for top in range(0, side, BLOCK):
            for left in range(0, side, BLOCK):
                y = (top + np.arange(BLOCK, dtype=np.float32))[:, None] / side
                x = (left + np.arange(BLOCK, dtype=np.float32))[None] / side
                smooth = np.sin(9 * x + 4 * y) * np.cos(7 * y) + 0.4 * np.sin(40 * x * y)
                values = (smooth + noise + 2) * 12000
                out.write(values.astype(np.uint16), 1, window=Window(left, top, BLOCK, BLOCK))
    options = {"compress": "deflate", "level": 1, "num_threads": 2, "predictor": 2}
    rasterio.shutil.copy(plain, cog, driver="COG", blocksize=512, **options)
    plain.unlink()
    return cog


def first_picture(started: Any, cog: Path) -> dict[str, float]:
    """Time a server that has just started, with an empty browser cache."""
    with served(cog, is_fresh=True) as address:
        context = started.new_context(viewport=VIEWPORT)
        context.add_init_script(f"({TIMES})()")
        page = context.new_page()
        page.goto(f"{address}/")
        page.wait_for_function("() => window.times.sharp")
        times: dict[str, float] = page.evaluate("() => window.times")
        context.close()
    return {name: value / 1000 for name, value in times.items()}


def repaint(started: Any, cog: Path, side: int) -> tuple[int, float, int]:
    """Pan, zoom and change colours; return blank pixels, the longest frame and its tiles."""
    with served(cog, is_fresh=True) as address:
        context = started.new_context(viewport=VIEWPORT)
        look = Look(context.new_page(), address)
        look.goto(f"#file=large.tif&image=0&view={side / 2},{side / 2},{ZOOM}")
        width, height = look.page.evaluate("() => [picture.width, picture.height]")
        look.page.evaluate(FRAMES)
        for key in (
            "ArrowLeft",
            "ArrowUp",
            "+",
            "ArrowRight",
            "ArrowDown",
            "-",
            "m",
            "a",
            "-",
            "+",
        ) * 2:
            look.page.keyboard.press(key)
            look.page.wait_for_timeout(60)
        look.settle()
        blank, longest = look.page.evaluate("() => [most_blank, longest]")
        context.close()
    tiles = (int(width / ZOOM) // 512 + 1) * (int(height / ZOOM) // 512 + 1)
    return blank, longest / 1000, tiles


def run(quick: bool) -> list[Row]:
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        print("no chromium here: the page is not measured")
        return []
    side = QUICK_SIDE if quick else SIDE
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        cog = make_cog(Path(folder), side)
        size = cog.stat().st_size >> 20
        first_picture(started, cog)  # includes the start of the browser, so it is not counted
        times = [first_picture(started, cog) for _ in range(1 if quick else 5)]
        blank, longest, tiles = repaint(started, cog, side)
    first = [t["first"] for t in times]
    sharp = [t["sharp"] for t in times]
    about = f"seconds; {side} x {side} uint16, {size} MiB"
    return [
        Row(f"first picture of a COG, {side} a side", statistics.median(first), "<= 1.5",
            f"{about}; worst {max(first):.2f}"),
        Row("the same, all of it sharp", statistics.median(sharp), "",
            f"seconds; worst {max(sharp):.2f}"),
        Row(f"blank pixels while a window of {tiles} tiles repaints", blank, "0",
            f"longest frame {longest * 1000:.0f} ms"),
    ]  # fmt: skip
