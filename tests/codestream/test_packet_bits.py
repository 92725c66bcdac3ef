import pytest

from anychunk.codestream.packet_bits import Bits, TagTree, tree_paths
from anychunk.errors import TruncatedError


def test_nodes_of_a_tag_tree():
    """T.800 figure B.12: 6 x 3 leaves, 3 x 2 above them, 2 x 1, the root."""
    count, paths = tree_paths(6, 3)
    assert count == 18 + 6 + 2 + 1
    assert paths[0] == (26, 24, 18, 0)
    assert paths[5] == (26, 25, 20, 5)
    assert paths[17] == (26, 25, 23, 17)
    assert tree_paths(1, 1) == (1, ((0,),))


def test_bits_after_ff():
    """T.800 B.10.1: the byte after 0xFF has seven bits, and one follows a last 0xFF."""
    bits = Bits(b"\xff\x7f\x80\xff\x00", 0)
    assert bits.read(8) == 0xFF
    assert bits.read(7) == 0x7F
    assert bits.read(8) == 0x80
    assert bits.finish() == 3
    assert bits.read(4) == 0xF
    assert bits.finish() == 5
    with pytest.raises(TruncatedError):
        bits.read(100)


def test_tag_tree_is_read_bit_by_bit():
    """T.800 B.10.2, the example of figure B.12: q(0, 0) = 1 is coded 01111, then q(1, 0) = 3 001."""
    bits = Bits(bytes([0b01111001, 0b10100000]), 0)
    tree = TagTree(6, 3)

    def value(leaf: int) -> int:
        found = 0
        while not tree.reaches(leaf, found + 1, bits):
            found += 1
        return found

    assert [value(leaf) for leaf in range(3)] == [1, 3, 2]
