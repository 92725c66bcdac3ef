"""Tagged record extensions: what headers say beyond their own fields.

Spec: STDI-0002. Each is a tag of 6 characters, a length of 5 digits, and data.
"""

import io
import json
import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from anychunk.model.index import Json

SHOWN_BYTES = 64 << 10
"""Data longer than this is told by its length only."""


@dataclass(frozen=True)
class Tre:
    tag: str
    data: bytes


def split(data: bytes) -> tuple[list[Tre], bytes]:
    """Cut extensions apart; give them, and what is left where one does not fit."""
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
    """Give an extension as JSON: its fields where it is known, else its data."""
    entry: dict[str, Any] = {"tag": tre.tag, "length": len(tre.data)}
    fields = known_fields(tre)
    if fields is not None:
        entry["fields"] = fields
    elif len(tre.data) <= SHOWN_BYTES:
        entry["data"] = text_or_hex(tre.data)
    return entry


def text_or_hex(data: bytes) -> str:
    """Give printable bytes as text, others as hexadecimal digits with 0x in front."""
    if all(32 <= c < 127 for c in data):
        return data.decode("ascii").rstrip()
    return f"0x{data.hex()}"


@cache
def _known() -> dict[str, EntryPoint]:
    """List the extensions that jbpy reads; it is slow to import, so nothing is imported here."""
    return {entry.name.rstrip(): entry for entry in entry_points(group="jbpy.extensions.tre")}


def known_fields(tre: Tre) -> Json | None:
    """Read the fields of an extension that jbpy knows; None where it does not, or cannot."""
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
    except Exception:  # noqa: BLE001 - shown as data instead, whatever it stumbled on
        return None
    finally:
        logger.disabled = before
    hidden = ("TRETAG", "TREL", "CETAG", "CEL")
    return {k: v for k, v in values.items() if k not in hidden and not k.startswith("(")}
