"""`make demo`: make a file, open it as Zarr, read a window, and write chunks that are TIFFs."""

import sys
from pathlib import Path

import numpy as np

import anychunk
import chunks_that_are_tiffs
from anychunk.cli import main as command_line


def smooth_field(shape: tuple[int, ...]) -> np.ndarray:
    """A smooth volume with noise, as a microscope would give."""
    z, y, x = np.meshgrid(*(np.linspace(0, 6, n) for n in shape), indexing="ij")
    noise = np.random.default_rng(0).normal(0, 0.05, shape)
    return ((np.sin(x) * np.cos(y) + np.sin(z) + 2 + noise) * 10000).astype("uint16")


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    volume = smooth_field((60, 200, 300))
    file = folder / "volume.npy"
    np.save(file, volume)
    print(f"$ anychunk info {file}")
    try:
        command_line(["info", str(file)])
    except SystemExit as done:
        if done.code:
            raise
    array = anychunk.open_array(file)
    window = array[10:12, 50:150, 100:200]
    if not np.array_equal(window, volume[10:12, 50:150, 100:200]):
        sys.exit("the window is not what was written")
    print(f"a window of {window.shape} read through zarr equals numpy's\n")
    chunks_that_are_tiffs.main(folder)
    print(f"\nTry next: anychunk info {file} --json")


if __name__ == "__main__":
    import shutil

    shutil.rmtree("demo", ignore_errors=True)
    main(Path("demo"))
