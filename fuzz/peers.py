"""Other readers: each returns the planes that it finds in a file, or raises.

A plane is two-dimensional, or what is left of an array with fewer axes. Readers arrange bands,
pages and levels in different ways; planes can be compared whatever the arrangement.
"""

import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MOST = 1 << 23
"""Elements above which a file is not compared."""
PAGES = 64


class TooLargeError(Exception):
    """A file that is not compared."""


def planes(array: Any) -> list[np.ndarray]:
    """Return an array as planes of its last two axes longer than one."""
    array = np.asarray(array).squeeze()
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.ndim <= 2 or not array.size:
        return [array]
    return list(array.reshape(-1, *array.shape[-2:]))


def check(shape: Iterable[int]) -> None:
    """Refuse what would take long to compare."""
    total = 1
    for length in shape:
        total *= max(1, int(length))
    if total > MOST:
        raise TooLargeError(f"{total} elements")


def by_tifffile(path: Path) -> list[np.ndarray]:
    """Read all series and all pages, with their levels."""
    import tifffile

    found, failed = [], []
    with tifffile.TiffFile(path) as file:
        every: list[Any] = list(file.pages[:PAGES])
        every += [sub for page in every for sub in (getattr(page, "pages", None) or [])]
        try:
            every += [level for series in file.series[:PAGES] for level in series.levels]
        except Exception as e:  # pages that are no series are pages
            failed.append(e)
        for part in every:
            try:
                check(part.shape)
                data = read_part(part)
            except TooLargeError:
                raise
            except Exception as e:  # another page may be fine
                failed.append(e)
                continue
            axes = part.axes
            if "S" in axes and data.ndim == len(axes):
                data = np.moveaxis(data, axes.index("S"), 0)
            found += planes(data)
            if part.keyframe.is_mask and data.dtype.kind == "b":
                # ours are 0 and 255, as those of GDAL
                found += [plane * np.uint8(255) for plane in planes(data)]
    if not found:
        raise failed[0] if failed else ValueError("no pages")
    return found


def read_part(part: Any) -> np.ndarray:
    """Read a page or series; what tifffile logs as an error and fills with zeros is refused."""
    page = part.keyframe
    if not (279 in page.tags or 325 in page.tags) and np.prod(page.chunked) > 1:
        raise ValueError("without byte counts, tifffile reads one tile or strip only")
    data = np.asarray(part.asarray())
    if data.size != np.prod(part.shape):
        raise ValueError("tifffile returns an empty array")
    bits = page.bitspersample
    if page.predictor == 2 and data.dtype.kind == "u" and isinstance(bits, int) and bits % 8:
        # sums wrap at the width of a sample, which tifffile leaves to the reader
        data &= data.dtype.type((1 << bits) - 1)
    return data


def by_rasterio(path: Path) -> list[np.ndarray]:
    """Read all bands, subdatasets and overviews with GDAL."""
    import rasterio

    found: list[np.ndarray] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(path) as file:
            is_nitf = file.driver == "NITF"
            structure = file.tags(1, ns="IMAGE_STRUCTURE") if file.driver == "GTiff" else {}
            bits = int(structure.get("NBITS", 0))
            names = [path, *file.subdatasets[:PAGES]]
        for name in names:
            try:
                found += list(_bands(rasterio, name))
            except TooLargeError:
                raise
            except Exception:
                if name is path and len(names) == 1:
                    raise
    if not found:
        raise ValueError("no bands")
    # SI of 8 bits is signed (JBP A-3); GDAL takes the same bits as unsigned
    signed = [plane.view(np.int8) for plane in found if is_nitf and plane.dtype == np.uint8]
    if bits and is_signed(path):
        # TIFF 6.0 section 19; GDAL takes integers of other widths than its own as unsigned
        found = [with_sign(plane, bits) for plane in found]
    return found + signed


def with_sign(plane: np.ndarray, bits: int) -> np.ndarray:
    """Return unsigned integers of fewer bits than their type as two's complement."""
    shift = 8 * plane.dtype.itemsize - bits
    if plane.dtype.kind != "u" or shift <= 0:
        return plane
    return (plane << shift).view(f"i{plane.dtype.itemsize}") >> shift


def is_signed(path: Path) -> bool:
    """Return whether SampleFormat of every page of a TIFF file is 2, two's complement."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        return all(page.tags.valueof(339) == 2 for page in file.pages[:PAGES])


def _bands(rasterio: Any, name: Any) -> Iterator[np.ndarray]:
    with rasterio.open(name) as file:
        levels = len(file.overviews(1)) if file.count else 0
        check((file.count, file.height, file.width))
        yield from planes(file.read())
        if any(rasterio.enums.MaskFlags.per_dataset in f for f in file.mask_flag_enums):
            yield file.dataset_mask()
    for level in range(min(levels, 4)):
        with rasterio.open(name, overview_level=level) as file:
            yield from planes(file.read())
            if any(rasterio.enums.MaskFlags.per_dataset in f for f in file.mask_flag_enums):
                yield file.dataset_mask()


def by_openjpeg(path: Path) -> list[np.ndarray]:
    """Read with OpenJPEG, by imagecodecs; its samples are last."""
    import imagecodecs

    data = path.read_bytes()
    at = data.index(b"\xff\x4f\xff\x51") + 8
    size = [int.from_bytes(data[at + i : at + i + 4], "big") for i in (0, 4, 8, 12)]
    check((size[0] - min(size[0], size[2]), size[1] - min(size[1], size[3])))
    array = imagecodecs.jpeg2k_decode(data)
    return planes(np.moveaxis(array, -1, 0) if array.ndim == 3 else array)


def by_numpy(path: Path) -> list[np.ndarray]:
    """Read an NPY file with numpy."""
    return planes(np.load(io.BytesIO(path.read_bytes()), allow_pickle=False))


def by_pynrrd(path: Path) -> list[list[np.ndarray]]:
    """Read with pynrrd, slowest axis first; return the planes with each of the axes in front."""
    import nrrd

    header = nrrd.read_header(str(path))
    check(header["sizes"])
    data, _ = nrrd.read(str(path), index_order="C")
    # channels and times come first in ours, wherever the file has them
    turned = [np.moveaxis(data, axis, 0) for axis in range(1, data.ndim)]
    return [planes(array) for array in (data, *turned)]


def by_tensorstore(path: Path) -> list[np.ndarray]:
    """Read an N5 dataset with tensorstore."""
    import tensorstore

    check(json.loads((path / "attributes.json").read_bytes())["dimensions"])
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/"}}
    data = np.asarray(tensorstore.open(spec).result().read().result())
    return planes(data.T)  # N5 lists the fastest dimension first


def one_way(read: Callable[[Path], list[np.ndarray]]) -> Callable[[Path], list[list[np.ndarray]]]:
    """Return a reader of planes that can be arranged in one way only."""
    return lambda path: [read(path)]


READERS: dict[str, Callable[[Path], list[list[np.ndarray]]]] = {
    "tifffile": one_way(by_tifffile),
    "rasterio": one_way(by_rasterio),
    "openjpeg": one_way(by_openjpeg),
    "numpy": one_way(by_numpy),
    "pynrrd": by_pynrrd,
    "tensorstore": one_way(by_tensorstore),
}
"""Each returns the planes of a file, once for each way to arrange its axes."""


def is_among(plane: np.ndarray, others: list[np.ndarray], tolerance: float) -> bool:
    """Return whether a plane equals one of others: shape, kind of number, values."""
    for other in others:
        if other.shape != plane.shape or (other.dtype.kind in "fc") != (plane.dtype.kind in "fc"):
            continue
        with np.errstate(all="ignore"):
            if tolerance and plane.dtype.kind in "ui" and other.dtype.kind in "ui":
                gap = plane.astype(np.int64) - other.astype(np.int64)
                if gap.size == 0 or np.abs(gap).max() <= tolerance:
                    return True
            elif (
                plane.dtype.names is None
                and np.array_equal(plane, other, equal_nan=plane.dtype.kind in "fc")
            ) or (plane.dtype == other.dtype and plane.tobytes() == other.tobytes()):
                return True
    return False
