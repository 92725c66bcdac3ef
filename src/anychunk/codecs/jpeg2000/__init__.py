"""JPEG 2000: the codec, and the decoders it uses."""

from anychunk.codecs.jpeg2000.codec import Jpeg2000, Jpeg2000V2

__all__ = ["Jpeg2000", "Jpeg2000V2"]
