"""LZW and PackBits decoded by the compiled module, compared with imagecodecs."""

import imagecodecs
import numpy as np
import pytest

from anychunk.codecs.tiff import decoders
from anychunk.native import loops
from tests.support.compiled import needs_compiled

pytestmark = needs_compiled


def pixels(kind: str, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    match kind:
        case "noise":
            return rng.integers(0, 256, size).astype(np.uint8)
        case "smooth":
            return np.cumsum(rng.integers(-1, 2, size)).astype(np.uint8)
        case "few":
            return rng.integers(0, 3, size).astype(np.uint8)
        case _:
            return np.zeros(size, np.uint8)


SIZES = (1, 2, 15, 16, 17, 300, 5000, 200_000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["noise", "smooth", "few", "zeros"])
@pytest.mark.parametrize("name", ["lzw", "packbits"])
def test_streams_decode_to_what_was_encoded(name, kind, size):
    data = pixels(kind, size)
    stored = np.frombuffer(getattr(imagecodecs, f"{name}_encode")(data), np.uint8)
    out = np.full(size, 77, np.uint8)
    assert getattr(loops, f"{name}_bytes")(stored, out) == size
    np.testing.assert_array_equal(out, data)


# Adobe's TIFF 6.0, section 13: the string 7 7 7 8 8 7 7 6 6 is coded as 256 7 258 8 8 258 6 6 257
EXAMPLE = (256, 7, 258, 8, 8, 258, 6, 6, 257)


def packed(codes: tuple[int, ...]) -> np.ndarray:
    bits = "".join(f"{code:09b}" for code in codes)
    return np.packbits(np.array([int(bit) for bit in bits], np.uint8))


def test_the_example_of_the_specification():
    out = np.zeros(9, np.uint8)
    assert loops.lzw_bytes(packed(EXAMPLE), out) == 9
    assert out.tolist() == [7, 7, 7, 8, 8, 7, 7, 6, 6]
    # section 9: a run of -2 is three bytes, 2 are three literal ones, 128 is no operation
    coded = bytes.fromhex("fe aa 02 80 00 2a 80 fd aa 03 80 00 2a 22 f7 aa")
    plain = bytes.fromhex("aa aa aa 80 00 2a aa aa aa aa 80 00 2a 22") + b"\xaa" * 10
    found = np.zeros(len(plain), np.uint8)
    assert loops.packbits_bytes(coded, found) == len(plain)
    assert found.tobytes() == plain


def test_an_early_end_is_told():
    out = np.zeros(20, np.uint8)
    assert loops.lzw_bytes(packed(EXAMPLE), out) == 9
    assert loops.packbits_bytes(b"\x01ab", out) == 2


@pytest.mark.parametrize(
    "codes",
    [
        (),
        (7, 7),  # no clear code
        (256, 258),  # a string before any
        (256, 300),
        (256, 7, 259),  # a string that is not there yet
        (256, 7),  # neither full nor ended
    ],
)
def test_irregular_streams_are_left_to_others(codes):
    assert loops.lzw_bytes(packed(codes), np.zeros(9, np.uint8)) == -1


def test_a_string_beyond_the_end_is_left_to_others():
    assert loops.lzw_bytes(packed(EXAMPLE), np.zeros(2, np.uint8)) == -1
    assert loops.packbits_bytes(b"\x81a", np.zeros(2, np.uint8)) == -1
    assert loops.packbits_bytes(b"\x05ab", np.zeros(9, np.uint8)) == -1


def test_a_table_without_room_is_left_to_others():
    """Encoders send a clear code before code 4096, which twelve bits cannot hold."""
    codes, text = [256], np.arange(5000) % 251
    widths = [9]
    for number, code in enumerate(text):
        codes.append(int(code))
        # early change: one code sooner than the table asks for; the first adds none
        widths.append(min(12, max(9, (257 + number + 1).bit_length())))
    bits = "".join(f"{code:0{width}b}" for code, width in zip(codes, widths, strict=True))
    stored = np.packbits(np.array([int(bit) for bit in bits], np.uint8))
    out = np.zeros(5000, np.uint8)
    assert loops.lzw_bytes(stored, out) == -1
    np.testing.assert_array_equal(out[:3000], text[:3000])


@pytest.mark.parametrize("kind", ["noise", "smooth", "few"])
@pytest.mark.parametrize(
    ("name", "decode"), [("lzw", decoders.decode_lzw), ("packbits", decoders.decode_packbits)]
)
def test_damaged_streams_decode_as_without_the_module(monkeypatch, name, decode, kind):
    rng = np.random.default_rng(0)
    data = pixels(kind, 3000)
    whole = np.frombuffer(getattr(imagecodecs, f"{name}_encode")(data), np.uint8)
    for _ in range(200):
        stored = whole.copy()
        stored[rng.integers(0, len(stored), 2)] = rng.integers(0, 256, 2)
        stored = stored[: int(rng.integers(len(stored) // 2, len(stored) + 1))]
        room = int(rng.integers(2500, 3500))
        monkeypatch.setattr(decoders, "loops", loops)
        compiled = outcome(decode, stored, room)
        monkeypatch.setattr(decoders, "loops", None)
        assert compiled == outcome(decode, stored, room)


def outcome(decode, stored, room):
    try:
        return decode(stored, np.zeros(room, np.uint8)).tobytes()
    except RuntimeError as e:
        return type(e)
