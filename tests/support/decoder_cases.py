"""The streams in `anychunk/testing/decoder_cases.npz`, made by OpenJPEG's and Pillow's encoders.

    python -m tests.support.decoder_cases

writes the file: each stream, and what `opj_decompress` or Pillow says it holds.
"""

import io
from pathlib import Path

import imagecodecs
import numpy as np
from PIL import Image

from anychunk.testing import decoders
from tests.support.j2k_streams import compress, decompress, field

TARGET = Path(decoders.__file__).with_name("decoder_cases.npz")
SHAPE = (45, 70)
LEVELS = range(3)


def jpeg2000_streams() -> dict[str, bytes]:
    """Return the streams of JPEG 2000: each is one canvas, one coding, or one kind of samples."""
    gray, rgb = list(field(SHAPE)), list(field(SHAPE, bands=3))
    signed = list(field(SHAPE, depth=12, is_signed=True))
    deep = list(field(SHAPE, bands=3, depth=16))
    coarse = [gray[0], field((23, 35), depth=7)[0], field((45, 35), depth=6)[0], gray[0][::-1]]
    even = field((64, 96))[0] // 2 + 64  # so that no level exceeds 8 bits
    return {
        "reversible gray": compress(gray, "-n", "4"),
        "reversible signed": compress(signed, "-n", "3", depth=12),
        "reversible rgb": compress(rgb, "-n", "3"),
        "reversible 16 bits": compress(deep, "-n", "3", depth=16),
        "reversible tiles": compress(rgb, "-t", "32,16", "-n", "3"),
        "reversible offset": compress(gray, "-d", "5,3", "-T", "1,2", "-t", "37,29", "-n", "3"),
        "reversible coding": compress(
            rgb,
            *[
                "-c",
                "[32,32],[16,16]",
                "-b",
                "16,16",
                "-M",
                "61",
                "-SOP",
                "-EPH",
                "-p",
                "RPCL",
                "-TP",
                "R",
                "-r",
                "9,1",
            ],
            "-n",
            "3",
        ),
        "reversible subsampled": compress(
            coarse, "-mct", "0", "-n", "3", sampling="@1x1:2x2:2x1:1x1"
        ),
        "reversible htj2k": bytes(imagecodecs.htj2k_encode(even, reversible=True, resolutions=3)),
        "irreversible gray": compress(gray, "-I", "-r", "4", "-n", "4"),
        "irreversible rgb": compress(rgb, "-I", "-r", "6", "-n", "4"),
        "irreversible offset": compress(
            gray, "-I", "-d", "5,3", "-T", "1,2", "-t", "37,29", "-n", "3"
        ),
    }


def jpeg_streams() -> dict[str, bytes]:
    """Return the streams of JPEG."""
    gray, rgb = field(SHAPE)[0], np.moveaxis(field(SHAPE, bands=3), 0, -1)
    bands = np.ascontiguousarray(rgb)

    def lossy(array: np.ndarray, **options: object) -> bytes:
        target = io.BytesIO()
        Image.fromarray(array).save(target, "JPEG", quality=85, **options)
        return target.getvalue()

    return {
        "irreversible gray": lossy(gray),
        "irreversible ycbcr": lossy(bands, subsampling=0),
        "irreversible rgb": lossy(bands, keep_rgb=True),
        "irreversible subsampled": lossy(bands, subsampling=2),
        "irreversible progressive": lossy(bands, subsampling=0, progressive=True),
        "reversible gray": bytes(imagecodecs.jpeg8_encode(gray, lossless=True)),
        "reversible 12 bits": bytes(
            imagecodecs.jpeg8_encode(field(SHAPE, depth=12)[0], lossless=True, bitspersample=12)
        ),
    }


def expected_jpeg(name: str, stream: bytes) -> list[np.ndarray]:
    """Return the bands of a stream: of lossless ones what was encoded, of others what Pillow says."""
    if name.startswith("reversible"):
        return [field(SHAPE, depth=12 if "12" in name else 8)[0]]
    array = np.asarray(Image.open(io.BytesIO(stream)))
    return list(np.moveaxis(np.atleast_3d(array), -1, 0))


def made() -> dict[str, np.ndarray]:
    """Return the content of the file."""
    found = {}
    for name, stream in jpeg2000_streams().items():
        found[f"jpeg2000/{name}"] = np.frombuffer(stream, np.uint8)
        for level in LEVELS:
            for number, plane in enumerate(decompress(stream, level=level)):
                found[f"jpeg2000/{name}/{level}/{number}"] = plane
    for name, stream in jpeg_streams().items():
        found[f"jpeg/{name}"] = np.frombuffer(stream, np.uint8)
        for number, plane in enumerate(expected_jpeg(name, stream)):
            found[f"jpeg/{name}/0/{number}"] = plane
    return found


if __name__ == "__main__":
    np.savez_compressed(TARGET, **made())
