"""Tables of single edits: every entry of a TIFF file, bytes of a JPEG 2000 codestream."""

from collections.abc import Iterator, Sequence

from fuzz import seeds
from fuzz.cases import Case, Edit, Field, Seed, make
from fuzz.mutations import put
from fuzz.worker import NOTHING

TYPES = (*range(14), 16, 17, 18, 129)


def named(name: str) -> Seed:
    """Return a seed by its name."""
    every = seeds.of_format(name.partition("/")[0])
    return next(seed for seed in every if seed.name == name)


def tiff_entries(names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """Yield (label, case): each type, some counts and some values for each entry."""
    for name in names:
        seed = named(name)
        for spot in seed.fields:
            if spot.kind != "uint" or "IFD" not in spot.label or "order" not in spot.more:
                continue
            for value in values(seed, spot):
                new = value.to_bytes(spot.length, spot.more["order"])
                yield from _case(seed, put(spot, new), f"{spot.label} = {value}")


def values(seed: Seed, spot: Field) -> list[int]:
    """Return other values for a field of an entry."""
    order, what = spot.more["order"], spot.label.rpartition(" ")[2]
    old = int.from_bytes(seed.files[spot.file][spot.offset : spot.offset + spot.length], order)
    top = (1 << 8 * spot.length) - 1
    options = {
        "type": TYPES,
        "tag": (),
        "count": (0, old + 1, 2 * old, 1 << 16),
        "offset": (0, 1, old + 1, len(seed.files[spot.file]) - 1),
    }.get(what, (0, 1, old + 1, old - 1, 2 * old, top))
    return sorted({value for value in options if value != old and 0 <= value <= top})


def codestream_bytes(
    names: Sequence[str], *, step: int, first: int = 0
) -> Iterator[tuple[str, Case]]:
    """Yield (label, case): every `step`-th byte deleted, doubled, or with a bit flipped."""
    for name in names:
        seed = named(name)
        data = seed.files[seed.entry]
        whole = Field(file=seed.entry, kind="data", label="byte", length=len(data))
        for at in range(0, len(data), step):
            one = data[at : at + 1]
            for what, new in (
                ("deleted", b""),
                ("doubled", one + one),
                ("flipped", bytes([one[0] ^ (1 << at % 8)])),
            ):
                yield from _case(seed, put(whole, new, offset=at, length=1), f"{at} {what}")


def _case(seed: Seed, edit: Edit, label: str) -> Iterator[tuple[str, Case]]:
    case = make(seed, (edit,), NOTHING)
    if case is not None:
        yield f"{seed.name} {label}", case
