"""Which libraries decode JPEG 2000 and JPEG: those that anychunk comes with, or others.

A decoder is one function for one kind of stream, `jpeg2000` or `jpeg`:

    def decode(stream, window, level, threads):
        ...
        return [component, component, ...]

It gets a complete codestream as bytes, and returns one array of integers per component. A package
registers it by an entry point in the group `anychunk.decoders`, named `KIND.NAME`; `use` chooses
it. Neither the codecs nor their stored configuration depend on the choice, and anychunk checks
streams and samples regardless of it. `docs/reference/write-a-decoder.md` is the contract.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.errors import AnychunkError, ChunkDecodeError, CodecConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

type Array = npt.NDArray[Any]
type Window = tuple[int, int, int, int]
"""Left, top, right and bottom edge on the reference grid; the last two are outside."""
type Function = Callable[[bytes, Window | None, int, int], Sequence[Array]]

GROUP = "anychunk.decoders"
VARIABLE = "ANYCHUNK_DECODERS"
"""Environment variable with choices: KIND=NAME, several separated by commas."""
OPENJPEG, OPENJPH, LIBJPEG = (
    ("jpeg2000", "openjpeg"),
    ("jpeg2000", "openjph"),
    ("jpeg", "libjpeg-turbo"),
)
DEFAULT = {"jpeg2000": ("openjph", "openjpeg"), "jpeg": ("libjpeg-turbo",)}
"""The decoders of each kind that are used unless one is chosen. OpenJPH decodes reversible HTJ2K
where it returns exactly what OpenJPEG returns."""

changed: list[Callable[[], None]] = []
"""Called after another choice: by caches of decoded samples."""


class Plane(NamedTuple):
    """What a component must be."""

    shape: tuple[int, int]
    depth: int
    is_signed: bool


@dataclass(frozen=True)
class Decoder:
    """One entry point of the group."""

    kind: str
    name: str
    entry: "EntryPoint"

    @property
    def distribution(self) -> str:
        """Name of the distribution that registers the decoder."""
        return self.entry.dist.name if self.entry.dist else self.entry.module

    def load(self) -> Function:
        """Import the function.

        Raises:
            CodecConfigError: It fails to import, or is not a function.
        """
        try:
            found = self.entry.load()
        except (Exception, SystemExit) as e:  # importing runs foreign code
            raise self._broken(f"fails to import ({type(e).__name__}: {e})") from e
        if not callable(found):
            raise self._broken(f"is {found!r}, expected a function")
        return found  # type: ignore[no-any-return]

    def _broken(self, why: str) -> CodecConfigError:
        return CodecConfigError(
            f"decoder {self.name!r} of {self.kind}: the entry point {self.entry.value!r} of "
            f"{self.distribution} {why}; repair or uninstall {self.distribution}"
        )


@cache
def table() -> dict[tuple[str, str], Decoder]:
    """Return every installed decoder by kind and name, without importing any."""
    from importlib.metadata import entry_points

    found: dict[tuple[str, str], Decoder] = {}
    # anychunk's own first: their names cannot be taken
    for entry in sorted(
        entry_points(group=GROUP), key=lambda e: not e.module.startswith("anychunk.")
    ):
        kind, _, name = entry.name.partition(".")
        found.setdefault((kind, name), Decoder(kind, name, entry))
    return found


_chosen: dict[str, tuple[str, Function | None]] = {}
"""Name and function of the decoder of each kind that was chosen; None for our own."""
_environment: list[str] = []
"""The environment variable, once it has been read."""


def use(kind: str, name: str | None = None) -> AbstractContextManager[Any]:
    """Decode streams of a kind by one decoder from now on, in the whole process.

    As a context manager, it restores the choice before it at the end.

    Parameters:
        kind: "jpeg2000" or "jpeg".
        name: Name of the decoder, as `anychunk codecs --verbose` lists it. None: the default.

    Raises:
        CodecConfigError: There is no such decoder, or it fails to import.
    """
    if kind in DEFAULT:
        _read_environment()  # the choice there is what is restored
    before, found = _chosen.get(kind), _found(kind, name)
    _choose(kind, found)
    restoring = ExitStack()
    restoring.callback(_choose, kind, before)
    return restoring


def _found(kind: str, name: str | None) -> tuple[str, Function | None] | None:
    if kind not in DEFAULT:
        raise CodecConfigError(f"kind of decoder {kind!r}, expected {' or '.join(DEFAULT)}")
    if name is None:
        return None
    if name in DEFAULT[kind]:
        return name, None
    decoder = table().get((kind, name))
    if decoder is None:
        known = ", ".join(sorted(n for k, n in table() if k == kind))
        raise CodecConfigError(
            f"no decoder {name!r} of {kind} is installed; installed: {known}; install its package"
        )
    return name, decoder.load()


def _choose(kind: str, found: tuple[str, Function | None] | None) -> None:
    if found is None:
        _chosen.pop(kind, None)
    else:
        _chosen[kind] = found
    for forget in changed:
        forget()


def _read_environment() -> None:
    if not _environment:
        text = os.environ.get(VARIABLE, "")
        pairs = [part.partition("=") for part in text.split(",") if part]
        try:
            found = {kind.strip(): _found(kind.strip(), name.strip()) for kind, _, name in pairs}
        except CodecConfigError as e:
            raise CodecConfigError(
                f"environment variable {VARIABLE} is {text!r}, expected KIND=NAME, …: {e}"
            ) from e
        _chosen.update({kind: choice for kind, choice in found.items() if choice})
        _environment.append(text)


def is_used(decoder: tuple[str, str]) -> bool:
    """Return whether one of anychunk's own decoders is in use: what calls its library may run."""
    if not _environment:
        _read_environment()
    kind, name = decoder
    chosen = _chosen.get(kind)
    return name in DEFAULT[kind] if chosen is None else chosen[0] == name


def used(kind: str) -> tuple[str, ...]:
    """Return the names of the decoders in use."""
    _read_environment()
    chosen = _chosen.get(kind)
    return DEFAULT[kind] if chosen is None else (chosen[0],)


def other(kind: str) -> "Other | None":
    """Return the decoder of another package that was chosen; None if anychunk's own decode."""
    _read_environment()
    chosen = _chosen.get(kind)
    return (
        None
        if chosen is None or chosen[1] is None
        else Other(f"{kind} decoder {chosen[0]}", chosen[1])
    )


class Other(NamedTuple):
    """A decoder of another package."""

    title: str
    function: Function


def decode(
    by: Other,
    stream: bytes,
    planes: Sequence[Plane],
    *,
    window: Window | None = None,
    level: int = 0,
    threads: int = 1,
) -> list[Array]:
    """Decode a stream by a decoder of another package, and check its answer.

    Parameters:
        by: The decoder.
        stream: A complete codestream.
        planes: What the components must be.
        window: The part to decode; None: all.
        level: Resolution level.
        threads: How many threads may decode.

    Raises:
        ChunkDecodeError: The decoder fails, or returns something else.
    """
    title, function = by
    try:
        found = [np.asarray(array) for array in function(stream, window, level, threads)]
    except (AnychunkError, MemoryError):
        raise
    except Exception as e:
        raise ChunkDecodeError(f"{title}: {str(e) or type(e).__name__}") from e
    kinds = [(array.shape, array.dtype.kind in "iu") for array in found]
    if kinds != [(plane.shape, True) for plane in planes]:
        raise ChunkDecodeError(
            f"{title}: components {[(a.shape, str(a.dtype)) for a in found]}, "
            f"expected integers {[plane.shape for plane in planes]}"
        )
    for array, plane in zip(found, planes, strict=True):
        half = 1 << plane.depth - 1
        low, high = (-half, half - 1) if plane.is_signed else (0, 2 * half - 1)
        if array.size and (int(array.min()) < low or int(array.max()) > high):
            raise ChunkDecodeError(
                f"{title}: samples {array.min()} to {array.max()}, expected {low} to {high}"
            )
    return found
