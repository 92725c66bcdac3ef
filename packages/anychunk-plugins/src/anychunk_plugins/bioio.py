"""bioio's plug-in: `BioImage(path, reader=anychunk_plugins.bioio.Reader)`.

bioio imports this module in every process that opens an image, and so little else is imported here.
By itself, it chooses this reader only for files that no other reader of bioio claims.
"""

from typing import TYPE_CHECKING, Any

from bioio_base import reader_metadata

if TYPE_CHECKING:
    from anychunk_plugins.bioio_reader import Reader

__all__ = ["Reader", "ReaderMetadata"]

EXTENSIONS = (
    *(".n5", ".ntf", ".nitf", ".nsf", ".jnrrd", ".npy", ".npy.gz", ".jph", ".jhc"),
    *(".dt0", ".dt1", ".dt2", ".dt3", ".dt4", ".dt5"),
)
"""Not those of TIFF, OME-Zarr, JPEG 2000, NRRD and NIfTI, which other readers of bioio have."""


class ReaderMetadata(reader_metadata.ReaderMetadata):
    """What bioio asks a plug-in for."""

    @staticmethod
    def get_supported_extensions() -> list[str]:
        """Return the extensions that bioio chooses this reader for."""
        return [*EXTENSIONS]

    @staticmethod
    def get_reader() -> Any:
        """Return the class of the reader."""
        return __getattr__("Reader")


def __getattr__(name: str) -> Any:
    if name == "Reader":
        from anychunk_plugins.bioio_reader import Reader

        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
