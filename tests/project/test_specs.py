"""The specifications under `specs/`: pages, schemas, samples and vectors agree with the codecs."""

import base64
import importlib.util
import io
import json
import re
import sys
import zlib
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tifffile

from anychunk import codecs
from anychunk.codecs import base
from anychunk.codecs.header_template import Header
from anychunk.errors import AnychunkError, CodecConfigError, InternalError
from anychunk.zarr import headers

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "specs" / "vectors"
PAGES = ROOT / "specs" / "codecs"
URIS = frozenset(codecs.URIS.values())
"""Second names, in saved indexes, of codecs that have a page under their own."""
OURS = sorted(n for n, entry in codecs.table().items() if entry.is_ours and n not in URIS)


def load_script(name):
    """Import a script of the vectors."""
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def runner():
    return load_script("run")


@pytest.fixture(scope="module")
def ours(runner):
    import anychunk

    yield runner.Anychunk()
    anychunk.disable()


def test_the_generator_needs_neither_zarr_nor_numpy_and_writes_these_files():
    generator = load_script("generate")
    source = (VECTORS / "generate.py").read_text() + (VECTORS / "numbers_exact.py").read_text()
    assert not any(
        f"import {name}" in source for name in ("numpy", "zarr", "anychunk", "ml_dtypes")
    )
    for name, make in generator.FILES.items():
        made = generator.dumps(make())
        assert made == (VECTORS / f"{name}.json").read_text("utf-8"), f"run {VECTORS}/generate.py"


def test_cast_value_vectors(runner, ours):
    """All cases, in alternate directions."""
    vectors = runner.load("cast_value")
    with np.errstate(all="ignore"):
        found = runner.run_cast_value(ours, is_quick=True)
    assert (found.failed, found.absent, found.examples) == (0, 0, {})
    assert found.passed == vectors["cases"] > 25_000


@pytest.mark.parametrize(
    "name", ["scale_offset", "offset", "pad", "n5_default", "packbits", "tiles"]
)
def test_vectors(runner, ours, name):
    found = runner.FILES[name](ours)
    assert (found.failed, found.absent, found.examples) == (0, 0, {})
    assert found.passed


@pytest.mark.parametrize("change", ["in", "out"])
def test_a_wrong_implementation_fails(runner, change):
    """The runner compares: results of other values, and an implementation without any error."""

    class Wrong(runner.Codecs):
        def filter(self, data, array, decoded, way):
            dtype = runner.dtype_of(
                decoded if way == "decode" else data["configuration"]["data_type"]
            )
            return np.zeros(array.shape, dtype) if change == "in" else array[:0]

    vectors = runner.load("cast_value")
    vectors["groups"] = vectors["groups"][300:310]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "load", lambda _: vectors)
        assert runner.run_cast_value(Wrong(), is_quick=True).failed


# -- pages


def page(name):
    return PAGES / name


def example(name):
    """The JSON in the section Example of a page."""
    text = (page(name) / "README.md").read_text("utf-8")
    return json.loads(re.search(r"## Example\n\n```json\n(.*?)```", text, re.DOTALL)[1])


def samples(name):
    """The sample chunks of a page."""
    file = page(name) / "sample.json"
    return json.loads(file.read_text("utf-8"))["cases"] if file.exists() else []


def vectors(name):
    """The chunks of the vectors that a page names."""
    text = (page(name) / "README.md").read_text("utf-8")
    named = re.search(r"## Sample data\n\n\[(\w+\.json)\]\(\.\./\.\./vectors", text)
    if named is None:
        return []
    found = json.loads((VECTORS / named[1]).read_text("utf-8")).get("cases")
    return found if isinstance(found, list) else []


def configurations(name):
    """Configurations of a codec that its page and its samples use."""
    found = {json.dumps(example(name).get("configuration", {})): None}
    for case in [*samples(name), *vectors(name)]:
        if case.get("name", name) in (name, codecs.URIS.get(name)):
            found[json.dumps(case["configuration"])] = None
    return [json.loads(text) for text in list(found)[:12]]


def validator(name):
    schema = json.loads((page(name) / "schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def is_accepted(data):
    try:
        codecs.codec_class(data["name"]).from_dict(data)
    except InternalError:
        raise
    except AnychunkError:
        return False
    return True


def test_every_codec_has_a_page_and_every_page_a_codec():
    assert {page(name).name for name in OURS} == {folder.name for folder in PAGES.iterdir()}


@pytest.mark.parametrize("name", OURS)
def test_the_page_has_the_form_of_the_registry(name):
    text = (page(name) / "README.md").read_text("utf-8")
    headings = (
        "Codec name",
        "Configuration",
        "Algorithm",
        "Example",
        "Sample data",
        "Known implementations",
    )
    assert [h for h in headings if f"\n## {h}\n" not in text] == []
    assert f"MUST be `{name}`" in text
    schema = validator(name).schema
    assert schema["properties"]["name"] == {"const": name}
    keys = schema["properties"]["configuration"]["properties"]
    assert set(keys) == {f.name for f in codecs.codec_class(name).json_fields()}
    listed = text.split("## Configuration")[1].split("## Algorithm")[0]
    assert [key for key in keys if f"`{key}`" not in listed] == []


@pytest.mark.parametrize("name", OURS)
def test_what_the_code_writes_is_valid(name):
    for configuration in configurations(name):
        data = {"name": name, "configuration": configuration}
        written = codecs.codec_class(name).from_dict(data).to_dict()
        validator(name).validate(json.loads(json.dumps(written)))
        validator(name).validate(data)


VALUES = (None, True, False, -1, 0, 1, 2, 3, 8, 10**6, 2**40, 2**70, 0.5, -0.5, "", "x", "1", "QQ==",
          "start", "P", "big", "little", "NaN", "uint8", [], [1], [1, 2], [2, 1, 1], ["x"], {}, {"x": 1})  # fmt: skip
"""What keys are set to, in turn; 1.0, which JSON schema takes for an integer, is left to the code."""
STRICTER = {
    "offset": {"offset", "prefix"}, "pad": {"nbytes", "padding"},  # they must agree
    "cast_value": {"data_type", "out_of_range"},  # wrap is for integers
    "packbits": {"first_bit", "last_bit"},  # in this order
    "anychunk.dted": {"num_lat_points", "num_lon_lines", "record_size", "trim_top", "trim_bottom", "trim_left",
             "trim_right"},  # a record holds its elevations, and something is left after trimming
    "anychunk.jbp-block": {"num_bands", "nbpp", "pvtype", "abpp", "complex_pairs"},  # only some combinations
    "anychunk.jpeg2000": {"main_header", "resolution_level"},  # the header must be one, and have the level
    "anychunk.tiff-tile": {"compression", "bits_per_sample", "samples_per_pixel", "predictor", "tile_width", "tile_height",
                  "sample_format", "jpeg_tables", "last_height", "last_width", "ycbcr_coefficients"},
    "anychunk.piece": {"points"},  # must be records
    "anychunk.choice": {"choices"},  # must exist
    "n5_default": {"codecs"}, "anychunk.window": {"codecs"}, "anychunk.n5": {"codecs"},  # must exist
    "anychunk.n5_string": {"codecs"},
}  # fmt: skip
"""Keys whose values the code checks beyond what a schema can say: it may refuse what is valid."""


def variants(name):
    """Yield the changed key and the JSON of the codec, for one change at a time."""
    known = validator(name).schema["properties"]["configuration"]["properties"]
    for configuration in configurations(name)[:4]:
        for key in known:
            yield key, {k: v for k, v in configuration.items() if k != key}
            for value in VALUES:
                yield key, {**configuration, key: value}
        yield None, {**configuration, "nonsense": 1}


@pytest.mark.parametrize("name", OURS)
def test_schema_and_code_accept_the_same(name):
    """The code also reads null as a missing value."""
    may_refuse = STRICTER.get(name, set())
    check, differences = validator(name), []
    for key, configuration in variants(name):
        data = {"name": name, "configuration": configuration}
        is_valid, is_taken = check.is_valid(data), is_accepted(data)
        is_missing = key is not None and configuration.get(key, "") is None and is_taken
        if is_valid != is_taken and not (is_valid and key in may_refuse) and not is_missing:
            differences.append((key, configuration, "valid" if is_valid else "accepted"))
    assert differences == []


@pytest.mark.parametrize("name", OURS)
def test_schemas_are_closed_beside_the_configuration(name):
    """As the registered ones are: `must_understand`, which Zarr allows in any object, is not in them."""
    data = example(name)
    bad = [{**data, "must_understand": 1}, {**data, "id": "x"}, {**data, "configuration": []}]
    for one in (data, *bad, {"name": name}):
        assert validator(name).is_valid(one) == is_accepted(one), one
    assert not any(map(is_accepted, bad))
    whole = {**data, "must_understand": True}
    assert is_accepted(whole)
    assert not validator(name).is_valid(whole)


@pytest.mark.parametrize("name", ["offset", "pad"])
def test_the_package_has_the_same_schema(name):
    assert base.schema(name) == validator(name).schema


def decoded_of(case):
    kind, values = case["data_type"], case["decoded"]
    if kind == "variable_length_bytes":
        return np.array([base64.b64decode(value) for value in values], object)
    return np.array(values, object if kind == "string" else kind).reshape(case["shape"])


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("name", [name for name in OURS if samples(name)])
def test_samples(runner, ours, name):
    for case in samples(name):
        stored = case.get("encoded_zlib")
        encoded = base64.b64decode(stored or case["encoded"])
        encoded = zlib.decompress(encoded) if stored else encoded
        chain = case.get("codecs", [{"name": name, "configuration": case["configuration"]}])
        kind, shape, fill = case["data_type"], case["shape"], case["fill_value"]
        decoded = decoded_of(case)
        assert ours.read(chain, kind, shape, fill, encoded).tolist() == decoded.tolist()
        if not case.get("decode_only"):
            assert ours.write(chain, kind, decoded, fill) == encoded


# -- the attribute anychunk.header

HEADER = ROOT / "specs" / "attributes" / "anychunk.header"
HEADERS = json.loads((HEADER / "sample.json").read_text("utf-8"))["cases"]


def header_validator():
    return jsonschema.Draft202012Validator(json.loads((HEADER / "schema.json").read_text("utf-8")))


def test_sample_headers():
    """Made by hand with `struct`, and read by tifffile and numpy."""
    for case in HEADERS:
        header_validator().validate(case["header"])
        made = Header.from_json(case["header"])
        assert made.fill(**case["chunk"]) == base64.b64decode(case["expected"])
        assert Header.from_json(made.to_json()) == made
    tiff = base64.b64decode(HEADERS[0]["expected"])
    with tifffile.TiffFile(io.BytesIO(tiff + bytes(70000))) as file:
        assert file.pages[0].databytecounts == (70000,)
        assert file.pages[0].shape == (256, 256)
    npy = base64.b64decode(HEADERS[2]["expected"])
    assert np.load(io.BytesIO(npy + bytes(24))).shape == (2, 3)


@pytest.mark.parametrize("made", [
    headers.tiff((256, 256), "uint16", compression="zstd"), headers.tiff((4, 5, 3), "u1"),
    headers.n5((3, 4)), headers.npy((2, 3), "<f4"),
])  # fmt: skip
def test_our_headers_are_valid(made):
    header_validator().validate(made.to_json())


def test_schema_and_code_accept_the_same_headers():
    check, differences = header_validator(), []
    whole = HEADERS[3]["header"]
    changed = [{k: v for k, v in whole.items() if k != key} for key in whole]
    changed += [{**whole, key: value} for key in (*whole, "payload", "x") for value in VALUES]
    for number, field in enumerate(whole["fields"]):
        for key in (*field, "axis", "times", "plus", "x"):
            for value in (*VALUES, "missing"):
                one = {**field, key: value}
                if value == "missing":
                    one.pop(key)
                fields = [*whole["fields"][:number], one, *whole["fields"][number + 1 :]]
                changed.append({**whole, "fields": fields})
    for data in changed:
        try:
            Header.from_json(data)
        except CodecConfigError as e:
            if check.is_valid(data) and "takes bytes" not in str(e):  # a field beyond the template
                differences.append((data, str(e)))
        else:
            if not check.is_valid(data):
                differences.append((data, "accepted"))
    assert differences == []
