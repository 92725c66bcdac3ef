"""`anychunk.nitf-bilevel`, bytes to bytes: one bi-level block of a NITF image (IC C1, M1).

Spec:     ITU-T T.4, Group 3 facsimile, one- and two-dimensional, each line after an end-of-line
          code; MIL-STD-188-196 for NITF.
JSON:     {"name": "anychunk.nitf-bilevel", "configuration": {"block_height": 512,
          "block_width": 512, "mode": "1D"}}
Lossless: yes; decoding only.

Decoded bytes are one uint8 per pixel, 1 for black. The decoder fills missing lines with white. So
lines are counted before decoding, and the codes between end-of-line codes are compared with those
that the decoded line takes.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from anychunk import limits
from anychunk.codecs import _fax_lines as fax_lines
from anychunk.codecs._nitf_block import check_positive
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError


@dataclass(frozen=True, kw_only=True)
class NitfBilevel(BytesToBytes):
    """Black and white pixels, coded as facsimile."""

    name: ClassVar[str] = "anychunk.nitf-bilevel"

    block_height: int
    block_width: int
    mode: Literal["1D", "2D"]

    def __post_init__(self) -> None:
        check_positive(self, "block_height", "block_width")
        if self.mode not in ("1D", "2D"):
            raise CodecConfigError(f"{self.name}: mode is {self.mode!r}, expected 1D or 2D")

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        import imagecodecs

        height, width = self.block_height, self.block_width
        limits.check_chunk(height * width, where=self.name, stored=len(data))
        lines = fax_lines.find_lines(data, self.mode == "2D")
        if len(lines.starts) != height:
            raise ChunkDecodeError(f"{self.name}: {len(lines.starts)} lines, expected {height}")
        try:
            # Bit 2 makes the decoder skip fill before end-of-line codes. Fill may have any length
            # (T.4 4.1.3), and need not align codes to bytes; `fax_lines` checks what is skipped
            options = 4 | (1 if self.mode == "2D" else 0)
            pixels = imagecodecs.ccittfax3_decode(data, height, width, t4options=options)
        except Exception as e:
            raise ChunkDecodeError(f"{self.name}: {str(e) or type(e).__name__}") from e
        fax_lines.check(data, lines, pixels, is_two_dimensional=self.mode == "2D", where=self.name)
        return np.ascontiguousarray(pixels).reshape(-1)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        raise ChunkEncodeError(f"{self.name}: encoding is not supported, only decoding")
