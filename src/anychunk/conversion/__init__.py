"""Convert files to Zarr, TIFF, N5, JNRRD or NRRD: larger than memory, in parallel, resumable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

from anychunk import api
from anychunk._drawn import Drawn
from anychunk.conversion.executor import compare_all, start_workers, write_all
from anychunk.conversion.levels import ZarrOptions, options_for, run_options
from anychunk.conversion.packing import notes as packing_notes
from anychunk.conversion.packing import packings
from anychunk.conversion.plan import make_plan
from anychunk.conversion.single_files import write_images
from anychunk.conversion.source_boxes import GivenBoxes
from anychunk.conversion.staging import with_files
from anychunk.conversion.target import Target
from anychunk.conversion.tasks import Conversion
from anychunk.conversion.tiff_files import to_tiff
from anychunk.conversion.tiff_plan import TiffOptions, is_tiff
from anychunk.conversion.windows import with_limits
from anychunk.formats import options_of_others
from anychunk.io import sink
from anychunk.io.source import Storage, as_url
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, GroupIndex, Node, find, walk
from anychunk.options import Progress, WriteOptions, checked
from anychunk.selection import Part, part_of
from anychunk.selection.wanted import selection

__all__ = ["Report", "convert"]


@dataclass(frozen=True, kw_only=True)
class Report(Drawn):
    """What a conversion did."""

    target: str
    arrays: int
    nbytes: int
    """Decoded bytes of all arrays."""
    skipped_bytes: int = 0
    """How many of them an earlier, interrupted conversion had written."""
    is_verified: bool = False
    notes: tuple[str, ...] = ()
    """What the caller should know about the result."""
    largest_error: float = 0.0
    """The largest difference between the source and a target that is packed, as measured."""
    losses: tuple[str, ...] = ()
    """What the source states and the target cannot hold, one line each."""


@checked(further=options_of_others)
def convert(
    source: str | Path | Node | Sequence[str | Path],
    target: str | Path,
    *,
    format: str | None = None,
    image: int | str | None = None,
    bbox: Sequence[float] | None = None,
    bbox_crs: str | None = None,
    window: Sequence[Sequence[int | None] | slice] | None = None,
    bands: Sequence[int | str] | int | str | None = None,
    level: int | str | None = None,
    time: int | str | None = None,
    verify: bool = False,
    executor: Any = None,
    storage: Storage | None = None,
    allow: Iterable[str] = (),
    **options: Unpack[WriteOptions],
) -> Report:
    """Convert a file, several files, or an index; the target's extension chooses the format.

    An interrupted conversion is resumed by the same call. The target appears under its name only
    when it is complete; a second conversion to the same local target is refused meanwhile.

    Parameters:
        source: A path or url, several of them (their images become the groups 0, 1, ...), or an
            index.
        target: A path or url that ends in `.zarr` (Zarr v3 with OME-Zarr 0.5 metadata), `.tif` (a
            Cloud Optimized GeoTIFF of one image), `.ome.tif` (an OME-TIFF pyramid), `.n5`,
            `.jnrrd`, `.nrrd` or `.nhdr` (the first level of each image).
        format: `zarr`, `tiff`, `n5` or `jnrrd`; by default inferred from the extension.
        image: Number or path of the only image to convert.
        bbox: Write only the pixels that this box touches: xmin, ymin, xmax, ymax, in the CRS of the
            image, or in the unit of its pixel sizes.
        bbox_crs: The CRS of `bbox`, x before y, such as `EPSG:32633`; `lonlat` for degrees.
        window: Write only these rows and columns of the full resolution: `((0, 512), (256, 768))`.
        bands: Write only these bands, by number or name, in this order.
        level: Write this level, by number or name, and those coarser than it. A box or a window
            leaves only the first of them; further ones are computed from its pixels.
        time: Write only these elements along t: a number, a range such as `"2:5"`, a date such as
            `"2026-03"`, or an interval such as `"2026-01/2026-03"`, which includes both.
        verify: Read everything back and compare it with the source.
        executor: For Zarr, where it runs: a Dask client or the address of a Dask scheduler, or a
            `concurrent.futures.Executor`; by default on threads.
        storage: Options of the source's object store, passed to obstore.
        allow: Prefixes of the urls that a saved index may refer to.
        **options: Those of `write`.

    Returns a `Report`.

    Raises:
        OptionError: There is no such option, or the target does not have it.
        TargetExistsError: There is something at the target; also a `FileExistsError`.
        FormatError: With `verify`, the target differs from the source.
        UnsupportedError: The target cannot hold the source.
    """
    url = as_url(target).rstrip("/")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    given |= {} if executor is None else {"executor": executor}
    node = join_sources(source, storage, tuple(allow))
    wanted = selection(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    part = None
    if not wanted.is_everything:
        part = part_of(node, wanted, image=image)
        node, image = part.node, None
    name = format or ("zarr" if url.lower().endswith(".zarr") else None)
    if name == "zarr":
        given.pop("executor", None)
        return to_zarr(
            node,
            url,
            options_for(ZarrOptions, f"{url}: zarr", {**given, "image": image}),
            verify=verify,
            executor=executor,
            storage=storage,
            part=part,
            **run_options(given),
        )
    if name == "tiff" or (name is None and is_tiff(url)):
        written = to_tiff(
            node,
            url,
            options_for(TiffOptions, f"{url}: tiff", {**given, "image": image}),
            verify=verify,
            storage=storage,
            part=part,
            **run_options(given),
        )
        losses = (*written.losses, *lost_in(part))
        return Report(target=url, is_verified=verify, **{**vars(written), "losses": losses})
    done = write_images(
        node,
        url,
        format,
        image=image,
        options=given,
        storage=storage,
        verify=verify,
        part=part,
    )
    return Report(
        target=url,
        arrays=done.arrays,
        nbytes=done.nbytes,
        skipped_bytes=done.skipped_bytes,
        is_verified=verify,
        losses=(*getattr(done, "losses", ()), *lost_in(part)),
    )


def lost_in(part: Part | None) -> tuple[str, ...]:
    """Return what a part does not have of the whole."""
    return () if part is None else part.losses


def to_zarr(
    node: Node,
    url: str,
    options: ZarrOptions,
    *,
    verify: bool,
    overwrite: bool,
    count: int,
    executor: Any,
    progress: Progress | None,
    storage: Storage | None,
    target_storage: Storage | None,
    given: Mapping[str, GivenBoxes] | None = None,
    part: Part | None = None,
) -> Report:
    """Write a Zarr v3 hierarchy, on `count` threads or on the workers of a Dask cluster."""
    if options.pack is not None:
        plain = Conversion(
            make_plan(node, replace(options, notes=[]), count), url,
            source_storage=storage, given=given, part=part,
        )  # fmt: skip
        with start_workers(count, executor, plain) as workers:
            options = replace(options, packed=packings(plain, workers, options.pack))
    plan = make_plan(node, options, count)
    sink.check_case(url, [path for path, _ in walk(plan.root)])
    target = Target(url, target_storage, zarr_format=plan.zarr_format)
    errors: dict[str, float] = {}
    with target.locked():
        journal = target.prepare(with_files(plan.fingerprint, node.pins), overwrite=overwrite)
        conversion = Conversion(
            plan,
            target.part,
            source_storage=storage,
            target_storage=target_storage,
            given=given,
            part=part,
        )
        with start_workers(count, executor, conversion) as workers:
            skipped = write_all(conversion, journal, workers, progress)
            if verify or options.packed:
                errors = compare_all(conversion, workers, progress)
        target.finish(journal, with_limits(plan, conversion), overwrite=overwrite)
    return Report(
        target=url,
        arrays=len(plan.arrays),
        nbytes=plan.nbytes,
        skipped_bytes=skipped,
        is_verified=verify,
        notes=(*plan.notes, *packing_notes(options, errors)),
        largest_error=max(errors.values(), default=0.0),
        losses=(*plan.losses, *lost_in(part)),
    )


def join_sources(source: Any, storage: Storage | None, allow: Sequence[str] = ()) -> Node:
    """Index the source; the images of several files become the members 0, 1, ... of one group."""
    if isinstance(source, GroupIndex | ArrayIndex):
        return source
    # other formats than a saved index do not accept `allow`
    given: dict[str, Any] = {"storage": storage, **({"allow": allow} if allow else {})}
    if isinstance(source, str | Path):
        return api.index(source, **given)
    nodes = [api.index(one, **given) for one in source]
    if len(nodes) == 1:
        return nodes[0]
    members: dict[str, Node] = {}
    pins: dict[str, Any] = {}
    for node in nodes:
        for image in im.images(node):
            found = cast("Node", find(node, image.path))
            if isinstance(found, ArrayIndex):
                found = GroupIndex(members={"0": found})
            members[str(len(members))] = found
        pins |= node.pins
    about = [node.attributes.get("anychunk", {}) for node in nodes]
    return GroupIndex(members=members, attributes={"anychunk": {"sources": about}}, pins=pins)
