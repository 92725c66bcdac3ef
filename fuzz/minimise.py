"""Make a finding small: leave out edits, then bytes, as long as the outcome stays the same."""

from collections.abc import Iterator
from typing import Any

from fuzz.cases import Case, Edit, Seed, make
from fuzz.pool import Pool

MOST, MOST_SLOW = 40, 4
"""Attempts per finding, and per finding that takes as long as inputs may."""


def signature(case: Case, outcome: dict[str, Any]) -> tuple[str, ...]:
    """Return what makes two findings the same."""
    if outcome["outcome"] in ("foreign", "inconsistent"):
        kind = str(outcome.get("class", outcome.get("message", "")))[:60]
        return outcome["outcome"], kind, str(outcome.get("where", ""))
    labels = sorted({edit.get("label", "") for edit in case.edits})
    return outcome["outcome"], case.seed, *labels


def is_same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether an outcome is the one that is being minimised."""
    keys = ("outcome", "class", "where") if wanted["outcome"] == "foreign" else ("outcome",)
    return all(found.get(key) == wanted.get(key) for key in keys)


def smaller(edits: tuple[Edit, ...]) -> Iterator[tuple[Edit, ...]]:
    """Yield edits without one of them, then with fewer bytes."""
    if len(edits) > 1:
        for i in range(len(edits)):
            yield edits[:i] + edits[i + 1 :]
    for i, edit in enumerate(edits):
        size = len(edit.get("hex", "")) // 2
        if edit["kind"] == "put" and size > 4:
            for half in (edit["hex"][: size // 2 * 2], edit["hex"][size // 2 * 2 :]):
                yield (*edits[:i], {**edit, "hex": half}, *edits[i + 1 :])


def minimise(
    pool: Pool, seed: Seed, case: Case, wanted: dict[str, Any]
) -> tuple[Case, dict[str, Any]]:
    """Return a case with as few edits as possible that has the same outcome."""
    best, outcome = case, wanted
    left = MOST_SLOW if wanted["outcome"] in ("time", "hang") else MOST
    again = True
    while again and left > 0:
        again = False
        for edits in smaller(best.edits):
            tried = make(seed, edits, case.choice)
            if tried is None:
                continue
            left -= 1
            found = pool.one(tried)
            if is_same(found, wanted):
                best, outcome, again = tried, found, True
                break
            if left <= 0:
                break
    return best, outcome
