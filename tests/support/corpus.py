"""The real files that tests compare with, and what an independent reader says they hold.

They are not part of the repository. `ANYCHUNK_DATA` names the folder; by default it is looked for
beside the checkout. Tests that need it skip, saying so, where it is absent.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(os.environ.get("ANYCHUNK_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_corpus = pytest.mark.skipif(
    not (ROOT / "INDEX.tsv").exists(),
    reason="the real files are not here: set ANYCHUNK_DATA to their folder (see CONTRIBUTING.md)",
)


@dataclass(frozen=True)
class Sample:
    """One row of INDEX.tsv."""

    path: str
    format: str
    properties: str
    oracle: str

    @property
    def file(self) -> Path:
        return ROOT / self.path

    def readings(self) -> dict[str, tuple[str, tuple[int, ...], str]]:
        """Give {reader: (sha256, shape, dtype)} of every independent reading."""
        found = {}
        for part in self.oracle.split(" | "):
            match = re.search(r"^(.*?): sha256=(\w+) shape=\(([\d,]*)\) dtype=(\S+)", part)
            if match:
                shape = tuple(int(n) for n in match[3].split(",") if n)
                found[match[1]] = (match[2], shape, match[4])
        return found


@cache
def samples(prefix: str = "") -> tuple[Sample, ...]:
    """List the samples whose path begins with `prefix`; none where the corpus is absent."""
    table = ROOT / "INDEX.tsv"
    if not table.exists():
        return ()
    rows = [line.split("\t") for line in table.read_text("utf-8").splitlines()[1:]]
    return tuple(
        Sample(path=row[0], format=row[2], properties=row[5], oracle=row[6])
        for row in rows
        if row[0].startswith(prefix)
    )


def sha256(array: np.ndarray) -> str:
    """Hash an array as INDEX.tsv does: C order, little-endian."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
