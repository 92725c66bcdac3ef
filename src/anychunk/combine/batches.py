"""Index many files batch by batch, so that the index of each file is forgotten soon.

A worker parses some files and combines them at once: what it returns is one table per array, not an
index per file. The batches of a stack or a concatenation are then joined along the same axis, as
files that are appended to an archive are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

from anychunk.combine import How, axis_of, check_places, combine
from anychunk.combine.images import date_of, same_images
from anychunk.combine.parallel import Failures, Parse, are_remote, attempt, run_tasks
from anychunk.errors import AnychunkError, FilesError
from anychunk.formats._two_steps import in_one_step
from anychunk.io.source import Signed, without_secrets
from anychunk.metadata.dates import Georeference, Rules
from anychunk.metadata.joining import collected_warnings
from anychunk.model.index import GroupIndex, Json, Node


class Item(NamedTuple):
    """A file to index."""

    url: str
    name: str
    """Of its group."""
    date: int | None = None
    """Of the file, if it is known before the file is parsed."""
    source: Any = None
    """What is parsed instead of the url, such as the assets of a STAC item."""


type DateSource = Literal["stated", "required", "given", "none"]
"""Where the dates of a stack come from: what files state, if all do; what all files must state; the
items; nowhere."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How files become indexes, and several indexes one."""

    parse: Parse
    how: How | None
    """None, or "mosaic", which needs all files at once: files are not combined."""
    along: str | int | None = None
    dates: DateSource = "stated"
    rules: Rules = field(default_factory=Rules)
    """How the files of a stack fit each other."""

    @property
    def is_joined(self) -> bool:
        """Whether batches can be combined on their own and joined afterwards."""
        return self.how in ("stack", "concat", "group")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some files, indexed."""

    urls: tuple[str, ...] = ()
    """Of the files that were indexed."""
    node: GroupIndex | None = None
    """Their combined index; None if they are not combined, or there are none."""
    files: Mapping[str, Node] = field(default_factory=dict)
    """Their indexes, if they are not combined."""
    failures: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    dates: Mapping[str, int] = field(default_factory=dict)
    """What the files state, by url, where only that was asked for."""

    @property
    def count(self) -> int:
        """How many files were tried."""
        return len(self.urls) + len(self.failures)


def index_part(recipe: Recipe, items: Sequence[Item]) -> Part:
    """Parse some files and combine them; runs on a worker."""
    found: dict[str, Node] = {}
    failures: Failures = {}
    for url, _, _, source in items:
        with nullcontext() if recipe.how is None else in_one_step():
            outcome = attempt(recipe.parse, source or url)
        if isinstance(outcome, AnychunkError):
            failures[url] = str(outcome)
        elif recipe.dates == "required" and date_of(outcome) is None:
            name = without_secrets(url)
            failures[url] = f"{name}: states no date; pass dates= with a pattern, such as '%Y%m%d'"
        else:
            found[url] = outcome
    if recipe.how is None or not recipe.is_joined or not found:
        return Part(urls=tuple(found), files=found, failures=failures)
    names = [item.name for item in items if item.url in found]
    dates = None if recipe.dates in ("stated", "required") else {i.url: i.date for i in items}
    with collected_warnings() as messages:
        node = combine(
            found,
            recipe.how,
            along=recipe.along,
            names=names,
            dates=dates if recipe.how == "stack" else None,
            georeference=recipe.rules.georeference,
        )
    return Part(urls=tuple(found), node=node, failures=failures, warnings=tuple(messages))


def dates_of_part(recipe: Recipe, items: Sequence[Item]) -> Part:
    """Parse some files for the dates that they state; runs on a worker."""
    found = {}
    for url, _, _, source in items:
        outcome = attempt(recipe.parse, source or url)
        if not isinstance(outcome, AnychunkError) and (date := date_of(outcome)) is not None:
            found[url] = date
    return Part(dates=found)


def _failed(item: Item, reason: str) -> Part:
    return Part(failures={item.url: f"{without_secrets(item.url)}: the worker failed: {reason}"})


def index_parts(
    recipe: Recipe,
    batches: Sequence[Sequence[Item]],
    executor: Any = None,
    *,
    on_part: Callable[[Part], None] = lambda _: None,
    work: Callable[[Recipe, Sequence[Item]], Part] = index_part,
) -> Iterator[list[Part]]:
    """Index batches of files; yield the parts of each batch, in order.

    Parameters:
        recipe: What is done with the files.
        batches: The files.
        executor: As in `parallel.run_tasks`.
        on_part: Called with each part as it arrives.
        work: What makes a part of some files.
    """
    urls = [item.url for batch in batches[:1] for item in batch]
    signed = {} if executor is None else _signed_urls(batches)
    for parts in run_tasks(
        partial(work, recipe),
        batches,
        executor,
        is_remote=are_remote(urls),
        failed=_failed,
        on_result=on_part,
    ):
        yield [_with_signatures(part, signed) for part in parts] if signed else parts


def _signed_urls(batches: Sequence[Sequence[Item]]) -> dict[str, str]:
    """Return the signed urls of files by their names."""
    items = [item for batch in batches for item in batch]
    urls = [asset.url for item in items for asset in getattr(item.source, "assets", ())]
    urls += [item.url for item in items]
    return {name: url for url in urls if (name := without_secrets(url)) != url}


def _with_signatures(part: Part, signed: Mapping[str, str]) -> Part:
    """Return what a worker found with the signatures, which do not travel with an index."""

    def restored[N: Node](node: N) -> N:
        pins = {
            url: replace(pin, signed=Signed({url: signed[url]})) if url in signed else pin
            for url, pin in node.pins.items()
        }
        return replace(node, pins=pins)

    files = {url: restored(node) for url, node in part.files.items()}
    return replace(part, files=files, node=part.node and restored(part.node))


def check_failures(
    parts: Sequence[Part], failures: Failures | None, *, total: int, may_be_none: bool = False
) -> None:
    """Note the failures of parts in `failures`.

    Raises:
        FilesError: There are some and `failures` is None, or no file was indexed.
    """
    failed: Failures = {} if failures is None else failures
    for part in parts:
        failed.update(part.failures)
    is_any = any(part.urls for part in parts)
    if failed and (failures is None or not (is_any or may_be_none)):
        raise FilesError(failed, total)


def joined(
    parts: Sequence[GroupIndex],
    labels: Sequence[str],
    how: How,
    georeference: Georeference = "error",
) -> GroupIndex:
    """Return the index of all files from those of consecutive parts.

    Parameters:
        parts: At least one combined index.
        labels: The url of the last file of each, for messages.
        how: How they were combined: "stack", "concat" or "group".
        georeference: For "stack", whether parts may be at different places.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    abouts = [part.attributes["anychunk"] for part in parts]
    about: dict[str, Json] = {**abouts[0], "files": sum(about["files"] for about in abouts)}
    if folders := [folder for about in abouts for folder in about.get("folders", ())]:
        about["folders"] = folders
    pins = dict(first.pins)
    for part in parts[1:]:
        pins |= part.pins
    if how == "group":
        members: dict[str, Node] = {}
        for part in parts:
            members |= part.members
        made = GroupIndex(members=members)
    else:
        axis = axis_of(first)
        # the pins and what is said about all files are joined above
        bare = {label: replace(part, pins={}) for label, part in zip(labels, parts, strict=True)}
        if how == "stack" and georeference == "error":
            check_places(same_images(bare))
        made = combine(bare, "concat", along=axis)
    return replace(made, attributes={**made.attributes, "anychunk": about}, pins=pins)
