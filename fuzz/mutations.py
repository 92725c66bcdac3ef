"""Edits of fields, chosen at random: each kind gets values that a parser may stumble on."""

import json
import re
from collections.abc import Callable  # noqa: TC003 - the annotation is evaluated
from typing import Any

import numpy as np

from fuzz.cases import Edit, Field, Seed

type Random = np.random.Generator

ODD_JSON: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 65536, 2**27, 2**31, 2**32, 2**53 + 1, 2**63, 2**64,
    1e6, 1e308, -0.5, 1.5, "", "x", "é\0", "NaN", "../../x", "a" * 300, [], [0], [1], [-1], [None],
    [[]], [1, 2, 3, 4, 5], [2**40, 2**40], ["x"], {}, {"name": 1}, {"a": {"b": []}}, [{}],
]  # fmt: skip
ODD_TEXT = [b"", b"0", b"-1", b"1", b"99999999999", b"2e9", b"nan", b"x", b"\xff\xfe", b"1000000"]


def pick(rng: Random, options: Any) -> Any:
    """Return one of a sequence, as it is."""
    return options[int(rng.integers(len(options)))]


def odd_integer(rng: Random, value: int, bits: int, hints: tuple[int, ...] = ()) -> int:
    """Return another integer than `value`, that fits into `bits`."""
    top = (1 << bits) - 1
    near = [
        value + 1,
        value - 1,
        value * 2,
        value // 2,
        value + 8,
        value ^ (1 << int(rng.integers(bits))),
    ]
    edges = [0, 1, 2, 3, 4, 5, 8, 16, 32, 255, 256, 65500, 65535, 65536, 10**6, 2 * 10**9]
    edges += [top, top - 1, top >> 1, (top >> 1) + 1, 1 << int(rng.integers(bits))]
    pools = [near, edges, list(hints) or near, [int(rng.integers(0, 256))]]
    made = pick(rng, pools[int(rng.choice(4, p=[0.35, 0.35, 0.2, 0.1]))])
    return int(made) & top


def put(spot: Field, new: bytes, *, offset: int = 0, length: int | None = None) -> Edit:
    """Return an edit that replaces all of a field, or `length` bytes of it."""
    return {
        "kind": "put",
        "file": spot.file,
        "offset": spot.offset + offset,
        "length": spot.length if length is None else length,
        "hex": new.hex(),
        "label": spot.label,
    }


def edit_uint(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change an unsigned integer; `more`: its byte order and likely other values."""
    order = spot.more.get("order", "big")
    data = seed.files[spot.file]
    value = int.from_bytes(data[spot.offset : spot.offset + spot.length], order)
    hints = (*spot.more.get("hints", ()), len(data), len(data) - 1)
    made = odd_integer(rng, value, 8 * spot.length, hints)
    if "only" in spot.more and rng.random() < 0.8:
        # real files have fields of other widths than the values that are known for them
        made = pick(rng, spot.more["only"]) & ((1 << 8 * spot.length) - 1)
    return [put(spot, made.to_bytes(spot.length, order))]


def edit_digits(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change a number of fixed width in text."""
    old = seed.files[spot.file][spot.offset : spot.offset + spot.length]
    value = int(old) if old.strip().isdigit() else 0
    width = spot.length
    options = [
        b"0" * width, b"9" * width, b" " * width, b"%0*d" % (width, value + 1),
        b"%0*d" % (width, max(0, value - 1)), b"%0*d" % (width, 2 * value), b"x" * width,
        b"-" + b"1" * (width - 1), b"%0*d" % (width, int(rng.integers(0, 70))),
        b"%*d" % (width, value), b"%0*d" % (width, int(rng.integers(0, 1 << 20))),
    ]  # fmt: skip
    return [put(spot, pick(rng, options)[-width:].rjust(width, b"0"))]


def edit_text(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change a text of fixed width, often to another word that is known there."""
    known = spot.more.get("only", ())
    if known and rng.random() < 0.7:
        new = pick(rng, known).encode("latin-1")
    else:
        alphabet = b" 0159ABCDINMPRSX\0\xff"
        new = bytes(rng.choice(list(alphabet), spot.length).tolist())
    return [put(spot, new[: spot.length].ljust(spot.length))]


def edit_data(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Damage stored samples: flip, lose, insert, repeat, cut, or a bomb in their place."""
    # fields of real files may announce more than the file has
    length = max(1, min(spot.length, len(seed.files[spot.file]) - spot.offset))
    at = int(rng.integers(length))
    size = int(min(pick(rng, (1, 1, 1, 2, 2, 3, 4, 8, 64)), length - at))
    old = seed.files[spot.file][spot.offset + at : spot.offset + at + size]
    noise = bytes(rng.integers(0, 256, max(1, size), dtype=np.uint8).tolist())
    flipped = bytes([old[0] ^ (1 << int(rng.integers(8)))]) + old[1:] if old else noise
    kinds: list[Callable[[], Edit]] = [
        lambda: put(spot, flipped, offset=at, length=size),
        lambda: put(spot, noise[:size], offset=at, length=size),
        lambda: put(spot, b"", offset=at, length=size),
        lambda: put(spot, noise, offset=at, length=0),
        lambda: put(spot, old + old, offset=at, length=size),
        lambda: put(spot, pick(rng, (b"\0", b"\xff")) * size, offset=at, length=size),
    ]
    return [pick(rng, kinds)()]


def edit_file(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Cut a file, append to it, empty it or remove it."""
    size = len(seed.files[spot.file])
    at = int(rng.integers(size + 1))
    if rng.random() < 0.3:
        at = max(0, size - int(rng.integers(1, 17)))
    whole = Field(file=spot.file, kind="file", label=spot.label)
    drop = {"kind": "drop", "file": spot.file, "label": spot.label}
    end = bytes(rng.integers(0, 256, int(rng.integers(1, 40)), dtype=np.uint8).tolist())
    options = [put(whole, b"", offset=at, length=size - at)] * 5
    options += [put(whole, end, offset=size, length=0), put(whole, b"", length=size), drop]
    return [pick(rng, options)]


def fit(spot: Field, start: int, length: int, new: bytes) -> Edit:
    """Replace a part of a padded text; the padding shrinks or grows."""
    return {
        "kind": "fit",
        "file": spot.file,
        "offset": spot.offset + start,
        "length": length,
        "hex": new.hex(),
        "end": spot.offset + spot.length,
        "label": spot.label,
    }


def edit_padded(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change a value of a text that is padded to a fixed length: XML attributes, a header."""
    text = seed.files[spot.file][spot.offset : spot.offset + spot.length]
    found = list(re.finditer(spot.more["values"].encode(), text))
    match = pick(rng, found)
    start, end = match.span(match.lastindex or 0)
    old = text[start:end]
    options = [*ODD_TEXT, *(m[m.lastindex or 0] for m in found[:40]), *spot.more.get("only", ())]
    if old.isdigit():
        near = odd_integer(rng, int(old), 32)
        options += [b"%d" % near, b"%d" % near, b"2000000000", b"1000000", b"100000"]
    made = fit(spot, start, end - start, pick(rng, options))
    whole = match.span()
    if rng.random() < 0.15:
        made = fit(spot, whole[0], whole[1] - whole[0], pick(rng, (b"", match[0] * 2)))
    return [made | {"label": f"{spot.label} {match[0][:24].decode('latin-1')}"}]


def edit_line(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change, remove or repeat a line of a header."""
    line = seed.files[spot.file][spot.offset : spot.offset + spot.length]
    words = list(re.finditer(rb"[^\s:={}\[\](),\"]+", line))
    options: list[Edit] = [put(spot, b""), put(spot, line + line)]
    if words:
        word = pick(rng, words)
        values = [*ODD_TEXT, *spot.more.get("only", ())]
        if word[0].lstrip(b"-").isdigit():
            values += [b"%d" % odd_integer(rng, abs(int(word[0])), 40) for _ in range(20)]
        new = line[: word.start()] + pick(rng, values) + line[word.end() :]
        options += [put(spot, new)] * 8
    return [pick(rng, options)]


def odd_json(rng: Random, old: Any) -> Any:
    """Return another JSON value, often one much like the old."""
    if isinstance(old, bool) or rng.random() < 0.35:
        return pick(rng, ODD_JSON)
    if isinstance(old, int):
        return odd_integer(rng, abs(old), int(pick(rng, (8, 16, 32, 48, 64))))
    if isinstance(old, list) and old:
        some = list(old)
        at = int(rng.integers(len(some)))
        match int(rng.integers(4)):
            case 0:
                del some[at]
            case 1:
                some.insert(at, some[at])
            case 2:
                some[at] = odd_json(rng, some[at])
            case _:
                some = [odd_json(rng, value) for value in some]
        return some
    if isinstance(old, str) and old:
        return pick(rng, [old[:-1], old + "0", old.upper(), old[::-1], old + "\0", f"{old}/../x"])
    return pick(rng, ODD_JSON)


def steps(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """List every value inside a JSON value, with its path; texts that hold JSON are entered."""
    found = [(path, value)] if path else []
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError:
            return found
    items = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else items:
        found += steps(inner, (*path, step))
    return found


def edit_json(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change, add or remove a value of a JSON file."""
    inside = spot.more.get("inside", ())
    every = steps(json.loads(seed.files[spot.file]))
    found = [(p, v) for p, v in every if any(s in p for s in inside)] if inside else every
    path, old = pick(rng, found or every)
    label = f"{spot.label} {'/'.join(map(str, path))}"
    made: Edit = {"kind": "json", "file": spot.file, "path": list(path), "label": label}
    words = spot.more.get("only", {}).get(path[-1])
    if words and rng.random() < 0.6:
        return [made | {"value": pick(rng, words)}]
    if rng.random() < 0.12:
        return [made | {"remove": True}]
    return [made | {"value": odd_json(rng, old)}]


def edit_jsonline(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change, remove or repeat a line that is a JSON object of one key."""
    line = seed.files[spot.file][spot.offset : spot.offset + spot.length]
    ((key, old),) = json.loads(line).items()
    if rng.random() < 0.15:
        return [put(spot, pick(rng, (b"", line + line, line[:-3], b"{}\n", b"[]\n")))]
    new = odd_json(rng, old)
    words = spot.more.get("only", {}).get(key)
    if words and rng.random() < 0.5:
        new = pick(rng, words)
    # blanks in place of what is shorter, so that the offsets of tiles stay right
    text = json.dumps({key: new}).encode().ljust(spot.length - 1)
    return [put(spot, text + b"\n")]


def edit_cell(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change a cell of a parquet file, a column's type, or remove a column."""
    column, rows = pick(rng, list(spot.more["columns"].items()))
    made: Edit = {"kind": "cell", "file": spot.file, "column": column, "label": spot.label}
    if rng.random() < 0.15:
        return [made | {"remove": True}]
    if rng.random() < 0.25:
        name, value = pick(rng, [("string", "x"), ("float64", 1.5), ("int64", -1), ("bool_", True)])
        return [made | {"type": name, "value": value}]
    row = int(rng.integers(len(rows)))
    old = rows[row]
    options: list[Any] = [None, 0, 1, -1, 2**31, 2**62, "x", "", "file:///etc/hostname", "\xff"]
    if isinstance(old, int):
        options += [odd_integer(rng, old, 40)] * 8
    return [made | {"row": row, "value": pick(rng, options)}]


def edit_zstd(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Change bytes inside a compressed file."""
    noise = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8).tolist())
    new = pick(rng, (noise, b"\0", b"\xff" * len(noise), b"\0" * len(noise), b"\x7f"))
    at = int(rng.integers(1 << 20))
    return [
        {"kind": "zstd", "file": spot.file, "at": at, "hex": new.hex(), "label": spot.label},
    ]


def edit_bomb(rng: Random, seed: Seed, spot: Field) -> list[Edit]:
    """Put a stream that expands to much in place of a stored chunk."""
    size = int(pick(rng, (1 << 16, 1 << 20, 1 << 24, 1 << 27)))
    made: Edit = {"kind": "bomb", "file": spot.file, "codec": spot.more["codec"], "size": size}
    where = {"offset": spot.offset, "length": spot.length}
    if "offset_at" not in spot.more:
        return [made | where | {"label": spot.label}]
    # behind the end of the file, so that nothing else moves
    from fuzz.cases import bomb

    end, order = len(seed.files[spot.file]), spot.more["order"]
    edits = [made | {"offset": end, "length": 0, "label": spot.label}]
    for at, width, value in (
        (*spot.more["offset_at"], end),
        (*spot.more["length_at"], len(bomb(spot.more["codec"], size))),
    ):
        place = Field(file=spot.file, kind="uint", label=spot.label, offset=at, length=width)
        edits.append(put(place, (value & ((1 << 8 * width) - 1)).to_bytes(width, order)))
    return edits


EDITORS = {
    "uint": edit_uint,
    "digits": edit_digits,
    "text": edit_text,
    "data": edit_data,
    "file": edit_file,
    "padded": edit_padded,
    "line": edit_line,
    "json": edit_json,
    "jsonline": edit_jsonline,
    "cell": edit_cell,
    "zstd": edit_zstd,
    "bomb": edit_bomb,
}


def edits(rng: Random, seed: Seed) -> tuple[Edit, ...]:
    """Choose one to four edits of a seed."""
    weights = np.array([spot.weight for spot in seed.fields])
    count = int(rng.choice([1, 2, 3, 4], p=[0.6, 0.25, 0.1, 0.05]))
    chosen = rng.choice(len(seed.fields), count, p=weights / weights.sum())
    made: list[Edit] = []
    for number in chosen.tolist():
        spot = seed.fields[number]
        made += EDITORS[spot.kind](rng, seed, spot)
    return tuple(made)
