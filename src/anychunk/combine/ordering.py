"""The files of a stack in the order of their dates.

Where dates are known before files are parsed, the files are sorted. Where the files themselves
state them, the finished stack is: its chunks have length 1 along t, so that sorting it moves rows
of the chunk tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from anychunk.combine.images import image_node, rebuilt, same_images
from anychunk.combine.parallel import Failures
from anychunk.errors import FormatError
from anychunk.formats._jpeg2000_windows import divided_tree, whole_tree
from anychunk.io.secrets import without_secrets
from anychunk.metadata import dates as dates_of
from anychunk.metadata.dates import Rules
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Node

type Dates = str | bool | Sequence[Any] | Mapping[str, Any] | Callable[[str], Any] | None
"""What a caller gives as dates: see `anychunk.index`."""
AXIS = "t"
TAGS = "tags"
"""The word for dates that the files state, which all of them must."""


def dates_of_urls(
    urls: Sequence[str], given: Dates, failures: Failures | None = None
) -> dict[str, int] | None:
    """Return the date of every file, by url; None if it is the files that state them.

    Parameters:
        urls: The files.
        given: A pattern for their names, one date per file, dates by url, or a function.
        failures: Where files whose names have no date are noted; None: they raise.

    Raises:
        ValueError: What is given is neither, or not dates.
        FormatError: The name of a file has no date; the first is named.
    """
    if given is None or isinstance(given, bool):
        return {} if given is False else None
    if isinstance(given, str):
        return None if given == TAGS else _from_names(urls, given, failures)
    if isinstance(given, Mapping):
        missing = next((url for url in urls if url not in given), None)
        if missing is not None:
            raise FormatError(f"{missing}: dates= has no date for this file")
        return {url: dates_of.from_value(given[url]) for url in urls}
    if callable(given):
        return {url: dates_of.from_value(given(url)) for url in urls}
    found = list(given)
    if len(found) != len(urls):
        raise ValueError(f"dates= has {len(found)} dates, expected {len(urls)}, one per file")
    return {url: dates_of.from_value(value) for url, value in zip(urls, found, strict=True)}


def _from_names(urls: Sequence[str], pattern: str, failures: Failures | None) -> dict[str, int]:
    dates_of.check_pattern(pattern)
    found = {}
    for url in urls:
        path = url.partition("?")[0].rstrip("/").replace("\\", "/")
        name = path if "/" in pattern else path.rpartition("/")[2]
        value = dates_of.from_name(pattern, name)
        if value is not None:
            found[url] = value
            continue
        message = (
            f"{without_secrets(url)}: its name has no date like {pattern!r}; a number that goes on "
            "is not a date"
        )
        if failures is None:
            raise FormatError(message)
        failures[url] = message
    return found


def sorted_urls(urls: Sequence[str], dates: Mapping[str, int], rules: Rules) -> list[str]:
    """Return files in their order, checked for equal dates; equal dates keep the order given."""
    if rules.duplicates == "error":
        dates_of.refuse_twice([dates[url] for url in urls], urls)
    return sorted(urls, key=dates.__getitem__) if rules.order == "date" else list(urls)


def date_of(node: Node) -> int | None:
    """Return the date that a file states: that of its first image which has one."""
    for image in im.images(node):
        found = dates_of.from_text(meaning_of(node, image).time)
        if found is not None:
            return found
    return None


def stacked_dates(node: Node) -> list[int] | None:
    """Return the dates along t of the first image that has some."""
    for image in im.images(node):
        values = _values(meaning_of(node, image))
        if values is not None:
            return values
    return None


def _values(meaning: Meaning) -> list[int] | None:
    for axis in meaning.axes:
        if axis.name == AXIS and axis.values is not None and dates_of.is_dates(axis.attributes):
            return [int(value) for value in axis.values]
    return None


def in_order(node: GroupIndex, urls: Sequence[str], rules: Rules) -> GroupIndex:
    """Return a stack along t in the order of its dates; one without dates as it is.

    Parameters:
        node: The stack.
        urls: Its files, in their order, for messages.
        rules: What is asked for.
    """
    found = stacked_dates(node)
    if found is None:
        return node
    if rules.duplicates == "error":
        dates_of.refuse_twice(found, urls)
    order = np.argsort(np.asarray(found), kind="stable")
    if rules.order == "given" or np.array_equal(order, np.arange(len(order))):
        return node
    return _reordered(node, order)


def _reordered(node: GroupIndex, order: Any) -> GroupIndex:
    """Return a stack with its elements along t in another order."""
    whole = cast("GroupIndex", whole_tree(node))
    made: dict[str, Node] = {}
    for images in same_images({"": whole}):
        position = images.first.names.index(AXIS)
        levels = [
            replace(level, image=_taken(level.image, order, position))
            for level in images.first_levels
        ]
        made[images.path] = image_node(images, _taken_meaning(images.first, order), levels)
    tree = cast("GroupIndex", rebuilt(whole, made))
    root = {**tree.attributes, **{k: v for k, v in node.attributes.items() if k == "anychunk"}}
    tree = replace(tree, attributes=root, pins=node.pins, roots=node.roots)
    return cast("GroupIndex", divided_tree(tree))


def _taken_meaning(meaning: Meaning, order: Any) -> Meaning:
    axes = tuple(
        replace(axis, values=tuple(axis.values[n] for n in order.tolist()))
        if axis.name == AXIS and axis.values is not None
        else axis
        for axis in meaning.axes
    )
    return replace(meaning, axes=axes)


def _taken(array: ArrayIndex, order: Any, position: int) -> ArrayIndex:
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or array.chunk_shape[position] != 1:
        raise FormatError("combine: the chunks of this stack cannot be sorted by date")
    numbers = np.arange(chunks.offsets.size).reshape(array.grid)
    taken = np.take(numbers, order, axis=position).reshape(-1)
    return replace(array, chunks=chunks.picked(taken, array.grid))
