"""An NRRD header as text, from fields as JNRRD names them; and the words in which the two differ.

Spec: NRRD format (Teem), sections 1.2, 1.3 and 3 to 6; JNRRD 1.0.0 sections 8, 9, 12.4 and 13; NRRD
Extension Mechanism sections 2 and 6.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from anychunk.errors import UnsupportedError
from anychunk.formats.jnrrd.header import without_nan
from anychunk.formats.jnrrd.meaning import PREFIX, TOGETHER, is_own
from anychunk.model.index import Json

TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long int",
    "uint64": "unsigned long long int",
    "float32": "float",
    "float64": "double",
}
"""The types that NRRD has, in the words that Teem writes."""
KINDS = (
    *("domain", "space", "time", "list", "point", "vector", "covariant-vector", "normal", "stub"),
    *("scalar", "complex", "2-vector", "3-color", "RGB-color", "HSV-color", "XYZ-color", "4-color"),
    *("RGBA-color", "3-vector", "3-gradient", "3-normal", "4-vector", "quaternion"),
    *("2D-symmetric-matrix", "2D-masked-symmetric-matrix", "2D-matrix", "2D-masked-matrix"),
    *("3D-symmetric-matrix", "3D-masked-symmetric-matrix", "3D-matrix", "3D-masked-matrix"),
)
NRRD_KINDS = {kind.lower().replace("-", "_"): kind for kind in KINDS}
UNKNOWN = ("???", "none")
SHORT_SPACES = ("RAS", "LAS", "LPS", "RAST", "LAST", "LPST")
FRONT = ("space", "space_dimension")
"""Fields that must precede those of orientation (section 1.3)."""
BREAKS = re.compile(r"[\r\n]")


def as_jnrrd(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of an NRRD header in the words of JNRRD."""
    found = dict(fields)
    space = found.get("space")
    if isinstance(space, str) and space.upper() not in SHORT_SPACES:
        found["space"] = space.replace("-", "_")
    for key in ("kinds", "centers"):
        words = found.get(key)
        if isinstance(words, list):
            found[key] = [
                None if w in (None, *UNKNOWN) else str(w).lower().replace("-", "_") for w in words
            ]
    return found


def as_nrrd(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a JNRRD header in the words of NRRD."""
    found = dict(fields)
    if isinstance(found.get("space"), str):
        found["space"] = found["space"].replace("_", "-")
    kinds = found.get("kinds")
    if isinstance(kinds, list):
        found["kinds"] = [NRRD_KINDS.get(str(k).lower().replace("-", "_"), k) for k in kinds]
    return found


def number(value: Json) -> str:
    """Return a number as text; null, which stands for unknown, is NaN."""
    if value is None:
        return "nan"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).removesuffix(".0")
    raise ValueError("expected a number")


def numbers(value: Json) -> str:
    return " ".join(number(n) for n in _list(value))


def vector(value: Json) -> str:
    return "none" if value is None else f"({','.join(number(n) for n in _list(value))})"


def vectors(value: Json) -> str:
    return " ".join(vector(v) for v in _list(value))


def strings(value: Json) -> str:
    """Return strings in quotes, in which only quotes are escaped (section 6, labels)."""
    listed = ["" if text is None else str(text) for text in _list(value)]
    return " ".join('"' + text.replace('"', '\\"') + '"' for text in listed)


def words(value: Json) -> str:
    listed = [UNKNOWN[0] if word is None else str(word) for word in _list(value)]
    if any(not word or word.split() != [word] for word in listed):
        raise ValueError("expected words")
    return " ".join(listed)


def text(value: Json) -> str:
    if not isinstance(value, str) or value != value.strip():
        raise ValueError("expected text")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list")
    return value


WRITERS: dict[str, tuple[str, Callable[[Json], str]]] = {
    "space": ("space", text),
    "space_dimension": ("space dimension", number),
    "space_units": ("space units", strings),
    "space_origin": ("space origin", vector),
    "space_directions": ("space directions", vectors),
    "measurement_frame": ("measurement frame", vectors),
    "content": ("content", text),
    "sample_units": ("sample units", text),
    "min": ("min", number),
    "max": ("max", number),
    "old_min": ("old min", number),
    "old_max": ("old max", number),
    "spacings": ("spacings", numbers),
    "thicknesses": ("thicknesses", numbers),
    "axis_mins": ("axis mins", numbers),
    "axis_maxs": ("axis maxs", numbers),
    # the other spelling, `centers`, is not parsed as a list by pynrrd
    "centers": ("centerings", words),
    "kinds": ("kinds", words),
    "labels": ("labels", strings),
    "units": ("units", strings),
}
"""How each field is spelled, and its value written."""


def header_text(
    fields: Mapping[str, Json],
    stored: Sequence[tuple[str, str]],
    *,
    is_nrrd: bool,
    version: int | None = None,
) -> bytes:
    """Return a header, up to and without its blank line.

    Parameters:
        fields: What is said about the samples, in JNRRD's names and NRRD's words. Fields that NRRD
            does not have, and values that do not fit their lines, become key/value pairs.
        stored: Type, dimension, sizes, endian, encoding and data file, as lines.
        is_nrrd: Whether the fields come from an NRRD header, whose unknown lines stay lines.
        version: 4 or 5; None: 5 if the header has a measurement frame.
    """
    lines, pairs = split(fields, is_nrrd=is_nrrd)
    first = [line for line in stored if line[0] not in ("endian", "encoding", "data file")]
    last = [line for line in stored if line[0] in ("endian", "encoding", "data file")]
    front = [WRITERS[key][0] for key in FRONT]
    ordered = [
        *first,
        *(line for line in lines if line[0] in front),
        *(line for line in lines if line[0] not in front),
    ]
    magic = version or (5 if "measurement_frame" in fields else 4)
    comments = fields.get("comments")
    shown = [
        f"NRRD000{magic}",
        *(f"# {c}" for c in (comments if isinstance(comments, list) else []) if _is_line(c)),
        *(f"{key}: {value}" for key, value in ordered),
        *(f"{escape(key)}:={escape(value)}" for key, value in pairs),
        # a list of data files must come last
        *(f"{key}: {value}" for key, value in last),
    ]
    return "".join(f"{line}\n" for line in shown).encode()


def _is_line(value: Json) -> bool:
    return isinstance(value, str) and not BREAKS.search(value)


def split(
    fields: Mapping[str, Json], *, is_nrrd: bool
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the field lines and the key/value pairs of a header, in order."""
    lines: list[tuple[str, str]] = []
    pairs: list[tuple[str, str]] = []
    # pynrrd takes every key up to its first colon, and refuses a second one that begins alike
    own = {k.removeprefix(f"{PREFIX}:"): v for k, v in fields.items() if is_own(k)}
    if own:
        rest = {k: v for k, v in fields.items() if not is_own(k)}
        fields = {**rest, f"{PREFIX}:{TOGETHER}": own}
    for key, value in fields.items():
        if key == "comments" and isinstance(value, list):
            continue
        if key == "key_values" and isinstance(value, Mapping):
            pairs += [(str(k), v if isinstance(v, str) else as_json(v)) for k, v in value.items()]
            continue
        line = field_line(key, value, is_nrrd=is_nrrd)
        if line is not None:
            lines.append(line)
        else:
            is_plain = isinstance(value, str) and ":" not in key
            pairs.append((key, value if is_plain else as_json(value)))
    for key, value in pairs:
        check_pair(key, value)
    return lines, pairs


def field_line(key: str, value: Json, *, is_nrrd: bool) -> tuple[str, str] | None:
    """Return a field as a line, or None if NRRD does not have it, or not with this value."""
    known = WRITERS.get(key)
    if known is None:
        is_text = is_nrrd and isinstance(value, str) and ":" not in key and key.isascii()
        if not is_text or BREAKS.search(value):
            return None
        return key.replace("_", " "), value
    try:
        written = known[1](value)
    except ValueError:
        return None
    return None if BREAKS.search(written) else (known[0], written)


def as_json(value: Json) -> str:
    """Return a value as compact JSON, NaN as null."""
    return json.dumps(without_nan(value), ensure_ascii=False, separators=(",", ":"))


def escape(value: str) -> str:
    """Return a key or value on one line (section 1.2)."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def check_pair(key: str, value: str) -> None:
    """Raise `UnsupportedError` for a pair that a reader would take for something else."""
    if not key or ":=" in key or ": " in key or key.startswith("#") or "\r" in key + value:
        raise UnsupportedError(
            f"nrrd: the key {key!r:.60} cannot be written; expected a name without ':=', ': ' and "
            "'#' in front, and no carriage returns; change it, or write JNRRD"
        )


def file_list(names: Iterable[str]) -> str:
    """Return the value of `data file` for several files, which follow it on lines of their own."""
    return "\n".join(["LIST", *names])
