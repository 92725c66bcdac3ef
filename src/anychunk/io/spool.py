"""Named bytes that wait in a temporary file, so that memory is not needed for them."""

import struct
import tempfile
from collections.abc import Iterator
from typing import Self

LENGTHS = struct.Struct("<QQ")
"""Of a name and of its bytes."""


class Spool:
    """Keeps named bytes in the order in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, name: str, data: bytes) -> None:
        """Add bytes under a name."""
        text = name.encode()
        self._file.writelines((LENGTHS.pack(len(text), len(data)), text, data))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield names and bytes; none may be added meanwhile."""
        self._file.seek(0)
        while head := self._file.read(LENGTHS.size):
            name, data = LENGTHS.unpack(head)
            yield self._file.read(name).decode(), self._file.read(data)
