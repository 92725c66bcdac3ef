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
    assert not frame.is_lossless
    assert found.has_huffman_tables
    assert found.has_quantization_tables


def test_progressive_and_restarts():
    assert read_header(jpeg(progressive=True)).frame.process == 2
    assert read_header(jpeg(restart_marker_blocks=2)).restart_interval == 2


def test_tables_alone():
    data = jpeg()
    tables = data[: data.index(b"\xff\xc0")] + b"\xff\xd9"
    found = read_header(tables)
    assert found.frame is None
    assert found.has_quantization_tables
    assert not found.has_huffman_tables
    assert found.scan_offset == len(tables)


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
