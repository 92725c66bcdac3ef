"""What notebooks show of our objects; the code that writes it is imported when one does."""

from importlib import import_module
from typing import Any


class Drawn:
    """Base of classes that notebooks show as HTML."""

    # no slots: the classes below have dataclasses of zarr as bases, too
    def _repr_html_(self) -> str | None:
        """Return HTML for Jupyter; None, so that it shows the text, if that cannot be written."""
        # by name: all layers derive from this class, and notebooks are above most of them
        notebooks: Any = import_module("anychunk.notebooks")
        found: str | None = notebooks.html(self)
        return found
