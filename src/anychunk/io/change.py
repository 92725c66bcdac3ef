"""A source that is no longer the one that was indexed."""

import warnings
from typing import Literal

from anychunk.errors import SourceChangedError

type OnChange = Literal["error", "warn"]
"""What to do when a source is no longer the one that was indexed."""


def report_change(url: str, change: str, on_change: OnChange) -> None:
    """Refuse a changed source, or warn of it where the caller wants to read on."""
    if on_change == "error":
        raise SourceChangedError(f"{url}: {change}; index it again")
    warnings.warn(f"{url}: {change}; what is read may be wrong", stacklevel=3)
