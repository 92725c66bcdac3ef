"""How samples are drawn: the colour palette of an image."""

from collections.abc import Mapping
from typing import Any

from anychunk.model.index import Json


def palette(attributes: Mapping[str, Json]) -> list[Any] | None:
    """Return the colour table that an image's samples index; None if it has none.

    A parser stores it as `color_map` among the format's own attributes (`tiff.color_map`). The
    orientation is the format's: one list per colour component, or one per entry.
    """
    for native in attributes.values():
        table = native.get("color_map") if isinstance(native, Mapping) else None
        if isinstance(table, list):
            return table
    return None
