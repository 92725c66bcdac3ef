"""`anychunk.codecs`: JSON of any kind, and other distributions: broken ones, and ones with our names.

Tests of distributions run in a child process, with a fake one on its path.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys

import pytest

from anychunk import codecs
from anychunk.errors import AnychunkError, CodecConfigError, UnsupportedError
from tests.support.patience import PATIENCE_S

GOOD = """
from dataclasses import dataclass
from typing import ClassVar
from anychunk.codecs.base import BytesToBytes

@dataclass(frozen=True, kw_only=True)
class Plain(BytesToBytes):
    name: ClassVar[str] = "acme.plain"
    is_fixed_size = True
    def encode_bytes(self, data, spec): return data
    def decode_bytes(self, data, spec, out=None): return data
"""
MODULES = {
    "acme_good": GOOD,
    "acme_missing": "import a_module_that_is_not_installed",
    "acme_syntax": "def (",
    "acme_raises": "raise RuntimeError('no licence')",
    "acme_exits": "raise SystemExit(3)",
    "acme_thing": "Thing = 7",
}


@pytest.fixture
def installed(tmp_path):
    """Return a function that installs distributions and runs code beside them."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)

    def install(distribution, **entries):
        folder = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n"
        )
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[anychunk.codecs]", *lines]))

    def run(code):
        """Run code that prints JSON; return it, and the warnings."""
        prelude = (
            "import json, warnings\n"
            "caught = warnings.catch_warnings(record=True)\n"
            "found = caught.__enter__()\n"
            "warnings.simplefilter('always')\n"
        )
        end = "\nprint(json.dumps([result, [str(w.message) for w in found]]))"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code + end],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    install.run = run
    return install


@pytest.mark.processes
def test_a_good_codec_of_another_distribution(installed):
    installed("acme-codecs", **{"acme.plain": "acme_good:Plain"})
    result, found = installed.run("""
import anychunk, zarr
anychunk.enable()
result = zarr.registry.get_codec_class("acme.plain").plain.__module__
""")
    assert (result, found) == ("acme_good", [])


BROKEN = {
    "acme_missing": "ModuleNotFoundError",
    "acme_syntax": "SyntaxError",
    "acme_raises": "RuntimeError",
    "acme_exits": "SystemExit",
    "acme_thing": "NoneType",
}
"""Modules that cannot be used, and why."""


@pytest.mark.processes
def test_broken_codecs_are_skipped_with_one_warning_each(installed, tmp_path):
    for module in BROKEN:
        installed(f"{module}-codecs", **{f"{module}.broken": f"{module}:Thing"})
    result, found = installed.run(
        """
import anychunk, numpy as np
np.save("a.npy", np.arange(6, dtype="u2"))
before = len(found)
assert anychunk.open("a.npy")["0/0/image"][...].tolist() == [0, 1, 2, 3, 4, 5]
assert len(found) == before == 0
anychunk.enable(); anychunk.disable(); anychunk.enable()
from anychunk import codecs
result = [any("broken" in name for name in codecs.load_all()), "offset" in codecs.load_all()]
""".replace('"a.npy"', repr(str(tmp_path / "a.npy")))
    )
    assert result == [False, True]
    assert len(found) == len(BROKEN)
    for module in BROKEN:
        (warning,) = [text for text in found if f"{module}-codecs" in text]
        assert f"{module}.broken" in warning


@pytest.mark.processes
def test_broken_codecs_raise_when_asked_for(installed):
    for module in BROKEN:
        installed(f"{module}-codecs", **{f"{module}.broken": f"{module}:Thing"})
    result, found = installed.run(f"""
import anychunk, zarr
from anychunk import codecs
result = []
for module in {list(BROKEN)}:
    for ask in (codecs.codec_class, lambda n: codecs.from_json({{"name": n}})):
        try:
            ask(f"{{module}}.broken")
        except anychunk.errors.MissingDependencyError as e:
            result.append([module, str(e), type(e.__cause__).__name__])
""")
    assert found == []
    assert [module for module, _, _ in result] == [module for module in BROKEN for _ in range(2)]
    for module, message, cause in result:
        assert f"{module}.broken" in message
        assert f"{module}-codecs" in message
        assert cause == BROKEN[module]


@pytest.mark.processes
def test_our_names_are_not_replaced(installed):
    installed("acme-codecs", offset="acme_good:Plain", **{"acme.plain": "acme_good:Plain"})
    result, found = installed.run("""
from anychunk import codecs
result = [codecs.codec_class("offset").__module__, codecs.codec_class("acme.plain").__module__]
codecs.load_all()
""")
    assert result == ["anychunk.codecs.offset", "acme_good"]
    assert len(found) == 1
    assert "'offset'" in found[0]
    assert "acme-codecs" in found[0]


@pytest.mark.processes
def test_two_distributions_with_one_name(installed):
    installed("acme-codecs", **{"acme.plain": "acme_good:Plain"})
    installed("other-codecs", **{"acme.plain": "acme_missing:Plain"})
    result, found = installed.run("""
from anychunk import codecs
result = codecs.table()["acme.plain"].distribution
""")
    assert {result} < {"acme-codecs", "other-codecs"}
    assert len(found) == 1
    assert "acme-codecs" in found[0]
    assert "other-codecs" in found[0]


ODD = [
    None,
    True,
    0,
    -1,
    2**64,
    1.5,
    "",
    "x",
    "é",
    [],
    [1],
    [None],
    [{}],
    [{"name": 1}],
    {},
    {"a": 1},
]


@pytest.mark.parametrize("name", codecs.table())
def test_odd_configurations_are_refused_by_our_errors(name):
    """Every value of every option may be anything that JSON can express."""
    options = {field.name for field in dataclasses.fields(codecs.codec_class(name))}
    for option in sorted(options):
        for value in ODD:
            with contextlib.suppress(AnychunkError):
                codecs.from_json({"name": name, "configuration": {option: value}})


@pytest.mark.parametrize(
    "data",
    [None, 1, "bytes", [], {}, {"name": 1}, {"name": "bytes", "configuration": {"endian": 1}}],
)
def test_what_is_not_a_codec_is_refused(data):
    with pytest.raises(CodecConfigError):
        codecs.from_json(data)


def test_unknown_codec():
    with pytest.raises(UnsupportedError, match="'nope'"):
        codecs.from_json({"name": "nope"})


def test_a_codec_is_built_once():
    data = codecs.to_json(codecs.codec_class("offset")(offset=3, prefix="AAAA"))
    assert codecs.from_json(data) is codecs.from_json(dict(data))
