"""What the compiled loop has to know of the chunks of an array to decode many of them at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkLayout:
    """Chunks that are rows of pixels, compressed or not; see `native/chunks.c`."""

    kind: int
    """The compression, by its number in `codecs.libraries`."""
    functions: bytes
    """The addresses of the functions that decompress."""
    rows: int
    columns: int
    bands: int
    """Samples that are interleaved in each pixel; in the array they are an axis of their own."""
    size: int
    """Bytes of a sample."""
    predictor: int = 1
    """As in TIFF: 1 for none."""
    is_swapped: bool = False
    """Whether samples are stored in the other byte order than that of this machine."""
    options: bytes = b""
    """What else the kind needs: the type of samples of LERC, colour spaces and tables of JPEG."""
    decoder: tuple[str, str] | None = None
    """The decoder whose library decompresses, if others may be chosen."""

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return self.rows * self.columns * self.bands * self.size
