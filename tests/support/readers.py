"""The readers of the field: each opens a store in its own way and says what it found."""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.support.patience import PATIENCE_S

VIEWER = Path(__file__).parents[2] / "packages/anychunk-serve/viewer"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a store is, and where the image is in it."""

    url: str
    """A folder, or the address of a server."""
    store: Any
    """What zarr and xarray open."""
    image: str
    """Path of the image group; empty if that is the root."""
    level: str
    """Path of the group of the full resolution."""
    zarr_format: Any = 3

    @property
    def array(self) -> str:
        return f"{self.level}/image"

    @property
    def is_remote(self) -> bool:
        return self.url.startswith("http")


@dataclass(kw_only=True)
class Found:
    """What a reader found; None for what it does not tell."""

    pixels: Any = None
    axes: tuple[str, ...] | None = None
    crs: Any = None
    transform: tuple[float, ...] | None = None
    nodata: float | None = None
    step: dict[str, float] | None = None
    tells: set[str] = field(default_factory=set)
    """Names of the fields that are to be compared."""


def by_zarr(place: Place) -> Found:
    array = zarr.open_array(place.store, path=place.array, mode="r", zarr_format=place.zarr_format)
    axes = getattr(array.metadata, "dimension_names", None) or array.attrs["_ARRAY_DIMENSIONS"]
    return Found(pixels=array[...], axes=tuple(axes), tells={"pixels", "axes"})


def _of_dataset(found: Any) -> Found:
    image = found["image"]
    step = {}
    for name in "zyx":
        if name in found.coords and found[name].ndim == 1 and found[name].size > 1:
            step[name] = abs(float(found[name][1] - found[name][0]))
    return Found(
        pixels=image.values, axes=tuple(image.dims), step=step, tells={"pixels", "axes", "step"}
    )


def by_xarray(place: Place) -> Found:
    import xarray

    options = {"zarr_format": place.zarr_format}
    with warned():
        # the root and the image group hold no variables, and must open all the same
        for group in {None, place.image or None}:
            xarray.open_zarr(place.store, group=group, chunks=None, **options)
        found = xarray.open_zarr(place.store, group=place.level, mask_and_scale=False, **options)
        return _of_dataset(found)


def by_datatree(place: Place) -> Found:
    import xarray

    with warned():
        tree = xarray.open_datatree(
            place.store, engine="zarr", mask_and_scale=False, zarr_format=place.zarr_format
        )
        found = _of_dataset(tree[place.level].to_dataset())
    # the tree has every level, each with sizes of its own
    levels = [node for node in tree.subtree if "image" in node.data_vars]
    assert len({node["image"].shape for node in levels}) == len(levels)
    return found


def by_rioxarray(place: Place) -> Found:
    import rioxarray  # noqa: F401 - adds the accessor
    import xarray

    found = xarray.open_zarr(
        place.store, group=place.level, mask_and_scale=False, zarr_format=place.zarr_format
    )
    image = found["image"]
    accessor = image.rio
    transform = None
    if "spatial_ref" in found and "GeoTransform" in found["spatial_ref"].attrs:
        # a rotated grid has no coordinates: the transform of the grid mapping is all there is
        has_coordinates = {"x", "y"} <= set(image.coords)
        transform = tuple(accessor.transform(recalc=has_coordinates))[:6]
    nodata = accessor.nodata
    return Found(
        pixels=image.values,
        crs=accessor.crs,
        transform=transform,
        nodata=None if nodata is None else float(nodata),
        tells={"pixels", "crs", "transform", "nodata"},
    )


def by_gdal(place: Place) -> Found:
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    prefix = "/vsicurl/" if place.is_remote else ""
    if place.url.endswith(".json"):
        url = f'ZARR:"{place.url}":/{place.array}'
    elif place.is_remote:  # there are no folders over HTTP
        url = f'ZARR:"{prefix}{place.url}/{place.level}":/image'
    else:
        names = zarr.open_group(place.store, path=place.level, mode="r").array_keys()
        # a mask is a second array of the group: then the path of the array has to be given
        url = f'ZARR:"{place.url}/{place.array if "mask" in set(names) else place.level}"'
    options = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.Env(**options), rasterio.open(url) as file:
            if file.count == 0:
                raise ValueError(f"GDAL shows {len(file.subdatasets)} subdatasets")
            pixels = file.read()
            transform = None if file.transform.is_identity else tuple(file.transform)[:6]
            return Found(
                pixels=pixels,
                crs=file.crs,
                transform=transform,
                nodata=file.nodata,
                tells={"pixels", "crs", "transform", "nodata"},
            )


def by_ome_zarr_models(place: Place) -> Found:
    from ome_zarr_models.v05 import Image

    group = zarr.open_group(place.store, path=place.image, mode="r")
    image = Image.from_zarr(group)
    scale = image.ome_attributes.multiscales[0]
    first = scale.datasets[0].coordinateTransformations[0].scale
    names = tuple(axis.name for axis in scale.axes)
    step = {n: float(s) for n, s in zip(names, first, strict=True) if n in "zyx"}
    return Found(axes=names, step=step, tells={"axes", "step"})


def by_ome_zarr_py(place: Place) -> Found:
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    url = f"{place.url}/{place.image}" if place.image else place.url
    (node, *_) = Reader(parse_url(url))()
    return Found(pixels=np.asarray(node.data[0]), tells={"pixels"})


def by_tensorstore(place: Place) -> Found:
    import tensorstore

    kvstore: dict[str, str] = {"driver": "file", "path": f"{place.url}/{place.array}/"}
    if place.is_remote:
        kvstore = {"driver": "http", "base_url": f"{place.url}/{place.array}/"}
    found = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result()
    return Found(
        pixels=found.read().result(), axes=tuple(found.domain.labels), tells={"pixels", "axes"}
    )


class OtherProcess:
    """A reader in a process of its own: one for all stores, because starting it takes longest.

    The program reads a line of JSON, the arguments, and answers with a line of JSON: an object,
    with `error` if reading failed.
    """

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("COVERAGE", "PYTHONPATH"))}
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=own,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self._end)

    def ask(self, *arguments: str) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self._process.args[0]} ended with {self._process.wait(PATIENCE_S)}"
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def _end(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE_S)


ZARRS = """
import json, sys, numpy, zarr, zarrs
zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})
for line in sys.stdin:
    place, target = json.loads(line)
    answer = {}
    try:
        numpy.save(target, zarr.open_array(place, mode="r")[...])
    except Exception as e:
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
"""


@cache
def zarrs_process() -> OtherProcess:
    # the pipeline is a setting of the whole process
    return OtherProcess([sys.executable, "-W", "ignore", "-c", ZARRS])


def by_zarrs(place: Place) -> Found:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.npy"
        zarrs_process().ask(f"{place.url}/{place.array}", str(target))
        return Found(pixels=np.load(target), tells={"pixels"})


ZARRITA = """
import * as zarr from "zarrita";
import { FileSystemStore } from "@zarrita/storage";
import { createInterface } from "node:readline";
const read = async (place) => {
  const store = place.startsWith("http") ? new zarr.FetchStore(place) : new FileSystemStore(place);
  const array = await zarr.open(store, { kind: "array" });
  const { data, shape } = await zarr.get(array);
  return { shape, values: Array.from(data, Number) };
};
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await read(JSON.parse(line)[0]).catch((e) => ({ error: String(e) }));
  process.stdout.write(JSON.stringify(answer) + "\\n");
}
"""


@cache
def zarrita_process() -> OtherProcess:
    return OtherProcess(["node", "--input-type=module", "-e", ZARRITA], cwd=VIEWER)


def by_zarrita(place: Place) -> Found:
    if shutil.which("node") is None or not (VIEWER / "node_modules" / "zarrita").is_dir():
        raise MissingToolError("Node with zarrita: install Node 20, then make tools")
    found = zarrita_process().ask(f"{place.url}/{place.array}")
    return Found(pixels=np.array(found["values"]).reshape(found["shape"]), tells={"pixels"})


class MissingToolError(Exception):
    """A reader that pip does not install is missing."""


READERS: dict[str, Callable[[Place], Found]] = {
    "zarr": by_zarr,
    "xarray open_zarr": by_xarray,
    "xarray open_datatree": by_datatree,
    "rioxarray": by_rioxarray,
    "GDAL": by_gdal,
    "ome-zarr-models": by_ome_zarr_models,
    "ome-zarr-py": by_ome_zarr_py,
    "tensorstore": by_tensorstore,
    "zarrs": by_zarrs,
    "zarrita": by_zarrita,
}


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Turn the warnings of xarray and zarr into errors: users would see them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning, FutureWarning):
            warnings.filterwarnings("error", category=category, module=r"(xarray|zarr)\b.*")
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
