"""Every codec and format is listed where it must be: says which line is missing."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr

import anychunk
from anychunk import codecs, formats
from anychunk.codecs import standard
from anychunk.codecs.base import OwnCodec
from anychunk.zarr.codecs import zarr_codec
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
POINTS = PYPROJECT["project"]["entry-points"]
PACKAGES = [
    tomllib.loads(file.read_text("utf-8"))["project"]
    for file in sorted(ROOT.glob("packages/*/pyproject.toml"))
]
"""Our other packages."""
OTHERS = ("scale_offset", "cast_value", "n5_default")
"""Names that other packages register: ours are chosen by `anychunk.enable` only."""


def is_ours(cls):
    return isinstance(cls, type) and issubclass(cls, OwnCodec)


def declared_codecs():
    """Every class with a name in JSON that a module of a codec defines, but for Zarr's own codecs."""
    for found in pkgutil.walk_packages(codecs.__path__, "anychunk.codecs."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            is_defined = is_ours(value) and value.__module__ == module.__name__
            if is_defined and "name" in vars(value) and module is not standard:
                yield value


@pytest.mark.parametrize("project", [PYPROJECT["project"], *PACKAGES], ids=lambda p: p["name"])
def test_installed_metadata_is_the_files(project):
    name = project["name"]
    pytest.importorskip(name.replace("-", "_"), reason=f"{name} is not installed: make setup")
    installed = distribution(name)
    assert installed.version == anychunk.__version__
    found = {}
    for point in installed.entry_points:
        if point.group != "console_scripts":
            found.setdefault(point.group, {})[point.name] = point.value
    assert found == project["entry-points"], (
        "entry points in pyproject.toml are not installed; run: make setup"
    )


@pytest.mark.parametrize("cls", list(declared_codecs()), ids=lambda cls: cls.name)
def test_codec_is_listed(cls):
    target = f"{cls.__module__}:{cls.__qualname__}"
    line = f'"{cls.name}" = "{target}"'
    assert POINTS["anychunk.codecs"].get(cls.name) == target, f"add to anychunk.codecs: {line}"
    target = f"anychunk.zarr.codecs:{cls.__qualname__}"
    line = f'"{cls.name}" = "{target}"'
    if cls.name not in OTHERS:
        assert POINTS["zarr.codecs"].get(cls.name) == target, f"add to zarr.codecs: {line}"
    else:
        assert cls.name not in POINTS["zarr.codecs"], "zarr would warn users of the other package"


def test_class_names_are_unique():
    """Zarr's classes are found by them."""
    names = [value.partition(":")[2] for value in POINTS["anychunk.codecs"].values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", POINTS["numcodecs.codecs"])
def test_v2_filter(name):
    cls = numcodecs.registry.entries[name].load()
    assert issubclass(cls, numcodecs.abc.Codec)
    assert cls.codec_id == name
    assert cls.plain is codecs.class_named(cls.__name__)


@pytest.mark.parametrize("name", codecs.table())
def test_codec_entry(name):
    cls = codecs.codec_class(name)
    assert is_ours(cls)
    assert cls.name == name
    for label in ("Spec:", "JSON:", "Lossless:"):
        found = sys.modules[cls.__module__].__doc__ or ""
        assert f"\n{label}" in found, f"add to the docstring of {cls.__module__}: {label}"


@pytest.mark.parametrize("name", POINTS["zarr.codecs"])
def test_zarr_finds_the_codec(name):
    found = zarr.registry.get_codec_class(name)
    assert found is zarr_codec(codecs.class_named(found.__name__))
    assert found.name == name


def test_no_data_types_are_registered():
    """They would load many modules into every process that resolves a data type."""
    assert "zarr.data_type" not in POINTS


@pytest.mark.parametrize("name", formats.table())
def test_format_entry(name):
    module = formats.table()[name]
    assert isinstance(module, formats.Format | formats.FolderFormat)
    for label in ("Spec:", "Axes:", "Opened:", "Refused:"):
        found = module.__doc__ or ""
        assert f"\n{label}" in found, f"add to the docstring of {module.__name__}: {label}"


FORMATS = sorted(
    path.stem
    for path in (ROOT / "src/anychunk/formats").iterdir()
    if not path.name.startswith(("_", "."))
)


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_listed(name):
    module = f"anychunk.formats.{name}"
    line = f'{name} = "{module}"'
    assert POINTS["anychunk.formats"].get(name) == module, f"add to anychunk.formats: {line}"
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (independent,) = [c for c in contracts if c["type"] == "independence"]
    assert module in independent["modules"], (
        f'add to the import-linter contract "{independent["name"]}": "{module}"'
    )


def test_formats_are_known_without_their_entry_points():
    """So that opening a file neither searches all packages nor imports every format."""
    listed = POINTS["anychunk.formats"]
    assert listed == formats.OWN
    kinds = {name: module for name, module in formats.table().items() if name in listed}
    folders = {n for n, m in kinds.items() if isinstance(m, formats.FolderFormat)}
    assert folders == set(formats.FOLDERS)
    assert set(formats.FIRST_BYTES) == set(listed) - folders
    found = formats.outlines()
    assert {n: o.doc for n, o in found.items()} == {n: m.__doc__ for n, m in kinds.items()}
    for kind, names in (
        (formats.FolderFormat, {"sniff_folder", "parse_folder"}),
        (formats.WritableFormat, {"claims", "write"}),
    ):
        assert {n for n, m in kinds.items() if isinstance(m, kind)} == {
            n for n, o in found.items() if names <= o.names
        }


def test_codecs_describe_themselves():
    expected = {n: sys.modules[c.__module__].__doc__ for n, c in codecs.load_all().items()}
    assert codecs.descriptions() == expected


def test_every_listed_format_has_a_file():
    assert set(POINTS["anychunk.formats"]) <= set(FORMATS)


GOOD = """
import numpy as np
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex

def sniff(head):
    return head.startswith(b"GOOD")

def parse(source):
    array = ArrayIndex(
        shape=(4,), chunk_shape=(4,), data_type="uint8", codecs=({"name": "bytes"},),
        chunks=ByteRanges(
            offsets=np.array([4], "u8"), lengths=np.array([4], "u8"), urls=(source.url,)
        ),
        dimension_names=("x",),
    )
    return GroupIndex(members={"0": GroupIndex(members={"0": array})})
"""
BROKEN = {
    "absent": (None, "ModuleNotFoundError"),
    "needy": ("import a_package_that_nobody_has", "ModuleNotFoundError"),
    "raising": ("raise RuntimeError('out of order')", "RuntimeError"),
    "leaving": ("raise SystemExit(3)", "SystemExit"),
    "unreadable": ("def sniff(:", "SyntaxError"),
    "half": ("def sniff(head): return True", "TypeError"),
    "listless": (f"{GOOD}\nEXTENSIONS = None", "TypeError"),
}
"""Modules of plug-ins that cannot be used, and what importing each gives."""


def install(folder, **modules):
    """Make one fake distribution per format: a dist-info folder, and the module if there is one."""
    for name, text in modules.items():
        info = folder / f"acme_{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[anychunk.formats]\n{name} = acme_{name}\n")
        if text is not None:
            (folder / f"acme_{name}.py").write_text(text)


def child(folder, *arguments):
    """Run Python in a new process that sees the fake distributions."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "default"},
    )


def run(folder, code, *arguments):
    done = child(folder, "-c", textwrap.dedent(code), *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6))
    return tmp_path / "a.npy"


@pytest.mark.processes
def test_broken_formats_are_skipped_with_one_warning_each(tmp_path, file):
    install(tmp_path / "site", good=GOOD, **{name: text for name, (text, _) in BROKEN.items()})
    (tmp_path / "b.good").write_bytes(b"GOOD\1\2\3\4")
    code = """
        import json, sys, warnings
        warnings.simplefilter("always")
        import anychunk, numpy
        from anychunk import errors
        path, *names = sys.argv[1:]
        found = [anychunk.open(path)["0/0/image"][...].tolist() for _ in range(2)]
        other = anychunk.open(path[:-5] + "b.good")["0/0"][...].tolist()
        caught = {name: [] for name in names}
        for name in names:
            for ask in (
                lambda: anychunk.open(path, format=name),
                lambda: anychunk.write(numpy.zeros(3), path + ".n5", format=name),
            ):
                try:
                    ask()
                except errors.AnychunkError as e:
                    caught[name].append([type(e).__name__, type(e.__cause__).__name__, str(e)])
        print(json.dumps([found, other, caught]))
    """
    (found, other, caught), err = run(tmp_path / "site", code, file, *BROKEN)
    assert found == [list(range(6))] * 2
    assert other == [1, 2, 3, 4]
    assert err.count("Warning:") == len(BROKEN)
    for name, (_, cause) in BROKEN.items():
        assert err.count(f"acme-{name} 1.2") == 1
        assert [e[:2] for e in caught[name]] == [["MissingDependencyError", cause]] * 2
        assert all(name in e[2] and f"acme-{name} 1.2" in e[2] for e in caught[name])


@pytest.mark.processes
def test_broken_format_leaves_the_commands(tmp_path, file):
    install(tmp_path / "site", **{name: text for name, (text, _) in BROKEN.items()})
    site = tmp_path / "site"
    done = child(site, "-m", "anychunk", "formats", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["name"] for row in json.loads(done.stdout)} == set(POINTS["anychunk.formats"])
    assert all(done.stderr.count(f"acme-{name} 1.2") == 1 for name in BROKEN)
    done = child(site, "-m", "anychunk", "info", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_format_whose_sniff_fails_or_claims_everything(tmp_path, file):
    failing = GOOD.replace('return head.startswith(b"GOOD")', "return head[5000] == 0")
    greedy = GOOD.replace('return head.startswith(b"GOOD")', "return True")
    install(tmp_path / "site", a_failing=failing, b_greedy=greedy, tiff=greedy)
    (tmp_path / "c").write_bytes(b"none of ours")
    code = """
        import json, sys
        import anychunk
        found = anychunk.open(sys.argv[1])["0/0/image"][...].tolist()
        other = anychunk.index(sys.argv[2]).attributes["anychunk"]["format"]
        anychunk.open(sys.argv[2])
        print(json.dumps([found, other, anychunk.formats.by_name("tiff").__name__]))
    """
    (found, other, tiff), err = run(tmp_path / "site", code, file, tmp_path / "c")
    assert found == list(range(6))
    assert other == "b_greedy"
    assert tiff == "anychunk.formats.tiff"
    assert err.count("a_failing") == 1


@pytest.mark.processes
def test_extensions_of_a_plugin_are_known_to_xarray(tmp_path):
    install(tmp_path / "site", good=f"{GOOD}\nEXTENSIONS = ('.Good',)")
    code = """
        import json
        from anychunk.xarray_engine import AnychunkEntrypoint
        guess = AnychunkEntrypoint().guess_can_open
        print(json.dumps([guess("s3://b/a.good"), guess("s3://b/a.GOOD"), guess("s3://b/a.bad")]))
    """
    assert run(tmp_path / "site", code)[0] == [True, True, False]


@pytest.mark.processes
def test_defect_of_a_plugin_is_not_reported_to_us(tmp_path):
    failing = GOOD.replace("def parse(source):", "def parse(source, *, tile=1):\n    1 / 0")
    install(tmp_path / "site", good=failing)
    (tmp_path / "b.good").write_bytes(b"GOOD\1\2\3\4")
    code = """
        import json, sys
        import anychunk
        found = []
        for options in ({}, {"tiles": 2}):
            try:
                anychunk.open(sys.argv[1], **options)
            except anychunk.AnychunkError as e:
                found.append([type(e).__name__, str(e)])
        print(json.dumps(found))
    """
    ((defect, report), (refused, known)), _ = run(tmp_path / "site", code, tmp_path / "b.good")
    assert (defect, refused) == ("InternalError", "OptionError")
    assert "acme_good" in report
    assert "github.com" not in report
    assert "no option 'tiles'; did you mean 'tile'?" in known
