"""Seeds of every format, made by independent writers, with a map of their fields."""

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from fuzz.cases import Field, Seed
from fuzz.seeds import codecs, dted, indexes, jpeg2000, n5, nifti, nitf, npy, nrrd, real, tiff

FORMATS: dict[str, Callable[[], Iterator[Seed]]] = {
    "tiff": tiff.seeds,
    "ome-tiff": tiff.ome_seeds,
    "nitf": nitf.seeds,
    "jpeg2000": jpeg2000.seeds,
    "n5": n5.seeds,
    "nrrd": nrrd.seeds,
    "jnrrd": nrrd.jnrrd_seeds,
    "npy": npy.seeds,
    "nifti": nifti.seeds,
    "dted": dted.seeds,
    "kerchunk": indexes.kerchunk_seeds,
    "parquet": indexes.parquet_seeds,
    "icechunk": indexes.icechunk_seeds,
    "codecs": codecs.seeds,
}


REAL: list[Path] = []
"""Folders of real files that are seeds, too."""


@cache
def of_format(name: str) -> tuple[Seed, ...]:
    """Return the seeds of a format, each with fields for its files as a whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(with_files(seed) for seed in _made(name))


def _made(name: str) -> list[Seed]:
    more = [seed for folder in REAL for seed in real.seeds(folder) if seed.format == name]
    return [*FORMATS[name](), *more]


def with_files(seed: Seed) -> Seed:
    """Add a field per file: to be cut, emptied or removed."""
    total = sum(spot.weight for spot in seed.fields)
    share = 0.04 * total / len(seed.files)
    files = tuple(
        Field(file=name, kind="file", label=f"{name} as a whole", weight=share)
        for name in seed.files
    )
    fields = (*seed.fields, *files)
    return Seed(**{**seed.__dict__, "fields": fields})
