import pytest

from anychunk.codestream.block_table import NoTableError
from anychunk.codestream.packet_bits import Bits
from anychunk.codestream.packets import read_passes
from anychunk.codestream.window_streams import passes_code, stuffed, support


@pytest.mark.parametrize("count", range(1, 165))
def test_passes_are_written_as_they_are_read(count):
    assert read_passes(Bits(stuffed(passes_code(count)), 0)) == count


def test_too_many_passes():
    with pytest.raises(NoTableError):
        passes_code(165)


def test_stuffing():
    """After 0xFF a byte has seven bits, the last of them too."""
    assert stuffed("1" * 8) == b"\xff\x00"
    assert stuffed("1" * 15) == b"\xff\x7f"
    assert stuffed("1" * 16) == b"\xff\x7f\x80"


def test_support():
    """T.800 F.3: x[4] needs s[2] and d[1..2] with 5/3; s[1..3] and d[0..3] with 9/7."""
    assert support(4, 5, 1, 1) == [((2, 3), (1, 3))]
    low, high = support(4, 5, 1, 0)[0]
    assert low[0] <= 1
    assert low[1] >= 4
    assert high[0] <= 0
    assert high[1] >= 4
