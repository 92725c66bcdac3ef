"""A served folder, and chromium showing it."""

import base64
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 1000 * PATIENCE_S
"""Playwright gives up after 30 s otherwise."""
SETTLED = "#picture[data-settled=true]"


@contextmanager
def served(*paths: Path | str) -> Iterator[str]:
    """Run `anychunk serve` on files, with options, on a free port; yield its address."""
    with TemporaryDirectory() as folder:
        words = ["serve", *paths, "--port", "0"]
        process = processes.Process(processes.COMMAND, words, Path(folder), cwd=Path.cwd())
        try:
            (line, *_) = process.wait_for_lines(1) or [""]
            assert line.startswith("http://127.0.0.1:"), process.texts()
            yield line.split()[0].rstrip("/")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait()


@contextmanager
def browsers() -> Iterator[Callable[..., Any]]:
    """Yield a function that starts chromium with more switches, once for the same ones: it takes seconds.

    Skip the test if chromium or Playwright is not installed.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not here: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not here: pip install playwright"
    )
    with playwright.sync_playwright() as driver, ExitStack() as stack:

        @cache
        def start(*switches: str) -> Any:
            started = driver.chromium.launch(
                executable_path=path, args=[*SWITCHES, *switches], timeout=PATIENCE_MS
            )
            stack.callback(started.close)
            return started

        yield start


@contextmanager
def browser(*switches: str) -> Iterator[Any]:
    """Start chromium, with more switches, for one test."""
    with browsers() as start:
        yield start(*switches)


@dataclass
class Look:
    """One tab, and the errors and warnings of its console."""

    page: Any
    address: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.complaints.append(f"request to another server: {request.url}")

    def goto(self, hash: str = "", *, is_settled: bool = True) -> None:
        # a new hash alone would not load the page anew
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/{hash}")
        if is_settled:
            self.settle()

    def frames(self, count: int) -> None:
        """Wait until the browser has drawn `count` frames."""
        self.page.evaluate(
            """async (count) => {
              for (; count > 0; count--) await new Promise((done) => requestAnimationFrame(done));
            }""",
            count,
        )

    def settle(self) -> None:
        """Wait until the view is drawn, after two frames in which a change marks it as not drawn."""
        self.page.wait_for_function("() => document.querySelector('#picture')")
        self.frames(2)
        self.page.wait_for_selector(SETTLED)

    def pixels(self, canvas: str = "#picture") -> np.ndarray:
        """Return the pixels of a canvas: (y, x, 4)."""
        text = self.page.evaluate(
            """(name) => {
              const canvas = document.querySelector(name);
              // a copy: reading the canvas itself would change how the browser keeps it
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const context = copy.getContext("2d", { willReadFrequently: true });
              context.drawImage(canvas, 0, 0);
              const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
              let text = "";
              for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
              return [btoa(text), canvas.width, canvas.height];
            }""",
            canvas,
        )
        data, width, height = text
        return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)

    def hash(self) -> dict[str, str]:
        # The page writes it by a timer of 200 ms after the change. A longer one, set later in the same
        # page, ends after it, however slow the machine.
        self.page.evaluate("() => new Promise((done) => setTimeout(done, 260))")
        pairs = self.page.evaluate("() => [...new URLSearchParams(location.hash.slice(1))]")
        return dict(pairs)


def expected(
    planes: np.ndarray,
    limits: list[tuple[float, float]],
    view: tuple[float, float, float],
    size: tuple[int, int],
) -> np.ndarray:
    """Return the expected canvas (y, x, 4) for planes (band, y, x), as in viewer/src/paint.ts."""
    x, y, zoom = view
    width, height = size
    count = int(zoom)
    levels = []
    for plane, (low, high) in zip(planes, limits, strict=True):
        part = np.clip((plane.astype(np.float64) - low) / (high - low), 0, 1)
        levels.append(np.floor(255 * part + 0.5).astype(np.uint8))
    colour = np.stack(levels if len(levels) == 3 else levels * 3, axis=-1)
    image = np.dstack([colour, np.full(colour.shape[:2], 255, np.uint8)])
    image = image.repeat(count, axis=0).repeat(count, axis=1)
    left, top = (
        int(np.floor(width / 2 - x * zoom + 0.5)),
        int(np.floor(height / 2 - y * zoom + 0.5)),
    )
    out = np.zeros((height, width, 4), np.uint8)
    x0, y0 = max(left, 0), max(top, 0)
    x1, y1 = min(left + image.shape[1], width), min(top + image.shape[0], height)
    out[y0:y1, x0:x1] = image[y0 - top : y1 - top, x0 - left : x1 - left]
    return out
