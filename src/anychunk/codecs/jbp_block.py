"""`anychunk.jbp-block`, bytes to bytes: one block of a NITF image, plain or compressed.

Spec:     Joint BIIF Profile 5.4.3: big-endian samples, most significant bit first, ordered by
          IMODE. Keys are those of osml-imagery-io. `compression` "fax-1d" and "fax-2d" (IC C1,
          M1): ITU-T T.4, Group 3 facsimile, each line after an end-of-line code, MIL-STD-188-196
          for NITF; "vq" (IC C4, M4): vector quantisation, MIL-STD-188-199 and MIL-STD-2411.
JSON:     {"name": "anychunk.jbp-block", "configuration":
          {"num_bands": 3, "block_height": 256, "block_width": 256, "nbpp": 12, "imode": "P",
          "pvtype": "INT"}}; ours, and left out if all bits are significant: "abpp", "pjust";
          ours, and left out if false: "complex_pairs"; ours, and left out if "none": "compression"
Lossless: yes; compressed blocks are only decoded.

Decoded bytes are `(bands, height, width)` in C order, little-endian, in the narrowest type that
holds NBPP bits. If only ABPP of them are significant, samples are shifted to the low end (PJUST
`L`; bits that would be lost are an error), and a signed sample is extended from its highest
significant bit, because the bits above it are zero (JBP table A-3); others than zeros or the sign
are an error. If `complex_pairs` is true,
bands 0 and 1 are the real and imaginary parts (I and Q) of the first decoded band, 2 and 3 those of
the second, and so on.

Facsimile decodes to 1 for black. The stored bytes of a vector-quantised chunk are the look-up
tables of the image, one for each row of 4 x 4 pixels, followed by the codes of the block: an index
refers to the tables in every chunk.
"""

import math
from collections.abc import Buffer as BytesLike
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from anychunk.codecs import _fax_lines, vq
from anychunk.codecs._nitf_block import block_buffer, check_positive
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError
from anychunk.io import copying
from anychunk.model.grid import Array

type Imode = Literal["B", "P", "R", "S"]

ORDERS: dict[str, tuple[int, int, int]] = {
    "B": (0, 1, 2),
    "S": (0, 1, 2),
    "R": (1, 0, 2),
    "P": (1, 2, 0),
}
"""Axes of (band, y, x) in the order in which each IMODE stores them, slowest first."""

ALIGNED = (8, 16, 32, 64)
KINDS = {"INT": "u", "B": "u", "SI": "i", "R": "f", "C": "c"}
WIDTHS: dict[str, Sequence[int]] = {"R": (32, 64), "C": (64,), "B": range(1, 9)}
"""NBPP allowed for a PVTYPE, if not all of 1 to 64."""

COMPRESSED = {"fax-1d": (1, 1, "B"), "fax-2d": (1, 1, "B"), "vq": (1, 8, "INT")}
"""The number of bands, NBPP and PVTYPE of each compression."""

COMPLEX = {"i1": "<c8", "i2": "<c8", "i4": "<c16", "f4": "<c8", "f8": "<c16"}
"""The complex type that holds pairs of samples exactly, by kind and bytes of a sample."""


def sample_dtype(pvtype: str, nbpp: int) -> np.dtype[Any]:
    """Return the type that holds a decoded sample; raise `CodecConfigError` if there is none."""
    kind = KINDS.get(str(pvtype))  # of untrusted JSON: a list cannot be looked up
    allowed = WIDTHS.get(str(pvtype), range(1, 65))
    if kind is None or nbpp not in allowed:
        raise CodecConfigError(
            f"PVTYPE {pvtype!r} with NBPP {nbpp} is not supported; "
            "supported: INT and SI of 1 to 64 bits, B of 1 to 8, R of 32 or 64, C of 64"
        )
    nbytes = next(bits for bits in ALIGNED if bits >= nbpp) // 8
    return np.dtype(f"<{kind}{nbytes}")


def plane_bytes(pixels: int, nbpp: int) -> int:
    """Return the number of bytes of `pixels` packed samples."""
    return -(-pixels * nbpp // 8)


def unpack(data: Bytes1D, count: int, nbpp: int, dtype: np.dtype[Any]) -> Array:
    """Unpack `count` samples of `nbpp` bits each, most significant bit first."""
    if nbpp in ALIGNED:
        return data.view(dtype.newbyteorder(">"))
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if nbpp == 1:
        samples: Array = np.unpackbits(data, count=count)
    elif nbpp <= 32:
        import imagecodecs

        samples = imagecodecs.packints_decode(data, unsigned, nbpp)[:count]
    else:
        # wider than packints_decode takes: one byte per bit, then packed again into 64-bit words
        bits = np.unpackbits(data, count=count * nbpp).reshape(count, nbpp)
        wide = np.zeros((count, 64), np.uint8)
        wide[:, 64 - nbpp :] = bits
        samples = np.packbits(wide, axis=1).reshape(-1).view(">u8").astype(unsigned)
    return samples if dtype.kind == "u" else sign_extended(samples, nbpp, dtype)


def pack(samples: Array, nbpp: int) -> Bytes1D:
    """Pack samples to `nbpp` bits each, most significant bit first, padded to a whole byte."""
    if nbpp in ALIGNED:
        big = samples.astype(samples.dtype.newbyteorder(">"), copy=False)
        return np.ascontiguousarray(big).reshape(-1).view(np.uint8)
    wide = samples.astype(np.int64 if samples.dtype.kind == "i" else np.uint64).astype(">u8")
    bits = np.unpackbits(np.ascontiguousarray(wide).view(np.uint8).reshape(-1, 8), axis=1)
    return np.packbits(bits[:, 64 - nbpp :])


def sign_extended(samples: Array, bits: int, dtype: np.dtype[Any]) -> Array:
    """Interpret the low `bits` bits of unsigned samples as two's complement numbers."""
    unused = samples.dtype.type(8 * samples.dtype.itemsize - bits)
    signed = (samples << unused).view(f"i{samples.dtype.itemsize}")
    extended: Array = (signed >> signed.dtype.type(unused)).astype(dtype, copy=False)
    return extended


def uses_high_bits(samples: Array, extended: Array, nbpp: int, bits: int) -> bool:
    """Return whether signed samples of `nbpp` bits are more than their low `bits` bits say.

    Above the significant bits are zeros (JBP table A-3) or, as many writers have it, the sign.

    Parameters:
        samples: The samples, as numbers of `nbpp` bits.
        extended: The numbers that their low bits are.
        nbpp: Bits per stored sample.
        bits: How many of them are significant.
    """
    above = samples.view(f"u{samples.dtype.itemsize}") & (((1 << nbpp) - 1) ^ ((1 << bits) - 1))
    return bool(((above != 0) & (samples != extended)).any())


@dataclass(frozen=True, kw_only=True)
class JbpBlock(BytesToBytes):
    """One block, big-endian, its bands interleaved according to IMODE."""

    name: ClassVar[str] = "anychunk.jbp-block"
    is_fixed_size = True

    num_bands: int
    block_height: int
    block_width: int
    nbpp: int
    imode: Imode
    pvtype: str
    abpp: int | None = None
    """Significant bits per sample; None for all of them."""
    pjust: Literal["L", "R"] = "R"
    """Which end of a sample holds its significant bits: high (L) or low (R)."""
    complex_pairs: bool = False
    """Whether bands are pairs of real and imaginary parts."""
    compression: Literal["none", "fax-1d", "fax-2d", "vq"] = "none"
    """Facsimile with one- or two-dimensional lines, or vector quantisation."""

    def __post_init__(self) -> None:
        check_positive(self, "num_bands", "block_height", "block_width", "nbpp")
        # of untrusted JSON: a list cannot be looked up
        if str(self.imode) not in ORDERS or self.pjust not in ("L", "R"):
            raise CodecConfigError(
                f"{self.name}: imode is {self.imode!r} and pjust {self.pjust!r}, "
                "expected imode B, P, R or S, and pjust L or R"
            )
        if self.abpp is not None and (
            type(self.abpp) is not int or not 1 <= self.abpp <= self.nbpp
        ):
            raise CodecConfigError(f"{self.name}: abpp is {self.abpp!r}, expected 1 to {self.nbpp}")
        if not isinstance(self.complex_pairs, bool):
            raise CodecConfigError(
                f"{self.name}: complex_pairs is {self.complex_pairs!r}, expected true or false"
            )
        try:
            sample_dtype(self.pvtype, self.nbpp)
        except CodecConfigError as e:
            raise CodecConfigError(f"{self.name}: {e}") from None
        if self.complex_pairs and (self.num_bands % 2 or self.sample.str[1:] not in COMPLEX):
            raise CodecConfigError(
                f"{self.name}: complex_pairs with {self.num_bands} bands of {self.sample}, "
                f"expected an even number of {' '.join(COMPLEX)}"
            )
        if self.compression != "none":
            self._check_compressed()

    def _check_compressed(self) -> None:
        expected = COMPRESSED.get(str(self.compression))
        found = (self.num_bands, self.nbpp, self.pvtype)
        if expected != found or self.abpp is not None or self.complex_pairs:
            raise CodecConfigError(
                f"{self.name}: compression {self.compression!r} with bands, NBPP and PVTYPE "
                f"{found}, expected {COMPRESSED}, without abpp and complex_pairs"
            )
        # two codes share three bytes, so rows of codes must be even
        if self.compression == "vq" and (self.block_height % 8 or self.block_width % 8):
            raise CodecConfigError(
                f"{self.name}: a block of {self.block_height} x {self.block_width}, expected "
                "multiples of 8 with compression vq"
            )

    @property
    def sample(self) -> np.dtype[Any]:
        """Data type of a sample."""
        return sample_dtype(self.pvtype, self.nbpp)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the decoded block."""
        return np.dtype(COMPLEX[self.sample.str[1:]]) if self.complex_pairs else self.sample

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """Bands, height and width of the samples."""
        return self.num_bands, self.block_height, self.block_width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Bands, height and width of the decoded block."""
        bands = self.num_bands // 2 if self.complex_pairs else self.num_bands
        return bands, self.block_height, self.block_width

    @property
    def unused(self) -> int:
        """The number of bits per sample that are not significant."""
        return 0 if self.abpp is None or self.sample.kind not in "ui" else self.nbpp - self.abpp

    def planes(self) -> int:
        """Return the number of units padded to whole bytes: bands, if stored separately."""
        return self.num_bands if self.imode in ("B", "S") else 1

    def stored_bytes(self) -> int:
        """Return the length of the encoded block."""
        planes = self.planes()
        return planes * plane_bytes(math.prod(self.sample_shape) // planes, self.nbpp)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        if self.compression != "none":
            return self._decompressed(data).reshape(-1)
        if len(data) != self.stored_bytes():
            raise ChunkDecodeError(
                f"jbp-block: {len(data)} bytes, expected {self.stored_bytes()} for "
                f"{self.sample_shape} of {self.nbpp} bits"
            )
        out = block_buffer(
            self.shape, self.dtype, where="jbp-block", stored=len(data), spec=spec, out=out
        )
        order = ORDERS[self.imode]
        stored = self._samples(data).reshape([self.sample_shape[axis] for axis in order])
        samples = self._justified(stored).transpose(np.argsort(order))
        target = out.view(self.dtype).reshape(self.shape)
        if self.complex_pairs:
            target.real, target.imag = samples[0::2], samples[1::2]
        else:
            copying.assign(target, samples)
        return out

    def _decompressed(self, data: Bytes1D) -> Array:
        size = self.block_height, self.block_width
        if self.compression == "vq":
            return vq.decode(data, *size, where=self.name)
        is_two_dimensional = self.compression == "fax-2d"
        return _fax_lines.decode(
            data, *size, is_two_dimensional=is_two_dimensional, where=self.name
        )

    def _samples(self, data: Bytes1D) -> Array:
        """Unpack all samples, in the order in which they are stored."""
        count = math.prod(self.sample_shape)
        planes = self.planes()
        if self.nbpp in ALIGNED or planes == 1:
            return unpack(data, count, self.nbpp, self.sample)
        rows = data.reshape(planes, -1)
        return np.stack([unpack(row, count // planes, self.nbpp, self.sample) for row in rows])

    def _justified(self, samples: Array) -> Array:
        """Shift significant bits to the low end, and extend the sign of signed samples."""
        if not self.unused:
            return samples
        native = samples.astype(samples.dtype.newbyteorder("="))
        if self.pjust == "L":
            if (native & native.dtype.type((1 << self.unused) - 1)).any():
                raise ChunkDecodeError(
                    f"jbp-block: the {self.unused} low bits of left-justified samples are in use, "
                    f"expected zeros with ABPP {self.abpp} of {self.nbpp}; to leave samples as "
                    "stored, open NITF files with justify=False"
                )
            # an arithmetic shift for signed types, which keeps the sign
            shifted: Array = native >> native.dtype.type(self.unused)
            return shifted
        if native.dtype.kind == "u":
            return native
        bits = self.nbpp - self.unused
        extended = sign_extended(native.view(f"u{native.dtype.itemsize}"), bits, native.dtype)
        if uses_high_bits(native, extended, self.nbpp, bits):
            raise ChunkDecodeError(
                f"jbp-block: the {self.unused} high bits of signed samples are in use, expected "
                f"zeros or the sign with ABPP {self.abpp} of {self.nbpp}; to leave samples as "
                "stored, open NITF files with justify=False"
            )
        return extended

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        if self.compression != "none":
            raise ChunkEncodeError(f"{self.name}: {self.compression} is only decoded, not encoded")
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        if len(data) != nbytes:
            raise ChunkEncodeError(
                f"jbp-block: {len(data)} bytes, expected {nbytes} for {self.shape} of {self.dtype}"
            )
        order = ORDERS[self.imode]
        array = data.view(self.dtype).reshape(self.shape)
        samples = (self._split(array) if self.complex_pairs else array).transpose(order)
        self._check_range(samples)
        planes = self._unjustified(samples).reshape(self.planes(), -1)
        return np.concatenate([pack(plane, self.nbpp) for plane in planes])

    def _split(self, array: Array) -> Array:
        """Return the real and imaginary parts of complex numbers as samples."""
        parts = np.stack([array.real, array.imag], axis=1).reshape(self.sample_shape)
        if self.sample.kind == "i":
            bounds = np.iinfo(self.sample)
            is_whole = (parts >= bounds.min) & (parts <= bounds.max) & (np.floor(parts) == parts)
            if not is_whole.all():
                raise ChunkEncodeError(
                    f"jbp-block: a part is {parts[~is_whole][0]}, expected integers of "
                    f"{self.nbpp} bits"
                )
        samples: Array = parts.astype(self.sample)
        return samples

    def _check_range(self, samples: Array) -> None:
        """Raise if the significant bits cannot hold all values."""
        bits = self.nbpp - self.unused
        if samples.dtype.kind not in "ui" or bits == 8 * samples.dtype.itemsize:
            return
        is_signed = samples.dtype.kind == "i"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        if samples.size and (samples.min() < low or samples.max() > high):
            raise ChunkEncodeError(
                f"jbp-block: samples from {samples.min()} to {samples.max()}, expected {low} to "
                f"{high} for {bits} bits"
            )

    def _unjustified(self, samples: Array) -> Array:
        """Move significant bits to the end where they are stored; the others are zero."""
        if not self.unused:
            return samples
        unsigned: Array = np.ascontiguousarray(samples).view(f"u{samples.dtype.itemsize}")
        if self.pjust == "L":
            moved: Array = unsigned << unsigned.dtype.type(self.unused)
            return moved
        # JBP table A-3, PJUST: bits that are not significant are zero
        kept: Array = unsigned & unsigned.dtype.type((1 << (self.nbpp - self.unused)) - 1)
        return kept

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return self.stored_bytes()
