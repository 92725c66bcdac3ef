"""The protocol of every source: exactly the requested bytes, or an error."""

import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from anychunk.errors import SourceChangedError, TruncatedError
from anychunk.model.pin import TOUCHED, Pin

if TYPE_CHECKING:
    from numpy.typing import NDArray


type Bytes1D = NDArray[np.uint8]

type OnChange = Literal["error", "warn"]
"""What to do when a source has changed since it was indexed."""

type Storage = Any
"""How remote objects are read: a mapping of options, an obstore store, or an fsspec filesystem.

Options are those of `obstore.store.from_url`, or their names in s3fs, gcsfs and adlfs, and five
more: `resolve`, a function that returns the store of a url and the path in it; `redirects`,
"follow" (the default) or "same-origin", which refuses redirects to another host or port; `query`,
parameters that are added to web urls; `sign`, a function that returns a url with its signature;
`filesystem`, an fsspec filesystem."""


class Source(Protocol):
    """One object, read by range."""

    @property
    def url(self) -> str: ...
    @property
    def storage(self) -> Storage | None:
        """The options that it was opened with, for other objects that it refers to."""
        ...

    @property
    def roots(self) -> Sequence[str]:
        """The folders that it had to lie in, and local files that it refers to; empty: anywhere."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading returns a slice of memory, without a request."""
        ...

    @property
    def token(self) -> Hashable:
        """Identifies the opened version in keys of caches that outlive the source.

        A url and a pin do not: another object may have the same name, size and time.
        """
        ...

    def pin(self) -> Pin:
        """Return the version that was opened."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def read(self, offset: int, length: int) -> Bytes1D:
        """Return exactly these bytes, without a copy if possible, or raise `TruncatedError`."""
        ...

    def refresh(self) -> Pin:
        """Return the current version."""
        ...


def check_range(source: Source, offset: int, length: int) -> None:
    """Raise `TruncatedError` unless the source has these bytes."""
    size = source.size()
    if offset < 0 or length < 0 or offset + length > size:
        raise TruncatedError(
            f"{source.url} @{offset}: expected {length} bytes, the object ends after {size}"
        )


def report_change(url: str, change: str, on_change: OnChange) -> None:
    """Raise `SourceChangedError`, or warn if the caller accepts changed sources."""
    if on_change == "error":
        advice = "open it again" if change == TOUCHED else "index it again"
        raise SourceChangedError(f"{url}: {change}; {advice}")
    warnings.warn(f"{url}: {change}; what is read may be wrong", stacklevel=3)
