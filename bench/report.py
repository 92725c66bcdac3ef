"""The results of a benchmark run: saved as JSON, published as tables and charts in the docs."""

import datetime as dt
import json
import math
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import BARE, OURS, ZARR_WORLD, Row, cores

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "images" / "performance.png"
HEAT_MAP = ROOT / "docs" / "images" / "performance-grid.png"
GRID = "grid"
"""The group whose many cases are drawn as a heat map."""
README = ROOT / "README.md"
HEADLINES = {
    "COG window of 100 tiles, 30 ms a request": "window of a remote COG, 100 tiles",
    "TIFF deflate, predictor 2, 512-tiles, full read": "TIFF, Deflate, all pixels",
    "TIFF JPEG RGB, 512-tiles, full read": "TIFF, JPEG, all pixels",
    "NITF NC IMODE B u16 x 4, full read": "NITF, uncompressed, all pixels",
    "N5 gzip, full read": "N5, gzip, all pixels",
}
"""The cases of the README's table: what users of each group do most, also where we are slower."""
ABOUT = 1.25
"""By which factor a cost may exceed a target of "about" so much; a lower one is better."""
BEGIN, END = "<!-- begin: made by make bench -->", "<!-- end: made by make bench -->"
LIBRARIES = (
    "anychunk", "zarr", "numpy", "imagecodecs", "tifffile", "rasterio", "tensorstore", "glymur",
    "z5py", "pynrrd", "virtualizarr", "cast-value-rs",
)  # fmt: skip


def is_met(row: Row) -> bool | None:
    """Whether a row meets its target; None if that is no number, or nothing was measured."""
    sign, _, number = row.target.partition(" ")
    try:
        bound = float(number.split()[0])
    except (IndexError, ValueError):
        return None
    if math.isnan(row.ratio):
        return None
    if sign == "about":
        return row.ratio <= bound * ABOUT
    return row.ratio >= bound if sign == ">=" else row.ratio <= bound


def machine() -> dict[str, Any]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {"cores": cores(), "python": platform.python_version(), "versions": found}


def save(groups: dict[str, Sequence[Row]], *, quick: bool) -> Path:
    """Write all rows as JSON; groups that were not measured keep the rows of the run before."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    path = RESULTS / f"{today}{'-quick' if quick else ''}.json"
    before = _before(path, quick=quick)
    rows = {name: [asdict(row) for row in found] for name, found in groups.items()}
    dates = dict.fromkeys(before["groups"], before["date"]) | before.get("dates", {})
    found = {
        "date": today,
        "quick": quick,
        **machine(),
        "dates": dates | dict.fromkeys(rows, today),
        "groups": dict(sorted({**before["groups"], **rows}.items())),
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1, default=float) + "\n")
    return path


def _before(path: Path, *, quick: bool) -> dict[str, Any]:
    """Return the results that a file is added to: its own, or those of the last full run."""
    if not path.exists() and not quick:
        path = max((p for p in RESULTS.glob("*.json") if "quick" not in p.stem), default=path)
    return json.loads(path.read_text()) if path.exists() else {"groups": {}, "date": ""}


def load(path: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    found = json.loads(path.read_text())
    return found, {name: [Row(**row) for row in rows] for name, rows in found["groups"].items()}


def number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def line(row: Row) -> str:
    """Return one row of the table."""
    peers = row.peers()
    sign = {True: "yes", False: "**no**", None: ""}[is_met(row)]
    cells = [row.case, number(row.ratio), row.target, sign]
    if OURS in row.seconds and peers:
        zarr = [row.against(name) for name in peers if name in ZARR_WORLD]
        cells += [
            f"{row.seconds[OURS] * 1e3:.3g}",
            ", ".join(
                f"{name} {s * 1e3:.3g}" for name, s in sorted(peers.items(), key=lambda p: p[1])
            ),
            number(median_ratio(row)),
            number(min(zarr, default=math.nan)),
            number(row.against(BARE)),
        ]
    else:
        cells += ["", row.detail.replace("|", "/"), "", "", ""]
    if row.wrong:
        cells[5] += "; not: " + ", ".join(
            f"{n} ({w.splitlines()[0][:60]})" for n, w in row.wrong.items()
        )
    return "| " + " | ".join(cells) + " |"


HEAD = """| case | measured | target | met | ours, ms | peers, ms | median | zarr peers | bare |
|---|---|---|---|---|---|---|---|---|"""


def raced(groups: dict[str, list[Row]]) -> list[Row]:
    """Return the rows that compare us with a peer, each measurement once.

    A second row of the same measurement has a target for one of the peers.
    """
    found: dict[str, Row] = {}
    for rows in groups.values():
        for row in rows:
            if row.peers() and OURS in row.seconds and row.target.startswith(">="):
                found.setdefault(json.dumps(row.seconds, sort_keys=True), row)
    return list(found.values())


def result(groups: dict[str, list[Row]]) -> str:
    """Return the result in one sentence."""
    rows = raced(groups)
    ratios = sorted(row.ratio for row in rows)
    ahead = sum(ratio >= 1 for ratio in ratios)
    by_median = sum(median_ratio(row) >= 1 for row in rows)
    return (
        f"**{ahead} of {len(ratios)} cases at or ahead of the best peer "
        f"({by_median} by median times); {ratios[len(ratios) // 2]:.2f} times as fast in the "
        "median.**"
    )


def median_ratio(row: Row) -> float:
    """Return the median time of the best peer over ours; NaN where medians were not kept."""
    peers = row.peers()
    best = min(peers, key=lambda name: peers[name])
    return row.medians.get(best, math.nan) / row.medians.get(OURS, math.nan)


def table(path: Path) -> str:
    """Return the generated part of the page: the result, the chart, then every case."""
    found, groups = load(path)
    parts = [result(groups), ""] if raced(groups) else []
    versions = ", ".join(f"{name} {v}" for name, v in found["versions"].items())
    parts += [
        "![Speed of each reader relative to anychunk](images/performance.png)",
        "",
        f"{found['date']}, {found['cores']} cores, Python {found['python']}; {versions}.",
    ]
    for name, rows in groups.items():
        parts += ["", f"### {name}", ""]
        date = found.get("dates", {}).get(name, found["date"])
        if date != found["date"]:
            parts += [f"Measured on {date}.", ""]
        if name == GRID:
            cases = [row for row in rows if row.seconds]
            parts += [
                f"{len(cases)} cases; the numbers are the best peer's time / ours.",
                "",
                "![Speed for every kind of TIFF](images/performance-grid.png)",
                "",
                "The summary, and the cases that miss their target:",
                "",
                HEAD,
                *(line(row) for row in grid_rows(rows)),
            ]
        else:
            parts += [HEAD, *map(line, rows)]
    return "\n".join(parts) + "\n"


def grid_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the summary, then those that miss their target, the slowest first."""
    slow = (row for row in rows if row.seconds and is_met(row) is False)
    return [*(row for row in rows if not row.seconds), *sorted(slow, key=lambda row: row.ratio)]


def publish(path: Path) -> None:
    """Put tables and charts into the documentation and the README, unedited."""
    PAGE.write_text(between(PAGE, f"\n\n{table(path)}\n"))
    groups = load(path)[1]
    heat_map(groups.pop(GRID, []), HEAT_MAP)
    chart(raced(groups), CHART)
    README.write_text(between(README, f"\n\n{headlines(groups)}\n"))


def between(page: Path, text: str) -> str:
    """Return a page with `text` between the marks."""
    before = page.read_text()
    start, stop = before.index(BEGIN) + len(BEGIN), before.index(END)
    return f"{before[:start]}{text}{before[stop:]}"


def headlines(groups: dict[str, list[Row]]) -> str:
    """Return the README's table: the times of a few cases, with those of the two best peers."""
    found = {row.case: row for rows in groups.values() for row in rows if row.peers()}
    lines = ["| milliseconds | anychunk | others |", "|---|---|---|"]
    for case, about in HEADLINES.items():
        seconds = found[case].seconds
        best = sorted((s, name) for name, s in found[case].peers().items() if "," not in name)
        others = ", ".join(f"{name} {s * 1e3:.0f}" for s, name in best[:2])
        lines.append(f"| {about} | {seconds[OURS] * 1e3:.0f} | {others} |")
    return "\n".join(lines) + "\n"


def chart(found: Sequence[Row], target: Path) -> None:
    """Draw the speed of each reader relative to ours; the bare decoder is the limit."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = found[::-1]
    readers = sorted({name for row in rows for name in row.peers()})
    colors = {OURS: "#111111"} | {
        name: plt.get_cmap("tab20")(n % 20) for n, name in enumerate(readers)
    }
    bars: list[tuple[float, float, str]] = []
    limits: list[tuple[float, float, float]] = []
    places: dict[float, str] = {}
    top = 0.0
    for row in rows:
        bottom = top
        for name in sorted([OURS, *row.peers()], key=lambda name: row.seconds[name], reverse=True):
            bars.append((top, row.seconds[OURS] / row.seconds[name], name))
            top += 1
        places[(bottom + top - 1) / 2] = row.case
        if BARE in row.seconds:
            limits.append((row.seconds[OURS] / row.seconds[BARE], bottom - 0.5, top - 0.5))
        top += 1
    figure, axes = plt.subplots(figsize=(10, 0.09 * top + 1.6), dpi=100)
    for name in (OURS, *readers):
        own = [(place, speed) for place, speed, reader in bars if reader == name]
        places_of, speeds = zip(*own, strict=True)
        axes.barh(places_of, speeds, color=colors[name], height=0.9, label=name)
    if limits:
        axes.vlines(*zip(*limits, strict=True), color="#c8553d", linewidth=2, label=BARE)
    axes.axvline(1, color="#111111", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_xlim(0.015, 4)
    axes.set_ylim(-1, top)
    axes.minorticks_off()
    axes.set_yticks(list(places), list(places.values()), fontsize=7)
    axes.set_xlabel("speed; anychunk = 1", fontsize=8)
    figure.legend(loc="upper center", ncols=5, fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    # the legend has the top of the figure, however tall that is
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / figure.get_figheight()))
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target)
    plt.close(figure)


def heat_map(found: Sequence[Row], target: Path) -> None:
    """Draw the ratio of every case, by compression and type, and by bands and layout."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cells = {}
    for row in found:
        if row.seconds:
            compression, dtype, bands, layout = row.case.removeprefix("TIFF ").split(", ")
            cells[f"{compression}, {dtype}", f"{bands}\n{layout}"] = row.ratio
    if not cells:
        return
    lines = list(dict.fromkeys(line for line, _ in cells))
    columns = sorted(
        {column for _, column in cells},
        key=lambda c: ("separate" in c, "3" in c, "strips" in c, int(re.findall(r"\d+", c)[-1])),
    )
    values = np.full((len(lines), len(columns)), np.nan)
    for (line, column), ratio in cells.items():
        values[lines.index(line), columns.index(column)] = ratio
    figure, axes = plt.subplots(figsize=(0.55 * len(columns) + 2, 0.28 * len(lines) + 1.6), dpi=100)
    axes.imshow(np.log2(values), cmap="RdYlGn", vmin=-1.5, vmax=1.5, aspect="auto")
    for y, x in zip(*np.nonzero(~np.isnan(values)), strict=True):
        axes.text(x, y, f"{values[y, x]:.2f}", ha="center", va="center", fontsize=6)
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=6)
    axes.set_yticks(range(len(lines)), lines, fontsize=7)
    axes.set_title("best peer's time / ours", fontsize=8)
    figure.tight_layout()
    figure.savefig(target)
    plt.close(figure)
