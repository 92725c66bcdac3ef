"""Writing volumes without tiles: NRRD and plain JNRRD, attached or detached, whole or in slices.

Spec: NRRD format (Teem), sections 1 to 6; JNRRD 1.0.0 sections 3, 5 and 12.2.

Samples are read and encoded slab after slab, so the volume may be larger than memory.
"""

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.codecs.streams import Incremental, check_option, incremental_encoder
from anychunk.errors import OptionError, UnsupportedError
from anychunk.formats.jnrrd import nrrd_text
from anychunk.formats.jnrrd.arranged import Arranged
from anychunk.formats.jnrrd.external_files import References
from anychunk.formats.jnrrd.header import Line, make_line, rewrite
from anychunk.formats.jnrrd.meaning import STORAGE
from anychunk.formats.jnrrd.volume import Volume, read_type
from anychunk.formats.jnrrd.write import check_free, in_byte_order, numeric_type
from anychunk.formats.jnrrd.write_meaning import Described, kept_header
from anychunk.formats.jnrrd.write_plan import SUFFIXES, kept_lines, make_volume
from anychunk.io import sink
from anychunk.io.source import folder_of, is_remote, local_path
from anychunk.model.grid import Shape
from anychunk.options import PlainOptions, Progress

if TYPE_CHECKING:
    from anychunk.model.index import Json

SLAB_BYTES = 32 * limits.MIB
"""About how much is read at a time."""
MOST_SLAB_BYTES = 256 * limits.MIB
"""How much is read at a time where that saves decoding a chunk of the source twice."""
NRRD_ENCODINGS = ("raw", "gzip", "bzip2")
JNRRD_ENCODINGS = (*NRRD_ENCODINGS, "zstd", "lz4")


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The options of a file without tiles, checked."""

    url: str
    volume: Volume
    """With its encoding."""
    level: int | None
    names: tuple[str, ...]
    """The data files; none if the samples follow the header."""
    pattern: str | None
    """Of the names, as NRRD writes it, if they follow one."""


def is_nrrd(url: str) -> bool:
    """Return whether a target is an NRRD file, by its extension."""
    return url.lower().endswith((".nrrd", ".nhdr"))


def is_detached(
    url: str, *, data_file: str | bool | None = None, slices: bool = False, **_: Any
) -> bool:
    """Return whether these options put the samples into other files than the header."""
    if data_file is None:
        return slices or url.lower().endswith(".nhdr")
    return data_file is not False


def write_plain(
    array: Any,
    url: str,
    *,
    compression: str = "raw",
    compression_level: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    **options: Unpack[PlainOptions],
) -> None:
    """Write an array as NRRD, or as JNRRD without tiles.

    Parameters:
        array: A numpy, dask or zarr array, or anything with `shape`, `dtype` and slicing.
        url: The header file; `.nrrd` and `.nhdr` are NRRD, anything else is JNRRD.
        compression: raw, gzip or bzip2; JNRRD also zstd and lz4.
        compression_level: Of the compression; None: its default.
        progress: Called with (slabs done, slabs in total).
        overwrite: Replace an existing file.
        **options: docs/formats/jnrrd.md describes them.

    Raises:
        OptionError: An option is wrong, or contradicts another.
        TargetExistsError: There is a file already.
        UnsupportedError: The format cannot hold the array.
    """
    dtype = numeric_type(array)
    shape = tuple(int(n) for n in array.shape)
    described = kept_header(
        options.get("header"), options.get("meaning"), shape, keeps_words=is_nrrd(url)
    )
    slices = options.get("slices", False)
    samples = Arranged(array, dtype, described.order)
    plan = make_plain(
        samples.shape,
        dtype,
        url,
        compression=compression,
        level=compression_level,
        data_file=options.get("data_file"),
        slices=slices,
        endian=options.get("endian", "little"),
    )
    version = options.get("version")
    text = nrrd_header(plan, described, version) if is_nrrd(url) else jnrrd_header(plan, described)
    check_free(url, plan.names, overwrite=overwrite)
    boxes = slabs(samples.shape, dtype.itemsize, samples.chunks)
    if plan.names and slices:
        boxes = [b for n in range(samples.shape[0]) for b in within(n, samples, dtype.itemsize)]
    tell = progress or (lambda done, of: None)
    if plan.names:
        write_detached(plan, samples, boxes, text, tell)
    else:
        with target(url) as file:
            file.write(text + b"\n")
            write_samples(plan, samples, boxes, file, lambda done: tell(done, len(boxes)))


def make_plain(
    shape: Shape,
    dtype: np.dtype[Any],
    url: str,
    *,
    compression: str,
    level: int | None,
    data_file: str | bool | None,
    slices: bool,
    endian: str,
) -> Plain:
    """Check the options; raise `OptionError` or `UnsupportedError`."""
    known = NRRD_ENCODINGS if is_nrrd(url) else JNRRD_ENCODINGS
    encoding = "raw" if compression == "none" else compression
    if encoding not in known:
        raise OptionError(f"{url}: compression {compression!r}, expected one of {' '.join(known)}")
    check_option(encoding, level, url)
    volume = make_volume(shape, dtype, endian)
    if is_nrrd(url) and volume.type not in nrrd_text.TYPES:
        # section 5 has the kind `complex`, of an axis of two real numbers; no reader joins them
        pairs = ", such as the real and imaginary parts as an axis" if dtype.kind == "c" else ""
        raise UnsupportedError(
            f"{url}: NRRD has no type {volume.type}; convert to one of "
            f"{' '.join(nrrd_text.TYPES)}{pairs}, or write .jnrrd"
        )
    if slices and isinstance(data_file, str | bool) and data_file is not True:
        raise OptionError(f"{url}: slices and data_file {data_file!r} are both given")
    names: tuple[str, ...] = ()
    pattern = None
    if is_detached(url, data_file=data_file, slices=slices):
        stem, suffix = PurePosixPath(url).stem, f".raw{SUFFIXES[encoding]}"
        names = (data_file if isinstance(data_file, str) else f"{stem}{suffix}",)
        if slices:
            width = len(str(shape[0] - 1))
            names = tuple(f"{stem}_{n:0{width}}{suffix}" for n in range(shape[0]))
            if "%" not in stem and stem.split() == [stem]:
                pattern = f"{stem}_%0{width}d{suffix}"
    checked = Volume(type=volume.type, sizes=volume.sizes, endian=volume.endian, encoding=encoding)
    return Plain(url=url, volume=checked, level=level, names=names, pattern=pattern)


def jnrrd_header(plan: Plain, described: Described) -> bytes:
    """Return the lines of a JNRRD header, without the blank line."""
    volume, count = plan.volume, len(plan.names)
    changes: dict[str, Json] = {
        "jnrrd": "0004",
        "type": volume.type,
        "dimension": len(volume.sizes),
        "sizes": list(volume.sizes),
        **({"endian": volume.endian} if volume.itemsize > 1 else {}),
        "encoding": volume.encoding,
    }
    if count == 1:
        changes["data_file"] = plan.names[0]
    elif plan.pattern is not None:
        changes["data_file_pattern"] = {
            "format": plan.pattern,
            "min": 0,
            "max": count - 1,
            "step": 1,
        }
    elif count:
        changes["data_files"] = list(plan.names)
    kept: list[Line] = [make_line("jnrrd", "0004")]
    kept += [line for line in kept_lines(described.header) if line.key != "jnrrd"]
    lines = rewrite(kept, changes, drop=(*described.tiles, *(STORAGE - changes.keys())))
    return "".join(f"{line.text}\n" for line in lines).encode()


def nrrd_header(plan: Plain, described: Described, version: int | None) -> bytes:
    """Return the lines of an NRRD header, without the blank line."""
    if version not in (None, 4, 5):
        raise OptionError(f"{plan.url}: version {version!r}, expected 4 or 5")
    volume = plan.volume
    fields = {
        key: value
        for key, value in described.fields().items()
        if key not in STORAGE and not any(key.startswith(prefix) for prefix in described.tiles)
    }
    spelled = described.type_name
    if spelled is None or read_type(spelled, plan.url) != volume.type:
        # the samples may have been converted since that header was read
        spelled = nrrd_text.TYPES[volume.type]
    stored = [
        ("type", spelled),
        ("dimension", str(len(volume.sizes))),
        ("sizes", " ".join(map(str, volume.sizes))),
        *([("endian", volume.endian)] if volume.itemsize > 1 else []),
        ("encoding", volume.encoding),
    ]
    if len(plan.names) == 1:
        # a file of this name would be taken for the word (section 3)
        name = plan.names[0]
        stored.append(("data file", f"./{name}" if name == "LIST" else name))
    elif plan.pattern is not None:
        stored.append(("data file", f"{plan.pattern} 0 {len(plan.names) - 1} 1"))
    elif plan.names:
        stored.append(("data file", nrrd_text.file_list(plan.names)))
    words = fields if described.is_nrrd else nrrd_text.as_nrrd(fields)
    return nrrd_text.header_text(words, stored, is_nrrd=described.is_nrrd, version=version)


def slabs(shape: Shape, itemsize: int, chunks: Sequence[int] | None) -> list[tuple[slice, ...]]:
    """Cut an array into boxes that follow each other in C order, about `SLAB_BYTES` each.

    Where the source has chunks, boxes are as thick as these if memory allows it, so that no chunk
    is decoded twice.
    """
    axis = 0
    while axis < len(shape) - 1 and math.prod(shape[axis + 1 :]) * itemsize > SLAB_BYTES:
        axis += 1
    row = max(1, math.prod(shape[axis + 1 :]) * itemsize)
    step = max(1, SLAB_BYTES // row)
    thick = chunks[axis] if chunks is not None else 1
    if thick > step and thick * row <= MOST_SLAB_BYTES:
        step = thick
    elif step > thick:
        step -= step % thick
    whole = tuple(slice(0, n) for n in shape[axis + 1 :])
    return [
        (*(slice(i, i + 1) for i in index), slice(at, min(at + step, shape[axis])), *whole)
        for index in np.ndindex(*shape[:axis])
        for at in range(0, shape[axis], step)
    ]


def within(number: int, samples: Arranged, itemsize: int) -> list[tuple[slice, ...]]:
    """Return the boxes of one slice along the slowest axis."""
    inner = None if samples.chunks is None else samples.chunks[1:]
    if len(samples.shape) == 1:
        return [(slice(number, number + 1),)]
    return [(slice(number, number + 1), *box) for box in slabs(samples.shape[1:], itemsize, inner)]


def write_samples(
    plan: Plain,
    samples: Arranged,
    boxes: Sequence[tuple[slice, ...]],
    file: BinaryIO,
    tell: Callable[[int], object],
) -> None:
    """Encode boxes one after the other into one stream."""
    volume = plan.volume
    if volume.encoding in ("zstd", "lz4"):
        # one frame: readers decode it as a whole, and so is it encoded
        limits.check_chunk(volume.nbytes // max(1, len(plan.names)), where=plan.url)
    encoder: Incremental = incremental_encoder(volume.encoding, plan.level)
    for done, box in enumerate(boxes, 1):
        data = np.ascontiguousarray(in_byte_order(samples[box], volume.endian))
        file.write(encoder.compress(flat(data)))
        tell(done)
    file.write(encoder.flush())


def flat(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return samples as bytes."""
    return data.reshape(-1).view(np.uint8)


@contextlib.contextmanager
def target(url: str) -> Iterator[BinaryIO]:
    """Yield a file to write, which appears under its name when it is complete."""
    if not is_remote(url):
        Path(local_path(url)).parent.mkdir(parents=True, exist_ok=True)
        with sink.create(url) as file:
            yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/data"
        with sink.create(path) as file:
            yield file
        sink.put(url, Path(path).read_bytes())


def write_detached(
    plan: Plain,
    samples: Arranged,
    boxes: Sequence[tuple[slice, ...]],
    text: bytes,
    tell: Progress,
) -> None:
    """Write the data files, then the header that names them."""
    references = References(folder_of(plan.url), "")
    urls = [references.url(name) for name in plan.names]
    if not is_remote(plan.url):
        # an old header would show new samples
        Path(local_path(plan.url)).unlink(missing_ok=True)
    per_file = len(boxes) // len(urls)
    for number, url in enumerate(urls):
        before = number * per_file

        def advance(done: int, before: int = before) -> None:
            tell(before + done, len(boxes))

        with target(url) as file:
            write_samples(plan, samples, boxes[before : before + per_file], file, advance)
    # NRRD section 3: a list of files ends with the header file, and Teem counts a blank line, too
    is_list = is_nrrd(plan.url) and len(urls) > 1 and plan.pattern is None
    with target(plan.url) as file:
        file.write(text if is_list else text + b"\n")
