"""A test class that checks what every decoder of JPEG 2000 or JPEG must do.

Inherit it in a test module, with the name under which the decoder is registered:

    from anychunk.testing.decoders import DecoderContract


    class TestOpenjpeg(DecoderContract):
        kind = "jpeg2000"
        name = "openjpeg"
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from anychunk import decoders
from anychunk.codecs.base import ChunkSpec, foreign_errors_as
from anychunk.codecs.jpeg import Jpeg
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.codestream.jpeg2000 import SOT_BYTES, Rect, read_main_header
from anychunk.errors import AnychunkError, ChunkDecodeError, InternalError

type Array = npt.NDArray[Any]
type Decode = Callable[[bytes], object]


class Case(NamedTuple):
    """A stream, and what it holds."""

    name: str
    """What is special about it; begins with "reversible" or "irreversible"."""
    stream: bytes
    levels: Sequence[Sequence[Array]]
    """The components at each resolution level."""

    @property
    def tolerance(self) -> int:
        """Largest difference of a sample."""
        return 1 if self.name.startswith("irreversible") else 0


@cache
def cases(kind: str) -> tuple[Case, ...]:
    """Return the streams that decoders of a kind are tested with."""
    file = resources.files("anychunk.testing").joinpath("decoder_cases.npz")
    with file.open("rb") as opened, np.load(opened) as stored:
        arrays = dict(stored)
    found = []
    for key, data in arrays.items():
        if key.startswith(f"{kind}/") and key.count("/") == 1:
            levels: list[list[Array]] = []
            while f"{key}/{len(levels)}/0" in arrays:
                start = f"{key}/{len(levels)}/"
                levels.append([a for other, a in arrays.items() if other.startswith(start)])
            found.append(Case(key.partition("/")[2], data.tobytes(), levels))
    return tuple(found)


class DecoderContract:
    """Tests of one decoder: set `kind`, `name`, and what it refuses."""

    kind: ClassVar[str]
    """"jpeg2000" or "jpeg"."""
    name: ClassVar[str]
    """The name of the decoder: its entry point is `KIND.NAME`."""
    refused: ClassVar[Sequence[str]] = ()
    """Names of the cases for which it raises an error. For all others it returns the samples."""

    @property
    def decode(self) -> decoders.Function:
        """The function of the decoder."""
        return decoders.table()[self.kind, self.name].load()

    def cases(self) -> Iterator[Case]:
        """Yield the cases that the decoder does not refuse."""
        yield from (case for case in cases(self.kind) if case.name not in self.refused)

    def test_is_registered(self) -> None:
        """`use` finds the decoder by its name."""
        with decoders.use(self.kind, self.name):
            assert decoders.used(self.kind) == (self.name,)

    def test_whole_streams(self) -> None:
        """Every component of every level has the samples of an independent decoder."""
        for case in self.cases():
            for level, expected in enumerate(case.levels):
                for threads in (1, 2):
                    found = self.decode(case.stream, None, level, threads)
                    assert_planes(case, found, expected)

    def test_windows(self) -> None:
        """A window, on the reference grid, has the samples that the whole stream has there."""
        for case in self.cases():
            canvas, steps = grid(self.kind, case)
            third = Rect(
                canvas.x0 + canvas.width // 3,
                canvas.y0 + canvas.height // 3,
                canvas.x1 - canvas.width // 4,
                canvas.y1 - canvas.height // 4,
            )
            for level, planes in enumerate(case.levels):
                expected = []
                for plane, (x, y) in zip(planes, steps, strict=True):
                    all_, here = (r.scaled(x << level, y << level) for r in (canvas, third))
                    rows = slice(here.y0 - all_.y0, here.y1 - all_.y0)
                    expected.append(plane[rows, here.x0 - all_.x0 : here.x1 - all_.x0])
                window = (third.x0, third.y0, third.x1, third.y1)
                assert_planes(case, self.decode(case.stream, window, level, 1), expected)

    def test_refused_cases(self) -> None:
        """What the decoder does not decode exactly is an error, and not an image."""
        known = {case.name: case for case in cases(self.kind)}
        for name in self.refused:
            case = known[name]
            for level in range(len(case.levels)):
                with pytest.raises(Exception):  # noqa: B017, PT011 - any, and anychunk reports it
                    self.decode(case.stream, None, level, 1)
            for read in readers(self.kind, case):
                with decoders.use(self.kind, self.name):
                    assert_error(read, case.stream, name)

    def test_through_codecs(self) -> None:
        """Anychunk's codecs read the same samples by this decoder."""
        for case in self.cases():
            for level, expected in enumerate(case.levels):
                if len({plane.shape for plane in expected}) > 1:
                    continue
                with decoders.use(self.kind, self.name):
                    for read in readers(self.kind, case, level):
                        assert_planes(case, read(case.stream), expected)

    def test_damage(self) -> None:
        """A damaged stream is an error, and not an image, in whichever way it is damaged."""
        with decoders.use(self.kind, self.name):
            for case in self.cases():
                for what, stream in damaged(self.kind, case.stream):
                    for read in readers(self.kind, case):
                        assert_error(read, stream, f"{case.name}: {what}")


def assert_planes(case: Case, found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Compare components, which may have other types of integers than the expected ones."""
    assert [a.shape for a in found] == [a.shape for a in expected], case.name
    for number, (plane, other) in enumerate(zip(found, expected, strict=True)):
        assert plane.dtype.kind in "iu", f"{case.name}: component {number} is {plane.dtype}"
        difference = np.abs(plane.astype(np.int64) - other.astype(np.int64)).max(initial=0)
        assert difference <= case.tolerance, f"{case.name}: component {number}: {difference}"


def assert_error(read: Decode, stream: bytes, what: str) -> None:
    """Assert that reading a stream raises an `AnychunkError`."""
    try:
        read(stream)
    except InternalError:
        raise
    except AnychunkError:
        return
    raise AssertionError(f"{what}: an image, expected an error")


def grid(kind: str, case: Case) -> tuple[Rect, list[tuple[int, int]]]:
    """Return the canvas of a case on the reference grid, and the steps (x, y) of its components."""
    if kind == "jpeg2000":
        siz = read_main_header(case.stream).siz
        return siz.image, [(c.dx, c.dy) for c in siz.components]
    height, width = case.levels[0][0].shape
    return Rect(0, 0, width, height), [(1, 1)] * len(case.levels[0])


def readers(kind: str, case: Case, level: int = 0) -> Iterator[Callable[[bytes], Sequence[Array]]]:
    """Yield functions that decode a stream to its components as one chunk of each codec."""
    planes = case.levels[level]
    shape = (len(planes), *planes[0].shape)
    dtype = np.result_type(*planes)
    options: dict[str, Any] = {"tile_width": shape[2], "tile_height": shape[1]}
    options |= {
        "bits_per_sample": 8 * dtype.itemsize,
        "sample_format": 2 if dtype.kind == "i" else 1,
    }
    options |= {"samples_per_pixel": shape[0], "photometric": 1}
    codecs: list[Any] = []
    if kind == "jpeg2000":
        codecs.append(Jpeg2000(main_header=None, resolution_level=level))
        is_plain = len({plane.shape for plane in planes}) == 1
        if is_plain and level == 0:
            codecs.append(TiffTile(compression=34712, **options))
    else:
        depth = 12 if dtype.itemsize > 1 else 8
        block = {"block_height": shape[1], "block_width": shape[2], "imode": "P"}
        codecs.append(Jpeg(bits_per_pixel=depth, num_bands=shape[0], color_space="", **block))
        if depth == 8:
            colors = 2 if case.name.endswith(" rgb") else 6
            photometric = {"photometric": colors if shape[0] == 3 else 1}
            codecs.append(TiffTile(compression=7, **{**options, **photometric}))
    for codec in codecs:
        spec = ChunkSpec(shape, dtype)

        def read(stream: bytes, codec: Any = codec, spec: ChunkSpec = spec) -> Sequence[Array]:
            with foreign_errors_as(ChunkDecodeError, codec.name):
                decoded = codec.decode_bytes(np.frombuffer(stream, np.uint8), spec)
            array: Array = np.frombuffer(decoded, spec.dtype).reshape(spec.shape)
            return list(array)

        yield read


def damaged(kind: str, stream: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what is wrong with each stream, and the stream."""
    end = stream[-2:]
    yield "empty", b""
    yield "cut in its header", stream[:30]
    yield "cut", stream[: len(stream) * 2 // 3]
    yield "no end marker", stream[:-2]
    if kind == "jpeg":
        yield "most of its data missing", stream[: stream.index(b"\xff\xda") + 60] + end
        return
    header = read_main_header(stream).length
    first = int.from_bytes(stream[header + 6 : header + 10], "big")
    rest = stream[header + first :]
    for what, body in (
        ("bytes missing at the end of a tile", stream[header : header + first - 9]),
        ("bytes behind the last packet of a tile", stream[header : header + first] + 9 * b"\x5a"),
    ):
        patched = bytearray(body)
        patched[6:10] = len(body).to_bytes(4, "big")
        yield what, stream[:header] + bytes(patched) + rest
    yield "a tile missing", stream[:header] + (rest if len(rest) > SOT_BYTES else end)
    wrong = bytearray(stream)
    wrong[header + 4 : header + 6] = b"\xff\x00"
    yield "a tile that is not in the image", bytes(wrong)
