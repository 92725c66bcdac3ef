"""Tagged record extensions (TREs): metadata that headers contain in addition to their own fields.

Spec: STDI-0002. A TRE is a tag of 6 characters, a length of 5 digits, and data.
"""

import io
import json
import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from anychunk.model.index import Json

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SHOWN_BYTES = 64 << 10
"""Longer data is not shown, only its length."""


@dataclass(frozen=True)
class Tre:
    """One extension."""

    tag: str
    data: bytes


def split(data: bytes) -> tuple[list[Tre], bytes]:
    """Return the TREs in a header field, and the bytes from the first malformed one on."""
    found = []
    at = 0
    while at + 11 <= len(data):
        length = data[at + 6 : at + 11]
        if not length.isdigit() or at + 11 + int(length) > len(data):
            break
        tag = data[at : at + 6].decode("latin-1").rstrip()
        found.append(Tre(tag, data[at + 11 : at + 11 + int(length)]))
        at += 11 + int(length)
    return found, data[at:]


def tre_json(tre: Tre) -> Json:
    """Return a TRE as JSON: its fields if its tag is known, otherwise its data."""
    entry: dict[str, Any] = {"tag": tre.tag, "length": len(tre.data)}
    fields = known_fields(tre)
    if fields is not None:
        entry["fields"] = fields
    elif len(tre.data) <= SHOWN_BYTES:
        entry["data"] = text_or_hex(tre.data)
    return entry


def text_or_hex(data: bytes) -> str:
    """Return printable ASCII as text, other bytes as hexadecimal digits after 0x."""
    if all(32 <= c < 127 for c in data):
        return data.decode("ascii").rstrip()
    return f"0x{data.hex()}"


@cache
def _known() -> "dict[str, EntryPoint]":
    """Return the TREs that jbpy can read, without importing it, which is slow."""
    from importlib.metadata import entry_points

    return {entry.name.rstrip(): entry for entry in entry_points(group="jbpy.extensions.tre")}


def known_fields(tre: Tre) -> Json | None:
    """Return the fields of a TRE; None if jbpy does not know its tag or cannot read it."""
    entry = _known().get(tre.tag)
    if entry is None:
        return None
    raw = tre.tag.ljust(6).encode("latin-1") + b"%05d" % len(tre.data) + tre.data
    logger = logging.getLogger("jbpy.core")
    before, logger.disabled = logger.disabled, True
    try:
        loaded = entry.load()()
        loaded.load(io.BytesIO(raw))
        if loaded.get_size() != len(raw):
            return None
        values = json.loads(loaded.as_json())
    except Exception:  # noqa: BLE001 - whatever jbpy raises, the TRE is shown as data
        return None
    finally:
        logger.disabled = before
    hidden = ("TRETAG", "TREL", "CETAG", "CEL")
    return {k: v for k, v in values.items() if k not in hidden and not k.startswith("(")}
