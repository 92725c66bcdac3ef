"""Verify a file or an index: pinned sources, structure, every chunk, and another reader.

All problems are collected, each with its location; none stops the verification.
"""

import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
import zarr

from anychunk import api, formats, limits
from anychunk._drawn import Drawn
from anychunk.decode.present import Present, present_chunks
from anychunk.errors import AnychunkError, FormatError, MissingDependencyError
from anychunk.formats import options_of_others
from anychunk.formats._jpeg2000_windows import whole
from anychunk.formats.n5.write import reads_transposed
from anychunk.io.opening import Folder, open_source
from anychunk.io.source import Storage, as_url, with_signed
from anychunk.io.threads import cores, in_order
from anychunk.limits import MIB
from anychunk.model.grid import (
    Shape,
    chunk_box,
    chunk_coords,
    grid_shape,
    touched_chunks,
    touched_grid,
)
from anychunk.model.images import Image, images
from anychunk.model.index import (
    PIECE,
    TILES,
    WHOLE,
    ArrayIndex,
    ByteRanges,
    GroupIndex,
    Node,
    Objects,
    walk,
)
from anychunk.model.pin import Pin
from anychunk.options import OpenOptions, Progress, checked
from anychunk.selection import part_of
from anychunk.selection.cuts import Cut, is_run, near_groups
from anychunk.selection.wanted import selection
from anychunk.verification import peers
from anychunk.zarr.array import open_path

type Severity = Literal["error", "warning", "info"]

BATCH_BYTES = 16 * MIB
"""About how much one thread decodes at a time."""
BATCH_CHUNKS = 1024
"""The most chunks that one thread decodes at a time, however small they are."""
ENOUGH = 10_000
"""An array with more chunks than this that do not decode is not read to its end."""
MOST = 1000
"""Findings of one kind per array that are listed individually."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One problem, or one fact worth knowing."""

    severity: Severity
    where: str
    what: str


@dataclass(kw_only=True)
class Report(Drawn):
    """What a verification found."""

    source: str
    arrays: int = 0
    chunks: int = 0
    """Chunks that were read, absent ones included."""
    absent: int = 0
    """Chunks that the file declares absent."""
    decoded_bytes: int = 0
    compared: str | None = None
    """The independent reader that pixels were compared with, if any."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether there are no errors and no warnings."""
        return all(finding.severity == "info" for finding in self.findings)

    def add(self, severity: Severity, where: str, what: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(severity=severity, where=where, what=what))


@checked(further=options_of_others)
def verify(
    url: str | Path | Node,
    *,
    against: str | None = None,
    tolerance: float = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    storage: Storage | None = None,
    image: int | str | None = None,
    bbox: Sequence[float] | None = None,
    bbox_crs: str | None = None,
    window: Sequence[Sequence[int | None] | slice] | None = None,
    bands: Sequence[int | str] | int | str | None = None,
    level: int | str | None = None,
    time: int | str | None = None,
    **options: Unpack[OpenOptions],
) -> Report:
    """Check every byte range and decode every chunk of a file or an index.

    Parameters:
        url: A path or url of a file or a saved index, or an index.
        against: An independent reader to compare pixels with: `tifffile`, `rasterio`, `numpy` or
            `tensorstore`.
        tolerance: The largest difference allowed, for lossy compressions.
        workers: The number of threads; by default one per core.
        progress: Called with (chunks done, chunks in total) as the work proceeds.
        storage: Options of the object store, passed to obstore.
        image: Check only this image, by number or path.
        bbox: Decode only chunks that hold a part of this box, on all levels; this and the following
            choose what `anychunk.convert` would write.
        bbox_crs: The CRS of `bbox`.
        window: Decode only chunks that hold a part of these rows and columns.
        bands: Decode only chunks that hold one of these bands.
        level: Decode only chunks of this level, and of those coarser than it.
        time: Decode only chunks of these dates or numbers along t.
        options: As for `anychunk.index`.

    Returns a `Report` with everything found. Raises only if the file does not open, or if `against`
    is unknown or not installed.
    """
    node, report = opened_for_report(url, storage, options)
    if node is None:
        return report
    wanted = selection(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    cuts: dict[str, Cut] | None = None
    if not wanted.is_everything or image is not None:
        part = part_of(node, wanted, image=image, near_levels=True)
        cuts = {cut.path: cut for cut in part.cuts.values()}
    check_pins(node, report, storage)
    check_refused(node, report)
    every = [
        (path, array)
        for path, array in walk(node)
        if isinstance(array, ArrayIndex) and (cuts is None or path in cuts)
    ]
    # coordinates are part of the index, not of the file: decoded, but not counted
    found = [(path, array) for path, array in every if not array.is_inline]
    beside = Report(source=report.source)
    report.arrays = len(found)
    if not found:
        # an interrupted writer of another tool may leave just that
        report.add("warning", "", "no arrays, so nothing was verified")
    sizes = Sizes(node.pins, storage)
    for path, array in found:
        check_structure(array, path, report, sizes)
        check_zarr_document(array, report, storage)
    touched = {
        path: touched_runs(array, None if cuts is None else cuts[path]) for path, array in found
    }
    total = sum(count_chunks(runs) for runs in touched.values())

    def advance() -> None:
        if progress is not None:
            progress(report.chunks, total)

    count = workers or cores()
    with ThreadPoolExecutor(count, thread_name_prefix="anychunk-verify") as executor:
        decode = partial(in_order, executor=executor, ahead=2 * count)
        for path, array in every:
            runs = touched.get(path)
            if isinstance(array.chunks, ByteRanges) and not array.is_inline:
                report.absent += count_absent(array.chunks, runs if cuts is not None else None)
            opened = partial(open_path, node, path, storage=storage)
            present = present_chunks(array, storage)
            into = beside if array.is_inline else report
            only = runs if cuts is not None else None
            check_chunks(opened, path, into, decode, advance, present=present, only=only)
    report.findings += beside.findings
    if against is not None:
        report.compared = against
        compare(node, against, report, tolerance, storage, cuts=cuts)
    return report


type Runs = list[list[tuple[int, int]]]
"""Runs of chunk numbers, (first, one after the last), along each axis."""


def touched_runs(array: ArrayIndex, cut: Cut | None) -> Runs:
    """Return the chunks of an array that a part touches; all of them without one."""
    if cut is None:
        return [[(0, n)] for n in array.grid]
    found: Runs = []
    for pick, chunk in zip(cut.picks, array.chunk_shape, strict=True):
        if is_run(pick):
            found.append([(pick[0] // chunk, pick[-1] // chunk + 1)])
        else:
            found.append(list(index_runs(sorted({n // chunk for n in pick}))))
    return found


def count_chunks(runs: Runs) -> int:
    """Return the number of chunks in the product of runs."""
    return math.prod(sum(stop - start for start, stop in axis) for axis in runs)


def count_absent(chunks: ByteRanges, only: Runs | None) -> int:
    """Return the number of chunks that a file declares absent."""
    if only is None:
        return int((chunks.lengths == 0).sum())
    boxes = itertools.product(*only)
    return sum(int((chunks.lengths[tuple(starmap(slice, box))] == 0).sum()) for box in boxes)


def format_of(url: str | Path, storage: Storage | None) -> str | None:
    """Return the name of the format of a file, by its first bytes; None if it is a folder."""
    try:
        source = open_source(as_url(url), storage=storage)
        return formats.sniff(source.read(0, min(formats.HEAD, source.size())).tobytes(), "")[0]
    except (AnychunkError, OSError):
        return None


def check_header(
    url: str | Path,
    name: str | None,
    report: Report,
    storage: Storage | None,
    options: Mapping[str, Any],
) -> None:
    """Add what the format's own check finds in the header of a file, if the format has one."""
    check = getattr(formats.table().get(str(name)), "check_header", None)
    if check is None:
        return
    known = inspect.signature(check).parameters
    given = {key: value for key, value in options.items() if key in known}
    for found in check(open_source(as_url(url), storage=storage), storage=storage, **given):
        report.add(found.severity, f"{report.source} {found.field}", found.message)


def opened_for_report(
    url: str | Path | Node, storage: Storage | None, options: Mapping[str, Any]
) -> tuple[Node | None, Report]:
    """Return the index of a file, and a report with what is wrong with its header.

    A format that checks headers knows all that is wrong, not only the first: a file that it finds
    errors in has no index, and the report says why. Any other that does not open raises.
    """
    if isinstance(url, GroupIndex | ArrayIndex):
        about = url.attributes.get("anychunk", {})
        return url, Report(source=str(about.get("source", "index")))
    try:
        node = api.index(url, storage=storage, **options)
    except FormatError:
        report = Report(source=str(url))
        check_header(url, format_of(url, storage), report, storage, options)
        if report.is_good:
            raise
        return None, report
    about = node.attributes.get("anychunk", {})
    report = Report(source=str(about.get("source", "index")))
    check_header(url, about.get("format"), report, storage, options)
    return node, report


class Sizes:
    """Sizes of objects, each requested once; None if an object cannot be opened."""

    def __init__(self, pins: Mapping[str, Pin], storage: Storage | None) -> None:
        self._pins, self._storage = pins, storage
        self._known: dict[str, int | None] = {}

    def __call__(self, url: str) -> int | None:
        if url not in self._known:
            try:
                pin = self._pins.get(url)
                storage = with_signed(self._storage, pin.signed if pin else None)
                self._known[url] = open_source(url, storage=storage).size()
            except (AnychunkError, OSError):
                self._known[url] = None
        return self._known[url]


def check_pins(node: Node, report: Report, storage: Storage | None) -> None:
    """Check that every source is unchanged since it was indexed."""
    for url, pin in node.pins.items():
        try:
            change = pin.differs(open_source(url, storage=with_signed(storage, pin.signed)).pin())
        except (AnychunkError, OSError) as e:
            report.add("error", url, str(e))
            continue
        if change:
            report.add("error", url, f"{change}; index it again")


def check_refused(node: Node, report: Report) -> None:
    """Report the images that the format refused to open, which its attributes list."""
    for path, part in walk(node):
        for about in part.attributes.values():
            reasons = about.get("refused", []) if isinstance(about, Mapping) else []
            listed = reasons if isinstance(reasons, list) else [reasons]
            for reason in listed:
                report.add("warning", f"{report.source} {path}".rstrip(), f"not opened: {reason}")


def check_structure(array: ArrayIndex, path: str, report: Report, sizes: Sizes) -> None:
    """Check every byte range against the size of its object and against the other ranges."""
    array = whole(array)  # chunks that are parts of a tile share its bytes
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        return
    offsets, lengths = chunks.offsets.reshape(-1), chunks.lengths.reshape(-1)
    ids = np.zeros(len(offsets), np.int64)
    if chunks.url_ids is not None:
        ids = chunks.url_ids.reshape(-1).astype(np.int64)
    numbers = np.arange(len(offsets))
    if chunks.parts is not None:
        starts = chunks.parts.starts.astype(np.int64)
        counts = starts[1:] - starts[:-1]
        owners = np.repeat(numbers, counts)
        offsets = np.concatenate([offsets, chunks.parts.offsets])
        lengths = np.concatenate([lengths, chunks.parts.lengths])
        ids, numbers = np.concatenate([ids, ids[owners]]), np.concatenate([numbers, owners])
    stored = (lengths > 0) & (lengths != WHOLE)
    for number, url in enumerate(chunks.urls):
        mine = np.flatnonzero(stored & (ids == number))
        if len(mine):
            size = sizes(url)
            ranges = Ranges(offsets[mine], lengths[mine], numbers[mine])
            check_ranges(ranges, size, f"{url} {path}", array, report)


def check_zarr_document(array: ArrayIndex, report: Report, storage: Storage | None) -> None:
    """Check whether zarr reads N5 blocks correctly, if there is a `zarr.json` with them."""
    if not isinstance(array.chunks, Objects):
        return
    base, chunks = array.chunks.base, array.chunks
    folder = Folder(base, storage=with_signed(storage, chunks.signed), roots=chunks.roots)
    try:
        text = folder.read("zarr.json") if folder.read("attributes.json") is not None else None
        is_wrong = reads_transposed(json.loads(text or b"null"))
    except (AnychunkError, OSError, ValueError):
        return  # zarr cannot read it either
    if is_wrong:
        report.add(
            "warning",
            f"{folder.path}/zarr.json",
            "zarr reads every block transposed: in N5 the first axis is the fastest; expected a "
            "`transpose` codec, or `n5_default`",
        )


@dataclass(frozen=True)
class Ranges:
    """Byte ranges of one object, one entry per range."""

    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int64]
    """The chunk that each range belongs to."""


def check_ranges(
    ranges: Ranges, size: int | None, where: str, array: ArrayIndex, report: Report
) -> None:
    """Report ranges that reach beyond an object of `size` bytes, and ranges that overlap."""
    if size is None:
        report.add("error", where, "the object cannot be opened")
        return
    # a sum that wraps around uint64 is smaller than its offset, and beyond any object too
    ends = ranges.offsets + ranges.lengths
    beyond = np.flatnonzero((ends > size) | (ends < ranges.offsets))
    for i in beyond[:MOST]:
        report.add(
            "error",
            f"{where} chunk {chunk_coords(int(ranges.numbers[i]), array.grid)}",
            f"bytes {ranges.offsets[i]}..{ends[i]} are beyond the object's {size} bytes",
        )
    names = [c.get("name") for c in array.codecs if isinstance(c, Mapping)]
    if PIECE in names:
        return  # pieces of one stream share bytes
    # tiles of JPEG 2000 that do not begin where chunks do are in several chunks
    severity: Severity = "info" if TILES in names else "warning"
    # sorted by start, a range overlaps an earlier one if it begins before the latest end so far
    order = np.lexsort((ends, ranges.offsets))
    starts, stops = ranges.offsets[order], ends[order]
    latest = np.maximum.accumulate(stops)
    shared = np.flatnonzero(starts[1:] < latest[:-1])
    same = (starts[1:] == starts[:-1]) & (stops[1:] == stops[:-1])
    again = int(same[shared].sum())
    if again:
        report.add("info", where, f"{again} chunks share their bytes with another chunk")
    for i in [i for i in shared if not same[i]][:MOST]:
        first, second = (
            chunk_coords(int(ranges.numbers[order[k]]), array.grid) for k in (i, i + 1)
        )
        report.add(severity, where, f"the bytes of chunks {first} and {second} overlap")


def check_chunks(
    open_array: Callable[[], zarr.Array[Any]],
    path: str,
    report: Report,
    decode: Callable[..., Iterator[tuple[int, int, list[str]]]],
    advance: Callable[[], None],
    *,
    present: Present | None,
    only: Runs | None = None,
) -> None:
    """Decode every chunk and check its shape.

    Parameters:
        open_array: Opens the array.
        path: Of the array.
        report: Where findings are added.
        decode: Called with a function and batches; yields the function's result for each batch.
        advance: Called after each batch.
        present: The chunks that are there; without it, `limits.probed_chunks` are tried at most.
        only: The chunks to decode; by default all of them.
    """
    where = f"{report.source} {path}"
    try:
        array = open_array()
    except (AnychunkError, ValueError, TypeError) as e:
        report.add("error", where, f"the array does not open: {e}")
        return
    failures, tried, most = 0, 0, limits.get().probed_chunks
    total = math.prod(grid_shape(tuple(array.shape), tuple(array.chunks)))
    boxes = batches(array, present)
    if only is not None:
        total, boxes = count_chunks(only), batches_of(array, only, present)
    for count, nbytes, problems in decode(partial(read_batch, array), boxes):
        tried += count
        report.chunks += count
        report.decoded_bytes += nbytes
        for problem in problems[: max(0, MOST - failures)]:
            report.add("error", where, problem)
        failures += len(problems)
        advance()
        if failures > ENOUGH:
            report.add("error", where, f"more than {ENOUGH} chunks do not decode; stopped there")
            return
        if present is None and most <= tried < total:
            report.add(
                "warning", where,
                f"{total} chunks that cannot be listed, of which the first {tried} were tried; "
                f"{limits.how_to_raise('probed_chunks')}",
            )  # fmt: skip
            return
    report.chunks += total - tried
    if failures > MOST:
        report.add(
            "error", where, f"{failures} chunks do not decode, of which the first {MOST} are listed"
        )


def batch_step(array: zarr.Array[Any], shape: Shape) -> Shape:
    """Return the shape of boxes of whole chunks, each of about `BATCH_BYTES`, that cut `shape`."""
    chunk_bytes = max(1, math.prod(array.chunks) * array.dtype.itemsize)
    most = min(max(1, BATCH_BYTES // chunk_bytes), BATCH_CHUNKS)
    steps = []
    for size, chunk in zip(reversed(shape), reversed(tuple(array.chunks)), strict=True):
        count = min(most, -(-size // chunk))
        steps.append(count * chunk)
        most //= count
    return tuple(reversed(steps))


def batches_of(
    array: zarr.Array[Any], only: Runs, present: Present | None = None
) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of whole chunks, as `batches` does, that hold these chunks and no others."""
    shape, chunks = tuple(array.shape), tuple(array.chunks)
    marks = None if present is None else present.boxes(chunks)
    for runs in itertools.product(*only):
        start = tuple(first * c for (first, _), c in zip(runs, chunks, strict=True))
        stop = tuple(min(last * c, n) for (_, last), c, n in zip(runs, chunks, shape, strict=True))
        lengths = tuple(b - a for a, b in zip(start, stop, strict=True))
        step = batch_step(array, lengths)
        for coords in touched_chunks((0,) * len(shape), lengths, step):
            sides = zip(chunk_box(coords, step, lengths), start, strict=True)
            box = tuple(slice(side.start + a, side.stop + a) for side, a in sides)
            inside = zip(box, chunks, strict=True)
            if (
                marks is None
                or marks[*(slice(s.start // c, -(-s.stop // c)) for s, c in inside)].any()
            ):
                yield box


def batches(array: zarr.Array[Any], present: Present | None = None) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of whole chunks, each of about `BATCH_BYTES`.

    Many chunks at a time, because reading one takes far longer than finding that it is absent. If
    nothing is in the first box, an element of it is read all the same: it shows whether anything
    can be. Not more, because few bytes announce an absent chunk of any size.
    """
    shape = tuple(array.shape)
    if 0 in shape:
        return
    step = batch_step(array, shape)
    if present is None:
        for coords in touched_chunks((0,) * len(shape), shape, step):
            yield chunk_box(coords, step, shape)
        return
    boxes = grid_shape(shape, step)
    marks = present.boxes(step)
    if not marks.flat[0]:
        yield (slice(0, 1),) * len(shape)
    for number in np.flatnonzero(marks).tolist():
        yield chunk_box(chunk_coords(number, boxes), step, shape)


def read_batch(array: zarr.Array[Any], box: tuple[slice, ...]) -> tuple[int, int, list[str]]:
    """Read the chunks of a box; return (chunks, decoded bytes, problems)."""
    chunks = tuple(array.chunks)
    start, stop = tuple(s.start for s in box), tuple(s.stop for s in box)
    count = math.prod(side.stop - side.start for side in touched_grid(start, stop, chunks))
    data, failure = _read(array, box)
    if failure is None:
        return count, data.nbytes, []
    nbytes, problems = 0, []
    for coords in touched_chunks(start, stop, chunks):
        one, problem = _read(array, chunk_box(coords, chunks, tuple(array.shape)))
        nbytes += one.nbytes
        problems += [] if problem is None else [problem]
    # what fails only together with others fails all the same
    return count, nbytes, problems or [failure]


def _read(array: zarr.Array[Any], box: tuple[slice, ...]) -> tuple[npt.NDArray[Any], str | None]:
    """Return what is in a box, and what is wrong with it, if anything."""
    expected = tuple(s.stop - s.start for s in box)
    try:
        data = np.asarray(array[box])
    except (AnychunkError, OSError, ValueError) as e:
        return np.empty(0), str(e)
    if data.shape != expected:
        return (
            data,
            f"chunk at {tuple(s.start for s in box)}: shape {data.shape}, expected {expected}",
        )
    return data, None


def compare(
    node: Node,
    against: str,
    report: Report,
    tolerance: float,
    storage: Storage | None,
    *,
    cuts: Mapping[str, Cut] | None = None,
) -> None:
    """Compare the first level of every image with another reader; note those it cannot read.

    Of a part, only what lies in `cuts` is compared.
    """
    source = node.attributes.get("anychunk", {}).get("source")
    reader = peers.reader(against)
    known = 0
    for number, image in enumerate(images(node)):
        cut = cuts.get(image.levels[0]) if cuts is not None else None
        if cuts is not None and cut is None:
            continue
        array = open_path(node, image.levels[0], storage=storage)
        where = f"{report.source} {image.levels[0]}"
        try:
            rows = None if cut is None else compared_rows(image, cut)
            pieces = reader(str(source), number, image, tuple(array.shape), rows)
            if pieces is None:
                report.add("info", where, f"{against} does not read this image; not compared")
                continue
            if cut is not None:
                pieces = inside(pieces, cut)
            problem = compare_pieces(array, pieces, against, tolerance)
        except MissingDependencyError:
            raise
        except Exception as e:  # noqa: BLE001 - a foreign reader may raise anything; it is reported
            report.add("warning", where, f"{against} failed: {type(e).__name__}: {e}")
            continue
        known += 1
        if problem is not None:
            report.add("error", where, problem)
    if not known:
        report.add(
            "warning", report.source, f"nothing was compared: {against} reads none of the images"
        )


def compared_rows(image: Image, cut: Cut) -> tuple[int, int] | None:
    """Return the first row of a part, and the one after its last; None if it has no rows."""
    if "y" not in image.names:
        return None
    pick = cut.picks[image.names.index("y")]
    return pick[0], pick[-1] + 1


def inside(pieces: peers.Pieces, cut: Cut) -> peers.Pieces:
    """Yield what lies in a part of boxes and pixels."""
    runs = [list(index_runs(pick)) for pick in cut.picks]
    for box, theirs in pieces:
        for chosen in itertools.product(*runs):
            both = [
                slice(max(s.start, first), min(s.stop, last))
                for s, (first, last) in zip(box, chosen, strict=True)
            ]
            if all(s.start < s.stop for s in both):
                place = (
                    slice(s.start - b.start, s.stop - b.start)
                    for s, b in zip(both, box, strict=True)
                )
                yield tuple(both), theirs[tuple(place)]


def index_runs(pick: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of numbers that follow each other: (first, one after the last)."""
    if is_run(pick):
        yield pick[0], pick[-1] + 1
        return
    for run in near_groups(sorted(set(pick)), 1):
        yield run[0], run[-1] + 1


def compare_pieces(
    array: zarr.Array[Any], pieces: peers.Pieces, against: str, tolerance: float
) -> str | None:
    """Describe how an array differs from another reader's pieces; None if it does not."""
    differ, largest, first = 0, 0.0, None
    for box, theirs in pieces:
        ours = np.asarray(array[box])
        if theirs.shape != ours.shape:
            return f"shape {ours.shape}, {against} reads {theirs.shape}"
        wrong, gap = difference(ours, theirs, tolerance)
        largest = max(largest, gap)
        if wrong.any() and first is None:
            place = np.argwhere(wrong)[0]
            first = tuple(int(s.start + p) for s, p in zip(box, place, strict=True))
        differ += int(wrong.sum())
    if not differ:
        return None
    return f"{differ} values differ from {against}, the first at {first}, by at most {largest:g}"


def difference(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any], tolerance: float
) -> tuple[npt.NDArray[np.bool_], float]:
    """Return where two arrays differ, and the largest difference; NaN equals NaN."""
    wrong = np.asarray(ours != theirs)
    if ours.dtype.kind in "fc":
        wrong &= ~((ours != ours) & (theirs != theirs))  # noqa: PLR0124 - only NaN differs from itself
    if not wrong.any():
        return wrong, 0.0
    if ours.dtype.kind not in "iufc":
        return wrong, 1.0
    # wide enough for the difference of two 64-bit integers, whatever their signs
    wide = np.complex128 if ours.dtype.kind == "c" else np.longdouble
    gap = np.abs(ours.astype(wide) - theirs.astype(wide))
    if tolerance:
        wrong &= ~(gap <= tolerance)
    return wrong, float(np.nanmax(gap))
