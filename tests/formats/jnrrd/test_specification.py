"""The samples of the tiling extension 1.1, which no code of this package has written."""

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path

import jsonschema
import pytest

import anychunk
from anychunk.formats import jnrrd

FOLDER = Path(__file__).parents[3] / "specs/jnrrd-tiling-1.1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_samples(name):
    group = anychunk.open(FOLDER / "samples" / name)["0"]
    for number, level in enumerate(EXPECTED[name]):
        values = group[f"{number}/image"][...]
        assert list(values.shape) == level["shape"]
        assert hashlib.sha256(values.astype("<u2").tobytes()).hexdigest() == level["sha256"]
    assert f"{len(EXPECTED[name])}/image" not in group


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".jnrrd")])
def test_samples_are_valid(name):
    assert jnrrd.validate(FOLDER / "samples" / name) == []
    schema = json.loads((FOLDER / "schema.json").read_text())
    fields = jnrrd.read_header(FOLDER / "samples" / name).of_prefix("tile")
    jsonschema.Draft7Validator(schema).validate(fields)


def test_the_schema_is_the_one_in_use():
    ours = json.loads(Path(jnrrd.__file__).with_name("schema.json").read_text())
    theirs = json.loads((FOLDER / "schema.json").read_text())
    assert {k: v for k, v in ours.items() if k != "$comment"} == {
        k: v for k, v in theirs.items() if k != "$comment"
    }


def test_samples_are_made_by_the_script(tmp_path):
    script = shutil.copy(FOLDER / "make_samples.py", tmp_path)
    spec = importlib.util.spec_from_file_location("make_samples", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert json.loads((tmp_path / "expected.json").read_text()) == EXPECTED
    for file in (tmp_path / "samples").rglob("*.*"):
        if file.is_file() and "gzip" not in file.name:  # zlib may compress otherwise
            name = file.relative_to(tmp_path)
            assert file.read_bytes() == (FOLDER / name).read_bytes(), name
