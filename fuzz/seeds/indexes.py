"""Saved indexes, as anychunk writes them: kerchunk JSON, parquet, Icechunk."""

import io
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.cases import Field, Files, Seed
from fuzz.seeds import jpeg2000, n5, nitf, nrrd, tiff

MTIME_NS = 1_700_000_000 * 10**9
"""Modification time of all files, because indexes record it."""
CHOSEN = ("tiff/zlib", "tiff/jpeg", "tiff/pyramid", "nitf/nm", "nitf/c8", "jpeg2000/tiles",
          "n5/gzip", "jnrrd/zstd", "jnrrd/external", "nrrd/gzip")  # fmt: skip


def write(folder: Path, files: Files) -> None:
    """Write files, all with the same time."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(MTIME_NS, MTIME_NS))


def read(folder: Path) -> Files:
    """Return every file below a folder."""
    every = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in every}


@cache
def _sources() -> dict[str, Seed]:
    modules = (tiff.seeds, nitf.seeds, jpeg2000.seeds, n5.seeds, nrrd.seeds, nrrd.jnrrd_seeds)
    return {seed.name: seed for made in modules for seed in made() if seed.name in CHOSEN}


def _saved(seed: Seed, target: str, **options: Any) -> Files | None:
    """Return a source and its index beside it; None if that format cannot express it."""
    import anychunk
    from anychunk.errors import AnychunkError

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, seed.files)
        try:
            anychunk.index(str(folder / seed.entry)).save(str(folder / target), **options)
        except AnychunkError:
            return None
        return read(folder)


def _seeds(target: str, kinds: Any, **options: Any) -> Iterator[Seed]:
    for source in _sources().values():
        files = _saved(source, target, **options)
        if files is None:
            continue
        fields = [spot for name, data in files.items() for spot in kinds(name, data)]
        suffix = "-v2" if options.get("zarr_format") == 2 else ""
        yield Seed(
            name=f"{target.partition('.')[2]}/{source.name.replace('/', '-')}{suffix}",
            format={"json": "kerchunk"}.get(target.partition(".")[2], target.partition(".")[2]),
            files=files,
            entry=target,
            fields=tuple(fields),
        )


def _whole_json(name: str, *, weight: float = 10, **more: Any) -> Iterator[Field]:
    yield Field(file=name, kind="json", label=name, weight=weight, more=more)


def kerchunk_seeds() -> Iterator[Seed]:
    """Yield kerchunk JSON with metadata of Zarr 3 and 2."""

    def kinds(name: str, data: bytes) -> Iterator[Field]:
        if name == "i.json":
            yield from _whole_json(name)
            inside = (
                "shape",
                "chunk_grid",
                "codecs",
                "data_type",
                "fill_value",
                "chunks",
                "filters",
            )
            yield from _whole_json(name, inside=inside)
            yield Field(file=name, kind="data", label="text", length=len(data), weight=2)

    yield from _seeds("i.json", kinds)
    yield from _seeds("i.json", kinds, zarr_format=2)


def parquet_seeds() -> Iterator[Seed]:
    """Yield parquet references."""
    import pyarrow.parquet as pq

    def kinds(name: str, data: bytes) -> Iterator[Field]:
        if name.endswith((".zmetadata", "anychunk.json")):
            yield from _whole_json(name)
        elif name.endswith(".parq"):
            table = pq.read_table(io.BytesIO(data))
            columns = {c: table.column(c).to_pylist() for c in table.column_names}
            if columns:
                yield Field(file=name, kind="cell", label=name, weight=8, more={"columns": columns})
            yield Field(file=name, kind="data", label=name, length=len(data), weight=3)

    yield from _seeds("i.parquet", kinds)


def icechunk_seeds() -> Iterator[Seed]:
    """Yield Icechunk repositories."""

    def kinds(name: str, data: bytes) -> Iterator[Field]:
        if "overwritten" in name or not name.startswith("i.icechunk/"):
            return
        yield Field(file=name, kind="data", label=name.split("/")[1], length=len(data))
        if b"\x28\xb5\x2f\xfd" in data:
            yield Field(file=name, kind="zstd", label=name.split("/")[1], weight=4)

    yield from _seeds("i.icechunk", kinds)
