import io

import numpy as np
import pytest
from PIL import Image

from anychunk.codestream.jpeg import read_header
from anychunk.errors import FormatError, TruncatedError


def jpeg(mode="RGB", **options) -> bytes:
    bands = {"L": (), "RGB": (3,), "CMYK": (4,)}[mode]
    image = np.random.default_rng(0).integers(0, 256, (40, 56, *bands), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(image, mode).save(file, "jpeg", **options)
    return file.getvalue()


def test_frame_of_pillow():
    found = read_header(jpeg(subsampling=2))
    frame = found.frame
    assert (frame.width, frame.height, frame.depth, frame.process) == (56, 40, 8, 0)
    assert frame.components == ((1, 2, 2), (2, 1, 1), (3, 1, 1))
    assert frame.is_subsampled
    assert not frame.is_lossless
    assert found.has_jfif
    assert found.has_huffman_tables
    assert found.has_quantization_tables
    assert found.color_transform == "ycbcr"


def test_progressive_and_restarts():
    assert read_header(jpeg(progressive=True)).frame.process == 2
    assert read_header(jpeg(restart_marker_blocks=2)).restart_interval == 2


@pytest.mark.parametrize(("mode", "transform"), [("L", "none"), ("RGB", "ycbcr"), ("CMYK", "none")])
def test_color_transform_by_mode(mode, transform):
    assert read_header(jpeg(mode)).color_transform == transform


@pytest.mark.parametrize(("value", "transform"), [(0, "none"), (1, "ycbcr")])
def test_adobe_marker_decides(value, transform):
    plain = jpeg()
    start = 2 + 2 + int.from_bytes(plain[4:6], "big")  # without JFIF
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes((value,))
    found = read_header(b"\xff\xd8" + adobe + plain[start:])
    assert found.adobe_transform == value
    assert not found.has_jfif
    assert found.color_transform == transform


def test_components_named_rgb_are_not_transformed():
    data = jpeg()
    start = 2 + 2 + int.from_bytes(data[4:6], "big")
    data = bytearray(b"\xff\xd8" + data[start:])
    place = data.index(b"\xff\xc0") + 10
    for i, letter in enumerate(b"RGB"):
        data[place + 3 * i] = letter
    assert read_header(bytes(data)).color_transform == "none"


def test_tables_alone():
    data = jpeg()
    tables = data[: data.index(b"\xff\xc0")] + b"\xff\xd9"
    found = read_header(tables)
    assert found.frame is None
    assert found.has_quantization_tables
    assert not found.has_huffman_tables
    with pytest.raises(FormatError, match="no colours"):
        _ = found.color_transform


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", FormatError),
        (b"\xff\xd8", TruncatedError),
        (b"\xff\xd8\x00\x00", FormatError),
        (b"\xff\xd8\xff\xc0\x00\x01", FormatError),
        (b"\xff\xd8\xff\xc0\x00\x40", TruncatedError),
        (b"\xff\xd8\xff\xc0\x00\x08\x08\x00\x01\x00\x00\x01", FormatError),
        (b"\xff\xd8\xff\xda\x00\x02", FormatError),
    ],
)
def test_bad_headers(data, error):
    with pytest.raises(error):
        read_header(data)


def test_every_prefix_is_an_error_or_the_whole_header():
    data = jpeg()
    whole = read_header(data)
    for length in range(whole.scan_offset):
        with pytest.raises(FormatError):
            read_header(data[:length])
