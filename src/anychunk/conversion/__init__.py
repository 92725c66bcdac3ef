"""Convert any opened file to Zarr v3, N5 or JNRRD: larger than memory, in parallel, resumable."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anychunk import api
from anychunk.conversion.crew import Progress, compare_all, executor, write_all
from anychunk.conversion.others import refuse_zarr_wishes, write_other
from anychunk.conversion.place import Place
from anychunk.conversion.plan import Wishes
from anychunk.conversion.planning import make_plan
from anychunk.conversion.work import Workshop
from anychunk.io import Storage
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node, find

__all__ = ["Report", "convert"]

DEFAULT_LIKE = "ome-zarr"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a conversion did."""

    target: str
    arrays: int
    nbytes: int
    """Decoded bytes of all arrays."""
    skipped_bytes: int = 0
    """Of these, how many were there and right already."""
    is_verified: bool = False
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path | Node | Sequence[str | Path],
    target: str | Path,
    *,
    format: str | None = None,
    like: str = DEFAULT_LIKE,
    chunk: Sequence[int] | None = None,
    shard: Sequence[int] | bool | None = None,
    compression: str | Sequence[Json] | None = None,
    levels: int | None = None,
    method: str | None = None,
    axes: Sequence[str] | None = None,
    image: int | str | None = None,
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
    """Convert a file, several files or an index to what the target's name tells.

    `*.zarr`: Zarr v3 with OME-Zarr 0.5 metadata. `like` is a preset (ome-zarr, cloud, archive) that
    `chunk`, `shard` (False: none), `compression` (`zstd:5`, `blosc`, `gzip`, `none`, or JSON) and
    `levels` change one by one. `levels` counts all levels, made by `method` (average, mode, max,
    min); without it a preset decides, and a source that has levels keeps its own. `axes` names the
    axes of a source that does not. `*.n5`, `*.jnrrd`: the first level of each image, in blocks or
    tiles of `chunk`, with `compression` and `levels` as that format knows them, and further
    `options` of its writer.

    Work that broke off is taken up again by the same call; nothing stands under the target's
    name before all of it is there. `verify` reads every chunk back and compares. `scheduler` is the
    address of a Dask scheduler to work on. `allow` lists what a saved index may refer to.
    """
    url = str(target).rstrip("/")
    node = join_sources(source, storage, allow)
    name = format or ("zarr" if url.lower().endswith(".zarr") else None)
    if name == "zarr":
        wishes = Wishes(
            like=like,
            chunk=chunk,
            shard=shard,
            compression=compression,
            levels=levels,
            method=method,
            axes=axes,
            image=image,
        )
        return to_zarr(
            node,
            url,
            wishes,
            verify=verify,
            overwrite=overwrite,
            count=workers or os.cpu_count() or 1,
            scheduler=scheduler,
            progress=progress,
            storage=storage,
            target_storage=target_storage,
        )
    given = {"chunk": chunk, "compression": compression, "levels": levels}
    refuse_zarr_wishes(
        url,
        like=like != DEFAULT_LIKE,
        shard=shard,
        method=method,
        axes=axes,
        scheduler=scheduler,
    )
    nbytes, count = write_other(
        node,
        url,
        format,
        image=image,
        wishes={key: value for key, value in given.items() if value is not None},
        options=options or {},
        storage=storage,
        target_storage=target_storage,
        verify=verify,
        overwrite=overwrite,
    )
    return Report(target=url, arrays=count, nbytes=nbytes, is_verified=verify)


def to_zarr(
    node: Node,
    url: str,
    wishes: Wishes,
    *,
    verify: bool,
    overwrite: bool,
    count: int,
    scheduler: str | None,
    progress: Progress | None,
    storage: Storage | None,
    target_storage: Storage | None,
) -> Report:
    """Write a hierarchy of Zarr v3, by `count` threads or by the workers of a Dask cluster."""
    plan = make_plan(node, wishes, count)
    place = Place(url, target_storage)
    is_finished = place.is_finished(plan.fingerprint)
    journal = None if is_finished else place.prepare(plan.fingerprint, overwrite=overwrite)
    shop = Workshop(
        plan,
        url if is_finished else place.aside,
        source_storage=storage,
        target_storage=target_storage,
    )
    skipped = plan.nbytes
    with executor(count, scheduler, shop) as crew:
        if journal is not None:
            skipped = write_all(shop, journal, crew, progress)
        if verify:
            compare_all(shop, crew, progress)
    if journal is not None:
        place.finish(plan, journal, overwrite=overwrite)
    return Report(
        target=url,
        arrays=len(plan.arrays),
        nbytes=plan.nbytes,
        skipped_bytes=skipped,
        is_verified=verify,
        notes=plan.notes,
    )


def join_sources(source: Any, storage: Storage | None, allow: Sequence[str] = ()) -> Node:
    """Index the source; the images of several files stand side by side, numbered through."""
    if isinstance(source, GroupIndex | ArrayIndex):
        return source
    # only a saved index knows what it may refer to
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
