"""Compiled loops, which are optional: without them, results are the same.

Each has an equivalent in Python. That of `openjpeg_decode` is imagecodecs' binding of the same
library.

`loops` is the module that is built from the C files in this folder, or None if it was not: without
a compiler, packages and editable installs come without it. `ANYCHUNK_PURE=1` in the environment
makes a process use the Python code.

A further function is a C file here, its declaration in `native.h`, a line in `module.c`, a line in
`Loops`, and its Python equivalent in the module that calls it.
"""

import os
from collections.abc import Buffer
from typing import Protocol

type _Buffer = bytes | bytearray | memoryview


class _Place(Protocol):
    """Put the rows of a chunk where they belong in an array; False if that is left to numpy."""

    def __call__(  # noqa: PLR0917 - functions in C take no names
        self,
        data: Buffer,
        target: Buffer,
        shape: tuple[int, int, int],
        size: int,
        predictor: int,
        is_swapped: bool,
        best: int = 2,
        /,
    ) -> bool: ...


class Loops(Protocol):
    """The functions of the compiled module."""

    def fax_rows(
        self, tables: Buffer, data: Buffer, pixels: Buffer, is_reversed: bool, black: bool, /
    ) -> bool: ...
    def narrow_samples(
        self, source: Buffer, target: Buffer, depth: int, is_signed: bool, best: int = 2, /
    ) -> bool: ...
    def lzw_bytes(self, data: Buffer, out: Buffer, /) -> int: ...
    def openjpeg_decode(  # noqa: PLR0917 - functions in C take no names
        self,
        functions: bytes,
        data: Buffer,
        out: Buffer,
        level: int,
        threads: int,
        depth: int,
        is_signed: bool,
        parameters: bytes = b"",
        tile: bytes = b"",
        /,
    ) -> int: ...
    def packbits_bytes(self, data: Buffer, out: Buffer, /) -> int: ...

    def place_chunks(  # noqa: PLR0917 - functions in C take no names
        self,
        kind: int,
        functions: bytes,
        options: bytes,
        data: Buffer,
        offsets: Buffer,
        lengths: Buffer,
        out: Buffer,
        starts: Buffer,
        boxes: Buffer,
        shapes: Buffer,
        done: Buffer,
        scratch: Buffer,
        shape: Buffer,
        strides: Buffer,
        size: int,
        predictor: int,
        is_swapped: bool,
        head: int,
        best: int = 2,
        folder: int = -1,
        most: int = 0,
        /,
    ) -> bool: ...

    place_rows: _Place
    place_packbits: _Place

    def separate_bands(
        self, source: Buffer, target: Buffer, is_swapped: bool, best: int = 2, /
    ) -> bool: ...
    def tile_parts(self, data: Buffer, out: Buffer, /) -> int: ...
    def walk_all(self, parameters: _Buffer, data: _Buffer, tiles: _Buffer, /) -> int: ...
    def walk_begin(self, parameters: _Buffer, /) -> object: ...
    def walk_resume(
        self, walk: object, data: _Buffer, base: int, headers: _Buffer, /
    ) -> tuple[int, int, int, int]: ...
    def walk_finish(self, walk: object, /) -> tuple[bytes, ...]: ...
    def xz_block(self, data: Buffer, most_memory: int, /) -> int: ...


def _load() -> Loops | None:
    if os.environ.get("ANYCHUNK_PURE"):
        return None
    try:
        from anychunk.native import _loops  # type: ignore[attr-defined]
    except ImportError:
        return None
    found: Loops = _loops
    return found


loops = _load()
