"""`make demo`: open a file of each format as Zarr; read, check, show and convert it."""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table

import anychunk
import chunks_that_are_tiffs
from anychunk.model.images import images
from anychunk.thumbnail import thumbnail
from demo_files import FILES

SIDE, GAP, CAPTION = 256, 16, 24
"""Pixels: the side of a picture in the sheet, the gap between pictures, the line of text."""


def window_of(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return a window in the middle that crosses chunk borders."""
    return tuple(slice(n // 3, n // 3 + max(1, n // 4)) for n in shape)


def check(array: object, data: np.ndarray) -> bool:
    """Read a window through zarr and compare it with what was written."""
    values = array  # a zarr.Array
    shape = values.shape  # type: ignore[attr-defined]
    window = np.asarray(values[window_of(shape)])  # type: ignore[index]
    expected = data.T if shape == data.shape[::-1] != data.shape else data
    return bool(np.array_equal(window, expected.reshape(shape)[window_of(shape)]))


def sheet(pictures: dict[str, np.ndarray]) -> Image.Image:
    """Arrange pictures in rows of four, each above its name."""
    width, height = SIDE + GAP, SIDE + GAP + CAPTION
    rows = -(-len(pictures) // 4)
    out = Image.new("RGB", (4 * width + GAP, rows * height + GAP), (250, 250, 248))
    pen, font = ImageDraw.Draw(out), ImageFont.load_default(15)
    for number, (name, pixels) in enumerate(pictures.items()):
        picture = ImageOps.contain(Image.fromarray(pixels).convert("RGB"), (SIDE, SIDE))
        left, top = GAP + number % 4 * width, GAP + number // 4 * height
        frame = left + (SIDE - picture.width) // 2, top + (SIDE - picture.height) // 2
        out.paste(picture, frame)
        place = left + SIDE // 2, top + SIDE + CAPTION // 2
        pen.text(place, name, fill=(60, 60, 64), font=font, anchor="mm")
    return out


def main(folder: Path) -> None:
    start = time.perf_counter()
    folder.mkdir(exist_ok=True)
    table = Table("file", "format", "levels", "shape", "axes", "type", "chunk", "window")
    pictures, is_good = {}, True
    for name, make in FILES.items():
        data = make(folder / name)
        index = anychunk.index(folder / name)
        image = next(images(index))
        array = anychunk.open(index)[image.levels[0]]
        is_right = check(array, data)
        is_good &= is_right
        table.add_row(
            name,
            str(index.attributes["anychunk"]["format"]),
            str(len(image.levels)),
            " x ".join(map(str, array.shape)),
            " ".join(image.names),
            str(array.dtype),
            " x ".join(map(str, array.chunks)),
            "equal" if is_right else "WRONG",
        )
        pictures[name] = thumbnail(index, image=image.path, size=SIDE)
    Console(width=120 if not sys.stdout.isatty() else None).print(table)
    sheet(pictures).save(folder / "sheet.png")
    print(f"{folder}/sheet.png: a picture of each\n")
    done = anychunk.convert(folder / "scene.tif", folder / "scene.zarr", levels=3, verify=True)
    print(
        f"{done.target}: OME-Zarr with {done.arrays} levels, every chunk compared with the TIFF\n"
    )
    chunks_that_are_tiffs.main(folder)
    if not is_good:
        sys.exit("a window differs from what was written")
    print(f"\nAll windows equal what was written ({time.perf_counter() - start:.0f} s). Try next:")
    for command in (
        f"info {folder}/scene.tif --deep",
        f"thumb {folder}/tissue.n5 --at z=40 -o slice.png",
        f"convert {folder}/tissue.n5 tissue.zarr --verify",
        f"verify {folder}/scene.tif --against rasterio",
        f"serve {folder}/ --open",
    ):
        print(f"  .venv/bin/anychunk {command}")


if __name__ == "__main__":
    shutil.rmtree("demo", ignore_errors=True)
    main(Path("demo"))
