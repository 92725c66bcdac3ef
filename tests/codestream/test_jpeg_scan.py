import io

import numpy as np
import pytest
from PIL import Image

from anychunk.codestream.jpeg_scan import head, next_marker, units, walk
from anychunk.errors import FormatError, TruncatedError, UnsupportedError


def stream(height=40, width=56, bands=1, **options):
    y, x = np.mgrid[:height, :width]
    band = (np.sin(x / 5) * 60 + np.cos(y / 6) * 60 + 128).astype("u1")
    pixels = band if bands == 1 else np.stack([band] * bands, -1)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85, **options)
    return out.getvalue()


def array(data):
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}, {"bands": 3}]
)
def test_consecutive_streams(options):
    one = stream(**options)
    data = array(one + b"\0\0" + one)
    first = walk(data)
    assert (first.start, first.end) == (0, len(one))
    second = walk(data, len(one) + 2)
    assert (second.start, second.end) == (len(one) + 2, len(data))
    assert second.bands == options.get("bands", 1)


def test_units():
    assert units(head(array(stream(40, 56))).frame) == 5 * 7
    # colours at half resolution: units of 16 x 16
    assert units(head(array(stream(40, 56, 3, subsampling=2))).frame) == 3 * 4


@pytest.mark.parametrize("length", [0, 1, 2, 3, 10, 100, 0.5, -1])
def test_truncated(length):
    data = stream()
    length = int(len(data) * length) if isinstance(length, float) else length
    with pytest.raises(FormatError):
        walk(array(data[:length]))


def test_markers_in_the_data():
    data = bytearray(stream())
    data[-60:-58] = b"\xff\xc4"
    with pytest.raises(FormatError, match="0xc4"):
        walk(array(bytes(data)))


def test_restart_markers():
    data = stream(restart_marker_blocks=3)
    without = data.replace(b"\xff\xd1", b"\xff\x00", 1)
    with pytest.raises(FormatError, match="0xd2.*0xd1"):
        walk(array(without))
    last = data.rindex(b"\xff", 0, -2)
    with pytest.raises(FormatError, match=r"\d restart markers.* 11$"):
        walk(array(data[:last] + b"\xff\xd9"))


def test_too_little_data():
    data = stream(400, 400)
    at = data.index(b"\xff\xda")
    with pytest.raises(TruncatedError, match="2500"):
        walk(array(data[: at + 20] + b"\xff\xd9"))


def test_arithmetic_coding_is_unsupported():
    data = stream().replace(b"\xff\xc0", b"\xff\xc9", 1)
    with pytest.raises(UnsupportedError, match="process 9"):
        walk(array(data))


def test_next_marker_across_pieces():
    data = np.zeros(300, np.uint8)
    data[10:12] = 0xFF, 0
    data[99:102] = 0xFF, 0xFF, 0xD9
    assert next_marker(data, 0, piece=100) == 100
    with pytest.raises(TruncatedError):
        next_marker(data, 102)
