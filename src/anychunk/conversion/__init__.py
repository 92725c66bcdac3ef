"""Convert any opened file to Zarr v3, N5 or JNRRD: larger than memory, in parallel, resumable."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anychunk import api, sink
from anychunk import images as im
from anychunk.conversion.journal import Journal
from anychunk.conversion.others import refuse_zarr_wishes, write_other
from anychunk.conversion.plan import Plan, Wishes
from anychunk.conversion.planning import make_plan
from anychunk.conversion.work import Task, Workshop
from anychunk.errors import FormatError, MissingDependencyError, SourceError
from anychunk.index import ArrayIndex, GroupIndex, Json, Node, find
from anychunk.source import Storage, is_remote, local_path, read_object

__all__ = ["Report", "convert"]

DEFAULT_LIKE = "ome-zarr"

type Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes to do), decoded."""


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
    if name != "zarr":
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
    count = workers or os.cpu_count() or 1
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


class Place:
    """Where a conversion goes: aside first where it is local, under its name at the end."""

    def __init__(self, url: str, storage: Storage | None) -> None:
        self.url, self.storage = url, storage
        self.is_local = not is_remote(url)
        path = Path(local_path(url))
        self.aside = str(path.with_name(f".{path.name}.part")) if self.is_local else url

    def is_finished(self, fingerprint: str) -> bool:
        """Whether this very conversion was brought to its end before."""
        data = read_object(f"{self.url}/zarr.json", storage=self.storage)
        if data is None:
            return False
        try:
            found = json.loads(data.tobytes())["attributes"]["anychunk"]["conversion"]
        except (ValueError, KeyError, TypeError):
            return False
        return bool(found == fingerprint)

    def is_taken(self) -> bool:
        if self.is_local:
            return Path(local_path(self.url)).exists()
        return read_object(f"{self.url}/zarr.json", storage=self.storage) is not None

    def prepare(self, fingerprint: str, *, overwrite: bool) -> Journal:
        """Make the place ready, or take up what was begun."""
        if self.is_taken() and not overwrite:
            raise FormatError(f"{self.url}: is there already; remove it, or allow to overwrite it")
        journal = Journal(self.aside, fingerprint, storage=self.storage)
        if journal.is_there and not journal.is_ours:
            if not overwrite:
                raise FormatError(
                    f"{self.aside}: an unfinished conversion of another source or with other "
                    "options; remove it, or allow to overwrite it"
                )
            if self.is_local:
                shutil.rmtree(self.aside)
        journal.start()
        return journal

    def finish(self, plan: Plan, journal: Journal, *, overwrite: bool) -> None:
        """Write all metadata, the root last, and let the target appear."""
        for level in plan.arrays:
            self._put(level.path, level.metadata)
        for path, attributes in sorted(plan.groups.items(), reverse=True):
            if path == "":
                about = {**attributes["anychunk"], "conversion": plan.fingerprint}
                attributes = {**attributes, "anychunk": about}  # noqa: PLW2901
            self._put(path, {"zarr_format": 3, "node_type": "group", "attributes": attributes})
        journal.remove()
        if self.is_local:
            self._rename(overwrite=overwrite)

    def _put(self, path: str, metadata: Json) -> None:
        key = f"{path}/zarr.json" if path else "zarr.json"
        data = json.dumps(metadata, indent=2).encode()
        sink.put(f"{self.aside}/{key}", data, storage=self.storage)

    def _rename(self, *, overwrite: bool) -> None:
        path, old = Path(local_path(self.url)), Path(f"{self.aside}.old")
        try:
            if overwrite and path.exists():
                path.rename(old)
            Path(self.aside).rename(path)
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        if old.exists():
            shutil.rmtree(old) if old.is_dir() else old.unlink()


@dataclass(frozen=True)
class Crew:
    """Who works: threads of this process, or a Dask cluster."""

    pool: Executor
    shop: Any
    """The workshop as a worker is given it: on a cluster sent once, not with every task."""
    count: int


@contextmanager
def executor(count: int, scheduler: str | None, shop: Workshop) -> Iterator[Crew]:
    if scheduler is not None:
        with dask_crew(scheduler, shop) as crew:
            yield crew
        return
    with ThreadPoolExecutor(count, thread_name_prefix="anychunk-convert") as pool:
        try:
            yield Crew(pool, shop, count)
        except BaseException:
            # running tasks end after their present region; nothing of theirs counts as done
            shop.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def dask_crew(scheduler: str, shop: Workshop) -> Iterator[Crew]:
    try:
        from distributed import Client
    except ImportError as e:
        raise MissingDependencyError(
            'convert: a scheduler needs dask; install it with: pip install "anychunk[dask]"'
        ) from e
    connect: Any = Client  # untyped
    try:
        client = connect(scheduler, timeout="10s")
    except (OSError, ValueError) as e:
        raise SourceError(f"{scheduler}: no Dask scheduler answers there ({e})") from e
    with client, client.get_executor() as pool:
        count = sum(client.nthreads().values()) or 1
        yield Crew(pool, client.scatter(shop, broadcast=True), count)


def write_all(shop: Workshop, journal: Journal, crew: Crew, progress: Progress | None) -> int:
    """Make every task that is not done; give how many bytes were."""
    before = journal.done()
    done = skipped = 0
    total = shop.plan.nbytes

    def finished(task: Task, result: tuple[int, bool]) -> None:
        nonlocal done, skipped
        checksum, was_there = result
        nbytes = shop.nbytes(task)
        done += nbytes
        skipped += nbytes if was_there else 0
        if not was_there:
            journal.add(task.name(), checksum)
        if progress is not None:
            progress(done, total)

    try:
        for run in range(len(shop.plan.runs)):
            calls = ((task, (write_task, before.get(task.name()))) for task in shop.tasks(run))
            in_parallel(crew, calls, finished)
    finally:
        journal.flush()
    return skipped


def write_task(shop: Workshop, task: Task, expected: int | None) -> tuple[int, bool]:
    if expected is not None and shop.stored_checksum(task) == expected:
        return expected, True
    return shop.write(task), False


def compare_all(shop: Workshop, crew: Crew, progress: Progress | None) -> None:
    """Hold every region against the source."""
    done, total = 0, shop.plan.nbytes

    def finished(task: Task, findings: list[str]) -> None:
        nonlocal done
        if findings:
            raise FormatError(f"{shop.target}: {findings[0]}")
        done += shop.nbytes(task)
        if progress is not None:
            progress(done, total)

    for run in range(len(shop.plan.runs)):
        in_parallel(crew, ((task, (compare_task,)) for task in shop.tasks(run)), finished)


def compare_task(shop: Workshop, task: Task) -> list[str]:
    return shop.compare(task)


def in_parallel(
    crew: Crew,
    calls: Iterable[tuple[Task, tuple[Any, ...]]],
    finished: Callable[[Task, Any], None],
) -> None:
    """Run tasks, a few ahead of those that are done: neither memory nor a queue grows."""
    waiting: dict[Future[Any], Task] = {}

    def collect() -> None:
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            finished(waiting.pop(future), future.result())

    for task, (function, *arguments) in calls:
        waiting[crew.pool.submit(function, crew.shop, task, *arguments)] = task
        if len(waiting) >= 2 * crew.count:
            collect()
    while waiting:
        collect()
