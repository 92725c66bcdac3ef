"""What documents and messages say is what the code does."""

import ast
import json
import re
from importlib import import_module

import pytest

import anychunk
from anychunk import codecs, formats
from anychunk.cli import main
from anychunk.errors import UnsupportedError
from bench import report
from tests.project.test_docs import DIRECTIVE, REFERENCE, ROOT, resolve, text
from tests.project.test_examples import blocks
from tests.project.test_repository import ADDRESS, SITE

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = {"Zarr, OME-Zarr": ["zarr"], "TIFF, COG, OME-TIFF": ["tiff"], "JNRRD, NRRD": ["jnrrd"]}
"""The formats of rows of the README's table, where they are not the name in lower case."""


def page_id(page):
    return str(page.relative_to(ROOT))


def documented():
    """Return every object that the reference describes, by identity, and the modules it names whole."""
    pages = [page.read_text("utf-8") for page in REFERENCE.glob("*.md")]
    found = [resolve(name) for page in pages for name in DIRECTIVE.findall(page)]
    found += [getattr(anychunk, name) for name in anychunk.__all__]
    found += [vars(resolve("anychunk.zarr.codecs"))[cls.__name__] for cls in public_codecs()]
    found += [getattr(codecs, cls.__name__) for cls in public_codecs()]
    return {id(one): one for one in found}


def public_codecs():
    every = (codecs.codec_class(name) for name in codecs.table())
    return [cls for cls in every if cls is not None and hasattr(codecs, cls.__name__)]


def imported(code):
    """Yield (module, name) of every import from our packages; a name of "" is the module itself."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "anychunk":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.partition(".")[0] == "anychunk")


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=page_id)
def test_examples_import_only_what_the_reference_describes(page):
    known = documented()
    listed = set(re.findall(r"`(anychunk(?:\.\w+)+)`", text("docs/reference/python.md")))
    for language, code in blocks(page):
        for module, name in imported(code) if language == "python" else ():
            if {module, f"{module}.{name}"} & listed or (module == "anychunk" and not name):
                continue
            owner = import_module(module)
            found = (
                getattr(owner, name) if hasattr(owner, name) else import_module(f"{module}.{name}")
            )
            is_member = any(getattr(one, name, None) is found for one in known.values())
            assert id(found) in known or is_member, f"{module}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_row_is_printed_twice(page):
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text("utf-8"), re.MULTILINE):
        rows = [row for row in table.splitlines()[2:] if row.strip("| ✓")]
        assert len(rows) == len(set(rows)), [row for row in rows if rows.count(row) > 1]


def newest():
    return max(path for path in report.RESULTS.glob("*.json") if "quick" not in path.stem)


def test_times_are_those_of_the_newest_results():
    groups = report.load(newest())[1]
    assert report.headlines(groups) in text("README.md")
    assert report.table(newest()) in text("docs/performance.md")


def test_addresses_in_the_readme_are_pages():
    readme = text("README.md")
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert all(target.startswith("https://") for target in targets)
    pages = [t.removeprefix(SITE).partition("#")[0] for t in targets if t.startswith(SITE)]
    for page in pages:
        is_page = page == "" or (ROOT / "docs" / f"{page.rstrip('/')}.md").exists()
        assert is_page or (ROOT / "docs" / page).is_file(), page
    own = f"{ADDRESS}/blob/main/"
    assert all((ROOT / t.removeprefix(own)).is_file() for t in targets if t.startswith(own))


def test_the_readme_lists_every_format_and_whether_it_is_written(capsys):
    with pytest.raises(SystemExit):
        main(["formats", "--json"])
    written = {row["name"]: row["written"] == "yes" for row in json.loads(capsys.readouterr().out)}
    table = text("README.md").split("## What it opens")[1].split("\n\n")[1]
    said = {}
    for row in table.splitlines()[2:]:
        name, read, write = (cell.strip() for cell in row.split("|")[1:4])
        assert read == "✓"
        for one in NAMES.get(name, [name.lower().replace(" ", "")]):
            said[one] = write == "✓"
    assert said == written


@pytest.mark.parametrize("call", [anychunk.write, anychunk.convert])
def test_an_unknown_target_is_told_every_format_that_is_written(tmp_path, call):
    source = tmp_path / "a.npy"
    import_module("numpy").save(source, [[1, 2]])
    given = anychunk.open_array(source)[...] if call is anychunk.write else source
    with pytest.raises(UnsupportedError) as caught:
        call(given, tmp_path / "a.png")
    for name in formats.table():
        owner = formats.table()[name]
        if isinstance(owner, formats.WritableFormat) or name in ("tiff", "zarr"):
            assert any(end in str(caught.value) for end in extensions(name)), name


def extensions(name):
    return getattr(formats.by_name(name), "EXTENSIONS", ()) or (".tif", ".zarr")
