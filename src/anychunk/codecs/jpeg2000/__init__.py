"""JPEG 2000 tiles: the codec, and the decoders behind it."""

from anychunk.codecs.jpeg2000.codec import Jpeg2000, Jpeg2000V2

__all__ = ["Jpeg2000", "Jpeg2000V2"]
