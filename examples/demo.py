"""`make demo`: open the files of `anychunk demo` as Zarr; read, check, show and convert them."""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
import rasterio
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table

import anychunk
import chunks_that_are_tiffs
from anychunk.demo import FILES
from anychunk.model.images import images
from anychunk.thumbnail import thumbnail

SIDE, GAP, CAPTION = 256, 16, 24
"""Pixels: the side of a picture in the sheet, the gap between pictures, the line of text."""


def expected(path: Path, written: np.ndarray | None) -> np.ndarray:
    """Return the pixels that were written; rasterio's of a file that GDAL wrote."""
    if written is not None:
        return written
    with rasterio.open(path) as file:
        return file.read().squeeze()


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
    table = Table("file", "format", "levels", "shape", "axes", "type", "chunk", "pixels")
    pictures, is_good = {}, True
    for name, (make, _) in FILES.items():
        data = expected(folder / name, make(folder / name))
        index = anychunk.index(folder / name)
        image = next(images(index))
        array = anychunk.open(index)[image.levels[0]]
        is_right = np.array_equal(array[...], data)
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
        sys.exit("pixels differ from what was written")
    print(f"\nAll pixels equal what was written ({time.perf_counter() - start:.0f} s). Try next:")
    for command in (
        f"info {folder}/scene.tif --deep",
        f"thumb {folder}/tissue.n5 --at z=20 -o slice.png",
        f"convert {folder}/tissue.n5 tissue.zarr --verify",
        f"verify {folder}/scene.tif --against rasterio",
        f"serve {folder}/ --open",
    ):
        print(f"  .venv/bin/anychunk {command}")


if __name__ == "__main__":
    shutil.rmtree("demo", ignore_errors=True)
    main(Path("demo"))
