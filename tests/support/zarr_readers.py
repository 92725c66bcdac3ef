"""What installed readers of Zarr make of a conversion; the readers are not ours.

Each reader is asked for the full resolution of every image: its shape, a window of its samples and,
where the reader knows about maps, its CRS. A reader that fails is an answer, not an error.
"""

import contextlib
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import anychunk
from anychunk.conversion import zarr_v2
from anychunk.conversion.levels import Chain, ZarrOptions
from anychunk.conversion.plan import Plan, make_plan
from anychunk.conversion.tasks import Conversion, same
from anychunk.model.grid import Slices
from anychunk.model.images import join

type Array = npt.NDArray[Any]

SIDE = 256
"""The window that is compared has at most this many pixels along an axis."""


@dataclass(frozen=True, kw_only=True)
class ReaderCheck:
    """What one reader makes of one image."""

    reader: str
    """Name and version of the package."""
    image: str
    """Path of the image in the target; empty for the root."""
    is_good: bool
    what: str
    """What it opened, or why it could not."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One image of the target, and what a reader should find."""

    root: str
    """Local path of the store."""
    group: str
    """Local path of the image's group."""
    level: str
    """Local path of the group of the full resolution."""
    array: str
    """Local path of its array."""
    chain: Chain
    box: Slices
    expected: Array
    """The samples in `box`, as the source has them."""
    zarr_format: Literal[2, 3] = 3

    @property
    def code(self) -> int | None:
        """The EPSG code of the image; None if it has none."""
        crs = self.chain.meaning.place.crs
        authority, _, number = ((crs.code if crs is not None else None) or "").partition(":")
        return int(number) if authority == "EPSG" and number.isdigit() else None


class Wrong(Exception):
    """A reader opened the image, and does not see what was converted."""


def check_readers(source: Any, target: Any, **options: Any) -> tuple[ReaderCheck, ...]:
    """Ask every installed reader for every image of a target that `source` was converted to."""
    plan = make_plan(anychunk.index(source), ZarrOptions(**options), 1)
    conversion = Conversion(plan, str(target))
    found: list[ReaderCheck] = []
    for picture in plan.pictures:
        question = ask(plan, conversion, str(target), picture.path, picture.chain)
        for package, answer in READERS.items():
            try:
                title = f"{package} {version(package)}"
            except PackageNotFoundError:
                continue
            is_good, what = answered(answer, question)
            found.append(ReaderCheck(reader=title, image=picture.path, is_good=is_good, what=what))
    return tuple(found)


def ask(plan: Plan, conversion: Conversion, root: str, path: str, chain: Chain) -> Question:
    """Return the question for one image: a window in its middle."""
    first = chain.levels[0]
    box = []
    for size, name in zip(first.shape, chain.meaning.names, strict=True):
        side = min(size, SIDE) if name in ("y", "x") else min(size, 4)
        start = (size - side) // 2
        box.append(slice(start, start + side))
    level = join(path, chain.described[0].name)
    return Question(
        root=root,
        group=f"{root}/{path}".rstrip("/"),
        level=f"{root}/{level}",
        array=f"{root}/{first.path}",
        chain=chain,
        box=tuple(box),
        expected=conversion.read_source(first, tuple(box)),
        zarr_format=plan.zarr_format,
    )


def answered(answer: Callable[[Question], str], question: Question) -> tuple[bool, str]:
    """Return whether a reader sees the image, and what it says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return True, answer(question)
    except Wrong as e:
        return False, str(e)
    except Exception as e:
        first = (str(e).strip() or type(e).__name__).splitlines()[0]
        return False, f"cannot open it: {first[:200]}"


def compare(array: Any, question: Question, box: Slices | None = None) -> str:
    """Compare shape and samples; `array` may be anything that slices like one."""
    shape = tuple(array.shape)
    if shape != question.chain.levels[0].shape:
        raise Wrong(f"shape {shape}, expected {question.chain.levels[0].shape}")
    data = np.asarray(array[question.box if box is None else box])
    if data.shape != question.expected.shape or not same(data, question.expected).all():
        raise Wrong("samples differ")
    return " x ".join(map(str, shape)) or "scalar"


def by_zarr(question: Question) -> str:
    """Open the array with zarr."""
    import zarr

    return compare(
        zarr.open_array(question.array, mode="r", zarr_format=question.zarr_format), question
    )


def by_zarrs(question: Question) -> str:
    """Open the array with zarr and the pipeline of zarrs, which is written in Rust."""
    import zarr

    import_module("zarrs")
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return compare(
            zarr.open_array(question.array, mode="r", zarr_format=question.zarr_format), question
        )


def by_tensorstore(question: Question) -> str:
    """Open the array with tensorstore."""
    tensorstore: Any = import_module("tensorstore")
    kvstore = {"driver": "file", "path": question.array}
    driver = "zarr3" if question.zarr_format == 3 else "zarr"
    array = tensorstore.open({"driver": driver, "kvstore": kvstore}, open=True).result()
    return compare(_Eager(array, lambda part: part.read().result()), question)


class _Eager:
    """An array of another package that is read by `read` when it is sliced."""

    def __init__(self, array: Any, read: Callable[[Any], Any]) -> None:
        self.array, self.read, self.shape = array, read, tuple(array.shape)

    def __getitem__(self, box: Slices) -> Array:
        return np.asarray(self.read(self.array[box]))


def by_xarray(question: Question) -> str:
    """Open the level with xarray, and the whole image as a tree."""
    xarray: Any = import_module("xarray")
    tree = xarray.open_datatree(
        question.group,
        engine="zarr",
        zarr_format=question.zarr_format,
        decode_times=False,
        chunks=None,
    )
    name = question.chain.described[0].name
    if "image" not in tree[name].data_vars:
        raise Wrong(f"the tree has no variable image in {name}")
    with xarray.open_dataset(
        question.level, engine="zarr", chunks=None, mask_and_scale=False, decode_times=False
    ) as found:
        image = found["image"]
        if tuple(image.dims) != question.chain.meaning.names:
            raise Wrong(f"dimensions {image.dims}, expected {question.chain.meaning.names}")
        return compare(image, question)


def by_rioxarray(question: Question) -> str:
    """Open the level with xarray, and its CRS and transform with rioxarray."""
    xarray: Any = import_module("xarray")
    import_module("rioxarray")
    with xarray.open_dataset(
        question.level,
        engine="zarr",
        chunks=None,
        mask_and_scale=False,
        decode_times=False,
        decode_coords="all",
    ) as found:
        image = found["image"]
        shape = compare(image, question)
        crs = image.rio.crs
        place = question.chain.meaning.place
        transform = tuple(image.rio.transform())[:6] if place.transform is not None else None
    return check_place(shape, question, crs, transform)


def by_rasterio(question: Question) -> str:
    """Open the full resolution with GDAL."""
    rasterio: Any = import_module("rasterio")
    names, box = question.chain.meaning.names, question.box
    if names[-2:] != ("y", "x"):
        raise Wrong(f"GDAL has no raster of axes {' '.join(names)}")
    with contextlib.ExitStack() as stack:
        # with a mask beside the image, GDAL lists both instead of opening the level
        where = question.array if question.chain.masks else question.level
        dataset = stack.enter_context(rasterio.open(where))
        front = question.chain.levels[0].shape[:-2]
        expected = question.expected.reshape(-1, *question.expected.shape[-2:])
        if dataset.count == 0 and len(front) > 1:
            # more than three axes: one raster per plane
            at = ":".join(str(part.start) for part in box[:-2])
            dataset = stack.enter_context(rasterio.open(f'ZARR:"{question.array}":/:{at}'))
            front, expected = (), expected[:1]
        size = question.chain.levels[0].shape[-2:]
        count = int(np.prod(front, dtype=int))
        if (dataset.count, *dataset.shape) != (count, *size):
            raise Wrong(
                f"{dataset.count} bands of {dataset.shape}, expected {count} of {tuple(size)}"
            )
        planes = np.arange(count).reshape(front)[box[: len(front)]].reshape(-1)
        data = dataset.read(
            [int(n) + 1 for n in planes],
            window=((box[-2].start, box[-2].stop), (box[-1].start, box[-1].stop)),
        )
        if not same(data, expected).all():
            raise Wrong("samples differ")
        shape = " x ".join(map(str, (count, *size)))
        return check_place(shape, question, dataset.crs, tuple(dataset.transform)[:6])


def check_place(shape: str, question: Question, crs: Any, transform: Sequence[float] | None) -> str:
    """Compare a CRS of rasterio and a transform with those of the image."""
    place = question.chain.meaning.place
    if place.crs is None and place.transform is None:
        return shape
    if place.crs is not None and not crs:
        raise Wrong("no CRS")
    if question.code is not None and crs.to_epsg() != question.code:
        raise Wrong(f"CRS {crs.to_string():.60}, expected EPSG:{question.code}")
    wanted = place.transform
    if wanted is not None and (transform is None or not np.allclose(transform, wanted, rtol=1e-9)):
        raise Wrong(f"transform {transform}, expected {wanted}")
    code = f", EPSG:{question.code}" if question.code is not None else ", CRS"
    return f"{shape}{code if place.crs is not None else ''}"


def by_ome_zarr_models(question: Question) -> str:
    """Validate the image with ome-zarr-models."""
    models: Any = import_module("ome_zarr_models")
    zarr: Any = import_module("zarr")
    check_ome(question)
    group = zarr.open_group(question.group, mode="r", zarr_format=question.zarr_format)
    version = "0.5" if question.zarr_format == 3 else zarr_v2.OME_VERSION
    attributes = models.open_ome_zarr(group, version=version).attributes
    scales = getattr(attributes, "ome", attributes).multiscales[0]
    names = tuple(axis.name for axis in scales.axes)
    if names != question.chain.meaning.names:
        raise Wrong(f"axes {' '.join(names)}, expected {' '.join(question.chain.meaning.names)}")
    return f"OME-Zarr {version}, {len(scales.datasets)} levels"


def by_ome_zarr(question: Question) -> str:
    """Open the image with ome-zarr-py."""
    reader, location = import_module("ome_zarr.reader"), import_module("ome_zarr.io")
    check_ome(question)
    nodes = list(reader.Reader(location.parse_url(question.group, mode="r"))())
    if not nodes:
        raise Wrong("finds no image")
    levels = nodes[0].data
    if len(levels) != len(question.chain.levels):
        raise Wrong(f"{len(levels)} levels, expected {len(question.chain.levels)}")
    # in this process: workers of a Dask client may not see a local target
    read = operator.methodcaller("compute", scheduler="threads")
    return compare(_Eager(levels[0], read), question)


def check_ome(question: Question) -> None:
    """Raise for arrays that are no images to OME-Zarr."""
    if not question.chain.meaning.is_image:
        raise Wrong(f"OME-Zarr has no axes {' '.join(question.chain.meaning.names)}")


READERS: dict[str, Callable[[Question], str]] = {
    "zarr": by_zarr,
    "xarray": by_xarray,
    "rioxarray": by_rioxarray,
    "rasterio": by_rasterio,
    "ome-zarr-models": by_ome_zarr_models,
    "ome-zarr": by_ome_zarr,
    "tensorstore": by_tensorstore,
    "zarrs": by_zarrs,
}
"""Functions that ask a reader, by the name of its package."""
