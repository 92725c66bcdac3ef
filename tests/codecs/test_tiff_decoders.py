from anychunk.codecs.tiff import decoders, encoders
from anychunk.codecs.tiff.tile import PICTURES


def test_every_picture_has_a_decoder():
    assert set(decoders.PICTURE_DECODERS) == PICTURES
    assert not PICTURES & set(decoders.STREAM_DECODERS)


def test_what_is_encoded_is_decoded():
    assert encoders.ENCODED <= decoders.KNOWN
