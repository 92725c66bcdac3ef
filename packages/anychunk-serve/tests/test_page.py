"""The committed page is built from viewer/ and contacts no other server."""

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VIEWER, PAGE = ROOT / "viewer", ROOT / "src/anychunk_serve/page"
BESIDE = ("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")
# urls that no browser fetches: XML namespaces
NAMES = ("http://www.w3.org/",)


def sources_hash() -> str:
    """Return a hash of the sources of the page, as in viewer/vite.config.ts."""
    under = [p.relative_to(VIEWER).as_posix() for p in (VIEWER / "src").rglob("*") if p.is_file()]
    total = hashlib.sha256()
    for name in sorted([*under, *BESIDE]):
        total.update(f"{name}\0".encode() + (VIEWER / name).read_bytes() + b"\0")
    return total.hexdigest()


def test_is_built_from_these_sources():
    stored = (PAGE / "SOURCES.sha256").read_text("ascii").strip()
    assert stored == sources_hash(), "the page is older than viewer/; run: make viewer"


def test_has_all_that_it_names_and_nothing_else():
    text = (PAGE / "index.html").read_text("utf-8")
    named = set(re.findall(r'(?:src|href)="/(assets/[^"]+)"', text))
    built = {p.relative_to(PAGE).as_posix() for p in PAGE.rglob("*") if p.is_file()}
    assert named <= built
    scripts = "".join(p.read_text("utf-8") for p in PAGE.glob("assets/*.js")) + text
    unused = [
        name for name in built - {"index.html", "SOURCES.sha256"} if Path(name).name not in scripts
    ]
    assert unused == []


@pytest.mark.parametrize("file", sorted(PAGE.rglob("*.*")), ids=lambda path: path.suffix)
def test_asks_nobody_else(file):
    text = file.read_text("utf-8")
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[\w./-]*", text)
    assert [a for a in addresses if not a.startswith(NAMES)] == []
    assert "sourceMappingURL" not in text


def test_locks_packages_without_a_registry():
    assert "resolved" not in (VIEWER / "package-lock.json").read_text("utf-8")
