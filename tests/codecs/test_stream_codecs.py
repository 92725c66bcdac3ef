import bz2
import lzma
import zlib

import numpy as np
import pytest

from anychunk.codecs.bzip2 import Bzip2
from anychunk.codecs.xz import Xz
from anychunk.codecs.zlib import Zlib
from anychunk.errors import CodecConfigError
from anychunk.testing.codecs import CodecContract


class TestStreamCodecs(CodecContract):
    codecs = (Bzip2(), Bzip2(level=1), Xz(level=0), Zlib(), Zlib(level=9))
    arrays = (np.arange(300, dtype="uint16"), np.zeros((7, 9), "float32"))


@pytest.mark.parametrize(
    ("codec", "other"),
    [(Bzip2(), bz2.decompress), (Xz(), lzma.decompress), (Zlib(), zlib.decompress)],
)
def test_the_standard_library_reads_it(codec, other):
    data = np.arange(5000, dtype=np.uint16).view(np.uint8)
    assert other(bytes(codec.encode_bytes(data, None))) == data.tobytes()


@pytest.mark.parametrize("codec", [Bzip2, Xz, Zlib])
@pytest.mark.parametrize("level", [10, -1, 1.5, "6", True])
def test_level_is_checked(codec, level):
    with pytest.raises(CodecConfigError, match="level"):
        codec(level=level)
