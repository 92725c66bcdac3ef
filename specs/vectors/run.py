"""Run the conformance vectors of this folder through implementations of the codecs.

    python specs/vectors/run.py                    all implementations that are installed
    python specs/vectors/run.py anychunk zarr      only these
    python specs/vectors/run.py --results          write RESULTS.md
    python specs/vectors/run.py --results --with zarrita.json --with osml.json

Implementations elsewhere print the same as JSON, which --with adds: `run_zarrita.mjs` for zarrita and
`run_osml.py` for osml-imagery-io say how they are run.

An implementation is a class with a function for each kind of codec; to add one, write such a class,
and list it in IMPLEMENTATIONS.
"""

import argparse
import base64
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import zarr
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import parse_dtype

HERE = Path(__file__).parent
PROTOTYPE = default_buffer_prototype()

type Json = Any
type Array = np.ndarray[Any, np.dtype[Any]]


class NotImplementedHereError(Exception):
    """The implementation has no such codec, or not for this data type."""


# -- values of the vectors as arrays


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the numpy type for the name of a data type."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def array_of(values: list[Json], name: str) -> Array:
    """Return JSON scalars as an array; all of them are numbers that the type has."""
    dtype = dtype_of(name)
    if "int" in name:
        wide = np.array(values, np.uint64 if name == "uint64" else np.int64)
        return wide.astype(dtype)
    array = np.array([number(v) for v in values], np.float64).astype(dtype)
    for place, value in enumerate(values):
        if isinstance(value, str) and value.startswith("0x"):
            bits = np.array([int(value, 16)], f"u{dtype.itemsize}")
            array[place] = bits.view(dtype)[0]
    return array


def number(value: float | str) -> float:
    return math.nan if isinstance(value, str) and value.startswith("0x") else float(value)


def may_fail(expected: Json) -> bool:
    """Return whether an error is the expected result, or one of those allowed."""
    return expected is None or (isinstance(expected, list) and None in expected)


def is_expected(found: Any, expected: Json) -> bool:
    """Compare one element with its JSON; a list holds all allowed results."""
    if isinstance(expected, list):
        return any(one is not None and is_expected(found, one) for one in expected)
    plain = found.item() if isinstance(found.item(), int) else float(found)
    if isinstance(expected, str):
        wanted = number(expected)
        return math.isnan(plain) if math.isnan(wanted) else plain == wanted
    # zeros: the sign counts only where a negative zero is expected
    has_sign = not (
        isinstance(expected, float) and expected == 0 and math.copysign(1, expected) < 0
    )
    return plain == expected and (has_sign or math.copysign(1, plain) < 0)


# -- implementations


@cache
def spec_of(name: str, shape: tuple[int, ...]) -> ArraySpec:
    zdtype = parse_dtype(dtype_of(name), zarr_format=3)
    return ArraySpec(
        shape=shape,
        dtype=zdtype,
        fill_value=zdtype.default_scalar(),
        config=ArrayConfig.from_dict({}),
        prototype=PROTOTYPE,
    )


class Codecs:
    """Codec classes with the methods that zarr-python calls."""

    name: str

    def codec(self, data: Json) -> Any:
        """Return the codec for its JSON."""
        raise NotImplementedError

    def filter(self, data: Json, array: Array, decoded: str, way: str) -> Array:
        """Run an array -> array codec; `decoded` is the data type of the array."""
        spec = spec_of(decoded, array.shape)
        codec = self.codec(data)
        run = codec._encode_sync if way == "encode" else codec._decode_sync
        return np.asarray(run(PROTOTYPE.nd_buffer.from_ndarray_like(array), spec).as_numpy_array())

    def pack(self, data: Json, payload: bytes, way: str) -> bytes:
        """Run a bytes -> bytes codec."""
        spec = spec_of("uint8", (len(payload),))
        codec = self.codec(data)
        run = codec._encode_sync if way == "encode" else codec._decode_sync
        return bytes(run(PROTOTYPE.buffer.from_bytes(payload), spec).to_bytes())

    def read(
        self, codecs: list[Json], kind: str, shape: list[int], fill: Json, chunk: bytes
    ) -> Array:
        """Decode one chunk with a chain of codecs."""
        store: dict[str, Any] = {}
        document = {
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": kind,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
        }  # fmt: skip
        store["zarr.json"] = PROTOTYPE.buffer.from_bytes(json.dumps(document).encode())
        store["c" + "/0" * len(shape)] = PROTOTYPE.buffer.from_bytes(chunk)
        return np.asarray(zarr.open_array(store, mode="r")[...])

    def write(self, codecs: list[Json], kind: str, array: Array, fill: Json) -> bytes:
        """Encode one chunk with a chain of codecs."""
        store: dict[str, Any] = {}
        document = {
            "zarr_format": 3, "node_type": "array", "shape": array.shape, "data_type": kind,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": array.shape}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
        }  # fmt: skip
        store["zarr.json"] = PROTOTYPE.buffer.from_bytes(json.dumps(document).encode())
        with zarr.config.set({"array.write_empty_chunks": True}):
            zarr.open_array(store, mode="r+")[...] = array
        return bytes(store["c" + "/0" * array.ndim].to_bytes())


class Anychunk(Codecs):
    name = "anychunk"

    def __init__(self) -> None:
        import anychunk
        from anychunk.zarr import codecs

        anychunk.enable()
        self._codecs = codecs
        self.version = anychunk.__version__

    def codec(self, data: Json) -> Any:
        return self._codecs.from_json(data)


class ZarrPython(Codecs):
    """zarr-python itself: `cast_value` and `scale_offset`."""

    name = "zarr"

    def __init__(self) -> None:
        from zarr.codecs.cast_value import CastValue
        from zarr.codecs.scale_offset import ScaleOffset

        self._classes = {"cast_value": CastValue, "scale_offset": ScaleOffset}
        self.version = f"{version('zarr')}, cast-value-rs {version('cast-value-rs')}"

    def codec(self, data: Json) -> Any:
        if data["name"] not in self._classes:
            raise NotImplementedHereError(data["name"])
        return self._classes[data["name"]].from_dict(data)

    def filter(self, data: Json, array: Array, decoded: str, way: str) -> Array:
        kinds = (decoded, data["configuration"].get("data_type", decoded))
        if any(hasattr(ml_dtypes, kind) for kind in kinds):
            raise NotImplementedHereError("zarr itself has no such data type")
        return super().filter(data, array, decoded, way)

    def read(
        self, codecs: list[Json], kind: str, shape: list[int], fill: Json, chunk: bytes
    ) -> Array:
        raise NotImplementedHereError(codecs[0])

    def write(self, codecs: list[Json], kind: str, array: Array, fill: Json) -> bytes:
        raise NotImplementedHereError(codecs[0])


class Zarrs(Codecs):
    """The Rust crate zarrs, through its Python package; of these codecs it has `packbits`."""

    name = "zarrs"

    def __init__(self) -> None:
        import zarrs

        assert zarrs
        self.version = version("zarrs")

    def codec(self, data: Json) -> Any:
        raise NotImplementedHereError(data["name"])

    def read(
        self, codecs: list[Json], kind: str, shape: list[int], fill: Json, chunk: bytes
    ) -> Array:
        return self._run(codecs, kind, shape, fill, chunk=chunk)

    def write(self, codecs: list[Json], kind: str, array: Array, fill: Json) -> bytes:
        # it does not write a chunk of fill values
        other = fill if array.any() else np.ones_like(array)[0].item()
        return self._run(codecs, kind, list(array.shape), other, array=array)

    def _run(
        self,
        codecs: list[Json],
        kind: str,
        shape: list[int],
        fill: Json,
        *,
        chunk: bytes | None = None,
        array: Array | None = None,
    ) -> Any:
        if codecs[0]["name"] != "packbits" or hasattr(ml_dtypes, kind):
            # zarr-python hands it arrays, and has no such types
            raise NotImplementedHereError(codecs[0]["name"])
        with tempfile.TemporaryDirectory() as folder:
            document = {
                "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": kind,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
                "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
                "attributes": {},
            }  # fmt: skip
            Path(folder, "zarr.json").write_text(json.dumps(document), "utf-8")
            file = Path(folder, *"c", *("0" for _ in shape))
            file.parent.mkdir(parents=True)
            settings = {
                "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
                "array.write_empty_chunks": True,
            }
            with zarr.config.set(settings):
                if chunk is not None:
                    file.write_bytes(chunk)
                    return np.asarray(zarr.open_array(folder, mode="r")[...])
                zarr.open_array(folder, mode="r+")[...] = array
                return file.read_bytes()


IMPLEMENTATIONS: dict[str, Callable[[], Codecs]] = {
    made.name: made for made in (Anychunk, ZarrPython, Zarrs)
}


# -- vectors


@dataclass
class Outcome:
    """How many cases of a file passed, failed, or could not be tried; the failures by cause."""

    passed: int = 0
    failed: int = 0
    absent: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def fail(self, cause: str, example: str) -> None:
        self.failed += 1
        self.causes[cause] += 1
        self.examples.setdefault(cause, example)


def load(name: str) -> Json:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def run_values(
    outcome: Outcome,
    run: Callable[[Array], Array],
    inputs: list[Json],
    expected: list[Json],
    source: str,
    about: str,
) -> None:
    """Run values of one configuration: those with a result at once, and each error by itself."""
    good = [i for i, value in enumerate(expected) if not may_fail(value)]
    try:
        if good:
            try:
                found = run(array_of([inputs[i] for i in good], source))
                results = dict(zip(good, found, strict=True))
            except NotImplementedHereError:
                raise
            except Exception:
                results = {i: _alone(run, inputs[i], source) for i in good}
            for i in good:
                _compare(outcome, results[i], inputs[i], expected[i], about)
        for i in set(range(len(inputs))) - set(good):
            result = _alone(run, inputs[i], source)
            if result is None or (expected[i] and is_expected(result, expected[i])):
                outcome.passed += 1
            else:
                outcome.fail(
                    f"a result instead of an error: {about}", f"{inputs[i]} gives {result}"
                )
    except NotImplementedHereError:
        outcome.absent += len(inputs)


def _alone(run: Callable[[Array], Array], value: Json, source: str) -> Any:
    """Return the result of one value; None if there is an error."""
    try:
        return run(array_of([value], source))[0]
    except NotImplementedHereError:
        raise
    except Exception:
        return None


def _compare(outcome: Outcome, found: Any, given: Json, expected: Json, about: str) -> None:
    if found is None:
        outcome.fail(f"an error instead of a result: {about}", f"{given}, expected {expected}")
    elif is_expected(found, expected):
        outcome.passed += 1
    else:
        outcome.fail(f"another value: {about}", f"{given} gives {found}, expected {expected}")


def family(name: str) -> str:
    return "integer" if "int" in name else "float"


def about_cast(group: Json, rule: str | None) -> str:
    """Return what sort of case this is, to count failures by cause."""
    pairs = group.get("scalar_map")
    if pairs is None:
        return f"{family(group['source'])} to {family(group['target'])}, out_of_range {rule}"
    if any(str(key).startswith("0x") for key, _ in pairs):
        return "scalar_map with a NaN written as its bits"
    return "scalar_map with a repeated key, whose first value counts"


def run_cast_value(codecs: Codecs, *, is_quick: bool = False) -> Outcome:
    """Cast by encoding an array of the source type, and by decoding one of the target type.

    Parameters:
        codecs: the implementation.
        is_quick: whether each case is tried in one direction only, alternately.
    """
    outcome = Outcome()
    vectors = load("cast_value")
    for group in vectors["groups"]:
        source, target = group["source"], group["target"]
        for numbers, expected in group["out"]:
            for number_ in numbers:
                chosen = vectors["configurations"][number_]
                for way, stored in (("encode", target), ("decode", source)):
                    rule = chosen["out_of_range"]
                    can_decode = rule != "wrap" or family(source) == "integer"
                    if way == "decode" and not can_decode:
                        continue
                    if is_quick and can_decode and (way == "decode") == (number_ % 2 == 0):
                        continue
                    configuration = {"data_type": stored, "rounding": chosen["rounding"]}
                    if rule:
                        configuration["out_of_range"] = rule
                    if "scalar_map" in group:
                        configuration["scalar_map"] = {way: group["scalar_map"]}
                    data = {"name": "cast_value", "configuration": configuration}
                    decoded = source if way == "encode" else target
                    about = about_cast(group, rule)
                    run = lambda array, d=data, t=decoded, w=way: codecs.filter(d, array, t, w)  # noqa: E731
                    run_values(outcome, run, group["in"], expected, source, about)
    return outcome


def run_scale_offset(codecs: Codecs) -> Outcome:
    outcome = Outcome()
    for group in load("scale_offset")["groups"]:
        kind = group["data_type"]
        configuration = {"offset": group["offset"], "scale": group["scale"]}
        data = {"name": "scale_offset", "configuration": configuration}
        for way in ("encode", "decode"):
            run = lambda array, d=data, t=kind, w=way: codecs.filter(d, array, t, w)  # noqa: E731
            about = f"{way}, {family(kind)}"
            run_values(outcome, run, group[way]["in"], group[way]["out"], kind, about)
    return outcome


def attempt(outcome: Outcome, cause: str, check: Callable[[], bool], what: str) -> None:
    """Count one check; an exception is a failure."""
    try:
        is_good = check()
    except NotImplementedHereError:
        outcome.absent += 1
        return
    except Exception as e:
        outcome.fail(f"an error instead of a result: {cause}", f"{what}: {e}")
        return
    if is_good:
        outcome.passed += 1
    else:
        outcome.fail(f"another result: {cause}", what)


def is_refused(run: Callable[[], object]) -> bool:
    try:
        run()
    except NotImplementedHereError:
        raise
    except Exception:
        return True
    return False


def run_affix(codecs: Codecs, name: str) -> Outcome:
    """Run `offset` or `pad`."""
    outcome = Outcome()
    vectors = load(name)
    for case in vectors["cases"]:
        data = {"name": name, "configuration": case["configuration"]}
        decoded, encoded = base64.b64decode(case["decoded"]), base64.b64decode(case["encoded"])
        what = json.dumps(case["configuration"])
        attempt(outcome, "encode", lambda: codecs.pack(data, decoded, "encode") == encoded, what)
        attempt(outcome, "decode", lambda: codecs.pack(data, encoded, "decode") == decoded, what)
        if "too_short" in case:
            short = base64.b64decode(case["too_short"])
            run = lambda: codecs.pack(data, short, "decode")  # noqa: E731
            attempt(outcome, "too short", lambda: is_refused(run), what)
    for configuration in vectors["refused"]:
        data = {"name": name, "configuration": configuration}
        check = lambda: is_refused(lambda: codecs.codec(data))  # noqa: E731
        attempt(outcome, "bad configuration", check, json.dumps(configuration))
    return outcome


def run_chunks(codecs: Codecs, name: str) -> Outcome:
    """Run an array -> bytes codec, or the tile codecs, which follow little-endian `bytes`."""
    outcome = Outcome()
    vectors = load(name)
    for case in vectors["cases"]:
        kind, shape = case["data_type"], case["shape"]
        own = {"name": case.get("name", name), "configuration": case["configuration"]}
        first = {"name": "bytes", "configuration": {"endian": "little"}}
        chain = [first, own] if "name" in case else [own]
        decoded = array_of(case["decoded"], kind).reshape(shape)
        encoded = base64.b64decode(case["encoded"])
        fill = case.get("fill_value", False if kind == "bool" else 0)
        read = lambda: codecs.read(chain, kind, shape, fill, encoded)  # noqa: E731
        write = lambda: codecs.write(chain, kind, decoded, fill)  # noqa: E731
        what = f"{kind} {json.dumps(own)}"
        keys = ", ".join(own["configuration"]) if name == "packbits" else own["name"]
        about = f" with {keys}" if keys else ""
        attempt(outcome, f"decode{about}", lambda: np.array_equal(read(), decoded), what)
        if not case.get("decode_only") and "name" not in case:
            attempt(outcome, f"encode{about}", lambda: write() == encoded, what)
    damaged = vectors.get("damaged")
    for chunk in damaged["chunks"] if damaged else ():
        chain = [{"name": name, "configuration": damaged["configuration"]}]
        kind, shape = damaged["data_type"], damaged["shape"]
        data = base64.b64decode(chunk["encoded"])
        run = lambda: codecs.read(chain, kind, shape, 0, data)  # noqa: E731
        attempt(outcome, "damaged chunk", lambda: is_refused(run), chunk["what"])
    return outcome


FILES: dict[str, Callable[[Codecs], Outcome]] = {
    "cast_value": run_cast_value,
    "scale_offset": run_scale_offset,
    "offset": lambda codecs: run_affix(codecs, "offset"),
    "pad": lambda codecs: run_affix(codecs, "pad"),
    "n5_default": lambda codecs: run_chunks(codecs, "n5_default"),
    "packbits": lambda codecs: run_chunks(codecs, "packbits"),
    "tiles": lambda codecs: run_chunks(codecs, "tiles"),
}


def run_all(names: list[str]) -> Iterator[tuple[Codecs, dict[str, Outcome]]]:
    for name in names:
        codecs = IMPLEMENTATIONS[name]()
        with np.errstate(all="ignore"):
            yield codecs, {file: run(codecs) for file, run in FILES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(IMPLEMENTATIONS))
    parser.add_argument("--results", action="store_true", help="write RESULTS.md")
    parser.add_argument("--with", dest="others", action="append", default=[], metavar="JSON")
    chosen = parser.parse_args()
    found = [*run_all(chosen.names), *map(read_outcomes, chosen.others)]
    lines = list(report(found))
    if chosen.results:
        (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n", "utf-8")
    else:
        print("\n".join(lines))


def read_outcomes(file: str) -> tuple[Codecs, dict[str, Outcome]]:
    """Return what another script printed; files that it does not have were not tried."""
    data = json.loads(Path(file).read_text("utf-8"))
    codecs = Codecs()
    codecs.name, codecs.version = data["name"], data["version"]
    outcomes = {name: Outcome() for name in FILES}
    for name, one in data["found"].items():
        causes = Counter({cause: known["cases"] for cause, known in one["causes"].items()})
        examples = {cause: known["example"] for cause, known in one["causes"].items()}
        outcomes[name] = Outcome(one["passed"], one["failed"], one["absent"], causes, examples)
    return codecs, outcomes


def report(found: list[tuple[Codecs, dict[str, Outcome]]]) -> Iterator[str]:
    """Yield the lines of RESULTS.md."""
    yield "# Who passes what"
    yield ""
    yield "Written by `python specs/vectors/run.py --results`; zarrita and osml-imagery-io are added by `--with` what `run_zarrita.mjs` and"
    yield "`run_osml.py` print. Each says at its top how it is run. A case is one value in one direction, or one chunk."
    yield ""
    yield "| vectors | " + " | ".join(f"{c.name} {c.version}" for c, _ in found) + " |"
    yield "|---" * (len(found) + 1) + "|"
    for file in FILES:
        yield f"| {file} | " + " | ".join(_cell(outcomes[file]) for _, outcomes in found) + " |"
    yield ""
    yield "Not tried: the implementation does not have the codec, or not for the data type."
    for codecs, outcomes in found:
        causes = [(f, cause, n) for f, o in outcomes.items() for cause, n in o.causes.most_common()]
        if causes:
            yield ""
            yield f"## Failures of {codecs.name}"
            yield ""
            yield "| vectors | cases | cause | first example |"
            yield "|---|---|---|---|"
            for file, cause, count in causes:
                example = outcomes[file].examples[cause].replace("|", "\\|")
                yield f"| {file} | {count} | {cause} | {example} |"


def _cell(outcome: Outcome) -> str:
    parts = [f"{outcome.passed:,} passed"] if outcome.passed else []
    parts += [f"**{outcome.failed:,} failed**"] if outcome.failed else []
    parts += [f"{outcome.absent:,} not tried"] if outcome.absent else []
    return ", ".join(parts) or "not tried"


if __name__ == "__main__":
    main()
