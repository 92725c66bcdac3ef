"""The base classes of codecs: the example of their documentation, JSON, errors, Zarr v2."""

import inspect
import pickle
import sys
import textwrap
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.abc.codec import BytesBytesCodec

from anychunk.codecs import base
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.testing import codecs as contract
from anychunk.testing import formats
from anychunk.testing.codecs import CodecContract
from anychunk.zarr.codecs import zarr_codec
from anychunk.zarr.core import codec_registries
from anychunk.zarr.filters import v2_filter


def example(module, number=0):
    """Return the Python code in the docstring of a module: by default its first indented block."""
    lines = module.__doc__.split("\n")
    for _ in range(number + 1):
        start = next(i for i, line in enumerate(lines) if line.startswith("    "))
        rest = enumerate(lines[start:], start)
        stop = next((i for i, line in rest if line and not line.startswith(" ")), len(lines))
        block, lines = lines[start:stop], lines[stop:]
    return textwrap.dedent("\n".join(block))


def run(code, name="example"):
    names = sys.modules[name].__dict__ if name in sys.modules else {"__name__": name}
    exec(compile(code, name, "exec"), names)
    return names


sys.modules["acme"] = acme = ModuleType("acme")
for name in ("shuffle", "zarr"):
    sys.modules[f"acme.{name}"] = ModuleType(f"acme.{name}")
    setattr(acme, name, sys.modules[f"acme.{name}"])
Shuffle = run(example(base), "acme.shuffle")["Shuffle"]
MADE = run(example(base, 1), "acme.zarr")


@pytest.fixture
def _registered():
    """Register the example with zarr, as its entry point would."""
    zarr.registry.register_codec("acme.shuffle", MADE["Shuffle"])
    yield
    codec_registries.pop("acme.shuffle")


@pytest.mark.usefixtures("_registered")
class TestExample(CodecContract):
    codecs = (Shuffle(itemsize=4), Shuffle(itemsize=1))
    arrays = (np.arange(30, dtype="uint32").reshape(5, 6), np.linspace(0, 1, 7, dtype="float32"))


def test_example_has_known_bytes():
    encoded = Shuffle(itemsize=2).encode_bytes(np.frombuffer(b"AaBbCc", np.uint8), None)
    assert base.as_bytes(encoded).tobytes() == b"ABCabc"


def test_example_refuses_bad_input():
    with pytest.raises(CodecConfigError, match="itemsize 0"):
        Shuffle(itemsize=0)
    with pytest.raises(CodecConfigError, match="'itemsize'"):
        Shuffle.from_dict("acme.shuffle")
    with pytest.raises(ChunkDecodeError, match="7 bytes"):
        Shuffle(itemsize=2).decode_bytes(np.zeros(7, np.uint8), None)
    with pytest.raises(ChunkEncodeError, match="7 bytes"):
        Shuffle(itemsize=2).encode_bytes(np.zeros(7, np.uint8), None)


@pytest.mark.parametrize(
    "data",
    [
        np.arange(6, dtype=np.uint8),
        np.arange(6, dtype=np.uint8)[::-1],
        np.arange(12, dtype=np.uint8)[::2],
        np.arange(6, dtype=">u2").reshape(2, 3).T,
        np.array(7, dtype=np.uint8),
        np.zeros((0, 3), np.uint8),
    ],
    ids=lambda data: f"{data.dtype}{data.shape}{data.strides}",
)
def test_as_bytes_is_flat_and_contiguous(data):
    found = base.as_bytes(data)
    assert (found.ndim, found.dtype) == (1, np.uint8)
    assert found.flags.c_contiguous
    assert found.tobytes() == data.tobytes()
    assert np.shares_memory(found, data) == (data.flags.c_contiguous and data.size > 0)


@dataclass(frozen=True, kw_only=True)
class Backwards(base.BytesToBytes):
    """Returns views that are not contiguous."""

    name: ClassVar[str] = "acme.backwards"
    is_fixed_size = True

    def encode_bytes(self, data, spec):
        return data[::-1]

    def decode_bytes(self, data, spec, out=None):
        return data[::-1]

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        return input_byte_length


@pytest.fixture
def _backwards():
    zarr.registry.register_codec("acme.backwards", zarr_codec(Backwards))
    yield
    codec_registries.pop("acme.backwards")


@pytest.mark.usefixtures("_backwards")
class TestStridedResult(CodecContract):
    codecs = (Backwards(),)
    arrays = (np.arange(30, dtype="uint16").reshape(5, 6),)


def test_contract_names_a_codec_that_zarr_does_not_find():
    class Contract(CodecContract):
        codecs = (Backwards(),)

    with pytest.raises(AssertionError, match="acme.backwards.*entry point"):
        Contract().test_is_registered()


def test_example_as_a_zarr_v2_filter():
    v2 = MADE["ShuffleV2"].from_config({"itemsize": 2})
    assert v2.get_config() == {"id": "acme.shuffle", "itemsize": 2}
    assert bytes(v2.encode(b"AaBb")) == b"ABab"
    assert bytes(v2.decode(b"ABab")) == b"AaBb"
    assert pickle.loads(pickle.dumps(v2)) == v2


def test_example_as_zarrs_codec():
    codec = MADE["Shuffle"](itemsize=2)
    assert isinstance(codec, Shuffle)
    assert isinstance(codec, BytesBytesCodec)
    assert zarr_codec(Shuffle) is MADE["Shuffle"]
    assert pickle.loads(pickle.dumps(codec)) == codec
    with pytest.raises(TypeError, match="anychunk.codecs.base"):
        zarr_codec(int)


@pytest.mark.parametrize(
    ("module", "kind"), [(contract, CodecContract), (formats, formats.FormatContract)]
)
def test_examples_of_the_contracts_run(module, kind):
    names = run(example(module)).values()
    made = [v for v in names if inspect.isclass(v) and issubclass(v, kind) and v is not kind]
    assert len(made) == 1


def test_example_of_the_format_contract_passes(tmp_path):
    run(example(formats))["TestNpy"]().test_equals_outside_reader(tmp_path)


@dataclass(frozen=True, kw_only=True)
class Broken(base.BytesToBytes):
    """Raises what no codec should."""

    name: ClassVar[str] = "acme.broken"
    is_fixed_size = False
    error: type[Exception]

    def encode_bytes(self, data, spec):
        raise self.error("a bug")

    def decode_bytes(self, data, spec, out=None):
        raise self.error("a bug")


@pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError, ZeroDivisionError])
def test_foreign_exceptions_are_mapped(error):
    v2 = v2_filter(Broken)(error=error)
    with pytest.raises(ChunkEncodeError, match=r"acme\.broken: .*a bug") as raised:
        v2.encode(b"")
    assert isinstance(raised.value.__cause__, error)
    with pytest.raises(ChunkDecodeError, match=r"acme\.broken: .*a bug") as raised:
        v2.decode(b"")
    assert isinstance(raised.value.__cause__, error)


def test_running_out_of_memory_is_not_the_chunks_fault():
    with pytest.raises(MemoryError):
        v2_filter(Broken)(error=MemoryError).decode(b"")


@dataclass(frozen=True, kw_only=True)
class Options(base.ArrayToArray):
    """A codec with a required key, an optional key and an option of the process."""

    name: ClassVar[str] = "acme.options"
    level: int
    mode: str = "fast"
    threads: int = base.runtime_field(default=1)


def test_json_has_what_differs_from_the_defaults():
    assert Options(level=3).to_dict() == {"name": "acme.options", "configuration": {"level": 3}}
    assert Options(level=3, mode="slow", threads=4).configuration() == {"level": 3, "mode": "slow"}
    assert Options(level=3, threads=4) == Options(level=3)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({"name": "acme.other"}, "acme.other"),
        ({"name": "acme.options"}, "'level'"),
        ({"name": "acme.options", "configuration": {"level": 1, "x": 2}}, "'x'.*level, mode"),
        ({"name": "acme.options", "configuration": {"level": 1, "threads": 2}}, "'threads'"),
        ({"name": "acme.options", "configuration": [1]}, "list"),
        ({"name": "acme.options", "level": 1}, "'level'"),
    ],
)
def test_json_that_is_refused(data, match):
    with pytest.raises(CodecConfigError, match=match):
        Options.from_dict(data)


@pytest.mark.parametrize(
    "codec",
    [
        {"id": "offset", "offset": 2, "prefix": "AAA="},
        {"id": "pad", "location": "start", "nbytes": 2, "padding": "AAA="},
        {"id": "scale_offset", "dtype": "<i4", "offset": -3},
        {"id": "cast_value", "dtype": "<i4", "data_type": "int16"},
    ],
    ids=lambda codec: codec["id"],
)
def test_filters_store_chunks_of_fortran_order_in_it(codec, tmp_path):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    array = zarr.create_array(
        tmp_path,
        shape=(3, 4),
        chunks=(3, 4),
        dtype="i4",
        zarr_format=2,
        order="F",
        filters=[numcodecs.get_codec(codec)],
        compressors=None,
    )
    array[...] = values
    array[0, 0] = array[0, 0]
    stored = (tmp_path / "0.0").read_bytes()
    expected = {
        "scale_offset": (values + 3).tobytes("F"),
        "cast_value": values.astype("i2").tobytes("F"),
    }
    assert stored == expected.get(codec["id"], b"\0\0" + values.tobytes("F"))
    assert np.array_equal(zarr.open_array(tmp_path)[...], values)
