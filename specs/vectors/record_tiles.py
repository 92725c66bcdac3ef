"""Record chunks of `jpeg2000` and `jpeg`, whose streams need an encoder, in `tiles-recorded.json`.

    python specs/vectors/record_tiles.py

The streams are written by OpenJPEG (its tool `opj_compress`), libjpeg-turbo and liblj92, and
the expected samples are those that went in: all streams are lossless, or of constant blocks, which
JPEG keeps. `generate.py` copies the recorded chunks, so that it gives the same files everywhere.
"""

import base64
import io
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from PIL import Image

HERE = Path(__file__).parent
U = "https://awslabs.github.io/osml-imagery-io/codecs"

type Json = Any


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def case(name: str, configuration: Json, kind: str, chunk: Any, stream: bytes) -> Json:
    return {
        # osml-imagery-io decodes no JPEG of 12 bits
        "name": "anychunk.jpeg" if configuration.get("bits_per_pixel") == 12 else f"{U}/{name}",
        "configuration": configuration,
        "data_type": kind,
        "shape": list(chunk.shape),
        "decoded": chunk.reshape(-1).tolist(),
        "encoded": text(stream),
    }


def tile_parts(stream: bytes) -> tuple[bytes, dict[int, bytes]]:
    """Return the main header of a codestream and the tile-parts of each tile (T.800 A.4.2)."""
    start = at = stream.index(b"\xff\x90")
    tiles: dict[int, bytes] = {}
    while stream[at : at + 2] == b"\xff\x90":
        tile = int.from_bytes(stream[at + 4 : at + 6])
        length = int.from_bytes(stream[at + 6 : at + 10]) or len(stream) - 2 - at
        tiles[tile] = tiles.get(tile, b"") + stream[at : at + length]
        at += length
    return stream[:start], tiles


def compress(image: Any, tile: tuple[int, int]) -> bytes:
    """Return a lossless codestream, written by OpenJPEG's own tool."""
    with tempfile.TemporaryDirectory() as folder:
        raw, out = Path(folder, "a.raw"), Path(folder, "a.j2k")
        height, width, bands = image.shape
        raw.write_bytes(image.astype(">u2").transpose(2, 0, 1).tobytes())
        layout = f"{width},{height},{bands},16,u"
        size = f"{tile[0]},{tile[1]}"
        command = ["opj_compress", "-i", raw, "-o", out, "-F", layout, "-t", size, "-mct", "0"]
        subprocess.run([*command, "-n", "3"], check=True, capture_output=True)
        return out.read_bytes()


def jpeg2000() -> Iterator[Json]:
    """Yield single tiles: of 5 x 7 samples, which may not be moved to the origin, and of 8 x 8."""
    rng = np.random.default_rng(1)
    for bands, (height, width) in ((1, (5, 7)), (2, (8, 8))):
        image = rng.integers(0, 4000, (2 * height, 2 * width, bands)).astype("uint16")
        stream = compress(image, (width, height))
        header, tiles = tile_parts(stream)
        planes = image.transpose(2, 0, 1)
        for number, parts in sorted(tiles.items()):
            y, x = number // 2 * height, number % 2 * width
            chunk = planes[:, y : y + height, x : x + width]
            configuration = {"main_header": text(header), "resolution_level": 0}
            yield case("jpeg2000", configuration, "uint16", chunk, parts)


def jpeg() -> Iterator[Json]:
    """Yield one stream of constant 8 x 8 blocks, and a lossless one of 12 bits (SOF3)."""
    blocks = np.array([[10, 200, 127], [0, 255, 90]], "uint8").repeat(8, 0).repeat(8, 1)
    buffer = io.BytesIO()
    Image.fromarray(blocks).save(buffer, "JPEG", quality=100)
    with Image.open(io.BytesIO(buffer.getvalue())) as found:
        assert np.array_equal(np.asarray(found), blocks)
    yield case("jpeg", _jpeg_configuration(8, 16, 24), "uint8", blocks[None], buffer.getvalue())
    deep = np.random.default_rng(2).integers(0, 4096, (6, 10)).astype("uint16")
    stream = bytes(imagecodecs.ljpeg_encode(deep, bitspersample=12))
    yield case("jpeg", _jpeg_configuration(12, 6, 10), "uint16", deep[None], stream)


def _jpeg_configuration(bits: int, height: int, width: int) -> Json:
    return {
        "bits_per_pixel": bits, "num_bands": 1, "block_width": width, "block_height": height,
        "imode": "B", "color_space": "MONO",
    }  # fmt: skip


def main() -> None:
    cases = [*jpeg2000(), *jpeg()]
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases)
    (HERE / "tiles-recorded.json").write_text(f'{{"cases": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
