import numpy as np

import anychunk
from anychunk.combine.mosaic import join_tables
from anychunk.model.index import INLINE, ByteRanges, GroupIndex, Parts
from tests.support.indexes import array, uint64


def test_join_keeps_parts_fronts_and_inline(tmp_path):
    """Every kind of chunk of two tables, in a shuffled order, against a plain reading."""
    (tmp_path / "f").write_bytes(bytes(range(100)))
    file = str(tmp_path / "f")
    first = ByteRanges(
        offsets=uint64([0, 10]), lengths=uint64([2, 3]), urls=(file,),
        parts=Parts(starts=uint64([0, 2, 3]), offsets=uint64([50, 60, 70]), lengths=uint64([1, 1, 1])),
    )  # fmt: skip
    second = ByteRanges(
        offsets=uint64([0, 1, 20]), lengths=uint64([4, 3, 3]), urls=(INLINE, file),
        url_ids=np.array([0, 0, 1], np.uint8), inline=b"ABCD", fronts=(b"", b"!"),
        front_ids=np.array([0, 1, 1], np.uint8),
    )  # fmt: skip
    owners, numbers = np.array([1, 0, -1, 1, 0, 1]), np.array([2, 1, 0, 0, 0, 1])
    table = join_tables([first, second], owners, numbers)
    node = GroupIndex(members={"a": array((24,), (4,), table)})
    found = bytes(anychunk.open(node)["a"][...])
    assert (
        found
        == b"!\x14\x15\x16"
        + bytes([10, 11, 12, 70])
        + b"\t" * 4
        + b"ABCD"
        + bytes([0, 1, 50, 60])
        + b"!BCD"
    )
