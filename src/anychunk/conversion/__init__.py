"""Convert files to Zarr, TIFF, N5, JNRRD or NRRD: larger than memory, in parallel, resumable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from anychunk import api
from anychunk._drawn import Drawn
from anychunk.conversion.executor import Progress, compare_all, start_workers, write_all
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.packing import notes as packing_notes
from anychunk.conversion.packing import packings
from anychunk.conversion.plan import make_plan
from anychunk.conversion.single_files import refuse_zarr_options, write_images
from anychunk.conversion.source_boxes import GivenBoxes
from anychunk.conversion.staging import with_files
from anychunk.conversion.target import Target
from anychunk.conversion.tasks import Conversion
from anychunk.conversion.tiff_files import to_tiff
from anychunk.conversion.tiff_plan import TiffOptions, is_tiff
from anychunk.conversion.windows import with_limits
from anychunk.errors import UnsupportedError
from anychunk.io import sink
from anychunk.io.source import Storage, as_url
from anychunk.io.threads import cores
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, GroupIndex, Node, find, walk
from anychunk.selection import Part, part_of
from anychunk.selection.wanted import selection

__all__ = ["Report", "convert"]

DEFAULT_LIKE = "ome-zarr"


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


def convert(
    source: str | Path | Node | Sequence[str | Path],
    target: str | Path,
    *,
    format: str | None = None,
    like: str = DEFAULT_LIKE,
    chunk: Sequence[int] | None = None,
    shard: Sequence[int] | bool | None = None,
    compression: str | Sequence[Any] | None = None,
    pack: str | None = None,
    levels: int | None = None,
    method: str | None = None,
    axes: Sequence[str] | None = None,
    image: int | str | None = None,
    bbox: Sequence[float] | None = None,
    bbox_crs: str | None = None,
    window: Sequence[Sequence[int | None] | slice] | None = None,
    bands: Sequence[int | str] | int | str | None = None,
    level: int | str | None = None,
    time: int | str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    allow: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
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
        like: For Zarr, the preset: `ome-zarr`, `cloud`, `archive`, or `ome-zarr-0.4`, which writes
            Zarr v2 with OME-Zarr 0.4 metadata for older viewers. `chunk`, `shard`, `compression`
            and `levels` override its settings one by one.
        chunk: Chunk shape of the last axes; blocks of N5, tiles of TIFF and JNRRD.
        shard: For Zarr, shard shape of the last axes; False for no shards.
        compression: For Zarr `zstd:LEVEL`, `blosc`, `gzip` or `none`, joined by `+`, or a list of
            codecs as JSON or zarr's objects, filters and a serializer included; for TIFF `deflate`,
            `zstd`, `lzw`, `lzma`, `packbits`, `jpeg`, `webp`, `lerc` or `none`, most with `:LEVEL`
            (quality of `jpeg` and `webp`, largest error of `lerc`); for N5 and JNRRD the name of
            one of their compressions.
        pack: For Zarr, the integer type in which floats are stored, such as `int16`, by the codecs
            `scale_offset` and `cast_value`; NaN and nodata are NaN in the result. With `:ERROR`,
            such as `int16:0.01`, values are rounded as far as this error allows, by default as
            little as the type allows. The report says how large the error is.
        levels: The number of levels, including the full resolution. By default the preset decides,
            and a source with several levels keeps its own.
        method: For Zarr and TIFF, how levels are computed: `average`, `mode`, `max` or `min`.
        axes: For Zarr and TIFF, the names of the axes, such as `zyx`, if the source names none.
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
        overwrite: Replace an existing target.
        workers: For Zarr and TIFF, the number of threads; by default one per core.
        scheduler: For Zarr, the address of a Dask scheduler to run on instead of threads.
        progress: For Zarr and TIFF, called with (bytes done, bytes in total) as the work proceeds.
        storage: Options of the source's object store, passed to obstore.
        target_storage: Options of the target's object store.
        allow: Prefixes of the urls that a saved index may refer to.
        options: Further options of the writer of TIFF (`predictor`, `bigtiff`, `interleave`,
            `layout`), N5 or JNRRD.

    Returns a `Report`. Raises `FormatError` if the target already exists or, with `verify`, differs
    from the source; `UnsupportedError` if the options do not fit the source or the target.
    """
    url = as_url(target).rstrip("/")
    node = join_sources(source, storage, allow)
    wanted = selection(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    part = None
    if not wanted.is_everything:
        part = part_of(node, wanted, image=image)
        node, image = part.node, None
    name = format or ("zarr" if url.lower().endswith(".zarr") else None)
    if name == "zarr":
        zarr_options = ZarrOptions(
            like=like,
            chunk=chunk,
            shard=shard,
            compression=compression,
            pack=pack,
            levels=levels,
            method=method,
            axes=axes,
            image=image,
        )
        return to_zarr(
            node,
            url,
            zarr_options,
            verify=verify,
            overwrite=overwrite,
            count=workers or cores(),
            scheduler=scheduler,
            progress=progress,
            storage=storage,
            target_storage=target_storage,
            part=part,
        )
    if name == "tiff" or (name is None and is_tiff(url)):
        refuse_zarr_options(
            url, like=like != DEFAULT_LIKE, shard=shard, pack=pack, scheduler=scheduler
        )
        written = to_tiff(
            node,
            url,
            tiff_options(
                options or {},
                compression=compression,
                chunk=chunk,
                levels=levels,
                method=method,
                axes=axes,
                image=image,
            ),
            verify=verify,
            overwrite=overwrite,
            count=workers or cores(),
            progress=progress,
            storage=storage,
            target_storage=target_storage,
            part=part,
        )
        losses = (*written.losses, *lost_in(part))
        return Report(target=url, is_verified=verify, **{**vars(written), "losses": losses})
    given = {"chunk": chunk, "compression": compression, "levels": levels}
    refuse_zarr_options(
        url,
        like=like != DEFAULT_LIKE,
        shard=shard,
        pack=pack,
        method=method,
        axes=axes,
        scheduler=scheduler,
    )
    done = write_images(
        node,
        url,
        format,
        image=image,
        options={key: value for key, value in given.items() if value is not None},
        writer_options=options or {},
        storage=storage,
        target_storage=target_storage,
        verify=verify,
        overwrite=overwrite,
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


def tiff_options(further: Mapping[str, Any], *, compression: Any, **given: Any) -> TiffOptions:
    """Return the options of a TIFF target; raise `UnsupportedError` for unknown ones."""
    known = ("predictor", "bigtiff", "interleave", "layout")
    unknown = [name for name in further if name not in known]
    if unknown:
        raise UnsupportedError(
            f"tiff: unknown option {unknown[0]!r}; expected one of: {' '.join(known)}"
        )
    if compression is not None and not isinstance(compression, str):
        raise UnsupportedError("tiff: compression is a list of codecs, expected a name")
    return TiffOptions(compression=compression, **given, **further)


def to_zarr(
    node: Node,
    url: str,
    options: ZarrOptions,
    *,
    verify: bool,
    overwrite: bool,
    count: int,
    scheduler: str | None,
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
        with start_workers(count, scheduler, plain) as workers:
            options = replace(options, packed=packings(plain, workers, options.pack))
    plan = make_plan(node, options, count)
    sink.check_case(url, [path for path, _ in walk(plan.root)])
    target = Target(url, target_storage, zarr_format=plan.zarr_format)
    errors: dict[str, float] = {}
    with target.locked():
        is_finished = target.is_finished(plan.fingerprint)
        journal = None
        if not is_finished:
            key = with_files(plan.fingerprint, node.pins)
            journal = target.prepare(key, overwrite=overwrite)
        conversion = Conversion(
            plan,
            url if is_finished else target.part,
            source_storage=storage,
            target_storage=target_storage,
            given=given,
            part=part,
        )
        skipped = plan.nbytes
        with start_workers(count, scheduler, conversion) as workers:
            if journal is not None:
                skipped = write_all(conversion, journal, workers, progress)
            if verify or options.packed:
                errors = compare_all(conversion, workers, progress)
        if journal is not None:
            root = with_limits(plan, conversion)
            target.finish(plan, journal, overwrite=overwrite, root=root)
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
        return api.index(source, to=None, **given)
    nodes = [api.index(one, to=None, **given) for one in source]
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
