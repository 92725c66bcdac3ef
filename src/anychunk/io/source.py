"""What every source is: exactly the bytes that were asked for, or an error."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from anychunk.errors import TruncatedError
from anychunk.model.pin import Pin

if TYPE_CHECKING:
    from numpy.typing import NDArray


type Bytes1D = NDArray[np.uint8]


type Storage = Mapping[str, Any]
"""Options for obstore's stores, as `obstore.store.from_url` takes them. Under `resolve` it may hold
a function that gives the store of a url, and the path there, instead. Under `redirects` it may hold
"same-origin": web servers may then not send us to another host or port ("follow" by default)."""


class Source(Protocol):
    """One object, read by range."""

    @property
    def url(self) -> str: ...
    @property
    def storage(self) -> Storage | None:
        """The options that its store was opened with, for objects that it names."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading is a slice of memory."""
        ...

    def pin(self) -> Pin: ...
    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> Bytes1D:
        """Give exactly these bytes, or raise `TruncatedError`; without a copy where it can."""
        ...

    def refresh(self) -> Pin:
        """Look again which version is there now."""
        ...


def check_range(source: Source, offset: int, length: int) -> None:
    size = source.size()
    if offset < 0 or length < 0 or offset + length > size:
        raise TruncatedError(
            f"{source.url} @{offset}: {length} bytes are wanted, the object ends after {size}"
        )
