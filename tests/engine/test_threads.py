from types import SimpleNamespace

import pytest

from anychunk.engine import threads


@pytest.mark.parametrize(
    ("count", "nbytes", "parts"),
    [
        (4000, 4 << 10, "one"),
        (16 << 10, 4 << 10, "one"),
        (64, 256 << 10, "one"),
        (64, 1 << 20, "several"),
        (1024, 64 << 10, "several"),
    ],
)
def test_small_chunks_are_copied_by_one_thread(count, nbytes, parts):
    """Two threads took twice the time for 4,000 chunks of 4 KiB."""
    ranges = []
    decode = SimpleNamespace(nbytes=nbytes, is_view=True, takes_many=False)
    threads.in_threads(ranges.append, count, decode, threads=2)
    assert sorted(number for part in ranges for number in part) == list(range(count))
    assert (len(ranges) == 1) == (parts == "one")


def test_chunks_that_are_decoded_together_are_taken_by_rows():
    ranges = []
    decode = SimpleNamespace(nbytes=64, is_view=False, takes_many=True)
    threads.in_threads(ranges.append, 43 * 43 - 5, decode, threads=2, row=43)
    assert sorted(number for part in ranges for number in part) == list(range(43 * 43 - 5))
    assert len(ranges) == 4
    assert all(part.start % 43 == 0 for part in ranges)
    ranges.clear()
    threads.in_threads(ranges.append, 43, decode, threads=2, row=43)
    assert ranges == [range(43)]
